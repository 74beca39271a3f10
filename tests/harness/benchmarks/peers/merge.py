"""The peer that most people write: ``foreachBatch`` and delta-spark's ``MERGE``, guarded by the batch's id."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as F


class MergePeer:
    """Merges by Spark; each row records the batch that changed it last, so that a batch counts once."""

    name = "foreachBatch + MERGE"
    needs_delta_jars = True

    def create(self, spark: SparkSession, table: Path) -> None:
        self._spark = spark
        self._table = str(table)
        spark.createDataFrame([], "word string, n long, txid long").write.format("delta").save(self._table)

    def merge(self, frame: DataFrame, batch_id: int) -> None:
        from delta import DeltaTable  # as that peer does; whoever has no delta-spark leaves it out

        sums = frame.groupBy("word").agg(F.sum("n").alias("n")).withColumn("txid", F.lit(batch_id).cast("long"))
        merger = DeltaTable.forPath(self._spark, self._table).alias("t").merge(sums.alias("s"), "t.word = s.word")
        update = merger.whenMatchedUpdate("t.txid < s.txid", {"n": "t.n + s.n", "txid": "s.txid"})
        update.whenNotMatchedInsertAll().execute()
