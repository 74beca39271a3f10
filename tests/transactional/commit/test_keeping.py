"""The points of a run: what is on record of them, and what the states of a topology are told."""

from __future__ import annotations

from state import SqliteStore
from state.delta.opened_table import OpenedDeltaTable
from tests.transactional.recovery.divergences import Place
from txtopo import Config
from txtopo.api.state import History
from txtopo.testing.inline import run_inline
from txtopo.transactional.core.points import SLOT_MS, KeptPoint, KeptPoints
from txtopo.transactional.recovery.coordinator_state import CoordinatorState

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


def test_points_are_on_record_and_told(tmp_path, monkeypatch):
    """The next leader goes on with them, and tells each state before its maintenance."""
    told = []
    monkeypatch.setattr(OpenedDeltaTable, "keep_history", lambda _table, history: told.append(history))
    place = Place(tmp_path)
    run(place, 2, SECS)
    run(place, 3, SECS + SLOT_SECS - 1)
    run(place, 4, SECS + SLOT_SECS)
    first, second = KeptPoint(1, SECS * 1000), KeptPoint(4, SECS * 1000 + SLOT_MS)
    assert on_record(place) == KeptPoints((first, second))
    assert (told[0], told[-1]) == (
        History((1,), 300, 168, SECS),
        History((1, 4), 300, 168, SECS + SLOT_SECS),
    )
    run(place, 5, SECS + 8 * 24 * 3600)
    assert [point.txid for point in on_record(place).points] == [5]
