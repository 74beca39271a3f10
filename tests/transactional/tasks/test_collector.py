"""Collectors: what is emitted counts once, as it was then, from whichever thread, and not after the batch."""

import threading
from collections.abc import Callable

import attrs
import pyarrow as pa
import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.bolts import PassBatch, Take
from tests.transactional.commit.own_threads import THREADS, work_beside_own_threads
from txtopo import BatchBolt, BatchOutputCollector, Fields, ICommitter, TransactionalTopologyBuilder
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.chunks import Chunk
from txtopo.errors import FieldsError, UserCodeError
from txtopo.testing.inline import run_inline
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.tasks.collector import TaskCollector, task_collector

ATTEMPT = TransactionAttempt(1, 1)
TUPLES = 5_000


class Passes(PassBatch):
    output_fields = Fields("attempt", "word: string")


class Nothing(Take, ICommitter):
    pass


@pytest.fixture
def plan() -> Plan:
    builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout([], Fields("word: string"), 1))
    builder.set_bolt("passes", Passes()).shuffle_grouping("spout")
    builder.set_bolt("nothing", Nothing()).direct_grouping("passes")
    builder.set_state("unused", MemoryState(Fields("k"), Fields("v")))
    return builder.build().plan


@pytest.fixture
def chunks() -> list[Chunk]:
    return []


@pytest.fixture
def collector(plan: Plan, chunks: list[Chunk]) -> TaskCollector:
    made_in = threading.get_ident()

    def hand_on(chunk: Chunk, _task: int | None) -> None:
        assert threading.get_ident() == made_in, "tuples are handed on by the task's own thread"
        chunks.append(chunk)

    return task_collector(plan.by_id["passes"], 0, ATTEMPT, hand_on)


def words(chunks: list[Chunk]) -> list[str]:
    return [row[1] for chunk in chunks for row in chunk.rows(ATTEMPT)]


def test_list_used_again(collector: TaskCollector, chunks: list[Chunk]) -> None:
    """A list that a bolt changes and emits again is two tuples."""
    values = [ATTEMPT, "cat"]
    collector.emit(values)
    values[1] = "dog"
    collector.emit(values)
    collector.emit_direct(0, values)
    values[1] = "cow"
    collector.flush()
    assert sorted(words(chunks)) == ["cat", "dog", "dog"]


def emit(collector: TaskCollector, word: str) -> None:
    collector.emit((ATTEMPT, word))


def emit_direct(collector: TaskCollector, word: str) -> None:
    collector.emit_direct(0, (ATTEMPT, word))


def emit_batch(collector: TaskCollector, word: str) -> None:
    collector.emit_batch(pa.record_batch({"word": [word]}))


@pytest.mark.parametrize("how", [emit, emit_direct, emit_batch])
def test_threads(
    how: Callable[[TaskCollector, str], None],
    collector: TaskCollector,
    chunks: list[Chunk],
) -> None:
    """Threads of a bolt's own, and the bolt beside them, emit every tuple once."""

    def work(thread: int) -> None:
        for number in range(TUPLES if how is emit else TUPLES // 10):
            how(collector, f"{thread}-{number}")

    work_beside_own_threads(work)
    collector.flush()
    emitted = words(chunks)
    assert len(emitted) == len(set(emitted)) == (THREADS + 1) * (TUPLES if how is emit else TUPLES // 10)


@pytest.mark.parametrize("how", [emit, emit_direct, emit_batch])
def test_over(how: Callable[[TaskCollector, str], None], collector: TaskCollector, chunks: list[Chunk]) -> None:
    """What is emitted after the batch is refused, by a method that was kept too, and is not lost in silence."""
    kept = collector.emit
    collector.close()
    with pytest.raises(UserCodeError, match=r"batch was over; emit before emit_batch\(\) or finish_batch\(\) returns"):
        how(collector, "cat")
    with pytest.raises(UserCodeError, match="batch was over"):
        kept((ATTEMPT, "cat"))
    collector.flush()
    assert not chunks


@pytest.mark.parametrize(
    "names", [("a",), ("a", "b"), ("a", "b", "c"), ("a: string", "b: long"), ("a: array<long>",)], ids=str
)
def test_every_kind_of_stream(names: tuple[str, ...], plan: Plan, chunks: list[Chunk]) -> None:
    """Whatever the fields: what is emitted stays as it was, what does not fit is refused, and so is what comes late."""
    component = attrs.evolve(plan.by_id["passes"], streams={"default": Fields("attempt", *names)})
    collector = task_collector(component, 0, ATTEMPT, lambda chunk, _task: chunks.append(chunk))
    kept = collector.emit
    inner = [1, 2]
    given = [inner if "string" not in names[0] else "cat", *range(1, len(names))]
    values = [ATTEMPT, *given]
    kept(values)
    values[-1] = None
    inner.append(3)
    kept((ATTEMPT, *given), "default")
    for wrong in ([ATTEMPT], (ATTEMPT, *given, 1), tuple(given), (TransactionAttempt(9, 9), *given)):
        with pytest.raises(FieldsError):
            kept(wrong)
    collector.flush()
    first = "cat" if "string" in names[0] else [1, 2]
    second = "cat" if "string" in names[0] else [1, 2, 3]
    rows = [list(row[1:]) for chunk in chunks for row in chunk.rows(ATTEMPT)]
    assert rows == [[each, *range(1, len(names))] for each in (first, second)]
    collector.close()
    with pytest.raises(UserCodeError, match="batch was over"):
        kept((ATTEMPT, *given))
    assert len(collector) == 0


class Late(BatchBolt):
    """Emits on the collector of the transaction before."""

    output_fields = Fields("attempt", "word")

    def execute(self, tuple):
        for collector, attempt in _before:
            collector.emit((attempt, "late"))

    def finish_batch(self):
        _before.append((self.collector, self.attempt))


_before: list[tuple[BatchOutputCollector, TransactionAttempt]] = []


def test_late_bolt() -> None:
    """A bolt that emits for a transaction that is over stops the run, and says where."""
    _before.clear()
    builder = TransactionalTopologyBuilder("late", "spout", MemoryTransactionalSpout([1, 2], Fields("n"), 1))
    builder.set_bolt("late", Late()).shuffle_grouping("spout")
    builder.set_committer_bolt("nothing", Nothing()).global_grouping("late")
    builder.set_state("unused", MemoryState(Fields("k"), Fields("v")))
    with pytest.raises(UserCodeError, match=r"\[component 'late', txid 1, attempt .* batch was over"):
        run_inline(builder.build())


def test_tuples_and_batches_in_turns(collector: TaskCollector, chunks: list[Chunk]) -> None:
    """Tuples and record batches that are emitted in turns keep their order."""
    for turn in range(3):
        collector.emit((ATTEMPT, f"one {turn}"))
        collector.emit((ATTEMPT, f"other {turn}"))
        collector.emit_batch(pa.record_batch({"word": [f"batch {turn}"]}))
    collector.emit((ATTEMPT, "last"))
    collector.flush()
    expected = [f"{what} {turn}" for turn in range(3) for what in ("one", "other", "batch")]
    assert words(chunks) == [*expected, "last"]
