"""The peer that an expert writes: ``foreachBatch`` aggregates in Spark, collects by Arrow, and delta-rs merges."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from pyspark.sql import DataFrame, SparkSession, functions as F

_APPLICATION = "peer"
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class DeltaRsPeer:
    """Merges in the driver's process; the log records the last batch, so that each counts once."""

    name = "foreachBatch + delta-rs"
    needs_delta_jars = False

    def create(self, spark: SparkSession, table: Path) -> None:
        del spark
        self._table = DeltaTable.create(str(table), pa.schema([("word", pa.string()), ("n", pa.int64())]))

    def merge(self, frame: DataFrame, batch_id: int) -> None:
        """Merge a batch, unless the table has it."""
        merge_rows(self._table, frame.groupBy("word").agg(F.sum("n").alias("n")).toArrow(), batch_id)


def merge_rows(table: DeltaTable, rows: pa.Table, batch_id: int) -> None:
    """Add the rows' numbers to a table, in one delta-rs ``MERGE``, unless it has that batch.

    Each word is once in ``rows``, and ``batch_id`` only rises. The table's handle is brought up to date afterwards.
    """
    last = table.transaction_version(_APPLICATION)
    if last is not None and last >= batch_id:
        return
    merger = table.merge(
        rows,
        "t.word = s.word",
        source_alias="s",
        target_alias="t",
        commit_properties=CommitProperties(app_transactions=[Transaction(_APPLICATION, batch_id)]),
        post_commithook_properties=_NO_HOOKS,
    )
    merger.when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert_all().execute()
    table.update_incremental()
