"""What a file format has to know for the files spout: how its files are cut, and how a piece is read."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import IO

import attrs
import pyarrow as pa

from spouts.files.bad_records import BadRecords
from spouts.files.listing import FileRange, InputFile, describe
from txtopo.api.fields import Fields
from txtopo.errors import FieldsError, InputError

BATCH_ROWS_MAX = 65_536
"""The most rows of a record batch that is emitted."""

RECORD_BYTES_MAX = 16 * 1024 * 1024
"""The longest record of a text, CSV or JSON file."""


@attrs.frozen
class Span:
    """A stretch of one file, from ``start`` to before ``end`` in the units of its format."""

    start: int
    end: int
    size_bytes: int


class FileFormat(ABC):
    """Cuts and reads the files of one format.

    *An implementation* cuts without looking at records, or at as few bytes as it can; spans that follow one
    another hold, together, every record exactly once, wherever the cuts fall.
    """

    name: str
    suffixes: tuple[str, ...]

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        """The fields after the attempt."""

    @abstractmethod
    def next_span(self, file: InputFile, start: int, bytes_max: int) -> Span | None:
        """Return what comes next in a file: up to ``bytes_max`` or the least that can be; None at its end."""

    @abstractmethod
    def cut(self, file: InputFile, span: Span, pieces: int) -> list[Span]:
        """Cut a span into up to ``pieces`` of about equal size."""

    @abstractmethod
    def read(self, handle: IO[bytes], piece: FileRange, bad: BadRecords) -> Iterator[pa.RecordBatch]:
        """Yield the records of a piece as batches of :attr:`fields`.

        Args:
            handle: the file.
            piece: which part of it.
            bad: takes, or refuses, each record that does not fit the fields; knows the file's path.

        Raises:
            InputError: the file cannot be read; the message says where.
        """


class ByteRangeFormat(FileFormat):
    """A format whose records are lines: any byte range is a span, cut at line ends when it is read."""

    def next_span(self, file: InputFile, start: int, bytes_max: int) -> Span | None:
        """Return the next bytes of a file."""
        end = min(file.size, start + bytes_max)
        return Span(start, end, end - start) if start < end else None

    def cut(self, file: InputFile, span: Span, pieces: int) -> list[Span]:
        """Cut a byte range evenly."""
        del file
        cuts = [span.start + span.size_bytes * piece // pieces for piece in range(pieces + 1)]
        return [Span(start, end, end - start) for start, end in itertools.pairwise(cuts) if start < end]


class FileChangedError(InputError):
    """A file is not what it was when it was planned, or gone."""


def check_unchanged(path: str, planned: FileRange | InputFile, handle: IO[bytes] | None = None) -> None:
    """Check that a file is what it was when it was planned.

    Args:
        path: its path.
        planned: what it was.
        handle: the file itself, opened; None: what is at the path now.

    Raises:
        FileChangedError: it is gone, or was written since.
    """
    before = InputFile(planned.name, path, planned.size, planned.mtime_ns)
    try:
        status = os.stat(path if handle is None else handle.fileno())  # noqa: PTH116 - the same call on a handle
    except FileNotFoundError as error:
        raise FileChangedError(f"{path} is gone; it had {describe(before)} when it was planned; put it back") from error
    now = attrs.evolve(before, size=status.st_size, mtime_ns=status.st_mtime_ns)
    if now != before:
        raise FileChangedError(
            f"{path} was written since its transaction was planned: it had {describe(before)}, it has "
            f"{describe(now)}; put the former file back, and give new data a file of its own",
        )


def path_of_handle(handle: IO[bytes], path: str) -> str:
    """Return a path for Arrow, which opens files itself, to the very file that is open, whatever has its name now.

    Args:
        handle: the file.
        path: its path, for systems without such paths.
    """
    own = f"/proc/self/fd/{handle.fileno()}"
    return own if os.path.exists(own) else path  # noqa: PTH110 - a str, as everywhere here


def typed_schema(fields: Fields, format_name: str) -> pa.Schema:
    """Return the Arrow schema of a typed format's fields.

    Raises:
        FieldsError: there are no fields, or one has no type.
    """
    if not len(fields):
        raise FieldsError(f"a {format_name} spout needs fields with types, such as Fields('word: string', 'n: long')")
    return fields.arrow_schema()


def check_decimals(table: pa.Table) -> pa.Table:
    """Return a table that Arrow has read, whose decimals are within their precision: it looks at their scale alone.

    Raises:
        pyarrow.ArrowInvalid: one is not; it would be cut short where the table is written.
    """
    for column in table.columns:
        if _holds_decimals(column.type):
            column.validate(full=True)
    return table


def _holds_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_decimals(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))


def in_batches(table: pa.Table | pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """Return the rows as record batches of a bounded number of rows."""
    whole = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
    for batch in whole:
        for start in range(0, batch.num_rows, BATCH_ROWS_MAX):
            yield batch.slice(start, BATCH_ROWS_MAX)


def misfit(path: str, line: int, what: str, cause: str | None = None) -> InputError:
    """Return the error of a record that does not fit, with the place it is at."""
    return InputError(f"{path}, line {line}: {what}; mend the file, or the spout's fields", cause=cause)
