"""Backfills that begin at a point: what their components read is copied as of it, and held while that is needed."""

import shutil
import time
from functools import partial
from pathlib import Path

import pytest

import txtopo.backfill.beginning
from state.delta.log.data_files import DATA_FOLDER
from tests.backfill.backfills import WORLD, Place, windows
from tests.crashes import Crash, dying, survives
from tests.state.delta.delta_tables import scheduled_tables
from tests.variants import variants
from txtopo import Config
from txtopo.errors import ConfigError, StateAccessError
from txtopo.files.places import folder_at
from txtopo.journal.holds import BackfillHold, holds_in
from txtopo.transactional.recovery.operations.ways import version_is_gone
from txtopo.transactional.recovery.points import SLOT_MS

NEW = ("open", "minutes")

LAST = 13
"""The last transaction has no row: it closes the windows."""


CONFIG = Config(group_transactions_max=1)
SLOT_SECS = SLOT_MS // 1000


@pytest.fixture(autouse=True)
def world():
    """Twelve rows; those of a template are the same."""
    WORLD.__init__([f"w{n % 3}" for n in range(12)])
    yield WORLD
    WORLD.__init__()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A topology with a clock that has run to the end of its source without windows: three rows in a slot."""
    WORLD.__init__([f"w{n % 3}" for n in range(12)])
    place = Place(tmp_path_factory.mktemp("template") / "out", windows)
    began_secs = (int(time.time()) // SLOT_SECS - 3) * SLOT_SECS
    while began_secs // 3600 != (began_secs + 3 * SLOT_SECS) // 3600:  # of an hour one point stays for a day
        began_secs -= SLOT_SECS
    for slot in range(4):
        until = 3 * slot + 3 if slot < 3 else None
        place.run(config=CONFIG, until=until, wall_secs=lambda: began_secs + slot * SLOT_SECS)  # noqa: B023
    return place


@pytest.fixture
def place(template, tmp_path) -> Place:
    return template.copy(tmp_path / "out")


def cleaning(place: Place) -> Place:
    """Return the topology with tables that are cleaned up after each group."""
    return Place(place.folder, lambda *given: scheduled_tables(place.make(*given), clean_up_secs=0))


def begun_empty(tmp_path: Path, template: Place, at: int) -> Place:
    """Return a topology whose windows were begun empty after a transaction, with all others as they were."""
    found = Place(tmp_path / f"reference-{at}", windows)
    found.run(until=at, like=template.folder)
    empty = CONFIG.with_settings({"topology.state.start.empty": dict.fromkeys(NEW, at)})
    found.run("minutes", config=empty, like=template.folder)
    return found


def run_later(place: Place, secs: float, **settings: int) -> None:
    """Let time pass until three more rows, so that of what is not recent the versions of points alone are left."""
    place = cleaning(place)
    WORLD.rows += ["w0"] * 3
    now_secs = time.time() + secs
    place.run(config=CONFIG.with_settings(settings), wall_secs=lambda: now_secs)


@pytest.mark.slow
@pytest.mark.parametrize("first", [2, 4, 7, 9, 13])
def test_what_it_reads_is_as_it_was(tmp_path, template, place, first):
    """The tables are those of a topology whose states were begun empty there."""
    assert place.backfill("minutes", "minutes", first=first).joined_at == LAST
    (point,) = place.points
    assert (point.checkpoint.txid, point.obstacles) == (first - 1, ())
    reference = begun_empty(tmp_path, template, first - 1)
    for name in NEW:
        assert place.rows(name) == reference.rows(name)
    WORLD.rows += ["w1"] * 8
    place.run("minutes")
    reference.run("minutes", like=place.folder)
    for name in ("minutes", "clock"):
        assert place.rows(name) == reference.rows(name)


@pytest.mark.slow
def test_a_wish_between_two_points_goes_to_the_earlier_one(tmp_path, place):
    """And it is said before anything is written, with what is gone; the same call goes on with it."""
    run_later(place, 3 * SLOT_SECS)
    with dying("group.decide.after", 2):
        place.backfill("minutes", "minutes", first=9)
    (point,) = place.points
    assert point.checkpoint.txid == 6
    assert point.obstacles == (version_is_gone("clock", 8), version_is_gone("clock", 7))
    with pytest.raises(ConfigError, match=r"has begun with transaction 7 .*leave --from out"):
        place.backfill("minutes", "minutes", first=10)
    assert place.backfill("minutes", "minutes", first=9).joined_at > LAST
    reference = begun_empty(tmp_path, place, 6)
    for name in NEW:
        assert place.rows(name) == reference.rows(name)


@pytest.mark.slow
def test_before_the_oldest_point_it_is_refused(place):
    """What is gone is named, and where it can begin instead, which works; nothing was written."""
    run_later(place, 2 * 3600, **{"topology.rewind.hours": 1})
    oldest = LAST
    with pytest.raises(ConfigError, match=rf"needs 'clock' as of transaction 8 .*begin with --from {oldest + 1}$"):
        place.backfill("minutes", "minutes", first=9)
    assert not (place.folder / "_txtopo" / "backfill").exists()
    assert place.backfill("minutes", "minutes", first=oldest + 1).joined_at > oldest


@pytest.mark.slow
def test_a_state_that_joined_later_is_none_of_a_point(place):
    """Before, there was nothing of it to copy."""
    place.backfill("minutes", "minutes", first=7)
    WORLD.rows += ["w1"] * 3
    place.run("minutes")
    with pytest.raises(ConfigError, match=r"state 'open' joined the topology later.*--from 14$"):
        place.backfill("hours", "minutes", "hours", first=10)


@pytest.mark.slow
def test_a_point_that_goes_before_it_is_held_ends_it(monkeypatch, place):
    """It is said, holds nothing any more, and the same call begins anew."""
    copied = txtopo.backfill.beginning.copied

    def gone(*args):
        monkeypatch.setattr(txtopo.backfill.beginning, "copied", copied)
        for file in (place.folder / "clock" / DATA_FOLDER).iterdir():
            file.rename(place.folder / file.name)
        try:
            return copied(*args)
        finally:
            for file in place.folder.glob("*.parquet"):
                file.rename(place.folder / "clock" / DATA_FOLDER / file.name)

    monkeypatch.setattr(txtopo.backfill.beginning, "copied", gone)
    with pytest.raises(StateAccessError, match=r"no longer keeps its version of transaction 6"):
        place.backfill("minutes", "minutes", first=7)
    assert holds_in(folder_at(place.folder / "_txtopo"), "t", 0) == []
    assert place.backfill("minutes", "minutes", first=7).joined_at == LAST


@pytest.mark.long
def test_killed_at_each_failpoint_it_goes_on(tmp_path, template):
    """Whatever is done by then, the next call ends with the same tables."""
    reference = begun_empty(tmp_path, template, 6)
    for at in range(1, 1_000, 3):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        place, crash = template.copy(tmp_path / "out"), Crash(at)
        if survives(partial(place.backfill, "minutes", "minutes", first=7), crash):
            break
        try:
            assert place.backfill("minutes", "minutes", first=7).joined_at == LAST, crash.name
        except ConfigError as error:
            assert "has state 'minutes' already" in str(error), crash.name  # noqa: PT017
        for name in NEW:
            assert place.rows(name) == reference.rows(name), crash.name
    assert at > 30, "it reaches failpoints"


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", variants("backfill.table.after", slow=["backfill.table.before", "backfill.begin.before"])
)
def test_killed_while_it_copies_it_goes_on(tmp_path, template, place, step):
    """What a dead one has copied is removed."""
    with dying(step):
        place.backfill("minutes", "minutes", first=7)
    assert place.backfill("minutes", "minutes", first=7).joined_at == LAST
    reference = begun_empty(tmp_path, template, 6)
    for name in NEW:
        assert place.rows(name) == reference.rows(name)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["backfill.table.before", "group.decide.before"])
def test_a_version_that_it_copies_stays(place, step):
    """While it says so, whatever the topology removes; once it has the copy, or is dead, that goes as all else does."""
    clock = place.make(place.folder).plan.states["clock"].table()
    with dying(step):
        place.backfill("minutes", "minutes", first=7)
    folder = place.folder / "_txtopo" / "backfill" / "t" / "minutes,open"
    hold = BackfillHold(folder_at(folder)).current()
    assert hold is not None
    assert (hold.after, hold.wish, hold.point) == (6, 7, 6 if step == "backfill.table.before" else None)
    for secs, is_held in ((hold.until_ms / 1000 - 1, hold.point == 6), (hold.until_ms / 1000 + 1, False)):
        for _ in range(2):
            WORLD.rows += ["w1"] * 3
            cleaning(place).run(wall_secs=lambda secs=secs: secs)
        assert clock.kept([6]) == ({6} if is_held else set())
    assert holds_in(folder_at(place.folder / "_txtopo"), "t", hold.until_ms) == []
