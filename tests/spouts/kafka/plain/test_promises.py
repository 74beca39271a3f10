"""KafkaSpout beyond Storm's cases: promises under kills, rebalances and refusals, and what Storm's spout is weak at."""

import logging
import random
from collections import Counter

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings, strategies as st

from spouts.kafka.log import StoredOffset, TopicPartition
from spouts.kafka.plain.config import KafkaTupleListener
from spouts.kafka.plain.dead_letters import DeadLetter, DeadLetterHook
from spouts.kafka.plain.progress import CommitMetadata
from spouts.kafka.plain.retries import ExponentialBackoff
from spouts.kafka.plain.translators import DefaultRecordTranslator
from tests.budgets import examples
from tests.spouts.kafka.plain.rig import GROUP, P1, TOPIC, Clock, Rig, filled
from txtopo.api.data.fields import Fields
from txtopo.errors import InputError, SourceFailure
from txtopo.testing.memory_log import LogCall, MemoryLog


class Noting(KafkaTupleListener):
    """Keeps what it learns; each test begins with nothing."""

    def __init__(self):
        self.seen = []

    def on_emit(self, values, message_id):
        self.seen.append(("emit", message_id.offset))

    def on_ack(self, message_id):
        self.seen.append(("ack", message_id.offset))

    def on_retry(self, message_id):
        self.seen.append(("retry", message_id.offset))

    def on_max_retry_reached(self, message_id):
        self.seen.append(("max", message_id.offset))

    def on_partitions_reassigned(self, partitions):
        self.seen.append(("partitions", len(partitions)))

    def on_metrics(self, metrics):
        self.seen.append(("lag", metrics["test/totalSpoutLag"]))


def seen(rig):
    return rig.spout.config.tuple_listener.seen


def test_worked_example():
    """11 to 18 are emitted, 14 fails: 14 is committed, comes again alone, and then 19 is committed. (K1)"""
    log = filled(19)
    log.store(GROUP, {P1: StoredOffset(11, CommitMetadata("topology").to_json())})
    rig = Rig(log, batch_records_max=10)
    emitted = rig.call(8)
    assert [each.offset for each in emitted] == list(range(11, 19))
    rig.ack([each for each in emitted if each.offset != 14])
    rig.fail([each for each in emitted if each.offset == 14])
    rig.asked()
    rig.advance(2_500)
    again = rig.call(10)
    assert rig.committed() == 14
    assert [each.offset for each in again] == [14]
    assert LogCall("seek", (P1, 14)) in log.calls
    rig.ack(again)
    assert rig.commits() == 19


@attrs.define(eq=False)
class Member:
    """A spout task in the model, and its tuples that are pending."""

    rig: Rig
    pending: list = attrs.field(factory=list)
    taken: int = 0

    def call(self, times=1):
        self.rig.call(times)
        self.pending.extend(self.rig.emitted[self.taken :])
        self.taken = len(self.rig.emitted)


class Model:
    """Three partitions, a group of up to three members, and everything that may go wrong; what is true of them."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.log = MemoryLog()
        self.log.create_topic(TOPIC, 3)
        self.partitions = [TopicPartition(TOPIC, number) for number in range(3)]
        self.clock = Clock()
        self.members = []
        self.processed = set()
        self.join()

    def join(self):
        if len(self.members) < 3:
            settings = {
                "subscribe": True,
                "max_uncommitted_offsets": 20,
                "retry_service": ExponentialBackoff(0, 50, delay_max_ms=1_000),
            }
            self.members.append(Member(Rig(self.log, clock=self.clock, **settings)))

    def leave(self):
        if len(self.members) > 1:
            self.members.pop(self.rng.randrange(len(self.members))).rig.spout.close()

    def kill(self):
        if len(self.members) > 1:
            member = self.members.pop(self.rng.randrange(len(self.members)))
            member.rig.expire()

    def expire(self):
        self.rng.choice(self.members).rig.expire()

    def append(self):
        self.log.append(TOPIC, ["x"] * self.rng.randint(1, 15), self.rng.randrange(3))

    def markers(self):
        self.log.skip(TOPIC, self.rng.randint(1, 3), self.rng.randrange(3))

    def compact(self):
        partition = self.rng.choice(self.partitions)
        records = self.log.records(TOPIC, partition.partition)
        gone = {record.offset for record in records if self.rng.random() < 0.3}
        self.log.compact(TOPIC, gone, partition.partition)

    def call(self):
        self.rng.choice(self.members).call(self.rng.randint(1, 12))

    def settle(self, failing=0.2):
        member = self.rng.choice(self.members)
        self.rng.shuffle(member.pending)
        for _ in range(min(len(member.pending), self.rng.randint(1, 10))):
            each = member.pending.pop()
            if self.rng.random() < failing:
                member.rig.fail([each])
            else:
                self.processed.add((each.id.partition, each.offset))
                member.rig.ack([each] * self.rng.choice([1, 1, 2]))  # a second ack changes nothing (ST3)

    def advance(self):
        self.clock.ms += self.rng.choice([10, 300, 2_500])

    def refuse(self):
        self.log.refuse(self.rng.choice(["poll", "commit", "seek", "stored", "ends", "topics"]))

    def pause(self):
        rig = self.rng.choice(self.members).rig
        rig.spout.deactivate()
        rig.spout.activate()

    def late(self):
        """What was offloaded is carried out later."""
        context = self.rng.choice(self.members).rig.context
        context.holds = not context.holds
        if not context.holds:
            context.run_offloaded()

    STEPS = (append, call, settle, advance, compact, markers, refuse, pause, late, join, leave, kill, expire)
    WEIGHTS = (2, 4, 3, 2, *[1] * 9)

    def step(self):
        (step,) = self.rng.choices(self.STEPS, self.WEIGHTS)
        step(self)
        self.check()

    def check(self):
        committed = self.log.committed(GROUP)
        for partition in self.partitions:
            unprocessed = [
                record.offset
                for record in self.log.records(TOPIC, partition.partition)
                if (partition, record.offset) not in self.processed
            ]
            if unprocessed and partition in committed:
                assert committed[partition].offset <= unprocessed[0], f"{partition}: {unprocessed[0]} is not processed"

    def quiesce(self):
        """Let nothing fail any more, and wait until all is committed."""
        self.log._refusals.clear()
        for member in self.members:
            member.rig.context.holds = False
            member.rig.context.run_offloaded()
        for _ in range(200):
            self.clock.ms += 2_500
            for member in self.members:
                member.call(100)
                self.processed.update((each.id.partition, each.offset) for each in member.pending)
                member.rig.ack(member.pending)
                member.pending.clear()
            self.check()
            if self.is_committed():
                return
        pytest.fail(f"committed {self.log.committed(GROUP)}, and the log ends at {self.log.end_offsets(TOPIC)}")

    def is_committed(self):
        committed = self.log.committed(GROUP)
        ends = self.log.end_offsets(TOPIC)
        return all(
            ends[partition.partition] == (committed[partition].offset if partition in committed else 0)
            for partition in self.partitions
        )


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32))
def test_random_histories(seed):
    """Whatever happens, no offset is committed before all below it is processed; in the end everything is. (K2, K6, K7)"""
    model = Model(seed)
    for _ in range(120):
        model.step()
    model.quiesce()
    for partition in model.partitions:
        for record in model.log.records(TOPIC, partition.partition):
            assert (partition, record.offset) in model.processed


@pytest.mark.parametrize("calls", range(0, 40, 3))
def test_killed_at_every_step(calls):
    """After a kill nothing is missing that was not committed; only what was not committed comes again. (K3)"""
    log = filled(30)
    rig = Rig(log)
    processed = Counter()
    for number in range(calls):
        for each in rig.call():
            if number % 4 != 3:
                processed[each.offset] += 1
                rig.ack([each])
        rig.advance(700)
    committed = rig.committed() or 0
    successor = Rig(log)
    again = successor.call(100)
    assert {each.offset for each in again} | set(processed) == set(range(30))
    assert min((each.offset for each in again), default=30) >= committed
    successor.ack(again)
    assert successor.commits() == 30


def test_poison_record_is_counted_out():
    """With a bound, a poison record is reported and given up, and commits go on behind it. (K4, K5, W3)"""
    rig = Rig(filled(3), retry_service=ExponentialBackoff(0, 0, retries_max=3), tuple_listener=Noting())
    fails = []
    for _ in range(20):
        for each in rig.call():
            if each.offset == 1:
                fails.append(each.id.fails)
                rig.fail([each])
            else:
                rig.ack([each])
    assert fails == [0, 1, 2, 3]
    assert Counter(rig.offsets) == {0: 1, 1: 4, 2: 1}
    assert seen(rig).count(("max", 1)) == 1
    assert seen(rig).count(("retry", 1)) == 3
    assert rig.commits() == 3
    (error,) = rig.collector.errors
    assert "topic 'test', partition 0, offset 1: given up, it failed 4 times" in str(error)


class Kept(DeadLetterHook):
    """Keeps letters, or refuses them."""

    letters: list = []  # noqa: RUF012 - shared with the test
    refuses = False

    def take(self, letters):
        if Kept.refuses:
            raise OSError("the disk is full")
        Kept.letters.extend(letters)


@pytest.fixture
def kept():
    Kept.letters.clear()
    Kept.refuses = False
    return Kept


NEVER_AGAIN = ExponentialBackoff(0, 0, retries_max=0)


def test_dead_letters(kept):
    """A record that is given up goes to the hook as it is; its offset is committed when the hook has it. (W3)"""
    rig = Rig(filled(2), retry_service=NEVER_AGAIN, dead_letter=Kept())
    rig.context.holds = True
    emitted = rig.call(2)
    rig.fail(emitted)
    assert len(rig.context.offloaded) == 1, "the hook is called for one after the other"
    rig.spout.deactivate()
    assert rig.committed() is None, "the hook has not taken them yet"
    rig.context.run_offloaded()
    rig.spout.deactivate()
    assert rig.committed() == 2
    assert [(letter.record.value, letter.fails) for letter in kept.letters] == [(b"0", 1), (b"1", 1)]
    assert rig.collector.errors == []


def test_dead_letters_refused(kept):
    """If the hook raises, the record is processed again, and offered again if it fails again."""
    rig = Rig(filled(1), retry_service=NEVER_AGAIN, dead_letter=Kept())
    kept.refuses = True
    rig.fail(rig.call())
    assert "the disk is full" in str(rig.collector.errors[0])
    assert rig.call(3) == []
    rig.advance(10_000)
    kept.refuses = False
    rig.fail(rig.call())
    assert [letter.fails for letter in kept.letters] == [2]
    assert rig.commits() == 1


def test_dead_letters_of_a_lost_partition(kept):
    """A letter that is taken after its partition was lost changes nothing for the new owner."""
    rig = Rig(filled(1), retry_service=NEVER_AGAIN, dead_letter=Kept(), subscribe=True)
    rig.call(2)
    rig.context.holds = True
    rig.fail(rig.emitted)
    rig.expire()
    rig.call(2)
    rig.context.run_offloaded()
    assert rig.commits() is None
    assert rig.offsets == [0, 0]


def test_unreadable_records(kept):
    """A record that no tuple can be made of goes to the hook; without one it ends the worker, which names it."""
    log = filled(1)
    log.put(P1, None, b"\xff")
    log.append(TOPIC, ["fine"])
    rig = Rig(log, translator=DefaultRecordTranslator(Fields("value")), dead_letter=Kept())
    rig.ack(rig.call(3))
    assert [each.values for each in rig.emitted] == [("0",), ("fine",)]
    (letter,) = kept.letters
    assert letter == DeadLetter(letter.record, 0, letter.reason)
    assert letter.record.value == b"\xff"
    assert "UnicodeDecodeError" in letter.reason
    assert rig.commits() == 3
    strict = Rig(log, topology_id="strict", translator=DefaultRecordTranslator(Fields("value")))
    with pytest.raises(InputError, match="topic 'test', partition 0, offset 1: no tuple can be made of it: Unicode"):
        strict.call(3)


class Asking(DefaultRecordTranslator):
    """Asks a registry about offset 1."""

    is_answered = True

    def apply(self, record):
        if record.offset == 1 and not Asking.is_answered:
            raise SourceFailure("the registry does not answer")
        return super().apply(record)


@pytest.mark.parametrize("settings", [{}, {"processing_guarantee": "AT_MOST_ONCE"}, {"subscribe": True}])
def test_a_registry_that_does_not_answer(kept, monkeypatch, settings):
    """It says nothing of the record, which is no letter: nothing is emitted or committed past it until it answers."""
    monkeypatch.setattr(Asking, "is_answered", False)
    rig = Rig(filled(3), translator=Asking(Fields("value")), dead_letter=Kept(), **settings)
    call = lambda: rig.ack([each for each in rig.call(10) if each.id])
    call()
    assert [each.values for each in rig.emitted] == [("0",)]
    assert [str(error) for error in rig.collector.errors] == ["the registry does not answer"]
    assert rig.commits() == (3 if "processing_guarantee" in settings else 1)  # at most once: what was polled
    call()
    monkeypatch.undo()
    rig.advance(3_000)
    call()
    assert ([each.values for each in rig.emitted], kept.letters) == ([("0",), ("1",), ("2",)], [])
    assert rig.commits() == 3


def test_a_letter_holds_no_secret(kept):
    """Nor does the hook get one: a translator may say with what it failed to reach a registry."""

    class Refusing(DefaultRecordTranslator):
        def apply(self, record):
            raise OSError("https://me:hunter2@registry is down")

    rig = Rig(filled(1), translator=Refusing(Fields("value")), dead_letter=Kept())
    rig.call(1)
    assert [letter.reason for letter in kept.letters] == [
        "no tuple can be made of it: OSError: https://…@registry is down"
    ]


def test_dead_letter_table(tmp_path):
    """A path means a Delta table with the bytes of the records; a function is called for each letter."""
    rig = Rig(filled(2), retry_service=NEVER_AGAIN, dead_letter=str(tmp_path / "dead"))
    rig.fail(rig.call(2))
    rows = pa.table(DeltaTable(str(tmp_path / "dead")).scan()).to_pylist()
    found = sorted(
        (row["topic"], row["partition"], row["offset"], row["key"], row["value"], row["reason"]) for row in rows
    )
    assert found == [
        (TOPIC, 0, number, str(number).encode(), str(number).encode(), "it failed 1 times") for number in (0, 1)
    ]


def test_late_failure_of_an_earlier_assignment():
    """A failure from before a rebalance does not touch the tuple of the same record that was emitted since. (K7, W4)"""
    rig = Rig(filled(1), subscribe=True, tuple_listener=Noting())
    rig.call()
    (old,) = rig.call()
    rig.expire()
    rig.call()
    rig.call()
    new = rig.emitted[-1]
    assert new is not old
    assert (old.offset, new.offset) == (0, 0)
    rig.fail([old])
    assert ("retry", 0) not in seen(rig)
    rig.ack([old])
    assert seen(rig)[-1] == ("ack", 0), "the listener learns it all the same"
    assert rig.commits() is None, "the live one is pending"
    rig.ack([new])
    assert rig.commits() == 1


def test_cap_of_emissions():
    """At most the limit and a poll less one are emitted in a partition without a commit. (K8)"""
    for limit, poll in [(1, 5), (7, 5), (10, 5), (10, 1), (13, 9)]:
        rig = Rig(filled(100), max_uncommitted_offsets=limit, batch_records_max=poll)
        emitted = len(rig.call(200))
        assert limit <= emitted <= limit + poll - 1


def test_at_most_once_killed():
    """A kill between commit and emission loses the record; none comes twice. (K9)"""
    log = filled(10)
    rig = Rig(log, processing_guarantee="at_most_once")
    first = rig.call(2)
    assert rig.committed() == 5
    successor = Rig(log, processing_guarantee="at_most_once")
    rest = successor.call(20)
    assert [each.values[1] for each in (*first, *rest)] == ["0", "1", "5", "6", "7", "8", "9"]


def test_at_most_once_without_commit():
    """What could not be committed is not emitted; it is read again."""
    rig = Rig(filled(3), processing_guarantee="at_most_once")
    rig.log.refuse("commit")
    assert rig.call() == []
    assert [each.values[1] for each in rig.call(5)] == ["0", "1", "2"]
    assert isinstance(rig.collector.errors[0], SourceFailure)


def test_commits_while_nothing_is_asked_for():
    """No call, no commit; but acks alone suffice, so that a spout whose pending is full commits too. (K11, W7)"""
    rig = Rig(filled(5))
    emitted = rig.call(5)
    rig.advance(600_000)
    assert rig.committed() is None
    rig.ack(emitted[:1])
    assert rig.committed() == 1


def test_clean_handover_repeats_nothing():
    """What is acked above a gap is not emitted again by the next owner of a partition. (W1)"""
    log = filled(10)
    rig = Rig(log, batch_records_max=10)
    emitted = rig.call(8)
    rig.ack([each for each in emitted if each.offset != 4])
    rig.spout.close()
    assert rig.committed() == 4
    heir = Rig(log, batch_records_max=10)
    again = heir.call(20)
    assert [each.offset for each in again] == [4, 8, 9]
    heir.ack(again)
    assert heir.commits() == 10


def test_acked_ranges_beyond_the_log():
    """Nothing is acked that is not in the log yet, whatever a commit says: it is emitted when it comes."""
    log = filled(10)
    log.store(GROUP, {P1: StoredOffset(4, CommitMetadata("topology", acked=[(5, 20)]).to_json())})
    rig = Rig(log)
    assert [each.offset for each in rig.call(20)] == [4]
    log.append(TOPIC, ["new"])
    assert [each.offset for each in rig.call(20)] == [10]


def test_poison_record_does_not_read_everything_again():
    """After a retry, reading goes on where it was: what lies between is not fetched once more. (W2)"""
    log = filled(1_000)
    rig = Rig(log, max_uncommitted_offsets=10_000, retry_service=ExponentialBackoff(1_000, 0, delay_max_ms=1_000))
    rig.fail(rig.call())
    rig.ack(rig.call(999))
    rig.asked()
    rig.advance(1_000)
    (again,) = rig.call(50)
    assert again.offset == 0
    assert rig.asked("seek") == [(P1, 0), (P1, 1_000)]


def test_slow_commit():
    """While a commit is under way tuples go on, and no second commit begins; then it counts."""
    rig = Rig(filled(12))
    rig.log.holds_answers = True
    rig.ack(rig.call(5))
    rig.ack(rig.commit_step())
    rig.ack(rig.call(5))
    rig.ack(rig.commit_step())
    assert rig.asked("commit") == [{P1: 5}]
    assert rig.completed() == 0
    rig.log.holds_answers = False
    rig.log.give_answers()
    assert rig.commits() == 12


def test_late_answer_to_a_commit():
    """What was committed later, and answered before, counts."""
    rig = Rig(filled(12))
    rig.log.holds_answers = True
    rig.ack(rig.call(5))
    rig.ack(rig.commit_step())
    rig.ack(rig.call(4))
    rig.spout.deactivate()
    rig.log.give_answers()
    rig.spout.activate()
    rig.call(1)
    assert rig.asked("commit") == [{P1: 5}, {P1: 10}]
    assert rig.completed() == 10


def test_broker_away():
    """While the broker does not answer, the spout reports that, each error once, and lives; then it goes on."""
    rig = Rig(filled(5))
    rig.ack(rig.call(2))
    rig.log.is_down = True
    rig.ack(rig.commit_step())
    rig.ack(rig.call(10))
    assert all(isinstance(error, SourceFailure) for error in rig.collector.errors)
    told = [str(error) for error in rig.collector.errors]
    assert len(set(told)) == len(told) > 0
    rig.log.is_down = False
    rig.ack(rig.call(10))
    rig.commit_step()
    assert rig.offsets == list(range(5))
    assert rig.committed() == 5


def test_log_end_without_records():
    """The group reaches the log end although the last offsets have no records, as after a transaction."""
    log = filled(3)
    log.skip(TOPIC, 2)
    rig = Rig(log)
    rig.ack(rig.call(5))
    assert rig.commits() == 5


def test_gone_records_are_logged(caplog):
    """Failed records that retention has removed count as done; the log says which."""
    log = filled(10)
    rig = Rig(log)
    rig.fail(rig.call(3))
    log.delete_records(TOPIC, {0: 2})
    with caplog.at_level(logging.WARNING):
        assert [each.offset for each in rig.call(3)] == [3, 4, 2]
    assert "2 failed records are gone (0 and later)" in caplog.text


def test_tasks_share_partitions():
    """Tasks take partitions in turn; together they read everything once."""
    log = filled(4, partitions=3)
    rigs = [Rig(log, tasks=2, index=index) for index in range(2)]
    emitted = [each.id for rig in rigs for each in rig.call(20)]
    assert len(set(emitted)) == len(emitted) == 12
    assert {each.partition.partition for each in emitted[:8]} == {0, 2}


def test_listener_learns_everything():
    """The listener learns of emissions, acks, retries and assignments, and of the metrics every so often."""
    rig = Rig(filled(2), tuple_listener=Noting())
    first, second = rig.call(2)
    rig.ack([first])
    rig.fail([second])
    rig.advance(60_500)
    rig.call()
    assert seen(rig) == [("partitions", 1), ("emit", 0), ("emit", 1), ("ack", 0), ("retry", 1), ("lag", 1), ("emit", 1)]


def test_default_group():
    """Without a group id, a spout has a group of its own by the names of topology and component."""
    rig = Rig(filled(1), group_id=None)
    rig.ack(rig.call())
    rig.spout.close()
    assert rig.log.committed("topology-spout")[P1].offset == 1


def test_acked_offsets_at_the_limit():
    """One failed offset with all behind it acked, more than the limit: it comes again, and everything goes on. (STORM-2343)"""
    after_a_minute = ExponentialBackoff(60_000, 0, delay_max_ms=60_000)
    rig = Rig(filled(30), max_uncommitted_offsets=10, retry_service=after_a_minute)
    emitted = rig.call(20)
    rig.ack(emitted[:1])
    emitted += rig.commit_step()
    emitted += rig.call(20)
    assert rig.offsets == list(range(15))
    rig.fail(emitted[1:2])
    rig.ack(emitted[2:])
    assert rig.commits() == 1
    assert rig.call(20) == []
    rig.advance(60_000)
    (again,) = rig.call(20)
    assert again.offset == 1
    rig.ack([again])
    assert rig.commits() == 15
    assert len(rig.call(20)) >= 9


def test_late_commit_does_not_follow_a_newer_one():
    """A periodic commit that begins only after a newer one was made is dropped."""
    rig = Rig(filled(10))
    rig.context.holds = True
    rig.ack(rig.call(5))
    rig.ack(rig.commit_step())
    rig.spout.deactivate()
    assert rig.committed() == 6
    rig.context.run_offloaded()
    assert rig.committed() == 6
    assert rig.completed() == 6


def test_seek_refused_after_a_commit():
    """If the position can't be moved behind a commit, what is read again is not emitted again. (STORM-2666)"""
    rig = Rig(filled(8))
    emitted = rig.call(8)
    rig.fail(emitted[:1])
    rig.ack(emitted[1:])
    rig.ack(rig.call())
    rig.log.refuse("seek")
    assert rig.commits() == 8
    assert rig.call(20) == []
    assert rig.offsets == [*range(8), 0]


def test_restored_ranges_do_not_fill_the_limit():
    """However much an earlier owner has acked above a gap, the gap itself is read."""
    log = filled(9)
    rig = Rig(log)
    rig.ack([each for each in rig.call(9) if each.offset not in {0, 6}])
    rig.spout.close()
    heir = Rig(log, max_uncommitted_offsets=3)
    (gap,) = heir.call(20)
    assert gap.offset == 0
    heir.ack([gap])
    assert [each.offset for each in [*heir.commit_step(), *heir.call(20)]] == [6]


def test_what_waits_longer_is_passed_by():
    """A message whose retry is not due yet is not emitted when it is read again for the sake of another one."""
    rig = Rig(filled(5), retry_service=ExponentialBackoff(0, 60_000, delay_max_ms=60_000))
    emitted = rig.call(5)
    rig.fail([emitted[2]])
    again = rig.call(5)
    rig.fail(again)
    rig.fail([emitted[0]])
    assert [each.offset for each in again + rig.call(6)] == [2, 0]
    rig.advance(120_000)
    assert [each.offset for each in rig.call(6)] == [2]


def test_records_are_kept_while_they_are_in_flight():
    """With a dead-letter hook, and no longer: acked ones would fill the memory."""
    rig = Rig(filled(20), dead_letter=Kept())
    rig.ack(rig.call(18))
    kept = rig.spout._reader.partitions[P1]
    with pytest.raises(KeyError):
        kept.record_in_flight(17)


@pytest.mark.parametrize("subscribe", [False, True])
def test_a_topic_made_anew_whose_log_is_longer(subscribe):
    """Its records below the next offset are emitted, too, and it is reported: its id says that they are others."""
    log = filled(5)
    rig = Rig(log, subscribe=subscribe)
    rig.ack(rig.call(6))
    log.delete_topic(TOPIC)
    log.create_topic(TOPIC)
    log.append(TOPIC, [("new", str(number)) for number in range(9)])
    rig.advance(2_500)
    new = [each for each in rig.call(12) if each.values[1] == "new"]
    assert {each.offset for each in new} == set(range(9))
    assert any("was deleted and created again" in str(error) for error in rig.collector.errors)
    rig.ack(new)
    assert rig.commits() == 9


def test_a_topic_made_anew_while_the_topology_is_down():
    """The commit's metadata has the id of the topic that the offset is of: another one is read from its beginning."""
    log = filled(5)
    rig = Rig(log)
    rig.ack(rig.call(5))
    rig.spout.close()
    log.delete_topic(TOPIC)
    log.create_topic(TOPIC)
    log.append(TOPIC, ["new"] * 9)
    later = Rig(log)
    assert [each.offset for each in later.call(9)] == list(range(9))
    assert "has committed 5, but the topic was deleted and created again; reading begins at 0" in str(
        later.collector.errors
    )


def test_a_late_answer_to_a_commit_of_a_former_topic():
    """It says nothing about the new one: none of its records is passed over."""
    log = filled(20)
    rig = Rig(log)
    rig.ack(rig.call(20))
    log.holds_answers = True
    rig.commit_step()
    log.delete_topic(TOPIC)
    log.create_topic(TOPIC)
    log.append(TOPIC, [("new", "new")] * 4)
    emitted = rig.call(2)
    log.give_answers()
    emitted += rig.call(4)
    assert [each.offset for each in emitted] == [0, 1, 2, 3]
    assert rig.spout.metrics()["test/partition_0/latestCompletedOffset"] == 0


def test_a_topic_made_anew_while_it_runs():
    """It is reported, and its records are emitted and committed; acks and failures of the former ones change nothing."""
    log = filled(20)
    rig = Rig(log, topics=TOPIC)
    former = rig.call(20)
    rig.ack(former[:12])
    rig.fail(former[12:14])
    assert rig.commits() == 12
    log.delete_topic(TOPIC)
    log.create_topic(TOPIC)
    log.append(TOPIC, [("new", "new")] * 4)
    emitted = [each for each in rig.call(15) if each.values[1] == "new"]
    assert [each.offset for each in emitted] == [0, 1, 2, 3]
    assert any("was created again" in str(error) for error in rig.collector.errors)
    rig.ack([each for each in former[14:] if each.offset > 13])
    rig.fail(former[12:14])
    rig.ack(emitted)
    assert rig.commits() == 4
