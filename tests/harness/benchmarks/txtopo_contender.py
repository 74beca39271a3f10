"""Txtopo as a contender."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.harness.benchmarks.inputs.checking import check_delta
from tests.harness.benchmarks.inputs.rows import Rows
from tests.harness.benchmarks.measuring import Contender, Sample
from tests.harness.benchmarks.memory import MemorySampler
from tests.harness.benchmarks.outcome import Role
from tests.harness.benchmarks.topologies import STATE
from txtopo import Config, RunReport, Topology, run

TXTOPO = "txtopo"


def run_checked(
    spark: SparkSession,
    topology: Topology,
    config: Config,
    folder: Path,
    rows: Rows,
    transactions: int,
    memory: MemorySampler | None = None,
) -> RunReport:
    """Run a topology to its end, and check every total in its table.

    Args:
        spark: the session.
        topology: writes the table ``STATE`` below ``folder``.
        config: its configuration.
        folder: where the table lies.
        rows: what it counts.
        transactions: how many must be in the table at the end.
        memory: samples during the run.
    """
    with memory or contextlib.nullcontext():
        report = run(topology, config, spark=spark)
    check_delta(topology.plan.topology_id, folder / STATE, rows.totals(transactions))
    if report.committed_txid != transactions:
        raise AssertionError(f"{report.committed_txid} transactions are committed instead of {transactions}")
    return report


def rate_contender(
    spark: SparkSession,
    name: str,
    make: Callable[[Path], Topology],
    config: Config,
    rows: Rows,
    transactions: int,
) -> Contender:
    """Return a topology as a contender, in transactions a second from its start to its end.

    Args:
        spark: the session.
        name: as shown.
        make: returns the topology with its table below a folder.
        config: its configuration.
        rows: what it counts.
        transactions: how many.
    """

    def once(folder: Path) -> Sample:
        report = run_checked(spark, make(folder), config, folder, rows, transactions)
        return Sample({"": transactions / report.elapsed_secs}, report)

    return Contender(name, Role.TXTOPO, once)
