"""Is the driver's memory flat? ``python -m tests.harness.soak.kafka.memory --transactions 10000``.

A topology on Spark counts the keys of a backlog in Kafka, in many small transactions. After each tenth of them, the
driver's memory is printed: the resident memory of its Python process, and the live objects on the heap of its JVM.
"""

import gc
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import click
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.harness.benchmarks.memory import jvm_heap_mib, resident_mib
from tests.harness.benchmarks.topologies import STATE
from tests.harness.benchmarks.workloads.kafka import PARTITIONS, VALUE, counted
from txtopo import Config, Progress, run
from txtopo.servers.kafka import KafkaBroker
from txtopo.spark.session.sessions import spark_session

KEYS = 5_000
TENTHS = 10
GROWTH_MAX = 1.05
"""The bound of the last tenth's memory relative to the second's, the first one to begin warm."""

TOPIC = "memory"


@attrs.define(eq=False)
class DriverMemory:
    """The driver's memory in each tenth of a run; ``tell`` takes a line for each."""

    _spark: SparkSession
    _transactions: int
    _tell: Callable[[str], None]
    python_mib: list[float] = attrs.field(factory=list)
    """The median of each tenth."""
    heap_mib: list[float] = attrs.field(factory=list)
    """At the end of each tenth, after a collection."""
    _samples: list[float] = attrs.field(factory=list)

    def note(self, progress: Progress) -> None:
        """Take a sample; at the end of a tenth, keep and print it."""
        self._samples.append(resident_mib())
        tenth = len(self.python_mib) + 1
        if progress.transactions < tenth * self._transactions / TENTHS:
            return
        self.python_mib.append(statistics.median(self._samples))
        self._samples.clear()
        gc.collect()  # Python's proxies of JVM objects keep these alive
        self.heap_mib.append(jvm_heap_mib(self._spark))
        self._tell(
            f"{progress.transactions:>9,} transactions  {progress.tuples:>12,} records  {progress.elapsed_secs:>6.0f} s  "
            f"Python {self.python_mib[-1]:>7.1f} MiB  JVM heap {self.heap_mib[-1]:>7.1f} MiB"
        )

    @property
    def growth(self) -> dict[str, float]:
        """The memory of the last tenth relative to the second."""
        held = {"Python": self.python_mib, "JVM heap": self.heap_mib}
        return {name: mib[-1] / mib[1] for name, mib in held.items()}


def fill(broker: KafkaBroker, records: int) -> Counter[str]:
    """Produce the same number of records to each partition; return the number of records of each key."""
    broker.create_topic(TOPIC, PARTITIONS)
    keys = [f"w{number}" for number in range(KEYS)]
    share = records // PARTITIONS
    made: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        broker.produce(TOPIC, ((keys[at % KEYS].encode(), VALUE) for at in range(share)), partition)
    for at, key in enumerate(keys):
        made[key] = PARTITIONS * (share // KEYS + (at < share % KEYS))
    return +made


def measure(
    broker: KafkaBroker, spark: SparkSession, folder: Path, transactions: int, batch: int, tell: Callable[[str], None]
) -> DriverMemory:
    """Run transactions of ``batch`` records, check every total, and return the memory of this process and its JVM."""
    made = fill(broker, transactions * batch)
    memory = DriverMemory(spark, transactions, tell)
    config = Config(max_spout_pending=64)
    report = run(counted(broker.servers, TOPIC, folder, batch), config, spark=spark, on_progress=memory.note)
    while len(memory.python_mib) < TENTHS:  # what was committed since the last progress
        memory.note(_at_end(report.transactions, report.tuples, report.elapsed_secs))
    rows = pa.table(DeltaTable(str(folder / STATE)).scan(columns=["word", "n"])).to_pylist()
    assert {row["word"]: row["n"] for row in rows} == made
    return memory


def _at_end(transactions: int, tuples: int, elapsed_secs: float) -> Progress:
    return Progress("", transactions, 0, 0, 0, 0, "", transactions, 0, tuples, 0, elapsed_secs)


@click.command()
@click.option("--transactions", default=10_000, show_default=True, type=click.IntRange(TENTHS))
@click.option("--batch", default=300, show_default=True, type=click.IntRange(PARTITIONS), help="Records of each.")
def main(transactions: int, batch: int) -> None:
    """Measure the driver's memory at each tenth of a long run; exit 1 if it grows."""
    with (
        tempfile.TemporaryDirectory(prefix="txtopo-memory-") as name,
        KafkaBroker(Path(name) / "kafka") as broker,
        spark_session(Config({"spark.driver.memory": "1g"}), "memory") as spark,
    ):
        memory = measure(broker, spark, Path(name) / "out", transactions, batch - batch % PARTITIONS, click.echo)
    growth = memory.growth
    click.echo("last tenth ÷ second: " + ", ".join(f"{what} {times:.3f}" for what, times in growth.items()))
    if max(growth.values()) > GROWTH_MAX:
        click.echo(f"memory grows: more than {GROWTH_MAX}")
        sys.exit(1)


if __name__ == "__main__":
    main()
