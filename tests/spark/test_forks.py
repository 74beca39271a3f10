"""Forks in user code on Spark's executors: a child that comes back ends there, and the run is as if there were none."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from state import read_table
from tests.topology.user_code.forking import STATUSES, plain, transactional
from txtopo import Config, run


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_transactional_topologies(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """A child commits nothing and answers nobody: each row is there once, at the first attempt."""
    report = run(transactional(tmp_path / "statuses"), Config({"topology.processing.mode": mode}), spark=spark)
    assert (report.transactions, report.failures) == (3, 0)
    rows = read_table(tmp_path / "statuses").to_pylist()
    assert sorted((row["way"], row["status"]) for row in rows) == sorted(STATUSES.items())


def test_plain_topologies(spark: SparkSession, tmp_path: Path) -> None:
    """A child is no second worker: nothing fails, and no worker is restarted."""
    report = run(plain(tmp_path / "statuses"), Config({"topology.workers": 2}), spark=spark)
    assert (report.acked, report.failed, report.restarts) == (3, 0, 0)
    written = dict(line.split() for line in (tmp_path / "statuses").read_text().splitlines())
    assert written == {way: str(status) for way, status in STATUSES.items()}
