"""Compressed files: read as one stream, without ever unpacking more than what is asked for.

Nothing tells how long a compressed file is when unpacked, nor where its records begin. So it is one range, which one
task reads as a whole; offsets and lines of bad records count in the unpacked file.
"""

from __future__ import annotations

import bz2
import gzip
import io
import sys
import zlib
from pathlib import PurePath
from typing import IO, Any, cast

import pyarrow as pa

from txtopo.errors import BucketUnreachable, InputError

PACKED_SUFFIXES = (".gz", ".bz2", ".zst", ".zstd")
"""Suffixes of compressed files that are read."""

UNPACKED_END = sys.maxsize
"""The end of an unpacked file, which is not known."""

_READ_BYTES = 1024 * 1024
"""How much is read, or passed over, at a time."""

_FAULTS = (EOFError, gzip.BadGzipFile, zlib.error)
"""The errors of a stream that is cut or damaged; pyarrow and bz2 raise an OSError without a number."""


def is_packed(path: str) -> bool:
    """Whether a file is compressed, by its name."""
    return path.lower().endswith(PACKED_SUFFIXES)


def suffix_of(path: str) -> str:
    """Return the suffix of a file's name in lower case, without that of its compression."""
    name = PurePath(path.lower())
    return name.with_suffix("").suffix if is_packed(path) else name.suffix


class Unpacked(io.BufferedReader):
    """The content of a compressed file. To seek back, it is read from its beginning again."""

    def is_at_end(self) -> bool:
        """Whether nothing is left to read."""
        return not self.peek(1)


def unpacked(handle: IO[bytes], path: str, buffer_bytes: int = _READ_BYTES) -> IO[bytes]:
    """Return the content of an open file: unpacked if its name says that it is compressed."""
    return cast("IO[bytes]", Unpacked(_Stream(handle, path), buffer_bytes)) if is_packed(path) else handle


class _BorrowedHandle:
    """Wraps a handle for Arrow, which closes what it has read."""

    closed = False

    def __init__(self, handle: IO[bytes]) -> None:
        self.read = handle.read

    def close(self) -> None:
        """Leave the handle open."""


class _Bz2:
    """Reads bz2. The standard library's file takes a member whose beginning is damaged for the end of the file."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self._member: bz2.BZ2Decompressor | None = None

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes, none at the end; raise EOFError or OSError if the file is damaged."""
        while True:
            packed = b""
            if self._member is None or self._member.eof:
                packed = self._beginning(b"" if self._member is None else self._member.unused_data)
                if not packed:
                    return b""
                self._member = bz2.BZ2Decompressor()
            elif self._member.needs_input and not (packed := self._handle.read(_READ_BYTES)):
                raise EOFError("a member ends too early")
            if data := self._member.decompress(packed, size):
                return data

    def _beginning(self, packed: bytes) -> bytes:
        """Return the beginning of the next member; zeros before it are passed over, as gzip does."""
        while not (packed := packed.lstrip(b"\0")):
            if not (packed := self._handle.read(_READ_BYTES)):
                break
        return packed


class _Stream(io.RawIOBase):
    def __init__(self, handle: IO[bytes], path: str) -> None:
        super().__init__()
        self._handle = handle
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._handle.seek(0)
        self._position = 0
        suffix = PurePath(self._path.lower()).suffix
        if suffix == ".gz":
            self._content: Any = gzip.GzipFile(fileobj=self._handle)
        elif suffix == ".bz2":
            self._content = _Bz2(self._handle)
        else:
            self._content = pa.CompressedInputStream(pa.PythonFile(_BorrowedHandle(self._handle), mode="r"), "zstd")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        assert whence == io.SEEK_SET, "an unpacked file has no known end"
        if offset < self._position:
            self._begin()
        while self._position < offset:
            if not self._read(min(_READ_BYTES, offset - self._position)):
                break
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        try:
            data: bytes = self._content.read(size)
        except _FAULTS as error:
            raise self._damaged(error) from error
        except OSError as error:
            if error.errno is not None or isinstance(error, BucketUnreachable):
                raise
            raise self._damaged(error) from error
        self._position += len(data)
        return data

    def _damaged(self, error: Exception) -> InputError:
        return InputError(
            f"{self._path} can't be unpacked after byte {self._position} of its content: it is damaged, incomplete, or "
            "not what its name says; put a whole file there",
            cause=str(error),
        )
