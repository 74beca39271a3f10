"""Txtopo as a contender."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from state import DeltaState
from tests.harness.benchmarks.inputs import Rows, check_delta
from tests.harness.benchmarks.measuring import Contender, Sample
from tests.harness.benchmarks.outcome import Role
from tests.harness.benchmarks.topologies import STATE
from txtopo import Config, RunReport, Topology, run
from txtopo.assembly.parts import Observer

TXTOPO = "txtopo"
REAL_TIME = f"{TXTOPO}, real-time"
MODES = {TXTOPO: Config(), REAL_TIME: Config({"topology.processing.mode": "real-time"})}
"""The configuration of each mode, by the contender's name."""


def run_checked(
    spark: SparkSession,
    topology: Topology,
    config: Config,
    folder: Path,
    rows: Rows,
    transactions: int,
    observer: Observer | None = None,
) -> RunReport:
    """Run a topology to its end, and check every total of its table ``STATE`` below ``folder``."""
    report = run(topology, config, spark=spark, observer=observer)
    check_run(report, topology, folder, rows, transactions)
    return report


def check_run(report: RunReport, topology: Topology, folder: Path, rows: Rows, transactions: int) -> None:
    """Check that all transactions were committed, and every total of the table ``STATE`` below ``folder``."""
    has_keys = isinstance(topology.plan.states[STATE], DeltaState)
    check_delta(topology.plan.topology_id, folder / STATE, rows.totals(transactions), has_keys=has_keys)
    if report.committed_txid != transactions:
        raise AssertionError(f"{report.committed_txid} transactions are committed instead of {transactions}")


def rate_contender(
    spark: SparkSession,
    name: str,
    make: Callable[[Path], Topology],
    config: Config,
    rows: Rows,
    transactions: int,
) -> Contender:
    """Return a topology as a contender, in transactions a second from start to end."""

    def once(folder: Path) -> Sample:
        report = run_checked(spark, make(folder), config, folder, rows, transactions)
        return Sample({"": transactions / report.elapsed_secs}, report)

    return Contender(name, Role.TXTOPO, once)
