"""Races: the simulator on a topology with joins, branches, failures and a cycle, for whatever order there may be."""

import random
from collections import deque

import pytest

from txtopo import Fields, RichBolt, Spout, TopologyBuilder
from txtopo.testing.checkers import Violation
from txtopo.testing.simulation.plain.ledger import Account, Ledger
from txtopo.testing.simulation.plain.watching import Fault
from txtopo.testing.simulation.plain.world import PlainSubject
from txtopo.testing.simulation.schedules import run_schedules

DEPTH_MAX = 4
FIELDS = Fields("key", "depth")


class Numbers(Spout):
    """Emits so many numbers, and each again until it is acked."""

    output_fields = FIELDS

    def open(self, config, context, collector):
        self.collector = collector
        self.waiting = deque(range(context.this_task_index, 8, len(context.component_tasks("spout"))))

    def next_tuple(self):
        if self.waiting:
            number = self.waiting.popleft()
            self.collector.emit([number, 0], message_id=number)

    def fail(self, message_id):
        self.waiting.append(message_id)

    def is_exhausted(self):
        return not self.waiting


class Tangle(RichBolt):
    """Holds tuples, anchors to some of them, fails some, and lets all go on a tick."""

    output_fields = FIELDS

    def component_configuration(self):
        return {"topology.tick.tuple.freq.secs": 0.5}

    def prepare(self, config, context, collector):
        self.collector, self.held = collector, []
        self.random = random.Random(context.this_task_id)

    def execute(self, tuple):
        if tuple.source_component == "__system":
            self.let_go(share=1.0)
            return
        self.held.append(tuple)
        for _ in range(self.random.choice([0, 0, 1, 1, 2]) if tuple["depth"] < DEPTH_MAX else 0):
            anchors = self.random.sample(self.held, self.random.randint(1, min(3, len(self.held))))
            self.collector.emit([tuple["key"], max(anchor["depth"] for anchor in anchors) + 1], anchors)
        if self.random.random() < 0.02:
            self.collector.fail(self.held.pop(self.random.randrange(len(self.held))))
        self.let_go(share=0.6)

    def let_go(self, share):
        while self.held and self.random.random() < share:
            self.collector.ack(self.held.pop(self.random.randrange(len(self.held))))


class TangleOfMany(Tangle):
    """The same, of many tuples in one call."""

    def execute_batch(self, tuples):
        for each in tuples:
            self.execute(each)


def tangle(bolt=Tangle):
    """Return the topology: a and c feed each other, b's tuples go to all of c."""
    builder = TopologyBuilder("tangle")
    builder.set_spout("spout", Numbers(), 2)
    a = builder.set_bolt("a", bolt(), 3).shuffle_grouping("spout")
    a.fields_grouping("c", Fields("key"))
    builder.set_bolt("b", bolt(), 2).local_or_shuffle_grouping("a")
    builder.set_bolt("c", bolt(), 2).all_grouping("b").shuffle_grouping("spout")
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "seeds"),
    [
        ((Fault.KILLS, Fault.ERRORS, Fault.PAUSES), range(1, 101)),
        (tuple(Fault), range(201, 301)),
        pytest.param((Fault.KILLS, Fault.PAUSES), range(101, 3_000), marks=pytest.mark.long),
        pytest.param(tuple(Fault), range(3_001, 8_000), marks=pytest.mark.long),
    ],
)
def test_every_promise_holds(kinds, seeds):
    """Promise 18 and its neighbours: whoever dies, and whoever knows of it when, and whatever is lost or doubled."""
    result = run_schedules(PlainSubject(tangle(), roots=20), seeds, kinds)
    assert [(failure.seed, failure.violation, failure.faults) for failure in result.failures] == []
    assert {kind.value for kind in kinds} == set(result.faults)


@pytest.mark.slow
def test_every_promise_holds_of_many():
    """The same with bolts that take many tuples at once."""
    result = run_schedules(PlainSubject(tangle(TangleOfMany), roots=20), range(1, 101))
    assert [(failure.seed, failure.violation, failure.faults) for failure in result.failures] == []


def acks_too_early(ledger, account, root):
    ledger.root_acked(account, root)


def tells_twice(ledger, account, root):
    root.open.clear()
    ledger.root_acked(account, root)
    ledger.root_failed(account, root)


def fails_for_nothing(ledger, account, root):
    ledger.root_failed(account, root)


def rests_with_a_root_that_nobody_holds(ledger, account, root):
    ledger.check_at_rest([account])


def rests_with_a_root_that_touched_the_dead(ledger, account, root):
    ledger.dead.add(1)
    ledger.check_at_rest([account])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (acks_too_early, "with 1 tuples of its tree open"),
        (tells_twice, "was failed after it was acked"),
        (fails_for_nothing, "without a reason"),
        (rests_with_a_root_that_nobody_holds, "no task holds a tuple of it"),
        (rests_with_a_root_that_touched_the_dead, "promise 18"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_ledger_objects(wrong, says):
    """A root that a spout task has emitted to task 7 in generation 1: the simulator sees what must not become of it."""
    ledger, account = Ledger(lambda: 1.0, 4, is_acking=True, components={7: "bolt"}), Account(0)
    root = ledger.begin("message")
    ledger.sent_root(account, root, ledger.token(), [7], [1])
    with pytest.raises(Violation, match=says):
        wrong(ledger, account, root)
