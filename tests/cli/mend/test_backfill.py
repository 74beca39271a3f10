"""``txtopo backfill``: what it says, and a ``kill -9`` in the middle."""

import pathlib
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from state import read_table, read_tables
from tests.backfill.backfills import WORLD
from tests.crashes import Crash, dying
from tests.processes import ran
from tests.variants import variants
from txtopo import Config
from txtopo.failpoints import armed
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.testing.inline import run_inline
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.loading import load_target

MODULE = """
import pathlib
from tests.backfill.backfills import WORLD, counting

WORLD.rows = [f"w{n % 3}" for n in range(12)]

def topology(output: str = ".", more: str = ""):
    return counting(pathlib.Path(output), "words", *filter(None, [more]))

def config():
    from txtopo import Config
    return Config(group_transactions_max=1)
"""


@pytest.fixture
def inline():
    """Begin with another world afterwards."""
    yield
    WORLD.__init__()


@pytest.fixture
def module(command_line, tmp_path):
    command_line.write_module("counting", MODULE)
    run()
    return "counting"


def run(more: str = "", until: int | None = None, start_empty: dict[str, int] | None = None) -> None:
    """Run the topology, with one more state if it is named."""
    target = load_target("counting", {"more": more})
    config = target.config.with_settings({"topology.state.start.empty": start_empty})
    run_inline(target.topology, config, until=until)


def tables() -> dict[str, int]:
    """Return the sum of each table that is part of the topology."""
    return {name: sum(table["n"].to_pylist()) for name, table in read_tables(".").tables.items()}


ADDED = ("--set", "more=lengths")

INLINE = """
import txtopo.cli.mend.backfill
from txtopo.main.group import main
from txtopo.testing.inline import inline_environment

txtopo.cli.mend.backfill._environment = lambda *_: inline_environment()
main()
"""
"""The command in a process of its own, without Spark."""


@pytest.mark.slow
def test_a_state_gets_its_history(command_line, module, inline):
    """It says what runs, where it joined, and how to go on."""
    told = command_line.told("backfill", module, "lengths", *ADDED)
    assert "topology 't': backfill of 'lengths', from transaction 1\n  runs again: rows, upper, count-lengths\n" in told
    end = "joined the topology at transaction 12: 'lengths'; to continue: txtopo run counting --set more=lengths\n"
    assert told.endswith(end)
    assert "lengths: " in command_line.told("audit", ".")
    again = command_line.refusal("backfill", module, "lengths", *ADDED)
    assert "topology 't' has state 'lengths' already: there is nothing to backfill" in again


@pytest.mark.slow
def test_a_fork_from_before_it_joined_is_compared(command_line, module, inline):
    """A table that only one of them has keeps nobody from comparing the others, whenever it was written."""
    command_line.told("fork", module, "3", "other")
    command_line.told("backfill", module, "lengths", *ADDED)
    told = command_line.told("diff", ".", "other")
    assert "not compared, because only A has them: lengths\n" in told
    assert "as of transaction 3\nwords: 3 rows equal\n" in told


@pytest.mark.slow
def test_a_rewind_by_code_that_lacks_what_never_joined(command_line, module, inline):
    """A backfill that dies as it joins leaves its state in the journal, and nothing of the topology's behind."""
    with armed(Crash(1, only="backfill.enter.after")):
        command_line("backfill", module, "lengths", *ADDED)
    command_line.told("rewind", module, "6", "--yes")
    assert tables() == {"words": 6}
    run()
    assert tables() == {"words": 12}
    command_line.told("audit", ".")


@pytest.mark.slow
def test_what_comes_after_a_backfill_joined_is_compared(command_line, module, inline):
    """From there on its table has the groups of the run."""
    command_line.told("backfill", module, "lengths", *ADDED)
    command_line.told("fork", module, "12", "later", *ADDED)
    WORLD.rows.append("w0")
    run("lengths")
    plan, config = moved(load_target("counting", {"more": "lengths"}).topology.plan, Config(), folder_at("later"))
    run_inline(TransactionalTopology(plan), config)
    assert "as of transaction 13\nwords: 3 rows equal\nlengths: " in command_line.told("diff", ".", "later")


def test_mistakes_are_said_in_a_line(command_line, module, inline):
    assert "has no state 'lengths'" in command_line.refusal("backfill", module, "lengths")
    assert "--from" in command_line.refusal("backfill", module, "lengths", *ADDED, "--from", "0", status=2)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["group.decide.after", "backfill.enter.after"])
def test_a_kill_in_the_middle_goes_on(command_line, module, inline, point):
    """``kill -9`` leaves a topology that starts as before, and that the same command joins."""
    assert ran("-c", INLINE, "backfill", module, "lengths", *ADDED, failpoints=f"{point}=kill").returncode == -9
    WORLD.rows.append("w0")
    run()
    assert "joined the topology at transaction 13" in command_line.told("backfill", module, "lengths", *ADDED)
    assert "backfilled up to transaction 13" in command_line.told("audit", ".")
    # When the backfill died, the topology was at 12; its table has that moment, whether it had joined or not.
    command_line.told("rewind", module, "12", "--yes", *ADDED)
    run("lengths" if "lengths" in tables() else "")
    assert tables() == {"words": 13} | ({"lengths": 13} if point == "backfill.enter.after" else {})
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 10, *(pytest.param(at, marks=pytest.mark.long) for at in (*range(1, 10), 11, 12))])
def test_a_rewind_to_before_it_joined(command_line, module, inline, at):
    """The state is unknown again, its table is kept aside, and another backfill joins; also if the rewind dies."""
    command_line.told("backfill", module, "lengths", *ADDED)
    crash = Crash(3 * at)
    with armed(crash):
        command_line("rewind", module, "6", "--yes", *ADDED)
    if crash.name:
        command_line("rewind", module, "6", "--yes", *ADDED)
    assert tables() == {"words": 6}
    assert len(list(pathlib.Path().glob("lengths.before-repair-*"))) == 1
    command_line.told("audit", ".")
    assert "'lengths' of topology 't' is new" in command_line.refusal("run", module, *ADDED)
    told = command_line.told("rewind", module, "3", "--yes", *ADDED)
    assert "state 'lengths' is new, and left as it is: 'txtopo backfill' gives it its history" in told
    run(until=9)
    assert "joined the topology at transaction 9" in command_line.told("backfill", module, "lengths", *ADDED)
    run("lengths")
    assert tables() == {"words": 12, "lengths": 12}
    command_line.told("audit", ".")


FINISHERS = ("a start", "a start without the state", "the backfill", "a backfill of another", "repair", "rewind")


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("point", ["backfill.plan.after", pytest.param("backfill.enter.after", marks=pytest.mark.slow)])
@pytest.mark.parametrize("by", FINISHERS)
def test_a_join_that_died_is_finished_by_what_comes_next(command_line, module, inline, point, by):
    """The state is one of the topology, unless the code lacks it: then the backfill can go on."""
    with armed(Crash(1, only=point)):
        command_line("backfill", module, "lengths", *ADDED)
    expected = {"words": 13, "lengths": 13}
    WORLD.rows.append("w1")
    match by:
        case "a start without the state":
            run()
            assert tables() == {"words": 13}
        case "the backfill":
            assert "joined the topology at transaction 12" in command_line.told("backfill", module, "lengths", *ADDED)
        case "a backfill of another":
            told = command_line.told("backfill", module, "others", "--set", "more=others")
            assert "joined the topology at transaction 12: 'others'" in told
            expected = {"words": 13, "others": 13}
        case "repair":
            assert "finishing an interrupted backfill\n" in command_line.told("repair", module, *ADDED)
            assert tables() == {"words": 12, "lengths": 12}
        case "rewind":
            assert "a backfill was interrupted: start it, or run" in command_line.refusal("rewind", module, *ADDED)
            told = command_line.told("rewind", module, "6", "--yes", *ADDED)
            assert "finishing an interrupted backfill\n" in told
            assert "state 'lengths' joined the topology later: its table is moved aside" in told
            run()
    if by in {"a start without the state", "rewind"}:
        assert "joined the topology at transaction 13" in command_line.told("backfill", module, "lengths", *ADDED)
    run(next(reversed(expected)))
    assert tables() == expected
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("by", ["a start", "the backfill", "repair", "rewind"])
@pytest.mark.parametrize("fault", ["gone", "written"])
def test_a_join_refuses_a_table_that_is_no_longer_as_it_was_left(command_line, module, inline, fault, by):
    """Whatever would finish it looks again, and changes nothing; without the state the topology goes on."""
    with armed(Crash(1, only="backfill.plan.after")):
        command_line("backfill", module, "lengths", *ADDED)
    if fault == "gone":
        shutil.rmtree("lengths")
    else:
        rows = pa.table({"word": ["intruder"], "n": [1], "txid": [1]}, pa.schema(DeltaTable("lengths").schema()))
        write_deltalake("lengths", rows, mode="append")
    words = {
        "a start": ("run", module),
        "the backfill": ("backfill", module, "lengths"),
        "repair": ("repair", module, "--yes"),
        "rewind": ("rewind", module, "6", "--yes"),
    }
    refusal = command_line.refusal(*words[by], *ADDED)
    if by != "the backfill":  # its own coordinator state says so
        assert "the table of state 'lengths' is not as the backfill left it, at transaction 12" in refusal
    WORLD.rows.append("w1")
    run()
    for folder in ("lengths", "_txtopo/backfill"):
        shutil.rmtree(folder, ignore_errors=True)
    command_line.told("backfill", module, "lengths", *ADDED)
    run("lengths")
    assert tables() == {"words": 13, "lengths": 13}
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("code", ["with the state", "without it"])
@pytest.mark.parametrize("step", variants(None, slow=["repair.journal.after", "repair.backfill.after"]))
def test_a_backfill_of_an_undone_timeline_is_moved_aside(command_line, module, inline, code, step):
    """Its values are of transactions that are undone: it never joins, although the topology gets to its end again."""
    with armed(Crash(1, only="backfill.plan.before")):
        command_line("backfill", module, "lengths", *ADDED)
    options = ADDED if code == "with the state" else ()
    told = command_line.told("rewind", module, "6", "--dry-run", *options)
    if step is not None:
        with armed(Crash(1, only=step)):
            command_line("rewind", module, "6", "--yes", *options)
    said = command_line.told("rewind", module, "6", "--yes", *options)
    WORLD.suffix = "!"
    run()
    if options:
        assert "the backfill of state 'lengths' has later transactions: it and its table are moved aside" in told
        assert step is not None or "it and its table are moved aside" in said
        assert not pathlib.Path("lengths").exists()
    else:
        assert "its table stays: move it away before another backfill" in told
        assert "there is a table at" in command_line.refusal("backfill", module, "lengths", *ADDED, "--from", "7")
        pathlib.Path("lengths").rename("former")
    command_line.told("backfill", module, "lengths", *ADDED, "--from", "7")
    assert sorted(read_table("lengths").to_pydict()["word"]) == ["W0!", "W1!", "W2!"]
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "times", "is_undone"),
    [("backfill.plan.before", 1, True), ("group.decide.after", 7, True), ("group.decide.before", 7, False)],
)
def test_a_backfill_knows_which_timeline_it_has_read(command_line, module, inline, tmp_path, point, times, is_undone):
    """Equal numbers, metadata and times are not enough: it is refused where the topology has gone back behind it."""
    kept = tmp_path.with_name("kept")
    with armed(Crash(times, only=point)):
        command_line("backfill", module, "lengths", *ADDED)
    shutil.copytree(tmp_path, kept, dirs_exist_ok=True)
    command_line.told("rewind", module, "6", "--yes")
    shutil.copytree(kept / "_txtopo/backfill", "_txtopo/backfill", dirs_exist_ok=True)
    shutil.rmtree(kept)
    run()
    if is_undone:
        assert "the topology has gone back since" in command_line.refusal("backfill", module, "lengths", *ADDED)
    else:
        command_line.told("backfill", module, "lengths", *ADDED)
        assert tables() == {"words": 12, "lengths": 12}


@pytest.mark.slow
def test_a_repair_that_goes_back_moves_it_aside_too(command_line, module, inline):
    """As a rewind does: it has values of transactions that are undone."""
    command_line.told("rewind", module, "6", "--yes")
    shutil.copytree("words", "former")
    run()
    with armed(Crash(1, only="backfill.plan.before")):
        command_line("backfill", module, "lengths", *ADDED)
    shutil.rmtree("words")
    shutil.move("former", "words")
    told = command_line.told("repair", module, "--yes")
    assert "transactions 7 to 12 run again; backfills of 'lengths', and their tables, are moved aside\n" in told
    run()
    pathlib.Path("lengths").rename("former")
    command_line.told("backfill", module, "lengths", *ADDED)
    assert tables() == {"words": 12, "lengths": 12}
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("fault", ["table", "store", "store and table"])
@pytest.mark.parametrize(
    "point", variants("backfill.enter.after", slow=[None, "group.decide.after", "backfill.plan.before"])
)
def test_a_repair_with_the_new_code(command_line, module, inline, point, fault):
    """A state that is new, or whose backfill has not joined, is in nobody's way, and no part of the repair."""
    if "table" in fault:
        command_line.told("rewind", module, "6", "--yes")
        shutil.copytree("words", "former")
        run()
    if point is not None:
        with armed(Crash(8 if point == "group.decide.after" else 1, only=point)):
            command_line("backfill", module, "lengths", *ADDED)
    if "store" in fault:
        for path in pathlib.Path("_txtopo").glob("coordinator*"):
            path.unlink()
    if "table" in fault:
        shutil.rmtree("words")
        shutil.move("former", "words")
    if fault == "table" and point == "backfill.enter.after":
        assert "finishing an interrupted backfill\n" in command_line.told("repair", module, *ADDED)
    told = command_line.told("repair", module, "--yes", *ADDED)
    assert ("backfills of 'lengths', and their tables, are moved aside\n" in told) == (
        "table" in fault and point is not None
    ), told
    assert "nothing to repair" in command_line.told("repair", module)
    run()
    if fault != "store" or point != "backfill.enter.after":  # otherwise the journal says that it has joined
        command_line.told("backfill", module, "lengths", *ADDED)
    run("lengths")
    assert tables() == {"words": 12, "lengths": 12}
    command_line.told("audit", ".")


@pytest.mark.slow
def test_a_backfill_alone_needs_no_repair(command_line, module, inline):
    """A state whose backfill has not joined is new, and no fault."""
    with armed(Crash(4, only="group.decide.after")):
        command_line("backfill", module, "lengths", *ADDED)
    told = command_line.told("repair", module, *ADDED)
    assert "state 'lengths' is new, and no part of a repair: its backfill is at transaction 4\n" in told
    assert "nothing to repair" in told


@pytest.mark.slow
def test_a_repair_to_before_a_backfill_joined(command_line, module, inline):
    """As a rewind does, it moves the table aside, after a question: a backfill gives it its history again."""
    command_line.told("rewind", module, "6", "--yes")
    shutil.copytree("words", "former")
    run()
    WORLD.rows += ["w1", "w2"]
    command_line.told("backfill", module, "lengths", *ADDED)
    run("lengths")
    shutil.rmtree("words")
    shutil.move("former", "words")
    assert "needs your agreement: " in command_line("repair", module, *ADDED).stdout
    command_line.told("repair", module, "--yes", *ADDED)
    run()
    command_line.told("backfill", module, "lengths", *ADDED)
    assert tables() == {"words": 14, "lengths": 14}
    command_line.told("audit", ".")


@pytest.mark.slow
def test_a_state_that_was_left_out_after_it_joined_goes_on(command_line, module, inline):
    """Its backfill has all that the topology has done without it, and the audit knows where it joined before."""
    command_line.told("backfill", module, "lengths", *ADDED)
    run("lengths")
    WORLD.rows += ["w1", "w2"]
    run()
    assert "joined the topology at transaction 14" in command_line.told("backfill", module, "lengths", *ADDED)
    assert tables() == {"words": 14, "lengths": 14}
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True])
def test_a_topology_of_two_timelines_is_refused(command_line, module, inline, tmp_path, begun):
    """Coordinator state from before a rewind is at a transaction that fits, and yet is of no use: nothing joins it."""
    command_line.told("rewind", module, "9", "--yes")
    kept = {path: path.read_bytes() for path in pathlib.Path("_txtopo").glob("coordinator*")}
    run()
    if begun:
        with armed(Crash(1, only="backfill.plan.before")):
            command_line("backfill", module, "lengths", *ADDED)
    command_line.told("rewind", module, "6", "--yes", *ADDED)
    run(until=9)
    for path in pathlib.Path("_txtopo").glob("coordinator*"):
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    assert "of another timeline: a rewind" in command_line.refusal("backfill", module, "lengths", *ADDED)
    assert not pathlib.Path("lengths").exists()
    command_line.told("repair", module, "--yes")
    command_line.told("backfill", module, "lengths", *ADDED)
    run("lengths")
    assert tables() == {"words": 12, "lengths": 12}
    command_line.told("audit", ".")


@pytest.mark.slow
def test_starting_anew_moves_it_aside_too(command_line, module, inline):
    """It is of the former incarnation: another one begins by itself."""
    with armed(Crash(1, only="backfill.plan.before")):
        command_line("backfill", module, "lengths", *ADDED)
    command_line.told("repair", module, "--start-anew", "--yes", *ADDED)
    run(until=8)
    assert "joined the topology at transaction 8" in command_line.told("backfill", module, "lengths", *ADDED)
    run("lengths")
    assert tables() == {"words": 12, "lengths": 12}
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize("point", [4, 9])
def test_a_backfill_before_the_point_goes_on(command_line, module, inline, point):
    """What it has is not undone, so it stays; also if it is at the very point."""
    with armed(Crash(4, only="group.decide.after")):
        command_line("backfill", module, "lengths", *ADDED)
    told = command_line.told("rewind", module, str(point), "--yes", *ADDED)
    assert "state 'lengths' is new: its backfill, at transaction 4, can go on afterwards" in told
    run()
    assert "joined the topology at transaction 12" in command_line.told("backfill", module, "lengths", *ADDED)
    assert tables() == {"words": 12, "lengths": 12}
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", [f"recovery.{step}.{side}" for step in ("begin", "begun") for side in ("before", "after")]
)
def test_a_start_that_died_when_it_began_a_state_empty(command_line, module, inline, point):
    """The journal does not know the state yet, but the coordinator state does: every point is one still."""
    with dying(point):
        run("lengths", start_empty={"lengths": 12})
    for code in (ADDED, ()) if point == "recovery.begin.before" else (ADDED,):
        told = command_line.told("rewind", module, "12", "--yes", *code)
        assert told.endswith("the topology is at transaction 12 already; nothing to rewind\n")
        is_recorded = point in {"recovery.begin.after", "recovery.begun.before"}
        assert ("finishing an interrupted start with" in told) == is_recorded
    command_line.told("rewind", module, "6", "--yes", *ADDED)
    run("lengths", start_empty={"lengths": 6})
    assert tables() == {"words": 12, "lengths": 6}
    command_line.told("audit", ".")


@pytest.mark.slow
def test_a_rewind_leaves_no_table_behind(command_line, module, inline):
    """Code that lacks a state is refused; code that has it brings it back, also if it was left out for a while."""
    command_line.told("backfill", module, "lengths", *ADDED)
    WORLD.rows += ["w1", "w2"]
    run()
    assert "the code lacks 'lengths', with rows of transactions after 6" in command_line.refusal("rewind", module, "6")
    told = command_line.told("rewind", module, "13", "--yes", *ADDED)
    assert "a later point is not possible: state 'lengths' can't be at transaction 13: the topology was without" in told
    assert tables() == {"words": 12, "lengths": 12}
    command_line.told("audit", ".")


def test_another_store_is_refused(command_line, module):
    """A rewind or a fork with settings that name a store without this topology says which settings to give."""
    pathlib.Path("_txtopo", "coordinator.sqlite").rename("elsewhere.sqlite")
    for words in (["rewind", module, "6", "--yes"], ["rewind", module], ["fork", module, "6", "side"]):
        assert "give topology.state.store and its settings" in command_line.refusal(*words)
    assert not pathlib.Path("side").exists()
