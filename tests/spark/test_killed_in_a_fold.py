"""Workers that are killed while they fold the rows of a commit group into a table."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from committers import ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table
from txtopo import Config, Fields, Topology, TransactionalTopologyBuilder, run
from txtopo.spark.jobs.job_runner import SparkJobRunner
from txtopo.spark.jobs.pool_runner import PoolRunner

ROWS = [[f"w{number * 7 % 60}", number] for number in range(400)]

KILLED_CALLS = {2: "before", 4: "after"}
"""The calls of the executors in which a worker is killed, and when: before it folds a range, or after."""


class Killed:
    """Does on an executor what a function does, but the first one to come is killed."""

    def __init__(self, function: Callable[[Any], Any], marks: Path, when: str) -> None:
        self.function = function
        self.marks = marks
        self.when = when

    def __call__(self, item: Any) -> Any:
        try:
            (self.marks / self.when).touch(exist_ok=False)
        except FileExistsError:
            return self.function(item)
        if self.when == "after":
            self.function(item)
        return os.kill(os.getpid(), signal.SIGKILL)


def topology(path: Path, *, vectors: bool) -> Topology:
    """Return one that sums numbers by word, in groups of two transactions at most."""
    spout = MemoryTransactionalSpout(ROWS, Fields("word: string", "n: long"), 50)
    builder = TransactionalTopologyBuilder("folded", "spout", spout)
    builder.set_committer_bolt("reduce", ReduceCommitter("sums", "word", "n")).fields_grouping("spout", Fields("word"))
    table = DeltaState(path / "sums", Fields("word: string"), Fields("n: long"), deletion_vectors=vectors)
    builder.set_state("sums", table)
    return builder.build()


@pytest.mark.parametrize(
    ("runner", "mode", "vectors"),
    [(SparkJobRunner, "micro-batch", True), (PoolRunner, "real-time", False)],
    ids=["job, vectors", "worker, files"],
)
def test_sums_are_exact(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: Any, mode: str, *, vectors: bool
) -> None:
    """The group is folded again; what a killed worker has written by then, for a range of keys, counts for nothing."""
    compute, calls = runner.compute, itertools.count(1)

    def killed(self: Any, function: Callable[[Any], Any], items: Any) -> list[Any]:
        when = KILLED_CALLS.get(next(calls))
        return compute(self, function if when is None else Killed(function, tmp_path, when), items)

    monkeypatch.setattr(runner, "compute", killed)
    config = Config({"topology.processing.mode": mode, "topology.driver.rows.max": 0}, group_transactions_max=2)
    run(topology(tmp_path, vectors=vectors), config)
    sums: Counter[str] = Counter()
    for word, number in ROWS:
        sums[word] += number
    stored = read_table(tmp_path / "sums")
    assert sorted(zip(stored["word"].to_pylist(), stored["n"].to_pylist(), strict=True)) == sorted(sums.items())
    assert all((tmp_path / when).exists() for when in KILLED_CALLS.values()), "both were killed"
