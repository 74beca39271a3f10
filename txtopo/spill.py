"""Spilled segments: bytes that wait in a file instead of in memory, first in, first out."""

from __future__ import annotations

import tempfile
from collections import deque
from typing import IO


class SpillFile:
    """A file of segments. It has no name, so nothing is left of it when the process ends, however it does.

    It is made when something is first put into it, and empty again when everything was taken out.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._lengths: deque[int] = deque()
        self._start = 0
        """Where the oldest segment begins."""
        self.bytes = 0
        """Bytes that wait in the file."""

    def __len__(self) -> int:
        """Return how many segments wait."""
        return len(self._lengths)

    def put(self, segment: bytes) -> None:
        """Write a segment behind the others."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="txtopo-spill-")  # noqa: SIM115 - close() does
        self._file.seek(self._start + self.bytes)
        self._file.write(segment)
        self._lengths.append(len(segment))
        self.bytes += len(segment)

    def take(self) -> bytes:
        """Remove the oldest segment and return it.

        Raises:
            IndexError: there is none.
        """
        length = self._lengths.popleft()
        assert self._file is not None, "there was a segment"
        self._file.seek(self._start)
        segment = self._file.read(length)
        self._start += length
        self.bytes -= length
        if not self._lengths:
            self._file.truncate(0)
            self._start = 0
        return segment

    def close(self) -> None:
        """Remove the file with all that is in it."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lengths.clear()
        self._start = self.bytes = 0
