"""Large transactions: a million rows each from Parquet files, reduced natively."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.harness.benchmarks.inputs import LargeRows, write_files
from tests.harness.benchmarks.measuring import Bench, Contender, measure
from tests.harness.benchmarks.outcome import Outcome, Target, Unit
from tests.harness.benchmarks.peers import LIMIT, DeltaRsPeer, MergePeer, limit_contender, stream_contender
from tests.harness.benchmarks.topologies import FileSpout, from_files, from_files_by_arrow
from tests.harness.benchmarks.txtopo_contender import TXTOPO, rate_contender
from txtopo import Config, Topology

ROWS = 1_000_000
KEYS = 100_000
TRANSACTIONS = 24
"""In a row, so that processing and commit phases overlap."""
BATCHES = 8
FILES = 2
"""Files of a transaction, for txtopo and the peers alike: one for each core of a small machine."""

WARM_UP = 1
"""A whole round. The JVM needs a minute and more to compile Spark's planner, which each transaction calls and the limit
does not.
"""

BY_ARROW = f"{TXTOPO}, FilesTransactionalSpout"


def large(bench: Bench) -> Outcome:
    """Measure large transactions beside both peers and the limit."""
    measured = measure(_contenders, bench, WARM_UP)
    rows = _rows(bench)
    return Outcome(
        workload="large",
        title=f"{rows.rows:,} rows, {rows.keys:,} keys, Parquet",
        unit=Unit("transactions/s"),
        lines=measured.lines,
        targets=(Target(TXTOPO, MergePeer.name, 5), Target(TXTOPO, LIMIT, 0.7)),
        phases=measured.phases,
        notes=(
            f"{TXTOPO} reads by a DataFrameSpout, as the peers and the limit do; {BY_ARROW} by Arrow, past Spark SQL",
            "txtopo's and the limit's figures are for all transactions from start to stop, a peer's from its third batch on",
            "the limit reads all files in one job, keeps no state and writes Parquet once",
        ),
    )


def _contenders(bench: Bench) -> Sequence[Contender]:
    rows, transactions, batches = _rows(bench), _transactions(bench), _batches(bench)
    source = write_files(bench.work / "inputs", rows, transactions, FILES)
    peers_source = write_files(bench.work / "inputs", rows, batches, FILES)

    def ours(label: str, make_topology: Callable[[Path], Topology]) -> Contender:
        return rate_contender(bench.spark, label, make_topology, Config(), rows, transactions)

    return [
        ours(TXTOPO, lambda folder: from_files(folder, FileSpout(source, transactions, FILES))),
        ours(BY_ARROW, lambda folder: from_files_by_arrow(folder, source, FILES)),
        stream_contender(bench.spark, MergePeer(), peers_source, rows, batches, FILES),
        stream_contender(bench.spark, DeltaRsPeer(), peers_source, rows, batches, FILES),
        limit_contender(bench.spark, source, rows, transactions),
    ]


def _rows(bench: Bench) -> LargeRows:
    return LargeRows(bench.times(ROWS, 1_000), bench.times(KEYS, 100))


def _transactions(bench: Bench) -> int:
    return TRANSACTIONS if bench.scale >= 1 else bench.times(TRANSACTIONS, 4)


def _batches(bench: Bench) -> int:
    return min(BATCHES, _transactions(bench))
