"""A short life keeps what is promised of a day, in all that does not depend on how fast a machine is."""

import itertools
import time
from pathlib import Path

import pytest

from state import DeltaState
from tests.harness.history.__main__ import broken_costs, broken_points, broken_sizes
from tests.harness.history.clock import SimulatedClock
from tests.harness.history.life import LATER, TABLES, Cost, Life, Load
from tests.variants import variants
from txtopo import Fields
from txtopo.assembly import run_loop
from txtopo.config import REAL_TIME
from txtopo.transactional.recovery.points import SLOT_MS

HOURS = 2
STEP_SECS = 120


def test_what_a_group_costs(tmp_path: Path) -> None:
    """The last groups are compared with those up to an early one, by as many of each as are asked for, or more."""
    life = Life(tmp_path, Load(), SimulatedClock(0), ())
    life.last = 150
    life.costs = {txid: Cost(txid**2, txid, txid, txid, txid, txid) for txid in (1, 50, 100, 150)}
    assert life.cost_of(50, 149) == Cost(150, 1, 1, 1, 1, 1)
    assert life.cost_of(60, 150) == Cost(200, 1, 1, 1, 1, 1)
    costly = [*broken_costs(life, 100, 50, is_counted=False)]
    assert costly == ["cpu_secs of a group"]
    assert [*broken_costs(life, 100, 50, is_counted=True)] == []


@pytest.mark.slow
@pytest.mark.parametrize("has_vectors", variants(False, long=[True]))
def test_in_real_time_mode_and_with_a_table_that_comes_later(tmp_path: Path, has_vectors: bool) -> None:
    """Tables cost about their live rows, and each point of the last hour and the first one of each hour can be read.

    So it is in micro-batches, which `make history-tenth` shows. The new table has all rows, and points from when it
    joined on.
    """
    clock = SimulatedClock(time.time() // 3600 * 3600 - HOURS * 3600)
    life = Life(tmp_path, Load(keys=200, touched=20, has_vectors=has_vectors), clock, [STEP_SECS] * 90, mode=REAL_TIME)
    life.run(45)
    life.backfill(LATER)
    life.run(90)
    assert [*broken_sizes(life), *broken_points(life)] == []
    points = life.points()
    slots = {point.at_ms // SLOT_MS for point in points}
    last = int(life.clock.now_secs * 1000) // SLOT_MS
    assert slots >= {*range(last - 11, last)}
    assert min(point.txid for point in points) == 1
    assert any(point.txid > 45 for point in points)


@pytest.mark.slow
def test_an_idle_topology_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it waits for input, all goes but the newest version and those of points."""
    monkeypatch.setattr(run_loop, "KEEP_UP_SECS", 0)
    life = Life(tmp_path, Load(keys=50, touched=5), SimulatedClock(time.time() - HOURS * 3600), [10.0] * 60)
    tables = [DeltaState(tmp_path / name, Fields("id: long"), Fields("text: string")).table() for name in TABLES]
    calls = itertools.count()

    def is_large() -> bool:
        wanted = {0, life.last, *(point.txid for point in life.points())}
        return any(table.kept(range(life.last + 1)) != wanted for table in tables)

    life.is_waiting = lambda: is_large() and next(calls) < 3_000
    life.run(len(life.steps_secs))
    assert not is_large()
