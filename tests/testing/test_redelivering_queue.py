"""A queue that takes open messages back when its reader is gone."""

import gc
import time
from collections.abc import Callable, Iterator

import pytest

from tests.waiting import DEADLINE_SECS
from txtopo import Fields, RichBolt, TopologyBuilder
from txtopo.testing import InlineCluster, QueueReader, QueueSpout, RedeliveringQueue


@pytest.fixture
def queue() -> Iterator[RedeliveringQueue]:
    """A queue of five messages."""
    with RedeliveringQueue(["a", "b", "c", "d", "e"]) as made:
        yield made


def taken(reader: QueueReader, wanted: Callable[[list[tuple[int, object]]], bool]) -> list[tuple[int, object]]:
    """Take messages until those that were taken are wanted."""
    messages: list[tuple[int, object]] = []
    end = time.monotonic() + DEADLINE_SECS
    while not wanted(messages):
        assert time.monotonic() < end, messages
        messages += reader.take(10)
    return messages


def test_each_message_is_with_one_reader(queue: RedeliveringQueue) -> None:
    """What one reader has open, another one is not given."""
    one, other = QueueReader(queue.address), QueueReader(queue.address)
    assert one.take(2) == [(0, "a"), (1, "b")]
    assert other.take(10) == [(2, "c"), (3, "d"), (4, "e")]
    assert one.take(10) == []
    one.close()
    other.close()


def test_open_messages_come_again(queue: RedeliveringQueue) -> None:
    """What a reader aborts, or has open when its connection ends, is offered again; what it confirmed is not."""
    one = QueueReader(queue.address)
    one.take(3)
    one.confirm(1)
    one.abort(2)
    assert one.take(1) == [(2, "c")]
    one.close()
    other = QueueReader(queue.address)
    assert sorted(taken(other, lambda messages: len(messages) == 4)) == [(0, "a"), (2, "c"), (3, "d"), (4, "e")]
    for number in (0, 2, 3, 4):
        other.confirm(number)
    queue.wait_until_empty(10)
    other.close()


def test_foreign_confirmation(queue: RedeliveringQueue) -> None:
    """A reader can confirm, or abort, only what it has open."""
    one, other = QueueReader(queue.address), QueueReader(queue.address)
    assert one.take(1) == [(0, "a")]
    other.confirm(0)
    other.abort(0)
    assert other.take(1) == [(1, "b")]
    assert queue.unconfirmed == 5
    with pytest.raises(TimeoutError, match="5 messages were not confirmed"):
        queue.wait_until_empty(0.0)
    one.close()
    other.close()


class Ack(RichBolt):
    """Acks every tuple."""

    def prepare(self, config, context, collector):
        self.collector = collector

    def execute(self, tuple):
        self.collector.ack(tuple)


@pytest.mark.slow
def test_spout() -> None:
    """A topology over a queue confirms every message, also if workers are killed."""
    with RedeliveringQueue([[number, str(number)] for number in range(500)]) as queue, InlineCluster() as cluster:
        builder = TopologyBuilder("queue")
        builder.set_spout("spout", QueueSpout(queue.address, Fields("number", "text")), 2)
        builder.set_bolt("ack", Ack(), 2).shuffle_grouping("spout")
        running = cluster.submit(builder.build())
        for worker in (0, 1, 0):
            running.kill_worker(worker)
        gc.collect()  # the connection of a spout that is killed in this process ends with the spout
        queue.wait_until_empty(10)
        running.wait()
        assert queue.deliveries >= 500
