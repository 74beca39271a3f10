"""Promises of ``txtopo backfill``: a state that is added later has what it would have from the start, or it is refused."""

import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from committers import AppendCommitter, Min
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, MemoryState, SqliteStore, read_tables
from tests.backfill.backfills import BAD, CONFIG, WORLD, Place, counting, history_of, totals, windows
from tests.cli.conftest import command_line
from tests.crashes import Crash, dying, survives
from tests.variants import variants
from tests.waiting import wait_for
from txtopo import Fields, Topology, TransactionalTopologyBuilder
from txtopo.api.components.planned import BeginReason
from txtopo.engine.control import RunControl
from txtopo.errors import AlreadyRunning, ConfigError, DivergenceError, InternalError
from txtopo.failpoints import armed
from txtopo.topology.user_code.output import USER_LOGGER

__all__ = ["command_line"]


@pytest.fixture(autouse=True)
def world():
    """Twelve rows of three words, of which the sixth is given up."""
    WORLD.__init__([f"w{n % 3}" if n != 5 else BAD for n in range(12)])
    yield WORLD
    WORLD.__init__()


@pytest.fixture(autouse=True)
def level_of_user_output():
    """Two runs at a time in one process, as no user has them, leave the logger's level to whichever ends last."""
    logger = logging.getLogger(USER_LOGGER)
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A topology that has run to the end of its source without the state ``lengths``."""
    place = Place(tmp_path / "out")
    place.run("words")
    return place


@pytest.fixture
def reference(tmp_path: Path, place: Place) -> Place:
    """The same one, with the state from the start."""
    reference = Place(tmp_path / "reference", place.make)
    reference.run("words", "lengths", like=place.folder)
    return reference


@contextmanager
def running_beside(world, place: Place, *names: str) -> Iterator[Future[None]]:
    """Run the topology in a thread as long as the source is open, which it is no more at the end, whatever fails."""
    world.is_open = True
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(place.run, *names)
        finally:
            world.is_open = False


def audited(command_line, place: Place, *says: str, status: int = 0) -> None:
    result = command_line("audit", str(place.folder))
    assert result.exit_code == status, result.output
    for words in says:
        assert words in result.output


@pytest.mark.slow
@pytest.mark.parametrize("count", variants(120, long=[500]))
def test_a_table_added_later_equals_one_from_the_start(tmp_path, world, command_line, count):
    """Its rows and their txids are the same, and so they are after further transactions; the audit proves it whole."""
    world.rows = [f"w{n % 7}" if n % 100 else BAD for n in range(count)]
    place, reference = Place(tmp_path / "out"), Place(tmp_path / "reference")
    place.run("words")
    reference.run("words", "lengths")
    report = place.backfill("lengths", "words", "lengths")
    assert (report.joined_at, report.part.components) == (count, ("rows", "upper", "count-lengths"))
    assert place.rows("lengths") == reference.rows("lengths")
    audited(command_line, place, "lengths:", f"up to {count}; backfilled up to transaction {count}", "✔")
    world.rows += ["w1", "w2", "new"]
    for each in (place, reference):
        each.run("words", "lengths")
    assert place.rows("lengths") == reference.rows("lengths")
    audited(
        command_line,
        place,
        f"{count + 3} transactions, 1 to {count + 3}",
        f"up to {count + 3}; backfilled up to transaction {count}",
        "✔",
    )


@pytest.mark.slow
def test_it_follows_a_topology_that_runs(tmp_path, world, command_line):
    """It says once that it has caught up, goes on with what the topology commits, and joins when that has stopped."""
    place = Place(tmp_path / "out")
    with running_beside(world, place, "words") as running:
        wait_for("it runs", lambda: len(history_of(place.folder)) >= 6)

        def on_caught_up(txid: int) -> None:
            assert not running.done()
            place.caught_up.append(txid)
            world.rows += [f"w{n % 5}" for n in range(40)]
            world.is_open = False

        report = place.backfill("lengths", "words", "lengths", on_caught_up=on_caught_up)
        running.result()
    assert report.joined_at == 52
    assert len(place.caught_up) == 1
    reference = Place(tmp_path / "reference")
    reference.run("words", "lengths", like=place.folder)
    assert place.rows("lengths") == reference.rows("lengths")
    audited(command_line, place, "up to 52; backfilled up to transaction 52", "✔")


@pytest.mark.slow
def test_a_stopped_one_goes_on(place, reference):
    """It leaves the topology as it was, which starts without the state only, and names the command to go on with."""
    store = SqliteStore(place.folder / "_txtopo" / "coordinator.sqlite")
    lead = store.take_lead("t", "a run")
    control = RunControl()
    report = place.backfill("lengths", "words", "lengths", on_caught_up=lambda _: control.stop(), control=control)
    assert report.joined_at is None
    lead.release()
    store.close()
    with pytest.raises(DivergenceError, match=r"'lengths' of topology 't' is new.*'txtopo backfill MODULE lengths'"):
        place.run("words", "lengths")
    place.run("words")
    assert place.backfill("lengths", "words", "lengths").joined_at == 12
    assert place.rows("lengths") == reference.rows("lengths")


@pytest.mark.slow
def test_a_topology_that_died_in_a_group_is_finished_first(tmp_path, command_line):
    """The state joins it after that group, and readers of all tables see it from then on."""
    place = Place(tmp_path / "out")
    with pytest.raises(InternalError), armed(Crash(2, only="group.decide.after")):
        place.run("words")
    joined_at = place.backfill("lengths", "words", "lengths").joined_at
    assert joined_at is not None
    assert joined_at > 3
    view = read_tables(place.folder)
    assert view.txid == joined_at
    assert sum(view.tables["lengths"]["n"].to_pylist()) == sum(view.tables["words"]["n"].to_pylist())
    audited(command_line, place, f"backfilled up to transaction {joined_at}", "✔")
    place.run("words", "lengths")
    audited(command_line, place, f"up to 12; backfilled up to transaction {joined_at}", "✔")


@pytest.mark.long
@pytest.mark.parametrize("is_main_killed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_killed_at_each_failpoint_it_goes_on(tmp_path, world, command_line, is_main_killed):
    """Whatever is done by then, the next one ends with the same table, also if the topology died in a group before.

    Each failpoint counts for one of the two.
    """
    base = Place(Path("base"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        if is_main_killed:
            with dying("group.decide.after", 2):
                base.run("words")
        else:
            base.run("words", until=7)
        reference = Place(Path("reference"))
        reference.run("words", "lengths")
        for at in range(1 + is_main_killed, 1_000, 2):
            shutil.rmtree("out", ignore_errors=True)
            place, crash = base.copy(Path("out")), Crash(at)
            if survives(partial(place.backfill, "lengths", "words", "lengths"), crash):
                break
            if at % 4 < 2:  # the topology may go on in between
                place.run("words", until=9)
            finish(place)
            place.run("words", "lengths")
            assert place.rows("lengths") == reference.rows("lengths"), crash.name
            audited(command_line, place, "backfilled up to transaction", "✔")
        assert at > 30, "it reaches failpoints"


def turns_of(place: Place) -> set[BeginReason]:
    return {each.planned.turn for each in history_of(place.folder)}


def finish(place: Place) -> None:
    """Backfill again; what was joined already is said to be there."""
    try:
        assert place.backfill("lengths", "words", "lengths").joined_at is not None
    except ConfigError as error:
        assert "has state 'lengths' already" in str(error)  # noqa: PT017
    assert not (place.folder / "_txtopo" / "backfill" / "t" / "lengths" / "tables").exists()


@pytest.mark.slow
def test_event_time(tmp_path, world, command_line):
    """Windows below a clock that is there already get what they would have got, also by transactions without input.

    The clock runs beside the topology's own, in a scratch table that is removed; both new states are filled.
    """
    reference, place = Place(tmp_path / "reference", windows), Place(tmp_path / "out", windows)
    with running_beside(world, reference, "minutes") as running:
        wait_for("a quiet source", lambda: BeginReason.QUIET in turns_of(reference))
        world.rows += [BAD, "w1", "w2", *(f"w{n % 2}" for n in range(20))]
        world.is_open = False
        running.result()
    assert turns_of(reference) == {BeginReason.INPUT, BeginReason.QUIET, BeginReason.END}
    place.run(like=reference.folder)
    report = place.backfill("minutes", "minutes")
    assert report.part.scratch == ("clock",)
    assert report.part.new == ("open", "minutes")
    assert report.part.components == ("rows", "upper", "clock", "windows", "append")
    assert not (place.folder / "_txtopo" / "backfill" / "t" / "minutes,open" / "tables").exists()
    assert place.rows("minutes") == reference.rows("minutes") != []
    assert place.rows("open") == reference.rows("open")
    audited(command_line, place, "2 dead letters", "minutes:", "open:", "backfilled", "✔")
    world.rows += [f"w{n % 2}" for n in range(10)]
    for each in (reference, place):
        each.run("minutes", like=None if each is reference else reference.folder)
    assert place.rows("minutes") == reference.rows("minutes")


@pytest.mark.slow
@pytest.mark.parametrize(("state", "new"), [("sizes", ("sizes",)), ("joined", ("lefts", "rights", "joined"))])
def test_totals_of_totals(tmp_path, world, command_line, state, new):
    """What reads the changes of a table that is there gets those of the past, from a scratch table beside it."""
    reference, place = Place(tmp_path / "reference", totals), Place(tmp_path / "out", totals)
    place.run()
    reference.run(state)
    report = place.backfill(state, state)
    assert report.part.scratch == ("words",)
    assert report.part.new == new
    assert place.rows(state) == reference.rows(state) != []
    audited(command_line, place, f"{state}:", "backfilled", "✔")
    world.rows += ["w1", "w7"]
    for each in (reference, place):
        each.run(state)
    for name in new:
        assert place.rows(name) == reference.rows(name)


def test_what_a_table_is_made_of_comes_along(tmp_path):
    """A run that would fold something else into a table that has just joined is refused, as any later one."""
    place = Place(tmp_path / "out", totals)
    place.run()
    place.backfill("ends", "ends")
    joined = place.rows("ends")
    with pytest.raises(
        DivergenceError, match=r"state 'ends' .*'at', is made of Max\(at\) .*but the code has Min\(at\)"
    ):
        Place(place.folder, partial(totals, end=Min)).run("ends")
    place.run("ends")
    assert place.rows("ends") == joined


@pytest.mark.slow
def test_from_a_transaction_on(place, world, command_line):
    """The table has nothing of earlier ones, which the audit says; a resumed backfill keeps its beginning."""
    with pytest.raises(InternalError), armed(Crash(2, only="group.decide.after")):
        place.backfill("lengths", "words", "lengths", first=5)
    with pytest.raises(ConfigError, match=r"has begun with transaction 5 .*leave --from out"):
        place.backfill("lengths", "words", "lengths", first=6)
    assert place.backfill("lengths", "words", "lengths").joined_at == 12
    assert sum(row["n"] for row in place.rows("lengths")) == 7, "those from 5 to 12 without 6, which was given up"
    audited(command_line, place, "backfilled from transaction 5 on up to transaction 12", "✔")
    world.rows.append("w0")
    place.run("words", "lengths")
    audited(command_line, place, "backfilled from transaction 5 on up to transaction 12", "✔")


@pytest.mark.slow
def test_from_the_last_transaction(place, command_line):
    """It is in the middle of the last group, as is the one before it."""
    assert place.backfill("lengths", "words", "lengths", first=12).joined_at == 12
    assert [row["txid"] for row in place.rows("lengths")] == [12]
    audited(command_line, place, "backfilled from transaction 12 on up to transaction 12", "✔")


@pytest.mark.slow
def test_what_the_source_no_longer_has_is_said_before_it_begins(place, world):
    """The first transaction that it still has is named, and works; nothing was written."""
    world.gone_below = 7
    with pytest.raises(ConfigError, match=r"no longer has transaction 1 .*row 0 was removed.*with --from 8,"):
        place.backfill("lengths", "words", "lengths")
    assert not (place.folder / "_txtopo" / "backfill").exists()
    assert not (place.folder / "lengths").exists()
    place.backfill("lengths", "words", "lengths", first=8)
    assert sum(row["n"] for row in place.rows("lengths")) == 5
    world.gone_below = 12
    with pytest.raises(ConfigError, match=r"nor has it any later one"):
        place.backfill("more", "words", "lengths", "more")


@pytest.mark.slow
def test_other_tuples_than_then_are_refused(place, world, reference):
    """The component and the transaction are named, and nothing of it is written; with the code of then it goes on."""
    world.suffix = "!"
    with pytest.raises(
        DivergenceError, match=r"component 'upper' emits as many tuples as it did then, 1, but with other values"
    ) as error:
        place.backfill("lengths", "words", "lengths")
    assert error.value.txid == 1
    assert place.rows("lengths") == []
    world.suffix = ""
    place.backfill("lengths", "words", "lengths")
    assert place.rows("lengths") == reference.rows("lengths")


@pytest.mark.slow
def test_what_was_given_up_is_left_out(place):
    """No committer finishes a batch for it, as none did then."""
    place.backfill("turns", "words", "turns")
    assert place.rows("turns") == [{"word": "all", "n": 11, "txid": 12}]


def orders_and_clicks(folder: Path, *names: str) -> Topology:
    """Return a topology that appends what a repeatable and an opaque spout emit to tables of these names."""
    fields = Fields("word: string")
    builder = TransactionalTopologyBuilder("t", "orders", MemoryTransactionalSpout(["a", "b", "c"], fields, 1))
    builder.add_spout("clicks", OpaqueMemoryTransactionalSpout(["x", "y"], fields, 1))
    for name in names:
        bolt = builder.set_committer_bolt(f"append-{name}", AppendCommitter(name))
        bolt.shuffle_grouping(name.split("-", maxsplit=1)[0])
        builder.set_state(name, DeltaRows(folder / name, fields))
    return builder.build()


def test_a_state_that_an_opaque_spout_feeds_is_refused(tmp_path):
    """It need not emit again what it emitted; a repeatable one beside it does."""
    place = Place(tmp_path, orders_and_clicks)
    place.run("orders", "clicks")
    with pytest.raises(ConfigError, match=r"'clicks' is an opaque spout.*topology.state.start.empty"):
        place.backfill("clicks-again", "orders", "clicks", "clicks-again")
    place.backfill("orders-again", "orders", "clicks", "orders-again")
    assert place.rows("orders-again") == place.rows("orders")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("state", "names", "first", "says"),
    [
        ("lengths", ["words"], None, "has no state 'lengths'; its states are 'words'"),
        ("words", ["words", "lengths"], None, "has state 'words' already"),
        (
            "lengths",
            ["words", "lengths"],
            13,
            "--from is 13, but the topology is at transaction 12, so there is nothing",
        ),
        ("dead-letters", ["words", "lengths"], None, "has no state 'dead-letters'"),
    ],
)
def test_what_makes_no_sense_is_refused(place, state, names, first, says):
    with pytest.raises(ConfigError, match=says):
        place.backfill(state, *names, first=first)
    assert not (place.folder / "_txtopo" / "backfill").exists()


def test_a_topology_that_never_ran_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no journal in .*run the topology first"):
        Place(tmp_path / "new").backfill("lengths", "words", "lengths")


@pytest.mark.slow
def test_a_table_that_is_there_is_refused(place, tmp_path):
    """A state that was in the topology before is not new, and its table is left alone."""
    place.run("words", "lengths", config=CONFIG.with_settings({"topology.state.start.empty": {"lengths": 12}}))
    WORLD.rows.append("w1")
    place.run("words", "lengths")
    WORLD.rows.append("w2")
    place.run("words")
    before = place.rows("lengths")
    with pytest.raises(ConfigError, match=r"there is a table at .*lengths already, at transaction 13"):
        place.backfill("lengths", "words", "lengths")
    assert place.rows("lengths") == before


@pytest.mark.slow
def test_old_code_that_starts_again_leaves_the_state_behind(place, world, command_line):
    """Then the state is refused, and another backfill takes in what it has missed."""
    place.backfill("lengths", "words", "lengths")
    world.rows.append("w1")
    place.run("words")
    with pytest.raises(DivergenceError, match=r"was left out of the topology after transaction 12"):
        place.run("words", "lengths")
    assert place.backfill("lengths", "words", "lengths").joined_at == 13
    world.rows.append("w1")
    place.run("words", "lengths")
    assert sum(row["n"] for row in place.rows("lengths")) == 13
    audited(command_line, place, "backfilled up to transaction 13", "✔")


@pytest.mark.slow
def test_old_code_that_starts_again_after_the_new_one(place, world):
    """Starts of the new code have opened the table with later epochs than the backfill's: the next one goes beyond."""
    place.backfill("lengths", "words", "lengths")
    for _ in range(6):
        place.run("words", "lengths")
    world.rows.append("w1")
    place.run("words")
    assert place.backfill("lengths", "words", "lengths").joined_at == 13
    place.run("words", "lengths")
    assert sum(row["n"] for row in place.rows("lengths")) == 12  # one was given up


@pytest.mark.slow
def test_a_topology_that_has_gone_back_is_noticed(tmp_path, world):
    """The table would have transactions that the topology no longer has."""
    place = Place(tmp_path / "out")
    place.run("words", until=4)
    backup = place.copy(tmp_path / "backup")
    place.run("words", until=8)
    with dying("backfill.plan.before"):
        place.backfill("lengths", "words", "lengths")
    gone = place.folder.rename(tmp_path / "gone")
    backup.copy(place.folder)
    for name in ("lengths", "_txtopo/backfill"):
        (gone / name).rename(place.folder / name)
    place.run("words", until=10)
    with pytest.raises(DivergenceError, match=r"the topology has gone back since"):
        place.backfill("lengths", "words", "lengths")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["group.decide.before", "backfill.plan.before"])
def test_a_backfill_that_runs_is_left_alone(place, point):
    """Another process is refused, which is told who runs it; so is a start of the topology while a state joins it."""
    seen = []

    def look(name: str) -> None:
        if name == point and not seen:
            seen.append(name)
            with pytest.raises(AlreadyRunning, match="t"):
                place.backfill("lengths", "words", "lengths")
            if point == "backfill.plan.before":
                with pytest.raises(AlreadyRunning, match="txtopo backfill"):
                    place.run("words")

    with armed(look):
        assert place.backfill("lengths", "words", "lengths").joined_at == 12
    assert seen


@pytest.mark.slow
def test_the_audit_finds_a_backfill_of_other_transactions(place, command_line):
    """Its journal is evidence only as far as it says what the topology's says."""
    place.backfill("lengths", "words", "lengths")
    (journal,) = (place.folder / "_txtopo" / "backfill" / "t" / "lengths" / "journal" / "t").iterdir()
    text = journal.read_text()
    journal.write_text(text.replace('"end":4}', '"end":3}', 1))
    audited(command_line, place, "transaction 4, state 'lengths': in its backfill", status=1)
    journal.write_text("".join(text.splitlines(keepends=True)[:-1]))
    audited(command_line, place, "without this state", status=1)
    journal.unlink()
    audited(command_line, place, "without this state", status=1)


def test_a_state_in_memory_has_no_history(place):
    with pytest.raises(ConfigError, match=r"'lengths' is not in a table"):
        topology = counting(place.folder, "words", "lengths")
        topology.plan.states["lengths"] = MemoryState(Fields("word"), Fields("n"))  # type: ignore[index]
        Place(place.folder, lambda *_: topology).backfill("lengths")
