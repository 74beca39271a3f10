"""Combiners in Spark SQL: combine rows with equal keys before a shuffle, if the bolt that gets them has a combiner.

What comes out are rows of the same stream again, so nobody else needs to know. Spark's sums overflow or fail where
Python's do not, so the upper and the lower halves of the values are added apart, which no number of rows can exceed. A
sum that does not fit the field becomes several rows that do. Nulls are skipped, as by every reduction.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import (
    DataFrame,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.pandas.types import to_arrow_type

from txtopo.api.components.bolt import BatchBolt, Bolt
from txtopo.api.data.fields import Fields
from txtopo.api.reduction import Reduction
from txtopo.columnar.reducing import ReductionCombiner

_HIGH, _LOW = "txtopo_high", "txtopo_low"
"""The columns of the halves."""


def combiner_of(bolt: Bolt, fields: Fields, grouped_by: Sequence[str]) -> ReductionCombiner | None:
    """Return a bolt's combiner for a columnar stream; None if it has none, or one that Spark can't apply."""
    declared = bolt.combiner() if isinstance(bolt, BatchBolt) else None
    # Combined rows are null but for the key's fields and the value, and the grouping must find its fields in the key.
    if not isinstance(declared, ReductionCombiner) or not set(grouped_by) <= set(declared.key):
        return None
    types = dict(zip(fields.names, fields.types, strict=True))
    if {_HIGH, _LOW} & types.keys() or not set(declared.fields) <= set(fields.names[1:]):
        return None  # the bolt itself reports the missing field
    keys = [types[name] for name in declared.key]
    has_exact_keys = not any(pa.types.is_nested(kind) or pa.types.is_floating(kind) for kind in keys)
    return declared if has_exact_keys and pa.types.is_integer(types[declared.value]) else None


def combined(frame: DataFrame, combiner: ReductionCombiner) -> DataFrame:
    """Return the frame's rows with those of each key combined into one, or few."""
    value = f"`{combiner.value}`"
    grouped = frame.groupBy(*(f"`{name}`" for name in combiner.key))
    if combiner.reduction is not Reduction.SUM:
        reduced_frame, results = grouped.agg(F.expr(f"{combiner.reduction.value}({value}) AS {value}")), value
    else:
        kind = frame.schema[combiner.value].dataType
        half = to_arrow_type(kind).bit_width // 2
        reduced_frame = grouped.agg(
            F.expr(f"sum(shiftright(CAST({value} AS BIGINT), {half})) AS {_HIGH}"),
            F.expr(f"sum(CAST({value} AS BIGINT) & {(1 << half) - 1}) AS {_LOW}"),
        ).selectExpr(
            *(f"`{name}`" for name in combiner.key),
            f"{_HIGH} + shiftright({_LOW}, {half}) AS {_HIGH}",
            f"{_LOW} & {(1 << half) - 1} AS {_LOW}",
        )
        results = f"explode(CAST({_rows_of_sum(half)} AS ARRAY<{kind.simpleString()}>)) AS {value}"
    columns = {name: F.col(f"`{name}`") for name in combiner.key} | {combiner.value: F.expr(results)}
    nulls = {field.name: F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema}
    return reduced_frame.select(*(nulls | columns).values())


def _rows_of_sum(half: int) -> str:
    limit = 1 << (half - 1)
    count = f"(abs({_HIGH}) div {limit - 1} + 1)"
    # Of so many numbers, the rest makes some larger by one half's unit, and the last one has the lower half.
    each, larger = f"{_HIGH} div {count}", f"{_HIGH} div {count} + IF({_HIGH} < 0, -1, 1)"
    remainder = f"CAST(abs({_HIGH} % {count}) AS INT)"
    several = (
        f"concat(array_repeat(shiftleft({larger}, {half}), {remainder}), "
        f"array_repeat(shiftleft({each}, {half}), CAST({count} - 1 AS INT) - {remainder}), "
        f"array(shiftleft({each}, {half}) | {_LOW}))"
    )
    limb = f"array(shiftleft({_HIGH}, {half}) | {_LOW})"
    # A sum of nulls alone is null, and then so is the condition: it becomes one null.
    return f"IF({_HIGH} NOT BETWEEN -{limit} AND {limit - 1}, {several}, {limb})"
