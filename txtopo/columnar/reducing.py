"""Reduce Arrow rows to one row for each key, in any order and in any number of steps.

Every reduction here is commutative and associative, so rows may be reduced where they are emitted, again in a task, and
again in a table. Integers and decimals are exact: a sum that does not fit its column is an error, even where Arrow's
own would wrap round, and a sum that fits is found, whatever its intermediate results are. Sums of doubles depend on
the order in their last bits. For minimum, maximum and order, NaN is the largest double, as in Spark. Nulls are
skipped; a reduction of nulls alone is null.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.reduction import AtTime, ColumnReduction, Combiner, Merge, Reduction

_THREADS_FROM_ROWS = 500_000
"""Fewer rows are reduced by one thread: that is as fast, and the order of the result is the same in every run."""

_WIDE = decimal.Context(prec=80)
"""More digits than a decimal of Arrow has, so that nothing is rounded."""

_LOW_BITS = 32
_LOW_MASK = (1 << _LOW_BITS) - 1


class TooLarge(Exception):
    """A sum does not fit the type of ``column``, or what is merged there is larger than may be."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


def is_reducible(rows: pa.Table, values: Sequence[str]) -> bool:
    """Return whether the rows can be reduced in any order: all values are integers and no column has nulls."""
    return all(pa.types.is_integer(rows.schema.field(name).type) for name in values) and not any(
        column.null_count for column in rows.columns
    )


@attrs.frozen
class ReductionCombiner(Combiner):
    """Combines rows with equal keys into one by a reduction of one field; combined rows have no other fields.

    Spark SQL applies it, too, and it also makes columns of untyped streams whose keys are strings or integers and whose
    values are integers.

    Args:
        key: the fields that make up the key.
        value: the field to reduce.
        reduction: the function that combines two values.
    """

    key: tuple[str, ...]
    value: str
    reduction: Reduction

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """The fields that it reads, which are those of the combined rows."""
        return (*self.key, self.value)

    def combine(self, batch: pa.RecordBatch, planned_at: dt.datetime) -> pa.RecordBatch | None:
        """Return the combined rows of integers; None for other values, for nulls, and if a sum does not fit."""
        del planned_at
        rows = pa.Table.from_batches([batch]).select(self.fields)
        made = reduced(rows, self.key, {self.value: self.reduction}) if is_reducible(rows, [self.value]) else None
        return None if made is None else made.combine_chunks().to_batches()[0]


def reduced(rows: pa.Table, keys: Sequence[str], reductions: Mapping[str, ColumnReduction]) -> pa.Table | None:
    """Return one row for each key, as :func:`reduced_exactly` does; None if a sum does not fit its column's type."""
    try:
        return reduced_exactly(rows, keys, reductions)
    except TooLarge:
        return None


def reduced_exactly(rows: pa.Table, keys: Sequence[str], reductions: Mapping[str, ColumnReduction]) -> pa.Table:
    """Return one row for each key, with the columns of ``keys`` and ``reductions`` and their types in ``rows``.

    Without keys, all rows become one; no rows become none. A null key is a key like any other.

    Raises:
        TooLarge: a sum does not fit its column's type.
    """
    schema = pa.schema([rows.schema.field(name) for name in (*keys, *reductions)])
    if not rows.num_rows:
        return schema.empty_table()
    # Columns are numbered, because the names that Arrow gives to its results could be those of other columns.
    columns: list[Any] = [rows[name] for name in keys] or [pa.array(np.zeros(rows.num_rows, dtype=np.int8))]
    keys_count = len(columns)
    ranks = functools.cache(functools.partial(_ranks, rows))  # columns of one row share theirs
    steps = [_step_of(rows, name, how, ranks) for name, how in reductions.items()]
    aggregations: list[tuple[str, str]] = []
    for step in steps:
        aggregations += [(str(len(columns) + offset), function) for offset, (_, function) in enumerate(step.inputs)]
        columns += [column for column, _ in step.inputs]
    names = [str(number) for number in range(len(columns))]
    # Threads add in no fixed order, which doubles would show: a replay should give the same.
    is_threaded = rows.num_rows >= _THREADS_FROM_ROWS and not any(step.is_ordered for step in steps)
    grouped = (
        pa.Table.from_arrays(columns, names=names)
        .group_by(names[:keys_count], use_threads=is_threaded)
        .aggregate(aggregations)
    )
    results = iter([grouped[f"{name}_{function}"] for name, function in aggregations])
    arrays = [grouped[name] for name in names[: len(keys)]]
    for (name, field), step in zip(zip(reductions, list(schema)[len(keys) :], strict=True), steps, strict=True):
        try:
            arrays.append(step.finish(*(next(results) for _ in step.inputs)).cast(field.type))
        except pa.ArrowInvalid as error:
            raise TooLarge(name) from error
    return pa.Table.from_arrays(arrays, schema=schema)


@attrs.frozen(eq=False)
class _Step:
    """How a column is reduced: what Arrow aggregates for each key, and what the results become."""

    inputs: Sequence[tuple[Any, str]]
    finish: Callable[..., Any] = lambda result: result
    is_ordered: bool = False
    """Whether the result depends on the order of the rows."""


_Ranks = Callable[..., tuple[Any, Any]]
"""Returns the order of the rows by some columns, and each row's rank in it."""


def _step_of(rows: pa.Table, name: str, how: ColumnReduction, ranks: _Ranks) -> _Step:
    column = rows[name]
    match how:
        case Reduction.SUM:
            return _sum_of(column)
        case AtTime():
            is_known = rows[how.time] if how.row else column
            return _value_at(
                column, is_known, how.which, *ranks(how.time, how.of_ties is not how.which, *(how.row or (name,)))
            )
        case Merge():
            return _merge_of(column, how)
        case _:
            return _extreme_of(column, how)


def _merge_of(column: Any, how: Merge) -> _Step:
    """Return how to merge the values of each key: Arrow lists their numbers, because it makes no lists of lists."""

    def finish(numbers: Any) -> Any:
        numbers = numbers.combine_chunks()
        values = column.take(numbers.flatten()).combine_chunks()
        return how.function(pa.ListArray.from_arrays(numbers.offsets, values))

    return _Step([(pa.array(np.arange(len(column))), "list")], finish)


def _sum_of(column: Any) -> _Step:
    kind = column.type
    if pa.types.is_floating(kind):
        return _Step([(column, "sum")], is_ordered=True)
    is_decimal = pa.types.is_decimal(kind)
    # Arrow's sum of a group wraps round without an error, so it is ruled out beforehand.
    if _stays_below(column, 10**38 if is_decimal else 1 << 63):
        return _Step([(column, "sum")])
    if is_decimal:
        return _Step([(column.cast(pa.decimal256(76, kind.scale)), "sum")])
    wide = column.cast(pa.int64())
    return _Step(
        [(pc.shift_right(wide, _LOW_BITS), "sum"), (pc.bit_wise_and(wide, _LOW_MASK), "sum")], finish=_joined_halves
    )


def _joined_halves(high: Any, low: Any) -> Any:
    """Return the sum whose upper and lower 32 bits were added apart; raise ArrowInvalid if it exceeds 64 bits."""
    high = pc.add(high, pc.shift_right(low, _LOW_BITS))
    return pc.add(pc.multiply_checked(high, 1 << _LOW_BITS), pc.bit_wise_and(low, _LOW_MASK))


def _stays_below(column: Any, limit: int) -> bool:
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is None:
        return True
    largest = max(abs(bounds["min"]), abs(bounds["max"]))
    if pa.types.is_decimal(column.type):
        largest = int(largest.scaleb(column.type.scale, _WIDE)) + 1
    return bool(largest * len(column) < limit)


def _extreme_of(column: Any, how: Reduction) -> _Step:
    if not pa.types.is_floating(column.type):
        return _Step([(column, how.value)])
    is_nan = pc.is_nan(column)
    if not pc.any(is_nan).as_py():
        return _Step([(column, how.value)])
    nan = pa.scalar(float("nan"), column.type)
    null = pa.scalar(None, column.type)

    def finish(of_numbers: Any, has_nan: Any) -> Any:
        nan_or_null = pc.if_else(pc.fill_null(has_nan, fill_value=False), nan, null)
        both = (nan_or_null, of_numbers) if how is Reduction.MAX else (of_numbers, nan_or_null)
        return pc.coalesce(*both)

    return _Step([(pc.if_else(is_nan, null, column), how.value), (is_nan, "max")], finish)


def _value_at(column: Any, is_known: Any, reduction: Reduction, order: Any, ranks: Any) -> _Step:
    """Return how to find the value of the first or the last row by rank of those where ``is_known`` is not null."""
    by_rank = pa.array(ranks, mask=pc.is_null(is_known).to_numpy(zero_copy_only=False))
    return _Step([(by_rank, reduction.value)], lambda rank: column.take(order.take(rank)))


def _ranks(rows: pa.Table, time: str, is_falling: bool, *names: str) -> tuple[Any, Any]:  # noqa: FBT001 - its one caller
    """Return the order of rows by time and then some columns, rising or falling, and the rank of each row in it."""
    if is_falling:
        falling = pa.array(-ranks_in(ordered(rows.select(names))))
        order = ordered(pa.table([rows[time], falling], names=["time", "rank"]))
    else:
        order = ordered(rows.select([time, *names]))
    return order, ranks_in(order)


def ranks_in(order: pa.Array) -> npt.NDArray[np.int64]:
    """Return the rank of each row in an order of positions."""
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return ranks


def ordered(rows: pa.Table) -> pa.Array:
    """Return the positions of rows in rising order, column by column: nulls before all values, NaN after all others."""
    keys: list[Any] = []
    for column in rows.columns:
        keys += [pc.is_valid(column), column] if column.null_count else [column]
    names = [str(number) for number in range(len(keys))]
    return pc.sort_indices(pa.Table.from_arrays(keys, names=names), sort_keys=[(name, "ascending") for name in names])
