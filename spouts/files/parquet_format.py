"""Parquet files: spans are row groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from spouts.files.bad_records import BadRecords
from spouts.files.format import (
    BATCH_ROWS_MAX,
    FileFormat,
    Span,
    check_unchanged,
    path_of_handle,
    typed_schema,
)
from spouts.files.listing import FileRange, InputFile
from spouts.files.packed import is_packed
from txtopo.api.fields import Fields
from txtopo.columnar.conversion import cast_array, has_years, misfit_in
from txtopo.errors import InputError


class ParquetFormat(FileFormat):
    """Parquet: reads columns by the fields' names, and casts them if the cast loses nothing.

    A range counts row groups, which are never split. Planning reads the footer of each file when it reaches it.

    Raises:
        FieldsError: a field has no type.
    """

    name = "parquet"
    suffixes = (".parquet", ".pq")

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        self._schema = typed_schema(fields, self.name)
        self._groups_of: tuple[InputFile, list[int]] | None = None

    def next_span(self, file: InputFile, start: int, bytes_max: int) -> Span | None:
        """Return the next row groups, at least one; raise InputError if the file is not Parquet or lacks a column."""
        sizes = self._group_sizes(file)
        if start >= len(sizes):
            return None
        end, total = start + 1, sizes[start]
        while end < len(sizes) and total + sizes[end] <= bytes_max:
            total += sizes[end]
            end += 1
        return Span(start, end, total)

    def cut(self, file: InputFile, span: Span, pieces: int) -> list[Span]:
        """Cut between row groups, into pieces with about the same number of groups."""
        sizes = self._group_sizes(file)
        groups = span.end - span.start
        pieces = min(pieces, groups)
        cuts = [span.start + groups * piece // pieces for piece in range(pieces + 1)]
        return [Span(start, end, sum(sizes[start:end])) for start, end in itertools.pairwise(cuts)]

    def read(self, handle: IO[bytes], piece: FileRange, bad: BadRecords) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the row groups; raise InputError if one can't be read: it never has a single bad record."""
        path = bad.path
        with self._open(path, handle) as file:  # Arrow reads the file itself, without the GIL
            self._check_schema(path, file.schema_arrow)
            for group in range(piece.start, piece.end):
                try:
                    for batch in file.iter_batches(BATCH_ROWS_MAX, row_groups=[group], columns=self._schema.names):
                        yield self._fitted(path, group, batch)
                except (pa.ArrowException, OSError) as error:
                    raise InputError(f"{path}, row group {group}: it cannot be read", cause=str(error)) from error

    def _fitted(self, path: str, group: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            column = batch.column(field.name)
            made = cast_array(column, field.type, is_part=True)
            if made is None:
                raise InputError(
                    f"{path}, column {field.name!r}, row group {group}: a value of type {column.type} does "
                    f"not fit {field.type}; fix the file or the spout's fields",
                    cause=misfit_in(column, field.type, is_part=True).why,
                )
            if not has_years(made):
                raise InputError(
                    f"{path}, column {field.name!r}, row group {group}: a time is not of the years 1 to 9999 in UTC; "
                    "fix the file"
                )
            columns.append(made)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _group_sizes(self, file: InputFile) -> list[int]:
        """Return the stored bytes of the requested columns, by row group."""
        if self._groups_of is None or self._groups_of[0] != file:
            try:
                handle = Path(file.path).open("rb")  # noqa: SIM115 - closed below
            except (FileNotFoundError, PermissionError) as error:
                check_unchanged(file.path, file)
                raise InputError(f"{file.path} cannot be read: {error.strerror}", cause=str(error)) from error
            with handle:
                check_unchanged(file.path, file, handle)
                self._groups_of = (file, self._sizes_in(file.path, handle))
        return self._groups_of[1]

    def _sizes_in(self, path: str, handle: IO[bytes]) -> list[int]:
        with self._open(path, handle) as opened:
            self._check_schema(path, opened.schema_arrow)
            return [self._stored_bytes(opened.metadata.row_group(group)) for group in range(opened.num_row_groups)]

    def _stored_bytes(self, group: pq.RowGroupMetaData) -> int:
        columns = (group.column(index) for index in range(group.num_columns))
        return sum(
            column.total_compressed_size for column in columns if column.path_in_schema.partition(".")[0] in self.fields
        )

    def _open(self, path: str, handle: IO[bytes]) -> pq.ParquetFile:
        if is_packed(path):
            raise InputError(f"{path} is compressed as a whole; unpack it: Parquet files have compression of their own")
        try:
            return pq.ParquetFile(path_of_handle(handle, path))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} is not a readable Parquet file", cause=str(error)) from error

    def _check_schema(self, path: str, schema: pa.Schema) -> None:
        for field in self._schema:
            positions = schema.get_all_field_indices(field.name)
            if len(positions) != 1:
                found = "occurs twice" if positions else "is missing"
                raise InputError(f"{path}: column {field.name!r} {found}; its columns are {', '.join(schema.names)}")
            kind = schema.field(positions[0]).type
            if cast_array(pa.array([], kind), field.type, is_part=True) is None:
                raise InputError(f"{path}: column {field.name!r} has type {kind}, which does not fit {field.type}")
