"""Rows in memory, as an opaque spout with partitions that can be switched off."""

import pickle

import pytest

from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.errors import InputError
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.conformance.spout import OpaquePartitionedTransactionalSpoutConformance
from txtopo.testing.context import PlainContext

ATTEMPT = TransactionAttempt(1, 1)


@pytest.fixture
def spout():
    return OpaqueMemoryTransactionalSpout({0: ["cat", "dog", "cow"], "b": ["fox"]}, Fields("word"), 2)


class TestObjects(OpaquePartitionedTransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        return OpaqueMemoryTransactionalSpout({0: list("abcdefg"), "b": ["x"], 2: []}, Fields("word"), 2)


class TestColumns(OpaquePartitionedTransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        return OpaqueMemoryTransactionalSpout({0: list(range(20)), 1: list(range(3))}, Fields("n: int"), 3)


def test_a_switch_works_at_once_and_back(spout):
    """Partitions that are off are not offered, on a coordinator that runs already; they count as left."""
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(0, {})
    spout.set_disabled(0, True)
    assert coordinator.partitions() == ["b"]
    coordinator.resume(1, {'"b"': [0, 1]})
    assert not coordinator.is_ready()
    assert not coordinator.is_exhausted()
    spout.set_disabled(0, False)
    assert coordinator.partitions() == [0, "b"]
    assert coordinator.is_ready()
    coordinator.resume(3, {'"b"': [0, 1], "0": [2, 3]})
    assert coordinator.is_exhausted()


def test_a_rollback_makes_it_ready_again(spout):
    """What was processed and rolled back is left again."""
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(2, {'"b"': [0, 1], "0": [2, 3]})
    assert coordinator.is_exhausted()
    coordinator.resume(1, {"0": [0, 2]})
    assert coordinator.is_ready()


def test_an_unknown_partition_is_refused(spout):
    """A switch that would do nothing says so."""
    with pytest.raises(InputError, match="no partition 7; there are"):
        spout.set_disabled(7, True)


def test_rows_that_are_taken_away_are_missed(spout):
    """A partition that holds fewer rows than were taken is refused when the run starts."""
    with pytest.raises(InputError, match="9 rows of partition 0 have been taken, but it has 3"):
        spout.coordinator({}, PlainContext()).resume(4, {"0": [7, 9]})


def test_rows_that_come_during_a_run_are_the_next_runs():
    """Emitters stay with what the coordinator has read, in every copy that is made meanwhile."""
    data = {0: ["cat"]}
    spout = OpaqueMemoryTransactionalSpout(data, Fields("word"), 2)
    spout.coordinator({}, PlainContext())
    data[0].append("dog")
    copy = pickle.loads(pickle.dumps(spout))
    for one in (spout, copy):
        assert one.emitter({}, PlainContext()).emit_batch(ATTEMPT, RecordingCollector(ATTEMPT), 0, None) == [
            0,
            1,
        ]
    spout.coordinator({}, PlainContext())
    assert spout.emitter({}, PlainContext()).emit_batch(ATTEMPT, RecordingCollector(ATTEMPT), 0, [0, 1]) == [
        1,
        2,
    ]
