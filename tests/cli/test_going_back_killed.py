"""Going back by each of its commands, killed at each failpoint, and finished by whatever is there then."""

import contextlib
import pathlib
import shutil
from collections.abc import Callable

import attrs
import pytest

from state import read_table, read_tables
from tests.crashes import Crash, CrashError
from tests.variants import variants
from txtopo.errors import DivergenceError, InternalError, TxtopoError
from txtopo.failpoints import armed
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.testing.inline import run_inline
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.loading import load_target

FILES = 8
COMMITTED = 6

MODULE = """
from committers import AppendCommitter
from spouts import FilesTransactionalSpout
from state import DeltaRows
from txtopo import Config, Fields, TransactionalTopologyBuilder

ROWS = Fields("n: long")

def topology(states: str):
    builder = TransactionalTopologyBuilder("t", "files", FilesTransactionalSpout("in", ROWS, "json", batch_files_max=1))
    for name in states.split("+"):
        builder.set_committer_bolt(f"to-{name}", AppendCommitter(name)).shuffle_grouping("files")
        builder.set_state(name, DeltaRows(name, ROWS))
    return builder.build()

def config():
    return Config(group_transactions_max=1, max_spout_pending=2)
"""


BOTH = "rows+total"
ALL = [*range(1, FILES + 1)]


def run(states: str, until: int | None = None, fork: str | None = None, empty_after: int | None = None) -> None:
    """Run the topology with some states, or a fork of it; ``more`` may begin empty after a transaction."""
    target = load_target("files", {"states": states})
    plan, config = target.plan, target.config
    if empty_after is not None:
        config = config.with_settings({"topology.state.start.empty": {"more": empty_after}})
    if fork is not None:
        plan, config = moved(plan, config, folder_at(fork))
    run_inline(TransactionalTopology(plan), config, until=until)


def rows(folder: str = ".") -> dict[str, list[int]]:
    return {name: sorted(table["n"].to_pylist()) for name, table in read_tables(folder).tables.items()}


@attrs.frozen
class Going:
    """One of the commands."""

    words: tuple[str, ...]
    """Of the command; none for a start."""
    states: str = BOTH
    last: str = "repair.end.after"
    """The failpoint behind which it is done."""

    def prepare(self) -> None:
        run(BOTH, until=COMMITTED - 2)
        shutil.copytree("total", "former")
        run(BOTH, until=COMMITTED)
        if self.words[:1] == ("repair",):
            shutil.rmtree("total")
            shutil.copytree("former", "total")
        shutil.rmtree("former")

    def act(self, command_line, states: str) -> bool:
        """Do it, with code that has some states; return whether that succeeds."""
        if not self.words:
            try:
                run(states, COMMITTED, empty_after=COMMITTED)
            except TxtopoError:
                return False
            return True
        return command_line(*self.words, "--set", f"states={states}").exit_code == 0

    def check(self, command_line) -> None:
        """Run to the end: each file is in each table once, from where on the table has any."""
        if self.words[:1] == ("fork",):
            run(BOTH, fork="side")
            assert rows("side") == {"rows": ALL, "total": ALL}
            command_line.told("audit", "side")
        run(self.states, empty_after=COMMITTED)
        expected = dict.fromkeys(self.states.split("+"), ALL)
        assert rows() == expected | ({} if self.words else {"more": ALL[COMMITTED:]})
        command_line.told("audit", ".")


GOING = {
    "rewind": Going(("rewind", "files", "3", "--yes")),
    "repair": Going(("repair", "files", "--yes")),
    "start anew": Going(("repair", "files", "--start-anew", "--yes")),
    "start empty": Going((), f"{BOTH}+more", "recovery.confirm.after"),
    "fork": Going(("fork", "files", "3", "side"), last="fork.end.after"),
    "backfill": Going(("backfill", "files", "more"), f"{BOTH}+more", "backfill.join.after"),
}
FINISHERS = ("same code", "code that lacks a state", "input removed")
FAST = [(name, FINISHERS[at % len(FINISHERS)]) for at, name in enumerate(GOING)]
OTHERS = [(name, finisher) for name in GOING for finisher in FINISHERS if (name, finisher) not in FAST]


@pytest.fixture
def again(command_line, tmp_path) -> Callable[[], None]:
    """Return what brings the folder back to how it is now; commands run in this process."""
    command_line.write_module("files", MODULE)
    (tmp_path / "in").mkdir()
    for n in ALL:
        (tmp_path / "in" / f"{n}").write_text(f'{{"n": {n}}}\n')
    kept = tmp_path.with_name(f"{tmp_path.name}-kept")

    def restore() -> None:
        if kept.exists():
            for path in tmp_path.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
        else:
            shutil.copytree(tmp_path, kept)

    return restore


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize(("name", "finisher"), variants(*FAST, slow=OTHERS))
@pytest.mark.parametrize("share", variants(0, slow=[4], long=[1, 2, 3, 5, 6, 7]))
def test_it_is_finished_or_refused(command_line, again, name, finisher, share):
    """What finishes it checks what the first call did: no row is lost or doubled, whatever is there then."""
    going, file = GOING[name], pathlib.Path("in", str(COMMITTED - 1))
    going.prepare()
    again()
    points: list[str] = []
    with armed(points.append):
        assert going.act(command_line, going.states)
    points = [point for point in dict.fromkeys(points) if not point.startswith(("spout.", "bolt.", "folder."))]
    end = points.index(going.last)
    for point in points[share::8]:
        again()
        with armed(Crash(1, only=point)), contextlib.suppress(CrashError, InternalError):
            going.act(command_line, going.states)
        if finisher == "code that lacks a state":
            going.act(command_line, going.states.replace("+total", ""))
        elif finisher == "input removed":
            file.rename("gone")
            is_done = going.act(command_line, going.states)
            pathlib.Path("gone").rename(file)
            if name in {"rewind", "repair", "fork"}:
                assert not is_done or points.index(point) >= end, point
        going.act(command_line, going.states)
        going.check(command_line)


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("point", ["recovery.begin.after", "recovery.begun.after", "recovery.confirm.after"])
@pytest.mark.parametrize("txid", variants("4", slow=["2", "5"]))
def test_a_state_that_was_begun_empty_by_a_start_that_died(command_line, again, point, txid):
    """The topology has gone on without it: code that has it goes back to any point, as code that has not."""
    run(BOTH, until=4)
    again()
    with armed(Crash(1, only=point)), contextlib.suppress(CrashError, InternalError):
        run(f"{BOTH}+more", 6, empty_after=4)
    run(BOTH, until=6)
    command_line.told("rewind", "files", txid, "--yes", "--set", f"states={BOTH}+more")
    assert rows() == dict.fromkeys(BOTH.split("+"), ALL[: int(txid)])
    run(f"{BOTH}+more", empty_after=int(txid))
    assert rows() == {**dict.fromkeys(BOTH.split("+"), ALL), "more": ALL[int(txid) :]}
    command_line.told("audit", ".")


@pytest.mark.slow
def test_a_fork_needs_all_states_too(command_line, again):
    """It would have no table of one that the code lacks; one that the topology had left by then is not missed."""
    run(BOTH, until=4)
    run("rows", until=5)
    less = ("--set", "states=rows")
    for txid in ("1", "4"):
        refusal = command_line.refusal("fork", "files", txid, "side", *less)
        assert "the code lacks 'total', with rows of transactions after 0 that would stay behind" in refusal
        assert not pathlib.Path("side").exists()
    for txid in ("0", "5"):
        command_line.told("fork", "files", txid, f"side-{txid}", *less)
        run("rows", fork=f"side-{txid}")
        assert rows(f"side-{txid}") == {"rows": ALL}


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("restored", ["the store", "store and journal"])
@pytest.mark.parametrize("point", ["repair.begin.after", "repair.table.after", "repair.journal.after"])
@pytest.mark.parametrize("name", ["rewind", "start anew"])
def test_a_backup_from_the_midst_of_it(command_line, again, name, point, restored):
    """A plan that was finished long ago is not carried out again: what the topology has taken since would be lost."""
    going, metadata_dir = GOING[name], pathlib.Path("_txtopo")
    going.prepare()
    with armed(Crash(1, only=point)), contextlib.suppress(CrashError, InternalError):
        going.act(command_line, BOTH)
    shutil.copytree(metadata_dir, "backup")
    going.act(command_line, BOTH)
    run(BOTH, until=FILES - 1)
    pathlib.Path("in", "7").rename("gone")
    for path in metadata_dir.glob("coordinator*"):
        path.unlink()
    for path in pathlib.Path("backup").glob("coordinator*"):
        shutil.copy(path, metadata_dir)
    if restored == "store and journal":
        shutil.rmtree(metadata_dir / "journal")
        if pathlib.Path("backup", "journal").exists():
            shutil.copytree("backup/journal", metadata_dir / "journal")
    words = ("repair", "files", "--yes", "--set", f"states={BOTH}")
    command_line.refusal(*words)
    pathlib.Path("gone").rename("in/7")
    is_done = command_line(*words).exit_code == 0
    assert is_done or restored != "the store"
    if is_done:
        run(BOTH)
    found = {state: sorted(read_table(state).to_pydict()["n"]) for state in ("rows", "total")}
    assert found == dict.fromkeys(found, ALL if is_done else ALL[:7])


@pytest.mark.slow
@pytest.mark.parametrize("restored", [("_txtopo",), ("_txtopo/journal", *BOTH.split("+"))], ids=["_txtopo", "the rest"])
@pytest.mark.parametrize("to", [1, 3])
def test_what_is_gone_that_only_an_unseen_timeline_has_read(command_line, again, restored, to):
    """A journal from before a rewind does not know the files that were read since: nobody could say that one is gone."""
    both, later = ("--set", f"states={BOTH}", "--yes"), ALL[3:]
    for n in later:
        pathlib.Path("in", str(n)).rename(f"to-come-{n}")
    run(BOTH, until=2)
    for name in ("_txtopo", *BOTH.split("+")):
        shutil.copytree(name, f"backup/{name}")
    for n in later:
        pathlib.Path(f"to-come-{n}").rename(f"in/{n}")
    run(BOTH, until=4)
    command_line.told("rewind", "files", str(to), *both)
    run(BOTH, until=6)
    for name in restored:
        shutil.rmtree(name)
        shutil.copytree(f"backup/{name}", name)
    for n in (5, 6):
        pathlib.Path("in", str(n)).rename(f"gone-{n}")
    before = {state: read_table(state) for state in BOTH.split("+")}
    lost = f"the journal no longer has transactions {min(to, 2) + 1} to 6"
    assert lost in command_line.refusal("repair", "files", *both)
    assert {state: read_table(state) for state in before} == before
    for n in (5, 6):
        pathlib.Path(f"gone-{n}").rename(f"in/{n}")
    for name in ("_txtopo", *before):
        shutil.rmtree(name)
        shutil.copytree(f"backup/{name}", name)
    run(BOTH)
    assert rows() == dict.fromkeys(before, ALL)
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize("restored", ["the store", "store and journal"])
@pytest.mark.parametrize("point", ["recovery.begin.after", "recovery.aside.after"])
def test_a_backup_from_the_midst_of_a_start(command_line, again, point, restored):
    """A state that has rows by now does not begin empty again."""
    metadata_dir, words = pathlib.Path("_txtopo"), ("files", "--yes", "--set", f"states={BOTH}+more")
    run(f"{BOTH}+more" if point == "recovery.aside.after" else BOTH, until=2)
    run(BOTH, until=4)
    with armed(Crash(1, only=point)), contextlib.suppress(CrashError, InternalError):
        run(f"{BOTH}+more", 6, empty_after=4)
    shutil.copytree(metadata_dir, "backup")
    run(f"{BOTH}+more", until=6)
    for path in metadata_dir.glob("coordinator*"):
        path.unlink()
    for path in pathlib.Path("backup").glob("coordinator*"):
        shutil.copy(path, metadata_dir)
    if restored == "store and journal":
        shutil.rmtree(metadata_dir / "journal")
        shutil.copytree("backup/journal", metadata_dir / "journal")
    with pytest.raises(DivergenceError):
        run(f"{BOTH}+more")
    is_done = command_line("repair", *words).exit_code == 0
    assert is_done == (restored == "the store")
    if is_done:
        run(f"{BOTH}+more")
        command_line.told("audit", ".")
    found = {state: sorted(read_table(state).to_pydict()["n"]) for state in f"{BOTH}+more".split("+")}
    until = FILES if is_done else 6
    assert found == {**dict.fromkeys(BOTH.split("+"), ALL[:until]), "more": ALL[4:until]}


@pytest.mark.slow
def test_archived_files_and_a_shortened_journal(command_line, again):
    """Files that nobody would give again are not left out: neither to 0, which is past the journal, nor after it."""
    run(BOTH, until=4)
    run(BOTH)
    first, *_ = sorted(pathlib.Path("_txtopo").glob("journal/**/*.jsonl"))
    first.unlink()
    both = ("--set", f"states={BOTH}", "--yes")
    pathlib.Path("archive").mkdir()
    for n in (1, 2, 6):
        pathlib.Path("in", str(n)).rename(f"archive/{n}")
        for txid in ("0", "2"):
            assert "the journal no longer has transaction" in command_line.refusal("rewind", "files", txid, *both)
        command_line.refusal("rewind", "files", "5", *both)
    for n in (1, 2, 6):
        pathlib.Path("archive", str(n)).rename(f"in/{n}")
    command_line.told("rewind", "files", "5", *both)
    run(BOTH)
    assert rows() == {"rows": ALL, "total": ALL}
