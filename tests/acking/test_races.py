"""Races: workers that die while frames are on their way, and learn of each other's deaths at different times.

Messages of a topology with joins, branches, failures and a cycle run through workers that are called in random order.
Frames between two workers arrive in their order, or never, or twice; each worker learns of a death when it happens to.
What holds is checked at every ack and failure, against a ledger of all tuples that are open.
"""

from __future__ import annotations

import random
from collections import Counter, deque

import cloudpickle
import pytest

from txtopo import Fields, RichBolt, Spout, TopologyBuilder
from txtopo.acking.assignment import assign
from txtopo.acking.frames import decode
from txtopo.acking.worker import Worker
from txtopo.config import Config, TopologyKind
from txtopo.testing.feeders import Shared

DEPTH_MAX = 4
FIELDS = Fields("token", "serials", "depth")


class Ledger(Shared):
    """What was emitted, and what is open of it. A serial stands for one emission of a message: a root."""

    def __init__(self, seed: int, messages: int, tasks: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.waiting = {task: deque(range(task, messages, tasks)) for task in range(tasks)}
        self.given: dict[int, dict[int, int]] = {task: {} for task in range(tasks)}
        """By task, the message of each serial that its spout waits for."""
        self.tokens = self.serials = 0
        self.open: dict[int, set[tuple[int, int]]] = {}
        self.acked: Counter[int] = Counter()
        self.doubled: frozenset[int] = frozenset()
        """The serials of tuples that came twice."""
        self.bolts: dict[int, RandomBolt] = {}
        self.is_calm = False
        """Whether bolts ack all that they get, and hold nothing."""

    def token(self) -> int:
        self.tokens += 1
        return self.tokens

    def emitted(self, serials: frozenset[int], token: int, tasks: list[int]) -> None:
        for serial in serials:
            self.open[serial].update((token, task) for task in tasks)

    def done(self, serials: frozenset[int], token: int, task: int) -> None:
        for serial in serials:
            self.open[serial].discard((token, task))


class RandomSpout(Spout):
    output_fields = FIELDS

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def open(self, config, context, collector):
        self.collector, self.index = collector, context.this_task_index
        self.settled: set[int] = set()
        given = self.ledger.given[self.index]
        self.ledger.waiting[self.index].extend(given.values())
        given.clear()

    def next_tuple(self):
        ledger = self.ledger
        if not ledger.waiting[self.index]:
            return
        ledger.serials += 1
        serial, token = ledger.serials, ledger.token()
        ledger.given[self.index][serial] = ledger.waiting[self.index].popleft()
        ledger.open[serial] = set()
        serials = frozenset({serial})
        ledger.emitted(serials, token, self.collector.emit([token, serials, 0], message_id=serial))

    def ack(self, message_id):
        is_done = not self.ledger.open[message_id] or message_id in self.ledger.doubled
        assert is_done, "acked before all of its tuples were"
        self.ledger.acked[self.settle(message_id)] += 1

    def fail(self, message_id):
        self.ledger.waiting[self.index].append(self.settle(message_id))

    def settle(self, serial: int) -> int:
        assert serial not in self.settled, "settled twice"
        self.settled.add(serial)
        return self.ledger.given[self.index].pop(serial)


class RandomBolt(RichBolt):
    output_fields = FIELDS

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def prepare(self, config, context, collector):
        self.collector, self.task, self.held = collector, context.this_task_id, []
        self.ledger.bolts[self.task] = self

    def execute(self, tuple):
        rng = self.ledger.rng
        self.held.append(tuple)
        for _ in range(rng.choice([0, 0, 1, 1, 2]) if tuple["depth"] < DEPTH_MAX else 0):
            anchors = rng.sample(self.held, rng.randint(1, min(3, len(self.held))))
            serials = frozenset().union(*(each["serials"] for each in anchors))
            token = self.ledger.token()
            tasks = self.collector.emit([token, serials, max(each["depth"] for each in anchors) + 1], anchors)
            self.ledger.emitted(serials, token, tasks)
        if rng.random() < 0.02 and not self.ledger.is_calm:
            self.collector.fail(self.held.pop(rng.randrange(len(self.held))))
        self.let_go(of_all=self.ledger.is_calm)

    def let_go(self, *, of_all: bool) -> None:
        rng = self.ledger.rng
        while self.held and (of_all or rng.random() < 0.6):
            tuple = self.held.pop(rng.randrange(len(self.held)))  # noqa: A001 - as in execute
            self.ledger.done(tuple["serials"], tuple["token"], self.task)
            self.collector.ack(tuple)


class Race:
    """Workers, what is on its way between them, and what each of them knows of the others."""

    def __init__(self, seed: int, messages: int = 60, *, lossy: bool = False) -> None:
        print(f"seed {seed}")
        self.rng = random.Random(seed)
        self.workers_max = self.rng.randint(2, 4)
        self.ledger = Ledger(seed, messages, tasks=2)
        self.is_lossy = lossy
        self.config = Config({"topology.max.spout.pending": 4}).of_kind(TopologyKind.PLAIN)
        builder = TopologyBuilder("races")
        builder.set_spout("spout", RandomSpout(self.ledger), 2)
        builder.set_bolt("a", RandomBolt(self.ledger), 3).shuffle_grouping("spout").fields_grouping(
            "c", Fields("token")
        )
        builder.set_bolt("b", RandomBolt(self.ledger), 2).local_or_shuffle_grouping("a")
        builder.set_bolt("c", RandomBolt(self.ledger), 2).all_grouping("b").shuffle_grouping("spout")
        self.plan = builder.build().plan
        self.prototypes = {each.id: cloudpickle.dumps(each.component) for each in self.plan.components}
        self.assignment = assign(self.plan, self.workers_max, None)
        self.now = 0.0
        self.epochs = {worker: worker for worker in range(self.workers_max)}
        self.next_epoch = self.workers_max
        self.known: list[dict[int, int]] = [{} for _ in range(self.workers_max)]
        self.notices: list[deque[tuple[int, int, int]]] = [deque() for _ in range(self.workers_max)]
        self.links: dict[tuple[int, int, int], deque[tuple[int, bytes]]] = {}
        """By sender, its epoch, and receiver: the epoch that is meant, and the frame."""
        self.workers = [self.begin(number) for number in range(self.workers_max)]

    def begin(self, number: int) -> Worker:
        mine = self.epochs[number]
        known = self.known[number] = dict(self.epochs)
        self.notices[number].clear()

        def send(to: int, data: bytes) -> None:
            self.links.setdefault((number, mine, to), deque()).append((known[to], data))

        worker = Worker(
            self.plan,
            self.assignment,
            number,
            self.config,
            dict(known),
            make_object=lambda component: cloudpickle.loads(self.prototypes[component]),
            send=send,
            clock=lambda: self.now,
            rng=random.Random(self.rng.getrandbits(64)),
        )
        worker.set_active(is_active=True)
        return worker

    def kill(self, number: int) -> None:
        dead, self.epochs[number] = self.epochs[number], self.next_epoch
        self.next_epoch += 1
        for other in range(self.workers_max):
            if other != number:
                self.notices[other].append((number, dead, self.epochs[number]))
        if self.rng.random() < 0.5:  # what it has sent is lost, or arrives where its death is not known yet
            for link in [link for link in self.links if link[:2] == (number, dead)]:
                del self.links[link]
        self.workers[number] = self.begin(number)

    def notice(self, number: int) -> None:
        if self.notices[number]:
            worker, dead, successor = self.notices[number].popleft()
            self.known[number][worker] = successor
            self.workers[number].worker_replaced(worker, dead, successor)

    def deliver(self, link: tuple[int, int, int]) -> bool:
        """Let the next frame of a link arrive, unless its receiver does not know the sender yet."""
        sender, epoch, to = link
        frames = self.links[link]
        if not frames or epoch > self.known[to][sender]:
            return False
        meant, data = frames.popleft()
        if meant != self.epochs[to] or epoch < self.known[to][sender]:
            return True
        chance = self.rng.random() if self.is_lossy and not self.ledger.is_calm else 1.0
        if chance > 0.03:
            self.workers[to].receive(data)
        if 0.03 < chance < 0.06:
            self.receive_again(to, data)
        return True

    def receive_again(self, to: int, data: bytes) -> None:
        """Let a frame come twice. A root is done when either copy of a tuple is, which the ledger can't follow."""
        for columns in decode(data).tuples:
            for _, serials, _ in columns.values:
                self.ledger.doubled |= serials
        self.workers[to].receive(data)

    def step(self, kill: float, notice: float = 0.1) -> None:
        chance = self.rng.random()
        number = self.rng.randrange(self.workers_max)
        if chance < kill:
            self.kill(number)
        elif chance < kill + notice:
            self.notice(number)
        elif chance < 0.5:
            self.workers[number].run_pass()
        elif self.links:
            self.deliver(self.rng.choice(list(self.links)))

    def rest(self) -> None:
        """Let everything arrive, and run until nothing is done any more."""
        is_working = True
        while is_working:
            for number in range(self.workers_max):
                while self.notices[number]:
                    self.notice(number)
            for task, bolt in self.ledger.bolts.items():
                if bolt in [each._bolt for worker in self.workers for each in worker._bolts]:
                    assert bolt.task == task
                    bolt.let_go(of_all=True)
            worked = [worker.run_pass() for worker in self.workers]
            delivered = [self.deliver(link) for link in list(self.links)]
            is_working = any(delivered) or any(worked)

    def left(self) -> tuple[int, int, int]:
        """Return the roots that spouts wait for, those that workers hold, and the trees that ackers hold."""
        statuses = [worker.status() for worker in self.workers]
        given = sum(map(len, self.ledger.given.values()))
        return given, sum(status.pending for status in statuses), sum(status.tracked for status in statuses)

    def let_time_pass(self) -> None:
        for _ in range(5):
            self.now += self.config.message_timeout_secs
            self.rest()


@pytest.mark.parametrize(
    ("seed", "steps", "kill", "notice"),
    [*((seed, 1500, 0.01, 0.1) for seed in range(25)), *((seed, 300, 0.004, 0.02) for seed in range(100))],
)
def test_deaths(seed, steps, kill, notice):
    """Promise 18: whoever dies, and whoever knows of it when: every root is settled, without any time passing.

    Each is settled once at most, and acked only when all of its tuples were. The short runs end soon after a death
    that is known late, so that no later death settles what this one has left.
    """
    race = Race(seed)
    for _ in range(steps):
        race.step(kill, notice)
    race.ledger.is_calm = True
    race.rest()
    given, pending, _ = race.left()
    assert (given, pending) == (0, 0)
    assert set(race.ledger.acked) == set(range(60))
    race.let_time_pass()
    assert race.left() == (0, 0, 0)


@pytest.mark.parametrize("seed", range(40))
def test_lost_and_doubled_frames(seed):
    """Frames that are lost or come twice cost a timeout, never a message: nothing is acked too early."""
    race = Race(seed, lossy=True)
    for _ in range(1500):
        race.step(kill=0.003)
        race.now += 0.01
    race.ledger.is_calm = True
    race.rest()
    race.let_time_pass()
    assert set(race.ledger.acked) == set(range(60))
    assert race.left() == (0, 0, 0)
