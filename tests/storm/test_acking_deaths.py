"""Workers die: what was under way fails, at once, and is processed in the end (DE1-DE4, S12-S14)."""

import random
from collections import Counter, deque

import pytest

from tests.storm.bolts import AckBolt, Acking, Aggregate, Fed, Identity
from tests.variants import variants
from txtopo import BasicBolt, Fields, Spout, TopologyBuilder
from txtopo.testing import AckFailMapTracker, FeederSpout, InlineCluster, InlineTopology
from txtopo.testing.feeders import Shared


class Holds(AckBolt, Shared):
    """Holds every tuple until it is told to let go."""

    def __init__(self):
        Shared.__init__(self)
        self.is_holding = True

    def execute(self, tuple):
        if not self.is_holding:
            self.collector.ack(tuple)


class LetsGoLater(Holds):
    """Passes the tuple that it holds on at a tick, once it may."""

    output_fields = Fields("num")

    def execute(self, tuple):
        if tuple.source_component != "__system":
            self.held.append(tuple)
            return
        self.collector.ack(tuple)
        if self.held and not self.is_holding:
            held = self.held.pop()
            self.collector.emit([held[0]], anchors=[held])
            self.collector.ack(held)


class Replays(FeederSpout):
    """Emits what failed again."""

    def fail(self, message_id):
        super().fail(message_id)
        self.feed_no_wait([message_id], message_id)


def test_a_bolts_worker_dies():
    """DE1, S12: what the worker's bolt had in its hands fails at once, is emitted again, and acked then."""
    bolt = Holds()
    with InlineCluster(workers=2) as cluster:
        fed = Fed(cluster, bolt, spout=Replays)
        before = cluster.now()
        fed.feed(*range(20))
        fed.running.tracked_wait(20)
        bolt.is_holding = False
        fed.running.kill_worker(1)
        fed.failed(*range(20))
        fed.acked(*range(20))
        assert cluster.now() == before
        once_each = dict.fromkeys(range(20), 1)
        assert fed.told(20) == (once_each, once_each)
        assert [status.pending + status.tracked for status in fed.running.statuses()] == [0, 0]


def test_a_worker_without_these_tuples_dies():
    """Roots that have not touched the worker that died go on."""
    with InlineCluster(workers=3) as cluster:
        fed = Fed(cluster, Holds())
        fed.feed(1)
        fed.running.tracked_wait(1)
        fed.running.kill_worker(2)
        cluster.advance_time(1)
        assert (fed.tracker.acked, fed.tracker.failed) == ({}, {})
        fed.running.kill_worker(1)
        fed.failed(1)


def test_a_worker_that_starts_while_inactive_finishes_what_is_under_way():
    """Bolts of a successor are prepared for the tuples of trees that were begun before."""
    holds = LetsGoLater()
    with InlineCluster(workers=3) as cluster:
        fed = Fed(cluster, holds, AckBolt(), config={"topology.tick.tuple.freq.secs": 1})
        fed.feed(1)
        fed.running.wait_for(lambda: bool(holds.held), "the tuple is held")
        fed.running.deactivate()
        fed.running.kill_worker(2)
        holds.is_holding = False
        cluster.advance_time(3)
        fed.acked(1)


def test_an_ackers_worker_dies():
    """DE2, S13: roots of the acker that died are nobody's any more, as its spout died with it; others are acked."""
    trackers = [AckFailMapTracker(), AckFailMapTracker()]
    feeders = [FeederSpout(Fields("num"), tracker) for tracker in trackers]
    bolts = [Holds(), Holds()]
    builder = TopologyBuilder("dies")
    for name, feeder in zip("ab", feeders, strict=True):
        builder.set_spout(f"spout {name}", feeder)
    for name, bolt in zip("ab", bolts, strict=True):
        builder.set_bolt(f"bolt {name}", bolt).shuffle_grouping(f"spout {name}")
    with InlineCluster(workers=2) as cluster:  # a is in the first, b in the second
        running = cluster.submit(builder.build(), {"topology.message.timeout.secs": 10})
        for feeder in feeders:
            feeder.feed(["before"], "before")
        running.tracked_wait(2)
        running.kill_worker(1)
        for bolt, feeder in zip(bolts, feeders, strict=True):
            bolt.is_holding = False
            feeder.feed(["after"], "after")
        running.tracked_wait(2)
        assert [tracker.acked for tracker in trackers] == [{"after": 1}] * 2
        assert not trackers[0].failed
        cluster.advance_time(11)
        assert [tracker.failed for tracker in trackers] == [{"before": 1}, {}]
        cluster.advance_time(50)
        assert sum(status.tracked for status in running.statuses()) == 0


def test_a_spouts_worker_dies():
    """DE3, S14: the spout's successor hears nothing of what was emitted before, even if it is processed later."""
    with InlineCluster(workers=2) as cluster:
        fed = Fed(cluster, Aggregate(2), config={"topology.message.timeout.secs": 10})
        fed.feed("old")
        fed.running.tracked_wait(1)
        fed.running.kill_worker(0)
        fed.feed("new")  # the bolt acks both now
        fed.running.tracked_wait(1)
        fed.acked("new")
        cluster.advance_time(60)
        assert (fed.tracker.acked, fed.tracker.failed) == ({"new": 1}, {})
        assert sum(status.tracked for status in fed.running.statuses()) == 0


def test_counts_of_the_dead():
    """What tasks counted before their worker died is not forgotten."""
    with InlineCluster(workers=2) as cluster:
        fed = Fed(cluster, AckBolt())
        for number in range(3):
            fed.feed(number)
            fed.running.tracked_wait(1)
            for worker in (0, 1):
                fed.running.kill_worker(worker)
        counts = fed.running.statistics()
    assert (counts["0"].acked, counts["1"].executed) == (3, 3)


class Queue(Shared):
    """A source that takes messages back when the task that they were given to begins anew."""

    def __init__(self, messages, tasks):
        Shared.__init__(self)
        self.waiting = deque(messages)
        self.given = {task: set() for task in range(tasks)}
        self.acked = Counter()
        self.delivered = Counter()
        self.leaves = Counter()
        """Per message and part, how often the last bolt saw it."""
        self.too_early = []

    def begin(self, task):
        self.waiting.extend(sorted(self.given[task]))
        self.given[task].clear()

    def give(self, task):
        message = self.waiting.popleft()
        self.given[task].add(message)
        self.delivered[message] += 1
        return message

    def is_over(self):
        return not self.waiting and not any(self.given.values())


class QueueSpout(Spout):
    output_fields = Fields("message")

    def __init__(self, queue):
        self.queue = queue

    def open(self, config, context, collector):
        self.collector, self.task = collector, context.this_task_index
        self.queue.begin(self.task)

    def next_tuple(self):
        if self.queue.waiting:
            message = self.queue.give(self.task)
            self.collector.emit([message], message_id=message)

    def ack(self, message_id):
        self.queue.given[self.task].remove(message_id)
        self.queue.acked[message_id] += 1
        if not all(self.queue.leaves[message_id, part] for part in range(3)):
            self.queue.too_early.append(message_id)

    def fail(self, message_id):
        self.queue.given[self.task].remove(message_id)
        self.queue.waiting.append(message_id)

    def is_exhausted(self):
        return self.queue.is_over()


class InThree(BasicBolt):
    output_fields = Fields("message", "part")

    def execute(self, tuple, collector):
        for part in range(3):
            collector.emit([tuple["message"], part])


class Pairs(Acking):
    """Holds tuples of any roots and lets two of them go as one, anchored to both; or one alone, if it comes last."""

    output_fields = Fields("pairs")

    def execute(self, tuple):
        self.held.append(tuple)
        if len(self.held) == 2 or tuple["part"] == 2:
            self.collector.emit([[(each["message"], each["part"]) for each in self.held]], self.held)
            for each in self.held:
                self.collector.ack(each)
            self.held = []


class Leaf(BasicBolt):
    def __init__(self, queue):
        self.queue = queue

    def execute(self, tuple, collector):
        self.queue.leaves.update(tuple["pairs"])


def passes(running: InlineTopology, most: int) -> None:
    for _ in range(most):
        if not running.run_pass():
            return


@pytest.mark.slow
@pytest.mark.parametrize("seed", variants(1, slow=[0, 2]))
def test_everything_dies_again_and_again(seed):
    """DE4: 300 kills at random: every message is acked, none before its tree was done, and nothing is left over.

    No time passes, so nothing times out: each root that a dead worker touched fails by its death.
    """
    print(f"seed {seed}")
    rng = random.Random(seed)
    queue = Queue(range(600), tasks=3)
    builder = TopologyBuilder("dies")
    builder.set_spout("spout", QueueSpout(queue), 3)
    builder.set_bolt("split", InThree(), 3).shuffle_grouping("spout")
    builder.set_bolt("same", Identity3(), 2).fields_grouping("split", Fields("message"))
    builder.set_bolt("pairs", Pairs(), 2).fields_grouping("same", Fields("message"))
    builder.set_bolt("leaf", Leaf(queue), 2).local_or_shuffle_grouping("pairs")
    workers = rng.randint(2, 4)
    cluster = InlineCluster(workers, seed=seed)  # its thread is not started: the test calls the workers itself
    running = cluster.submit(builder.build(), {"topology.max.spout.pending": 5})
    kills = 0
    while kills < 300:
        passes(running, rng.choice([0, 1, 1, 2, 3, 5]))
        running.kill_worker(rng.randrange(workers))
        kills += 1
        if len(queue.acked) > 500 and kills < 250:
            queue.waiting.extend(range(1000 + kills * 10, 1010 + kills * 10))
    passes(running, 100_000)
    assert running.is_done
    assert queue.is_over()
    assert set(queue.acked) == set(queue.delivered) >= set(range(600))
    assert queue.delivered.total() > len(queue.acked)
    assert queue.too_early == []
    assert running.errors == []
    for _ in range(4):
        cluster.advance_time(30)
    assert sum(status.tracked + status.pending for status in running.statuses()) == 0
    running.stop()


class Identity3(Identity):
    output_fields = Fields("message", "part")
