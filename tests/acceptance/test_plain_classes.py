"""Spouts whose coordinators and emitters are plain classes, with no more methods than they need."""

import pathlib

import pytest
from pyspark.sql import SparkSession

from spouts import OpaquePartitionedTransactionalSpout, PartitionedTransactionalSpout, TransactionalSpout
from state import MemoryState
from tests.acceptance.topologies import Partial, counting
from tests.topologies import values_in
from txtopo import Config, Fields, TransactionalTopologyBuilder, run
from txtopo.testing.inline import run_inline

ROWS = {0: ["cat", "dog", "cat"], 1: ["zebra", "dog"]}


class Begins:
    """Begins transactions of two rows."""

    def __init__(self) -> None:
        self.end = 0

    def initialize_transaction(self, txid, previous_metadata):
        start = previous_metadata[1] if previous_metadata else 0
        self.end = start + 2
        return [start, self.end]

    def is_ready(self):
        return True

    def is_exhausted(self):
        return self.end >= 3


class Emits:
    def emit_batch(self, attempt, metadata, collector):
        for rows in ROWS.values():
            for word in rows[slice(*metadata)]:
                collector.emit((attempt, word))


class Plain(TransactionalSpout):
    output_fields = Fields("attempt", "word")

    def coordinator(self, config, context):
        return Begins()

    def emitter(self, config, context):
        return Emits()


class Partitions:
    """Knows two partitions; asked only a few times, for it cannot tell when they are at their end."""

    def __init__(self) -> None:
        self.asked = 0

    def partitions(self):
        self.asked += 1
        return 2

    def is_ready(self):
        return True

    def is_exhausted(self):
        return self.asked >= 3


class EmitsPartition:
    def emit_new_batch(self, attempt, collector, partition, previous_metadata):
        start = previous_metadata[1] if previous_metadata else 0
        metadata = [start, start + 1]
        self.emit_batch(attempt, collector, partition, metadata)
        return metadata

    def emit_batch(self, attempt, collector, partition, metadata):
        for word in ROWS[partition][slice(*metadata)]:
            collector.emit((attempt, word))


class EmitsOpaque:
    def emit_batch(self, attempt, collector, partition, previous_metadata):
        start = previous_metadata[1] if previous_metadata else 0
        for word in ROWS[partition][start : start + 1]:
            collector.emit((attempt, word))
        return [start, start + 1]


class Partitioned(PartitionedTransactionalSpout):
    output_fields = Fields("attempt", "word")

    def coordinator(self, config, context):
        return Partitions()

    def emitter(self, config, context):
        return EmitsPartition()


class Opaque(OpaquePartitionedTransactionalSpout):
    output_fields = Fields("attempt", "word")

    def coordinator(self, config, context):
        return Partitions()

    def emitter(self, config, context):
        return EmitsOpaque()


@pytest.mark.parametrize("spout", [Plain(), Partitioned(), Opaque()], ids=["transactional", "partitioned", "opaque"])
def test_plain_classes(spark: SparkSession, spout: object) -> None:
    """What a coordinator or emitter leaves out is as if it did nothing."""
    words = MemoryState(Fields("word"), Fields("n"))
    run(counting(spout, words, 2, spout_tasks=1))
    assert values_in(words) == {"cat": 2, "dog": 2, "zebra": 1}


class BadCleanup(Emits):
    def cleanup_before(self, txid):
        raise ValueError("no cleaning here")


class Uncleanable(Plain):
    def emitter(self, config, context):
        return BadCleanup()


def test_bug_in_cleanup(tmp_path: pathlib.Path) -> None:
    """A bug in an emitter's cleanup_before is told of as the spout's, not as lost Spark jobs."""
    from txtopo.errors import UserCodeError

    builder = TransactionalTopologyBuilder("plain", "spout", Uncleanable(), 1)
    builder.set_bolt("partial", Partial(), 2).shuffle_grouping("spout")
    with pytest.raises(UserCodeError, match="no cleaning here") as raised:
        run_inline(builder.build(), Config(max_spout_pending=1, state_dir=str(tmp_path)))
    assert raised.value.component == "spout"
