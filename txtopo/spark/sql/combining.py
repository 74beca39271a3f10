"""Combiners in Spark SQL: combine rows with equal keys before a shuffle, if the bolt has a combiner.

Spark's sums overflow or fail where Python's do not. So each combined row carries a bound: the largest magnitude that a
partial result of its values could have. If a bound is too large, the tasks run again on uncombined rows. Nulls are
skipped, as by every reduction.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import (
    DataFrame,
    functions as F,  # noqa: N812 - its name everywhere
)

from txtopo.api.components.bolt import BatchBolt, Bolt
from txtopo.api.data.fields import Fields
from txtopo.api.reduction import Reduction
from txtopo.columnar.reducing import ReductionCombiner

BOUND = "txtopo_bound"
"""The column of the bounds."""

_EXACT_MAX = float(1 << 62)
"""The largest bound that is safe despite rounding: a bound is a sum of doubles, and the values are longs."""


def combiner_of(bolt: Bolt, fields: Fields, grouped_by: Sequence[str]) -> ReductionCombiner | None:
    """Return a bolt's combiner for a columnar stream; None if it has none, or one that Spark can't apply."""
    declared = bolt.combiner() if isinstance(bolt, BatchBolt) else None
    # A combined row has only the key's fields and the value, and the grouping must find its fields in the key.
    if not isinstance(declared, ReductionCombiner) or BOUND in fields.names or not set(grouped_by) <= set(declared.key):
        return None
    types = dict(zip(fields.names, fields.types, strict=True))
    if not set(declared.fields) <= set(fields.names[1:]):
        return None  # the bolt itself reports the missing field
    keys = [types[name] for name in declared.key]
    has_plain_keys = not any(pa.types.is_nested(kind) or pa.types.is_floating(kind) for kind in keys)
    return declared if has_plain_keys and pa.types.is_integer(types[declared.value]) else None


def combined(frame: DataFrame, combiner: ReductionCombiner) -> DataFrame:
    """Return one row for each key: the key, the value and its bound."""
    value = f"`{combiner.value}`"
    how, bound = _aggregates(value, combiner.reduction)
    keys = [f"`{name}`" for name in combiner.key]
    return frame.groupBy(*keys).agg(F.expr(f"{how} AS {value}"), F.expr(f"{bound} AS {BOUND}"))


def uncombined(batch: pa.RecordBatch, kind: pa.DataType) -> pa.RecordBatch | None:
    """Return rows of :func:`combined` without their bounds; None if a bound is so large that its value may not fit."""
    names = [name for name in batch.schema.names if name != BOUND]
    largest = pc.max(batch.column(BOUND)).as_py() if batch.num_rows else 0.0
    if largest >= min(_EXACT_MAX, float(2 ** (kind.bit_width - 1))):
        return None
    return batch.select(names)


def _aggregates(value: str, reduction: Reduction) -> tuple[str, str]:
    """Return the SQL of a column's reduction and of its bound: as Column objects, each would cost several JVM calls."""
    match reduction:
        case Reduction.SUM:
            return f"try_sum({value})", f"sum(coalesce(abs(CAST({value} AS DOUBLE)), 0D))"
        case Reduction.MIN:
            return f"min({value})", "max(0D)"
        case Reduction.MAX:
            return f"max({value})", "max(0D)"
