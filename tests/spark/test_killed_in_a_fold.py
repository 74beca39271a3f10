"""Workers and executors that are killed while they fold the rows of a commit group into a table."""

import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from committers import ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table
from tests.harness.spark_cluster.standalone import settings_on, why_not
from txtopo import Config, Fields, Topology, TransactionalTopologyBuilder, run
from txtopo.spark.jobs.job_runner import SparkJobRunner
from txtopo.spark.jobs.pool_runner import PoolRunner

ROWS = [[f"w{number * 7 % 60}", number] for number in range(400)]

KILLED_CALLS = {2: "before", 4: "after"}
"""The calls of the executors in which a worker is killed, and when: before it folds a range, or after."""


DEADLINE_SECS = 1200


def executor() -> int:
    """Return the number of the executor's process, for which this one works."""
    process = os.getpid()
    while Path(f"/proc/{process}/exe").readlink().name != "java":
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process


class Killed:
    """Does on an executor what a function does, but the first one to come is killed, by the number of its process."""

    def __init__(
        self, function: Callable[[Any], Any], marks: Path, when: str, victim: Callable[[], int] = os.getpid
    ) -> None:
        self.function = function
        self.marks = marks
        self.when = when
        self.victim = victim

    def __call__(self, item: Any) -> Any:
        try:
            (self.marks / self.when).touch(exist_ok=False)
        except FileExistsError:
            return self.function(item)
        if self.when == "after":
            self.function(item)
        os.kill(self.victim(), signal.SIGKILL)
        os._exit(1)  # Spark has lost it with its executor


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
    config = {"topology.processing.mode": mode}
    check(tmp_path, runner, config, monkeypatch, vectors=vectors)


def check(
    path: Path,
    runner: Any,
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    vectors: bool,
    victim: Callable[[], int] = os.getpid,
) -> None:
    """Run the topology, kill in the midst of two folds, and compare its table."""
    compute, calls = runner.compute, itertools.count(1)

    def killed(self: Any, function: Callable[[Any], Any], items: Any) -> list[Any]:
        when = KILLED_CALLS.get(next(calls))
        return compute(self, function if when is None else Killed(function, path, when, victim), items)

    monkeypatch.setattr(runner, "compute", killed)
    run(topology(path, vectors=vectors), Config(settings | {"topology.driver.rows.max": 0}, group_transactions_max=2))
    sums: Counter[str] = Counter()
    for word, number in ROWS:
        sums[word] += number
    stored = read_table(path / "sums")
    assert sorted(zip(stored["word"].to_pylist(), stored["n"].to_pylist(), strict=True)) == sorted(sums.items())
    assert all((path / when).exists() for when in KILLED_CALLS.values()), "both were killed"


ON_EXECUTORS = """
import sys
from pathlib import Path
from tests.spark import test_killed_in_a_fold as test
test.check_executors(Path(sys.argv[1]), sys.argv[2], vectors=sys.argv[3] == "vectors")
"""


def check_executors(path: Path, mode: str, *, vectors: bool) -> None:
    """Do the same on two executors of their own, which die with all that works for them."""
    runner = SparkJobRunner if mode == "micro-batch" else PoolRunner
    settings = {
        "topology.processing.mode": mode,
        "topology.message.timeout.secs": DEADLINE_SECS,
        **settings_on("local-cluster[2,1,600]", path),
    }
    with pytest.MonkeyPatch.context() as patch:
        check(path, runner, settings, patch, vectors=vectors, victim=executor)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize(("mode", "kept"), [("micro-batch", "vectors"), ("real-time", "files")])
def test_sums_are_exact_without_an_executor(tmp_path: Path, mode: str, kept: str) -> None:
    """An executor dies in the midst of a fold, and after it: another one does its part."""
    command = [sys.executable, "-c", ON_EXECUTORS, str(tmp_path), mode, kept]
    done = subprocess.run(
        command,
        env={**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path)},
        check=False,
        timeout=DEADLINE_SECS,
        start_new_session=True,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
