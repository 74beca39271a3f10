"""Points as commands show them: what old versions of tables leave of the past, and a wish between two of them."""

import re
import shutil
import time

import pytest
from deltalake import DeltaTable

from state import read_table, read_tables
from state.delta.log.location import Location
from state.delta.log.ownership import Owner
from state.delta.read.points import TableVersions
from tests.acceptance.topologies import SumDeltas
from tests.cli.mend.test_repair import MODULE
from tests.state.delta.delta_tables import scheduled_tables
from tests.transactional.recovery.divergences import TRANSACTIONS, Place
from tests.variants import variants
from txtopo import Config
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.inspect.backend import FolderBackend
from txtopo.testing.inline import run_inline
from txtopo.text.words import size
from txtopo.topology.topology import TransactionalTopology
from txtopo.transactional.recovery.points import SLOT_MS

POINTS = (1, 3, 5)
"""Of the 6 transactions: the last one of each slot but the newest."""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A topology whose tables have kept the versions of points alone, and the newest one."""
    found = Place(tmp_path_factory.mktemp("points"))
    run_through_slots(found, range(1, TRANSACTIONS + 1), int(time.time()))
    kept = {name: state.table().kept(range(TRANSACTIONS + 1)) for name, state in found.topology().plan.states.items()}
    assert kept == {name: {0, *POINTS, TRANSACTIONS} for name in kept}
    return found.folder


@pytest.fixture
def place(command_line, tmp_path, template):
    """A copy of it, which is run on as it was."""
    command_line.write_module("counting", MODULE)
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Place(tmp_path)


def run_through_slots(place, txids, secs):
    config = Config({"topology.group.transactions.max": 1, "topology.history.recent.secs": 300})
    for txid in txids:
        at_secs = secs + txid // 2 * 2 * SLOT_MS // 1000
        topology = scheduled_tables(place.topology(), clean_up_secs=0)
        run_inline(topology, config, until=txid, wall_secs=lambda at_secs=at_secs: at_secs)


def files_as_of(path, txid):
    """Return the files of the version of a point."""
    latest = DeltaTable(path)
    location = Location.resolve(str(path), None)
    found = TableVersions(location, latest, Owner.of(latest)).as_of(txid)
    return [uri.partition("/words/")[2] for uri in found.file_uris()]


def listed(text):
    """Return the transactions in a list of points."""
    return [int(each) for each in re.findall(r"^  (\d+), ", text, re.MULTILINE)]


@pytest.mark.slow
def test_the_points_are_listed(command_line, place):
    """Each with its time, also beside a running topology; nothing is changed."""
    before = place.seen()
    told = command_line.told("rewind", "counting")
    assert "it can be brought back to 3 points:\n" in told
    assert "  and to 0, before its first transaction\n" in told
    assert listed(told) == [*POINTS]
    assert len(re.findall(r"^  \d, planned \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", told, re.MULTILINE)) == 3
    told = command_line.told("fork", "counting")
    assert "can be forked at 4 points:\n" in told
    assert listed(told) == [*POINTS, TRANSACTIONS]
    assert place.seen() == before


@pytest.mark.slow
@pytest.mark.parametrize(("wish", "goes_to"), variants((4, 3), (5, 5), (0, 0), long=[(3, 3), (2, 1), (1, 1)]))
def test_a_wish_goes_to_the_point_before(command_line, place, wish, goes_to):
    """What is in the way of the wish itself is said, and where it goes, before anything is moved."""
    before = place.seen()
    for options in (["--dry-run"], []):  # without an answer to the question, nothing is changed
        result = command_line("rewind", "counting", str(wish), *options)
        assert (f"the version of 'words' after transaction {wish} is gone" in result.output) == (wish != goes_to)
        assert f"to transaction {goes_to}" in result.output
        assert place.seen() == before
    told = command_line.told("rewind", "counting", str(wish), "--yes")
    assert f"the topology goes back to transaction {goes_to}" in told
    assert place.txids() == {"words": goes_to, "total": goes_to}
    place.run()
    place.check_totals()
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize(("wish", "goes_to"), [(4, 3), (6, 6), (5, 5), (1, 1)])
def test_a_fork_goes_on_from_the_point_before(command_line, place, wish, goes_to):
    """And it says so before it makes anything."""
    told = command_line.told("fork", "counting", str(wish), "side")
    reason, said = f"the version of 'words' after transaction {wish} is gone", f"the newest point before: {goes_to}, "
    assert (reason in told, said in told) == (wish != goes_to,) * 2
    assert f"is forked after transaction {goes_to}, " in told
    assert read_tables("side").txid == goes_to


@pytest.mark.slow
def test_before_the_oldest_point_nothing_is_changed(command_line, place):
    """Tables are never emptied for a wish that no point is left for; the oldest one is named."""
    words = place.folder / "words"
    needed = {path for txid in (3, 5, 6) for path in files_as_of(words, txid)}
    for path in set(files_as_of(words, 1)) - needed:
        (words / path).unlink()
    before = place.seen()
    for options in (["--dry-run"], ["--yes"]):
        refusal = command_line.refusal("rewind", "counting", "2", *options)
        assert "the oldest point is 3; the next point is 0, before the first transaction" in refusal
    assert "can't be forked at transaction 2 or before" in command_line.refusal("fork", "counting", "2", "side")
    assert not (place.folder / "side").exists()
    assert place.seen() == before


def test_one_that_is_not_committed_yet(command_line, place):
    """It is refused, with the last one."""
    assert "transaction 7 is not committed; the last one is 6" in command_line.refusal("rewind", "counting", "7")
    assert "not committed; the last one that is, is 6" in command_line.refusal("fork", "counting", "7", "side")


@pytest.mark.slow
def test_points_after_a_rewind(command_line, place):
    """Those above are void, what runs again makes others, and the next rewind goes to what is left."""
    command_line.told("rewind", "counting", "4", "--yes")
    assert listed(command_line.told("rewind", "counting")) == [1]
    run_through_slots(place, range(4, 7), int(time.time()) + 4 * SLOT_MS // 1000)
    told = command_line.told("rewind", "counting")
    assert listed(told) == [1, 3, 5]
    command_line.told("audit", ".")
    command_line.told("rewind", "counting", "5", "--yes")
    command_line.told("rewind", "counting", "2", "--yes")
    assert place.txids() == {"words": 1, "total": 1}
    assert listed(command_line.told("rewind", "counting")) == []
    place.run()
    place.check_totals()
    command_line.told("audit", ".")


@pytest.mark.slow
def test_a_fork_has_points_of_its_own(command_line, place):
    """It begins with where it was forked, and goes back there when its origin is gone."""
    command_line.told("fork", "counting", "4", "side")
    for name in ("words", "total", "_txtopo"):
        shutil.rmtree(place.folder / name)
    plan, config = moved(place.topology().plan, Config(group_transactions_max=1), folder_at("side"))
    run_inline(TransactionalTopology(plan), config)
    assert read_tables("side").txid == TRANSACTIONS
    assert listed(command_line.told("rewind", "counting", "--fork", "side"))[0] == 3
    refusal = command_line.refusal("rewind", "counting", "2", "--fork", "side")
    assert "the oldest point is 3" in refusal
    assert "TXID 0" not in refusal, "it has no way back to there"
    command_line.told("rewind", "counting", "3", "--fork", "side", "--yes")
    assert read_tables("side").txid == 3


@pytest.mark.slow
def test_rows_of_a_point_in_place_of_a_transaction(command_line, place):
    """The first line says whose they are; without ``--nearest`` the transaction is refused, with the points round it."""
    for txid, point in ((4, 3), (2, 1)):
        told = command_line("state", "words", "--txid", str(txid), "--nearest")
        assert re.match(rf"as of transaction {point}, written .* UTC: the point before {txid}\n", told.stderr)
        assert told.stdout == command_line("state", "words", "--txid", str(point)).stdout
        told = command_line("state", ".", "--consistent", "--txid", str(txid), "--nearest")
        assert told.stderr.startswith(f"as of transaction {point}, the last one before {txid} that all tables")
        for options in (("words",), (".", "--consistent")):
            refusal = command_line.refusal("state", *options, "--txid", str(txid))
            assert re.search(
                f"transaction {txid} lies between two points of .*, {point}, written .* and {point + 2}, ", refusal
            )
    for txid in (*POINTS, TRANSACTIONS):
        assert "point" not in command_line("state", "words", "--txid", str(txid), "--nearest").stderr


def test_what_tables_keep_is_shown(command_line, place):
    """Size, files and points: by the command, and for the page, which does not list the files each time it is asked."""
    result = command_line("state", ".", "--points")
    assert [int(line.split(",")[0]) for line in result.stdout.splitlines()] == [*POINTS, TRANSACTIONS]
    sizes = {}
    for name in ("words", "total"):
        files = [file for file in (place.folder / name).rglob("*") if file.is_file()]
        sizes[name] = len(files), sum(file.stat().st_size for file in files)
        assert f"{name}: {size(sizes[name][1])} in {sizes[name][0]} files on disk, " in result.stderr
    assert " files on disk, " in command_line("state", "words", "--points").stderr
    for options in (("--txid", "3"), ("--key", "a")):
        assert "leave out --txid and --key" in command_line("state", "words", "--points", *options).stderr
    source = FolderBackend(folder_at(place.folder))
    for _ in range(2):
        tables = {state.name: state for state in source.states("words").states}
        assert {name: (table.disk_files, table.disk_bytes) for name, table in tables.items()} == sizes
        (place.folder / "words" / "_data" / "more").write_bytes(b"more")
    assert [point.txid for point in tables["words"].points] == [*POINTS]
    assert (tables["words"].all_since.txid, tables["words"].error) == (TRANSACTIONS, None)
    assert tables["words"].files < tables["words"].disk_files
    source.close()


@pytest.mark.slow
def test_tables_are_compared_as_of_a_point(command_line, place):
    """By default as of the newest one that both have; of a transaction between two, as of the one before, which is said."""
    command_line.told("fork", "counting", "3", "side")
    plan, config = moved(place.topology().plan, Config(group_transactions_max=1), folder_at("side"))
    run_inline(TransactionalTopology(plan), config, until=4)
    told = command_line.told("diff", ".", "side")
    assert "as of transaction 3\n" in told
    assert "to compare them later, run B with --until 5" in told
    assert "as of transaction 3\n" in command_line.told("diff", "words", "side/words")
    moved_words = "both can't be shown as of transaction 4; as of 3, the newest before it, they can\n"
    for pair in ((".", "side"), ("words", "side/words")):
        assert moved_words in command_line.told("diff", *pair, "--to", "4")
        assert "--from 4 is after that" in command_line.refusal("diff", *pair, "--to", "4", "--from", "4", status=2)
        assert "can't be shown" not in command_line.told("diff", *pair, "--to", "3")
    run_inline(TransactionalTopology(plan), config)
    assert "as of transaction 6\n" in command_line.told("diff", ".", "side")


def test_the_writes_of_a_key_between_points(command_line, place):
    """Those that a version is left of are told, with the value after each; of the others, that they are not known."""
    lines = command_line.told("blame", ".", "all", "--state", "total").splitlines()
    cells = [line.split() for line in lines[2:]]
    assert [cell[0] for cell in cells[:-1]] == ["6", "5", "?", "3", "?", "1"]
    assert [cells[index][1] for index in (2, 4)] == ["4-4", "2-2"]
    values = [read_table(place.folder / "total", txid)["n"].to_pylist() for txid in (6, 5, 3, 1)]
    assert [int(cells[index][-1]) for index in (0, 1, 3, 5)] == [value for (value,) in values]
    assert lines[-1] == "no earlier transaction wrote it"


@pytest.mark.slow
@pytest.mark.parametrize(("txid", "run_from"), [(5, 4), (1, 1), (4, 4), (6, 6), (3, 2), (2, 2)])
def test_a_replay_runs_on_from_the_point_before(command_line, place, monkeypatch, txid, run_from):
    """It compares with what the next point has left of the transaction, also before the first write."""
    told = command_line.told("replay", "counting", str(txid))
    assert (f"run from transaction {run_from} on" in told) == (run_from < txid)
    is_left = txid in {*POINTS, TRANSACTIONS}  # what another transaction has overwritten before the next point is gone
    assert f"  state total: {'1 row' if is_left else '0 rows'}, the same\n" in told
    assert told.endswith("✔ the same\n")
    monkeypatch.setattr(SumDeltas, "finish_batch", add_twice)
    result = command_line("replay", "counting", str(txid))
    assert (result.exit_code, "state total: 1 row, differs" in result.output) == (int(is_left), is_left)


def add_twice(self):
    """What a changed component does."""
    self.state.update("all", lambda old: (old or 0) + 2 * self.grown)


def test_a_replay_that_no_point_helps(command_line, place):
    """It is refused by name, with the first one that can be replayed; or because too many would run."""
    words = place.folder / "words"
    needed = {path for txid in (3, 5, 6) for path in files_as_of(words, txid)}
    for path in set(files_as_of(words, 1)) - needed:
        (words / path).unlink()
    for file in (place.folder / "_txtopo" / "journal" / "words").iterdir():
        if file.name.startswith("0000000001"):
            file.unlink()
    refusal = command_line.refusal("replay", "counting", "3", status=2)
    assert "keep neither their versions before transaction 3 nor a point before it; the first" in refusal
    assert "that can be replayed is 4" in refusal


@pytest.mark.slow
def test_a_range_over_points_is_replayed(command_line, place, monkeypatch):
    """Each transaction is compared once; what lies between two points runs together, within a bound."""
    told = command_line.told("replay", "counting", "--from", "1", "--to", "6")
    assert "transactions 1 to 6: 6 in 6 groups\n" in told
    assert "state total: 6 transactions, the same" in told
    monkeypatch.setattr("txtopo.inspect.audit.replayable.FORWARD_MAX", 1)
    refusal = command_line.refusal("replay", "counting", "5", status=2)
    assert "the nearest point before transaction 5 that the tables keep is 3: 2 transactions would run" in refusal
