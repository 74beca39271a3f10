"""The limit: one plain Spark aggregation over all files at once, into Parquet files. No transactions, no state."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession, functions as F

from tests.harness.benchmarks.inputs.checking import check_totals
from tests.harness.benchmarks.inputs.files import SCHEMA
from tests.harness.benchmarks.inputs.rows import Rows
from tests.harness.benchmarks.measuring import Contender, Sample
from tests.harness.benchmarks.outcome import Role

LIMIT = "one plain Spark job"


def limit_contender(spark: SparkSession, source: Path, rows: Rows, transactions: int) -> Contender:
    """Return the limit as a contender, in transactions a second."""

    def run(folder: Path) -> Sample:
        started = time.perf_counter()
        sums = spark.read.schema(SCHEMA).parquet(str(source)).groupBy("word").agg(F.sum("n").alias("n"))
        sums.write.parquet(str(folder / "words"))
        secs = time.perf_counter() - started
        check_totals(LIMIT, pq.read_table(folder / "words"), rows.totals(transactions))
        return Sample({"": transactions / secs})

    return Contender(LIMIT, Role.LIMIT, run)
