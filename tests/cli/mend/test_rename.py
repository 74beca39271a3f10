"""``txtopo rename``: a topology's id and its states' names change, and nothing else does."""

import contextlib
import pathlib
import shutil
import time
from collections.abc import Callable

import pytest

from state import read_table, read_tables
from state.stores.sqlite import SqliteStore
from tests.crashes import Crash, CrashError
from tests.ui.runs import run_topology
from tests.variants import variants
from txtopo import Config
from txtopo.assembly.storage import make_store
from txtopo.errors import DivergenceError, FailedException, InternalError
from txtopo.failpoints import armed
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.inspect.backend import FACTS_SECS, FolderBackend
from txtopo.testing.inline import run_inline
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.loading import load_target

FILES = 8

MODULE = """
from committers import AppendCommitter, ReduceCommitter, Sum
from spouts import FilesTransactionalSpout
from state import DeltaRows, DeltaState
from txtopo import Config, Fields, TransactionalTopologyBuilder

ROWS = Fields("n: long")

def topology(id: str = "shop", rows: str = "rows", total: str = "total", more: str = "", n: int = 8):
    builder = TransactionalTopologyBuilder(id, "files", FilesTransactionalSpout("in", ROWS, "json", batch_files_max=1))
    builder.set_committer_bolt("to-rows", AppendCommitter(rows)).shuffle_grouping("files")
    builder.set_state(rows, DeltaRows("out/rows", ROWS))
    reduce = ReduceCommitter(total, ["n"], values={"times": Sum("n")})
    builder.set_committer_bolt("to-total", reduce).fields_grouping("files", ["n"])
    builder.set_state(total, DeltaState("out/total", Fields("n: long"), Fields("times: long")))
    if more:
        builder.set_committer_bolt("to-more", AppendCommitter(more)).shuffle_grouping("files")
        builder.set_state(more, DeltaRows("out/more", ROWS))
    return builder.build()

def config():
    return Config(group_transactions_max=1, max_spout_pending=2)
"""

NEW = {"id": "store", "rows": "lines", "total": "totals"}
KINDS = {"id": {"id": "store"}, "state": {"total": "totals"}, "both": NEW, "swap": {"rows": "total", "total": "rows"}}


@pytest.fixture(autouse=True)
def module(command_line, tmp_path):
    command_line.write_module("job", MODULE)
    (tmp_path / "in").mkdir()
    for n in range(1, FILES + 1):
        (tmp_path / "in" / f"{n}").write_text(f'{{"n": {n}}}\n')


def run(until: int | None = None, config: Config | None = None, **names: str) -> None:
    target = load_target("job", names)
    run_inline(target.topology, config or target.config, until=until)


def words(**names: str) -> list[str]:
    return [word for name, value in names.items() for word in ("--set", f"{name}={value}")]


def rows() -> list[int]:
    return sorted(read_table("out/rows")["n"].to_pylist())


def check(command_line, committed: int, **names: str) -> None:
    """What was there before is known by the new names, and each file is in each table once in the end."""
    now = {"id": "shop", "rows": "rows", "total": "total"} | names
    assert rows() == [*range(1, committed + 1)]
    assert read_table("out/rows", 2).num_rows == 2
    view = read_tables("out", 2, topology=now["id"])
    assert {name: table.num_rows for name, table in view.tables.items()} == {now["rows"]: 2, now["total"]: 2}
    told = command_line.told("explain", "out", "2")
    assert f"of topology '{now['id']}'" in told
    assert f"written   {now['total']}: 1 row put" in told
    assert "2: 0 to 9" in command_line.told("blame", "out", "2")
    assert "it can be brought back to" in command_line.told("rewind", "job", *words(**names))
    run(**names)
    assert rows() == [*range(1, FILES + 1)]
    assert "✔" in command_line.told("audit", "out")
    command_line.told("rewind", "job", "2", "--yes", *words(**names))
    assert rows() == [1, 2]
    run(**names)
    assert rows() == sorted(read_table("out/total")["n"].to_pylist()) == [*range(1, FILES + 1)]
    command_line.told("replay", "job", "4", *words(**names))
    assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_renamed(command_line, kind):
    """The run goes on with the new names; a rewind, the audit and the like go back to before the rename."""
    names = KINDS[kind]
    run(until=5)
    with pytest.raises(DivergenceError, match="txtopo rename"):
        run(**names)
    told = command_line.told("rename", "job", "--yes", *words(**names))
    assert "done; to continue" in told
    with pytest.raises(DivergenceError):
        run()
    assert "nothing to rename" in command_line.told("rename", "job", "--yes", *words(**names))
    report = command_line.told("audit", "out")
    assert "renamed" in report
    check(command_line, 5, **names)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["rename.end.before", "", "rename.shown.before"])
def test_the_page_shows_it_under_its_new_id_only(command_line, killed):
    """Its runs come along, also if one was refused under the new id, and a page that is open goes on with them."""
    for until in (2, 4):
        run_topology(load_target("job", {}).topology, until)
    page = FolderBackend(folder_at(pathlib.Path("out")))
    assert page.header("shop").committed == 4
    with pytest.raises(DivergenceError, match="txtopo rename"):
        run_topology(load_target("job", NEW).topology)
    if killed:
        killed_at(killed, lambda: renamed(command_line, **NEW))
    command_line.told("rename", "job", "--yes", *words(**NEW))
    time.sleep(FACTS_SECS)
    for source in (page, FolderBackend(folder_at(pathlib.Path("out")))):
        assert [topology.id for topology in source.topologies().topologies] == ["store"]
        assert list(source.health()) == ["store"]
        for slug in ("store", "shop"):
            header = source.header(slug)
            assert (header.id, header.slug, header.committed, header.can.audit) == ("store", "store", 4, True)
            assert sorted(run.committed or 0 for run in source.runs(slug).runs) == [0, 2, 4]
        assert source.header("store@1").committed == 2
        assert "topology 'store'" in source.transaction("store", 2).story[0].text
    run_topology(load_target("job", NEW).topology)
    time.sleep(FACTS_SECS)
    assert page.header("store").committed == FILES
    shutil.copytree("out/_txtopo/timeline-store", "out/_txtopo/timeline-shop")  # another topology that is called so now
    assert page.header("shop").id == "shop"


def renamed(command_line, **names: str) -> bool:
    return command_line("rename", "job", "--yes", *words(**names)).exit_code == 0


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("kind", variants("both", slow=["id", "swap"]))
@pytest.mark.parametrize("share", variants(0, slow=[1, 2, 3]))
def test_killed_at_any_step(command_line, tmp_path, kind, share):
    """The same command finishes it; until then neither code runs, unless nothing has been changed, or all is done."""
    names = KINDS[kind]
    run(until=4)
    kept = tmp_path.with_name(f"{tmp_path.name}-kept")
    shutil.copytree(tmp_path / "out", kept)
    points: list[str] = []
    with armed(points.append):
        assert renamed(command_line, **names)
    own = [n for n, point in enumerate(points) if point.startswith("rename.")]
    for n in own[share::4]:
        shutil.rmtree("out")
        shutil.copytree(kept, "out")
        with armed(Crash(n + 1)) as _, contextlib.suppress(CrashError, InternalError):
            renamed(command_line, **names)
        is_begun, is_done = n > own[0], points[n] == "rename.end.after"
        if is_begun:
            with pytest.raises((DivergenceError, FailedException)):
                run(until=5)
        if not is_done:
            with pytest.raises(DivergenceError):
                run(until=5, **names)
            assert renamed(command_line, **names)
        assert sorted(read_table("out/rows")["n"].to_pylist()) == [1, 2, 3, 4]
        run(**names)
        assert rows() == [*range(1, FILES + 1)]
        assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["table.write.before", "group.decide.after", "group.journal.after", "metadata.save.after"]
)
def test_a_run_that_died_is_finished_first(command_line, point):
    """A decided group is published under the former names, one that is not is dropped, and begun ones stay begun."""
    with armed(Crash(4, only=point)), contextlib.suppress(CrashError, InternalError):
        run()
    command_line.told("rename", "job", "--yes", *words(**NEW))
    run(**NEW)
    assert rows() == sorted(read_table("out/total")["n"].to_pylist()) == [*range(1, FILES + 1)]
    assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
def test_several_times_and_back(command_line):
    """A history under three names is read by the last one; the first names are free again."""
    run(until=2)
    command_line.told("rename", "job", "--yes", *words(id="store"))
    run(until=4, id="store")
    command_line.told("rename", "job", "--yes", *words(**NEW))
    run(until=6, **NEW)
    command_line.told("rename", "job", "--yes")
    told = command_line.told("audit", "out")
    assert "after transaction 2: topology 'shop' became 'store'\n" in told
    assert "after transaction 6: topology 'store' became 'shop', state 'lines' became 'rows'" in told
    check(command_line, 6)


def killed_at(point: str, act: Callable[[], object]) -> None:
    crash = Crash(1, only=point)
    with armed(crash), contextlib.suppress(CrashError, InternalError):
        act()
    assert crash.name


@pytest.mark.slow
def test_in_zookeeper(command_line, zookeeper):
    """All of the coordinator state moves, and nothing stays under the former id."""
    settings = {
        "topology.state.store": "zookeeper",
        "transactional.zookeeper.servers": zookeeper.hosts,
        "transactional.zookeeper.root": "/renamed",
    }
    run(until=4, **settings)
    killed_at("rename.state.after", lambda: renamed(command_line, **NEW, **settings))
    with pytest.raises(DivergenceError, match=r"a rename of topology 'store'.* was interrupted"):
        run(**NEW, **settings)
    command_line.told("rename", "job", "--yes", *words(**NEW, **settings))
    target = load_target("job", NEW | settings)
    store = make_store(target.plan, target.config)
    assert store.children("") == ["store"]
    store.close()
    run(**NEW, **settings)
    assert rows() == [*range(1, FILES + 1)]
    assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
def test_a_topology_that_runs_is_refused(command_line):
    """Whichever of its names is asked for."""
    run(until=2)
    store = SqliteStore(pathlib.Path("out/_txtopo/coordinator.sqlite"))
    for topology_id in ("shop", "store"):
        lead = store.take_lead(topology_id, "a run")
        assert "a run" in command_line.refusal("rename", "job", "--yes", *words(**NEW))
        lead.release()
    store.close()
    run()
    assert rows() == [*range(1, FILES + 1)]


@pytest.mark.slow
def test_names_in_use(command_line):
    """A name that the topology had before, or another topology has, stays with it; nothing is changed."""
    run(until=2, more="others")
    run(until=3)
    told = command_line.refusal("rename", "job", "--yes", *words(rows="others"))
    assert "the topology had a state 'others' before: choose another name; nothing was changed" in told
    shutil.copytree("out", "kept")
    shutil.rmtree("out/rows")
    shutil.rmtree("out/total")
    run(until=1, id="store")
    for name in ("rows", "total"):
        shutil.rmtree(f"out/{name}")
        shutil.copytree(f"kept/{name}", f"out/{name}")
    told = command_line.refusal("rename", "job", "--yes", *words(id="store"))
    assert "the store has records of a topology 'store': choose another id; nothing was changed" in told
    run()
    assert rows() == [*range(1, FILES + 1)]


def test_what_is_no_rename(command_line):
    """A state that is new besides, and one that would take the former name of another, are added afterwards."""
    assert "nothing to rename" in command_line.told("rename", "job")
    assert not pathlib.Path("out").exists()
    run(until=2)
    assert "agree with --yes" in command_line.refusal("rename", "job", *words(id="store"))
    told = command_line.refusal("rename", "job", "--yes", *words(id="store", more="more"))
    assert "state 'more' of topology 'shop' is new" in told
    told = command_line.refusal("rename", "job", "--yes", *words(rows="lines", more="rows"))
    assert "two states would have been 'rows': rename one first, and add the other afterwards" in told
    run()
    assert rows() == [*range(1, FILES + 1)]


@pytest.mark.slow
def test_with_a_backfill(command_line):
    """One that is unfinished is finished first; the records of one that has joined stay evidence."""
    run(until=5)
    killed_at("backfill.enter.after", lambda: command_line("backfill", "job", "more", *words(more="more")))
    told = command_line.refusal("rename", "job", "--yes", *words(**NEW))
    assert "the backfill of state 'more' is unfinished: finish it first; nothing was changed" in told
    command_line.told("backfill", "job", "more", *words(more="more"))
    names = NEW | {"more": "others"}
    command_line.told("rename", "job", "--yes", *words(**names))
    assert "backfilled up to transaction 5" in command_line.told("audit", "out")
    run(**names)
    assert "✔" in command_line.told("audit", "out")
    command_line.told("rewind", "job", "3", "--yes", *words(**names))
    command_line.told("backfill", "job", "others", *words(**names))
    run(**names)
    assert sorted(read_table("out/more")["n"].to_pylist()) == rows() == [*range(1, FILES + 1)]
    assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
def test_dead_letters_come_along(command_line):
    """Whatever the policy is when the topology is renamed."""
    skip = Config({"topology.transaction.max.attempts": 1, "topology.transaction.max.attempts.policy": "SKIP"})
    run(until=2, config=skip)
    command_line.told("rename", "job", "--yes", *words(**NEW))
    run(until=4, **NEW)
    run(config=skip, **NEW)
    assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
def test_a_state_that_was_away_follows(command_line):
    """A table that the code lacked then is renamed once it is back."""
    run(until=2, more="more")
    run(until=3)
    command_line.told("rename", "job", "--yes", *words(**NEW))
    with pytest.raises(DivergenceError, match=r"'more'.* belongs to topology 'shop'"):
        run(more="more", **NEW)
    command_line.told("rename", "job", "--yes", *words(more="more", **NEW))
    with pytest.raises(DivergenceError, match="was left out of the topology after transaction 2"):
        run(more="more", **NEW)
    run(until=4, **NEW)
    told = command_line.told("rewind", "job", "2", "--yes", *words(more="more", **NEW))
    assert "done" in told
    run(more="more", **NEW)
    assert sorted(read_table("out/more")["n"].to_pylist()) == rows() == [*range(1, FILES + 1)]
    assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
def test_what_is_lost_afterwards_is_rebuilt(command_line):
    """A repair takes the journal's word across the rename, and a fork goes on from before it."""
    run(until=4)
    command_line.told("rename", "job", "--yes", *words(**NEW))
    pathlib.Path("out/_txtopo/coordinator.sqlite").unlink()
    assert "safe: " in command_line.told("repair", "job", *words(**NEW))
    run(until=6, **NEW)
    command_line.told("fork", "job", "3", "side", *words(**NEW))
    run(**NEW)
    target = load_target("job", NEW)
    plan, config = moved(target.plan, target.config, folder_at("side"))
    run_inline(TransactionalTopology(plan), config)
    told = command_line.told("audit", "out")
    assert "renamed     after transaction 4: topology 'shop' became 'store', state 'rows' became 'lines'" in told
    assert "✔" in command_line.told("audit", "side")
    assert "✔" in command_line.told("diff", "out", "side")
