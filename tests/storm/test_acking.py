"""Storm's tests of guaranteed message processing, and those that it never had, on the public API.

Storm's are those of integration_test.clj and TopologyIntegrationTest: T-TIMEOUT, T-NOTIMEOUT, T-RESET, T-ACK1 to T-ACK3.
"""

import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.storm.bolts import AckBolt, AckEveryOther, Acking, Aggregate, Branch, Fed, Identity, WordCounter, chain
from txtopo import BasicBolt, FailedException, Fields, ReportedFailedException, Spout, TopologyBuilder
from txtopo.errors import UserCodeError
from txtopo.plain.tasks.metrics import Counts
from txtopo.testing import AckFailMapTracker, AckTracker, FeederSpout, InlineCluster, complete_topology
from txtopo.testing.feeders import Shared

T = {"topology.message.timeout.secs": 10}


@pytest.fixture(params=[1, 2, 4], ids=lambda workers: f"{workers} workers")
def cluster(request: pytest.FixtureRequest) -> Iterator[InlineCluster]:
    """Clusters of as many workers as Storm's tests have, and of one."""
    with InlineCluster(workers=request.param) as running:
        yield running


@pytest.mark.parametrize("has_timeouts", [True, False], ids=["timeouts", "no timeouts"])
@pytest.mark.parametrize("later", [12, 20])
def test_timeout(cluster, has_timeouts, later):
    """T-TIMEOUT, T-NOTIMEOUT, T-METR2, T-METR3, S2: what is never acked fails after its timeout and not before.

    It fails in the spout, not in the bolt; with timeouts disabled, never.
    """
    fed = Fed(cluster, AckEveryOther(), config={**T, "topology.enable.message.timeouts": has_timeouts})
    fed.feed(1, 2, 3)
    cluster.advance_time(9)
    fed.acked(1, 3)
    assert not fed.tracker.is_failed(2)
    cluster.advance_time(later)
    if has_timeouts:
        fed.failed(2)
    assert fed.told() == ({1: 1, 3: 1}, {2: 1} if has_timeouts else {})
    counts = fed.running.statistics()
    assert counts["0"] == Counts({"default": 3}, 3, acked=2, failed=int(has_timeouts))
    assert counts["1"] == Counts(executed=3, acked=2)


def test_timeout_is_exact(cluster):
    """S2, W1: a timeout comes in [T, T + 1 s] after the emission, not in [T, 2T] as in Storm."""
    fed = Fed(cluster, Aggregate(99), config=T)
    cluster.advance_time(3.3)
    fed.feed(1)
    cluster.advance_time(9.9)
    assert not fed.tracker.is_failed(1)
    cluster.advance_time(1.1)
    fed.failed(1)


class ResetsFirst(Acking):
    """Holds the first tuple and resets its timeout at the second to fourth; acks it at the fifth; never the second."""

    count = 0

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
    fed = Fed(cluster, ResetsFirst(), config=T)
    fed.feed(1, 2)
    for message in (3, 4):
        cluster.advance_time(9)
        fed.feed(message)
        fed.acked(message)
    cluster.advance_time(2)
    fed.failed(2)
    fed.feed(5)
    fed.acked(5, 1)
    assert fed.told() == ({1: 1, 3: 1, 4: 1, 5: 1}, {2: 1})


def test_acking(cluster):
    """T-ACK1, S6: trees of three spouts that branch, meet in a join and branch again."""
    trackers = [AckTracker() for _ in range(3)]
    feeders = [FeederSpout(Fields("num"), tracker) for tracker in trackers]
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


def diamond(spout):
    builder = TopologyBuilder("diamond")
    builder.set_spout("1", spout)
    builder.set_bolt("2", Identity()).shuffle_grouping("1")
    builder.set_bolt("3", Identity()).shuffle_grouping("1")
    builder.set_bolt("4", Aggregate(4)).shuffle_grouping("2").shuffle_grouping("3")
    return builder.build()


def test_ack_branching(cluster):
    """T-ACK2, S3: a diamond over two roots: neither is acked before the join has all four tuples."""
    fed = Fed(cluster, build=diamond)
    fed.feed(1)
    assert fed.told(1) == ({}, {})
    fed.feed(2)
    assert fed.told(1) == ({1: 1, 2: 1}, {})


class DoubleAnchor(Acking):
    output_fields = Fields("val")

    def execute(self, tuple):
        self.collector.emit([1], [tuple, tuple])
        self.collector.ack(tuple)


def test_self_anchor(cluster):
    """T-ACK3: a tuple anchored twice to the same one is acked like any other."""
    fed = Fed(cluster, DoubleAnchor(), AckBolt())
    fed.feed(1)
    assert fed.told(1) == ({1: 1}, {})
    fed.feed(2, 3, 4)
    assert fed.told(3) == (dict.fromkeys([1, 2, 3, 4], 1), {})


class Fails(Acking):
    def execute(self, tuple):
        self.collector.fail(tuple)


def test_failure_is_quick(cluster):
    """S4: a tuple that is failed fails its root at once, without any time passing."""
    fed = Fed(cluster, Identity(), Fails())
    before = cluster.now()
    fed.feed("one")
    fed.failed("one")
    assert cluster.now() == before
    assert fed.told() == ({}, {"one": 1})


class Unanchored(Acking):
    output_fields = Fields("val")

    def execute(self, tuple):
        self.collector.emit(tuple.values)
        self.collector.ack(tuple)


def test_unanchored(cluster):
    """S5, S16: a tuple that is anchored to nothing may fail below: the root is acked all the same."""
    fed = Fed(cluster, Unanchored(), Fails())
    fed.feed("one")
    assert fed.told(1) == ({"one": 1}, {})
    assert fed.running.statistics()["2"].failed == 1


def test_failure_of_a_join(cluster):
    """S6: a tuple anchored to two roots of two spouts fails both, each once, and no third one."""
    trackers = [AckFailMapTracker(), AckFailMapTracker()]
    left, right = (FeederSpout(Fields("num"), tracker) for tracker in trackers)
    builder = TopologyBuilder("join")
    builder.set_spout("left", left)
    builder.set_spout("right", right)
    builder.set_bolt("join", Aggregate(2)).global_grouping("left").global_grouping("right")
    builder.set_bolt("fails", Fails()).shuffle_grouping("join")
    running = cluster.submit(builder.build())
    left.feed([1], "left 1")
    right.feed([1], "right 1")
    running.tracked_wait(2)
    right.feed([1], "right 2")
    running.tracked_wait(1)
    assert [tracker.acked for tracker in trackers] == [{}, {}]
    assert [tracker.failed for tracker in trackers] == [{"left 1": 1}, {"right 1": 1}]


class SplitByHand(Acking):
    output_fields = Fields("word")

    def execute(self, tuple):
        for word in tuple[0].split():
            self.collector.emit([word], tuple)
        self.collector.ack(tuple)


class Split(BasicBolt):
    output_fields = Fields("word")

    def execute(self, tuple, collector):
        for word in tuple[0].split():
            collector.emit([word])


def test_basic_bolts_are_rich_bolts_without_the_writing():
    """S7, BB1: a basic bolt emits and acks as one that anchors and acks by hand."""
    found = []
    for split in (SplitByHand(), Split()):
        topology = chain(FeederSpout(Fields("sentence")), split, WordCounter())
        done = complete_topology(topology, {"0": [["a b a"], ["b"], [""], ["c a"]]})
        counts = {name: done.statistics[name] for name in "012"}
        found.append((Counter(done.tuples("1")), Counter(done.tuples("2")), counts))
    assert found[0] == found[1]
    assert found[0][2]["0"].acked == 4


class Picky(BasicBolt):
    """Fails what it is told to, in the way it is told."""

    output_fields = Fields("val")

    def execute(self, tuple, collector):
        collector.emit(tuple.values)
        if tuple[0] == "failed":
            raise FailedException("no")
        if tuple[0] == "reported":
            raise ReportedFailedException("no, and everybody shall know")
        if tuple[0] == "exits":
            sys.exit("nothing by nothing")
        if tuple[0] != "fine":
            raise ZeroDivisionError("nothing by nothing")


def test_failed_exceptions(cluster):
    """BB2, BB3: FailedException fails the tuple, ReportedFailedException reports it too; the bolt goes on."""
    fed = Fed(cluster, Picky(), AckBolt())
    fed.feed("failed", "reported", "fine")
    assert fed.told(3) == ({"fine": 1}, {"failed": 1, "reported": 1})
    assert sum(status.reported_errors for status in fed.running.statuses()) == 1
    assert "everybody shall know" in "".join(status.last_error for status in fed.running.statuses())
    assert fed.running.errors == []


@pytest.mark.parametrize(("word", "name"), [("broken", "ZeroDivisionError"), ("exits", "SystemExit")])
def test_other_exceptions(word, name):
    """BB4: another exception, or an exit, ends its worker and names the component; a fresh bolt takes the next tuple."""
    with InlineCluster(workers=2) as cluster:
        fed = Fed(cluster, Picky())  # the bolt is in the second worker, the spout in the first
        fed.feed(word)
        fed.failed(word)
        fed.feed("fine")
        fed.acked("fine")
        (error,) = fed.running.errors
    assert isinstance(error, UserCodeError)
    assert (error.component, f"{name}: nothing by nothing" in str(error)) == ("1", True)
    assert "execute" in str(error.cause)


def test_exceptions_from_time_to_time():
    """Restarts count within their period only: a worker may die once a minute for ever, and no more often."""
    settings = {"topology.worker.max.restarts": 1, "topology.worker.restart.period.secs": 60}
    with InlineCluster(workers=2) as cluster:
        fed = Fed(cluster, Picky(), config=settings)
        for number in range(5):
            fed.feed(number)
            fed.failed(number)
            cluster.advance_time(61)
        fed.feed("fine")
        fed.acked("fine")
        fed.feed(5, 6)
        with pytest.raises(UserCodeError, match="nothing by nothing"):
            fed.running.wait()
        assert len(fed.running.errors) == 7


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

    def count(self, what):
        return sum(entry == what for entry, _ in self.log.entries)


def test_without_ackers(cluster):
    """SP6, S16: with 0 ackers everything is acked before emit returns, in order; a failure concerns nobody."""
    spout = Emits(range(5))
    running = cluster.submit(chain(spout, Fails()), {"topology.ackers": 0})
    running.tracked_wait(5)
    assert spout.log.entries == [entry for number in range(5) for entry in (("ack", number), ("emitted", number))]
    assert "__acker" not in running.statistics()


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
    running.tracked_wait(3)  # 0 is acked, 1 stays, 2 is acked, 3 stays
    running.wait_for(lambda: spout.count("emitted") == 4, "fourth emission")
    cluster.advance_time(9)
    assert spout.count("emitted") == 4
    cluster.advance_time(2)
    assert spout.count("emitted") == 5
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
        assert (spout.count("emitted"), spout.count("fail")) == (3 * tasks, 0)
        cluster.advance_time(1)
        assert spout.count("fail") == 3 * tasks


def test_inactive(cluster):
    """SP3: a spout that is not active emits nothing, and learns of acks and timeouts all the same."""
    fed = Fed(cluster, AckEveryOther(), config=T)
    fed.feed(1, 2)
    fed.running.deactivate()
    fed.spout.feed_no_wait([3], 3)
    cluster.advance_time(11)
    assert fed.told() == ({1: 1}, {2: 1})
    fed.running.activate()
    fed.acked(3)


class FailsOnce(Acking):
    def execute(self, tuple):
        if tuple[0] in self.held:
            self.collector.ack(tuple)
        else:
            self.held.append(tuple[0])
            self.collector.fail(tuple)


def test_emitting_in_fail(cluster):
    """SP5, T-replay: a message that is emitted again inside fail is acked once, under its new root."""
    spout = Emits(range(20), fails_again=True)
    cluster.submit(chain(spout, FailsOnce())).wait()
    told = Counter(entry for entry in spout.log.entries if entry[0] != "emitted")
    assert told == Counter({(what, number): 1 for what in ("ack", "fail") for number in range(20)})


def test_late_ack(cluster):
    """SP8: the ack of a tuple whose root timed out before changes nothing: the message failed, once."""
    fed = Fed(cluster, Aggregate(2), config=T)
    fed.feed(1)
    cluster.advance_time(11)
    fed.failed(1)
    fed.feed(2)
    fed.acked(2)
    cluster.advance_time(60)
    assert fed.told() == ({2: 1}, {1: 1})
    assert sum(status.tracked for status in fed.running.statuses()) == 0


def test_no_receivers(cluster):
    """SP9: a spout without subscribers has its tuples acked."""
    fed = Fed(cluster)
    fed.feed(1, 2)
    assert fed.told(2) == ({1: 1, 2: 1}, {})
    assert sum(status.pending for status in fed.running.statuses()) == 0


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
    assert spout.count("ack") + spout.count("fail") == 50
    running.stop()
    calls = spout.inside.entries
    assert calls == ["in", "out"] * (len(calls) // 2)
    assert len(calls) >= 200


@pytest.mark.parametrize(("message_id", "acks"), [("one", 1), (None, 0)], ids=["tracked", "untracked"])
def test_message_counts(message_id, acks):
    """SC2, S15: a tree of E edges is E data tuples, and E acks and one init for its acker; untracked, E data tuples."""
    edges = 1 + 4 + 12
    with InlineCluster(workers=4) as cluster:
        running = cluster.submit(chain(Emits([message_id]), Branch(4), Branch(3), AckBolt()))
        running.wait()
        counts = running.statistics()
    assert sum(count.transferred for count in counts.values()) == edges
    assert sum(counts[bolt].executed for bolt in "123") == edges
    assert sum(counts[bolt].acked for bolt in "123") == edges
    assert counts["0"].acked == acks
    assert counts["__acker"].executed == (1 + edges if acks else 0)


class CountDown(Acking):
    output_fields = Fields("num")

    def execute(self, tuple):
        if tuple[0]:
            self.collector.emit([tuple[0] - 1], tuple)
        self.collector.ack(tuple)


def cycle(spout, bolt):
    builder = TopologyBuilder("cycle")
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout").shuffle_grouping("again")
    builder.set_bolt("again", Identity()).shuffle_grouping("bolt")
    return builder.build()


def test_cycle(cluster):
    """A bolt may send to one above it: a tuple goes round until it is done, and its root is acked then."""
    fed = Fed(cluster, CountDown(), build=cycle)
    fed.feed(10)
    assert fed.told(1) == ({10: 1}, {})
    assert fed.running.statistics()["bolt"].executed == 11


@pytest.mark.few(1)
def test_a_cycle_without_end(cluster):
    """A topology with a tuple that goes round for ever can be stopped; its root is neither acked nor failed."""
    fed = Fed(cluster, Identity(), build=cycle)
    fed.feed(1)
    fed.running.stop(wait_secs=0.5)
    assert (fed.tracker.acked, fed.tracker.failed) == ({}, {})


def test_rebalance(cluster):
    """A topology can be moved to other workers: nothing is lost."""
    fed = Fed(cluster, Identity())
    for number, workers in enumerate((3, 1, 2)):
        fed.feed(number)
        fed.running.rebalance(workers)
        assert fed.running.workers == workers
    fed.feed(3)
    fed.acked(0, 1, 2, 3)
    assert fed.told() == (dict.fromkeys(range(4), 1), {})
    assert fed.running.statistics()["1"].executed == 4
