"""KafkaSpout: Storm's test cases, on a log in memory and in simulated time. Their names stand in brackets."""

import pytest

from spouts.kafka.log import StoredOffset
from spouts.kafka.plain.partitioner import RoundRobinPartitioner
from spouts.kafka.plain.progress import CommitMetadata, MessageId
from spouts.kafka.plain.retries import ExponentialBackoff
from spouts.kafka.plain.translators import SimpleRecordTranslator
from tests.spouts.kafka.plain.rig import GROUP, P1, P2, STREAM, TOPIC, Collector, Rig, filled
from txtopo.api.data.fields import Fields
from txtopo.testing.memory_log import LogCall

AFTER_A_MINUTE = ExponentialBackoff(60_000, 0, retries_max=1, delay_max_ms=60_000)
NULLS = SimpleRecordTranslator(lambda record: None, Fields("value"), STREAM)


class TestEmit:
    def test_one_tuple_a_call(self):
        """A call emits one tuple, however many were polled. (E1)"""
        rig = Rig(filled(10), batch_records_max=10)
        assert [each.values for each in rig.call()] == [(TOPIC, "0", "0")]
        assert rig.emitted[0].stream == STREAM
        assert rig.call()[0].offset == 1

    def test_all_failed_come_again(self):
        """Whatever failed is emitted again, although the limit of uncommitted offsets is reached; found by a seek. (E2)"""
        rig = Rig(filled(300), batch_records_max=250)
        emitted = rig.call(300)
        assert len(emitted) == 250
        rig.fail(emitted)
        rig.advance(50)
        rig.asked()
        again = rig.call(250)
        assert [each.offset for each in again] == list(range(250))
        assert rig.log.calls[:2] == [LogCall("seek", (P1, 0)), LogCall("poll", {P1})]

    def test_only_pollable_partitions(self):
        """A partition that may not be read stands still while another one is polled for its retry. (E3)"""
        log = filled(251, partitions=2)
        log.compact(TOPIC, {250}, 0)
        rig = Rig(log, batch_records_max=501)
        assert len(rig.call(501)) == 501
        rig.call()
        last = next(each for each in rig.emitted if each.id == MessageId(P2, 250, 1))
        rig.fail([rig.emitted[7], last])
        rig.advance(50)
        rig.asked()
        assert [each.id for each in rig.call()] == [MessageId(P1, 7, 1)]
        assert rig.log.calls == [LogCall("seek", (P1, 7)), LogCall("poll", {P1})]
        assert rig.call(50) == []
        assert [call for call in rig.log.calls if call.name == "seek"] == [LogCall("seek", (P1, 7))]


class Share(RoundRobinPartitioner):
    """Gives a task what the test says."""

    def share(self, partitions, task_index, tasks):
        return [partition for partition in partitions if partition in Share.now]


Share.now = [P1, P2]


def reassign(rig, *partitions):
    Share.now = list(partitions)
    rig.spout.activate()


class TestRebalance:
    @pytest.fixture
    def rig(self):
        Share.now = [P1, P2]
        return Rig(filled(1, partitions=2), partitioner=Share())

    def test_only_what_is_held_is_retried_and_committed(self, rig):
        """After a partition is lost, its failures are no retries, and its acks are not committed. (R1, R2, K6)"""
        emitted = rig.call(2)
        reassign(rig, P2)
        rig.fail(emitted)
        again = rig.call(5)
        assert [each.id for each in again] == [MessageId(P2, 0, 1, fails=1)]
        rig.ack([emitted[0], *again])
        rig.asked()
        rig.commit_step()
        assert rig.asked("commit") == [{P2: 1}]

    def test_order_of_a_change(self):
        """What was acked in all partitions is committed before anything is assigned."""
        Share.now = [P1]
        rig = Rig(filled(5, partitions=2), partitioner=Share())
        rig.ack(rig.call(2))
        rig.log.calls.clear()
        reassign(rig, P2)
        assert rig.log.calls == [LogCall("commit", {P1: 2}), LogCall("unassign", {P1}), LogCall("assign", {P2: 0})]

    def test_positions_stay(self):
        """A new partition begins where the group has committed; the position of one that is kept is not touched. (R3)"""
        log = filled(10, partitions=2)
        log.skip(TOPIC, 600, 1)
        log.store(GROUP, {P2: StoredOffset(500, CommitMetadata("topology").to_json())})
        Share.now = [P1]
        rig = Rig(log, partitioner=Share())
        rig.call(3)
        rig.asked()
        reassign(rig, P1, P2)
        assert rig.log.calls == [LogCall("unassign", set()), LogCall("assign", {P2: 500})]
        assert [each.offset for each in rig.call(3)] == [3, 4, 5]
        assert rig.asked("seek") == []


def test_retry_at_the_limit():
    """A retry within the limit lets a poll happen, with what else it brings; one beyond the limit does not. (M3)"""
    rig = Rig(filled(100), max_uncommitted_offsets=10, retry_service=AFTER_A_MINUTE)
    rig.fail(rig.call(100)[9:])
    assert rig.call(100) == []
    rig.advance(60_000)
    again = rig.call(5)
    assert [each.offset for each in again] == [9, 10, 11, 12, 13]
    rig.fail(again[-1:])
    rig.advance(60_000)
    assert rig.call(100) == []


class TestCompaction:
    def test_missing_offsets(self):
        """Offsets that never existed do not hold the commit up; the commit comes before the poll. (L1)"""
        log = filled(10)
        log.compact(TOPIC, {5, 6, 7})
        rig = Rig(log)
        rig.ack(rig.call(7))
        rig.asked()
        rig.commit_step()
        assert rig.log.calls == [LogCall("commit", {P1: 10}), LogCall("poll", {P1})]

    def test_retries_that_are_gone(self):
        """Failed records that are gone count as done, once a later record came in their place. (L2)"""
        log = filled(3, partitions=2)
        rig = Rig(log)
        rig.fail(rig.call(10))
        assert len(rig.emitted) == 6
        rig.advance(50)
        log.compact(TOPIC, {0, 1})
        again = rig.call(10)
        assert [(each.id.partition, each.offset) for each in again] == [(P1, 2), (P2, 0), (P2, 1), (P2, 2)]
        rig.asked()
        rig.commit_step()
        assert rig.asked("commit") == [{P1: 2}]
        rig.ack(again)
        rig.commit_step()
        assert rig.asked("commit") == [{P1: 3, P2: 3}]

    def test_gone_while_in_flight(self):
        """A record that is gone from the log while its tuple is pending is waited for. (L3)"""
        log = filled(3)
        rig = Rig(log)
        first, pending, last = rig.call(3)
        rig.fail([first, last])
        rig.advance(50)
        log.compact(TOPIC, {0, 1})
        (again,) = rig.call(3)
        assert again.offset == 2
        rig.ack([again])
        assert rig.commits() == 1
        rig.ack([pending])
        assert rig.commits() == 3


class TestGuarantees:
    def test_at_most_once(self):
        """Positions are committed after the poll and before the first tuple, which has no id. (G1)"""
        log = filled(5)

        class Noting(Collector):
            def emit(self, values, stream="default", message_id=None):
                log.calls.append(LogCall("emit", message_id))
                return []

        rig = Rig(log, processing_guarantee="at_most_once", collector=Noting())
        log.calls.clear()
        rig.call()
        assert log.calls == [LogCall("poll", {P1}), LogCall("commit", {P1: 5}), LogCall("emit", None)]
        assert CommitMetadata.parse(log.committed(GROUP)[P1].metadata).topology_id == "topology"

    @pytest.mark.parametrize("guarantee", ["at_most_once", "no_guarantee"])
    def test_limit_counts_for_at_least_once_only(self, guarantee):
        """The limit of uncommitted offsets is none for the other guarantees. (G2, G3)"""
        rig = Rig(filled(500), processing_guarantee=guarantee, batch_records_max=250)
        assert len(rig.call(501)) == 500

    @pytest.mark.parametrize(("guarantee", "commits"), [("at_most_once", []), ("no_guarantee", [{P1: 2}])])
    def test_tracking(self, guarantee, commits):
        """Tuples have ids if that is asked for; their failures and acks change nothing all the same. (G4, G5, G6)"""
        rig = Rig(filled(2), processing_guarantee=guarantee, tuple_tracking_enforced=True)
        emitted = rig.call(2)
        assert emitted[0].id == MessageId(P1, 0, 1)
        rig.asked()
        rig.fail(emitted[:1])
        rig.ack(emitted[1:])
        rig.advance(2_500)
        assert rig.call(5) == []
        assert [(call.name, call.given) for call in rig.log.calls if call.name != "poll"] == [
            ("commit", commit) for commit in commits
        ]

    @pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once", "no_guarantee"])
    def test_nulls(self, guarantee):
        """Null tuples are not emitted; they count as done. (G8, G9, null)"""
        rig = Rig(filled(10), processing_guarantee=guarantee, translator=NULLS)
        assert rig.call(10) == []
        assert rig.commits() == 10


@pytest.mark.parametrize("strategy", ["uncommitted_earliest", "earliest"])
def test_reactivated(strategy):
    """Deactivation commits; acks that come while it lasts are kept, and so is what was polled. (A1, A2)"""
    rig = Rig(filled(20), first_poll=strategy, batch_records_max=10)
    emitted = rig.call(7)
    rig.ack(emitted[:6])
    rig.spout.deactivate()
    assert rig.committed() == 6
    rig.ack(emitted[6:])
    rig.spout.activate()
    rest = rig.call(30)
    assert [each.offset for each in rest] == list(range(7, 20))
    rig.ack(rest)
    assert rig.commits() == 20


def test_commit_moves_the_position():
    """What is committed is not emitted again, although a retry has moved the position back. (ST1, ST2)"""
    rig = Rig(filled(11), batch_records_max=10)
    emitted = rig.call(10)
    rig.fail(emitted[:1])
    rig.ack(emitted[1:])
    (again,) = rig.call()
    assert again.offset == 0
    rig.ack([again])
    (last,) = rig.commit_step()
    assert rig.committed() == 10
    assert last.offset == 10
    assert rig.call(5) == []


def test_metrics_of_the_log():
    """The metrics of a task: what it holds, and how far it is."""
    rig = Rig(filled(3))
    rig.ack(rig.call(2))
    rig.commit_step()
    assert rig.spout.lag() is None, "the log end was not asked for yet"
    assert rig.spout.metrics() == {
        "test/partition_0/spoutLag": 1,
        "test/partition_0/earliestTimeOffset": 0,
        "test/partition_0/latestTimeOffset": 3,
        "test/partition_0/latestEmittedOffset": 2,
        "test/partition_0/latestCompletedOffset": 2,
        "test/partition_0/recordsInPartition": 3,
        "test/totalSpoutLag": 1,
        "test/totalEarliestTimeOffset": 0,
        "test/totalLatestTimeOffset": 3,
        "test/totalLatestEmittedOffset": 2,
        "test/totalLatestCompletedOffset": 2,
        "test/totalRecordsInPartitions": 3,
    }
    assert rig.spout.lag() == 1
    rig.spout.deactivate()
    rig.log.is_down = True
    assert rig.spout.metrics()["test/totalSpoutLag"] == 1, "the ranges of last time, and of a spout that is not active"
    assert rig.spout.lag() == 1
    rig.log.is_down = False
    rig.log.cut_off(TOPIC, 1)  # a new leader may not know all of it yet
    rig.spout.metrics()
    assert rig.spout.lag() == 0
