"""Lines in a byte range: the rule that allows a file to be cut anywhere without reading it first.

A cut at offset ``c`` means "after the first newline at or after ``c - 1``". So it moves to the beginning of a line,
and stays if it is at one already. A range that does not start at 0 therefore skips the line that its predecessor
began, and reads to the end of the line that begins before its own end. Both ends move by the same rule, so neighbours
agree on the cut. Source: Hadoop's ``LineRecordReader``.
"""

from __future__ import annotations

import codecs
import collections
import operator
from collections.abc import Iterator
from typing import IO

import attrs
import numpy as np
import pyarrow as pa

from spouts.files.bad_records import TOO_LONG, BadRecords, Record
from spouts.files.listing import FileRange
from spouts.files.packed import UNPACKED_END, Unpacked
from txtopo.errors import InputError

_PROBE_BYTES = 8 * 1024
"""How much is read to tell the encoding, and to find the end of a line: most lines are shorter."""

_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Byte order marks that are not UTF-8's. In their encodings each line end has a null character."""

_UNMARKED = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
"""Encodings whose text may have no mark."""

_LETTERS_MIN = 3
"""In how many letters they are recognized at least."""


@attrs.frozen
class Lines:
    """Consecutive whole lines of a file."""

    offset: int
    """The offset of the first line in the file."""
    content: bytes
    """The lines' bytes. Only the last line of the file may lack a newline."""


def file_start(handle: IO[bytes], path: str) -> int:
    """Return where a file's first line begins: after its byte order mark, if it has one.

    Raises:
        InputError: it is the mark of another encoding, or the text looks like one of those without a mark. Most of its
            lines would pass for UTF-8 with null characters.
    """
    handle.seek(0)
    first = handle.read(_PROBE_BYTES)
    for mark, encoding in _OTHER_MARKS.items():
        if first.startswith(mark) and (b"\0" in first or first == mark):
            raise InputError(f"{path} is {encoding}: make it UTF-8, for example by iconv -f {encoding} -t UTF-8")
    for encoding in _UNMARKED:
        if b"\0" in first and _looks_like(first, encoding):
            raise InputError(
                f"{path} looks like {encoding} without a byte order mark: make it UTF-8, for example by "
                f"iconv -f {encoding} -t UTF-8"
            )
    return len(codecs.BOM_UTF8) if first.startswith(codecs.BOM_UTF8) else 0


def _looks_like(content: bytes, encoding: str) -> bool:
    """Whether bytes with null characters are text of an encoding: with its line ends, and mostly of one alphabet."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(content)
    except UnicodeDecodeError:
        return False
    if "\0" in text or text.count("\n") != content.count(b"\n"):
        return False
    blocks = collections.Counter(ord(letter) >> 8 for letter in text.replace("\n", ""))
    # Of UTF-8, two letters would be one whose block is a letter.
    block, count = max(blocks.items(), key=operator.itemgetter(1), default=(0, 0))
    return block < ord(" ") and 2 * count >= blocks.total() >= _LETTERS_MIN


def read_lines(handle: IO[bytes], piece: FileRange, bad: BadRecords) -> Iterator[Lines]:
    """Yield the lines of a range in chunks of about 1 MiB; one that is too long is a bad record.

    The byte order mark that a file may begin with is no part of its first line.
    """
    limits = bad.limits
    if isinstance(handle, Unpacked):
        piece = attrs.evolve(piece, end=UNPACKED_END, size=UNPACKED_END)
    start = _line_start(handle, piece.start, piece.end, bad)
    end = _line_start(handle, piece.end, piece.size, bad) if start < piece.end else start
    if start == 0:
        start = file_start(handle, bad.path)
    handle.seek(start)
    position = begin = start
    rest = b""  # of the line that begins at ``begin``
    last = b""  # the byte before ``position``
    is_last = _is_last(handle, position, end)
    while not is_last:
        data = handle.read(min(limits.chunk_bytes, end - position))
        if not data:
            raise InputError(f"{bad.path} ends at byte {position}, but had {piece.size} bytes when it was planned")
        newline = data.find(b"\n")
        stop = len(data) if newline < 0 else newline
        size = position + stop - begin
        position += len(data)
        is_last = _is_last(handle, position, end)
        is_whole = newline >= 0 or is_last
        last = (last + data[:stop])[-1:]
        length = size - (is_whole and last == b"\r")
        if length > limits.record_bytes + (not is_whole):  # the last byte may be a line end's first
            rest = (rest + data[:stop])[: limits.kept_bytes]
            if not is_whole:
                bad.refuse_long(begin)
                continue
            bad.add(begin, Record(begin, 0, rest, length), TOO_LONG.format(limits.record_bytes))
            begin, rest, data = begin + size + 1, b"", data[stop + 1 :]
        last = data[-1:]
        block = rest + data
        cut = block.rfind(b"\n") + 1 if not is_last else len(block)
        if cut:
            yield Lines(begin, block[:cut])
        begin, rest = begin + cut, block[cut:]


def records_of(lines: Lines) -> list[Record]:
    """Return the lines as records, without their line ends."""
    records = []
    offset = lines.offset
    for number, line in enumerate(lines.content.removesuffix(b"\n").split(b"\n")):
        content = line.removesuffix(b"\r")
        records.append(Record(offset, number, content, len(content)))
        offset += len(line) + 1
    return records


def line_array(lines: Lines) -> pa.Array:
    r"""Return the lines as Arrow strings without their line ends; UTF-8 is not checked.

    A line ends with ``\n``; one ``\r`` before it, or before the file's end, is removed.
    """
    content = lines.content.replace(b"\r\n", b"\n") if b"\r" in lines.content else lines.content
    if content.endswith(b"\r"):
        content = content[:-1]
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    # All newlines are removed from the data, so each line's end moves back by the number of newlines before it.
    offsets = np.zeros(len(ends) + 2, np.int32)
    offsets[1:-1] = ends - np.arange(len(ends))
    offsets[-1] = len(content) - len(ends)
    has_tail = not lines.content.endswith(b"\n")
    count = len(ends) + has_tail
    data = content.replace(b"\n", b"")
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets[: count + 1]), pa.py_buffer(data))


def utf8_line_array(lines: Lines) -> pa.Array | None:
    """Return the lines as Arrow strings; None if one of them is not UTF-8."""
    array = line_array(lines)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return array


def utf8_fault(record: bytes) -> str | None:
    """Return why bytes are not UTF-8; None if they are."""
    try:
        record.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 ({error.reason} at its byte {error.start})"
    return None


def _is_last(handle: IO[bytes], position: int, end: int) -> bool:
    return position >= end or (isinstance(handle, Unpacked) and handle.is_at_end())


def _line_start(handle: IO[bytes], cut: int, limit: int, bad: BadRecords) -> int:
    """Return the offset of the first line that begins at or after a cut; ``limit`` if none begins before it."""
    if cut == 0 or cut >= limit:
        return cut
    handle.seek(cut - 1)
    position = cut - 1
    while position < limit:
        data = handle.read(min(_PROBE_BYTES, limit - position))
        if not data:
            break
        newline = data.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(data)
        if position - cut > bad.limits.record_bytes:
            bad.refuse_long(cut)
    return limit
