"""Combiners in Spark SQL: rows with equal keys become one before they are shuffled, where a bolt says that they may.

Spark's sums wrap or fail where Python's go on, and leave nulls out where Python's fail. So each row comes with a
bound: how far the values it was made of could have led. Where that is too far, or infinite for a null, the rows
are taken as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import (
    DataFrame,
    functions as F,  # noqa: N812 - its name everywhere
)

from txtopo.api.bolt import BatchBolt, Bolt
from txtopo.api.fields import Fields
from txtopo.api.reduction import Combiner, Reduction

BOUND = "txtopo_bound"
"""The column of the bounds."""

_INFINITE = "CAST('Infinity' AS DOUBLE)"

_EXACT_MAX = float(1 << 62)
"""A bound is a sum of floats: what is below this is surely below the largest long."""


def combiner_of(bolt: Bolt, fields: Fields, grouped_by: Sequence[str]) -> Combiner | None:
    """Return how a bolt lets the rows of a columnar stream be combined; None if not, or not by Spark.

    Args:
        bolt: the bolt, as it was declared.
        fields: the stream's.
        grouped_by: the fields that its tasks are told by.
    """
    declared = bolt.combiner() if isinstance(bolt, BatchBolt) else None
    if declared is None or BOUND in fields.names or not set(grouped_by) <= set(declared.key):
        return None
    types = dict(zip(fields.names, fields.types, strict=True))
    if not set(declared.fields) <= set(fields.names[1:]):
        return None  # the bolt says itself which field is missing
    keys = [types[name] for name in declared.key]
    has_plain_keys = not any(pa.types.is_nested(kind) or pa.types.is_floating(kind) for kind in keys)
    return declared if has_plain_keys and pa.types.is_integer(types[declared.value]) else None


def combined(frame: DataFrame, combiner: Combiner) -> DataFrame:
    """Return one row for each key: the key, the value, and its bound."""
    value = f"`{combiner.value}`"
    how, bound = _aggregates(value, combiner.reduction)
    keys = [f"`{name}`" for name in combiner.key]
    return frame.groupBy(*keys).agg(F.expr(f"{how} AS {value}"), F.expr(f"{bound} AS {BOUND}"))


def uncombined(batch: pa.RecordBatch, kind: pa.DataType) -> pa.RecordBatch | None:
    """Return the rows without their bounds; None if one is too large: its value may be another one, or not fit.

    Args:
        batch: rows of :func:`combined`.
        kind: the type of the field that was reduced.
    """
    names = [name for name in batch.schema.names if name != BOUND]
    largest = pc.max(batch.column(BOUND)).as_py() if batch.num_rows else 0.0
    if largest >= min(_EXACT_MAX, float(2 ** (kind.bit_width - 1))):
        return None
    return batch.select(names)


def _aggregates(value: str, reduction: Reduction) -> tuple[str, str]:
    """Return how a column is reduced, and its bound, in SQL: each Column is several calls to the JVM."""
    bound_of_one = f"max(CASE WHEN {value} IS NULL THEN {_INFINITE} ELSE 0D END)"
    match reduction:
        case Reduction.SUM:
            return f"try_sum({value})", f"sum(coalesce(abs(CAST({value} AS DOUBLE)), {_INFINITE}))"
        case Reduction.MIN:
            return f"min({value})", bound_of_one
        case Reduction.MAX:
            return f"max({value})", bound_of_one
