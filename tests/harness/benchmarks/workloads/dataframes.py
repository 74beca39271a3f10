"""DataFrames: what a transaction takes beside the plain Spark job that does the same without a state."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession, functions as F

from tests.harness.benchmarks.core_secs import CoreSecs
from tests.harness.benchmarks.history import EACH
from tests.harness.benchmarks.inputs import SCHEMA, LargeRows, check_totals, file_names, write_files
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.peers import LIMIT
from tests.harness.benchmarks.topologies import FileSpout, from_files, from_files_combined
from tests.harness.benchmarks.txtopo_contender import TXTOPO, check_run
from txtopo import Config, Topology, run

ROWS = 1_000_000
KEYS = 100_000
TRANSACTIONS = 24
FILES = 2
"""Files of a transaction, one for each core of a small machine."""

WARM_UP = 1
"""A whole round, as for large transactions."""

COMBINED = f"{TXTOPO}, ReduceCommitter alone"
CORES, CLOCK = "cores", "clock"
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "two-level hash map": {"spark.sql.codegen.aggregate.map.twolevel.enabled": "true"},
    "adaptive": {"spark.sql.adaptive.enabled": "true"},
    "4 partitions": {"spark.sql.shuffle.partitions": "4"},
}
"""Settings of the session that txtopo's DataFrames leave as a caller has set them, so that each has its figure."""


def dataframes(bench: Bench) -> Outcome:
    """Measure topologies of DataFrames beside plain Spark jobs, in seconds of a core and by the clock."""
    rows = _rows(bench)
    measured = measure(_contenders, bench, WARM_UP)
    return Outcome(
        workload="dataframes",
        title=f"{rows.rows:,} rows, {rows.keys:,} keys a transaction, Parquet",
        unit=Unit("seconds for 1,000,000 rows", is_lower_better=True),
        lines=measured.lines,
        targets=(
            *(Target(f"{TXTOPO} {figure}", f"{EACH} {figure}", 0.8) for figure in (CORES, CLOCK)),
            *(Target(f"{TXTOPO} {figure}", f"{LIMIT} {figure}", 0.6) for figure in (CORES, CLOCK)),
        ),
        phases=measured.phases,
        notes=(
            "cores: of the JVM without its compilers, and of all processes of Python; totals are checked afterwards",
            f"{EACH}: read the same files, sum by word, write Parquet, one after another; they keep no state",
            f"{LIMIT}: the same over all files at once",
            f"{COMBINED}: Spark SQL combines the rows below the spout by itself, as far as a long holds the sums",
        ),
    )


def _contenders(bench: Bench) -> Sequence[Contender]:
    rows, transactions, spark = _rows(bench), _transactions(bench), bench.spark
    source = write_files(bench.work / "inputs", rows, transactions, FILES)
    millions = rows.rows * transactions / 1_000_000

    def topology(name: str, make: Callable[[Path, FileSpout], Topology], settings: Mapping[str, str]) -> Contender:
        def once(folder: Path) -> Sample:
            made = make(folder, FileSpout(source, transactions, FILES))
            with _set(spark, settings), taken(millions) as figures:
                report = run(made, Config(), spark=spark)
            check_run(report, made, folder, rows, transactions)
            return Sample(figures, report)

        return Contender(name, Role.TXTOPO, once)

    def plain(name: str, role: Role, jobs: Sequence[Sequence[str]]) -> Contender:
        def once(folder: Path) -> Sample:
            with taken(millions) as figures:
                for number, paths in enumerate(jobs):
                    sums = spark.read.schema(SCHEMA).parquet(*paths).groupBy("word").agg(F.sum("n").alias("n"))
                    sums.write.parquet(str(folder / str(number)))
            files = pa.concat_tables(map(pq.read_table, folder.glob("*/*.parquet")))
            table = files.group_by("word").aggregate([("n", "sum")]).rename_columns(["word", "n"])
            check_totals(name, table, rows.totals(transactions))
            return Sample(figures)

        return Contender(name, role, once)

    apart = [[str(source / name) for name in file_names(txid, FILES)] for txid in range(1, transactions + 1)]
    return [
        topology(TXTOPO, from_files, {}),
        plain(EACH, Role.PEER, apart),
        plain(LIMIT, Role.LIMIT, [[str(source)]]),
        topology(COMBINED, from_files_combined, {}),
        *(topology(f"{TXTOPO}, {name}", from_files, settings) for name, settings in VARIANTS.items()),
    ]


@contextmanager
def taken(millions: float) -> Iterator[dict[str, float]]:
    """Yield figures that are filled at the end: what is taken meanwhile, for each million of rows."""
    figures: dict[str, float] = {}
    before, started = CoreSecs.now(), time.perf_counter()
    yield figures
    secs = time.perf_counter() - started
    python, jvm = CoreSecs.now().since(before)
    taken = {CORES: python + jvm, f"{CORES} of the JVM": jvm, f"{CORES} of Python": python, CLOCK: secs}
    figures |= {name: each / millions for name, each in taken.items()}


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


def _rows(bench: Bench) -> LargeRows:
    return LargeRows(bench.times(ROWS, 1_000), bench.times(KEYS, 100))


def _transactions(bench: Bench) -> int:
    return TRANSACTIONS if bench.scale >= 1 else bench.times(TRANSACTIONS, 4)
