"""The two cases that Storm's transactional_test.clj lists as "Testing TODO" and never got.

There the emitter kept its metadata for each partition in ZooKeeper; here the coordinator's metadata holds
it. The promises are the same.
"""

import pytest

from txtopo.api.components.partitioned import as_transactional
from txtopo.api.components.spout import PartitionedCoordinator, PartitionedEmitter, PartitionedTransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.context import PlainContext


class GrowingSource(PartitionedTransactionalSpout):
    """A source whose partitions and ends move all the time, as a broker's do."""

    output_fields = Fields("attempt", "partition", "offset")

    def __init__(self, partitions, end):
        self.number = partitions
        self.end = end

    def coordinator(self, config, context):
        source = self

        class Coordinator(PartitionedCoordinator):
            def partitions(self):
                return source.number

        return Coordinator()

    def emitter(self, config, context):
        return UpToTheEnd(self)


class UpToTheEnd(PartitionedEmitter):
    """Takes all there is now: asked again, it would decide otherwise."""

    def __init__(self, source):
        self.source = source

    def emit_new_batch(self, attempt, collector, partition, previous_metadata):
        return [previous_metadata[1] if previous_metadata else 0, self.source.end]

    def emit_batch(self, attempt, collector, partition, metadata):
        for offset in range(*metadata):
            collector.emit((attempt, partition, offset))


def emitted(spout, metadata, attempt, tasks):
    collector = RecordingCollector(attempt, spout.output_fields)
    for task in range(tasks):
        context = PlainContext(this_task_index=task, tasks=tasks)
        as_transactional(spout).emitter({}, context).emit_batch(attempt, metadata, collector)
    return sorted(values[1:] for values in collector.tuples)


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_repeats_its_metadata_for_a_replay(tasks):
    """Test that it repeats the meta for a partitioned state: a replay emits what the first attempt did."""
    source = GrowingSource(partitions=2, end=3)
    coordinator = as_transactional(source).coordinator({}, PlainContext())
    first = coordinator.initialize_transaction(1, None)
    before = emitted(source, first, TransactionAttempt(1, 1), tasks)
    source.end = 10
    second = coordinator.initialize_transaction(2, first)
    replayed = emitted(source, first, TransactionAttempt(1, 2), tasks)
    assert before == replayed == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert emitted(source, second, TransactionAttempt(2, 1), tasks)[0] == (0, 3)


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_emits_nothing_for_a_partition_in_a_transaction_older_than_one_it_has_seen(tasks):
    """Test that partitioned state emits nothing for the partition if it has seen a future transaction for it.

    1. Transaction 1 is begun while there is partition 0 only, and fails.
    2. Partition 1 appears; transaction 2 is begun, and emits from it.
    3. Transaction 1 is replayed: partition 1 has nothing in it, though there are rows in it now.
    """
    source = GrowingSource(partitions=1, end=2)
    coordinator = as_transactional(source).coordinator({}, PlainContext())
    first = coordinator.initialize_transaction(1, None)
    source.number = 2
    second = coordinator.initialize_transaction(2, first)
    assert (1, 0) in emitted(source, second, TransactionAttempt(2, 1), tasks)
    assert emitted(source, first, TransactionAttempt(1, 2), tasks) == [(0, 0), (0, 1)]
