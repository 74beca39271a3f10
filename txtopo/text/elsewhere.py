"""What other systems say, where no word of ours is like it, and how it is said here."""

from __future__ import annotations

_WORDS = {
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
"""Words of PySpark, polars, Flink and others; and what to write instead."""


def said_here(word: str) -> str:
    """Return what to write instead of a word, to put behind a sentence; empty if there is nothing to say."""
    here = next((here for words, here in _WORDS.items() if word in words.split()), "")
    return here and f"; write {here}"
