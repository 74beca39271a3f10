"""Rows in memory, as a transactional spout."""

import json
import pickle

import pytest

from spouts.memory import MemoryTransactionalSpout
from txtopo.api.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, FieldsError, InputError
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.conformance.spout import TransactionalSpoutConformance
from txtopo.testing.context import PlainContext

WORDS = {
    0: [["cat"], ["dog"], ["chicken"], ["cat"], ["dog"], ["apple"]],
    1: [["cat"], ["dog"]],
    2: [],
    10: [["banana"], ["cat"], ["dog"]],
}
ATTEMPT = TransactionAttempt(1, 1)


class TestObjects(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        return MemoryTransactionalSpout(WORDS, Fields("word"), 2)


class TestColumns(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        rows = [(f"word-{n}", n) for n in range(25)]
        return MemoryTransactionalSpout({"a": rows, "b": rows[:3]}, Fields("word: string", "n: long"), 4)


class TestOnePartition(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        return MemoryTransactionalSpout(["cat", ["dog"], "cow"], Fields("word"), 1)


def plan(spout, begun=()):
    coordinator = spout.coordinator({}, PlainContext())
    previous = begun[-1] if begun else None
    coordinator.resume(len(begun), previous)
    made = []
    while not coordinator.is_exhausted():
        previous = json.loads(json.dumps(coordinator.initialize_transaction(len(begun) + len(made) + 1, previous)))
        made.append(previous)
    return made


def emitted(spout, metadata, task=0, tasks=1):
    collector = RecordingCollector(ATTEMPT, spout.output_fields)
    spout.emitter({}, PlainContext(this_task_index=task, tasks=tasks)).emit_batch(ATTEMPT, metadata, collector)
    return [values[1:] for values in collector.tuples]


def test_metadata_is_start_and_end_by_partition():
    """Each transaction takes the next rows of each partition; one at its end stays in."""
    spout = MemoryTransactionalSpout(WORDS, Fields("word"), 2)
    assert plan(spout) == [
        {"0": [0, 2], "1": [0, 2], "10": [0, 2]},
        {"0": [2, 4], "1": [2, 2], "10": [2, 3]},
        {"0": [4, 6], "1": [2, 2], "10": [3, 3]},
    ]


def test_the_attempt_leads_the_fields():
    """The spout's fields are given without the attempt, and declared with it."""
    assert MemoryTransactionalSpout(WORDS, Fields("word"), 2).output_fields == Fields("attempt", "word")


def test_tasks_take_partitions_in_turn():
    """Task i of n emits the i-th partition and every n-th after it, numbers sorted as numbers."""
    spout = MemoryTransactionalSpout(WORDS, Fields("word"), 1)
    metadata = {"0": [0, 1], "1": [1, 2], "10": [0, 1]}
    assert emitted(spout, metadata, 0, 2) == [("cat",), ("banana",)]
    assert emitted(spout, metadata, 1, 2) == [("dog",)]


def test_columns_are_slices_of_one_batch():
    """With types, a share is emitted as a slice of a record batch that is built once."""
    spout = MemoryTransactionalSpout([("a", 1), ("b", 2), ("c", 3)], Fields("word: string", "n: long"), 2)
    first, second = RecordingCollector(ATTEMPT), RecordingCollector(ATTEMPT)
    emitter = spout.emitter({}, PlainContext())
    emitter.emit_batch(ATTEMPT, {"0": [0, 2]}, first)
    emitter.emit_batch(ATTEMPT, {"0": [2, 3]}, second)
    assert second.tuples == [(ATTEMPT, "c", 3)]
    assert first.batches[0].column("n").buffers()[1].address == second.batches[0].column("n").buffers()[1].address


def test_rows_that_are_added_are_seen_by_the_next_run():
    """A run takes the rows there were when it began; the next one goes on with those that came."""
    data = {0: ["a"], 1: ["x", "y"]}
    spout = MemoryTransactionalSpout(data, Fields("word"), 5)
    begun = plan(spout)
    data[0].append("b")
    data[2] = ["new"]
    assert emitted(spout, plan(spout, begun)[0]) == [("b",), ("new",)]
    typed = {0: ["a"]}
    columns = MemoryTransactionalSpout(typed, Fields("word: string"), 5)
    begun = plan(columns)
    typed[0].append("b")
    assert emitted(columns, plan(columns, begun)[0]) == [("b",)]


def test_rows_that_are_taken_away_are_missed():
    """A partition that holds fewer rows than were taken is refused when the run starts."""
    begun = plan(MemoryTransactionalSpout({0: ["a", "b"], 1: ["c"]}, Fields("word"), 5))
    shorter = MemoryTransactionalSpout({0: ["a"], 1: ["c"]}, Fields("word"), 5)
    with pytest.raises(InputError, match="2 rows of partition '0' have been taken, but it has 1"):
        shorter.coordinator({}, PlainContext()).resume(1, begun[-1])
    gone = MemoryTransactionalSpout({0: ["a", "b"]}, Fields("word"), 5)
    with pytest.raises(InputError, match="partition '1'"):
        emitted(gone, begun[-1])


@pytest.mark.parametrize(
    ("data", "fields", "message"),
    [
        ({"p": [("a", 1), ("b",)]}, Fields("word", "n"), "row 1 of partition 'p' has 1 values"),
        ({"p": [("a", 1), "b"]}, Fields("word", "n"), "row 1 of partition 'p' is 'b'"),
        (
            {"p": [[1], ["x"]]},
            Fields("n: long"),
            "row 1 of partition 'p': 'x' does not fit field 'n' of type int64",
        ),
        ("cat", Fields("word"), "must be a list"),
    ],
)
def test_a_row_that_does_not_fit_is_named(data, fields, message):
    """Partition and row of what does not fit the fields are named when the spout is made."""
    with pytest.raises(FieldsError, match=message):
        MemoryTransactionalSpout(data, fields, 2)


def test_partitions_have_names_of_their_own():
    """Two partitions whose names are the same in metadata, or that have no simple name, are refused."""
    with pytest.raises(InputError, match="own number or string"):
        MemoryTransactionalSpout({1: ["a"], "1": ["b"]}, Fields("word"), 2)
    with pytest.raises(InputError, match="own number or string"):
        MemoryTransactionalSpout({(1, 2): ["a"]}, Fields("word"), 2)


def test_take_per_batch_is_at_least_one():
    """A transaction takes a row at least."""
    with pytest.raises(ConfigError, match="take_per_batch is 0"):
        MemoryTransactionalSpout(WORDS, Fields("word"), 0)


def test_a_pickled_spout_pickles_again():
    """A spout may go through several processes."""
    spout = MemoryTransactionalSpout(WORDS, Fields("word: string"), 2)
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(spout))))
    assert plan(copy) == plan(spout)
    assert emitted(copy, {"0": [0, 1]}) == [("cat",)]
