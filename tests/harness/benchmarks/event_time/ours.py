"""Txtopo as a contender over event time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.harness.benchmarks.measuring import Contender, Sample
from tests.harness.benchmarks.outcome import Role
from txtopo import Config, Topology, run


def events_contender(
    spark: SparkSession, name: str, make: Callable[[Path], Topology], events: int, check: Callable[[Path], None]
) -> Contender:
    """Return a topology as a contender, in events a second from start to stop.

    Args:
        spark: the session.
        name: the contender's.
        make: returns the topology for a folder.
        events: the number of all events.
        check: raises an error if the tables below the folder are not what they should be.
    """

    def once(folder: Path) -> Sample:
        report = run(make(folder), Config(), spark=spark)
        check(folder)
        return Sample({"": events / report.elapsed_secs}, report)

    return Contender(name, Role.TXTOPO, once)
