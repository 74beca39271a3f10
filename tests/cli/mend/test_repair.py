"""``txtopo repair``: what it says, what it does at once, what it asks for, and a kill in the middle."""

import os
import pty
import shutil
import sqlite3
import subprocess

import pytest

from state import SqliteStore, read_table
from tests.crashes import Crash
from tests.processes import DEADLINE_SECS, python
from tests.transactional.recovery.divergences import TRANSACTIONS, Place
from txtopo.errors import DivergenceError, StopError
from txtopo.failpoints import armed

MODULE = """
from tests.acceptance.topologies import make_data, words_topology

def topology(output: str = "."):
    return words_topology(output, make_data(2, 20), take=4)
"""


@pytest.fixture
def place(command_line, tmp_path):
    command_line.write_module("counting", MODULE)
    return Place(tmp_path)


def fall_behind(place):
    """Restore one table, so that the other is to be rolled back."""
    place.run(2)
    place.back_up("words")
    place.run(4)
    place.restore("words")


def test_nothing_to_repair(command_line, place):
    """A sound topology is shown and left as it is."""
    place.run(3)
    before = place.seen()
    result = command_line("repair", "counting")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:3] == ["topology 'words'", "  coordinator state: at transaction 3", "  journal: at transaction 3"]
    assert lines[-1] == "nothing to repair"
    assert place.seen() == before


@pytest.mark.slow
def test_what_is_safe_is_done_at_once(command_line, place):
    """A wiped store is made anew without a question, and the command to go on with is told."""
    place.run(3)
    place.wipe_store()
    result = command_line("repair", "counting", "--set", "output=.")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "found: state 'words' of topology 'words': its table" in result.stdout
    assert "safe: no table is changed; the coordinator state is rebuilt, at transaction 3\n" in result.stdout
    assert result.stdout.endswith("done; to continue: txtopo run counting --set output=.\n")
    assert place.run().transactions == TRANSACTIONS - 3
    place.check_totals()


def page_of(content: bytes, name: bytes) -> int:
    """Return where the page of a database begins that has some bytes."""
    return content.index(name) // 4096 * 4096


DAMAGE = {
    "header": lambda content: b"garbage!" * 12 + content[96:],
    "a page": lambda content: (
        content[: (at := page_of(content, b"words/committed"))] + b"\xff" * 4096 + content[at + 4096 :]
    ),
    "cut": lambda content: content[: len(content) // 2],
    "cut in the header": lambda content: content[:50],
    "zeros": lambda content: bytes(len(content)),
    "another file": lambda _content: b"hello\n" * 2000,
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_store_is_put_aside(command_line, place, damage):
    """A run names it; a repair keeps it under another name, and rebuilds the coordinator state from the journal."""
    place.run(3)
    content = place.store.read_bytes()
    assert len(content) > 8192
    place.store.write_bytes(DAMAGE[damage](content))
    with pytest.raises(StopError, match=r"damaged.*txtopo repair"):
        place.run()
    damaged = place.store.read_bytes()
    told = command_line.told("repair", "counting")
    aside = place.metadata_dir / "coordinator.sqlite.before-repair-1"
    assert f"found: the store {place.store}, with the" in told
    assert "safe: no table is changed; the coordinator state is rebuilt, at transaction 3" in told
    assert aside.read_bytes() == damaged
    assert "nothing to repair" in command_line.told("repair", "counting")
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["incarnation", "spouts", "format", "recovered", "group", "committed"])
def test_a_damaged_value_is_put_aside(command_line, place, name):
    """The same of one value, and of the store nothing else is lost."""
    place.run(3)
    connection = sqlite3.connect(place.store)
    with connection:
        connection.execute("UPDATE node SET value = ? WHERE path = ?", (b"\xff garbage", f"words/{name}"))
    with pytest.raises(DivergenceError, match=f"'words/{name}'.*txtopo repair"):
        place.run()
    assert "the coordinator state is rebuilt, at transaction 3" in command_line.told("repair", "counting")
    kept = "SELECT value FROM node WHERE path = ?"
    assert connection.execute(kept, (f"words/before-repair-1/{name}",)).fetchone() == (b"\xff garbage",)
    connection.close()
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
def test_a_damaged_store_and_tables_that_are_behind(command_line, place):
    """Nothing is put aside before somebody has agreed to what follows."""
    fall_behind(place)
    place.store.write_bytes(b"garbage" * 1000)
    before = sorted(place.metadata_dir.iterdir())
    assert command_line("repair", "counting").exit_code == 1
    assert (place.store.read_bytes(), sorted(place.metadata_dir.iterdir())) == (b"garbage" * 1000, before)
    command_line.told("repair", "counting", "--yes")
    assert place.txids() == {"words": 2, "total": 2}
    place.finish()


@pytest.mark.slow
def test_a_damaged_store_and_no_journal(command_line, place):
    """What is missing is told; everything can be begun anew."""
    place.run(3)
    shutil.rmtree(place.metadata_dir / "journal")
    place.store.write_bytes(b"garbage" * 1000)
    assert "--start-anew" in command_line.refusal("repair", "counting", "--yes")
    command_line.told("repair", "counting", "--start-anew", "--yes")
    place.finish(TRANSACTIONS)


@pytest.mark.slow
def test_a_damaged_store_that_is_in_use(command_line, place):
    """It is not taken from another topology that runs with it."""
    place.run(3)
    other = SqliteStore(place.store)
    other.take_lead("other", "the other run")
    content = b"garbage" * 1000
    place.store.write_bytes(content)
    assert "'the other run'" in command_line.refusal("repair", "counting")
    assert place.store.read_bytes() == content
    other.close()
    command_line.told("repair", "counting")


@pytest.mark.slow
def test_a_kill_after_a_damaged_store_is_put_aside(command_line, place):
    """The next repair goes on as if it had been wiped."""
    place.run(3)
    place.store.write_bytes(b"garbage" * 1000)
    command_line.killed_at("repair.damage.after", "repair", "counting")
    assert "the coordinator state is rebuilt, at transaction 3" in command_line.told("repair", "counting")
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
def test_without_a_terminal_nothing_is_agreed_to(command_line, place):
    """Off a terminal what is not safe needs --yes; without it nothing is changed."""
    fall_behind(place)
    before = place.seen()
    result = command_line("repair", "counting")
    assert result.exit_code == 1
    assert (
        "needs your agreement: rolled back: 'total' to transaction 2, each by a new version that equals the old one; "
        in result.stdout
    )
    assert "the coordinator state is rebuilt, at transaction 2, and transactions 3 to 4 run again" in result.stdout
    assert "agree with --yes; nothing was changed" in result.stderr
    assert place.seen() == before
    assert command_line("repair", "counting", "--yes").exit_code == 0
    place.finish()


@pytest.mark.long
@pytest.mark.parametrize(("answer", "status"), [pytest.param("n", 1, marks=pytest.mark.slow), ("y", 0)])
def test_at_a_terminal_it_asks(command_line, place, answer, status):
    fall_behind(place)
    before = place.seen()
    controller, terminal = pty.openpty()
    process = python("-m", "txtopo", "repair", "counting", stdin=terminal, stderr=subprocess.PIPE)
    os.write(controller, f"{answer}\n".encode())
    out, err = process.communicate(timeout=DEADLINE_SECS)
    os.close(controller)
    os.close(terminal)
    assert process.returncode == status
    assert "do it? [y/N]" in out
    assert ("nothing was changed" in err) == (answer == "n")
    assert (place.seen() == before) == (answer == "n")


@pytest.mark.slow
def test_foreign_writes_are_taken_back_or_accepted(command_line, place):
    """Accepting is asked for by name, and agreed to."""
    place.run(4)
    place.append_word("intruder", 1000)
    result = command_line("repair", "counting", "--accept-foreign-writes")
    assert (result.exit_code, "foreign writes to 'words' are accepted" in result.stdout) == (1, True)
    command_line.told("repair", "counting", "--accept-foreign-writes", "--yes")
    assert "nothing to repair" in command_line.told("repair", "counting")
    place.append_word("second", 1)
    assert "rolled back: 'words' to transaction 4" in command_line.told("repair", "counting", "--yes")


def test_a_key_that_would_be_there_twice_is_not_accepted(command_line, place):
    """It is named, nothing is on record, and the write can be taken back."""
    place.run(4)
    word = read_table(place.folder / "words")["word"][0].as_py()
    place.append_word(word, 1000)
    said = command_line.refusal("repair", "counting", "--accept-foreign-writes", "--yes")
    assert f"state 'words': a key would be there more than once, such as {{'word': '{word}'}}" in said
    assert "rolled back: 'words' to transaction 4" in command_line.told("repair", "counting", "--yes")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["repair.begin.after", "repair.table.after", "repair.end.before"])
def test_accepting_that_died_is_finished(command_line, place, point):
    """It was agreed to: no run begins before, and what comes next does not ask, nor take anything back."""
    place.run(4)
    place.append_word("intruder", 1000)
    with armed(Crash(1, only=point)):
        command_line("repair", "counting", "--accept-foreign-writes", "--yes")
    with pytest.raises(DivergenceError, match=r"a repair of topology 'words'.* was interrupted"):
        place.run()
    assert "finishing an interrupted repair\n" in command_line.told("repair", "counting")
    assert "nothing to repair" in command_line.told("repair", "counting")
    assert {row["word"]: row["n"] for row in place.words_as_of(4)}["intruder"] == 1000


@pytest.mark.slow
def test_what_is_impossible_is_said_plainly(command_line, place):
    """It names what is missing, and how to start anew, which is agreed to; nothing is changed before."""
    place.run(3)
    shutil.rmtree(place.folder / "words")
    before = place.seen()
    said = command_line.refusal("repair", "counting", "--yes")
    assert all(words in said for words in ("the table of 'words'", "--start-anew", "nothing was changed"))
    assert command_line("repair", "counting", "--start-anew").exit_code == 1
    assert place.seen() == before
    command_line.told("repair", "counting", "--start-anew", "--yes")
    assert (place.folder / "total.before-repair-1").is_dir()


def test_a_running_topology_is_left_alone(command_line, place):
    """The lead is taken first: whoever holds it is named, and nothing is looked at."""
    place.run(3)
    running = SqliteStore(place.store)
    running.take_lead("words", "the run")
    result = command_line("repair", "counting", "--yes")
    running.close()
    assert (result.exit_code, result.stdout) == (1, "")
    assert "'the run'" in result.stderr


def test_two_ways_at_once_are_refused(command_line, place):
    assert "exclude each other" in command_line.refusal(
        "repair", "counting", "--start-anew", "--accept-foreign-writes", status=2
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("repair.begin.after", marks=pytest.mark.slow),
        "delta.write.landed",
        pytest.param("repair.journal.after", marks=pytest.mark.slow),
        pytest.param("repair.end.before", marks=pytest.mark.slow),
    ],
)
def test_a_kill_in_the_middle_is_finished_by_the_next_repair(command_line, place, point):
    """``kill -9`` leaves a topology that no run begins with, and that the same command repairs."""
    fall_behind(place)
    command_line.killed_at(point, "repair", "counting", "--yes")
    assert "finishing an interrupted repair" in command_line.told("repair", "counting")
    assert place.txids() == {"words": 2, "total": 2}
    assert place.run().transactions == TRANSACTIONS - 2
    place.check_totals()
