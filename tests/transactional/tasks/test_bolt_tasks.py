"""Tasks: batch bolts that take many tuples at once."""

from typing import Any

import pyarrow as pa
import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.topologies import committing, values_in
from txtopo import BasicBolt, BatchBolt, Fields, ICommitter, Topology, TransactionalTopologyBuilder
from txtopo.api.reduction import Reduction
from txtopo.columnar.reducing import ReductionCombiner
from txtopo.testing.inline import run_inline

ROWS = {0: [("cat", 2), ("dog", 1), ("cat", 3)]}
UNTYPED, TYPED = Fields("word", "n"), Fields("word: string", "n: long")
ATTEMPT = pa.struct([("txid", pa.int64()), ("attempt", pa.int64())])
SCHEMA = pa.schema([("attempt", ATTEMPT), ("word", pa.string()), ("n", pa.int64())])


class Sums(BatchBolt, ICommitter):
    """Sums by word, and says how it was called."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("sums")
        self.sums: dict[str, int] = {}
        self.calls: list[str] = []

    def execute(self, tuple):
        self.calls.append("execute")
        self.add(tuple["word"], tuple["n"])

    def add(self, word, n):
        self.sums[word] = self.sums.get(word, 0) + n

    def finish_batch(self):
        self.state.multi_put({**self.sums, "calls": ",".join(self.calls)})


class BatchSums(Sums):
    def execute_batch(self, batch):
        assert batch.schema == SCHEMA
        attempts = batch.column(0).to_pylist()
        assert attempts == [{"txid": self.attempt.txid, "attempt": self.attempt.attempt}] * len(batch)
        self.calls.append(f"execute_batch of {len(batch)}")
        for word, n in zip(*(column.to_pylist() for column in batch.columns[1:]), strict=True):
            self.add(word, n)


class CombinedSums(BatchSums):
    def combiner(self):
        return ReductionCombiner(("word",), "n", Reduction.SUM)


class TupleSums(BatchSums):
    def execute(self, tuple):
        super().execute(tuple)


def sums_by(bolt: BatchBolt, fields: Fields, rows: Any = ROWS) -> tuple[Topology, MemoryState]:
    state = MemoryState(Fields("word"), Fields("n"))
    return committing(MemoryTransactionalSpout(rows, fields, 10), bolt, name="sums", sums=state), state


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("bolt", "fields", "calls"),
    [
        (Sums(), TYPED, "execute,execute,execute"),
        (BatchSums(), TYPED, "execute_batch of 3"),
        (BatchSums(), UNTYPED, "execute,execute,execute"),
        (CombinedSums(), UNTYPED, "execute_batch of 3"),
        (TupleSums(), TYPED, "execute,execute,execute"),
    ],
    ids=["no execute_batch", "columnar", "untyped", "untyped, combiner", "execute overridden below execute_batch"],
)
def test_execute_batch(bolt: BatchBolt, fields: Fields, calls: str) -> None:
    """``execute_batch`` gets the chunks of columnar streams, and those a combiner is for; ``execute`` all else."""
    topology, state = sums_by(bolt, fields)
    run_inline(topology)
    assert values_in(state) == {"cat": 5, "dog": 1, "calls": calls}


class Seen(CombinedSums):
    """Shows what it got: the rows of batches, and the tuples."""

    def execute(self, tuple):
        self.sums.setdefault("tuples", []).append((tuple["word"], tuple["n"]))

    def execute_batch(self, batch):
        rows = zip(*(column.to_pylist() for column in batch.select(["word", "n"]).columns), strict=True)
        self.sums.setdefault("rows", []).extend(rows)


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("rows", "way"),
    [
        ([("cat", 2), ("", -(2**31)), ("kätzchen", 2**31 - 1)], "rows"),
        ([("cat", 2**31), ("dog", -(2**63))], "rows"),
        ([(7, 1), (-(2**40), 2)], "rows"),
        ([("cat", 2**63)], "tuples"),
        ([("cat", 1.0)], "tuples"),
        ([("cat", True), ("dog", 1)], "tuples"),
        ([("cat", 1), ("dog", True)], "tuples"),
        ([("cat", 1), ("dog", 2.0)], "tuples"),
        ([("cat", None), ("dog", 1)], "tuples"),
        ([("cat", "1")], "tuples"),
        ([("cat", 1), (None, 1)], "tuples"),
        ([("cat", 1), (7, 1)], "tuples"),
        ([(True, 1), (7, 1)], "tuples"),
        ([(7, 1), (True, 1)], "tuples"),
        ([(b"cat", 1)], "tuples"),
        ([("c\0t", 1)], "tuples"),
        ([("c\ud800t", 1)], "tuples"),
        ([(("cat", 1), 1)], "tuples"),
    ],
)
def test_what_columns_say(rows: list[tuple[Any, Any]], way: str) -> None:
    """Texts and whole numbers may come as columns, exactly as they were emitted; all else comes as tuples."""
    topology, state = sums_by(Seen(), Fields("other", "word", "n"), {0: [("other", *row) for row in rows]})
    run_inline(topology)
    seen = values_in(state)[way]
    assert [(type(word), word, type(n), n) for word, n in seen] == [(type(word), word, type(n), n) for word, n in rows]


@pytest.mark.parametrize("key", ["name", "n", "attempt"])
def test_combiner_of_other_fields(key: str) -> None:
    """A combiner that no two columns can be made for is left alone."""

    class Other(CombinedSums):
        def combiner(self):
            return ReductionCombiner((key,), "n", Reduction.MAX)

    topology, state = sums_by(Other(), UNTYPED)
    run_inline(topology)
    assert state.items()["calls"].value == "execute,execute,execute"


class Keeps(BatchBolt, ICommitter):
    """Keeps some of its tuples until its batch is over."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("sums")
        self.kept = []

    def execute(self, tuple):
        if tuple["word"] == "cat":
            self.kept.append(tuple)

    def finish_batch(self):
        self.state.multi_put({f"cat {number}": one["n"] for number, one in enumerate(self.kept)})


class KeepsBasic(BasicBolt):
    """Keeps every other tuple, for the next one."""

    output_fields = Fields("attempt", "word", "n")

    def prepare(self, config, context):
        self.before = None

    def execute(self, tuple, collector):
        if self.before is None:
            self.before = tuple
        else:
            collector.emit(self.before.values)
            collector.emit(tuple.values)
            self.before = None


def test_kept_tuples() -> None:
    """A tuple that a bolt keeps stays as it is while later ones come."""
    rows = {0: [("cat", 2), ("cat", 1), ("dog", 3), ("cat", 3)]}
    state = MemoryState(Fields("word"), Fields("n"))
    builder = TransactionalTopologyBuilder("kept", "spout", MemoryTransactionalSpout(rows, UNTYPED, 10))
    builder.set_bolt("basic", KeepsBasic()).global_grouping("spout")
    builder.set_bolt("keeps", Keeps()).global_grouping("basic")
    builder.set_state("sums", state)
    run_inline(builder.build())
    assert values_in(state) == {"cat 0": 2, "cat 1": 1, "cat 2": 3}


class Clears(BatchBolt, ICommitter):
    """Takes all there is of each list."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state(context.this_component_id)
        self.tags: list[str] = []

    def execute(self, tuple):
        self.tags += tuple["tags"]
        tuple["tags"].clear()

    def finish_batch(self):
        self.state.put(self.context.this_task_index, ",".join(self.tags))


@pytest.mark.parametrize("fields", [Fields("tags"), Fields("tags: array<string>")], ids=["untyped", "typed"])
def test_consumers_share_nothing(fields: Fields) -> None:
    """Each task of each bolt that takes a stream has its tuples for itself."""
    builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout([[["a", "b"]], [["c"]]], fields, 2))
    states = {name: MemoryState(Fields("task"), Fields("tags")) for name in ("one", "other")}
    for name, state in states.items():
        builder.set_committer_bolt(name, Clears(), 2).all_grouping("spout")
        builder.set_state(name, state)
    run_inline(builder.build(), slots=1)
    taken = {(name, task): kept.value for name, state in states.items() for task, kept in state.items().items()}
    assert taken == {(name, task): "a,b,c" for name in states for task in (0, 1)}
