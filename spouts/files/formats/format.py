"""The contract of a file format: how its files are cut, and how a piece is read."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import IO

import attrs
import pyarrow as pa

from spouts.files.bad_records import BadRecords
from spouts.files.file_system import DISK, FileSystem
from spouts.files.limits import ReadLimits
from spouts.files.listing import FileRange, InputFile
from spouts.files.packed import is_packed
from txtopo.api.data.fields import Fields
from txtopo.errors import FieldsError


@attrs.frozen
class Span:
    """A part of one file, from ``start`` to before ``end``, in the units of its format (bytes or row groups)."""

    start: int
    end: int
    size_bytes: int


class FileFormat(ABC):
    """Cuts and reads the files of one format.

    *An implementation* should cut files without reading records, or with as few reads as possible. Consecutive spans
    must together hold every record exactly once, wherever the cuts are.
    """

    name: str
    suffixes: tuple[str, ...]
    files: FileSystem = DISK
    """Where the files are."""
    limits = ReadLimits()

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        """The fields after the attempt."""

    @abstractmethod
    def next_span(self, file: InputFile, start: int, bytes_max: int) -> Span | None:
        """Return the next span of a file: up to ``bytes_max`` or the smallest possible; None at the end of the file."""

    @abstractmethod
    def cut(self, file: InputFile, span: Span, pieces: int) -> list[Span]:
        """Cut a span into at most ``pieces`` spans of about equal size."""

    @abstractmethod
    def read(self, handle: IO[bytes], piece: FileRange, bad: BadRecords) -> Iterator[pa.RecordBatch]:
        """Yield the records of a piece as batches of :attr:`fields`; give those that do not fit the fields to ``bad``.

        ``handle`` is an :class:`~spouts.files.packed.Unpacked` if the file is compressed.

        Raises:
            InputError: the file cannot be read, or ``bad`` refuses a record; the message says where.
        """


class ByteRangeFormat(FileFormat):
    """A format whose records are lines: any byte range is a span; its ends move to line ends when it is read."""

    def next_span(self, file: InputFile, start: int, bytes_max: int) -> Span | None:
        """Return the next bytes of a file, or the whole of a compressed one."""
        if is_packed(file.name):
            return Span(0, file.size, file.size) if start == 0 else None
        end = min(file.size, start + bytes_max)
        return Span(start, end, end - start) if start < end else None

    def cut(self, file: InputFile, span: Span, pieces: int) -> list[Span]:
        """Cut a byte range evenly; keep a compressed file whole."""
        if is_packed(file.name):
            return [span]
        cuts = [span.start + span.size_bytes * piece // pieces for piece in range(pieces + 1)]
        return [Span(start, end, end - start) for start, end in itertools.pairwise(cuts) if start < end]


def typed_schema(fields: Fields, format_name: str) -> pa.Schema:
    """Return the Arrow schema of a typed format's fields; raise FieldsError if one has no type, or there are none."""
    if not len(fields):
        raise FieldsError(f"a {format_name} spout needs fields with types, such as Fields('word: string', 'n: long')")
    return fields.arrow_schema()


def in_batches(table: pa.Table | pa.RecordBatch, rows_max: int) -> Iterable[pa.RecordBatch]:
    """Return the rows as record batches of at most ``rows_max`` rows."""
    batches = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
    for batch in batches:
        for start in range(0, batch.num_rows, rows_max):
            yield batch.slice(start, rows_max)
