"""The points of a run: what is on record of them, and what the states of a topology are told."""

import pytest

from state import MemoryStore, SqliteStore
from state.delta.opened_table import OpenedDeltaTable
from tests.transactional.recovery.divergences import Place
from txtopo import Config
from txtopo.api.state import History
from txtopo.journal.holds import Hold
from txtopo.testing.inline import run_inline
from txtopo.transactional.commit.point_keeper import PointKeeper
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.points import SLOT_MS, KeptPoint, KeptPoints, thinned_ms

SLOT_SECS = SLOT_MS // 1000
SECS = 20_000 * 24 * 3600


def run(place, until, secs):
    """Run up to a transaction; the clock stands still."""
    config = Config({"topology.group.transactions.max": 1, "topology.history.recent.secs": 300})
    run_inline(place.topology(), config, until=until, wall_secs=lambda: secs)


def on_record(place):
    store = SqliteStore(place.store)
    try:
        return CoordinatorState(store, None, place.topology().plan.topology_id).points()
    finally:
        store.close()


@pytest.mark.slow
def test_points_are_on_record_and_told(tmp_path, monkeypatch):
    """The next leader goes on with them, and tells each state before its maintenance; what stands is always one."""
    told = []
    monkeypatch.setattr(OpenedDeltaTable, "keep_history", lambda _table, history: told.append(history))
    place = Place(tmp_path)
    run(place, 2, SECS)
    run(place, 3, SECS + SLOT_SECS - 1)
    run(place, 4, SECS + SLOT_SECS)
    first, second = KeptPoint(1, SECS * 1000), KeptPoint(3, SECS * 1000 + SLOT_MS)
    assert on_record(place) == KeptPoints((first, second))
    assert (told[0], told[-1]) == (
        History((1,), 300, 168, SECS, 1),
        History((1, 3), 300, 168, SECS + SLOT_SECS, 4),
    )
    run(place, 5, SECS + 8 * 24 * 3600)
    assert [point.txid for point in on_record(place).points] == [4]


class Journal:
    """Looks at the points on record before it removes anything."""

    def __init__(self, store):
        self.store, self.cuts = store, []

    def end_part(self):
        """Do nothing."""

    def keep_after(self, txid, before_ms, before_any):
        before_any()
        on_record = CoordinatorState(self.store, None, "t").points()
        self.cuts.append((txid, before_ms, [point.txid for point in on_record.points]))


def test_points_that_are_gone_are_off_the_record_before_the_journal_is_cut():
    """Otherwise a crash would leave points that the journal lacks; those of a time that was undone are none, either."""
    store = MemoryStore()
    state = CoordinatorState(store, store.take_lead("t", "test"), "t")
    state.record_points(KeptPoints((KeptPoint(9, SECS * 1000),)))
    state.flush()
    secs = [SECS]
    journal = Journal(store)
    keeping = PointKeeper(state, 8, lambda: secs[0], recent_secs=300, rewind_hours=1, journal=journal)
    for txid, secs[0] in ((10, SECS), (11, SECS + 3000)):
        keeping.record_committed(txid)
        keeping.record_standing()
        state.flush()
    keeping.tell([])
    secs[0] += 601
    keeping.tell([])
    assert journal.cuts == [
        (10, thinned_ms((SECS + 3000) * 1000, 1), [10, 11]),
        (11, thinned_ms((SECS + 3601) * 1000, 1), [11]),
    ]


def test_what_a_backfill_holds_stays():
    """The journal is cut to what it needs, and to the oldest point once it ends; also if the clock is put back."""
    store = MemoryStore()
    state = CoordinatorState(store, store.take_lead("t", "test"), "t")
    secs, held, looks = [SECS], [Hold(3, 0)], []
    journal = Journal(store)
    keeping = PointKeeper(
        state,
        0,
        lambda: secs[0],
        recent_secs=300,
        rewind_hours=1,
        journal=journal,
        holds=lambda now_ms: looks.append(now_ms) or held,
    )
    keeping.record_committed(10)
    state.flush()
    for secs[0] in (SECS, SECS + 9, SECS + 10, SECS - 5000):
        keeping.tell([])
    assert {*looks} == {each * 1000 for each in (SECS, SECS + 10, SECS - 5000)}
    held = []
    secs[0] = SECS
    keeping.tell([])
    assert [txid for txid, *_ in journal.cuts] == [3, 3, 10]


def test_a_hold_that_was_said_just_now_counts():
    """Before the journal is cut it is looked at once more, however short ago the last look was."""
    store = MemoryStore()
    state = CoordinatorState(store, store.take_lead("t", "test"), "t")
    secs, held, journal = [SECS + SLOT_SECS - 1], [], Journal(store)
    keeping = PointKeeper(
        state, 10, lambda: secs[0], recent_secs=300, rewind_hours=1, journal=journal, holds=lambda _now_ms: list(held)
    )
    keeping.tell([])
    held.append(Hold(3, 0))
    secs[0] += 1
    keeping.tell([])
    assert [txid for txid, *_ in journal.cuts] == [10, 3]


def test_the_journal_is_cut_as_time_passes():
    """The oldest point stays the same, and what was too young to go before goes in its slot."""
    store = MemoryStore()
    state = CoordinatorState(store, store.take_lead("t", "test"), "t")
    secs, journal = [SECS], Journal(store)
    keeping = PointKeeper(state, 0, lambda: secs[0], recent_secs=300, rewind_hours=1, journal=journal)
    keeping.record_committed(1)
    for secs[0] in (SECS, SECS + SLOT_SECS - 1, SECS + SLOT_SECS, SECS + 2 * SLOT_SECS):
        keeping.tell([])
    assert [(txid, (before_ms - thinned_ms(SECS * 1000, 1)) // 1000) for txid, before_ms, _ in journal.cuts] == [
        (1, 0), (1, SLOT_SECS), (1, 2 * SLOT_SECS)
    ]  # fmt: skip
