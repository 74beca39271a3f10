"""After a day of it, a topology goes back to each point that is listed, goes on, and goes back again to one before.

Its tables are of each kind, and are compared with those of an undisturbed topology that keeps every version.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from state import DeltaState, read_table
from state.delta.log.location import Location
from state.delta.read.reading import read_rows
from tests.harness.history.clock import SimulatedClock
from tests.harness.soak.changes.story import LAST, MODULE, TABLES, Undisturbed, points_of, rows_of
from tests.harness.soak.changes.topology import TRANSACTIONS
from txtopo import Fields
from txtopo.main.group import txtopo as command_line
from txtopo.testing.inline import run_inline
from txtopo.topology.user_code.loading import load_target

DAY_LOOK_SECS = 400
"""By so much the clock goes on at each look, so that all transactions take about a day."""

pytestmark = pytest.mark.slow


@attrs.define(eq=False)
class Past:
    """A topology, its clock, and what it is compared with."""

    folder: Path
    undisturbed: Undisturbed
    clock: SimulatedClock = attrs.field(factory=lambda: SimulatedClock(time.time() - 3 * 24 * 3600))
    look_secs: float = DAY_LOOK_SECS

    def _look(self) -> float:
        self.clock.go_on(self.look_secs)
        return self.clock.now_secs

    def run(self, until: int, look_secs: float = DAY_LOOK_SECS) -> None:
        """Run up to a transaction, and compare."""
        self.look_secs = look_secs
        target = load_target(MODULE, {"output": str(self.folder), "grown": "yes", "later": "yes"})
        with self.clock.instead_of_the_real_one():
            run_inline(target.topology, target.config, until=until, wall_secs=self._look)
        self.check()

    def call(self, *words: str) -> str:
        """Call a command, and return what it has told."""
        with self.clock.instead_of_the_real_one():
            told = CliRunner().invoke(command_line, list(words))
        assert told.exit_code == 0, told.output
        return told.output

    def rewind(self, *words: str) -> str:
        """Call that command."""
        sets = (f"output={self.folder}", "grown=yes", "later=yes")
        return self.call("rewind", MODULE, *words, *(word for each in sets for word in ("--set", each)))

    def points(self) -> list[int]:
        """Return the points that are listed, newest first."""
        return points_of({"output": str(self.folder), "grown": "yes", "later": "yes"})

    def check(self) -> int:
        """Compare the tables with the undisturbed ones; return the transaction that they are as of."""
        return self.undisturbed.check(self.folder)

    def opened(self) -> Iterator[tuple[str, DeltaTable]]:
        """Yield the tables as a reader opens them now."""
        for name in TABLES:
            yield name, Location.resolve(str(self.folder / name), None).handle()


@pytest.fixture
def past(undisturbed: Undisturbed, tmp_path: Path) -> Past:
    past = Past(tmp_path, undisturbed)
    past.run(LAST)
    words = DeltaState(tmp_path / "words", Fields("word: string"), Fields("n: long", "number: long")).table()
    assert len(words.kept(range(LAST))) < len(past.points()) + 3, "what is of no point is gone"
    return past


def test_each_point_of_a_day(past: Past) -> None:
    """Newest first, each can be gone back to and read before; from the oldest one, all runs again."""
    points = past.points()
    assert len(points) > 3
    past.undisturbed.check_points(past.folder, points)
    for point in points:
        past.rewind(str(point), "--yes")
        assert past.check() == point
    past.call("audit", str(past.folder))
    past.run(LAST)
    past.call("audit", str(past.folder))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 12))
def test_back_and_on_and_back_again(past: Past, seed: int) -> None:
    """From any point, for any time; what a reader has opened he reads to its end within the time of readers."""
    rng = random.Random(seed)
    for _ in range(4):
        points = past.points()
        point = rng.choice(points or [0])
        opened = list(past.opened())
        before = {name: rows_of(name, read_table(past.folder / name)) for name in TABLES}
        past.rewind(str(point), "--yes")
        assert past.check() == point
        past.run(rng.randint(point + 1, max(point + 1, TRANSACTIONS)), look_secs=1)
        for name, table in opened:
            location = Location.resolve(str(past.folder / name), None)
            read = read_rows(location, table, read_table(past.folder / name).schema)
            assert rows_of(name, read) == before[name], (name, point)
        past.run(rng.randint(point + 1, LAST), look_secs=rng.choice([60, 400, 3600]))
    past.run(LAST)
    past.call("audit", str(past.folder))
