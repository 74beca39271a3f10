"""Rows that Spark SQL combines for a bolt."""

import operator
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

import txtopo.spark.sql.dataframes
from committers import Count, ReduceCommitter, Sum
from spouts import Coordinator, DataFrameSpout
from state import MemoryState
from tests.topologies import committing, values_in
from txtopo import BatchBolt, Config, FailedException, Fields, ICommitter, run
from txtopo.api.reduction import Reduction
from txtopo.columnar.reducing import ReductionCombiner
from txtopo.spark.sql.combining import combined

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
def combined_frames(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """The frames of which Spark SQL combined the rows."""
    noted: list[DataFrame] = []

    def note(frame, combiner):
        noted.append(frame)
        return combined(frame, combiner)

    monkeypatch.setattr(txtopo.spark.sql.dataframes, "combined", note)
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


@pytest.mark.parametrize(
    ("function", "fold", "tasks"), [(operator.add, sum, 9), (min, min, 1), (max, max, 2)], ids=["sum", "min", "max"]
)
def test_combined(spark: SparkSession, combined_frames, function, fold, tasks: int) -> None:
    """Rows are combined before they are placed, and the totals are those of all rows; most of nine tasks get none."""
    got, report = totals(Rows(f"id % {KEYS}", "id * 3 - 50"), ReduceCommitter("totals", "k", "n", function), tasks)
    assert got == {key: fold(values) for key, values in numbers(lambda i: i * 3 - 50).items()}
    assert combined_frames
    assert (report.transactions, report.failures) == (TRANSACTIONS, 0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "kind", "expected"),
    [
        (
            f"IF(id % {ROWS} < {2 * KEYS}, {MAX_HALF - 1}, IF(id % {ROWS} < {4 * KEYS}, -{MAX_HALF - 1}, 1))",
            "long",
            (ROWS // KEYS - 4) * TRANSACTIONS,
        ),
        ("2000000000", "int", 2_000_000_000 * ROWS * TRANSACTIONS // KEYS),
    ],
    ids=["past 64 bits on the way", "more than an int"],
)
def test_past_the_type(spark: SparkSession, combined_frames, number: str, kind: str, expected: int) -> None:
    """A sum that leaves the field's type on the way, or is only held by the table's, is that of all rows."""
    got, _ = totals(Rows(f"id % {KEYS}", number, kind), ReduceCommitter("totals", "k", "n"))
    assert got == {f"k{i}": expected for i in range(KEYS)}
    assert combined_frames


@pytest.mark.parametrize(("kind", "bits"), [("byte", 8), ("short", 16), ("int", 32), ("long", 64)])
def test_sums(spark: SparkSession, kind: str, bits: int) -> None:
    """The combined rows of a key add up to what its rows do, to the last bit; one is enough if the sum fits the type."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    seed = random.Random(bits)
    values: dict[str, list[int | None]] = {
        "highest": [high],
        "lowest": [low],
        "just fits": [high, -1, 1],
        "one too many": [high, 1],
        "one too few": [low, -1],
        "far above": [high] * 999,
        "far below": [low] * 999,
        "there and back": [high] * 50 + [low] * 50,
        "nothing": [None, None],
        "with nothing": [None, low, None, high],
        **{
            f"random {n}": [seed.choice((low, high, 0, seed.randint(low, high))) for _ in range(n)]
            for n in range(1, 60)
        },
    }
    rows = [(key, each, ("lost",)) for key, own in values.items() for each in own]
    seed.shuffle(rows)
    frame = spark.createDataFrame(rows, f"`a key` string, n {kind}, more struct<`a member`: string>")
    made = combined(frame, ReductionCombiner(("a key",), "n", Reduction.SUM))
    assert made.schema == frame.schema
    found: dict[str, list[int | None]] = {}
    for key, n, more in made.collect():
        assert more is None
        found.setdefault(key, []).append(n)
    assert found.keys() == values.keys()
    for key, own in values.items():
        numbers = [each for each in own if each is not None]
        if numbers:
            assert sum(found[key]) == sum(numbers), key
            assert (len(found[key]) == 1) == (low <= sum(numbers) <= high), key
            assert len(found[key]) <= len(numbers) * 1.2 + 2, key
        else:
            assert found[key] == [None]


class Many(Rows):
    """Enough rows to be worth combining in Python."""

    def read(self, spark, metadata):
        return super().read(spark, metadata).crossJoin(spark.range(0, 500).selectExpr("id AS other")).drop("other")


def test_several_values(spark: SparkSession, combined_frames) -> None:
    """Aggregates that Spark SQL is not asked for are combined in Python."""
    state = MemoryState(Fields("k: string"), Fields("rows: long", "total: long"))
    committer = ReduceCommitter("totals", "k", values={"rows": Count(), "total": Sum("n")})
    topology = committing(Many(f"id % {KEYS}", "id"), committer, 2, by="k", totals=state)
    report = run(topology, Config(max_spout_pending=3))
    got = values_in(state)
    assert got == {key: (500 * len(own), 500 * sum(own)) for key, own in numbers(lambda i: i).items()}
    assert (report.failures, combined_frames) == (0, [])


class Nothing(Rows):
    """Every second transaction has no rows, and Spark knows."""

    def read(self, spark, metadata):
        frame = super().read(spark, metadata)
        return frame.where("false") if metadata % 2 else frame


@pytest.mark.parametrize("committer", [ReduceCommitter("totals", "k", "n"), FailsOnce()], ids=["combined", "rows"])
@pytest.mark.parametrize("key", ["'one'", f"id % {KEYS}"], ids=["a literal key", "some keys"])
def test_fewer_partitions(spark: SparkSession, committer: BatchBolt, key: str) -> None:
    """Where a literal is the key, or there are no rows, which Spark knows, every task runs nevertheless."""
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


def test_failure(spark: SparkSession, combined_frames) -> None:
    """What fails in a bolt without a combiner fails its own attempt, which is replayed; it gets all rows."""
    got, report = totals(Rows(f"id % {KEYS}", "1"), FailsOnce())
    assert got == {f"k{i}": ROWS * TRANSACTIONS // KEYS for i in range(KEYS)}
    assert (report.failures, combined_frames) == (1, [])


@pytest.fixture
def adapt(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """Lets the session plan adaptively, by its caller's setting, for the rest of a test."""
    yield lambda: spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.conf.unset("spark.sql.adaptive.enabled")


def test_adaptive(adapt, combined_frames) -> None:
    """Where Spark plans at run time, rows are combined as well."""
    adapt()
    got, _ = totals(Rows(f"id % {KEYS}", "1"), ReduceCommitter("totals", "k", "n"))
    assert got == {f"k{i}": ROWS * TRANSACTIONS // KEYS for i in range(KEYS)}
    assert combined_frames
