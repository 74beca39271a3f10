"""Tasks that run where Spark SQL leaves their rows, and rows that Spark SQL combines for them."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

import txtopo.spark.jobs.job_runner
import txtopo.spark.sql.dataframe_tasks
from committers import Count, ReduceCommitter, Sum
from spouts import Coordinator, DataFrameSpout
from state import MemoryState
from tests.topologies import committing, values_in
from txtopo import BatchBolt, Config, FailedException, Fields, ICommitter, run

KEYS = 5
ROWS = 40
TRANSACTIONS = 4
MAX_HALF = 1 << 62


class Batches(Coordinator):
    """Begins some transactions; the metadata is the txid."""

    def __init__(self) -> None:
        self.begun = 0

    def resume(self, txid, metadata):
        self.begun = txid

    def initialize_transaction(self, txid, previous_metadata):
        self.begun = txid
        return txid

    def is_exhausted(self):
        return self.begun >= TRANSACTIONS


class Rows(DataFrameSpout):
    """Rows whose key and number are SQL of ``id``."""

    def __init__(self, key: str, number: str, kind: str = "long") -> None:
        self.output_fields = Fields("attempt", "k: string", f"n: {kind}", "more: long")
        self._columns = (f"concat('k', {key}) AS k", f"CAST({number} AS {kind}) AS n", "id AS more")

    def coordinator(self, config, context):
        return Batches()

    def read(self, spark, metadata):
        return spark.range(ROWS * (metadata - 1), ROWS * metadata, numPartitions=3).selectExpr(*self._columns)


class FailsOnce(BatchBolt, ICommitter):
    """Counts tuples, and fails in the processing phase of its second transaction."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("totals")
        self.counts: Counter[str] = Counter()

    def execute(self, tuple):
        if self.attempt.txid == 2 and self.attempt.attempt == 1:
            raise FailedException("once")
        self.counts[tuple["k"]] += 1

    def finish_batch(self):
        counts = self.counts
        self.state.multi_update(list(counts), lambda key, old: (old or 0) + counts[key])


@pytest.fixture
def was_combined(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each frame that tasks ran on, whether its rows were combined."""
    noted: list[bool] = []
    on = txtopo.spark.sql.dataframe_tasks.DataFrameTasks._on

    def note(self, frame, index, combiner):
        noted.append(combiner is not None)
        return on(self, frame, index, combiner)

    monkeypatch.setattr(txtopo.spark.sql.dataframe_tasks.DataFrameTasks, "_on", note)
    return noted


def totals(spout: Rows, committer: BatchBolt, tasks: int = 2):
    state = MemoryState(Fields("k: string"), Fields("n: long"))
    report = run(committing(spout, committer, tasks, by="k", totals=state), Config(max_spout_pending=3))
    return values_in(state), report


def numbers(number) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for i in range(ROWS * TRANSACTIONS):
        found.setdefault(f"k{i % KEYS}", []).append(number(i))
    return found


@pytest.mark.parametrize("tasks", [1, 2, 9])
@pytest.mark.parametrize(("function", "fold"), [(operator.add, sum), (min, min), (max, max)], ids=["sum", "min", "max"])
def test_combined(spark: SparkSession, was_combined, function, fold, tasks: int) -> None:
    """Rows are combined before they are placed, and the totals are those of all rows; most of nine tasks get none."""
    got, report = totals(Rows(f"id % {KEYS}", "id * 3 - 50"), ReduceCommitter("totals", "k", "n", function), tasks)
    assert got == {key: fold(values) for key, values in numbers(lambda i: i * 3 - 50).items()}
    assert was_combined == [True] * TRANSACTIONS
    assert (report.transactions, report.failures) == (TRANSACTIONS, 0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "kind", "expected"),
    [
        (
            f"IF(id % {ROWS} < {2 * KEYS}, {MAX_HALF - 1}, IF(id % {ROWS} < {4 * KEYS}, -{MAX_HALF - 1}, 1))",
            "long",
            None,
        ),
        ("2000000000", "int", 2_000_000_000 * ROWS * TRANSACTIONS // KEYS),
    ],
    ids=["past 64 bits on the way", "more than an int"],
)
def test_too_large_to_combine(spark: SparkSession, was_combined, number: str, kind: str, expected: int | None) -> None:
    """Where Spark's sum might be another one than Python's, rows are taken as they are."""
    got, _ = totals(Rows(f"id % {KEYS}", number, kind), ReduceCommitter("totals", "k", "n"))
    expected = (ROWS // KEYS - 4) * TRANSACTIONS if expected is None else expected
    assert got == {f"k{i}": expected for i in range(KEYS)}
    assert set(was_combined) == {True, False}


class Many(Rows):
    """Enough rows to be worth combining in Python."""

    def read(self, spark, metadata):
        return super().read(spark, metadata).crossJoin(spark.range(0, 500).selectExpr("id AS other")).drop("other")


def test_several_values(spark: SparkSession, was_combined) -> None:
    """Aggregates that Spark SQL is not asked for are combined in Python, on the general way."""
    state = MemoryState(Fields("k: string"), Fields("rows: long", "total: long"))
    committer = ReduceCommitter("totals", "k", values={"rows": Count(), "total": Sum("n")})
    topology = committing(Many(f"id % {KEYS}", "id"), committer, 2, by="k", totals=state)
    report = run(topology, Config(max_spout_pending=3))
    got = values_in(state)
    assert got == {key: (500 * len(own), 500 * sum(own)) for key, own in numbers(lambda i: i).items()}
    assert (report.failures, was_combined) == (0, [])


class Nothing(Rows):
    """Every second transaction has no rows, and Spark knows."""

    def read(self, spark, metadata):
        frame = super().read(spark, metadata)
        return frame.where("false") if metadata % 2 else frame


@pytest.mark.parametrize("committer", [ReduceCommitter("totals", "k", "n"), FailsOnce()], ids=["combined", "rows"])
@pytest.mark.parametrize("key", ["'one'", f"id % {KEYS}"], ids=["a literal key", "some keys"])
def test_fewer_partitions(spark: SparkSession, committer: BatchBolt, key: str) -> None:
    """Spark makes one partition for a literal key, and may make none for no rows; every task runs nevertheless."""
    got, report = totals(Nothing(key, "1"), committer, 3)
    rows = ROWS * TRANSACTIONS // 2
    assert got == ({"kone": rows} if "one" in key else {f"k{i}": rows // KEYS for i in range(KEYS)})
    assert report.committed_txid == TRANSACTIONS


def test_null(spark: SparkSession) -> None:
    """A number that is missing is skipped, as it is without a combiner; with nothing else, the total is null."""
    got, _ = totals(
        Rows(f"id % {KEYS}", f"IF(id = 70 OR id % {KEYS} = 3, NULL, id)"), ReduceCommitter("totals", "k", "n")
    )
    sums = {key: sum(each for each in own if each != 70) for key, own in numbers(lambda i: i).items()}
    assert got == {**sums, "k3": None}


def test_failure(spark: SparkSession, was_combined) -> None:
    """What fails where the rows lie fails its own attempt, which is replayed."""
    got, report = totals(Rows(f"id % {KEYS}", "1"), FailsOnce())
    assert got == {f"k{i}": ROWS * TRANSACTIONS // KEYS for i in range(KEYS)}
    assert report.failures == 1
    assert set(was_combined) == {False}


@pytest.fixture
def adapt(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """Lets the session plan adaptively, by its caller's own setting, for the rest of a test."""
    yield lambda: spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.conf.unset("spark.sql.adaptive.enabled")


def test_adaptive(adapt, was_combined) -> None:
    """Where Spark may merge partitions, they are no tasks, and rows go the long way."""
    adapt()
    got, _ = totals(Rows(f"id % {KEYS}", "1"), ReduceCommitter("totals", "k", "n"))
    assert got == {f"k{i}": ROWS * TRANSACTIONS // KEYS for i in range(KEYS)}
    assert was_combined == []


class OfItsOwnSession(Rows):
    """Reads in a session that nobody gave it."""

    def read(self, spark, metadata):
        return super().read(SparkSession.builder.getOrCreate(), metadata)


def test_frames_of_another_session(adapt, was_combined, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that were merged after all put keys into other tasks, and each still into one."""
    make_clone = txtopo.spark.jobs.job_runner.DataFrameSession

    def clone_then_adapt(given, tasks):
        clone = make_clone(given, tasks)
        adapt()
        return clone

    monkeypatch.setattr(txtopo.spark.jobs.job_runner, "DataFrameSession", clone_then_adapt)
    got, _ = totals(OfItsOwnSession(f"id % {KEYS}", "1"), FailsOnce(), 3)
    assert got == {f"k{i}": ROWS * TRANSACTIONS // KEYS for i in range(KEYS)}
    assert was_combined == [False] * (TRANSACTIONS + 1)
