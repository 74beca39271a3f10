"""Small transactions, txtopo beside ``foreachBatch`` + ``MERGE``, in one go: ``python -m tests.benchmarks.small``.

Both count words of 10,000 keys into a Delta table, a thousand words to a transaction, in the same Spark
session, after a warm-up, in turns. The peer is tuned: few shuffle partitions, no adaptive planning, no
materialised source. Every total is checked. Machines are noisy: the ratio is what counts.
"""

from __future__ import annotations

import pathlib
import statistics
import tempfile
import time

import click
from delta import DeltaTable, configure_spark_with_delta_pip
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from state import read_table
from tests.benchmarks.workload import expected, topology, words_of
from txtopo import Config, run


def make_session() -> SparkSession:
    """Return a session with Delta for the peer, whose settings suit both."""
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.scheduler.mode": "FAIR",
        "spark.driver.memory": "4g",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return configure_spark_with_delta_pip(builder).getOrCreate()


def run_txtopo(spark: SparkSession, folder: pathlib.Path, transactions: int, tuples: int) -> float:
    """Return transactions a second."""
    report = run(topology(folder, transactions, tuples), Config(max_spout_pending=256), spark=spark)
    table = read_table(folder / "words").to_pydict()
    assert dict(zip(table["word"], table["n"], strict=True)) == expected(transactions, tuples)
    assert report.transactions == transactions
    return transactions / report.elapsed_secs


def run_peer(spark: SparkSession, folder: pathlib.Path, batches: int, tuples: int) -> float:
    """Return batches a second of foreachBatch + MERGE, from the third on."""
    source, out = folder / "source", folder / "words"
    for txid in range(1, batches + 1):
        frame = spark.createDataFrame([(word,) for word in words_of(txid, tuples)], "word string")
        frame.coalesce(1).write.mode("append").parquet(str(source))
    spark.createDataFrame([], "word string, n long, txid long").write.format("delta").save(str(out))
    done: list[float] = []

    def merge(frame: DataFrame, batch_id: int) -> None:
        counts = frame.groupBy("word").agg(F.count("*").alias("n")).withColumn("txid", F.lit(batch_id).cast("long"))
        merger = DeltaTable.forPath(spark, str(out)).alias("t").merge(counts.alias("s"), "t.word = s.word")
        update = merger.whenMatchedUpdate("t.txid < s.txid", {"n": "t.n + s.n", "txid": "s.txid"})
        update.whenNotMatchedInsertAll().execute()
        done.append(time.perf_counter())

    stream = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = stream.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    totals = {row.word: row.n for row in spark.read.format("delta").load(str(out)).collect()}
    assert totals == expected(batches, tuples)
    return (len(done) - 2) / (done[-1] - done[1])


@click.command()
@click.option("--transactions", default=1000, show_default=True, help="Transactions of txtopo in a round.")
@click.option("--tuples", default=1000, show_default=True, help="Tuples in a transaction.")
@click.option("--batches", default=12, show_default=True, help="Batches of the peer in a round.")
@click.option("--rounds", default=2, show_default=True, help="Rounds, after one to warm up.")
def main(transactions: int, tuples: int, batches: int, rounds: int) -> None:
    """Compare small transactions side by side."""
    console = Console()
    with console.status("starting Spark with Delta"):
        spark = make_session()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        for number in range(rounds + 1):
            ours.append(run_txtopo(spark, base / f"txtopo-{number}", transactions, tuples))
            theirs.append(run_peer(spark, base / f"peer-{number}", batches, tuples))
            console.print(f"round {number}: txtopo {ours[-1]:.0f}/s, foreachBatch + MERGE {theirs[-1]:.2f}/s")
    table = Table(title=f"transactions/s of {tuples:,} tuples, median of {rounds} rounds (min - max)")
    for column in ("", "transactions/s", "range", "ratio"):
        table.add_column(column, justify="right")
    base_rate = statistics.median(theirs[1:])
    for name, rates in (("txtopo", ours[1:]), ("foreachBatch + MERGE", theirs[1:])):
        middle = statistics.median(rates)
        table.add_row(name, f"{middle:.2f}", f"{min(rates):.2f} - {max(rates):.2f}", f"{middle / base_rate:.0f}")
    console.print(table)
    spark.stop()


if __name__ == "__main__":
    main()
