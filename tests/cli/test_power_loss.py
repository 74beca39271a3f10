"""What a repair, a rewind, a fork, a backfill and a state begun empty stand on is durable: a loss of power costs nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from state import read_table
from tests.acceptance.topologies import counts_of, make_data, read_total, read_words
from tests.backfill.backfills import WORLD, Place as Growing
from tests.transactional.recovery.divergences import Place
from tests.transactional.recovery.power_loss import Disk, Left
from txtopo import Config
from txtopo.errors import DivergenceError
from txtopo.failpoints import armed
from txtopo.files.places import folder_at
from txtopo.fork.fork import find_fork
from txtopo.fork.forking import moved
from txtopo.testing.inline import run_inline
from txtopo.topology.topology import TransactionalTopology

DATA = make_data(2, 20)
CONFIG = Config(group_transactions_max=1)

MODULE = """
from tests.acceptance.topologies import make_data, words_topology

def topology():
    return words_topology("disk", make_data(2, 20), take=4)
"""


@pytest.fixture
def disk(command_line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A folder whose syncs are noted, for the tables and the metadata directory of ``counting``."""
    command_line.write_module("counting", MODULE)
    with Disk.watched(tmp_path / "disk", monkeypatch) as watched:
        yield watched


def lefts_of(disk: Disk, act: Callable[[], object], *steps: str) -> list[Left]:
    """Do something; return what a loss of power after each of some steps, from the first one on, would leave."""
    lefts: list[tuple[str, Left]] = []

    def note(name: str) -> None:
        if name in (steps if lefts else steps[:1]):
            lefts.append((name, disk.left()))

    with armed(note):
        act()
    assert {name for name, _ in lefts} == set(steps)
    return [left for _, left in lefts]


def check_words(command_line, folder: Path) -> None:
    """Every total is exact at the end, and the journal proves it."""
    assert read_words(folder) == counts_of(DATA)
    assert read_total(folder) == sum(counts_of(DATA).values())
    command_line.told("audit", str(folder))


@pytest.mark.slow
def test_a_rewind(command_line, disk: Disk) -> None:
    """Once a step of it is done, the next repair or run finds all that it relies on."""
    place = Place(disk.folder)
    place.run()
    steps = (f"repair.{step}.after" for step in ("begin", "table", "journal", "end"))
    for left in lefts_of(disk, lambda: command_line.told("rewind", "counting", "3", "--yes"), *steps):
        left.lay_out(disk.folder)
        command_line.told("repair", "counting", "--yes")
        assert place.txids() == {"words": 3, "total": 3}
        place.run()
        check_words(command_line, disk.folder)


@pytest.mark.slow
def test_a_start_anew(command_line, disk: Disk) -> None:
    """What was moved aside stays there, whole, and nothing of it is where a new run begins."""
    place = Place(disk.folder)
    place.run()
    steps = ("repair.table.after", "repair.journal.after", "repair.end.after")
    lefts = lefts_of(disk, lambda: command_line.told("repair", "counting", "--start-anew", "--yes"), *steps)
    for left in lefts:
        left.lay_out(disk.folder)
        command_line.told("repair", "counting", "--yes")
        (aside,) = disk.folder.glob("words.before-repair-*")
        assert len(read_table(aside)) > 0
        place.run()
        check_words(command_line, disk.folder)


@pytest.mark.slow
def test_foreign_rows_that_are_accepted(command_line, disk: Disk) -> None:
    """What a repair has adopted is synced before the coordinator state counts on it: who wrote it may not have."""
    place = Place(disk.folder)
    place.run(3)
    place.append_word()
    steps = ("repair.table.after", "repair.end.after")
    repair = ("repair", "counting", "--accept-foreign-writes", "--yes")
    for left in lefts_of(disk, lambda: command_line.told(*repair), *steps)[1:]:
        left.lay_out(disk.folder)
        command_line.told(*repair)
        assert {"word": "intruder", "n": 1000, "txid": 1} in read_table(disk.folder / "words").to_pylist()
        place.run()
        assert read_total(disk.folder) == sum(counts_of(DATA).values())


@pytest.mark.slow
def test_a_fork(command_line, disk: Disk) -> None:
    """One that is named as finished is; any other one is made again in its folder."""
    Place(disk.folder).run()
    fork = ("fork", "counting", "3", "disk/side")
    steps = (f"fork.{step}.after" for step in ("begin", "table", "journal", "state", "end"))
    for left in lefts_of(disk, lambda: command_line.told(*fork), *steps):
        left.lay_out(disk.folder)
        found = find_fork(folder_at(disk.folder / "side"))
        if found is None or not found.is_made:
            command_line.told(*fork)
        plan, config = moved(Place(disk.folder).topology().plan, CONFIG, folder_at(disk.folder / "side"))
        run_inline(TransactionalTopology(plan), config)
        check_words(command_line, disk.folder / "side")
    assert found is not None
    assert found.is_made, "at the end"


def go_on(place: Growing, config: Config = CONFIG) -> None:
    """Run a topology with the state that it is to get; if the state has not joined yet, give it its history first."""
    try:
        place.run("words", "lengths", config=config)
    except DivergenceError:
        place.backfill("lengths", "words", "lengths")
        place.run("words", "lengths")


@pytest.fixture
def growing(disk: Disk) -> Iterator[Growing]:
    """Another topology there, of twelve transactions."""
    WORLD.__init__([f"w{n % 3}" for n in range(12)])
    yield Growing(disk.folder)
    WORLD.__init__()


@pytest.mark.slow
def test_a_backfill(command_line, disk: Disk, growing: Growing) -> None:
    """The next one goes on with what is left of it, unless the state has joined: then the topology runs with it."""
    growing.run("words")
    steps = (*(f"backfill.{step}.after" for step in ("begin", "epoch", "enter", "join")), "group.commit.after")
    for left in lefts_of(disk, lambda: growing.backfill("lengths", "words", "lengths"), *steps):
        left.lay_out(disk.folder)
        go_on(growing)
        assert sum(row["n"] for row in growing.rows("lengths")) == 12
        command_line.told("audit", str(disk.folder))


@pytest.mark.slow
def test_a_state_that_is_begun_empty(command_line, disk: Disk, growing: Growing) -> None:
    """Its former table stays aside, whole, and the new one has all transactions from there on."""
    growing.run("words", "lengths", until=4)
    growing.run("words", until=6)
    config = CONFIG.with_settings({"topology.state.start.empty": {"lengths": 6}})
    steps = (*(f"recovery.{step}.after" for step in ("begin", "aside", "begun")), "group.commit.after")
    for left in lefts_of(disk, lambda: growing.run("words", "lengths", config=config), *steps):
        left.lay_out(disk.folder)
        growing.run("words", "lengths", config=config)
        (aside,) = disk.folder.glob("lengths.before-repair-*")
        assert sum(read_table(aside)["n"].to_pylist()) == 4
        assert sum(row["n"] for row in growing.rows("lengths")) == 6
        command_line.told("audit", str(disk.folder))
