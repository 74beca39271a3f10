"""Deletions in many orders with writes, readers, rewinds, forks, crashes, and a coordinator that was paused in one.

What is promised is there at every step: the newest version, each point, and what a reader has opened within the time for
that. What is not, is gone soon after.
"""

import random

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import state.delta.upkeep.rounds
from state import read_table
from state.delta.log.data_files import DATA_FOLDER
from tests.state.delta.table_life import RECENT_SECS, Life, files, places, rows_after, sorted_rows
from txtopo.errors import LostLead

STEPS = 40
CLEAN_UP_SECS = 61


def rows_of(table: pa.Table) -> list[tuple[int, ...]]:
    return sorted_rows(table.select(["id", "n", "txid"]))


@attrs.frozen
class Reader:
    """Has opened a version, and has not read all of it yet."""

    table: DeltaTable
    rows: list[tuple[int, ...]]
    opened_secs: float


class Schedule:
    """Random steps of a topology's coordinators, of which one leads, and of those who read."""

    def __init__(self, monkeypatch, folder, seed, **options):
        self.random = random.Random(seed)
        self.folder = folder
        # It looks before each deletion.
        self.life = Life(monkeypatch, folder / "t", upkeep={"trust_secs": -1}, **options)
        self.txid = 0
        self.epoch = 1
        self.readers: list[Reader] = []
        self.forks: dict[str, list[tuple[int, ...]]] = {}
        self.steps: list[str] = []
        self._is_beside = False
        self._dies_in: int | None = None
        look = state.delta.upkeep.rounds._CleanUp.refresh

        def looking(clean_up):
            self._come_to_deletion()
            look(clean_up)

        monkeypatch.setattr(state.delta.upkeep.rounds._CleanUp, "refresh", looking)

    def _come_to_deletion(self):
        """Let a coordinator die just before a deletion, or be paused there while others go on."""
        if self._is_beside:
            return
        if self._dies_in is not None:
            self._dies_in -= 1
            if self._dies_in < 0:
                self._dies_in = None
                raise OSError("the disk is gone")
        if self.random.random() < 0.05:
            self._is_beside = True
            for step in self.random.choices([self.read, self.fork, self.lead, self.rewind], k=2):
                self.do(step)
            if "lead" in self.steps[-2:] or "rewind" in self.steps[-2:]:
                for step in self.random.choices([self.write, self.wait, self.age], k=3):
                    self.do(step)
            self._is_beside = False

    def do(self, step):
        """Do a step, and look at all that is promised."""
        self.steps.append(step.__name__)
        step()
        self.check()

    def write(self):
        """Commit some groups, the last of which may be a point."""
        for _ in range(self.random.randrange(1, 9)):
            self.txid += 1
            self.life.write(self.txid, every_secs=self.random.randrange(1, 40))
            if self.random.random() < 0.15:
                self.life.points.append(self.txid)
            self.wait(0)

    def wait(self, secs=None):
        """Let time pass, and the upkeep do what is due by then."""
        try:
            self.life.maintain(self.random.randrange(30, 400) if secs is None else secs)
        except LostLead:
            assert not self._is_beside, "who was paused leads no more, and nobody else"

    def die(self):
        """Die in one of the next deletions, and begin again."""
        self._dies_in = self.random.randrange(1, 30)
        self.wait(CLEAN_UP_SECS)
        self._dies_in = None
        self.lead()

    def lead(self):
        """Lead as another coordinator."""
        self.epoch += 1
        self.life.opened = self.life.declared.open("topology", "s", "life", self.epoch)
        self.life.date()

    def rewind(self):
        """Go back to a point, and lead from there."""
        if not self.life.points:
            return
        self.lead()
        self.txid = self.random.choice(self.life.points)
        self.life.points = [point for point in self.life.points if point <= self.txid]
        self.life.opened.roll_back(self.txid)
        self.life.opened.record_turn(self.txid)
        self.lead()

    def age(self):
        """Let the oldest point go."""
        del self.life.points[: len(self.life.points) // 2]

    def read(self):
        """Open the newest version."""
        self.readers.append(Reader(DeltaTable(self.life.path), rows_after(self.txid), self.life.now_secs))

    def fork(self):
        """Make another table as of a point."""
        if self.life.points:
            point = self.random.choice(self.life.points)
            fork = self.life.declared.moved(str(self.folder / f"fork-{len(self.forks)}"))
            fork.fork(self.life.declared.address, point, "fork", "s", "own life", 1)
            self.forks[fork.path] = rows_after(point)

    def check(self):
        """Read what is promised."""
        life, now_secs = self.life, self.life.now_secs
        assert rows_of(read_table(life.path)) == rows_after(self.txid)
        for point in life.points:
            assert rows_of(read_table(life.path, point)) == rows_after(point), point
        self.readers = [reader for reader in self.readers if now_secs - reader.opened_secs <= RECENT_SECS]
        for reader in self.readers:
            assert rows_of(pa.table(reader.table.scan(columns=["id", "n", "txid"]))) == reader.rows

    def settle(self):
        """Let twice the time pass that anything else is kept for, and look at what is left."""
        life, self._is_beside = self.life, True
        for secs in (RECENT_SECS + CLEAN_UP_SECS, RECENT_SECS + CLEAN_UP_SECS, 25 * 3600):  # what no version names
            life.maintain(secs)
            self.check()
            kept = life.declared.table().kept(range(self.txid + 1))
        assert kept == {0, *life.points, self.txid}
        live = {place for version in life.versions() for place in places(life.path, version)}
        assert {f"{DATA_FOLDER}/{name}" for name in files(life.path)} <= live
        for path, rows in self.forks.items():
            assert rows_of(read_table(path)) == rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 24))])
def test_nothing_that_is_promised_is_ever_gone(tmp_path, monkeypatch, seed):
    """And all else is, in the end."""
    schedule = Schedule(monkeypatch, tmp_path, seed, deletion_vectors=seed % 2 == 1)
    schedule.do(schedule.write)
    ways = [schedule.write, schedule.wait, schedule.die, schedule.lead, schedule.rewind, schedule.age, schedule.read]
    for step in schedule.random.choices([*ways, schedule.fork], weights=[6, 3, 2, 1, 1, 1, 2, 1], k=STEPS):
        schedule.do(step)
    schedule.settle()
