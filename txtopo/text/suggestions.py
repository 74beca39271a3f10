"""Suggestions: the known name that an unknown one resembles, or that says what a word of another system does."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SAID_HERE = {
    "where": "filter(…)",
    "withWatermark": "event_time(field, delay='30s')",
    "dropDuplicates dropDuplicatesWithinWatermark": "distinct(key)",
    "keyBy": "group_by(key)",
    "window": "group_by(…).window('1m').agg(…)",
    "upsert merge": "group_by(…).agg(…).upsert('table'), or apply_changes('table', …)",
    "foreach foreachBatch process": "through('name', bolt)",
    "write writeStream sink save saveAsTable sink_delta": "append('table')",
    "sum count min max mean avg reduce aggregate": "agg(name=Sum('field')), or Count, Min, Max of txtopo.streams",
    "sort orderBy sort_by limit head top": "agg(name=TopN('field', n=3, by='field')): a stream has no order and no end",
    "collect show to_polars toPandas": "preview(), or read a table when the flow has run",
    "columns schema dtypes printSchema": "fields",
    "withColumnRenamed alias": "rename({'old': 'new'})",
    "fillna na": "with_columns(x=pl.col('x').fill_null(0))",
    "agg count_by": "group_by(…).agg(…), or group_by().window('1m').agg(…) for all rows",
    "cache persist repartition coalesce checkpoint": "Flow(…, parallelism=4): it keeps and moves rows by itself",
    "pivot apply applyInPandas transformWithState mapGroupsWithState": "through('name', committer, by=key)",
    "start awaitTermination execute": "run()",
    "readStream read table load": "source('name', spout), or reference('name', DeltaReference(…)) to look rows up",
}
"""Words of PySpark, polars, Flink and others, where no word of ours is like it; and what to write instead."""


def did_you_mean(name: object, names: Iterable[object], cutoff: float = 0.6) -> str:
    """Return the end of a sentence about an unknown name, with the nearest known one; empty if none is near.

    Args:
        name: the unknown name.
        names: the known ones; of two that are equally near, the first is suggested.
        cutoff: how much they must have in common, from 0 to 1, as in :func:`difflib.get_close_matches`.
    """
    close = difflib.get_close_matches(str(name), list(map(str, names)), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else ""


def said_here(word: str) -> str:
    """Return the end of a sentence about a word of another system, with what is written in a flow; empty for others."""
    suggestion = next((suggestion for words, suggestion in _SAID_HERE.items() if word in words.split()), "")
    return f"; write {suggestion}" if suggestion else ""
