"""The bench: what a workload is given to run on."""

from __future__ import annotations

from pathlib import Path

import attrs
from pyspark.sql import SparkSession
from rich.console import Console

WARM_UP_SCALE = 0.15
"""The size of a warm-up relative to a round, unless a workload gives another."""


@attrs.frozen
class Bench:
    """Session, sizes and a folder.

    Args:
        spark: the session of all contenders.
        work: a folder for tables and inputs, removed at the end.
        console: shows the progress.
        rounds: the number of measured rounds.
        scale: a factor on the sizes; the targets are for 1.
        has_delta_jars: whether Spark itself can write Delta tables; contenders that need it are left out otherwise.
        has_warm_up: whether each contender runs once before it is measured.
    """

    spark: SparkSession
    work: Path
    console: Console
    rounds: int = 3
    scale: float = 1.0
    has_delta_jars: bool = True
    has_warm_up: bool = True

    def times(self, count: int, low: int = 1) -> int:
        """Return a count, scaled, and at least ``low``."""
        return max(low, round(count * self.scale))

    def for_warm_up(self, scale: float) -> Bench:
        """Return a bench with sizes scaled once more, for runs that are not measured."""
        return attrs.evolve(self, scale=self.scale * scale)
