"""Parquet files: spans are row groups."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spouts.files.bad_records import BadRecords
from spouts.files.formats.format import (
    FileFormat,
    Span,
    typed_schema,
)
from spouts.files.listing import FileRange, InputFile
from spouts.files.packed import is_packed
from txtopo.api.data.fields import Fields
from txtopo.columnar.conversion import cast_array, misfit_in, why_unreadable
from txtopo.errors import BucketUnreachable, InputError

_WRITTEN_BY_SPARK = b"org.apache.spark.version"
"""In the metadata of Spark's files, whose times never have nanoseconds: there is no need to look for them."""


class ParquetFormat(FileFormat):
    """Parquet: reads columns by the fields' names, and casts them if the cast loses nothing.

    A range counts row groups, which are never split. Planning reads the footer of each file when it reaches it. INT96,
    which Spark writes by default, are times in UTC with nanoseconds; they are read if they are whole microseconds.

    Raises:
        FieldsError: a field has no type.
    """

    name = "parquet"
    suffixes = (".parquet", ".parq", ".pq")

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
            kinds = self._check_schema(path, file)
            int96 = (
                () if _WRITTEN_BY_SPARK in (file.metadata.metadata or {}) else _int96_columns(file, self._schema.names)
            )
            for group in range(piece.start, piece.end):
                try:
                    batches = file.iter_batches(self.limits.batch_rows, row_groups=[group], columns=self._schema.names)
                    if int96:
                        batches = self._without_loss(path, handle, group, int96, batches)
                    for batch in batches:
                        yield self._fitted(path, group, batch, kinds)
                except BucketUnreachable:
                    raise
                except (pa.ArrowException, OSError) as error:
                    raise InputError(f"{path}, row group {group}: it cannot be read", cause=str(error)) from error

    def _without_loss(
        self, path: str, handle: IO[bytes], group: int, names: Collection[str], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches; raise InputError if a time in some columns, which were read as µs, has nanoseconds."""
        with self._open(path, handle, "ns") as file:
            exact = file.iter_batches(self.limits.batch_rows, row_groups=[group], columns=list(names))
            for batch, with_ns in zip(batches, exact, strict=True):
                for name in names:
                    if not _is_same(batch.column(name), with_ns.column(name)):
                        raise InputError(
                            f"{path}, column {name!r}, row group {group}: a time has nanoseconds, and no timestamp has "
                            "more than microseconds; write the file with whole microseconds"
                        )
                yield batch

    def _fitted(self, path: str, group: int, batch: pa.RecordBatch, kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            column = batch.column(field.name).cast(kinds[field.name])
            fitted = cast_array(column, field.type, is_part=True)
            if fitted is None:
                raise InputError(
                    f"{path}, column {field.name!r}, row group {group}: a value of type {column.type} does "
                    f"not fit {field.type}; fix the file or the spout's fields",
                    cause=misfit_in(column, field.type, is_part=True).why,
                )
            why = why_unreadable(fitted)
            if why is not None:
                raise InputError(f"{path}, column {field.name!r}, row group {group}: {why}; fix the file")
            columns.append(fitted)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _group_sizes(self, file: InputFile) -> list[int]:
        if self._groups_of is None or self._groups_of[0] != file:
            try:
                handle = self.files.open(file.path, file)
            except PermissionError as error:
                raise InputError(f"{file.path} cannot be read: {error.strerror}", cause=str(error)) from error
            with handle:
                self._groups_of = (file, self._sizes_in(file.path, handle))
        return self._groups_of[1]

    def _sizes_in(self, path: str, handle: IO[bytes]) -> list[int]:
        with self._open(path, handle) as opened:
            self._check_schema(path, opened)
            return [self._stored_bytes(opened.metadata.row_group(group)) for group in range(opened.num_row_groups)]

    def _stored_bytes(self, group: pq.RowGroupMetaData) -> int:
        columns = (group.column(index) for index in range(group.num_columns))
        return sum(
            column.total_compressed_size for column in columns if column.path_in_schema.partition(".")[0] in self.fields
        )

    def _open(self, path: str, handle: IO[bytes], int96_unit: str = "us") -> pq.ParquetFile:
        if is_packed(path):
            raise InputError(f"{path} is compressed as a whole; unpack it: Parquet files have compression of their own")
        try:
            return pq.ParquetFile(self.files.for_arrow(handle, path), coerce_int96_timestamp_unit=int96_unit)
        except BucketUnreachable:
            raise
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} is not a readable Parquet file", cause=str(error)) from error

    def _check_schema(self, path: str, file: pq.ParquetFile) -> Mapping[str, pa.DataType]:
        """Return the type of each wanted column: INT96 as timestamps, with a zone if the field's have one."""
        schema, kinds = file.schema_arrow, {}
        int96 = _int96_columns(file, self._schema.names)
        for field in self._schema:
            positions = schema.get_all_field_indices(field.name)
            if len(positions) != 1:
                problem = "occurs twice" if positions else "is missing"
                raise InputError(f"{path}: column {field.name!r} {problem}; its columns are {', '.join(schema.names)}")
            kind = _stored(schema.field(positions[0]).type)
            if field.name in int96:
                kind = _with_zones(kind, field.type, iter(int96[field.name]))
            kinds[field.name] = kind
            if cast_array(pa.array([], kind), field.type, is_part=True) is None:
                raise InputError(
                    f"{path}: column {field.name!r} has type {kind}, which does not fit {field.type}"
                    f"{_remedy(kind, field.type)}"
                )
        return kinds


def _remedy(kind: pa.DataType, target: pa.DataType) -> str:
    """Return how to declare a time that has a zone, or has none, unlike the field's; else ""."""
    if not (pa.types.is_timestamp(kind) and pa.types.is_timestamp(target)) or (kind.tz is None) == (target.tz is None):
        return ""
    return f"; declare it as {'timestamp_ntz, a time without a zone' if kind.tz is None else 'timestamp, a moment'}"


def _int96_columns(file: pq.ParquetFile, names: Collection[str]) -> Mapping[str, Sequence[bool]]:
    """Return the wanted columns with INT96, and which of each one's simple columns are."""
    columns: dict[str, list[bool]] = {}
    for index in range(len(file.schema)):
        column = file.schema.column(index)
        columns.setdefault(column.path.partition(".")[0], []).append(column.physical_type == "INT96")
    return {name: are_int96 for name, are_int96 in columns.items() if name in names and any(are_int96)}


def _with_zones(kind: pa.DataType, target: pa.DataType | None, are_int96: Iterator[bool]) -> pa.DataType:
    """Return a type whose INT96 have a zone where the wanted type's timestamps have one."""
    if pa.types.is_struct(kind):
        types = {field.name: field.type for field in target} if target and pa.types.is_struct(target) else {}
        return pa.struct([(each.name, _with_zones(each.type, types.get(each.name), are_int96)) for each in kind])
    if pa.types.is_map(kind):
        key, item = (target.key_type, target.item_type) if target and pa.types.is_map(target) else (None, None)
        return pa.map_(_with_zones(kind.key_type, key, are_int96), _with_zones(kind.item_type, item, are_int96))
    if pa.types.is_list(kind):
        item = target.value_type if target and pa.types.is_list(target) else None
        return pa.list_(_with_zones(kind.value_type, item, are_int96))
    is_time = next(are_int96) and target is not None and pa.types.is_timestamp(target)
    return pa.timestamp(kind.unit, target.tz) if is_time else kind  # type: ignore[union-attr]


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return a type as it is stored: JSON as text, a UUID as 16 bytes.

    Which ones have a type of their own depends on the version of Arrow, and on whether pandas was imported.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return _stored(kind.storage_type)
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_stored(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_stored(kind.value_type)))
    return kind


def _is_same(times: pa.Array, with_ns: pa.Array) -> bool:
    """Whether times in µs, at any depth, are the same as in ns, which are kept modulo 2**64."""
    if times.type == with_ns.type:
        return True
    if pa.types.is_timestamp(times.type):
        us, ns = (pc.fill_null(each.cast(pa.int64()), 0).to_numpy() for each in (times, with_ns))
        return bool(np.array_equal(us * 1000, ns))
    if pa.types.is_map(times.type):
        return _is_same(times.keys, with_ns.keys) and _is_same(times.items, with_ns.items)
    if pa.types.is_nested(times.type):
        parts = [each.flatten() if pa.types.is_struct(each.type) else [each.flatten()] for each in (times, with_ns)]
        return all(map(_is_same, *parts))
    raise AssertionError("only times differ")
