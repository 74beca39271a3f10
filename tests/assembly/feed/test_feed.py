"""The feed: what a spout's coordinator is told, and when."""

import datetime as dt
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import pytest

from state import MemoryStore, TransactionalState
from tests.api.components.test_partitioned import Log, LogSpout
from txtopo.api.components.partitioned import as_transactional
from txtopo.api.components.planned import BeginReason, Planned
from txtopo.api.components.spout import Coordinator, Lag
from txtopo.api.store import Lead, Store
from txtopo.assembly.feed.asked_spout import AskedSpout
from txtopo.assembly.feed.feed import SpoutFeed
from txtopo.errors import InputError, LostLead, SourceFailure
from txtopo.failpoints import armed
from txtopo.testing.context import PlainContext
from txtopo.topology.spout_semantics import OPAQUE, REPEATABLE
from txtopo.transactional.core.actions import CreateMetadata
from txtopo.transactional.core.events import MetadataCreated, RuleBroken, SourceStatus, TransactionMetadata

ROOT = "topology/source"
PLACE = "topology/source/spout"
NOW_SECS = 1_000.0
BEFORE = Planned(7)
"""When the transaction before was planned."""


def ask(first_txid: int, count: int, previous: Any, before: Planned = BEFORE) -> CreateMetadata:
    return CreateMetadata(first_txid, count, None if previous is None else {"spout": previous}, before)


def planned(
    txid: int, metadata: Any, turn: BeginReason = BeginReason.INPUT, at_secs: float = NOW_SECS
) -> TransactionMetadata:
    return TransactionMetadata(txid, {"spout": metadata}, Planned(round(at_secs * 1_000), turn))


class Counting(Coordinator):
    """Keeps in the store which transactions it has begun, and notes what it is told."""

    def __init__(self, told: list[Any]) -> None:
        self.told = told

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        self.told.append(("open_store", root))
        self.state = TransactionalState(store, lead, root)

    def resume(self, txid: int, metadata: Any) -> None:
        self.told.append(("resume", txid))

    def cleanup_before(self, txid: int) -> None:
        self.told.append(("cleanup_before", txid))

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        self.state.set_data("begun", txid)
        return txid


def feed_over(store: MemoryStore, told: list[Any]) -> tuple[SpoutFeed, Lead]:
    feed = SpoutFeed([AskedSpout("spout", Counting(told), REPEATABLE)], wall_secs=lambda: NOW_SECS)
    lead = store.take_lead("topology", "test")
    feed.open_store(store, lead, ROOT)
    return feed, lead


def test_the_store_comes_first() -> None:
    """The store is given once, before ``resume``; what is committed is told once, each time that it has risen."""
    told: list[Any] = []
    store = MemoryStore()
    feed, _ = feed_over(store, told)
    steps: list[str] = []
    with armed(steps.append):
        event = feed.create(ask(8, 1, 7), committed=6)
    assert event == MetadataCreated((planned(8, 8),), SourceStatus.READY)
    assert steps == ["spout.keep.before", "spout.keep.after"]
    for committed in (6, 8, 8):
        feed.create(ask(9, 1, 8), committed)
    assert told == [("open_store", PLACE), ("resume", 7), ("cleanup_before", 7), ("cleanup_before", 9)]
    assert store.read(f"{PLACE}/begun") == b"9"


def test_the_end_of_a_run_is_told() -> None:
    """What is committed at last, unless it was told before, or the spout was never asked for anything."""
    told: list[Any] = []
    feed, _ = feed_over(MemoryStore(), told)
    feed.finish(5)
    assert told == []
    feed.create(ask(8, 1, 7), committed=6)
    feed.finish(8)
    feed.finish(8)
    assert told[2:] == [("cleanup_before", 7), ("cleanup_before", 9)]


def test_a_lost_lead_stops_the_run() -> None:
    """A coordinator whose write is refused because another process leads ends the run: it is no mistake of the spout."""
    feed, lead = feed_over(MemoryStore(), [])
    lead.release()
    with pytest.raises(LostLead):
        feed.create(ask(1, 1, None), committed=0)


def test_a_partitioned_spouts_coordinator_is_told_too() -> None:
    """The adapter passes both on, to a coordinator that has the methods."""
    told: list[Any] = []

    class Told(LogSpout):
        def coordinator(self, config: Any, context: Any) -> Any:
            coordinator = super().coordinator(config, context)
            coordinator.open_store = lambda *given: told.append(("open_store", given[2]))
            coordinator.cleanup_before = lambda txid: told.append(("cleanup_before", txid))
            return coordinator

    for spout in (Told(Log({0: ["a"]})), LogSpout(Log({0: ["a"]}))):
        feed = SpoutFeed([AskedSpout("spout", as_transactional(spout).coordinator({}, PlainContext()), REPEATABLE)])
        store = MemoryStore()
        feed.open_store(store, store.take_lead("topology", "test"), ROOT)
        feed.create(ask(1, 1, None), committed=0)
    assert told == [("open_store", PLACE), ("cleanup_before", 1)]


class Spoiling(Coordinator):
    """Changes the metadata that it is asked about."""

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        return {"ends": [txid]}

    def remaining(self, metadata: Any) -> int:
        metadata["ends"].clear()
        return 3


def test_asking_what_is_left_harms_nothing() -> None:
    """A coordinator that changes metadata while it tells what is left does not change what was begun."""
    feed = SpoutFeed([AskedSpout("spout", Spoiling(), REPEATABLE)], wall_secs=lambda: NOW_SECS)
    event = feed.create(ask(1, 2, None), committed=0)
    begun = (planned(1, {"ends": [1]}), planned(2, {"ends": [2]}))
    assert event == MetadataCreated(begun, SourceStatus.READY)
    assert feed.total == 5


class Behind(Spoiling):
    """Knows how many records are left."""

    def lag(self) -> int:
        return 30


def test_lag() -> None:
    """It is asked for whenever transactions have begun; a coordinator need not know, nor have the method."""
    for coordinator, lag in ((Behind(), 30), (Spoiling(), None), (_Bare(), None)):
        feed = SpoutFeed([AskedSpout("spout", coordinator, REPEATABLE)])
        assert feed.lags == {"spout": Lag()}
        feed.create(ask(1, 1, None), committed=0)
        assert feed.lags == {"spout": Lag(records=lag)}


class _Bare:
    """A coordinator as a plain class with the one method that it needs."""

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        return {"ends": [txid]}


def test_lag_of_a_partitioned_spout() -> None:
    """The adapter passes it on."""

    class Knowing(LogSpout):
        def coordinator(self, config: Any, context: Any) -> Any:
            coordinator = super().coordinator(config, context)
            coordinator.lag = lambda: Lag(7, files=1)
            return coordinator

    for spout, lag in ((Knowing(Log({0: ["a"]})), Lag(7, files=1)), (LogSpout(Log({0: ["a"]})), Lag())):
        feed = SpoutFeed([AskedSpout("spout", as_transactional(spout).coordinator({}, PlainContext()), REPEATABLE)])
        feed.create(ask(1, 1, None), committed=0)
        assert feed.lags == {"spout": lag}


class Clock:
    """A clock that only sleeping moves, and the processor time of whoever asks."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 0.0
        self.slept: list[float] = []

    def sleep(self, secs: float, _until: Collection[Future[None]] = ()) -> None:
        self.slept.append(secs)
        self.now += secs


class Late(Coordinator):
    """Has nothing until a moment; each answer takes some time, of which it may compute."""

    def __init__(self, clock: Clock, ready_at: float, answer_secs: float = 0.0, *, computes: bool = True) -> None:
        self.clock, self.ready_at, self.answer_secs, self.computes = clock, ready_at, answer_secs, computes
        self.asked = 0

    def is_ready(self) -> bool:
        self.asked += 1
        self.clock.now += self.answer_secs
        self.clock.cpu += self.answer_secs * self.computes
        return self.clock.now >= self.ready_at

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        return txid


def feed_of(coordinator: Coordinator, clock: Clock) -> SpoutFeed:
    spouts, cpu_secs = [AskedSpout("spout", coordinator, REPEATABLE)], lambda: clock.cpu
    return SpoutFeed(spouts, lambda: clock.now, clock.sleep, cpu_secs=cpu_secs, wall_secs=lambda: NOW_SECS)


def asked(coordinator: Coordinator, clock: Clock, requests: int = 1) -> list[MetadataCreated]:
    feed = feed_of(coordinator, clock)
    return [feed.create(ask(1, 1, None), committed=0) for _ in range(requests)]


NOTHING = MetadataCreated((), SourceStatus.WAITING)


def test_a_request_waits_for_the_source() -> None:
    """A transaction begins within two milliseconds, also of a source that has something five times a second; one that
    has nothing for longer is told to be waiting.
    """
    for milliseconds in (30.5, *range(150, 196)):
        clock, ready_at = Clock(), 100 + milliseconds / 1000
        *_, event = asked(Late(clock, ready_at), clock, 1 + int(milliseconds // 100))
        assert event.begun == (planned(1, 1),)
        assert ready_at <= clock.now < ready_at + 0.0025
    clock = Clock()
    assert asked(Late(clock, 101.0), clock, 3) == [NOTHING] * 3
    assert clock.now == pytest.approx(100.3, abs=0.01)


def test_a_source_that_has_waited_long_is_asked_seldom() -> None:
    """A hundred times a second after a second; ten milliseconds after it has had something, every two again."""
    clock = Clock()
    coordinator = Late(clock, 102.0)
    feed = feed_of(coordinator, clock)
    waited = [feed.create(ask(1, 1, None), committed=0) for _ in range(10)]
    before, coordinator.asked = coordinator.asked, 0
    waited += [feed.create(ask(1, 1, None), committed=0) for _ in range(5)]
    assert waited == [NOTHING] * 15
    assert coordinator.asked <= 60 < before
    while feed.create(ask(1, 1, None), committed=0) == NOTHING:
        pass
    assert clock.now <= 102.01
    coordinator.ready_at, began, coordinator.asked = clock.now + 0.0305, clock.now, 0
    feed.create(ask(2, 1, 1), committed=1)
    assert clock.now - began < 0.033
    assert coordinator.asked <= 16


class Stream(Coordinator):
    """Gets an event every few milliseconds; a transaction takes all that have come."""

    def __init__(self, clock: Clock, every_secs: float) -> None:
        self.clock, self.every_secs, self.began_secs = clock, every_secs, clock.now
        self.waited_secs: list[float] = []

    def is_ready(self) -> bool:
        return self._next_secs() <= self.clock.now

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        while self.is_ready():
            self.waited_secs.append(self.clock.now - self._next_secs())
        return txid

    def _next_secs(self) -> float:
        return self.began_secs + (len(self.waited_secs) + 1) * self.every_secs


@pytest.mark.parametrize("every_secs", [0.001, 0.003, 0.008, 0.015])
def test_a_steady_stream_waits_for_no_pause(every_secs: float) -> None:
    """Its events begin within two milliseconds, but for the first ones."""
    clock = Clock()
    stream = Stream(clock, every_secs)
    feed = feed_of(stream, clock)
    last = 0
    while clock.now < 101.0:
        last += len(feed.create(ask(last + 1, 1, last or None), committed=last).begun)
    assert max(stream.waited_secs[20:]) <= 0.002 + 1e-6


def test_asking_takes_a_hundredth_of_the_time_at_most() -> None:
    """However slow the answers are."""
    clock = Clock()
    coordinator = Late(clock, 1_000.0, answer_secs=0.005)
    assert asked(coordinator, clock, 50) == [NOTHING] * 50
    assert coordinator.asked * 0.005 <= (clock.now - 100.0) / 100 + 0.005


@pytest.mark.parametrize("is_woken", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_asking_after_each_wait_takes_little_more(count: int, *, is_woken: bool) -> None:
    """Beside other sources, too, where one that waited in vain is taken in often; and of one that has nothing when it
    is woken, twice as much: it does not wait again before a pause.
    """

    class Waiting(Late):
        def wait_ready(self, secs: float) -> bool:
            self.clock.now += 0 if is_woken else secs
            assert self.asked < 200
            return is_woken

    clock = Clock()
    coordinators = [Waiting(clock, 1_000.0, answer_secs=0.005) for _ in range(count)]
    spouts = [AskedSpout(f"spout {number}", each, REPEATABLE) for number, each in enumerate(coordinators)]
    feed = SpoutFeed(spouts, lambda: clock.now, clock.sleep, cpu_secs=lambda: clock.cpu, wall_secs=lambda: NOW_SECS)
    assert [feed.create(ask(1, 1, None), committed=0) for _ in range(50)] == [NOTHING] * 50
    for each in coordinators:
        assert each.asked * 0.005 <= (1 + is_woken) * (clock.now - 100.0) / 100 + 0.01


@pytest.mark.parametrize(
    ("answer_secs", "computes", "late_secs"), [(0.5, True, 1.0), (0.5, False, 0.5), (0.0075, False, 0.01)]
)
def test_a_slow_answer_does_not_keep_the_source_waiting(
    answer_secs: float, late_secs: float, *, computes: bool
) -> None:
    """For a second at most; for as long again if the answer waited: for a broker that is away, or for a core."""
    clock = Clock()
    coordinator = Late(clock, 110.0, answer_secs, computes=computes)
    feed = feed_of(coordinator, clock)
    while feed.create(ask(1, 1, None), committed=0) == NOTHING:
        assert clock.now < 120.0
    assert clock.now <= 110.0 + late_secs + 3 * answer_secs
    assert coordinator.asked * answer_secs <= 0.5 * (clock.now - 100.0) + 2 * answer_secs


def test_a_failing_source_is_asked_after_a_pause() -> None:
    """Not in a loop that fills the log."""

    class Failing(Late):
        def is_ready(self) -> bool:
            self.asked += 1
            raise SourceFailure("no answer")

    clock = Clock()
    coordinator = Failing(clock, 0.0)
    assert asked(coordinator, clock, 2) == [NOTHING] * 2
    assert coordinator.asked <= 2 * 0.1 / 0.02 + 1


@pytest.mark.parametrize("answer_secs", [0.0, 0.005, 0.02])
def test_a_source_that_can_wait_wakes_the_request(answer_secs: float) -> None:
    """It is asked again as soon as it says so, and not in between, however slow its answers are."""

    class Waking(Late):
        def wait_ready(self, secs: float) -> bool:
            clock.now += min(secs, max(0.0, self.ready_at - clock.now))
            return clock.now >= self.ready_at

    clock = Clock()
    coordinator = Waking(clock, 101.05, answer_secs)
    feed = feed_of(coordinator, clock)
    while (event := feed.create(ask(1, 1, None), committed=0)) == NOTHING:
        assert clock.now < 102.0
    assert event.begun == (planned(1, 1),)
    assert clock.now <= 101.05 + 4 * answer_secs + 1e-6
    assert coordinator.asked <= 25
    assert sum(clock.slept) == 0.0, "it sleeps in wait_ready"


def test_sources_that_can_wait_do_so_side_by_side() -> None:
    """Each wakes the request as soon as it has something, and none is asked in between because of the others."""
    clock, ends = Clock(), list[tuple[float, Future[None]]]()

    class Waking(Late):
        def wait_ready(self, secs: float) -> bool:
            clock.now += min(secs, max(0.0, self.ready_at - clock.now))
            return clock.now >= self.ready_at

    def aside(work: Callable[[], None]) -> Future[None]:
        began = clock.now
        work()
        ends.append((clock.now, Future()))
        clock.now = began
        return ends[-1][1]

    def sleep(secs: float, until: Collection[Future[None]] = ()) -> None:
        clock.now = min([clock.now + secs, *(max(at, clock.now) for at, future in ends if future in until)])
        for at, future in ends:
            if at <= clock.now and not future.done():
                future.set_result(None)

    coordinators = [Waking(clock, 101.053), Waking(clock, 150.0), Late(clock, 150.0)]
    for waking in (coordinators[:2], [coordinators[0], coordinators[2]]):
        clock.now = 100.0
        spouts = [AskedSpout(f"spout {number}", each, REPEATABLE) for number, each in enumerate(waking)]
        feed = SpoutFeed(spouts, lambda: clock.now, sleep, aside=aside, wall_secs=lambda: NOW_SECS)
        coordinators[0].asked = 0
        while (event := feed.create(ask(1, 1, None), committed=0)) == NOTHING:
            assert clock.now < 102.0
        assert isinstance(event, MetadataCreated)
        assert [each.metadata for each in event.begun] == [{"spout 0": 1}]
        assert clock.now == pytest.approx(101.053, abs=1e-6)
        assert [each.asked for each in waking if isinstance(each, Waking)] <= [25] * 2


def test_nobody_waits_for_a_source_at_its_end() -> None:
    """Its coordinator may be able to wait, but nothing comes, and the transaction that ends the run would be late."""

    class Ending(Late):
        begun = 0

        def wait_ready(self, secs: float) -> bool:
            clock.now += secs
            return False

        def is_exhausted(self) -> bool:
            return self.begun > 0

        def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
            self.begun = txid
            return txid

    clock = Clock()
    spouts = [AskedSpout("spout", Ending(clock, 0.0), REPEATABLE)]
    times: dict[str, Any] = {"cpu_secs": lambda: clock.cpu, "wall_secs": lambda: NOW_SECS}
    feed = SpoutFeed(spouts, lambda: clock.now, clock.sleep, at_end=True, **times)
    assert feed.create(ask(1, 1, None), committed=0).source is SourceStatus.READY
    end = feed.create(ask(2, 1, 1), committed=1)
    assert [transaction.planned.turn for transaction in end.begun] == [BeginReason.END]
    assert clock.now - 100.0 <= 0.02


class Away(Late):
    """Does not answer until a moment; to find that out takes half a second."""

    def is_ready(self) -> bool:
        if not super().is_ready():
            raise SourceFailure("no broker answers")
        return True


def test_who_is_away_holds_nobody_up() -> None:
    """It is asked aside from the second time on, one question at a time; once it answers, it is asked as before."""
    clock, asides = Clock(), list[tuple[Callable[[], None], Future[None]]]()

    def aside(work: Callable[[], None]) -> Future[None]:
        asides.append((work, Future()))
        return asides[-1][1]

    away, here = Away(clock, 103.0, answer_secs=0.5), Status(SourceStatus.READY)
    spouts = [AskedSpout("away", away, REPEATABLE), AskedSpout("here", here, REPEATABLE)]
    feed = SpoutFeed(spouts, lambda: clock.now, clock.sleep, aside=aside, wall_secs=lambda: NOW_SECS)

    def begun(txid: int) -> MetadataCreated:
        here.status = SourceStatus.READY
        event = feed.create(CreateMetadata(txid, 1, {"here": txid - 1} if txid > 1 else None, BEFORE), txid - 1)
        assert isinstance(event, MetadataCreated)
        assert [each.metadata["here"] for each in event.begun] == [txid]
        return event

    begun(1)
    assert clock.now == 100.5, "nobody knew"
    clock.now = 101.6
    for txid in range(2, 5):
        begun(txid)
    assert (clock.now < 101.7, away.asked, len(asides)) == (True, 1, 1)
    clock.now = 104.0
    work, ended = asides.pop()
    work()
    ended.set_result(None)
    assert set(begun(5).begun[0].metadata) == {"away", "here"}
    assert not asides


def test_what_stops_the_run_stops_it_from_aside_too() -> None:
    """The error of a question that was asked aside is the run's."""
    clock = Clock()

    class Broken(Late):
        def is_ready(self) -> bool:
            if self.asked:
                raise InputError("the topic was created again")
            self.asked += 1
            raise SourceFailure("no broker answers")

    spouts = [AskedSpout("away", Broken(clock, 0), REPEATABLE), AskedSpout("here", Status(), REPEATABLE)]
    feed = SpoutFeed(spouts, lambda: clock.now, clock.sleep, wall_secs=lambda: NOW_SECS)
    event = feed.create(ask(1, 1, None), committed=0)
    assert isinstance(event, RuleBroken)
    assert "created again" in str(event.error)


class Status(Coordinator):
    """Says what it is told to say."""

    def __init__(self, status: SourceStatus = SourceStatus.WAITING) -> None:
        self.status = status
        self.told: list[int] = []

    def resume(self, txid: int, metadata: Any) -> None:
        self.told.append(txid)

    def is_ready(self) -> bool:
        return self.status is SourceStatus.READY

    def is_exhausted(self) -> bool:
        return self.status is SourceStatus.EXHAUSTED

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        self.status = SourceStatus.EXHAUSTED
        return txid


def answer(
    coordinator: Coordinator,
    *,
    now_ms: int = 1_000,
    asked_ms: int | None = None,
    before: Planned = Planned(900),  # noqa: B008 - frozen
    quiet_ms: int | None = 100,
    at_end: bool = True,
    first_txid: int = 8,
    committed: int = 7,
) -> MetadataCreated:
    """Return what a feed answers at a time, or at another one before that if it has nothing then."""
    clock = Clock()
    wall_ms = [now_ms if asked_ms is None else asked_ms]
    quiet_after = None if quiet_ms is None else dt.timedelta(milliseconds=quiet_ms)
    feed = SpoutFeed(
        [AskedSpout("spout", coordinator, REPEATABLE)],
        lambda: clock.now,
        clock.sleep,
        wall_secs=lambda: wall_ms[-1] / 1_000,
        quiet_after=quiet_after,
        at_end=at_end,
    )
    if asked_ms is not None:
        assert feed.create(ask(first_txid, 3, "before", before), committed) == NOTHING
        wall_ms.append(now_ms)
    event = feed.create(ask(first_txid, 3, "before", before), committed)
    assert isinstance(event, MetadataCreated)
    return event


def test_a_quiet_source() -> None:
    """Once the time is up, a transaction without input begins, with the metadata of the one before; not earlier."""
    quiet = MetadataCreated((planned(8, "before", BeginReason.QUIET, 1.0),), SourceStatus.WAITING)
    assert answer(Status(), asked_ms=900) == quiet
    assert answer(Status(), asked_ms=900, now_ms=999) == NOTHING
    assert answer(Status(), asked_ms=900, quiet_ms=None) == NOTHING
    assert answer(Status(), asked_ms=900, before=Planned(900, BeginReason.QUIET)) == quiet


def test_a_stop_is_no_silence() -> None:
    """A run that begins long after the last transaction listens first: input may have come in the meantime."""
    quiet = MetadataCreated((planned(8, "before", BeginReason.QUIET, 1.0),), SourceStatus.WAITING)
    assert answer(Status(), asked_ms=901, before=Planned(0)) == NOTHING
    assert answer(Status(), asked_ms=900, before=Planned(0)) == quiet


def test_none_is_quiet_that_should_not_be() -> None:
    """No transaction without input begins before the first input, behind uncommitted ones, or after the end."""
    assert answer(Status(), asked_ms=0, first_txid=1, committed=0) == NOTHING
    assert answer(Status(), asked_ms=0, committed=6) == NOTHING
    assert answer(Status(), asked_ms=0, before=Planned(0, BeginReason.END)) == NOTHING
    assert answer(Status(SourceStatus.READY)).begun == (planned(8, 8, at_secs=1.0),)


def test_a_source_that_fails_is_not_quiet() -> None:
    """Whoever can't be asked may have input: nothing may be decided by the time that passes."""

    class Failing(Status):
        def is_exhausted(self) -> bool:
            raise SourceFailure("no answer")

    assert answer(Failing(), asked_ms=0) == NOTHING


def test_the_end() -> None:
    """It begins by itself, behind the last input; the source counts as exhausted only then."""
    assert answer(Status(SourceStatus.READY)).source is SourceStatus.READY
    assert answer(Status(SourceStatus.READY), at_end=False).source is SourceStatus.EXHAUSTED
    end = MetadataCreated((planned(8, "before", BeginReason.END, 1.0),), SourceStatus.EXHAUSTED)
    for turn in (BeginReason.INPUT, BeginReason.QUIET):
        assert answer(Status(SourceStatus.EXHAUSTED), before=Planned(900, turn)) == end
    over = MetadataCreated((), SourceStatus.EXHAUSTED)
    assert answer(Status(SourceStatus.EXHAUSTED), before=Planned(900, BeginReason.END)) == over
    assert answer(Status(SourceStatus.EXHAUSTED), at_end=False) == over
    assert answer(Status(SourceStatus.EXHAUSTED), first_txid=1, committed=0) == over


def test_a_clock_that_is_set_back() -> None:
    """No transaction is planned before the one that it follows."""
    event = answer(Status(SourceStatus.READY), before=Planned(2_000))
    assert event.begun == (planned(8, 8, at_secs=2.0),)


def test_a_clock_that_is_far_behind(caplog: pytest.LogCaptureFixture) -> None:
    """If a clock was years ahead once, the log says once, also where nothing comes, what waits for it, until when."""
    clock = Clock()
    feed = SpoutFeed(
        [AskedSpout("spout", Status(), REPEATABLE)],
        lambda: clock.now,
        clock.sleep,
        wall_secs=lambda: NOW_SECS,
        quiet_after=dt.timedelta(seconds=1),
    )
    for secs in (60, 61, 200_000_000, 200_000_000):
        feed.create(ask(8, 1, "before", Planned(round((NOW_SECS + secs) * 1_000))), committed=7)
    expected = (
        "the clock shows 1970-01-01 00:16:40+00:00, but transaction 7 was planned at 1970-01-01 00:17:41+00:00: either it "
        "was ahead then, or it is behind now and must be set. Until it shows that time, all transactions are planned at "
        "it; no idle timeout of event time passes before then"
    )
    assert [record.message for record in caplog.records] == [expected]


class Opaque(Status):
    """The coordinator of an opaque spout of one partition."""

    def partitions(self) -> list[int]:
        return [0]


@pytest.mark.parametrize(
    ("previous", "turn"), [(None, BeginReason.INPUT), ({}, BeginReason.INPUT), ({}, BeginReason.QUIET)]
)
def test_a_roll_back_is_told(previous: Any, turn: BeginReason) -> None:
    """Whatever the transaction is that it goes back to, also none: what came after it is to be taken again."""
    coordinator, clock = Opaque(SourceStatus.READY), Clock()
    feed = SpoutFeed(
        [AskedSpout("spout", coordinator, OPAQUE)], lambda: clock.now, clock.sleep, wall_secs=lambda: NOW_SECS
    )
    last = 0 if previous is None else 4
    for _ in range(3):
        event = feed.create(ask(last + 1, 1, previous, Planned(0, turn)), committed=last)
        assert isinstance(event, MetadataCreated)
        assert [each.txid for each in event.begun] == [last + 1]
        clock.now += 10
    assert coordinator.told == [last, last, last]


def test_what_took_nothing_is_not_told() -> None:
    """An opaque spout's coordinator does not hear of transactions without input, which it might take for fruitless."""
    coordinator, clock = Opaque(), Clock()
    feed = SpoutFeed(
        [AskedSpout("spout", coordinator, OPAQUE)], lambda: clock.now, clock.sleep, wall_secs=lambda: NOW_SECS
    )
    for first_txid, turn in ((5, BeginReason.QUIET), (6, BeginReason.QUIET), (7, BeginReason.INPUT)):
        feed.create(ask(first_txid, 1, {}, Planned(0, turn)), committed=first_txid - 1)
    assert coordinator.told == [4, 6]
