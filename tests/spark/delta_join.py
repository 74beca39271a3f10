"""A topology that joins a Delta dimension table in Spark; as a program it runs it in a process of its own.

A JVM takes JARs when it starts, or never: what the tests' shared session has can't be changed.
"""

import pathlib
import re
import sys
from collections import Counter

from pyspark.sql import SparkSession, functions as F

from committers import ReduceCommitter
from spouts import DataFrameSpout
from state import DeltaState, read_table
from tests.spark.ranges import Ranges
from txtopo import DataFrameBolt, Fields, Topology, TransactionalTopologyBuilder, run
from txtopo.config import Config

PRICES = {0: 2, 1: 3, 2: 5}
ROWS = 60
STEP = 20


class Sales(DataFrameSpout):
    """Sales of three items in turn."""

    output_fields = Fields("attempt", "item: long")

    def coordinator(self, config, context):
        return Ranges(ROWS, STEP)

    def read(self, spark, metadata):
        return spark.range(*metadata).selectExpr("id % 3 AS item")


class Enrich(DataFrameBolt):
    """Joins the prices."""

    uses_delta = True
    output_fields = Fields("attempt", "item: long", "paid: long")

    def __init__(self, table: str) -> None:
        self._table = table

    def transform(self, frame):
        prices = frame.sparkSession.read.format("delta").load(self._table)
        return frame.join(F.broadcast(prices), "item").selectExpr("attempt", "item", "price AS paid")


class EnrichUndeclared(Enrich):
    """The same, but does not say so."""

    uses_delta = False


GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "dataframes.md"


def documented(table: pathlib.Path) -> DataFrameBolt:
    """The bolt of the guide."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "class Enrich" in block)
    names = {"__name__": "__main__"}
    exec(code, names)
    return names["Enrich"](str(table), 0)


def join_topology(table: pathlib.Path, output: pathlib.Path, bolt: DataFrameBolt | None = None) -> Topology:
    bolt = bolt or Enrich(str(table))
    builder = TransactionalTopologyBuilder("sales", "spout", Sales(), 1)
    builder.set_bolt("enrich", bolt).shuffle_grouping("spout")
    builder.set_bolt("sum", ReduceCommitter("paid", "item", "paid"), 2).fields_grouping("enrich", Fields("item"))
    builder.set_state("paid", DeltaState(output / "paid", key=Fields("item: long"), value=Fields("paid: long")))
    return builder.build()


def totals(output: pathlib.Path) -> dict[int, int]:
    if not (output / "paid").exists():
        return {}
    return {row["item"]: row["paid"] for row in read_table(output / "paid").to_pylist()}


def main(table: pathlib.Path, folder: pathlib.Path) -> None:
    expected = Counter()
    for sale in range(ROWS):
        expected[sale % 3] += PRICES[sale % 3]
    config = Config(spark_master="local[2]", message_timeout_secs=300)
    run(join_topology(table, folder / "own", documented(table)), config)
    print("own session:", "exact" if totals(folder / "own") == expected else totals(folder / "own"))

    from delta import configure_spark_with_delta_pip

    from txtopo.spark.session.delta import CATALOG, EXTENSION

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.databricks.delta.snapshotPartitions", "2")
    builder = builder.config("spark.sql.extensions", EXTENSION).config("spark.sql.catalog.spark_catalog", CATALOG)
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    run(join_topology(table, folder / "given"), Config(message_timeout_secs=300), spark=session)
    session.stop()
    print("given session:", "exact" if totals(folder / "given") == expected else totals(folder / "given"))


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
