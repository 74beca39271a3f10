"""Lines in a byte range: the rule that lets a file be cut anywhere without reading it first.

A cut at offset ``c`` means "after the first newline at or after ``c - 1``", so it moves to a line's
beginning, and does not move if it is at one. A range that does not start at 0 therefore skips the line that
its predecessor began, and reads through the line that begins before its own end. Both ends move by the same
rule, so neighbours agree on where the cut is. Source: Hadoop's ``LineRecordReader``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

import attrs
import numpy as np
import pyarrow as pa

from spouts.files_format import RECORD_BYTES_MAX, FileRange
from txtopo.errors import InputError

CHUNK_BYTES = 1024 * 1024
"""How much is read at a time."""

_PROBE_BYTES = 8 * 1024


@attrs.frozen
class Lines:
    """Whole lines of a file, one after another."""

    offset: int
    """Where the first begins in the file."""
    content: bytes
    """All of them; a newline is missing at the end of a file only."""


def read_lines(handle: IO[bytes], path: str, piece: FileRange) -> Iterator[Lines]:
    """Yield the lines of a range, in chunks of about 1 MiB.

    Raises:
        InputError: a line is longer than ``RECORD_BYTES_MAX``, or the file is shorter than it was.
    """
    start = _line_start(handle, path, piece.start, piece.size)
    end = _line_start(handle, path, piece.end, piece.size) if start < piece.end else start
    handle.seek(start)
    rest = b""
    position = start
    while position < end:
        data = handle.read(min(CHUNK_BYTES, end - position))
        if not data:
            raise InputError(f"{path} ends at byte {position} and had {piece.size} bytes when it was planned")
        position += len(data)
        block = rest + data
        cut = block.rfind(b"\n") + 1 if position < end else len(block)
        if cut:
            yield Lines(position - len(block), block[:cut])
        rest = block[cut:]
        if len(rest) > RECORD_BYTES_MAX:
            raise _too_long(path, handle, position - len(rest))


def line_array(lines: Lines) -> pa.Array:
    r"""Return the lines as Arrow strings, without their ends; they are not yet known to be UTF-8.

    Lines end at ``\n`` alone; one ``\r`` before it, or before the file's end, is kept off.
    """
    content = lines.content.replace(b"\r\n", b"\n") if b"\r" in lines.content else lines.content
    if content.endswith(b"\r"):
        content = content[:-1]
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    # Every newline before a line's end is taken out of the data, so the end moves back by their number.
    offsets = np.zeros(len(ends) + 2, np.int32)
    offsets[1:-1] = ends - np.arange(len(ends))
    offsets[-1] = len(content) - len(ends)
    has_tail = not lines.content.endswith(b"\n")
    count = len(ends) + has_tail
    data = content.replace(b"\n", b"")
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets[: count + 1]), pa.py_buffer(data))


def utf8_line_array(lines: Lines, handle: IO[bytes], path: str) -> pa.Array:
    """Return the lines as Arrow strings.

    Raises:
        InputError: a line is not UTF-8; the message says which.
    """
    array = line_array(lines)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        index = first_line(lines, lambda line: not _is_utf8(line))
        line = line_number(handle, lines.offset, index)
        raise InputError(f"{path}, line {line}: it is not UTF-8; mend or convert the file", cause=str(error)) from error
    return array


def first_line(lines: Lines, is_wanted: Callable[[bytes], bool]) -> int:
    """Return the index of the first line that is wanted; that of the last line if none is."""
    split = lines.content.removesuffix(b"\n").split(b"\n")
    return next((index for index, line in enumerate(split) if is_wanted(line)), len(split) - 1)


def line_number(handle: IO[bytes], offset: int, index: int) -> int:
    """Return the number in its file, from 1, of the line ``index`` lines after the one at ``offset``."""
    handle.seek(0)
    before = 0
    left = offset
    while left > 0:
        data = handle.read(min(CHUNK_BYTES, left))
        if not data:
            break
        before += data.count(b"\n")
        left -= len(data)
    return before + index + 1


def _line_start(handle: IO[bytes], path: str, cut: int, size: int) -> int:
    """Return where the first line begins at or after a cut."""
    if cut == 0 or cut >= size:
        return cut
    handle.seek(cut - 1)
    position = cut - 1
    while position < size:
        data = handle.read(min(_PROBE_BYTES, size - position))
        if not data:
            break
        newline = data.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(data)
        if position - cut > RECORD_BYTES_MAX:
            raise _too_long(path, handle, cut)
    return size


def _too_long(path: str, handle: IO[bytes], offset: int) -> InputError:
    line = line_number(handle, offset, 0)
    return InputError(
        f"{path}, line {line}: it is longer than {RECORD_BYTES_MAX} bytes; is this the file's format?",
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
