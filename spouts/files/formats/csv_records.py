"""Find the records of a CSV file with quotes: in blocks of whole ones, or one by one so that each can be checked.

The rules are Arrow's: a quote opens only at the beginning of a value; inside, a doubled quote stands for a quote; text
after the closing quote is read as unquoted up to the next delimiter. A record ends with the first line in which no
quote is open. Where quotes are in pairs, as in nearly every file, that is where their number is even, and a block ends
there without a look at its records. Only blocks with a bad record, and files with odd quotes, are divided into records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

import attrs
import numpy as np

from spouts.files.bad_records import Record
from spouts.files.formats.lines import Lines
from spouts.files.limits import ReadLimits

_LINE_END_BYTES = len(b"\r\n")

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


@attrs.frozen
class QuotedBlock:
    """Consecutive records."""

    offset: int
    """The offset of the block."""
    end: int
    """The offset of the next block."""
    records: list[Record]
    """The records that are not blank, at least one."""
    is_open: bool
    """Whether the last record's quote is still open at the file's end."""


@attrs.frozen
class _FoundRecord:
    """A record or a blank line; empty at the end of the file."""

    content: bytes
    """Its bytes without its line end; only the first ones if it is too long."""
    size: int
    """Its length in bytes, including its line end."""
    end_size: int
    lines: int
    """The newlines in it."""
    is_open: bool
    """Whether a quote is open at its end."""


class QuotedRecords:
    """Finds the records of files, by the delimiter between values and the quote that may enclose a value."""

    def __init__(self, delimiter: str, quote: str) -> None:
        self._quote = quote.encode()
        self._delimiter = delimiter.encode()
        self._before_opening = np.array([*b"\r\n", ord(delimiter), ord(quote)], np.uint8)
        self._undecided = {self._quote, self._delimiter, b"\r"}
        """Characters that must not end a part of a line, because their meaning depends on the next one."""
        self._opening = re.compile(b"[\\r\\n" + re.escape(self._delimiter) + b"]" + re.escape(self._quote))

    def are_in_pairs(self, handle: IO[bytes], start: int, limits: ReadLimits) -> bool:
        """Whether all quotes from an offset on certainly open or close values, or are doubled inside them.

        This is certain if every other quote, from the first on, begins a value or directly follows another quote. False
        only means that it is uncertain.
        """
        handle.seek(start)
        quote = ord(self._quote)
        count, last = 0, b"\n"
        while chunk := handle.read(limits.chunk_bytes):
            if self._quote in chunk:
                data = np.frombuffer(last + chunk, np.uint8)
                at = np.flatnonzero(data[1:] == quote)
                if not np.isin(data[at[count % 2 :: 2]], self._before_opening).all():
                    return False
                count += len(at)
            last = chunk[-1:]
        return count % 2 == 0

    def blocks(self, handle: IO[bytes], start: int, limits: ReadLimits) -> Iterator[Lines | QuotedBlock]:
        """Yield the records from a record's offset on, as :meth:`read` finds them, in blocks of about 1 MiB.

        *You* have checked :meth:`are_in_pairs`. A block that may hold a record that is too long is divided.
        """
        handle.seek(start)
        rest = b""
        while True:
            # As much again as is there, so that a long record is not copied for each of its parts.
            data = handle.read(max(limits.chunk_bytes, len(rest)))
            content = rest + data
            cut = self._last_end(content) if data else len(content)
            if (cut or len(content)) > limits.record_bytes:
                handle.seek(start)
                block = next(self.read(handle, start, limits), None)
                if block is None:
                    return  # blank lines to the file's end
                yield block
                start, rest = block.end, b""
                handle.seek(start)
                continue
            if cut:
                yield Lines(start, content[:cut])
            elif not data:
                return
            start, rest = start + cut, content[cut:]

    def _last_end(self, content: bytes) -> int:
        """Return the end of the last line after which no quote is open; 0 if there is none."""
        end = len(content)
        is_open = content.count(self._quote) % 2 == 1
        while (newline := content.rfind(b"\n", 0, end)) >= 0:
            is_open ^= content.count(self._quote, newline, end) % 2 == 1
            if not is_open:
                return newline + 1
            end = newline
        return 0

    def read(
        self, handle: IO[bytes], start: int, limits: ReadLimits, records_max: int | None = None
    ) -> Iterator[QuotedBlock]:
        """Yield the records from where the handle is, a record's offset ``start``, in blocks of about 1 MiB.

        A block has at most ``records_max`` records. Only the beginning is kept of a record that is too long.
        """
        parts = self._parts(handle, limits.record_bytes)
        begin = offset = start
        records: list[Record] = []
        lines = 0
        is_open = False
        while True:
            record = self._next(parts, limits)
            is_open = record.is_open if record.size else is_open
            if record.content.strip(b"\r\n"):
                records.append(Record(offset, lines, record.content, record.size - record.end_size))
            offset += record.size
            lines += record.lines
            if records and (not record.size or offset - begin >= limits.chunk_bytes or len(records) == records_max):
                yield QuotedBlock(begin, offset, records, is_open)
                begin, records, lines = offset, [], 0
            if not record.size:
                return

    def _next(self, parts: Iterator[bytes], limits: ReadLimits) -> _FoundRecord:
        parts_kept: list[bytes] = []
        size = lines = 0
        is_open = False
        part = b""
        for part in parts:
            is_open = self._is_open_after(part, is_open=is_open, begins_record=not size)
            size += len(part)
            lines += part.endswith(b"\n")
            if size <= limits.record_bytes + _LINE_END_BYTES:
                parts_kept.append(part)
            elif sum(map(len, parts_kept)) <= limits.kept_bytes:
                parts_kept = [b"".join([*parts_kept, part])[: limits.kept_bytes]]
            if not is_open and part.endswith((b"\n", b"\r")):
                break
        end_size = len(part) - len(_without_end(part))
        content = b"".join(parts_kept)
        if size == len(content):
            content = _without_end(content)
        if size - end_size > limits.record_bytes:
            content = content[: limits.kept_bytes]
        return _FoundRecord(content, size, end_size, lines, is_open)

    def _parts(self, handle: IO[bytes], size_max: int) -> Iterator[bytes]:
        """Yield the lines, which may also end with a carriage return; yield very long ones in parts."""
        while data := handle.readline(size_max + 1):
            while data[-1:] in self._undecided and (more := handle.readline(1)):
                data += more
            yield from _LINE.findall(data) if b"\r" in data else (data,)

    def _is_open_after(self, data: bytes, *, is_open: bool, begins_record: bool) -> bool:
        """Return whether a quote is open at the end of a part of a record."""
        if self._quote not in data:
            return is_open
        position = 0
        if not is_open and begins_record and data.startswith(self._quote):
            position, is_open = 1, True
        while True:
            if is_open:
                position = data.find(self._quote, position) + 1
                if not position:
                    return True
                if data[position : position + 1] == self._quote:
                    position += 1
                else:
                    is_open = False
            else:
                opening = self._opening.search(data, position)
                if opening is None:
                    return False
                position, is_open = opening.end(), True


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")
