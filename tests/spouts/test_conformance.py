"""The conformance classes find what they are there for, and let good spouts pass."""

import pytest

from spouts.memory import MemoryTransactionalSpout
from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from tests.spark.ranges import Ranges
from txtopo.api.components.spout import Coordinator, DataFrameSpout, Emitter, TransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.testing.conformance.spout import (
    DataFrameSpoutConformance,
    OpaquePartitionedTransactionalSpoutConformance,
    TransactionalSpoutConformance,
    spread,
)

DATA = {0: list("abcdefgh"), 1: list("xyz")}


class Broken(MemoryTransactionalSpout):
    """A good spout whose parts a test replaces by bad ones."""

    def __init__(self, emit=None, begin=None):
        super().__init__(DATA, Fields("letter"), 2)
        self.emit = emit
        self.begin = begin

    def coordinator(self, config, context):
        coordinator = super().coordinator(config, context)
        if self.begin is not None:
            good = coordinator.initialize_transaction
            memory = []
            coordinator.initialize_transaction = lambda txid, previous: self.begin(good, memory, txid)
        return coordinator

    def emitter(self, config, context):
        emitter = super().emitter(config, context)
        if self.emit is not None:
            good = emitter.emit_batch
            emitter.emit_batch = lambda *arguments: self.emit(good, context, *arguments)
        return emitter


def more_at_later_attempts(good, context, attempt, metadata, collector):
    good(attempt, metadata, collector)
    if attempt.epoch > 1:
        collector.emit((attempt, "more"))


def the_whole_batch_in_each_task(good, context, attempt, metadata, collector):
    context.this_task_index, context.tasks = 0, 1
    MemoryTransactionalSpout(DATA, Fields("letter"), 2).emitter({}, context).emit_batch(attempt, metadata, collector)


def another_attempt(good, context, attempt, metadata, collector):
    collector.emit((TransactionAttempt(99, 1), "a"))


def on_from_what_it_remembers(good, memory, txid):
    memory.append(good(txid, memory[-1] if memory else None))
    return memory[-1]


@pytest.mark.parametrize(
    ("spout", "test"),
    [
        (Broken(more_at_later_attempts), "test_same_tuples_at_any_attempt_and_in_any_order"),
        (Broken(the_whole_batch_in_each_task), "test_the_shares_of_all_tasks_are_the_batch"),
        (Broken(another_attempt), "test_the_attempt_comes_first"),
        (Broken(begin=on_from_what_it_remembers), "test_resumption_loses_and_doubles_nothing"),
    ],
    ids=lambda value: value.removeprefix("test_") if isinstance(value, str) else "",
)
def test_a_spout_that_breaks_a_promise_is_found(spout, test):
    with pytest.raises(AssertionError):
        getattr(TransactionalSpoutConformance(), test)(spout)


def test_an_opaque_emitter_that_trusts_its_memory_is_found():
    """An emitter that begins where it ended, and not where the committed metadata does, fails."""

    class Remembers(OpaqueMemoryTransactionalSpout):
        def emitter(self, config, context):
            emitter = super().emitter(config, context)
            good, begun = emitter.emit_batch, {}

            def emit(attempt, collector, partition, previous):
                begun[partition] = good(attempt, collector, partition, begun.get(partition)) or begun[partition]
                return begun[partition]

            emitter.emit_batch = emit
            return emitter

    spout = Remembers(DATA, Fields("letter"), 2)
    with pytest.raises(AssertionError):
        OpaquePartitionedTransactionalSpoutConformance().test_replays_from_any_committed_transaction_lose_and_double_nothing(
            spout
        )


def test_spread_has_both_ends():
    """A few places of many are looked at, the first and the last among them."""
    assert spread(3) == [0, 1, 2]
    assert spread(100, at_most=4) == [0, 33, 66, 99]


class RangeSpout(DataFrameSpout):
    """Numbers that Spark makes itself."""

    output_fields = Fields("attempt", "n: long")

    def coordinator(self, config, context):
        return Ranges(10, 4)

    def read(self, spark, metadata):
        return spark.range(*metadata).toDF("n")


class TestDataFrames(DataFrameSpoutConformance):
    @pytest.fixture
    def spout(self):
        return RangeSpout()


class CountsForEver(TransactionalSpout):
    """Ten numbers a transaction, without an end; or as many as there are just now."""

    output_fields = Fields("attempt", "n")

    def __init__(self, ready: int | None = None) -> None:
        self.ready = ready

    def coordinator(self, config, context):
        return CountsForEverCoordinator(self.ready)

    def emitter(self, config, context):
        return CountsForEverEmitter(context)


class CountsForEverCoordinator(Coordinator):
    def __init__(self, ready):
        self.ready, self.begun = ready, 0

    def resume(self, txid, metadata):
        self.begun = txid

    def initialize_transaction(self, txid, previous_metadata):
        self.begun = txid
        return txid

    def is_ready(self):
        return self.ready is None or self.begun < self.ready


class CountsForEverEmitter(Emitter):
    def __init__(self, context):
        self.context = context

    def emit_batch(self, attempt, metadata, collector):
        tasks = len(self.context.component_tasks(self.context.this_component_id))
        for n in range(self.context.this_task_index, 10, tasks):
            collector.emit((attempt, 10 * metadata + n))


class TestEndless(TransactionalSpoutConformance):
    """A source that never ends is looked at by its first transactions."""

    is_endless = True

    @pytest.fixture(params=[None, 5], ids=["ready", "five ready"])
    def spout(self, request):
        return CountsForEver(request.param)


def test_an_endless_source_is_told_how_to_say_so():
    """The message names the remedy, whether the source goes on for ever or waits."""
    conformance = TransactionalSpoutConformance()
    with pytest.raises(AssertionError, match="set is_endless = True in the test class if it never ends"):
        conformance.test_metadata_is_json(CountsForEver())
    with pytest.raises(AssertionError, match=r"after 5 transactions .* is_exhausted\(\) .* set is_endless = True"):
        conformance.test_metadata_is_json(CountsForEver(5))
