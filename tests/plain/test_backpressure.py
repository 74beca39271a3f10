"""Backpressure: spouts pause, bolts never do, and what multiplies on its way goes to a file before memory is full."""

import pytest

from tests.plain.topologies import Alone
from txtopo import Fields, RichBolt, Spout, TopologyBuilder
from txtopo.plain.tasks.bolts import TURN_SECS

WATERMARK = 1 << 20
FAN_OUT = 10


class Endless(Spout):
    """Emits for ever, untracked: nothing but backpressure holds it."""

    output_fields = Fields("number", "turns")

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, config, context, collector):
        self.collector, self.next = collector, 0

    def next_tuple(self):
        if self.next < self.count:
            self.next += 1
            self.collector.emit((self.next, 0))

    def is_exhausted(self):
        return self.next == self.count


class Clock:
    """The time, which bolts take."""

    now = 0.0
    multiply_secs = 0.0


class Bolt(RichBolt):
    """Keeps the collector; subclass it."""

    output_fields = Fields("number", "turns")

    def prepare(self, config, context, collector):
        self.collector = collector


class Multiply(Bolt):
    """Emits ten tuples for each."""

    def execute(self, tuple):
        Clock.now += Clock.multiply_secs
        for _ in range(FAN_OUT if tuple["turns"] == 0 else 1):
            self.collector.emit((tuple["number"], tuple["turns"]), tuple)
        self.collector.ack(tuple)


class Again(Bolt):
    """Sends each tuple round once more: a cycle."""

    seen = 0

    def execute(self, tuple):
        Clock.now += TURN_SECS / 5
        type(self).seen += 1
        if tuple["turns"] == 0:
            self.collector.emit((tuple["number"], 1), tuple)
        self.collector.ack(tuple)


class Large(Endless):
    """Emits large values, which take time to make."""

    def next_tuple(self):
        if self.next < self.count:
            Clock.now += 0.002
            self.next += 1
            self.collector.emit(({"deep": [str(self.next % 10) * 100_000]}, 0))


class Enlarge(Bolt):
    """Emits a large value for each tuple."""

    def execute(self, tuple):
        Clock.now += 0.002
        self.collector.emit(([str(tuple["number"] % 10) * 100_000], 0), tuple)
        self.collector.ack(tuple)


class Sink(Bolt):
    """Takes whatever comes."""

    def execute(self, tuple):
        self.collector.ack(tuple)


def alone(builder: TopologyBuilder, workers: int = 1) -> Alone:
    """Return a topology that runs, with the clock of its bolts."""
    settings = {"topology.worker.watermark.bytes": WATERMARK}
    running = Alone(builder.build(), settings, workers, seed=1, clock=lambda: Clock.now)
    running.activate()
    return running


def waits_after_a_pass(workers: int, builder: TopologyBuilder, passes: int = 1) -> int:
    """Return how many bytes wait after some passes of the worker of the spout, or were sent by it."""
    running = alone(builder, workers)
    worker = running.workers[0]
    for _ in range(passes):
        worker.run_pass()
    waiting = worker.queued_bytes() + sum(len(frame) for frames in running.sent.values() for frame in frames)
    worker.close()
    return waiting


@pytest.mark.parametrize("workers", [1, 2])
def test_a_spout_ends_its_pass_before_memory_is_full(workers: int) -> None:
    """A spout of large values is called until more waits than the watermark, here or for another worker."""
    builder = TopologyBuilder("large")
    builder.set_spout("spout", Large(64))
    builder.set_bolt("sink", Sink()).shuffle_grouping("spout")
    assert WATERMARK < waits_after_a_pass(workers, builder) < 2 * WATERMARK


def test_a_bolt_ends_its_turn_before_memory_is_full() -> None:
    """A bolt that makes small values large has executed some of the tuples that wait; the others wait on."""
    builder = TopologyBuilder("large")
    builder.set_spout("spout", Endless(64))
    builder.set_bolt("sink", Sink()).shuffle_grouping("enlarge")  # has its turn before what it gets is emitted
    builder.set_bolt("enlarge", Enlarge()).shuffle_grouping("spout")
    assert WATERMARK < waits_after_a_pass(1, builder, passes=2) < 2 * WATERMARK


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Again.seen = 0


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    """A slow bolt behind a fan-out and in a cycle: memory stays below four times the watermark, and no tuple is lost."""
    builder = TopologyBuilder("backpressure")
    builder.set_spout("spout", Endless(3_000))
    multiply = builder.set_bolt("multiply", Multiply())
    multiply.shuffle_grouping("spout").shuffle_grouping("again")
    builder.set_bolt("again", Again()).shuffle_grouping("multiply")
    (worker,) = alone(builder).workers
    most_in_memory = most_in_files = 0
    is_throttled, was_throttled, passes = False, False, 0
    while not (worker.is_done() and worker.is_idle()):
        # At first one tuple in a turn, so that much is there already when it multiplies.
        Clock.multiply_secs = 0.0 if was_throttled else TURN_SECS
        worker.run_pass()
        waiting = worker.queued_bytes()
        is_throttled = waiting > (WATERMARK // 2 if is_throttled else WATERMARK)
        was_throttled |= is_throttled
        worker.set_throttled(is_throttled=is_throttled)
        most_in_memory = max(most_in_memory, sum(queue.memory_bytes() for queue in worker._queues.values()))
        most_in_files = max(most_in_files, sum(queue.file_bytes for queue in worker._queues.values()))
        passes += 1
        assert passes < 100_000
    assert was_throttled
    assert most_in_files > 0
    assert most_in_memory <= 4 * WATERMARK
    assert Again.seen == 3_000 * FAN_OUT * 2
    worker.close()
