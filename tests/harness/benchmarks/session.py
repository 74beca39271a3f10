"""The Spark session that txtopo, its peers and the limit share."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyspark
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from txtopo.spark.session.packages import fetched_jars

_CORES = os.cpu_count() or 1

SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(_CORES),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(_CORES),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": str(_CORES),
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0s",
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-XX:-UseDynamicNumberOfCompilerThreads",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
}
"""The settings that suit the peers best: few partitions, no adaptive planning, no materialised source. They do no harm
to txtopo. The JVM's compilers stay, so that their time can be told from that of the work.
"""


_SCALA = "2.13"
_NOT_FOR_KAFKA = ("org.scala-lang:*", "org.apache.hadoop:*", "org.slf4j:*")
"""What Spark has already."""


@contextmanager
def benchmark_session(*, with_kafka: bool = False, master: str = "local[*]") -> Iterator[SparkSession]:
    """Yield a session with Delta on all cores of this machine, with Spark's Kafka source if asked for."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("benchmarks")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    if with_kafka:
        connector = f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{pyspark.__version__}"
        builder = builder.config("spark.jars", ",".join(map(str, fetched_jars([connector], _NOT_FOR_KAFKA))))
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    try:
        yield session
    finally:
        session.stop()
