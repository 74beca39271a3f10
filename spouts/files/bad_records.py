"""Bad records of text formats: refused, which is the default, or kept in a separate table.

A record is bad if Arrow refuses that record alone. So the verdict does not depend on the records around it, on where
its file is cut, or on the attempt. Formats parse whole blocks, and search only blocks that Arrow has refused for bad
records (:func:`sieve`), so that input without bad records costs nothing.
"""

from __future__ import annotations

import fnmatch
import glob
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import IO

import attrs
import pyarrow as pa

from spouts.bad_records import BadRecordRows
from spouts.files.file_system import DISK, FileSystem
from spouts.files.limits import ReadLimits
from spouts.files.listing import FileRange
from spouts.files.packed import is_packed, unpacked
from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError, InputError
from txtopo.files.places import is_address, local_path

BAD_RECORDS_FIELDS = Fields("file: string", "offset: long", "line: long", "text: string", "reason: string")

TOO_LONG = "it is longer than {} bytes; is this the file's format?"
"""The reason for a record that exceeds the maximum length."""

TEXT_SHOWN_MAX = 200
"""The maximum length of a bad record's text in an error."""

_REMEDY = "fix the file or the spout's fields, or give the spout dead_letter=PATH to skip bad records"

MISFITS = (pa.ArrowInvalid, UnicodeDecodeError)
"""Arrow's errors for values that do not fit; the latter if the error's text has bytes that are not UTF-8."""

_COUNTED_BYTES = 1024 * 1024
"""The number of bytes in which lines are counted at a time."""

_NUMBERS = re.compile(r"Row #\d+: | in row \d+$|In chunk \d+: Invalid: ")

_WHOLE_TRIES_MAX = 4
"""The number of bad records removed one by one from a whole block before it is divided into pieces."""

_PIECE_RECORDS = 64
"""The size of a piece: to find the bad records of one, it is parsed some times at most as often as it has records."""

Parse = Callable[[Sequence[bytes]], pa.Table]
"""Parses records; raises one of ``MISFITS`` if any of them is bad."""

Suspect = Callable[[str, Sequence[bytes]], int | None]
"""Derives from Arrow's message the index of the record that is probably bad; only a hint, which is then checked."""


@attrs.frozen
class Record:
    """A record as in its file, without its line end."""

    offset: int
    """The offset of its first byte."""
    line: int
    """The number of lines between the beginning of its block and its own first line."""
    content: bytes
    """Its bytes; only the first ones if it is too long."""
    size: int
    """Its full length in bytes."""

    @property
    def is_too_long(self) -> bool:
        """Whether it exceeds the maximum length."""
        return self.size > len(self.content)


class LineNumbers:
    """Counts the lines of files; reads each byte about once if asked file by file, from front to back."""

    def __init__(self, files: FileSystem = DISK) -> None:
        self._files = files
        self._file: tuple[str, int, int] | None = None
        self._counts = [0]
        """The newlines before each multiple of ``_COUNTED_BYTES``."""
        self._packed: _PackedLines | None = None

    def close(self) -> None:
        """Close the compressed file that was counted last."""
        if self._packed is not None:
            self._packed.handle.close()
            self._packed = None

    def before(self, path: str, piece: FileRange, offset: int) -> int:
        """Return the number of lines that end before an offset."""
        if is_packed(path):
            if self._packed is None or self._packed.position > offset:
                self.close()
                self._packed = _PackedLines(self._files.open(path), path)
            return self._packed.before(offset)
        file = (path, piece.size, piece.mtime_ns)
        if file != self._file:
            self._file, self._counts = file, [0]
        chunks, rest = divmod(offset, _COUNTED_BYTES)
        with self._files.open(path) as handle:
            handle.seek((len(self._counts) - 1) * _COUNTED_BYTES)
            while len(self._counts) <= chunks:
                self._counts.append(self._counts[-1] + handle.read(_COUNTED_BYTES).count(b"\n"))
            handle.seek(chunks * _COUNTED_BYTES)
            return self._counts[chunks] + handle.read(rest).count(b"\n")


class _PackedLines:
    """Counts the lines of a compressed file, from front to back only: to go back would be to unpack it again."""

    def __init__(self, handle: IO[bytes], path: str) -> None:
        self.handle = handle
        self.position = 0
        self._content = unpacked(self.handle, path)
        self._count = 0

    def before(self, offset: int) -> int:
        while data := self._content.read(min(_COUNTED_BYTES, offset - self.position)):
            self.position += len(data)
            self._count += data.count(b"\n")
        return self._count


class BadRecords:
    """Takes the bad records of one range of a file, and refuses the first."""

    def __init__(self, path: str, piece: FileRange, numbers: LineNumbers, limits: ReadLimits) -> None:
        self.path = path
        self.limits = limits
        self.piece = piece
        self._numbers = numbers

    def add(self, block_offset: int, record: Record, reason: str) -> None:
        """Take a bad record of the block at an offset, or raise InputError to refuse it.

        *You* give a reason that does not depend on the records around it.
        """
        shown = "" if record.is_too_long else f": {_decoded(record.content[:TEXT_SHOWN_MAX])}"
        raise InputError(f"{self.place(block_offset, record)}: {reason}{shown} (byte {record.offset}); {_REMEDY}")

    def place(self, block_offset: int, record: Record) -> str:
        """Return the file and the line of a record, for an error."""
        return f"{self.path}, line {self._line(block_offset, record)}"

    def refuse_long(self, offset: int) -> None:
        """Raise InputError for a record that is too long, before its end is found; ``offset`` is that of any byte."""
        line = self._numbers.before(self.path, self.piece, offset) + 1
        raise InputError(f"{self.path}, line {line}: {TOO_LONG.format(self.limits.record_bytes)} {_REMEDY}")

    def add_all(self, block_offset: int, records: Sequence[Record], reasons: Mapping[int, str]) -> None:
        """Take, in order, the records of a block that have a reason."""
        for index in sorted(reasons):
            self.add(block_offset, records[index], reasons[index])

    def finish(self) -> None:
        """Emit the waiting records, at the end of the range."""

    def _line(self, block_offset: int, record: Record) -> int:
        return self._numbers.before(self.path, self.piece, block_offset) + record.line + 1


class BadRecordsTable(BadRecords):
    """Emits the bad records of one range of a file, in batches of :data:`BAD_RECORDS_FIELDS`."""

    def __init__(
        self,
        path: str,
        piece: FileRange,
        numbers: LineNumbers,
        limits: ReadLimits,
        emit: Callable[[pa.RecordBatch], None],
    ) -> None:
        super().__init__(path, piece, numbers, limits)
        self._rows = BadRecordRows(BAD_RECORDS_FIELDS, emit, limits.bad_rows)
        self._block: tuple[int, int] | None = None
        """The offset of the last block, and the number of lines that end before it."""

    def add(self, block_offset: int, record: Record, reason: str) -> None:
        """Keep a bad record until a batch is full."""
        text = _cut(record.content, self.limits.text_bytes)
        if len(text) < record.size:
            reason = f"{reason} (the text is its first {len(text)} bytes of {record.size})"
        line = self._line(block_offset, record)
        self._rows.add((self.path, record.offset, line, _decoded(text), reason), len(text))

    def refuse_long(self, offset: int) -> None:
        """Do nothing: the reader continues to the end of the record."""

    def finish(self) -> None:
        """Emit the waiting records."""
        self._rows.finish()

    def _line(self, block_offset: int, record: Record) -> int:
        if self._block is None or self._block[0] != block_offset:
            self._block = (block_offset, self._numbers.before(self.path, self.piece, block_offset))
        return self._block[1] + record.line + 1


def checked_dead_letter(path: str | os.PathLike[str], inputs: Sequence[str]) -> str:
    """Return the path of a table of bad records; raise ConfigError if the spout's paths and globs would read it."""
    text = os.fspath(path)
    table = PurePath(text if is_address(text) else local_path(text))
    within = next((each for each in inputs if _is_read(table, each)), None)
    if within is not None:
        raise ConfigError(
            f"dead_letter={text!r} is in {within}, which the spout reads; put the table elsewhere, or below a "
            "name that begins with '_'"
        )
    return text


def _is_read(table: PurePath, path: str) -> bool:
    """Whether files at or below a path would be read as input."""
    path = str(PurePath(path))  # as the table: with one slash in an address
    parts = PurePath(path).parts
    plain = PurePath(*itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    if not table.is_relative_to(plain) or any(name.startswith((".", "_")) for name in table.relative_to(plain).parts):
        return False
    folders = [table, *table.parents]
    if "**" in path:
        return any(fnmatch.fnmatch(str(folder), path) for folder in folders)
    return any(folder == PurePath(path) or folder.match(path) for folder in folders)


def read_each(  # noqa: PLR0913, PLR0917 - what a format knows of its records
    block_offset: int,
    records: Sequence[Record],
    fault: Callable[[Record], str | None],
    parse: Parse,
    suspect: Suspect,
    bad: BadRecords,
) -> Iterator[pa.Table]:
    """Yield a block's good records, and pass the bad to ``bad``; ``fault`` says why of some without Arrow."""
    # A few thousand records at a time, since each emitted batch reports progress and renews the attempt's timeout.
    for start in range(0, len(records), bad.limits.bad_rows):
        portion = records[start : start + bad.limits.bad_rows]
        reasons = {index: found for index, record in enumerate(portion) if (found := fault(record)) is not None}
        good = [index for index in range(len(portion)) if index not in reasons]
        tables, misfits = sieve([portion[index].content for index in good], parse, suspect)
        reasons.update({good[at]: reason for at, reason in misfits.items()})
        bad.add_all(block_offset, portion, reasons)
        if tables:
            yield pa.concat_tables(tables)


def sieve(records: Sequence[bytes], parse: Parse, suspect: Suspect) -> tuple[list[pa.Table], dict[int, str]]:
    """Separate good records from bad ones, by whether Arrow accepts each of them alone.

    If Arrow's message points to a record, that record is parsed alone and removed if it is bad. If the message points
    nowhere, the block is halved. In the end Arrow has parsed every good record in a block that it accepts, and has
    refused every bad one on its own. Each bad record takes only a few tries.

    Returns:
        The good records in their order, and the reason of each bad one by its index.
    """
    tables: list[pa.Table] = []
    reasons: dict[int, str] = {}
    blocks = [list(range(len(records)))]
    tries = 0
    while blocks:
        block = blocks.pop()
        if not block:
            continue
        contents = [records[index] for index in block]
        try:
            tables.append(parse(contents))
        except MISFITS as error:
            message = str(error)
        else:
            continue
        if len(block) == 1:
            reasons[block[0]] = _reason(message)
            continue
        tries += 1
        at = suspect(message, contents)
        reason = None if at is None else _fault(contents[at], parse)
        if at is None or reason is None:
            middle = len(block) // 2
            blocks += [block[middle:], block[:middle]]
            continue
        reasons[block.pop(at)] = reason
        # Each try parses the whole block again, so a block with many bad records is cut into small pieces.
        if tries >= _WHOLE_TRIES_MAX and len(block) > _PIECE_RECORDS:
            starts = range(0, len(block), _PIECE_RECORDS)
            blocks += [block[start : start + _PIECE_RECORDS] for start in reversed(starts)]
        else:
            blocks.append(block)
    return tables, reasons


def _fault(record: bytes, parse: Parse) -> str | None:
    """Return Arrow's reason for refusing a record alone; None if it accepts it."""
    try:
        parse([record])
    except MISFITS as error:
        return _reason(str(error))
    return None


def _reason(message: str) -> str:
    """Return Arrow's message about a single record without row and chunk numbers, which are meaningless there."""
    remedy = "; JSON has quotes around strings, and around times" if "changed from string to number" in message else ""
    return f"it does not fit: {_NUMBERS.sub('', message)}{remedy}"


def _cut(content: bytes, size_max: int) -> bytes:
    """Return the first bytes of a record that the table keeps, cut at the end of a character."""
    end = size_max
    if len(content) <= end:
        return content
    while end > size_max - 4 and content[end] & 0xC0 == 0x80:  # noqa: PLR2004 - a byte that continues a character
        end -= 1
    return content[:end]


def _decoded(content: bytes) -> str:
    return content.decode(errors="backslashreplace")
