"""The smallest, the largest, the first and the last value, and collections of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.aggregate import Aggregate, OfField, refused
from committers.aggregates.fields import field_of, fields_with, typed_fields
from txtopo import Fields
from txtopo.api.arguments import check_positive, checked_class
from txtopo.api.reduction import AtTime, ColumnReduction, Merge, Reduction
from txtopo.columnar.selection import in_one_piece
from txtopo.errors import ConfigError, FieldsError

_VALUE_AND_TIME = 2

_TIME = "at"
"""What the name of the partial with the time ends with, after the aggregate's."""

Ties: TypeAlias = Literal["smallest", "largest"]
"""Which of several rows with an equal order comes first."""

TIES: Mapping[str, Reduction] = {"smallest": Reduction.MIN, "largest": Reduction.MAX}


def _ties(_: Any, attribute: Any, ties: str | None) -> None:
    if ties is not None and ties not in TIES:
        raise ConfigError(f"{attribute.name} is {ties!r}; it is 'smallest' or 'largest'")


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
    The partials are ``<name>_<field>`` for each, and ``<name>_at``, so none of them is ``at``; the result is a struct.

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

    @by.validator
    def _check_names(self, _attribute: object, by: Fields) -> None:
        if len(self.field) > 1 and _TIME in self.field:
            remedy = "leave it out: the time is kept anyway" if by[0] == _TIME else "rename it in a bolt before"
            raise FieldsError(
                f"{type(self).__name__} of several fields keeps the time of their row as <name>_{_TIME}, so none of "
                f"them can be {_TIME!r}; {remedy}"
            )

    @property
    def suffixes(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the names of its partials add to its own."""
        return *(self._own_suffixes), f"_{_TIME}"

    @property
    def _own_suffixes(self) -> Sequence[str]:
        return ("",) if len(self.field) == 1 else [f"_{name}" for name in self.field]

    @property
    def definition(self) -> str:
        """What its partials are made of, in words; ``ties`` that are the default's are left out."""
        is_default = self.ties is not None and TIES[self.ties] is self._which
        return attrs.evolve(self, ties=None).definition if is_default else super().definition

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
        how = AtTime(f"{name}_{_TIME}", self._which, tuple(columns) if len(columns) > 1 else (), ties)
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
        return [pc.if_else(is_there, column, pa.scalar(None, column.type)) for column in columns]

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

    may_change = ("values_max",)
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
    """Return a sorted list for each group, null of nulls; ArrowInvalid above ``values_max`` values."""
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
