"""The adapter that makes a transactional spout of a partitioned one."""

import attrs
import pytest

from txtopo.api.components.partitioned import as_transactional, partition_key, partition_list, spout_as_written
from txtopo.api.components.spout import PartitionedCoordinator, PartitionedEmitter, PartitionedTransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.errors import UserCodeError
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.conformance.spout import PartitionedTransactionalSpoutConformance
from txtopo.testing.context import PlainContext


@attrs.define
class Log:
    """A source: a list for each partition, some of them behind one another in time."""

    partitions: dict


class LogSpout(PartitionedTransactionalSpout):
    output_fields = Fields("attempt", "word")

    def __init__(self, log, take=2, names=None):
        self.log = log
        self.take = take
        self.names = names

    def coordinator(self, config, context):
        return LogCoordinator(self)

    def emitter(self, config, context):
        return LogEmitter(self)


class LogCoordinator(PartitionedCoordinator):
    def __init__(self, spout):
        self.spout = spout
        self.metadata = {}

    def partitions(self):
        return self.spout.names if self.spout.names is not None else list(self.spout.log.partitions)

    def resume(self, txid, metadata):
        self.metadata = metadata

    def is_exhausted(self):
        ends = {partition_key(name): len(rows) for name, rows in self.spout.log.partitions.items()}
        return all(self.metadata.get(key, {"end": 0})["end"] == end for key, end in ends.items())


class LogEmitter(PartitionedEmitter):
    def __init__(self, spout):
        self.spout = spout
        self.closed = False

    def emit_new_batch(self, attempt, collector, partition, previous_metadata):
        start = previous_metadata["end"] if previous_metadata else 0
        end = min(start + self.spout.take, len(self.spout.log.partitions[partition]))
        if start == end:
            return None
        metadata = {"start": start, "end": end}
        self.emit_batch(attempt, collector, partition, metadata)
        return metadata

    def emit_batch(self, attempt, collector, partition, metadata):
        for word in self.spout.log.partitions[partition][metadata["start"] : metadata["end"]]:
            collector.emit((attempt, word))

    def close(self):
        self.closed = True


class TestAdapter(PartitionedTransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        return LogSpout(Log({"b": list("abcde"), "a": ["x"], 3: list("uvw")}))


def begin(spout, *txids, previous=None):
    coordinator = as_transactional(spout).coordinator({}, PlainContext())
    coordinator.resume(0, None)
    for txid in txids:
        previous = coordinator.initialize_transaction(txid, previous)
    return previous


def emitted(spout, metadata, task=0, tasks=1):
    attempt = TransactionAttempt(1, 7)
    collector = RecordingCollector(attempt)
    context = PlainContext(this_task_index=task, tasks=tasks)
    as_transactional(spout).emitter({}, context).emit_batch(attempt, metadata, collector)
    return [values[1] for values in collector.tuples]


def test_metadata_carries_partitions_without_a_share():
    """A partition that has nothing for a transaction keeps its place, and goes on from it when more comes."""
    log = Log({"a": ["x"], "b": list("abc")})
    spout = LogSpout(log)
    second = begin(spout, 1, 2)
    assert second == {
        "partitions": [["b", {"start": 2, "end": 3}]],
        "carried": [["a", {"start": 0, "end": 1}]],
    }
    log.partitions["a"].append("y")
    assert begin(spout, 3, previous=second)["partitions"] == [["a", {"start": 1, "end": 2}]]


def test_a_partition_that_is_not_offered_keeps_its_place():
    """A partition may go and come back."""
    spout = LogSpout(Log({"a": list("xyz"), "b": list("abc")}))
    first = begin(spout, 1)
    spout.names = ["a"]
    second = begin(spout, 2, previous=first)
    spout.names = ["a", "b"]
    assert begin(spout, 3, previous=second)["partitions"] == [["b", {"start": 2, "end": 3}]]


def test_tasks_take_partitions_in_turn():
    """Task i of n emits the i-th share and every n-th after it."""
    spout = LogSpout(Log({"a": ["x"], "b": ["y"], "c": ["z"]}))
    metadata = begin(spout, 1)
    assert emitted(spout, metadata, 0, 2) == ["x", "z"]
    assert emitted(spout, metadata, 1, 2) == ["y"]


def test_partitions_are_numbers_or_json():
    """A number of partitions means those from 0 on; a list means itself; anything else is named."""
    assert partition_list(3) == [0, 1, 2]
    assert partition_list([{"topic": "t", "n": 1}, ("t", 2)]) == [
        {"topic": "t", "n": 1},
        ["t", 2],
    ]
    assert partition_key({"b": 1, "a": "é"}) == '{"a":"\\u00e9","b":1}'
    with pytest.raises(UserCodeError, match="names partition 1 twice"):
        partition_list([1, 1])
    with pytest.raises(UserCodeError, match="a partition must be JSON"):
        partition_list([object()])


def test_metadata_that_is_not_json_is_named():
    """Metadata that could not be stored is refused before it is used, with its partition and transaction."""

    class Wrong(LogSpout):
        def emitter(self, config, context):
            emitter = LogEmitter(self)
            emitter.emit_new_batch = lambda attempt, collector, partition, previous: {1, 2}
            return emitter

    with pytest.raises(UserCodeError, match=r"txid 4.*the metadata of partition \"a\" must be JSON"):
        begin(Wrong(Log({"a": ["x"]})), 4)


def test_a_fork_has_the_fork_of_the_spout():
    """What a partitioned spout leaves out in a fork, it leaves out behind the adapter, too."""

    class Telling(LogSpout):
        def forked(self):
            return LogSpout(self.log)

    adapted = as_transactional(Telling(Log({})))
    assert type(spout_as_written(adapted.forked())) is LogSpout
    assert type(spout_as_written(adapted)) is Telling
