"""Several aggregates by a key, and their steps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.aggregate import Aggregate
from committers.aggregates.fields import cast, fields_of, is_binary, is_text, missing_field, typed_fields
from committers.aggregates.numbers import Count, Sum
from state.delta.columns import is_key_type, no_equality
from txtopo import Fields
from txtopo.api.data.types import ddl_name
from txtopo.api.reduction import ColumnReduction, Combiner, Merge
from txtopo.columnar.reducing import TooLarge, reduced_exactly
from txtopo.errors import FieldsError


@attrs.frozen
class Aggregation:
    """Several aggregates by a key.

    Args:
        key: the fields of the key, which may be none.
        aggregates: the aggregates by the names of their results.
        diff: the field that says how often a row counts, fewer than 0 times if it is taken back; empty: each once.

    Raises:
        FieldsError: names collide, or a type cannot be a key or be aggregated so.
    """

    key: Fields
    aggregates: Mapping[str, Aggregate]
    diff: str = ""

    def __attrs_post_init__(self) -> None:
        for name, kind in zip(self.key.names, self.key.types, strict=True):
            if kind is not None and not is_key_type(kind):
                raise no_equality(name, kind)
        names = [
            *self.key,
            *(name + suffix for name, aggregate in self.aggregates.items() for suffix in aggregate.suffixes),
        ]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FieldsError(f"column {twice!r} would be there twice in {', '.join(names)}; rename an aggregate")
        if self.has_types:
            assert len(self.partial_fields) >= len(self.result_schema), "types that do not go together were refused"
            for name, each in self.aggregates.items() if self.diff else ():
                if isinstance(each, Sum) and pa.types.is_floating(each.partial_types[0]):
                    raise FieldsError(
                        f"aggregate {name!r} needs integers or decimals, if rows are taken back, but field "
                        f"{each.field[0]!r} is {ddl_name(each.kind)}; name another field or aggregate"
                    )

    @property
    def is_typed(self) -> bool:
        """Whether all fields have types: only then rows have partials."""
        counted_fields = (aggregate.inputs for aggregate in self.aggregates.values() if isinstance(aggregate, Count))
        return self.has_types and all(kind is not None for fields in counted_fields for kind in fields.types)

    @property
    def has_types(self) -> bool:
        """Whether the fields have types on which those of partials depend: those that are only counted need none."""
        every = (
            self.key,
            *(aggregate.inputs for aggregate in self.aggregates.values() if not isinstance(aggregate, Count)),
        )
        return all(kind is not None for fields in every for kind in fields.types)

    def typed(self, schema: pa.Schema) -> Aggregation:
        """Return the aggregation with types of ``schema`` where it has none; FieldsError if one is missing or wrong."""
        if self.is_typed:
            return self
        aggregates = {name: aggregate.typed(schema) for name, aggregate in self.aggregates.items()}
        return attrs.evolve(self, key=typed_fields(self.key, schema), aggregates=aggregates)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the fields that it reads: those of the key, then those of the aggregates, each once."""
        every = [*self.key, *(name for aggregate in self.aggregates.values() for name in aggregate.inputs)]
        return tuple(dict.fromkeys([*every, self.diff] if self.diff else every))

    @cached_property
    def partial_fields(self) -> pa.Schema:
        """The columns of partials: the key's, then those of each aggregate."""
        key = self.key.arrow_schema()
        return pa.schema(
            [*key, *(pa.field(*column) for aggregate in self.aggregates for column in self._partials_of(aggregate))]
        )

    @property
    def table_fields(self) -> tuple[Fields, Fields]:
        """The fields of a table of partials: those of the key, and those of the values."""
        columns = fields_of(self.partial_fields)
        return columns.subset(self.key.names), columns.subset(columns.names[len(self.key) :])

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns of results: the key's, then one for each aggregate."""
        results = [pa.field(name, aggregate.result_type) for name, aggregate in self.aggregates.items()]
        return pa.schema([*self.key.arrow_schema(), *results])

    @cached_property
    def reductions(self) -> dict[str, ColumnReduction]:
        """How each column of the partials is merged."""
        return {
            name + suffix: how
            for name, aggregate in self.aggregates.items()
            for suffix, how in zip(aggregate.suffixes, aggregate.reductions(name), strict=True)
        }

    @cached_property
    def definition(self) -> Mapping[str, str]:
        """What each column of the partials is made of, in words."""
        by = f" by {self.diff}" if self.diff else ""
        return {
            name + suffix: aggregate.definition + by
            for name, aggregate in self.aggregates.items()
            for suffix in aggregate.suffixes
        }

    def partials(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the partials of rows, one for each key.

        Raises:
            FieldsError: a field is missing, a value does not fit its field's type, or a sum does not fit.
        """
        return self._reduced(self.lifted(rows))

    def lifted(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the partials of each single row; raise as :meth:`partials` does."""
        schema = self.partial_fields  # raises if a type is missing
        if not self.is_typed:
            return self.typed(rows.schema).lifted(rows)
        types = {
            name: kind
            for fields in (self.key, *(aggregate.inputs for aggregate in self.aggregates.values()))
            for name, kind in zip(fields.names, fields.types, strict=True)
        }
        columns = {name: _column(rows, name, kind) for name, kind in types.items()}
        arrays = [columns[name] for name in self.key]
        diffs = _column(rows, self.diff, pa.int64()) if self.diff else None
        if diffs is not None and diffs.null_count:
            raise FieldsError(f"field {self.diff!r} is null: such a row neither comes nor is taken back; give 1 or -1")
        for name, aggregate in self.aggregates.items():
            inputs = zip(aggregate.operands.names, aggregate.operands.types, strict=True)
            given = [columns[field] if kind == types[field] else _column(rows, field, kind) for field, kind in inputs]
            if aggregate.where is not None:
                given = _where(_column(rows, aggregate.where[0], pa.bool_()), given)
            try:
                arrays += aggregate.lifted(given, rows.num_rows) if diffs is None else aggregate.weighted(given, diffs)
            except pa.ArrowInvalid as error:
                raise _misfit(name, aggregate, error) from error
        return pa.Table.from_arrays(arrays, schema=schema)

    def merged(self, partials: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return partials merged by key, the same in whatever order; raise FieldsError if a sum does not fit."""
        return self._reduced(self.as_partials(partials))

    def as_partials(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return rows with the columns and types of partials; raise a FieldsError if a value does not fit."""
        fields = self.partial_fields
        return pa.Table.from_arrays([_column(rows, field.name, field.type) for field in fields], schema=fields)

    def results(self, partials: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the results of merged partials, row by row; raise FieldsError if a mean does not fit."""
        arrays = [_column(partials, field.name, field.type) for field in self.key.arrow_schema()]
        for name, aggregate in self.aggregates.items():
            try:
                arrays.append(aggregate.result([_column(partials, *column) for column in self._partials_of(name)]))
            except pa.ArrowInvalid as error:
                raise _misfit(name, aggregate, error) from error
        return pa.Table.from_arrays(arrays, schema=self.result_schema)

    def _partials_of(self, name: str) -> list[tuple[str, pa.DataType]]:
        each = self.aggregates[name]
        return [(name + suffix, kind) for suffix, kind in zip(each.suffixes, each.partial_types, strict=True)]

    def _reduced(self, partials: pa.Table) -> pa.Table:
        return merged_rows(partials, list(self.key), self.reductions)


@attrs.frozen
class AggregateCombiner(Combiner):
    """Combines rows into the partials of their keys."""

    aggregation: Aggregation

    @property
    def key(self) -> tuple[str, ...]:  # type: ignore[override]
        """The fields of the key."""
        return self.aggregation.key.names

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """The fields that the aggregation reads."""
        return self.aggregation.inputs

    def combine(self, batch: pa.RecordBatch, planned_at: dt.datetime) -> pa.RecordBatch | None:
        """Return partials; None if something does not fit, which the bolt itself reports."""
        del planned_at
        try:
            partials = self.aggregation.typed(batch.schema).partials(batch)
        except FieldsError:
            return None
        return partials.combine_chunks().to_batches()[0] if partials.num_rows else None


def merged_rows(rows: pa.Table, key: Sequence[str], reductions: Mapping[str, ColumnReduction]) -> pa.Table:
    """Return rows merged to one for each key; raise a FieldsError if a sum does not fit."""
    try:
        return reduced_exactly(rows, key, reductions)
    except TooLarge as error:
        kind, how = rows.schema.field(error.column).type, reductions[error.column]
        if isinstance(how, Merge):
            raise FieldsError(f"column {error.column!r}: {error.__cause__}; {how.remedy}") from error
        raise FieldsError(
            f"the sum in column {error.column!r} does not fit '{ddl_name(kind)}'; sum a field with a wider type, "
            "such as decimal(38,0), or by a finer key"
        ) from error


def _misfit(name: str, aggregate: Aggregate, error: Exception) -> FieldsError:
    how = type(aggregate).__name__
    return FieldsError(f"aggregate {name!r}, a {how}, does not fit its type: {error}; give its field a wider type")


def _where(condition: Any, columns: Sequence[Any]) -> list[Any]:
    """Return columns with nulls, which are skipped, where a condition is not true; if there are none, itself."""
    return [pc.if_else(condition, column, pa.scalar(None, column.type)) for column in columns or [condition]]


def _column(rows: pa.Table | pa.RecordBatch, name: str, kind: pa.DataType) -> Any:
    if name not in rows.schema.names:
        raise missing_field(name, rows.schema.names)
    column = rows.column(name)
    if column.type == kind:
        return _without_negative_zeros(column)
    try:
        if _is_cast_exactly(column.type, kind):
            return _without_negative_zeros(cast(column, kind))
        reason = "that type would have to be guessed"
    except pa.ArrowException as error:
        reason = str(error)
    raise FieldsError(
        f"field {name!r} is declared as {ddl_name(kind)}, but the rows have {column.type} ({reason}); declare the type "
        "that they have"
    )


def _without_negative_zeros(column: Any) -> Any:
    """Return a column without -0.0, which equals 0.0 but is told apart in a table: the order would show."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _is_cast_exactly(actual: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a cast keeps every value, or raises."""
    types = pa.types
    if types.is_dictionary(actual):
        return actual.value_type == kind or _is_cast_exactly(actual.value_type, kind)
    if types.is_null(actual):
        return True
    if types.is_timestamp(actual) and types.is_timestamp(kind):
        return (actual.tz is None) == (kind.tz is None)
    return (
        (is_text(actual) and is_text(kind))
        or (is_binary(actual) and is_binary(kind))
        or (types.is_integer(actual) and (types.is_integer(kind) or types.is_decimal(kind) or types.is_float64(kind)))
        or (types.is_decimal(actual) and types.is_decimal(kind))
        or (types.is_floating(actual) and types.is_float64(kind))
    )
