"""The page of a run in which somebody has set the clock back, or ahead."""

import time

import attrs
import pytest

from tests.ui.runs import CONFIG, EVIL, topology_in
from tests.waiting import wait_for
from txtopo.assembly.report import Progress
from txtopo.engine.timeline import records
from txtopo.engine.timeline.ends import place_of
from txtopo.engine.timeline.observer import Timeline
from txtopo.files.places import folder_at
from txtopo.inspect.backend import FolderBackend
from txtopo.inspect.run.slugs import slug_of
from txtopo.inspect.timeline.timeline import TimelineReader

PROGRESS = Progress(
    topology_id=EVIL,
    committed_txid=10,
    processing=0,
    processed=0,
    committing=0,
    ready=0,
    first_uncommitted_status="",
    transactions=10,
    dead_letters=0,
    tuples=100,
    failures=0,
    elapsed_secs=1.0,
)


@attrs.define
class Clock:
    """The time of the run and of the page."""

    secs: float = 2_000_000_000.0

    def time(self) -> float:
        return self.secs

    def time_ns(self) -> int:
        return int(self.secs * 1e9)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "time", clock.time)
    monkeypatch.setattr(time, "time_ns", clock.time_ns)
    return clock


@pytest.mark.parametrize("step_secs", [-3600, -5, 3600])
def test_a_step_of_the_clock(tmp_path, clock, step_secs):
    """Figures go on at once, nothing is negative, and what was sampled before does not count as of now."""
    topology = topology_in(tmp_path)
    folder = place_of(topology, CONFIG)
    reader = TimelineReader(folder)
    with Timeline(topology, CONFIG, folder, 0.01) as timeline:
        timeline.leads("a", 1)
        wait_for("the files", reader.run)
        for number in range(10):
            clock.secs += step_secs if number == 5 else 1
            timeline.progressed(attrs.evolve(PROGRESS, transactions=10 * number))
            clock.secs += 1
            wait_for("a sample", lambda sampled=10 * number: transactions_of(reader) == sampled)
        backend = FolderBackend(folder_at(tmp_path))
        header = backend.header(slug_of(EVIL))
        assert header.transactions == 90
        assert 4 < header.rate.transactions < 11
        assert header.is_failing is False
        assert clock.secs - 2 <= header.updated_at <= clock.secs
        for plot in backend.plots(slug_of(EVIL), 60).plots:
            assert all(value is None or value >= 0 for line in plot.lines.values() for value in line)
        backend.close()
    reader.close()


def transactions_of(reader):
    sample = reader.last(records.PROGRESS).get("")
    return None if sample is None else sample["numbers"][records.OfProgress.TRANSACTIONS]
