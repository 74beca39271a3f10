"""The spouts over Kafka, on topics in memory: what they plan, refuse, leave for later and publish."""

import datetime as dt
import logging
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from spouts.kafka import OpaqueKafkaSpout, TransactionalKafkaSpout
from spouts.kafka.log import StoredOffset, TopicPartition
from spouts.kafka.planner import DISCOVERY_SECS, LATE_SECS, PUBLISH_SECS, SHORTER_SECS
from tests.spouts.kafka.in_memory import OpaqueInMemory, TransactionalInMemory
from txtopo import FailedException, Fields, ReportedFailedException
from txtopo.api.components.partitioned import partition_key
from txtopo.attempts import TransactionAttempt, attempt_number
from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.testing import MemoryLog, PlainContext, RecordingCollector
from txtopo.testing.memory_log import MemoryLogReader

ROOT = Path(__file__).resolve().parents[3]
FIELDS = Fields("topic: string", "partition: int", "offset: long")


@attrs.define(eq=False)
class Clock:
    """Seconds that only a test moves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def published(world):
    """Return what was published of the first partition."""
    stored = world.committed("shown").get(TopicPartition("t", 0))
    return None if stored is None else stored.offset


class Driven:
    """A transactional spout that a test drives as a run does."""

    kind = TransactionalInMemory

    def __init__(self, world, topics="t", *, txid=0, metadata=None, **options):
        self.clock = Clock()
        self.spout = self.kind(world, topics, FIELDS, **{"batch_records_max": 10, **options})
        self.spout.options = attrs.evolve(self.spout.options, now_secs=self.clock)
        self.coordinator = self.spout.coordinator({}, PlainContext())
        self.txid, self.metadata = txid, metadata
        self.coordinator.resume(txid, metadata)

    def look_again(self):
        self.clock.now += DISCOVERY_SECS

    def begin(self):
        """Begin a transaction; return its ranges by topic and partition."""
        assert self.coordinator.is_ready()
        self.txid += 1
        before, self.metadata = self.metadata, self.coordinator.initialize_transaction(self.txid, self.metadata)
        return self.spout.input_ranges(self.metadata, before)

    take = begin

    def emit(self, task=0, tasks=1, tries=1):
        attempt = TransactionAttempt(self.txid, attempt_number(1, tries - 1))
        collector = RecordingCollector(attempt, self.spout.output_fields)
        self.skipped = self.spout.emitter({}, PlainContext(this_task_index=task, tasks=tasks)).emit_batch(
            attempt, self.metadata, collector
        )
        return [tuple(values[1:]) for values in collector.tuples]


@pytest.fixture
def world():
    world = MemoryLog()
    world.create_topic("t", 2)
    return world


def test_all_partitions_are_planned_by_one_request(world):
    """It serves all transactions that it has records for."""
    world.append("t", [b"x"] * 25, 0)
    world.append("t", [b"x"] * 5, 1)
    driven = Driven(world)
    assert driven.begin() == {"t-0": (0, 10), "t-1": (0, 5)}
    assert driven.begin() == {"t-0": (10, 20)}
    assert driven.begin() == {"t-0": (20, 25)}
    assert world.questions.count("ends") == 1
    assert not driven.coordinator.is_ready()
    assert world.questions.count("ends") == 2


def test_tasks_share_the_partitions(world):
    for partition in (0, 1):
        world.append("t", [b"x"] * 2, partition)
    driven = Driven(world)
    driven.begin()
    assert driven.emit(0, 2) == [("t", 0, 0), ("t", 0, 1)]
    assert driven.emit(1, 2) == [("t", 1, 0), ("t", 1, 1)]
    assert driven.emit(2, 3) == []


def test_partitions_added_later_begin_at_their_beginning(world):
    """Whatever ``first_poll`` says of those that were there; in the same run and in a later one."""
    world.append("t", [b"x"] * 3, 0)
    driven = Driven(world, first_poll="latest")
    assert driven.begin() == {}
    assert not driven.coordinator.is_ready()
    world.append("t", [b"x"], 0)
    world.create_topic("t", 3)
    world.append("t", [b"x"] * 4, 2)
    driven.look_again()
    assert driven.begin() == {"t-0": (3, 4), "t-2": (0, 4)}
    world.create_topic("t", 4)
    world.append("t", [b"x"] * 2, 3)
    later = Driven(world, first_poll="latest", txid=driven.txid, metadata=driven.metadata)
    assert later.begin() == {"t-3": (0, 2)}


def test_looking_for_partitions_does_not_wait(world):
    """Records of those that are known are taken meanwhile; only a look that is very late waits for its answer."""
    world.append("t", [b"x"] * 3, 0)
    driven = Driven(world)
    driven.begin()
    world.is_slow = True
    world.create_topic("t", 3)
    for partition in (0, 2):
        world.append("t", [b"x"], partition)
    driven.look_again()
    assert driven.begin() == {"t-0": (3, 4)}
    assert not driven.coordinator.is_ready()
    driven.clock.now += LATE_SECS
    assert driven.begin() == {"t-2": (0, 1)}


def test_topics_that_match_a_pattern(world):
    """Also those that appear later; a topic that disappears is no error."""
    world.create_topic("clicks-a")
    world.create_topic("clicks-a-old")
    world.append("clicks-a", [b"x"], 0)
    driven = Driven(world, re.compile("clicks-[a-z]"))
    assert driven.begin() == {"clicks-a-0": (0, 1)}
    world.create_topic("clicks-b")
    world.append("clicks-b", [b"x"] * 2, 0)
    world.delete_topic("clicks-a")
    driven.look_again()
    assert driven.begin() == {"clicks-b-0": (0, 2)}
    assert driven.emit() == [("clicks-b", 0, 0), ("clicks-b", 0, 1)]


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
@pytest.mark.parametrize("is_later_run", [False, True])
def test_a_topic_that_comes_after_the_first_look(world, kind, is_later_run):
    """Begins at its beginning, also if there was no topic at all before it, whatever ``first_poll`` says."""
    make, options = Driven if kind == "transactional" else Opaque, {"topics": "^clicks-.*", "first_poll": "latest"}
    driven = make(world, **options)
    assert driven.coordinator.is_ready()
    driven.take()
    assert (driven.emit(), driven.coordinator.is_ready()) == ([], False)
    none = dict(driven.metadata)
    world.create_topic("clicks-a")
    world.append("clicks-a", [b"x"] * 2, 0)
    if is_later_run:
        driven = make(world, txid=1, metadata=none, **options)
    driven.look_again()
    assert driven.coordinator.is_ready()
    driven.take()
    assert driven.spout.input_ranges(driven.metadata, none) == {"clicks-a-0": (0, 2)}
    later = make(world, **options).coordinator
    assert later.rewind(1, none, [driven.metadata])
    with pytest.raises(InputError, match="first_poll is 'latest'"):
        later.rewind(0, None if kind == "transactional" else {}, [none])


@pytest.mark.parametrize(
    ("first_poll", "start"),
    [
        ("earliest", 2),
        (4_500, 4),
        (dt.datetime(1970, 1, 1, 0, 0, 8, tzinfo=dt.UTC), 7),
        (dt.datetime(1970, 1, 1, 0, 0, 7, 1_000, tzinfo=dt.UTC), 7),
        ("group:stored", 5),
        ("group:unknown", 2),
    ],
)
def test_where_the_first_run_begins(world, first_poll, start):
    """At the beginning, at a time, or where a group has stored; later runs go on where the last one ended."""
    for number in range(1, 10):
        world.append("t", [b"x"], timestamp_ms=1_000 * number)
    world.delete_records("t", {0: 2})
    world.store("stored", {TopicPartition("t", 0): StoredOffset(5)})
    driven = Driven(world, first_poll=first_poll)
    assert driven.begin() == {"t-0": (start, 9)}
    world.append("t", [b"x"], 0)
    later = Driven(world, first_poll=first_poll, txid=1, metadata=driven.metadata)
    assert later.begin() == {"t-0": (9, 10)}


def test_the_latest_is_what_it_was_at_the_first_look(world):
    """An empty transaction makes it durable: what comes while the topology is down after that belongs to it."""
    world.append("t", [b"x"] * 3, 0)
    driven = Driven(world, first_poll="latest", until_end=True)
    assert not driven.coordinator.is_exhausted()
    assert driven.begin() == {}
    assert driven.emit() == []
    assert driven.coordinator.is_exhausted()
    world.append("t", [b"x"] * 2, 0)
    later = Driven(world, first_poll="latest", txid=1, metadata=driven.metadata)
    assert later.begin() == {"t-0": (3, 5)}


def test_a_topic_made_anew_is_refused(world):
    """By the coordinator of a run and of a later one, and by an emitter whose offsets the new topic has, too."""
    world.append("t", [b"x"] * 5, 0)
    driven = Driven(world)
    driven.begin()
    world.delete_topic("t")
    world.create_topic("t", 2)
    with pytest.raises(InputError, match="'t' was deleted and created again"):
        driven.emit()  # the new one lacks these offsets
    world.append("t", [b"other"] * 20, 0)
    with pytest.raises(InputError, match="'t' was deleted and created again"):
        driven.emit()
    driven.look_again()
    with pytest.raises(InputError, match="'t' was deleted and created again"):
        driven.coordinator.is_ready()
    later = Driven(world, txid=1, metadata=driven.metadata)
    with pytest.raises(InputError, match="'t' was deleted and created again"):
        later.coordinator.is_ready()


def test_lost_records_stop_the_run(world):
    """All of them are named, of every partition, and not only what one task has found; and what can be done."""
    world.create_topic("t", 3)
    for partition in range(3):
        world.append("t", [b"x"] * 40, partition)
    driven = Driven(world)
    driven.begin()
    world.delete_records("t", {0: 25, 2: 7})
    with pytest.raises(InputError) as caught:
        driven.emit(0, 2)
    lost = "topic 't', partition 0: offsets 0 to 24; topic 't', partition 2: offsets 0 to 6. Give the spout"
    assert lost in str(caught.value)
    assert "on_lost='skip'" in str(caught.value)


def test_lost_records_may_be_skipped(world, caplog):
    """Those of a planned transaction, and those that no transaction has; a warning names each."""
    world.append("t", [b"x"] * 30, 0)
    driven = Driven(world, on_lost="skip")
    driven.begin()
    world.delete_records("t", {0: 25})
    driven.look_again()
    with caplog.at_level(logging.WARNING, "txtopo.kafka"):
        assert driven.emit() == []
        assert driven.skipped == {"t-0": [(0, 10)]}
        assert driven.begin() == {"t-0": (10, 30)}
        driven.look_again()
        assert not driven.coordinator.is_ready()
    assert driven.spout.input_skipped(driven.metadata, None) == {"t-0": [(10, 25)]}
    assert [caplog.text.count(f"offsets {lost} ") for lost in ("0 to 9", "10 to 24")] == [1, 1]
    assert len(driven.emit()) == 5
    assert driven.skipped == {}


def test_a_single_lost_record_is_told(world, caplog):
    """One that no transaction has, and one of a planned transaction, count as any number of them."""
    world.append("t", [b"x"] * 30, 0)
    driven = Driven(world, on_lost="skip")
    driven.begin()
    assert len(driven.emit()) == 10
    world.delete_records("t", {0: 11})
    driven.look_again()
    with caplog.at_level(logging.WARNING, "txtopo.kafka"):
        assert driven.begin() == {"t-0": (10, 21)}
    assert driven.spout.input_skipped(driven.metadata, None) == {"t-0": [(10, 11)]}
    assert caplog.text.count("offsets 10 to 10 ") == 1
    world.delete_records("t", {0: 12})
    assert len(driven.emit()) == 9
    assert driven.skipped == {"t-0": [(11, 12)]}


def test_a_single_lost_record_stops_the_run(world):
    """It is named, if a transaction is planned with it."""
    world.append("t", [b"x"] * 30, 0)
    driven = Driven(world)
    driven.begin()
    world.delete_records("t", {0: 1})
    with pytest.raises(InputError, match="offsets 0 to 0"):
        driven.emit()


def test_a_cluster_that_does_not_answer_is_waited_for(world):
    """At the start, when planning, and when reading: the transaction fails, and is tried again."""
    world.append("t", [b"x"], 0)
    world.is_down = True
    driven = Driven(world)
    with pytest.raises(FailedException):
        driven.coordinator.is_ready()
    world.is_down = False
    driven.begin()
    world.leaderless.add(TopicPartition("t", 0))
    with pytest.raises(FailedException, match="no leader"):
        driven.emit()
    world.leaderless.clear()
    assert driven.emit() == [("t", 0, 0)]


def test_a_topic_that_does_not_exist(world):
    """Is found before anything is written; if it disappears later, it is waited for."""
    world.create_topic("clicks")
    with pytest.raises(InputError, match=r"Kafka has no topic 'tt'; did you mean 't'\? .*kafka-topics.sh --create"):
        Driven(world, ["t", "tt"])
    with pytest.raises(InputError, match=r"Kafka has no topic 'orders'\. Correct"):
        Driven(world, "orders")
    driven = Driven(world)
    world.delete_topic("t")
    with pytest.raises(FailedException, match="no topic 't' now"):
        driven.coordinator.is_ready()


def test_a_topic_that_does_not_exist_is_found_late(world):
    """If Kafka does not answer at the start, by the first look."""
    world.is_down = True
    driven = Driven(world, "tt")
    world.is_down = False
    with pytest.raises(InputError, match="Kafka has no topic 'tt'; did you mean 't'"):
        driven.coordinator.is_ready()


@pytest.mark.parametrize("end", [0, 4])
def test_a_log_that_was_cut_off(world, end):
    """It may look shorter for a while; if it stays so, its later records are others."""
    world.append("t", [b"x"] * 5, 0)
    driven = Driven(world)
    driven.begin()
    world.cut_off("t", 3)
    driven.look_again()
    assert not driven.coordinator.is_ready()
    world.append("t", [b"x"] * 2)
    driven.clock.now += SHORTER_SECS
    assert not driven.coordinator.is_ready()
    world.cut_off("t", end)
    driven.look_again()
    assert not driven.coordinator.is_ready()
    driven.clock.now += SHORTER_SECS
    with pytest.raises(InputError, match=f"ends at offset {end}, but offsets up to 5 were taken"):
        driven.coordinator.is_ready()


def test_it_may_end_with_what_was_there(world):
    """``until_end``: later records are for the next run."""
    world.append("t", [b"x"] * 15, 0)
    driven = Driven(world, until_end=True)
    assert not driven.coordinator.is_exhausted()
    assert driven.coordinator.remaining(None) == 2
    world.append("t", [b"x"], 0)
    driven.look_again()
    assert (driven.begin(), driven.begin()) == ({"t-0": (0, 10)}, {"t-0": (10, 15)})
    assert driven.coordinator.is_exhausted()
    assert not Driven(world, until_end=True, txid=2, metadata=driven.metadata).coordinator.is_exhausted()


def test_its_end_is_reached_if_all_that_was_left_is_gone(world):
    """What is skipped is taken, by a transaction that says so."""
    world.append("t", [b"x"] * 5, 0)
    world.delete_records("t", {0: 5})
    metadata = {"topics": {"t": {"id": "id-1", "partitions": [[0, 0, 2]]}}}
    driven = Driven(world, until_end=True, on_lost="skip", metadata=metadata)
    assert not driven.coordinator.is_exhausted()
    assert driven.begin() == {"t-0": (2, 5)}
    assert driven.emit() == []
    assert driven.coordinator.is_exhausted()


def test_its_end_is_known_only_with_all_partitions(world):
    """A partition without a leader at the first look is waited for, and not left out."""
    for partition in (0, 1):
        world.append("t", [b"x"] * 2, partition)
    world.leaderless.add(TopicPartition("t", 1))
    driven = Driven(world, until_end=True)
    with pytest.raises(FailedException, match="no leader"):
        driven.coordinator.is_exhausted()
    world.leaderless.clear()
    assert driven.begin() == {"t-0": (0, 2), "t-1": (0, 2)}


def test_lag(world):
    """It is what no transaction has taken, of all partitions, as the last look has shown."""
    world.append("t", [b"x"] * 15, 0)
    world.append("t", [b"x"] * 2, 1)
    driven = Driven(world)
    assert driven.coordinator.lag() is None
    assert driven.coordinator.is_ready()
    assert driven.coordinator.lag() == 17
    driven.begin()
    assert driven.coordinator.lag() == 5
    driven.begin()
    assert driven.coordinator.lag() == 0
    world.cut_off("t", 1, 1)  # a new leader that does not know all of it yet
    assert not driven.coordinator.is_ready()
    assert driven.coordinator.lag() == 0


def test_offsets_are_published_after_their_commit(world):
    """For Kafka's tools; at most once a second, and the last ones when the coordinator is closed."""
    world.append("t", [b"x"] * 25, 0)
    driven = Driven(world, publish_group="shown")
    driven.begin()
    driven.coordinator.cleanup_before(1)
    assert published(world) is None
    driven.coordinator.cleanup_before(2)
    assert published(world) == 10
    driven.begin()
    driven.coordinator.cleanup_before(3)
    assert published(world) == 10
    driven.coordinator.close()
    assert published(world) == 20


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_offsets_are_published_in_quiet_times(world, kind):
    """The last ones do not wait for the next transaction, which may never come; and nothing is published twice."""
    world.append("t", [b"x"] * 10, 0)
    driven = (Driven if kind == "transactional" else Opaque)(world, publish_group="shown")
    for _ in range(2):
        assert driven.coordinator.is_ready()
        driven.take()
        driven.coordinator.cleanup_before(driven.txid + 1)
        world.append("t", [b"x"] * 5, 0)
    assert published(world) == 10
    driven.clock.now += PUBLISH_SECS
    driven.coordinator.is_ready()
    assert published(world) == 15
    driven.clock.now += PUBLISH_SECS
    driven.coordinator.is_ready()
    driven.coordinator.close()
    assert world.questions.count("store") == 2


def test_offsets_of_an_attempt_that_was_replaced_are_not_published(world):
    """What an opaque spout took in the attempt that was committed counts."""
    opaque = Opaque(world, publish_group="shown")
    world.append("t", [b"x"] * 25, 0)
    for _ in range(2):
        opaque.take()
    (key,) = opaque.metadata
    opaque.coordinator.resume(1, {key: {"start": 0, "end": 4}})
    opaque.coordinator.cleanup_before(2)
    assert published(world) == 4


def test_offsets_of_what_an_earlier_run_began_are_published(world):
    """When they are committed, though nothing new is there to take."""
    world.append("t", [b"x"] * 5, 0)
    driven = Driven(world)
    driven.begin()
    later = Driven(world, txid=1, metadata=driven.metadata, publish_group="shown")
    later.coordinator.cleanup_before(2)
    assert published(world) == 5


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_after_a_rewind_the_published_group_goes_back(world, kind):
    """The next run publishes where it begins, which is behind what was published before."""
    make = Driven if kind == "transactional" else Opaque
    world.append("t", [b"x"] * 25, 0)
    driven = make(world, publish_group="shown")
    metadata = []
    for _ in range(3):
        driven.take()
        metadata.append(dict(driven.metadata))
    driven.coordinator.cleanup_before(4)
    driven.coordinator.close()
    assert published(world) == 25
    later = make(world, publish_group="shown")
    assert later.coordinator.rewind(1, metadata[0], metadata[1:])
    later.coordinator.close()
    assert published(world) == 25, "asking changes nothing"
    resumed = make(world, txid=1, metadata=metadata[0], publish_group="shown")
    resumed.coordinator.cleanup_before(2)
    assert published(world) == 10


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_a_rewind_is_refused_if_records_are_gone(world, kind):
    """It names the offsets; unless lost records are to be skipped. And before the first transaction, if the spout would
    begin elsewhere now."""
    make = Driven if kind == "transactional" else Opaque
    world.append("t", [b"x"] * 25, 0)
    driven = make(world)
    metadata = []
    for _ in range(3):
        driven.take()
        metadata.append(dict(driven.metadata))
    none = None if kind == "transactional" else {}
    world.delete_records("t", {0: 15})
    assert make(world).coordinator.rewind(3, metadata[2], [])
    for kept, last in ((1, metadata[0]), (0, none)):
        with pytest.raises(InputError, match=f"are gone .*, partition 0: offsets {kept * 10} to 14"):
            make(world).coordinator.rewind(kept, last, metadata[kept:])
    assert make(world, on_lost="skip").coordinator.rewind(1, metadata[0], metadata[1:])
    for txid in [0] if kind == "transactional" else [0, 2]:  # it may have taken nothing while another spout has
        with pytest.raises(InputError, match="first_poll is 'latest'"):
            make(world, first_poll="latest").coordinator.rewind(txid, none, metadata)


def test_a_group_that_cannot_be_published_to_is_no_failure(world, caplog):
    world.append("t", [b"x"] * 5, 0)
    driven = Driven(world, publish_group="shown")
    driven.begin()
    world.is_down = True
    driven.coordinator.cleanup_before(2)
    assert "could not be published" in caplog.text
    world.is_down = False
    driven.coordinator.close()
    assert published(world) == 5


class Opaque(Driven):
    """An opaque spout that a test drives; its metadata is that of each partition."""

    kind = OpaqueInMemory

    def __init__(self, world, topics="t", *, metadata=None, **options):
        super().__init__(world, topics, metadata=dict(metadata or {}), **options)

    def take(self):
        """Go on to the next transaction, and emit it."""
        self.txid += 1
        return self.emit()

    def emit(self, tries=1):
        """Emit a batch; return its tuples, and keep its metadata."""
        attempt = TransactionAttempt(1, attempt_number(1, tries - 1))
        collector = RecordingCollector(attempt, self.spout.output_fields)
        emitter = self.spout.emitter({}, PlainContext())
        for partition in self.coordinator.partitions():
            key = partition_key(partition)
            metadata = emitter.emit_batch(attempt, collector, partition, self.metadata.get(key))
            if metadata is not None:
                self.metadata[key] = metadata
        self.coordinator.resume(max(1, self.txid), self.metadata)
        return [tuple(values[1:]) for values in collector.tuples]


@pytest.mark.parametrize("kind", [Driven, Opaque])
def test_a_pattern_that_matches_nothing(world, caplog, kind):
    """Stops a run that is to end, which would seem to have succeeded; an endless one waits, with one warning."""

    with pytest.raises(InputError, match=r"no topic of Kafka matches the pattern '\^clicks-'; there are: 't'\. "):
        kind(world, "^clicks-", until_end=True)
    driven = Driven(world, "^clicks-")
    for _ in range(3):
        assert not driven.coordinator.is_ready()
        driven.look_again()
    assert caplog.text.count("no topic of Kafka matches") == 1
    world.create_topic("clicks-")
    world.append("clicks-", [b"x"])
    assert driven.begin() == {"clicks--0": (0, 1)}


def test_opaque_leaves_a_partition_that_cannot_be_read_for_later(world):
    """It fails the attempt; the next one takes the others."""
    for partition in (0, 1):
        world.append("t", [b"x"] * 2, partition)
    opaque = Opaque(world)
    assert opaque.coordinator.is_ready()  # both have a leader
    world.leaderless.add(TopicPartition("t", 0))
    with pytest.raises(FailedException, match="no leader"):
        opaque.emit()
    assert opaque.emit(tries=2) == [("t", 1, 0), ("t", 1, 1)]
    world.leaderless.clear()
    assert opaque.coordinator.lag() == 2
    assert opaque.emit() == [("t", 0, 0), ("t", 0, 1)]
    assert opaque.coordinator.lag() == 0


@pytest.mark.parametrize("gone", [1, 4])
def test_opaque_goes_on_where_the_log_begins(world, caplog, gone):
    """Lost records fail the attempt, which is reported; the next one goes on behind them, and tells the audit."""
    world.append("t", [b"x"] * 6, 0)
    opaque = Opaque(world)
    opaque.coordinator.partitions()
    world.delete_records("t", {0: gone})
    told = rf"offsets 0 to {gone - 1} .* The next attempt goes on at offset {gone}"
    with pytest.raises(ReportedFailedException, match=told):
        opaque.emit()
    assert opaque.emit(tries=2) == [("t", 0, offset) for offset in range(gone, 6)]
    assert f"offsets 0 to {gone - 1} " in caplog.text
    assert "they are skipped" in caplog.text
    assert opaque.spout.input_skipped(opaque.metadata, None) == {"t-0": [(0, gone)]}


def test_opaque_reaches_its_end_if_all_that_was_left_is_gone(world):
    world.append("t", [b"x"] * 5, 0)
    opaque = Opaque(world, until_end=True)
    opaque.take()
    world.append("t", [b"x"] * 3, 0)
    later = Opaque(world, until_end=True, txid=1, metadata=opaque.metadata)
    assert not later.coordinator.is_exhausted()
    world.delete_records("t", {0: 8})
    assert later.emit(tries=2) == []
    assert later.coordinator.is_exhausted()


def test_opaque_begins_no_more_transactions_than_there_are_records(world):
    """What they take is known only when they are emitted, but not that they would be empty."""
    world.append("t", [b"x"] * 15, 0)
    opaque = Opaque(world)
    assert opaque.coordinator.is_ready()
    opaque.coordinator.partitions()
    assert opaque.coordinator.is_ready()
    opaque.coordinator.partitions()
    assert not opaque.coordinator.is_ready()
    opaque.coordinator.resume(0, {})
    assert opaque.coordinator.is_ready()


def test_opaque_pauses_while_nothing_can_be_read(world):
    """Empty transactions do not follow each other without a pause, which grows."""
    world.append("t", [b"x"] * 15, 0)
    opaque = Opaque(world)
    for txid, pause in ((1, 0.2), (2, 0.4)):
        assert opaque.coordinator.is_ready()
        opaque.coordinator.resume(txid, {})
        assert not opaque.coordinator.is_ready()
        opaque.clock.now += pause
    assert opaque.coordinator.is_ready()
    assert len(opaque.emit()) == 10
    assert opaque.coordinator.is_ready()


def test_opaque_begins_once(world):
    """With the latest, too: an empty transaction makes durable where that was."""
    world.append("t", [b"x"] * 3, 0)
    opaque = Opaque(world, first_poll="latest")
    assert opaque.coordinator.is_ready()
    assert opaque.emit() == []
    assert not opaque.coordinator.is_ready()
    world.append("t", [b"x"] * 2, 0)
    later = Opaque(world, first_poll="latest", txid=1, metadata=opaque.metadata)
    assert later.coordinator.is_ready()
    assert later.emit() == [("t", 0, 3), ("t", 0, 4)]


@pytest.mark.parametrize("first_poll", [5_000, "group:stored"])
def test_opaque_keeps_where_each_partition_begins(world, first_poll):
    """Also of one that the first transaction takes nothing of: to a later run it would look new."""
    for partition in (0, 1):
        world.append("t", [b"x"] * 3, partition, timestamp_ms=1_000)
        world.store("stored", {TopicPartition("t", partition): StoredOffset(3)})
    world.append("t", [b"x"], 0, timestamp_ms=9_000)
    opaque = Opaque(world, first_poll=first_poll)
    assert opaque.coordinator.is_ready()
    assert opaque.take() == [("t", 0, 3)]
    world.append("t", [b"x"], 1)
    later = Opaque(world, first_poll=first_poll, txid=1, metadata=opaque.metadata)
    assert later.take() == [("t", 1, 3)]


def test_opaque_keeps_where_a_partition_begins_that_it_leaves_for_later(world):
    for partition in (0, 1):
        world.append("t", [b"x"] * 3, partition)
    opaque = Opaque(world, first_poll="latest")
    assert opaque.coordinator.is_ready()
    world.leaderless.add(TopicPartition("t", 1))
    assert opaque.emit(tries=2) == []
    world.leaderless.clear()
    world.append("t", [b"x"], 1)
    later = Opaque(world, first_poll="latest", txid=1, metadata=opaque.metadata)
    assert later.take() == [("t", 1, 3)]


def test_opaque_keeps_the_key_of_a_partition(world):
    """Over runs: under another one, where it ended would be found nowhere."""
    world.append("t", [b"x"] * 5, 0)
    opaque = Opaque(world)
    opaque.take()
    world.append("t", [b"x"] * 2, 0)
    later = Opaque(world, txid=opaque.txid, metadata=opaque.metadata)
    assert len(later.take()) == 2
    assert later.metadata.keys() == opaque.metadata.keys()


def test_opaque_does_not_leave_for_later_what_it_has_emitted_a_part_of(world, monkeypatch):
    """The attempt fails: otherwise the part would be emitted again with the rest."""
    world.append("t", [b"x"] * 5, 0)
    opaque = Opaque(world)
    assert opaque.coordinator.is_ready()
    read = MemoryLogReader.read

    def breaks_off(self, spans, on_lost):
        yield from read(self, spans, on_lost)
        raise SourceFailure("the leader is gone")

    monkeypatch.setattr(MemoryLogReader, "read", breaks_off)
    with pytest.raises(SourceFailure, match="the leader is gone"):
        opaque.emit(tries=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_records_max": 0}, "batch_records_max is 0"),
        ({"batch_records_max": True}, "batch_records_max is True"),
        ({"first_poll": "begin"}, "first_poll is 'begin'"),
        ({"first_poll": dt.datetime(2024, 1, 1)}, "first_poll is"),  # noqa: DTZ001 - that is the mistake
        ({"on_lost": "ignore"}, "on_lost is 'ignore'"),
        ({"properties": {"isolation.level": "read_uncommitted"}}, "'isolation.level' is set by txtopo"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ConfigError, match=message):
        TransactionalKafkaSpout("localhost:9092", "t", **options)


WITHOUT_CLIENT = """
import sys
sys.modules["confluent_kafka"] = None
import spouts
from spouts.kafka import OpaqueKafkaSpout, TransactionalKafkaSpout
from txtopo.errors import ConfigError
from txtopo.testing import PlainContext
try:
    TransactionalKafkaSpout("s:1", "t").coordinator({}, PlainContext())
except ConfigError as error:
    print(error)
"""


@pytest.mark.slow
def test_without_the_client():
    """Everything imports without confluent-kafka; whoever wants to connect is told how to install it."""
    said = subprocess.run([sys.executable, "-c", WITHOUT_CLIENT], capture_output=True, text=True, check=True, cwd=ROOT)
    assert said.stdout == "the spout needs confluent-kafka: in txtopo's checkout, .venv/bin/pip install '.[kafka]'\n"


@pytest.mark.parametrize("kind", [TransactionalKafkaSpout, OpaqueKafkaSpout])
def test_a_fork_publishes_to_no_group(kind):
    """The group is the original's, whose spout stays as it is."""
    spout = kind("broker:9092", "clicks", publish_group="shown")
    assert (spout.forked().publish_group, spout.publish_group) == (None, "shown")
