"""The worker: its passes, what it sends, and what it does when another worker dies."""

import sys
import threading
import time
import types
from collections.abc import Callable
from typing import ClassVar

import attrs
import pytest

from tests.plain.topologies import Alone, Clock, Pass, TwoArgumentsError
from tests.waiting import DEADLINE_SECS
from txtopo import (
    Fields,
    RichBolt,
    Spout,
    SpoutWaitStrategy,
    TopologyBuilder,
)
from txtopo.errors import FailedException, UserCodeError
from txtopo.plain.tasks.spouts import IDLE_STREAK, POLL_IDLE_SPOUT_SECS, POLL_SPOUT_SECS, SPOUT_CALLS_MAX
from txtopo.plain.worker import TIMERS_SECS


class Fed(Spout):
    """Emits what a test puts into it."""

    output_fields = Fields("word")

    def open(self, config, context, collector):
        self.waiting, self.told, self.calls = [], [], 0
        self.collector = collector

    def next_tuple(self):
        self.calls += 1
        if self.waiting:
            word, message_id = self.waiting.pop(0)
            self.collector.emit([word], message_id=message_id)

    def ack(self, message_id):
        self.told.append(("ack", message_id))

    def fail(self, message_id):
        self.told.append(("fail", message_id))

    def feed(self, *message_ids):
        self.waiting.extend((f"word {each}", each) for each in message_ids)


class Behind(Fed):
    """Knows how far it is behind its source, once it is open, and catches up in the end, as one that commits does."""

    def lag(self):
        return len(self.waiting)

    def close(self):
        self.waiting.clear()


class Released(Fed):
    """Can answer only until it is closed."""

    def open(self, config, context, collector):
        super().open(config, context, collector)
        self.source = ["a record"]

    def is_exhausted(self):
        return len(self.source) == 1

    def lag(self):
        return len(self.source)

    def close(self):
        del self.source


class Hold(RichBolt):
    """Keeps every tuple."""

    output_fields = Fields("word")

    def prepare(self, config, context, collector):
        self.held, self.collector = [], collector

    def execute(self, tuple):
        self.held.append(tuple)


class Waits(SpoutWaitStrategy):
    """Waits a hundredth of a second longer each time."""

    def empty_emit(self, streak):
        return streak / 100


def alone(bolt=None, config=None, workers=1, spouts=1, tasks=None, bolts=1) -> Alone:
    builder = TopologyBuilder("topology")
    declarer = builder.set_spout("spout", Fed(), spouts)
    if tasks is not None:
        declarer.set_num_tasks(tasks)
    if bolt is not None:
        builder.set_bolt("bolt", bolt, bolts).shuffle_grouping("spout")
    return Alone(builder.build(), config, workers)


def started(*given, **settings) -> tuple[Alone, Fed]:
    running = alone(*given, **settings)
    running.activate()
    return running, running.objects["spout"][0]


def test_throttled():
    """While too much waits anywhere nothing begins, and the spout need not be asked again; then it goes on."""
    running, spout = started(Pass())
    (worker,) = running.workers
    spout.feed(1)
    worker.set_throttled(is_throttled=True)
    running.run()
    assert (spout.calls, worker.idle_secs()) == (0, TIMERS_SECS)
    worker.set_throttled(is_throttled=False)
    running.run()
    assert spout.told == [("ack", 1)]


def test_a_worker_that_starts_while_the_topology_is_inactive():
    """It prepares its bolts for what is under way elsewhere; its spouts wait."""
    running = alone(Pass(), workers=2, spouts=2, bolts=2)
    first, second = (running.objects["spout"][n] for n in range(2))
    running.workers[0].set_active(is_active=True)
    first.feed(1, 2)
    running.run()
    assert sorted(first.told) == [("ack", 1), ("ack", 2)]
    assert not hasattr(second, "collector")


def test_wait_strategy():
    """SP4: it is asked once in each pass without an emission, with 1, 2, 3 …, and anew after one."""
    running, spout = started(Hold(), {"topology.spout.wait.strategy": Waits(), "topology.max.spout.pending": 2})
    worker = running.workers[0]

    def wait_after_pass() -> float:
        worker.run_pass()
        return worker.idle_secs()

    assert [wait_after_pass() for _ in range(3)] == [0.01, 0.02, 0.03]
    spout.feed(1, 2, 3)
    assert wait_after_pass() == TIMERS_SECS
    assert [wait_after_pass() for _ in range(3)] == [0.01, 0.02, 0.03]  # as many are pending as may be
    assert spout.waiting != []
    running.activate(is_active=False)
    assert wait_after_pass() == TIMERS_SECS


def test_no_wait_strategy():
    """Without a wait strategy a spout is asked again after a millisecond, and less often once it has been idle for long.

    One that waits for acks is not asked: they wake it up.
    """
    running, spout = started(Hold(), {"topology.max.spout.pending": 2})
    worker = running.workers[0]
    running.run()
    assert worker.idle_secs() == POLL_SPOUT_SECS
    for _ in range(IDLE_STREAK):
        worker.run_pass()
    assert worker.idle_secs() == POLL_IDLE_SPOUT_SECS
    spout.feed(1, 2, 3)
    running.run()
    assert worker.idle_secs() == TIMERS_SECS


def test_others_have_their_turn():
    """A spout that always has something to emit is called a bounded number of times in a pass."""
    running, spout = started(Hold(), {"topology.max.spout.pending": 10_000})
    spout.feed(*range(1000))
    running.workers[0].run_pass()
    assert spout.calls == SPOUT_CALLS_MAX


class Sleeps(RichBolt):
    """Takes its time for each tuple, and never acks."""

    clock: ClassVar[Clock]

    def execute(self, tuple):
        self.clock.now += 0.12


def test_timeouts_with_a_slow_bolt_beside():
    """A timeout is told at the next look after it: a slow bolt in the spout's worker delays that by a call of its own."""
    running, spout = started(Sleeps(), {"topology.message.timeout.secs": 1, "topology.max.spout.pending": 1_000})
    Sleeps.clock = running.clock
    spout.feed(*range(SPOUT_CALLS_MAX))
    failed_at = {}
    while len(failed_at) < SPOUT_CALLS_MAX:
        running.workers[0].run_pass()
        failed_at.update({message_id: running.clock.now for _, message_id in spout.told[len(failed_at) :]})
        running.clock.now += 0.01
    assert all(1.0 <= at <= 1.0 + TIMERS_SECS + 0.12 + 0.01 for at in failed_at.values())


def other_worker_dies(running: Alone, number: int, successor: int) -> None:
    """Let all but one worker learn that one has died."""
    for worker in running.workers:
        if worker.number != number:
            worker.worker_replaced(number, number, successor)


def test_tuples_gathered_for_a_worker_that_died():
    """What waits for a worker that died is dropped, and its roots fail; the successor gets nothing of it."""
    running, spout = started(Hold(), workers=2)
    assert running.assignment.worker_of[2] == 1
    spout.feed(1)
    for task in running.workers[0]._spout_tasks.values():
        task.next_tuples(1, 1)
    other_worker_dies(running, 1, 2)
    running.workers[0].run_pass()
    assert spout.told == [("fail", 1)]
    assert running.sent[1] == []


class EmitsLock(Fed):
    def next_tuple(self):
        if self.waiting:
            self.waiting.clear()
            self.collector.emit([lambda: 0], message_id=1)


class Order:
    """Defined in a script, by what pickle can see of it."""


Order.__module__ = "__main__"


class EmitsOrder(Fed):
    def next_tuple(self):
        if self.waiting:
            self.waiting.clear()
            self.collector.emit([[Order()]], message_id=1)


def between_workers(spout: Spout) -> Alone:
    """Return a running topology that sends what a spout was given to emit to another worker."""
    builder = TopologyBuilder("topology")
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", Hold()).shuffle_grouping("spout")
    running = Alone(builder.build(), workers=2)
    running.activate()
    running.objects["spout"][0].feed(1)
    return running


def test_a_class_of_a_script():
    """An object whose class is in the script that was started can't travel: the error names the class, and the remedy."""
    running = between_workers(EmitsOrder())
    with pytest.raises(UserCodeError, match=r"'Order' is defined in the script .* put it into a module of its own"):
        for _ in range(100):
            running.run()


def test_a_value_that_does_not_pickle():
    """What can't travel to another worker is refused by the name of its component and stream."""
    running = between_workers(EmitsLock())
    with pytest.raises(
        UserCodeError, match="task 1 emitted a value on stream 'default' that does not pickle"
    ) as raised:
        running.run()
    assert raised.value.component == "spout"


class Moody:
    """Comes back or not, as its value is."""

    def __init__(self, is_well):
        self.is_well = is_well

    def __setstate__(self, state):
        if not state["is_well"]:
            raise RuntimeError("not well")
        self.__dict__.update(state)


@attrs.frozen
class Holder:
    held: object


def of_a_lost_module():
    """Return an object of a class that can be imported while it is pickled, and not any more afterwards."""
    module = types.ModuleType("lost_module")
    sys.modules["lost_module"] = module
    module.Lost = type("Lost", (), {"__module__": "lost_module"})
    return module.Lost()


class EmitsValue(Fed):
    output_fields = Fields("n", "value")

    def next_tuple(self):
        if self.waiting:
            for n, value in enumerate(self.waiting):
                self.collector.emit([n, value], message_id=n)
            self.waiting.clear()


@pytest.mark.parametrize(
    ("make", "kind", "reason"),
    [
        (lambda: TwoArgumentsError("this", "that"), "TwoArgumentsError", "TypeError: "),
        (lambda: [1, {"deep": (TwoArgumentsError("this", "that"),)}], "TwoArgumentsError", "TypeError: "),
        (lambda: Holder([TwoArgumentsError("this", "that")]), "TwoArgumentsError", "TypeError: "),
        (lambda: Moody(is_well=False), "Moody", "RuntimeError: not well"),
        (lambda: {"moods": [Moody(is_well=True), Moody(is_well=False)]}, "Moody", "RuntimeError: not well"),
        (of_a_lost_module, "lost_module.Lost", "ModuleNotFoundError: "),
        (lambda: [of_a_lost_module()], "lost_module.Lost", "ModuleNotFoundError: "),
    ],
    ids=["flat", "deep", "in an object", "by its value", "by its value, deep", "lost", "lost, deep"],
)
def test_a_value_that_does_not_unpickle(make, kind, reason):
    """It is an error of who emitted it: component, task, stream and type are named, however deep it is."""
    builder = TopologyBuilder("topology")
    builder.set_spout("spout", EmitsValue())
    builder.set_bolt("bolt", Hold()).shuffle_grouping("spout")
    running = Alone(builder.build(), workers=2)
    running.activate()
    running.objects["spout"][0].waiting.extend(["plain", [Moody(is_well=True)], make(), "plain"])
    running.workers[0].run_pass()
    sys.modules.pop("lost_module", None)
    with pytest.raises(UserCodeError, match="task 1 emitted a value on stream 'default'") as raised:
        running.deliver()
    assert raised.value.component == "spout"
    assert f"that pickles and does not unpickle ({reason}" in str(raised.value)
    assert f"{kind}, the last of which is most likely the one" in str(raised.value)


class Ticked(RichBolt):
    def prepare(self, config, context, collector):
        self.ticks, self.collector = [], collector

    def execute(self, tuple):
        assert (tuple.source_component, tuple.source_stream, tuple.source_task) == ("__system", "__tick", -1)
        self.ticks.append(tuple["rate_secs"])
        self.collector.ack(tuple)


class Keeps(RichBolt):
    """Keeps tuples in several ways, each as a function that returns the tuple, and acks every fourth one at once."""

    def prepare(self, config, context, collector):
        self.kept, self.collector = [], collector

    def execute(self, tuple):
        match int(tuple[0].split()[1]) % 4:
            case 0:
                self.kept.append(lambda: tuple)
            case 1:
                get = tuple.__getitem__
                self.kept.append(lambda: get.__self__)
            case 2:
                error = FailedException()
                self.kept.append(lambda: (error, tuple)[1])
                raise error
            case _:
                self.collector.ack(tuple)


def test_kept_tuples():
    """A tuple that a bolt keeps, in whatever way, stays what it is: nobody takes its object for a later tuple."""
    running, spout = started(Keeps())
    spout.feed(*range(40))
    running.run()
    bolt = running.objects["bolt"][0]
    assert [each()[0] for each in bolt.kept] == [f"word {number}" for number in range(40) if number % 4 != 3]
    assert sorted(spout.told) == [
        *(("ack", number) for number in range(3, 40, 4)),
        *(("fail", number) for number in range(2, 40, 4)),
    ]
    for number, each in enumerate(bolt.kept):
        if number % 3 != 2:
            bolt.collector.ack(each())
    running.run()
    assert sorted(number for what, number in spout.told if what == "ack") == [n for n in range(40) if n % 4 != 2]


def test_ticks():
    """Each task gets a tick in each interval; the ones that a long pause has missed are left out."""
    running, _ = started(Ticked(), {"topology.tick.tuple.freq.secs": 10}, bolts=2)
    seen = []
    for now in (9.7, 10.0, 19.7, 20.0, 75.0, 79.7, 80.0):
        running.clock.now = now
        running.run()
        seen.append([len(bolt.ticks) for bolt in running.objects["bolt"]])
    assert seen == [[0, 0], [1, 1], [1, 1], [2, 2], [3, 3], [3, 3], [4, 4]]
    assert set(running.objects["bolt"][0].ticks) == {10.0}


class WritesSlowly(RichBolt):
    """Hands each tuple to a slow write, and takes note of its end."""

    go = threading.Event()

    def prepare(self, config, context, collector):
        self.context, self.collector, self.written = context, collector, []

    def execute(self, tuple):
        self.context.offload(self.go.wait, lambda _: self.written.append(tuple["word"]))
        self.collector.ack(tuple)


class Sees(Fed):
    """Notes whose turn the worker says it is, wherever its code is called."""

    seen: ClassVar[list[str]] = []
    ask: ClassVar[Callable[[], str]]

    def open(self, config, context, collector):
        super().open(config, context, collector)
        self.note()
        context.offload(int, lambda _: self.note())

    def next_tuple(self):
        super().next_tuple()
        self.note()

    def ack(self, message_id):
        self.note()

    def fail(self, message_id):
        self.note()

    def close(self):
        self.note()

    def note(self):
        self.seen.append(type(self).ask())


def test_whose_turn_it_is():
    """Wherever a component's code runs in the loop, other threads can learn which task it is; in between, none."""
    builder = TopologyBuilder("topology")
    builder.set_spout("spout", Sees(), 1).set_num_tasks(2)
    builder.set_bolt("bolt", Pass()).shuffle_grouping("spout")
    running = Alone(builder.build())
    (worker,) = running.workers
    Sees.ask, Sees.seen = worker.busy_with, []
    running.activate()
    assert Sees.seen == ["task 1 of 'spout'", "task 2 of 'spout'"]
    running.objects["spout"][0].feed(1)
    end = time.monotonic() + DEADLINE_SECS
    while worker.offloaded():
        assert time.monotonic() < end
        worker.run_pass()
    worker.run_pass()
    assert set(Sees.seen) == {"task 1 of 'spout'", "task 2 of 'spout'"}
    assert worker.busy_with() == ""
    worker.close()


def test_slow_calls_keep_a_run_from_its_end():
    """A worker is not idle while a slow call is under way, nor before its end was told: else the run would drop it."""
    running, spout = started(WritesSlowly())
    worker, (bolt,) = running.workers[0], running.objects["bolt"]
    spout.feed(None)
    running.run()
    is_idle = worker.is_idle()
    bolt.go.set()  # else the thread of the call would outlive a test that fails
    assert (worker.pending(), worker.offloaded(), is_idle) == (0, 1, False)
    end = time.monotonic() + DEADLINE_SECS
    while not bolt.written:
        assert not worker.is_idle()
        assert time.monotonic() < end
        worker.run_pass()
    assert (bolt.written, worker.is_idle()) == (["word None"], True)
    worker.close()


def test_lag():
    """A worker says how far each spout task is behind, if it is open and knows; in the end, how far it was left."""
    builder = TopologyBuilder("topology")
    builder.set_spout("behind", Behind(), 2)
    builder.set_spout("blind", Fed())
    running = Alone(builder.build())
    assert running.workers[0].status().lag == ()
    running.activate()
    running.objects["behind"][0].feed(1, 2, 3)
    assert running.workers[0].status().lag == (("behind", 3), ("behind", 0))
    running.workers[0].close()
    assert running.workers[0].status().lag == (("behind", 0), ("behind", 0))


def test_a_closed_spout_has_nothing_left_to_ask():
    """What it has released is not missed by reports, which come once more after its end."""
    builder = TopologyBuilder("topology")
    builder.set_spout("spout", Released())
    running = Alone(builder.build())
    (worker,) = running.workers
    running.activate()
    worker.close()
    assert (worker.is_done(), worker.status().lag) == (True, (("spout", 1),))
