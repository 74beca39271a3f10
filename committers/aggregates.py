"""Aggregates: ``Sum``, ``Count`` and their like, several at once, in steps that may be taken anywhere and in any order.

Rows become *partials*, one row for each key, whose columns hold what is needed to go on: a mean's sum and count, the
first value with its time. Partials of the same keys are merged into fewer, as often as it suits, and become results in
the end. Whatever the steps and their order, integers, decimals, strings and times are the same; sums and means of
doubles may differ in their last bits.

For all aggregates: nulls are skipped, and the aggregate of nulls alone is null (a count is 0). NaN is the largest
double, as in Spark, and makes a sum NaN; -0.0 becomes 0.0.
"""

from __future__ import annotations

import datetime as dt
import decimal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.columns import is_key_type, no_equality
from txtopo import Fields
from txtopo.api.arguments import check_positive, checked_class
from txtopo.api.data.types import ddl_name
from txtopo.api.reduction import AtTime, ColumnReduction, Combiner, Merge, Reduction
from txtopo.columnar.reducing import TooLarge, reduced_exactly
from txtopo.columnar.selection import in_one_piece
from txtopo.errors import ConfigError, FieldsError

__all__ = [
    "Aggregate",
    "AggregateCombiner",
    "Aggregation",
    "Collect",
    "Count",
    "CountDistinct",
    "First",
    "Last",
    "Max",
    "Mean",
    "Min",
    "OfField",
    "Sum",
]

_DIGITS_MAX = 38
"""Of a decimal."""

_LONG_DIGITS = 19
"""Of a long, at most."""

_SUM_DIGITS = 10
"""A sum of decimals has so many digits more than its values, as in Spark."""

_VALUE_AND_TIME = 2

_MEAN_DIGITS = 4
"""A mean of decimals has so many digits more behind the point than its values, as in Spark."""


def field_of(spec: str | Fields) -> Fields:
    """Return the one field of an aggregate."""
    fields = spec if isinstance(spec, Fields) else Fields(spec)
    if len(fields) != 1:
        raise FieldsError(f"an aggregate is of one field, not of {fields}; write an aggregate for each")
    return fields


def fields_with(spec: str | Fields) -> Fields:
    """Return the fields of an aggregate, at least one."""
    fields = spec if isinstance(spec, Fields) else Fields(spec)
    if not len(fields):
        raise FieldsError("an aggregate is of one field, or of several; name one")
    return fields


def fields_of(schema: pa.Schema) -> Fields:
    """Return the fields of a schema, with their types."""
    return Fields(*(f"{field.name}: {ddl_name(field.type)}" for field in schema))


def _optional_field(spec: str | Fields | None) -> Fields | None:
    return None if spec is None else field_of(spec)


Ties: TypeAlias = Literal["smallest", "largest"]
"""Which of several rows with an equal order comes first."""

TIES: Mapping[str, Reduction] = {"smallest": Reduction.MIN, "largest": Reduction.MAX}


def _ties(_: Any, attribute: Any, ties: str | None) -> None:
    if ties is not None and ties not in TIES:
        raise ConfigError(f"{attribute.name} is {ties!r}; it is 'smallest' or 'largest'")


def _condition(spec: str | Fields | None) -> Fields | None:
    field = _optional_field(spec)
    if field is not None and field.types[0] not in {None, pa.bool_()}:
        raise FieldsError(
            f"where={field[0]!r} is {ddl_name(field.types[0])}; name a boolean field, which an earlier bolt can make"
        )
    return field and Fields(f"{field[0]}: boolean")


@attrs.frozen
class Aggregate(ABC):
    """One aggregate of many rows: of all, or of those whose boolean field ``where`` is true, not false or null."""

    suffixes: ClassVar[tuple[str, ...]] = ("",)
    """What the names of its partials add to its own. Each partial has the type of an input, but for counts."""
    where: Fields | None = attrs.field(default=None, converter=_condition, kw_only=True)

    @property
    def inputs(self) -> Fields:
        """The fields that it reads."""
        operands = self.operands
        return operands if self.where is None or self.where[0] in operands else operands + self.where

    @property
    @abstractmethod
    def operands(self) -> Fields:
        """The fields whose values it aggregates."""

    @abstractmethod
    def typed(self, schema: pa.Schema) -> Aggregate:
        """Return the aggregate with the types of ``schema`` for fields without a type."""

    def typed_by(self, kinds: Sequence[pa.DataType]) -> Aggregate:
        """Return the aggregate with the types that its partials in a table tell, for fields without a type."""
        return self.typed(pa.schema(list(zip(self.operands, kinds, strict=False))))

    @abstractmethod
    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return how each column of its partials is merged; ``name`` is the aggregate's."""

    @property
    @abstractmethod
    def partial_types(self) -> Sequence[pa.DataType]:
        """The types of the columns of its partials."""

    @abstractmethod
    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return the partials of single rows, given the columns of :attr:`operands`; of ``where`` if there is none."""

    def weighted(self, columns: Sequence[Any], diffs: Any) -> Sequence[Any]:
        """Return the partials of single rows that count ``diffs`` times each: fewer than 0 take rows back.

        It is asked of aggregates that :func:`committers.retracting.retracting` returns.
        """
        return [_times(each, diffs) for each in self.lifted(columns, len(diffs))]

    @abstractmethod
    def result(self, partials: Sequence[Any]) -> Any:
        """Return the result of partials."""

    @property
    @abstractmethod
    def result_type(self) -> pa.DataType:
        """The type of the result."""


@checked_class
@attrs.frozen
class Count(Aggregate):
    """How many rows there are; with a field, how many whose field is not null. A ``long``.

    Args:
        field: ``"name"`` or ``"name: type"``.
        where: a boolean field: only rows where it is true count.
    """

    field: Fields | None = attrs.field(default=None, converter=_optional_field)

    @property
    def operands(self) -> Fields:
        """The field, if there is one."""
        return Fields() if self.field is None else self.field

    def typed(self, schema: pa.Schema) -> Count:
        """Return the aggregate with its field's type."""
        return self if self.field is None else attrs.evolve(self, field=typed_fields(self.field, schema))

    def typed_by(self, kinds: Sequence[pa.DataType]) -> Count:
        """Return itself: a count tells nothing of its field."""
        return self

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the sum: counts add up."""
        return [Reduction.SUM]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """The count's type."""
        return [pa.int64()]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return 1 for each row that counts, 0 for the others."""
        return [_ones(rows, *columns)]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the count."""
        return pc.fill_null(partials[0], 0)

    @property
    def result_type(self) -> pa.DataType:
        """A long."""
        return pa.int64()


@attrs.frozen
class OfField(Aggregate):
    """An aggregate of one field, whose values are its operands."""

    field: Fields = attrs.field(converter=field_of)

    @property
    def operands(self) -> Fields:
        """The field."""
        return self.field

    def typed(self, schema: pa.Schema) -> Aggregate:
        """Return the aggregate with its field's type."""
        return attrs.evolve(self, field=typed_fields(self.field, schema))

    @property
    def kind(self) -> pa.DataType:
        """The field's type."""
        return _type_of(self.field)

    def _refuse(self, needed: str) -> FieldsError:
        return refused(self, needed, self.field[0], self.kind)


@checked_class
@attrs.frozen
class Sum(OfField):
    """The sum of a field: of integers a ``long``, of decimals one with 10 digits more, of all others a ``double``.

    A sum that does not fit raises a ``FieldsError``; it never wraps round.

    Args:
        field: ``"name"`` or ``"name: type"``.
        where: a boolean field: only rows where it is true count.
    """

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the sum, of each column."""
        return [Reduction.SUM for _ in self.suffixes]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """The sum's type."""
        return [self._sum_type]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return the values."""
        return [_cast(columns[0], self._sum_type)]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the sum."""
        return partials[0]

    @property
    def result_type(self) -> pa.DataType:
        """The type of the sum."""
        return self._sum_type

    @property
    def _sum_type(self) -> pa.DataType:
        kind = self.kind
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(_DIGITS_MAX, kind.precision + _SUM_DIGITS), kind.scale)
        if pa.types.is_integer(kind):
            return pa.int64()
        if pa.types.is_floating(kind):
            return pa.float64()
        raise self._refuse("a number")


@checked_class
@attrs.frozen
class Mean(Sum):
    """The mean of a field: of all numbers but decimals a ``double``.

    Of decimals it has 4 digits more behind the point, or as many as 38 digits leave room for.

    Its partials are ``<name>_sum``, as of :class:`Sum`, and ``<name>_count``.

    Args:
        field: ``"name"`` or ``"name: type"``.
        where: a boolean field: only rows where it is true count.
    """

    suffixes: ClassVar = ("_sum", "_count")

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """The types of sum and count."""
        return [self._sum_type, pa.int64()]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return the values, and 1 for each that is not null."""
        return [_cast(columns[0], self._sum_type), _ones(rows, *columns)]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return sum divided by count, null if nothing was counted."""
        total, count = partials
        count = pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.int64()), count)
        kind = self.result_type
        if not pa.types.is_decimal(kind):
            return pc.divide(total.cast(pa.float64(), safe=False), count.cast(pa.float64()))
        # Arrow cuts a quotient off: with a digit more than the result has, it is still rounded as if exact.
        digits = pa.decimal256(76 - 19 - 1, kind.scale + 1)
        try:
            quotient = pc.divide(total.cast(digits), count.cast(pa.decimal256(19, 0)))
            return pc.round(quotient, kind.scale, "half_towards_infinity").cast(kind)
        except pa.ArrowInvalid:  # it has no room for so many digits
            pairs = zip(total.to_pylist(), count.to_pylist(), strict=True)
            return pa.array([None if None in pair else _mean(*pair, kind.scale) for pair in pairs], kind)

    @property
    def result_type(self) -> pa.DataType:
        """A double, or a decimal."""
        kind = self.kind
        if not pa.types.is_decimal(kind):
            return pa.float64()
        scale = min(kind.scale + _MEAN_DIGITS, _DIGITS_MAX - (kind.precision - kind.scale))
        return pa.decimal128(kind.precision - kind.scale + scale, scale)


def _mean(total: decimal.Decimal, count: int, scale: int) -> decimal.Decimal:
    with decimal.localcontext(decimal.Context(prec=2 * _DIGITS_MAX + _MEAN_DIGITS)):
        return (total / count).quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP)


def refused(aggregate: Aggregate, needed: str, name: str, kind: pa.DataType) -> FieldsError:
    """Return the error for a field of a type that an aggregate can't have."""
    return FieldsError(
        f"{type(aggregate).__name__} needs {needed}, but field {name!r} is {ddl_name(kind)}; name another field or "
        "aggregate"
    )


def ordered_types(aggregate: Aggregate, fields: Fields, needed: str = "values that have an order") -> list[pa.DataType]:
    """Return the types of fields; raise a FieldsError if the values of one have no order."""
    kinds = [field.type for field in fields.arrow_schema()]
    for name, kind in zip(fields, kinds, strict=True):
        if pa.types.is_nested(kind):
            raise refused(aggregate, needed, name, kind)
    return kinds


@attrs.frozen
class _OfOrder(OfField):
    """Of a field whose values have an order; the result has its type."""

    @property
    def result_type(self) -> pa.DataType:
        """The field's type."""
        return ordered_types(self, self.field)[0]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """The value's type."""
        return [self.result_type]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the value."""
        return partials[0]


@checked_class
@attrs.frozen
class Min(_OfOrder):
    """The smallest value of a field: a number, a string by its code points, a date, a timestamp, a boolean or a binary.

    Args:
        field: ``"name"`` or ``"name: type"``.
        where: a boolean field: only rows where it is true count.
    """

    _which: ClassVar[Reduction] = Reduction.MIN

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the reduction of the same name."""
        return [self._which]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return the values."""
        return columns


@checked_class
@attrs.frozen
class Max(Min):
    """The largest value of a field, in the order of :class:`Min`.

    Args:
        field: ``"name"`` or ``"name: type"``.
        where: a boolean field: only rows where it is true count.
    """

    _which: ClassVar = Reduction.MAX


@checked_class
@attrs.frozen
class First(_OfOrder):
    """The value of a field in the row with the earliest time; the smallest value of several then.

    Rows whose value or time is null are skipped. Its partials are ``<name>`` and ``<name>_at``, the time.

    Several fields are taken from one row, also if others have the same time: then from the smallest row, compared field
    by field, where a null is smaller than any value. So rows whose time is null are skipped, and values may be null.
    The partials are ``<name>_<field>`` for each, and ``<name>_at``; the result is a struct.

    Args:
        field: ``"name"`` or ``"name: type"``; or ``Fields`` of several.
        by: the field of the time, or of any other order.
        ties: ``"smallest"``, the default, or ``"largest"``: which row of several at that time.
        where: a boolean field: only rows where it is true count.
    """

    _which: ClassVar[Reduction] = Reduction.MIN
    field: Fields = attrs.field(converter=fields_with)
    by: Fields = attrs.field(converter=field_of, kw_only=True)
    ties: Ties | None = attrs.field(default=None, kw_only=True, validator=_ties)

    @property
    def suffixes(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the names of its partials add to its own."""
        return *(self._own_suffixes), "_at"

    @property
    def _own_suffixes(self) -> Sequence[str]:
        return ("",) if len(self.field) == 1 else [f"_{name}" for name in self.field]

    @property
    def operands(self) -> Fields:
        """The fields of value and time."""
        return self.field + self.by

    def typed(self, schema: pa.Schema) -> First:
        """Return the aggregate with its fields' types."""
        return attrs.evolve(self, field=typed_fields(self.field, schema), by=typed_fields(self.by, schema))

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the reductions of value and time."""
        columns = [name + suffix for suffix in self._own_suffixes]
        ties = None if self.ties is None else TIES[self.ties]
        how = AtTime(f"{name}_at", self._which, tuple(columns) if len(columns) > 1 else (), ties)
        return [*(how for _ in columns), self._which]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """The types of value and time."""
        return [*ordered_types(self, self.field), *ordered_types(self, self.by, "a time to order by")]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return values and times, both null where one is; of several fields, where the time is."""
        time = columns[-1]
        decisive = columns if len(columns) == _VALUE_AND_TIME else [time]
        if not any(each.null_count for each in decisive):
            return columns
        is_there = pc.is_valid(time)
        for each in decisive[:-1]:
            is_there = pc.and_(is_there, pc.is_valid(each))
        return [pc.if_else(is_there, each, pa.scalar(None, each.type)) for each in columns]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the value; of several fields a struct, null if no row has a time."""
        if len(self.field) == 1:
            return partials[0]
        *values, time = map(in_one_piece, partials)
        return pa.StructArray.from_arrays(values, fields=list(self.result_type), mask=pc.is_null(time))

    @property
    def result_type(self) -> pa.DataType:
        """The field's type, or a struct of the fields."""
        kinds = ordered_types(self, self.field)
        return kinds[0] if len(kinds) == 1 else pa.struct(list(zip(self.field, kinds, strict=True)))


@checked_class
@attrs.frozen
class Last(First):
    """The value of a field in the row with the latest time; the largest value of several then. Otherwise as First.

    Several fields are taken from one row, of several with the latest time the largest.

    Args:
        field: ``"name"`` or ``"name: type"``; or ``Fields`` of several.
        by: the field of the time, or of any other order.
        ties: ``"largest"``, the default, or ``"smallest"``: which row of several at that time.
        where: a boolean field: only rows where it is true count.
    """

    _which: ClassVar = Reduction.MAX


def _values_max(_: Any, attribute: Any, values_max: int) -> None:
    check_positive(attribute.name, values_max)


@checked_class
@attrs.frozen
class Collect(_OfOrder):
    """The values of a field, sorted, as a list.

    More than ``values_max`` values of a key are refused with a ``FieldsError``: the list is in the key's row, which
    each transaction with a value of that key writes anew. NaN comes last.

    Args:
        field: ``"name"`` or ``"name: type"``.
        distinct: whether each value is there once.
        values_max: how many values a key may have.
        where: a boolean field: only rows where it is true count.
    """

    distinct: bool = attrs.field(default=False, kw_only=True)
    values_max: int = attrs.field(default=1_000, kw_only=True, validator=_values_max)

    def typed_by(self, kinds: Sequence[pa.DataType]) -> Aggregate:
        """Return the aggregate with the type of a list's values."""
        return super().typed_by([kind.value_type if pa.types.is_list(kind) else kind for kind in kinds])

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the merge of sorted lists."""
        (kind,) = self.partial_types
        how = partial(_merged_lists, is_distinct=self.distinct, values_max=self.values_max)
        return [Merge(how, kind, f"give {type(self).__name__} a larger values_max, or aggregate by a finer key")]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """A list of values."""
        return [pa.list_(super().result_type)]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return a list of each value, null for a null."""
        values = in_one_piece(columns[0])
        if pa.types.is_floating(values.type):  # all NaN are one, whatever their bits
            values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
        mask = pc.is_null(values) if values.null_count else None
        return [pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), values, self.partial_types[0], mask=mask)]

    @property
    def result_type(self) -> pa.DataType:
        """A list of values."""
        return self.partial_types[0]


@checked_class
@attrs.frozen
class CountDistinct(Collect):
    """How many different values a field has, exactly. A ``long``.

    Its partial is the sorted list of the values, so more than ``values_max`` of a key are refused with a
    ``FieldsError``. NaN is one value; nulls are none.

    Args:
        field: ``"name"`` or ``"name: type"``.
        values_max: how many values a key may have.
        where: a boolean field: only rows where it is true count.
    """

    suffixes: ClassVar = ("_values",)
    distinct: bool = attrs.field(default=True, init=False)
    values_max: int = attrs.field(default=10_000, kw_only=True, validator=_values_max)

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the lengths of the lists."""
        return pc.fill_null(pc.list_value_length(partials[0]), 0).cast(pa.int64())

    @property
    def result_type(self) -> pa.DataType:
        """A long."""
        return pa.int64()


def _merged_lists(groups: Any, *, is_distinct: bool, values_max: int) -> Any:
    """Return one sorted list for each group of lists, null where all of them are null.

    Raises:
        ArrowInvalid: a group has more values than ``values_max``.
    """
    lists, kind = groups.flatten(), groups.type.value_type
    group = np.asarray(pc.list_parent_indices(groups))
    rows = pa.table({"group": group[np.asarray(pc.list_parent_indices(lists))], "value": lists.flatten()})
    if is_distinct:
        rows = rows.group_by(["group", "value"], use_threads=False).aggregate([])
    counts = np.bincount(rows["group"].to_numpy(), minlength=len(groups))
    if counts.max(initial=0) > values_max:
        raise pa.ArrowInvalid(f"there are more than {values_max:,} values of a key")
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = rows.sort_by([("group", "ascending"), ("value", "ascending")])["value"].combine_chunks()
    is_null = pa.array(~np.isin(np.arange(len(groups)), group[np.asarray(pc.is_valid(lists))]))
    return pa.ListArray.from_arrays(offsets, values, kind, mask=is_null)


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
        """Refuse names and types that do not go together."""
        for name, kind in zip(self.key.names, self.key.types, strict=True):
            if kind is not None and not is_key_type(kind):
                raise no_equality(name, kind)
        names = [*self.key, *(name + suffix for name, each in self.aggregates.items() for suffix in each.suffixes)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FieldsError(f"column {twice!r} would be there twice in {', '.join(names)}; rename an aggregate")
        if self.has_types:
            assert len(self.partial_fields) >= len(self.result_schema), "types that do not go together were refused"
            for each in self.aggregates.values() if self.diff else ():
                if isinstance(each, Sum) and pa.types.is_floating(each.partial_types[0]):
                    raise refused(each, "integers or decimals, if rows are taken back", each.field[0], each.kind)

    @property
    def is_typed(self) -> bool:
        """Whether all fields have types: only then rows have partials."""
        counted = (each.inputs for each in self.aggregates.values() if isinstance(each, Count))
        return self.has_types and all(kind is not None for fields in counted for kind in fields.types)

    @property
    def has_types(self) -> bool:
        """Whether the fields have types on which those of partials depend: those that are only counted need none."""
        every = (self.key, *(each.inputs for each in self.aggregates.values() if not isinstance(each, Count)))
        return all(kind is not None for fields in every for kind in fields.types)

    def typed(self, schema: pa.Schema) -> Aggregation:
        """Return the aggregation with the types of ``schema`` for fields without a type; itself if all have one.

        Raises:
            FieldsError: ``schema`` lacks a field, or a type cannot be a key or be aggregated so.
        """
        if self.is_typed:
            return self
        aggregates = {name: each.typed(schema) for name, each in self.aggregates.items()}
        return attrs.evolve(self, key=typed_fields(self.key, schema), aggregates=aggregates)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the fields that it reads: those of the key, then those of the aggregates, each once."""
        every = [*self.key, *(name for each in self.aggregates.values() for name in each.inputs)]
        return tuple(dict.fromkeys([*every, self.diff] if self.diff else every))

    @cached_property
    def partial_fields(self) -> pa.Schema:
        """The columns of partials: the key's, then those of each aggregate."""
        key = self.key.arrow_schema()
        return pa.schema([*key, *(pa.field(*column) for each in self.aggregates for column in self._partials_of(each))])

    @property
    def table_fields(self) -> tuple[Fields, Fields]:
        """The fields of a table of partials: those of the key, and those of the values."""
        columns = fields_of(self.partial_fields)
        return columns.subset(self.key.names), columns.subset(columns.names[len(self.key) :])

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns of results: the key's, then one for each aggregate."""
        own = [pa.field(name, each.result_type) for name, each in self.aggregates.items()]
        return pa.schema([*self.key.arrow_schema(), *own])

    @cached_property
    def reductions(self) -> dict[str, ColumnReduction]:
        """How each column of the partials is merged."""
        return {
            name + suffix: how
            for name, each in self.aggregates.items()
            for suffix, how in zip(each.suffixes, each.reductions(name), strict=True)
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
            for fields in (self.key, *(each.inputs for each in self.aggregates.values()))
            for name, kind in zip(fields.names, fields.types, strict=True)
        }
        columns = {name: _column(rows, name, kind) for name, kind in types.items()}
        made = [columns[name] for name in self.key]
        diffs = _column(rows, self.diff, pa.int64()) if self.diff else None
        for name, each in self.aggregates.items():
            inputs = zip(each.operands.names, each.operands.types, strict=True)
            given = [columns[field] if kind == types[field] else _column(rows, field, kind) for field, kind in inputs]
            if each.where is not None:
                given = _where(_column(rows, each.where[0], pa.bool_()), given)
            try:
                made += each.lifted(given, rows.num_rows) if diffs is None else each.weighted(given, diffs)
            except pa.ArrowInvalid as error:
                raise _misfit(name, each, error) from error
        return pa.Table.from_arrays(made, schema=schema)

    def merged(self, partials: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return partials merged to one for each key: the same, whatever was merged before and in what order.

        Raises:
            FieldsError: a sum does not fit.
        """
        return self._reduced(self.as_partials(partials))

    def as_partials(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return rows with the columns and types of partials; raise a FieldsError if a value does not fit."""
        fields = self.partial_fields
        return pa.Table.from_arrays([_column(rows, field.name, field.type) for field in fields], schema=fields)

    def results(self, partials: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the results of partials, row by row: merge them before.

        Raises:
            FieldsError: a mean does not fit.
        """
        made = [_column(partials, field.name, field.type) for field in self.key.arrow_schema()]
        for name, each in self.aggregates.items():
            try:
                made.append(each.result([_column(partials, *column) for column in self._partials_of(name)]))
            except pa.ArrowInvalid as error:
                raise _misfit(name, each, error) from error
        return pa.Table.from_arrays(made, schema=self.result_schema)

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
            made = self.aggregation.typed(batch.schema).partials(batch)
        except FieldsError:
            return None
        return made.combine_chunks().to_batches()[0] if made.num_rows else None


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


def typed_fields(fields: Fields, schema: pa.Schema) -> Fields:
    """Return fields with the types of ``schema`` for those without a type; raise a FieldsError if it lacks one."""
    specs = []
    for name, kind in zip(fields.names, fields.types, strict=True):
        if kind is None and name not in schema.names:
            raise _missing(name, schema.names)
        own = kind if kind is not None else _plain_type(schema.field(name).type)
        specs.append(f"{name}: {ddl_name(own)}")
    return Fields(*specs)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark has for what readers of files give otherwise."""
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if _is_text(kind):
        return pa.string()
    if _is_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    return kind


def _type_of(field: Fields) -> pa.DataType:
    return field.arrow_schema().field(0).type


def _missing(name: str, names: Iterable[str]) -> FieldsError:
    return FieldsError(f"there is no field {name!r} to aggregate; the fields are {', '.join(names)}")


def _misfit(name: str, aggregate: Aggregate, error: Exception) -> FieldsError:
    how = type(aggregate).__name__
    return FieldsError(f"aggregate {name!r}, a {how}, does not fit its type: {error}; give its field a wider type")


def _where(condition: Any, columns: Sequence[Any]) -> list[Any]:
    """Return columns with nulls, which are skipped, where a condition is not true; if there are none, itself."""
    return [pc.if_else(condition, each, pa.scalar(None, each.type)) for each in columns or [condition]]


def _times(column: Any, numbers: Any) -> Any:
    """Return integers or decimals times whole numbers; raise an ArrowInvalid if one does not fit."""
    if not pa.types.is_decimal(column.type):
        return pc.multiply_checked(column, numbers)
    digits = pa.decimal256(_DIGITS_MAX, column.type.scale)
    return pc.multiply(column.cast(digits), numbers.cast(pa.decimal256(_LONG_DIGITS, 0))).cast(column.type)


def _ones(rows: int, column: Any = None) -> Any:
    """Return 1 for each row, 0 where ``column`` is null."""
    if column is None or not column.null_count:
        return pa.array(np.ones(rows, dtype=np.int64))
    return pc.is_valid(column).cast(pa.int64())


def _column(rows: pa.Table | pa.RecordBatch, name: str, kind: pa.DataType) -> Any:
    """Return a column of rows with its declared type."""
    if name not in rows.schema.names:
        raise _missing(name, rows.schema.names)
    column = rows.column(name)
    if column.type == kind:
        return _plain_zeros(column)
    try:
        if _is_cast_exactly(column.type, kind):
            return _plain_zeros(_cast(column, kind))
        reason = "that type would have to be guessed"
    except pa.ArrowException as error:
        reason = str(error)
    raise FieldsError(
        f"field {name!r} is declared as {ddl_name(kind)}, but the rows have {column.type} ({reason}); declare the type "
        "that they have"
    )


def _plain_zeros(column: Any) -> Any:
    """Return a column without -0.0, which equals 0.0 but is told apart in a table: the order would show."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _cast(column: Any, kind: pa.DataType) -> Any:
    return column if column.type == kind else column.cast(kind)


def _is_cast_exactly(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a cast keeps every value, or raises."""
    types = pa.types
    if types.is_dictionary(given):
        return given.value_type == kind or _is_cast_exactly(given.value_type, kind)
    if types.is_null(given):
        return True
    if types.is_timestamp(given) and types.is_timestamp(kind):
        return (given.tz is None) == (kind.tz is None)
    return (
        (_is_text(given) and _is_text(kind))
        or (_is_binary(given) and _is_binary(kind))
        or (types.is_integer(given) and (types.is_integer(kind) or types.is_decimal(kind) or types.is_float64(kind)))
        or (types.is_decimal(given) and types.is_decimal(kind))
        or (types.is_floating(given) and types.is_float64(kind))
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
