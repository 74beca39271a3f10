"""Storm's tests of guaranteed message processing, and those that it never had, on the public API.

Storm's are those of integration_test.clj and TopologyIntegrationTest: T-TIMEOUT, T-NOTIMEOUT, T-RESET, T-ACK1 to T-ACK3.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.storm.bolts import AckBolt, AckEveryOther, Acking, Aggregate, Branch, Identity, WordCounter, chain
from txtopo import (
    BasicBolt,
    FailedException,
    Fields,
    ReportedFailedException,
    Spout,
    SpoutWaitStrategy,
    TopologyBuilder,
)
from txtopo.errors import UserCodeError
from txtopo.plain.tasks.metrics import Counts
from txtopo.testing import (
    AckFailMapTracker,
    AckTracker,
    FeederSpout,
    InlineCluster,
    InlineTopology,
    complete_topology,
)
from txtopo.testing.feeders import Shared

T = {"topology.message.timeout.secs": 10}


@pytest.fixture(params=[1, 2, 4], ids=lambda workers: f"{workers} workers")
def cluster(request: pytest.FixtureRequest) -> Iterator[InlineCluster]:
    """Clusters of as many workers as Storm's tests have, and of one."""
    with InlineCluster(workers=request.param) as running:
        yield running


def fed(tracker: AckTracker | AckFailMapTracker, *fields: str) -> FeederSpout:
    return FeederSpout(Fields(*(fields or ("num",))), tracker)


def told(running: InlineTopology, tracker: AckFailMapTracker) -> tuple[dict, dict]:
    running.tracked_wait(0)
    return dict(tracker.acked), dict(tracker.failed)


@pytest.mark.parametrize("later", [12, 20])
def test_timeout(cluster, later):
    """T-TIMEOUT, T-METR3, S2: what is never acked fails after its timeout and not before: in the spout, not the bolt."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder, AckEveryOther()), T)
    for message_id in (1, 2, 3):
        feeder.feed(["a"], message_id)
    cluster.advance_time(9)
    tracker.assert_acked(1, 3)
    assert not tracker.is_failed(2)
    cluster.advance_time(later)
    tracker.assert_failed(2)
    assert told(running, tracker) == ({1: 1, 3: 1}, {2: 1})
    counts = running.statistics()
    assert counts["0"] == Counts({"default": 3}, 3, acked=2, failed=1)
    assert counts["1"] == Counts(executed=3, acked=2)


def test_timeout_is_exact(cluster):
    """S2, W1: a timeout comes in [T, T + 1 s] after the emission, not in [T, 2T] as in Storm."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    cluster.submit(chain(feeder, Aggregate(99)), T)
    cluster.advance_time(3.3)
    feeder.feed(["a"], 1)
    cluster.advance_time(9.9)
    assert not tracker.is_failed(1)
    cluster.advance_time(1.1)
    tracker.assert_failed(1)


def test_no_timeouts(cluster):
    """T-NOTIMEOUT, T-METR2: with timeouts disabled, what is never acked is emitted and executed, and no more."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder, AckEveryOther()), {**T, "topology.enable.message.timeouts": False})
    for message_id in (1, 2, 3):
        feeder.feed(["a"], message_id)
    cluster.advance_time(9)
    tracker.assert_acked(1, 3)
    cluster.advance_time(20)
    assert told(running, tracker) == ({1: 1, 3: 1}, {})
    counts = running.statistics()
    assert counts["0"] == Counts({"default": 3}, 3, acked=2)
    assert counts["1"] == Counts(executed=3, acked=2)


class ResetsFirst(Acking):
    """Holds the first tuple and resets its timeout at the second to fourth; acks it at the fifth; never the second."""

    def prepare(self, config, context, collector):
        super().prepare(config, context, collector)
        self.count = 0

    def execute(self, tuple):
        self.count += 1
        if self.count == 1:
            self.first = tuple
            return
        if self.count == 5:
            self.collector.ack(self.first)
        else:
            self.collector.reset_timeout(self.first)
        if self.count != 2:
            self.collector.ack(tuple)


def test_reset_timeout(cluster):
    """T-RESET: a root whose timeout is reset in time does not fail, however long it takes."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder, ResetsFirst()), T)
    feeder.feed(["a"], 1)
    feeder.feed(["b"], 2)
    cluster.advance_time(9)
    feeder.feed(["c"], 3)
    tracker.assert_acked(3)
    cluster.advance_time(9)
    feeder.feed(["d"], 4)
    tracker.assert_acked(4)
    cluster.advance_time(2)
    tracker.assert_failed(2)
    feeder.feed(["e"], 5)
    tracker.assert_acked(5, 1)
    assert told(running, tracker) == ({1: 1, 3: 1, 4: 1, 5: 1}, {2: 1})


def test_acking(cluster):
    """T-ACK1, S6: trees of three spouts that branch, meet in a join and branch again."""
    trackers = [AckTracker() for _ in range(3)]
    feeders = [fed(tracker) for tracker in trackers]
    builder = TopologyBuilder("acking")
    for number, feeder in enumerate(feeders, start=1):
        builder.set_spout(str(number), feeder)
    builder.set_bolt("4", Branch(2)).shuffle_grouping("1")
    builder.set_bolt("5", Branch(4)).shuffle_grouping("2")
    builder.set_bolt("6", Branch(1)).shuffle_grouping("3")
    builder.set_bolt("7", Aggregate(3)).shuffle_grouping("4").shuffle_grouping("5").shuffle_grouping("6")
    builder.set_bolt("8", Branch(2)).shuffle_grouping("7")
    builder.set_bolt("9", AckBolt()).shuffle_grouping("8")
    running = cluster.submit(builder.build())
    for number, acked in [
        (1, {1: 0}),
        (2, {1: 1, 2: 1}),
        (1, {1: 0}),
        (1, {1: 1}),
        (3, {1: 0, 3: 0}),
        (2, {1: 1, 2: 1, 3: 1}),
    ]:
        feeders[number - 1].feed([1])
        running.tracked_wait(1)
        for checked, count in acked.items():
            trackers[checked - 1].check(count)


def test_ack_branching(cluster):
    """T-ACK2, S3: a diamond over two roots: neither is acked before the join has all four tuples."""
    tracker = AckTracker()
    feeder = fed(tracker)
    builder = TopologyBuilder("diamond")
    builder.set_spout("1", feeder)
    builder.set_bolt("2", Identity()).shuffle_grouping("1")
    builder.set_bolt("3", Identity()).shuffle_grouping("1")
    builder.set_bolt("4", Aggregate(4)).shuffle_grouping("2").shuffle_grouping("3")
    running = cluster.submit(builder.build())
    for acked in (0, 2):
        feeder.feed([1])
        running.tracked_wait(1)
        tracker.check(acked)


class DoubleAnchor(Acking):
    output_fields = Fields("val")

    def execute(self, tuple):
        self.collector.emit([1], [tuple, tuple])
        self.collector.ack(tuple)


def test_self_anchor(cluster):
    """T-ACK3: a tuple anchored twice to the same one is acked like any other."""
    tracker = AckTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder, DoubleAnchor(), AckBolt()))
    feeder.feed([1])
    running.tracked_wait(1)
    tracker.check(1)
    for _ in range(3):
        feeder.feed([1])
    running.tracked_wait(3)
    tracker.check(3)


class Fails(Acking):
    def execute(self, tuple):
        self.collector.fail(tuple)


def test_failure_is_quick(cluster):
    """S4: a tuple that is failed fails its root at once, without any time passing."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder, Identity(), Fails()))
    before = cluster.now()
    feeder.feed([1], "one")
    tracker.assert_failed("one")
    assert cluster.now() == before
    assert told(running, tracker) == ({}, {"one": 1})


class Unanchored(Acking):
    output_fields = Fields("val")

    def execute(self, tuple):
        self.collector.emit(tuple.values)
        self.collector.ack(tuple)


def test_unanchored(cluster):
    """S5, S16: a tuple that is anchored to nothing may fail below: the root is acked all the same."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder, Unanchored(), Fails()))
    feeder.feed([1], "one")
    tracker.assert_acked("one")
    running.tracked_wait(1)
    assert running.statistics()["2"].failed == 1
    assert told(running, tracker) == ({"one": 1}, {})


def test_failure_of_a_join(cluster):
    """S6: a tuple anchored to two roots of two spouts fails both, each once, and no third one."""
    trackers = [AckFailMapTracker(), AckFailMapTracker()]
    feeders = [fed(tracker) for tracker in trackers]
    builder = TopologyBuilder("join")
    builder.set_spout("left", feeders[0])
    builder.set_spout("right", feeders[1])
    builder.set_bolt("join", Aggregate(2)).global_grouping("left").global_grouping("right")
    builder.set_bolt("fails", Fails()).shuffle_grouping("join")
    running = cluster.submit(builder.build())
    feeders[0].feed([1], "left 1")
    feeders[1].feed([1], "right 1")
    running.tracked_wait(2)
    feeders[1].feed([1], "right 2")
    running.tracked_wait(1)
    assert told(running, trackers[0]) == ({}, {"left 1": 1})
    assert told(running, trackers[1]) == ({}, {"right 1": 1})


class SplitByHand(Acking):
    output_fields = Fields("word")

    def execute(self, tuple):
        for word in tuple["sentence"].split():
            self.collector.emit([word], tuple)
        self.collector.ack(tuple)


class Split(BasicBolt):
    output_fields = Fields("word")

    def execute(self, tuple, collector):
        for word in tuple["sentence"].split():
            collector.emit([word])


class Sentences(Spout):
    output_fields = Fields("sentence")

    def next_tuple(self):
        raise AssertionError("mocked")


def test_basic_bolts_are_rich_bolts_without_the_writing():
    """S7: a basic bolt emits and acks as one that anchors and acks by hand."""
    found = []
    for split in (SplitByHand(), Split()):
        builder = TopologyBuilder("words")
        builder.set_spout("sentences", Sentences(), 2)
        builder.set_bolt("split", split, 3).shuffle_grouping("sentences")
        builder.set_bolt("count", WordCounter(), 2).fields_grouping("split", Fields("word"))
        done = complete_topology(builder.build(), {"sentences": [["a b a"], ["b"], [""], ["c a"]]})
        counts = {name: done.statistics[name] for name in ("sentences", "split", "count")}
        found.append((Counter(done.tuples("split")), Counter(done.tuples("count")), counts))
    assert found[0] == found[1]
    assert found[0][2]["sentences"].acked == 4


class Picky(BasicBolt):
    """Fails what it is told to, in the way it is told."""

    output_fields = Fields("val")

    def execute(self, tuple, collector):
        collector.emit(tuple.values)
        if tuple[0] == "failed":
            raise FailedException("no")
        if tuple[0] == "reported":
            raise ReportedFailedException("no, and everybody shall know")
        if tuple[0] == "broken":
            raise ZeroDivisionError("nothing by nothing")
        if tuple[0] == "exits":
            sys.exit("nothing by nothing")


def test_failed_exceptions(cluster):
    """BB1, BB2, BB3: FailedException fails the tuple, ReportedFailedException reports it too; the bolt goes on."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder, Picky(), AckBolt()))
    for word in ("fine", "failed", "reported", "fine too"):
        feeder.feed([word], word)
    running.tracked_wait(4)
    assert told(running, tracker) == ({"fine": 1, "fine too": 1}, {"failed": 1, "reported": 1})
    assert sum(status.reported_errors for status in running.statuses()) == 1
    assert "everybody shall know" in "".join(status.last_error for status in running.statuses())
    assert running.errors == []


@pytest.mark.parametrize(("word", "name"), [("broken", "ZeroDivisionError"), ("exits", "SystemExit")])
def test_other_exceptions(word, name):
    """BB4: another exception, or an exit, ends its worker and names the component; a fresh bolt takes the next tuple."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    with InlineCluster(workers=2) as cluster:
        running = cluster.submit(chain(feeder, Picky()))  # the bolt is in the second worker, the spout in the first
        feeder.feed([word], 1)
        tracker.assert_failed(1)
        feeder.feed(["fine"], 2)
        tracker.assert_acked(2)
        (error,) = running.errors
    assert isinstance(error, UserCodeError)
    assert (error.component, f"{name}: nothing by nothing" in str(error)) == ("1", True)
    assert "execute" in str(error.cause)


def test_too_many_exceptions():
    """A topology whose workers die too often gives up, and says what they died of."""
    feeder = fed(AckTracker())
    with InlineCluster(workers=2) as cluster:
        running = cluster.submit(chain(feeder, Picky()), {"topology.worker.max.restarts": 2})
        for _ in range(3):
            feeder.feed(["broken"])
        with pytest.raises(UserCodeError, match="nothing by nothing"):
            running.wait()
        assert len(running.errors) == 3


def test_exceptions_from_time_to_time():
    """Restarts count within their period only: a worker that dies once a minute is started for ever."""
    feeder = fed(tracker := AckFailMapTracker())
    settings = {"topology.worker.max.restarts": 1, "topology.worker.restart.period.secs": 60}
    with InlineCluster(workers=2) as cluster:
        running = cluster.submit(chain(feeder, Picky()), settings)
        for number in range(5):
            feeder.feed(["broken"], number)
            tracker.assert_failed(number)
            cluster.advance_time(61)
        feeder.feed(["fine"], "fine")
        tracker.assert_acked("fine")
        assert len(running.errors) == 5


class BreaksAgain(Picky):
    """Can't be prepared a second time."""

    prepared = 0

    def prepare(self, config, context):
        BreaksAgain.prepared += 1
        if BreaksAgain.prepared > 1:
            raise LookupError("no second time")


def test_a_bolt_that_cannot_be_prepared_again():
    """What a restarted worker's prepare raises counts as a death, too; the topology gives up and says so."""
    feeder = fed(AckTracker())
    with InlineCluster(workers=2) as cluster:
        running = cluster.submit(chain(feeder, BreaksAgain()))
        feeder.feed(["broken"])
        with pytest.raises(UserCodeError, match="LookupError: no second time"):
            running.wait()
        assert len(running.errors) == 11


def test_a_bolt_that_cannot_be_prepared_at_all():
    """What prepare raises is raised by submit, and the cluster goes on with others."""
    tracker = AckFailMapTracker()
    with InlineCluster() as cluster:
        with pytest.raises(UserCodeError, match="LookupError: not even once"):
            cluster.submit(chain(fed(tracker), Unprepared()))
        feeder = fed(tracker)
        cluster.submit(chain(feeder, AckBolt()))
        feeder.feed([1], 1)
        tracker.assert_acked(1)


class Unprepared(AckBolt):
    def prepare(self, config, context, collector):
        raise LookupError("not even once")


def test_without_ackers(cluster):
    """SP6, S16: with 0 ackers everything is acked before emit returns, in order; a failure concerns nobody."""
    spout = Emits(range(5))
    running = cluster.submit(chain(spout, Fails()), {"topology.ackers": 0})
    running.tracked_wait(5)
    assert spout.log.entries == [entry for each in range(5) for entry in (("ack", each), ("emitted", each))]
    assert "__acker" not in running.statistics()


class Log(Shared):
    def __init__(self):
        super().__init__()
        self.entries = []


class Emits(Spout):
    """Emits its messages, and puts down what it is told and when emit returned."""

    output_fields = Fields("num")

    def __init__(self, messages, *, fails_again=False):
        self.messages = list(messages)
        self.fails_again = fails_again
        self.log = Log()

    def open(self, config, context, collector):
        self.collector = collector

    def next_tuple(self):
        if self.messages:
            message = self.messages.pop(0)
            self.collector.emit([message], message_id=message)
            self.log.entries.append(("emitted", message))

    def ack(self, message_id):
        self.log.entries.append(("ack", message_id))

    def fail(self, message_id):
        self.log.entries.append(("fail", message_id))
        if self.fails_again:
            self.collector.emit([message_id], message_id=message_id)

    def is_exhausted(self):
        return not self.messages


def test_without_message_id(cluster):
    """SP1, SP7, S16, W8: a tuple without a message id is neither acked nor failed, nor held back by a limit."""
    spout = Emits([None, None, None])
    running = cluster.submit(chain(spout, AckEveryOther()), {**T, "topology.max.spout.pending": 1})
    running.tracked_wait(3)
    cluster.advance_time(30)
    assert spout.log.entries == [("emitted", None)] * 3
    assert running.statistics()["__acker"].executed == 0


def test_max_spout_pending(cluster):
    """SP1: no more roots are pending than allowed; an ack makes room for the next."""
    spout = Emits(range(5))
    running = cluster.submit(chain(spout, AckEveryOther()), {**T, "topology.max.spout.pending": 2})

    def emitted() -> int:
        return sum(what == "emitted" for what, _ in spout.log.entries)

    running.tracked_wait(3)  # 0 is acked, 1 stays, 2 is acked, 3 stays
    running.wait_for(lambda: emitted() == 4, "fourth emission")
    cluster.advance_time(9)
    assert emitted() == 4
    cluster.advance_time(2)
    assert emitted() == 5
    running.wait_for(lambda: ("ack", 4) in spout.log.entries, "last ack")
    assert [entry for entry in spout.log.entries if entry[0] == "fail"] == [("fail", 1), ("fail", 3)]


@pytest.mark.parametrize("tasks", [1, 5])
def test_timeouts_of_many_tasks(tasks):
    """SE-1, SP2, W2: a spout of several tasks in one executor has neither an earlier timeout nor a lower limit."""
    builder = TopologyBuilder("tasks")
    spout = Emits(range(4))
    builder.set_spout("spout", spout, 1).set_num_tasks(tasks)
    builder.set_bolt("bolt", Aggregate(99)).shuffle_grouping("spout")
    with InlineCluster(workers=2) as cluster:
        running = cluster.submit(builder.build(), {**T, "topology.max.spout.pending": 3})
        running.tracked_wait(3 * tasks)
        cluster.advance_time(9.5)
        assert Counter(what for what, _ in spout.log.entries) == {"emitted": 3 * tasks}
        cluster.advance_time(1)
        failed = Counter(what for what, _ in spout.log.entries)["fail"]
        assert failed == 3 * tasks


def test_inactive(cluster):
    """SP3: a spout that is not active emits nothing, and learns of acks and timeouts all the same."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder, AckEveryOther()), T)
    feeder.feed([1], 1)
    feeder.feed([2], 2)
    running.deactivate()
    feeder.feed_no_wait([3], 3)
    cluster.advance_time(11)
    assert told(running, tracker) == ({1: 1}, {2: 1})
    running.activate()
    tracker.assert_acked(3)


class Counting(SpoutWaitStrategy, Shared):
    def __init__(self):
        Shared.__init__(self)
        self.streaks = []

    def empty_emit(self, streak):
        self.streaks.append(streak)
        return 0.001


def test_wait_strategy(cluster):
    """SP4: it is asked after each pass without an emission, also at the limit of pending roots: 1, 2, 3 …"""
    strategy = Counting()
    feeder = fed(AckTracker())
    settings = {"topology.spout.wait.strategy": strategy, "topology.max.spout.pending": 1}
    running = cluster.submit(chain(feeder, Aggregate(99)), settings)
    running.wait_for(lambda: len(strategy.streaks) > 5, "empty passes")
    feeder.feed([1])
    before = len(strategy.streaks)
    running.wait_for(lambda: len(strategy.streaks) > before + 5, "passes at the limit")
    streaks = list(strategy.streaks)
    emitted_at = streaks.index(1, 1)
    assert streaks == [*range(1, emitted_at + 1), *range(1, len(streaks) - emitted_at + 1)]


class FailsOnce(Acking):
    def prepare(self, config, context, collector):
        super().prepare(config, context, collector)
        self.seen = set()

    def execute(self, tuple):
        if tuple[0] in self.seen:
            self.collector.ack(tuple)
        else:
            self.seen.add(tuple[0])
            self.collector.fail(tuple)


def test_emitting_in_fail(cluster):
    """SP5, T-replay: a message that is emitted again inside fail is acked once, under its new root."""
    spout = Emits(range(20), fails_again=True)
    running = cluster.submit(chain(spout, FailsOnce()))
    running.wait()
    told = Counter(entry for entry in spout.log.entries if entry[0] != "emitted")
    assert told == Counter({(what, each): 1 for what in ("ack", "fail") for each in range(20)})


class HoldFirst(Acking):
    """Holds the first tuple until the second comes, and then acks both."""

    held = None

    def execute(self, tuple):
        if self.held is None:
            self.held = tuple
        else:
            self.collector.ack(self.held)
            self.collector.ack(tuple)


def test_late_ack(cluster):
    """SP8: the ack of a tuple whose root timed out before changes nothing: the message failed, once."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder, HoldFirst()), T)
    feeder.feed([1], 1)
    cluster.advance_time(11)
    tracker.assert_failed(1)
    feeder.feed([1], 2)
    tracker.assert_acked(2)
    cluster.advance_time(60)
    assert told(running, tracker) == ({2: 1}, {1: 1})
    assert sum(status.tracked for status in running.statuses()) == 0


def test_no_receivers(cluster):
    """SP9: a spout without subscribers has its tuples acked."""
    tracker = AckTracker()
    feeder = fed(tracker)
    running = cluster.submit(chain(feeder))
    feeder.feed([1])
    feeder.feed([2])
    running.tracked_wait(2)
    tracker.check(2)
    assert sum(status.pending for status in running.statuses()) == 0


class OneAtATime(Emits):
    """Puts down when a call begins and ends."""

    def __init__(self, messages):
        super().__init__(messages)
        self.inside = Log()

    def next_tuple(self):
        self.note(super().next_tuple)

    def ack(self, message_id):
        self.note(lambda: super(OneAtATime, self).ack(message_id))

    def fail(self, message_id):
        self.note(lambda: super(OneAtATime, self).fail(message_id))

    def note(self, call):
        self.inside.entries.append("in")
        call()
        self.inside.entries.append("out")


def test_calls_do_not_overlap(cluster):
    """SP10: next_tuple, ack and fail of a task never overlap: neither by threads nor inside one another."""
    spout = OneAtATime(range(50))
    running = cluster.submit(chain(spout, AckEveryOther()), T)
    for _ in range(30):
        cluster.advance_time(1)
    assert sum(what != "emitted" for what, _ in spout.log.entries) == 50
    running.stop()
    calls = spout.inside.entries
    assert calls == ["in", "out"] * (len(calls) // 2)
    assert len(calls) >= 200


def test_message_counts():
    """SC2, S15: a tree of E edges is E data tuples, and E acks and one init for its acker; untracked, E data tuples."""
    for message_id, acks in (("one", 1), (None, 0)):
        spout = Emits([message_id])
        builder = TopologyBuilder("tree")
        builder.set_spout("0", spout)
        builder.set_bolt("1", Branch(4)).shuffle_grouping("0")
        builder.set_bolt("2", Branch(3)).shuffle_grouping("1")
        builder.set_bolt("3", AckBolt()).shuffle_grouping("2")
        edges = 1 + 4 + 12
        with InlineCluster(workers=4) as cluster:
            running = cluster.submit(builder.build())
            running.wait()
            counts = running.statistics()
        assert sum(each.transferred for each in counts.values()) == edges
        assert sum(counts[bolt].executed for bolt in "123") == edges
        assert sum(counts[bolt].acked for bolt in "123") == edges
        assert counts["0"].acked == acks
        assert counts["__acker"].executed == (1 + edges if acks else 0)


def test_cycle(cluster):
    """A bolt may send to one above it: a tuple goes round until it is done, and its root is acked then."""
    tracker = AckTracker()
    feeder = fed(tracker)
    builder = TopologyBuilder("cycle")
    builder.set_spout("spout", feeder)
    builder.set_bolt("down", CountDown()).shuffle_grouping("spout").shuffle_grouping("again")
    builder.set_bolt("again", Identity()).shuffle_grouping("down")
    running = cluster.submit(builder.build())
    feeder.feed([10])
    running.tracked_wait(1)
    tracker.check(1)
    assert running.statistics()["down"].executed == 11


class CountDown(Acking):
    output_fields = Fields("num")

    def execute(self, tuple):
        if tuple[0]:
            self.collector.emit([tuple[0] - 1], tuple)
        self.collector.ack(tuple)


class GoesRound(Acking):
    output_fields = Fields("num")

    def execute(self, tuple):
        self.collector.emit(tuple.values, tuple)
        self.collector.ack(tuple)


def test_a_cycle_without_end(cluster):
    """A topology with a tuple that goes round for ever can be stopped; its root is neither acked nor failed."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    builder = TopologyBuilder("cycle")
    builder.set_spout("spout", feeder)
    builder.set_bolt("one", GoesRound()).shuffle_grouping("spout").shuffle_grouping("two")
    builder.set_bolt("two", GoesRound()).shuffle_grouping("one")
    running = cluster.submit(builder.build())
    feeder.feed([1], 1)
    running.stop(wait_secs=0.5)
    assert (tracker.acked, tracker.failed) == ({}, {})


def test_rebalance(cluster):
    """A topology can be moved to other workers: nothing is lost, and tasks keep their number."""
    tracker = AckFailMapTracker()
    feeder = fed(tracker)
    builder = TopologyBuilder("moved")
    builder.set_spout("spout", feeder)
    builder.set_bolt("bolt", Identity(), 4).shuffle_grouping("spout")
    running = cluster.submit(builder.build())
    for number, workers in enumerate((3, 1, 2)):
        feeder.feed([number], number)
        running.rebalance(workers)
        assert running.workers == workers
    feeder.feed([3], 3)
    tracker.assert_acked(0, 1, 2, 3)
    assert told(running, tracker) == (dict.fromkeys(range(4), 1), {})
    assert running.statistics()["bolt"].executed == 4
