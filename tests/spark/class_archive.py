"""Write an archive of the classes that Spark loads, from which the JVMs of tests start in half the time.

    python -m tests.spark.class_archive PATH

A JVM uses it if it is started with ``-XX:SharedArchiveFile=PATH``. If the archive belongs to another Java or another
Spark, the JVM starts without it.
"""

from pathlib import Path

import click
from pyspark import SparkContext
from pyspark.sql import SparkSession

from txtopo import Config
from txtopo.spark.session.sessions import spark_session


@click.command(help=__doc__)
@click.argument("path", type=click.Path(path_type=Path))
def main(path: Path) -> None:
    """Run what most tests run, and end the JVM, which writes the archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    config = Config({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={path}"}, spark_master="local[2]")
    with spark_session(config, "class-archive") as session:
        _use(session)
    gateway = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _use(session: SparkSession) -> None:
    numbers = session.sparkContext.parallelize(range(100), 2)
    numbers.map(lambda number: (number % 7, number)).reduceByKey(max).collect()
    counted = session.range(1000).selectExpr("id % 7 AS key", "id").groupBy("key").count()
    counted.mapInArrow(lambda batches: batches, counted.schema).collect()


if __name__ == "__main__":
    main()
