"""Backpressure: spouts pause, bolts never do, and what multiplies on its way goes to a file before memory is full."""

from __future__ import annotations

import copy
import random

import pytest

from txtopo import Fields, RichBolt, Spout, TopologyBuilder
from txtopo.acking.assignment import assign
from txtopo.acking.worker import Worker
from txtopo.config import Config, TopologyKind

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


class Multiply(RichBolt):
    """Emits ten tuples for each."""

    output_fields = Fields("number", "turns")

    def prepare(self, config, context, collector):
        self.collector = collector

    def execute(self, tuple):
        for _ in range(FAN_OUT if tuple["turns"] == 0 else 1):
            self.collector.emit((tuple["number"], tuple["turns"]), tuple)
        self.collector.ack(tuple)


class Again(RichBolt):
    """Sends each tuple round once more: a cycle."""

    output_fields = Fields("number", "turns")
    seen = 0

    def prepare(self, config, context, collector):
        self.collector = collector

    def execute(self, tuple):
        type(self).seen += 1
        if tuple["turns"] == 0:
            self.collector.emit((tuple["number"], 1), tuple)
        self.collector.ack(tuple)


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Again.seen = 0


def test_memory_is_bounded() -> None:
    """A slow bolt behind a fan-out and in a cycle: memory stays below four times the watermark, and no tuple is lost."""
    builder = TopologyBuilder("backpressure")
    builder.set_spout("spout", Endless(3_000))
    multiply = builder.set_bolt("multiply", Multiply())
    multiply.shuffle_grouping("spout").shuffle_grouping("again")
    builder.set_bolt("again", Again()).shuffle_grouping("multiply")
    plan = builder.build().plan
    config = Config({"topology.worker.watermark.bytes": WATERMARK}).of_kind(TopologyKind.PLAIN)
    now = 0.0
    worker = Worker(
        plan,
        assign(plan, 1, None),
        0,
        config,
        {0: 0},
        make_object=lambda component: copy.copy(plan.by_id[component].component),
        send=lambda _worker, _frame: None,
        clock=lambda: now,
        rng=random.Random(1),
    )
    worker.set_active(is_active=True)
    slow = next(bolt for bolt in worker._bolts if bolt.component.id == "again")
    fanning = next(bolt for bolt in worker._bolts if bolt.component.id == "multiply")
    most_in_memory = most_in_files = 0
    is_throttled, was_throttled, passes = False, False, 0
    while not (worker.is_done() and worker.is_idle()):
        slow._at_once = 5  # a hundredth of what the others execute in a pass
        fanning._at_once = 512 if was_throttled else 1  # so that much is there already, and multiplies
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
