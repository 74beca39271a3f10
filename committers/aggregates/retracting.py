"""Aggregates of rows that are taken back: what each must keep, so that it is as if they had never come.

Counts, sums and means of integers and decimals subtract; a sum also counts its values, because it is null without any.
The smallest and the largest value, the different ones, and the first rows by some order need all values that are there,
each with how many rows have it: up to ``values_max`` of a key, beyond which the run stops by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.aggregate import Aggregate, OfField
from committers.aggregates.numbers import Count, Mean, Sum
from committers.aggregates.ordered import Collect, CountDistinct, Max, Min
from committers.aggregates.rankings import TopN
from txtopo import Fields
from txtopo.api.reduction import ColumnReduction, Merge
from txtopo.columnar.reducing import ordered
from txtopo.columnar.selection import in_one_piece
from txtopo.errors import TopologyError

_ROWS = "rows"
"""The field of a kept value with the number of rows that have it."""

_VALUES_MAX = 10_000
"""How many different values of a key a smallest or largest one is kept of."""


def retracting(values: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Return aggregates of changes, given those of rows; TopologyError if one can't retract, or none counts all."""
    aggregates = {name: _retracting(name, value) for name, value in values.items()}
    if not any(_is_count(aggregate) for aggregate in aggregates.values()):
        raise TopologyError(
            "a ReduceCommitter of changes needs a Count() without a field: a key is removed with its last row; add "
            "one, such as 'rows': Count()"
        )
    return aggregates


def count_name(values: Mapping[str, Aggregate]) -> str:
    """Return the name of the aggregate that counts all rows of changes."""
    return next(name for name, value in values.items() if _is_count(value))


def overdrawn(values: Mapping[str, Aggregate], rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows of partials show that more was taken back than had come: some number is below 0."""
    is_overdrawn = np.zeros(rows.num_rows, dtype=bool)
    for name, value in values.items():
        first, last = (in_one_piece(rows[name + value.suffixes[at]]) for at in (0, -1))
        if isinstance(value, _Counted):
            is_below = pc.less(first.flatten().field(_ROWS), 0)
            is_overdrawn[np.asarray(pc.list_parent_indices(first).filter(is_below))] = True
            continue
        # Of no values, as one that was taken back and another that has come, there is no sum.
        is_left = pc.and_(pc.equal(last, 0), pc.not_equal(first, pa.scalar(0, first.type)))
        is_overdrawn |= np.asarray(pc.fill_null(pc.or_(pc.less(last, 0), is_left), fill_value=False))
    return is_overdrawn


def _is_count(aggregate: Aggregate) -> bool:
    return isinstance(aggregate, Count) and aggregate.field is None and aggregate.where is None


def _retracting(name: str, aggregate: Aggregate) -> Aggregate:
    match aggregate:
        case Count() | Mean():
            return aggregate
        case Sum():
            return _CountedSum(aggregate.field, where=aggregate.where)
        case Min() | Max() | Collect() | CountDistinct():
            return _Kept(aggregate, where=aggregate.where)
        case TopN() if _ROWS not in aggregate.operands:
            return _KeptRows(aggregate, where=aggregate.where)
        case _:
            raise TopologyError(
                f"aggregate {name!r} is a {type(aggregate).__name__}, which can't take rows back; of changes there are "
                "Count, Sum, Mean, Min, Max, CountDistinct, Collect and, of fields but 'rows', TopN and LastN"
            )


@attrs.frozen
class _CountedSum(Mean):
    """A sum that is null once there is no value any more."""

    @property
    def definition(self) -> str:
        """That of a mean, which keeps the same."""
        return Mean(self.field, where=self.where).definition

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the sum."""
        total, count = partials
        return pc.if_else(pc.greater(count, 0), total, pa.scalar(None, total.type))

    @property
    def result_type(self) -> pa.DataType:
        """The type of the sum."""
        return self._sum_type


@attrs.frozen
class _Counted(Aggregate):
    """An aggregate that keeps each value, or row, with the number of rows that have it."""

    of: Aggregate

    @property
    def definition(self) -> str:
        """What is kept: all of it, whatever the aggregate makes of it."""
        return f"all of {', '.join(self.of.operands)}{f' where {self.where[0]}' if self.where else ''}"

    @property
    def operands(self) -> Fields:
        """Those of the aggregate."""
        return self.of.operands

    def typed(self, schema: pa.Schema) -> Aggregate:
        """Return the aggregate with the types of its fields."""
        return attrs.evolve(self, of=self.of.typed(schema))

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return a list of each row's value with the number 1, null for one that does not count."""
        return self.weighted(columns, pa.array(np.ones(rows, np.int64)))

    @property
    def result_type(self) -> pa.DataType:
        """The aggregate's."""
        return self.of.result_type


@attrs.frozen
class _Kept(_Counted):
    """The smallest or largest value, the different ones, or all of them."""

    suffixes: ClassVar = ("_values",)
    of: OfField

    def typed_by(self, kinds: Sequence[pa.DataType]) -> Aggregate:
        """Return the aggregate with the type of the values that are kept."""
        return super().typed_by([kind.value_type.field(0).type for kind in kinds])

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the merge of values with their numbers."""
        (kind,) = self.partial_types
        values_max = getattr(self.of, "values_max", _VALUES_MAX)
        remedy = "aggregate by a finer key"
        if values_max != _VALUES_MAX or isinstance(self.of, Collect):
            remedy = f"give {type(self.of).__name__} a larger values_max, or {remedy}"
        has_each = isinstance(self.of, Collect) and not self.of.distinct
        return [Merge(partial(_merged_counts, values_max=values_max, has_each=has_each), kind, remedy)]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """A list of values with their numbers."""
        kind = self._value_type
        return [pa.list_(pa.struct([("value", kind), (_ROWS, pa.int64())]))]

    @property
    def _value_type(self) -> pa.DataType:
        kind = self.of.partial_types[0]
        return kind.value_type if isinstance(self.of, Collect) else kind

    def weighted(self, columns: Sequence[Any], diffs: Any) -> Sequence[Any]:
        """Return a list of each value with the number of its row, null for a null."""
        return [_lists(columns, columns[0], diffs, self.partial_types[0])]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return what the aggregate is of the values that are there."""
        lists = in_one_piece(partials[0])
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        rows = lists.flatten()
        values, numbers = rows.field("value"), rows.field(_ROWS)
        ends = np.cumsum(lengths)
        match self.of:
            case CountDistinct():
                return pa.array(lengths.astype(np.int64))
            case Collect():
                times = np.ones(len(values), np.int64) if self.of.distinct else numbers.to_numpy()
                offsets = np.concatenate([[0], np.cumsum(times)])[np.concatenate([[0], ends])].astype(np.int32)
                repeated = values.take(pa.array(np.repeat(np.arange(len(values)), times)))
                return pa.ListArray.from_arrays(offsets, repeated, self.result_type, mask=pa.array(lengths == 0))
            case _:
                at = ends - 1 if isinstance(self.of, Max) else ends - lengths
                return values.take(pa.array(at, mask=lengths == 0))


@attrs.frozen
class _KeptRows(_Counted):
    """The first few of all rows that are there."""

    suffixes: ClassVar = ("_rows",)
    of: TopN

    def typed_by(self, kinds: Sequence[pa.DataType]) -> Aggregate:
        """Return the aggregate with the types of the rows that are kept."""
        return super().typed_by([field.type for field in kinds[0].value_type if field.name != _ROWS])

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the merge of rows with their numbers."""
        (kind,) = self.partial_types
        return [Merge(partial(_merged_counts, values_max=_VALUES_MAX), kind, "aggregate by a finer key")]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """A list of rows with their numbers."""
        (kind,) = self.of.partial_types
        return [pa.list_(pa.struct([*kind.value_type, pa.field(_ROWS, pa.int64())]))]

    def weighted(self, columns: Sequence[Any], diffs: Any) -> Sequence[Any]:
        """Return a list of each row with its number, null where it has no order."""
        order = columns[self.operands.index(self.of.by[0])]
        return [_lists(columns, order, diffs, self.partial_types[0])]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the first rows of those that are there."""
        lists, (kind,) = in_one_piece(partials[0]), self.of.partial_types
        rows = lists.flatten()
        times = rows.field(_ROWS).to_numpy()
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(times)])[np.concatenate([[0], np.cumsum(lengths)])].astype(np.int32)
        merged = pa.StructArray.from_arrays(
            [rows.field(field.name) for field in kind.value_type], fields=[*kind.value_type]
        )
        repeated = merged.take(pa.array(np.repeat(np.arange(len(merged)), times)))
        each = pa.ListArray.from_arrays(offsets, repeated, kind, mask=pa.array(lengths == 0))
        (how,) = self.of.reductions("")
        assert isinstance(how, Merge), "rows are merged by a function"
        return how.function(pa.ListArray.from_arrays(np.arange(len(each) + 1, dtype=np.int32), each))


def _lists(columns: Sequence[Any], is_given: Any, diffs: Any, kind: pa.DataType) -> Any:
    """Return a list of each row with its number, null where ``is_given`` is."""
    values = [in_one_piece(column) for column in columns]
    for at, each in enumerate(values):
        if pa.types.is_floating(each.type):  # all NaN are one, whatever their bits
            values[at] = pc.if_else(pc.is_nan(each), pa.scalar(float("nan"), each.type), each)
    rows = pa.StructArray.from_arrays([*values, in_one_piece(diffs)], fields=list(kind.value_type))
    mask = pc.is_null(in_one_piece(is_given)) if is_given.null_count else None
    return pa.ListArray.from_arrays(np.arange(len(rows) + 1, dtype=np.int32), rows, kind, mask=mask)


def _merged_counts(groups: Any, *, values_max: int, has_each: bool = False) -> Any:
    """Return each group's values with numbers added up, in order, but 0; ArrowInvalid above ``values_max``.

    With ``has_each``, a value counts with each row that has it.
    """
    lists, kind = groups.flatten(), groups.type.value_type
    group = np.asarray(pc.list_parent_indices(groups))
    rows = lists.flatten()
    of_row = pa.array(group[np.asarray(pc.list_parent_indices(lists))])
    # Numbered, as no field is named.
    columns = [of_row, *rows.flatten()]
    names = [str(number) for number in range(len(columns))]
    added = pa.table(columns, names=names).group_by(names[:-1], use_threads=False).aggregate([(names[-1], "sum")])
    added = added.select([*names[:-1], f"{names[-1]}_sum"])
    added = added.filter(pc.not_equal(added[len(names) - 1], 0))
    added = added.take(ordered(added.select(names[:-1]))).combine_chunks()
    counts = np.bincount(added["0"].to_numpy(), minlength=len(groups))
    times = added.columns[-1].to_numpy()
    # Those to take back make room for others: of a whole transaction there may be as many of both.
    sizes = np.bincount(added["0"].to_numpy(), times if has_each else times > 0)
    if sizes.max(initial=0) > values_max:
        raise pa.ArrowInvalid(f"there are more than {values_max:,} values of a key")
    entries = pa.StructArray.from_arrays(list(map(in_one_piece, added.columns[1:])), fields=list(kind.value_type))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, entries, kind)
