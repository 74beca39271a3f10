"""The plain PySpark batch job over page views: reads all JSON lines once, and writes the four tables."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession, functions as F

from tests.harness.benchmarks.event_time.page_views import SPARK_SCHEMA

BATCH_JOB = "plain PySpark batch job"


def four_tables_by_batch(spark: SparkSession, source: Path, folder: Path) -> float:
    """Make the four tables below a folder; return the seconds that it took."""
    started = time.perf_counter()
    views = spark.read.schema(SPARK_SCHEMA).json(str(source)).persist()  # parsed once for four tables
    count = F.count("*").alias("views")
    tables = {
        "views": views,
        "pages": views.groupBy("page").agg(count, F.sum("ms").alias("ms")),
        "users": views.groupBy("user").agg(count, F.max("at").alias("last")),
        "minutes": views.groupBy("page", F.date_trunc("minute", "at").alias("minute")).agg(count),
    }
    try:
        for name, frame in tables.items():
            frame.write.format("delta").save(str(folder / name))
    finally:
        views.unpersist()
    return time.perf_counter() - started
