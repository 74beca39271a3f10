"""``txtopo rewind``: where it can go, what it changes, what it refuses; and a crash or a kill at each of its steps."""

import datetime as dt
import re
import shutil
from collections.abc import Iterable

import pytest
from deltalake import DeltaTable

from state import SqliteStore, read_table, read_tables
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from state.delta.log.ownership import Numbers
from state.transactional import TransactionalState
from tests.backfill.backfills import history_of
from tests.cli.mend.test_repair import MODULE
from tests.cli.test_states_of_the_past import BESIDE
from tests.crashes import Crash, CrashError, dying, survives
from tests.journals import journal_in
from tests.state.delta.delta_tables import scheduled_tables
from tests.transactional.recovery.divergences import TRANSACTIONS, Place
from tests.variants import variants
from txtopo import Config
from txtopo.errors import DivergenceError, StateAccessError
from txtopo.failpoints import armed
from txtopo.testing.inline import run_inline
from txtopo.topology.user_code.loading import load_target
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.points import SLOT_MS, KeptPoints

STEPS = (
    *(f"repair.{step}.{side}" for step in ("begin", "table", "journal", "end") for side in ("before", "after")),
    "delta.write.checked",
    "delta.write.landed",
)


@pytest.fixture
def place(command_line, tmp_path):
    command_line.write_module("counting", MODULE)
    return Place(tmp_path)


def seen_together(place: Place) -> int | None:
    """Read the tables as anybody may at any moment; return the transaction, or None if the reader was refused."""
    try:
        view = read_tables(place.folder)
    except StateAccessError as refusal:
        if "rolled back" not in str(refusal):
            raise
        return None
    words, total = (view.tables[name].to_pydict()["n"] for name in ("words", "total"))
    assert sum(words) == sum(total), f"a mixture at {view.txid}"
    return view.txid


@pytest.mark.slow
def test_the_later_points_are_taken_back(command_line, place):
    """Their transactions begin anew, and may come to be committed at other times."""
    secs = 1_800_000_000
    slots = [point.at_ms // SLOT_MS for point in points_after_runs(place, range(1, 5), secs).points]
    assert slots == [secs * 1000 // SLOT_MS + txid for txid in range(2, 5)]
    command_line.told("rewind", "counting", "2", "--yes")
    assert [point.txid for point in points_after_runs(place, (), secs).points] == [1, 2]
    assert [point.txid for point in points_after_runs(place, (3, 4), secs + 20).points] == [1, 2, 3]


@pytest.mark.slow
def test_tables_are_read_together_long_after_a_rewind(command_line, place):
    """Also when the version that went back can't be opened any more: its entry is left."""
    secs = 1_800_000_000
    points_after_runs(place, range(1, 5), secs)
    command_line.told("rewind", "counting", "2", "--yes")
    points_after_runs(place, (3, 4), secs + 3600)
    points_after_runs(place, range(5, TRANSACTIONS + 1), secs + 8 * 24 * 3600)
    for name in place.topology().plan.states:
        versions = KeptLog.of(Location.resolve(str(place.folder / name), None).folder).versions()
        assert Numbers.of(DeltaTable(place.folder / name), f"words/{name}").rolled_back_at not in {None, *versions}
    assert seen_together(place) == TRANSACTIONS
    command_line.told("audit", ".")


def points_after_runs(place: Place, txids: Iterable[int], secs: int) -> KeptPoints:
    """Run up to each transaction, each in a slot of its own, and return the points on record."""
    for txid in txids:
        topology = scheduled_tables(place.topology(), clean_up_secs=0)
        run_inline(topology, until=txid, wall_secs=lambda txid=txid: secs + txid * SLOT_MS / 1000)
    store = SqliteStore(place.store)
    try:
        return CoordinatorState(store, None, place.topology().plan.topology_id).points()
    finally:
        store.close()


@pytest.mark.slow
def test_all_goes_back_and_runs_again(command_line, place):
    """Tables and journal are as after the transaction; the run after it gives the totals of an undisturbed one."""
    place.run()
    text = command_line.told("rewind", "counting", "3", "--yes")
    assert "the topology goes back to transaction 3, planned " in text
    assert "and transactions 4 to 6 run again\n" in text
    assert "not undone: what 'count', 'sum' did outside the topology's tables, if anything\n" in text
    assert text.endswith("done; to continue: txtopo run counting\n")
    assert place.txids() == {"words": 3, "total": 3}
    assert seen_together(place) == 3
    command_line.told("audit", ".")
    place.finish(TRANSACTIONS - 3)
    command_line.told("audit", ".")
    command_line.told("replay", "counting", "5")
    assert len(place.words_as_of(2)) > 0


BOUNDED = """
from committers import AppendCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows
from txtopo import BasicBolt, Fields, TransactionalTopologyBuilder

ROWS = Fields("n: long")

class Below(BasicBolt):
    output_fields = Fields("attempt", "n: long")

    def __init__(self, bound):
        self.bound = bound

    def execute(self, tuple, collector):
        if tuple["n"] < self.bound:
            collector.emit((tuple[0], tuple["n"]))

def topology(bound: int = 100):
    spout = MemoryTransactionalSpout([(1,), (2,), (500,)], ROWS, 1)
    builder = TransactionalTopologyBuilder("bounded", "numbers", spout)
    builder.set_bolt("below", Below(bound)).shuffle_grouping("numbers")
    builder.set_committer_bolt("rows", AppendCommitter("t")).shuffle_grouping("below")
    builder.set_state("t", DeltaRows("t", ROWS))
    return builder.build()
"""


def run_bounded(bound: int, until: int | None = None, **settings: object) -> list[int]:
    """Run that topology; return the rows of its table."""
    topology = load_target("bounded", {"bound": str(bound)}).topology
    run_inline(topology, Config(group_transactions_max=1, **settings), until=until)
    return sorted(read_table("t").to_pydict()["n"])


@pytest.mark.slow
def test_a_last_transaction_that_wrote_to_no_table(command_line):
    """It is committed, as the coordinator state knows: it can be undone, and be forked."""
    command_line.write_module("bounded", BOUNDED)
    assert run_bounded(100) == [1, 2]
    command_line.told("fork", "bounded", "3", "apart")
    assert "transactions 3 to 3 run again" in command_line.told("rewind", "bounded", "2", "--yes")
    assert run_bounded(1000) == [1, 2, 500]


REFOLDED = """
from committers import Max, ReduceCommitter, Sum
from spouts import MemoryTransactionalSpout
from txtopo import Fields, TransactionalTopologyBuilder

def topology(how: str = "sum"):
    spout = MemoryTransactionalSpout([("a", 1), ("a", 3)], Fields("k: string", "n: long"), 1)
    builder = TransactionalTopologyBuilder("refolded", "numbers", spout)
    aggregate = Sum("n: long") if how == "sum" else Max("n: long")
    totals = ReduceCommitter("t", Fields("k: string"), values={"n": aggregate})
    builder.set_committer_bolt("totals", totals).fields_grouping("numbers", Fields("k"))
    builder.set_state("t", totals.state("t"))
    return builder.build()
"""


@pytest.mark.slow
def test_another_aggregate_after_going_back_to_the_beginning(command_line, tmp_path):
    """The table has nothing of the former one any more, so the way that the refusal names leads on."""
    command_line.write_module("refolded", REFOLDED)
    run_inline(load_target("refolded", {"how": "sum"}, tmp_path).topology)
    with pytest.raises(DivergenceError, match="is made of Sum"):
        run_inline(load_target("refolded", {"how": "max"}, tmp_path).topology)
    command_line.told("rewind", "refolded", "0", "--yes")
    run_inline(load_target("refolded", {"how": "max"}, tmp_path).topology)
    assert read_table("t").to_pydict()["n"] == [3]


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["store", "store and journal"])
def test_a_store_from_before_a_rewind_that_rolled_back_no_table(command_line, tmp_path, gone):
    """The tables know that the topology went back: what is restored is refused, however often it is tried."""
    command_line.write_module("bounded", BOUNDED)
    assert run_bounded(100) == [1, 2]
    shutil.copytree(tmp_path / "_txtopo", tmp_path / "kept")
    command_line.told("rewind", "bounded", "2", "--yes")
    if gone == "store":
        shutil.copytree(tmp_path / "_txtopo" / "journal", tmp_path / "kept" / "journal", dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "_txtopo")
    (tmp_path / "kept").rename(tmp_path / "_txtopo")
    for _ in range(4):
        with pytest.raises(
            DivergenceError, match=r"of another timeline: .* only up to transaction 2 are the two the same"
        ):
            run_bounded(1000)
    told = command_line.told("repair", "bounded", "--yes")
    assert "the coordinator state is rebuilt, at transaction 2" in told
    assert run_bounded(1000) == [1, 2, 500]
    command_line.told("audit", ".")


@pytest.mark.slow
def test_a_group_that_was_decided_and_not_published(command_line):
    """A rewind to before it undoes it: no recovery publishes it any more."""
    command_line.write_module("bounded", BOUNDED)
    with dying("group.decide.after", 3):
        run_bounded(1000)
    told = command_line.told("rewind", "bounded", "1", "--dry-run")
    assert "first run 'txtopo fork bounded 2 bounded-at-2'" in told
    assert "transactions 3 to 3 run again" in command_line.told("rewind", "bounded", "2", "--yes")
    assert run_bounded(100) == [1, 2]


def of_files(command_line, folder, numbers) -> None:
    """Write that module with a spout that takes a file a transaction, and a file for each number."""
    spout = "FilesTransactionalSpout('in', ROWS, 'json', batch_files_max=1)"
    text = BOUNDED.replace("MemoryTransactionalSpout([(1,), (2,), (500,)], ROWS, 1)", spout)
    command_line.write_module("bounded", text.replace("import MemoryT", "import FilesT"))
    (folder / "in").mkdir()
    for name, n in zip("abcdefgh", numbers, strict=False):
        (folder / "in" / name).write_text(f'{{"n": {n}}}\n')


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", [None, "group.decide.after"])
def test_the_spout_is_asked_for_the_input_of_such_a_transaction(command_line, tmp_path, dies_at):
    """A file that the last transaction has taken is needed again; if it is gone, the rewind is refused."""
    of_files(command_line, tmp_path, [1, 2, 500])
    if dies_at is None:
        assert run_bounded(100) == [1, 2]
    else:
        with dying(dies_at, 3):
            run_bounded(1000)
    (tmp_path / "in" / "c").rename(tmp_path / "c")
    for dry in ([], ["--dry-run"]):
        assert "transactions after 2 took" in command_line.refusal("rewind", "bounded", "2", "--yes", *dry)
    (tmp_path / "c").rename(tmp_path / "in" / "c")
    command_line.told("rewind", "bounded", "2", "--yes")
    assert run_bounded(1000) == [1, 2, 500]


TWO_SPOUTS = """
from committers import AppendCommitter
from spouts import FilesTransactionalSpout, MemoryTransactionalSpout
from state import DeltaRows
from txtopo import Fields, TransactionalTopologyBuilder

ROWS = Fields("n: long")

def topology():
    files = FilesTransactionalSpout("in", ROWS, "json", watch=True, settle_secs=0)
    builder = TransactionalTopologyBuilder("two", "files", files)
    builder.add_spout("numbers", MemoryTransactionalSpout([(1,), (2,), (3,), (4,)], ROWS, 1))
    builder.set_committer_bolt("rows", AppendCommitter("t")).shuffle_grouping("files").shuffle_grouping("numbers")
    builder.set_state("t", DeltaRows("t", ROWS))
    return builder.build()
"""


@pytest.mark.slow
def test_a_spout_is_asked_only_for_what_later_transactions_took_of_it(command_line, tmp_path):
    """Without input of it they repeat where it was: what the last one that stays has taken may be gone."""

    def run(until):
        run_inline(load_target("two", {}).topology, Config(group_transactions_max=1), until=until)
        return sorted(read_table("t").to_pydict()["n"])

    command_line.write_module("two", TWO_SPOUTS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"n": 10}\n')
    assert run(3) == [1, 2, 3, 10]
    (tmp_path / "in" / "a").rename(tmp_path / "a")
    command_line.told("rewind", "two", "1", "--yes")
    assert run(4) == [1, 2, 3, 4, 10]


@pytest.mark.slow
@pytest.mark.parametrize("gone", "def")
def test_transactions_that_were_not_committed_have_taken_input_too(command_line, tmp_path, gone):
    """What is begun in the store is asked for, at the start and when an interrupted rewind is finished."""
    of_files(command_line, tmp_path, range(1, 9))
    with dying("group.decide.before", 4):
        run_bounded(1000, max_spout_pending=4)
    file = tmp_path / "in" / gone
    file.rename(tmp_path / gone)
    for dry in ([], ["--dry-run"]):
        assert f"/in/{gone}" in command_line.refusal("rewind", "bounded", "2", "--yes", *dry)  # begun, or seen at least
    (tmp_path / gone).rename(file)
    with armed(Crash(1, only="repair.journal.after")):
        command_line("rewind", "bounded", "2", "--yes")
    file.rename(tmp_path / gone)
    assert f"/in/{gone}" in command_line.refusal("rewind", "bounded", "2", "--yes")
    (tmp_path / gone).rename(file)
    command_line.told("rewind", "bounded", "2", "--yes")
    assert run_bounded(1000) == [*range(1, 9)]
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["store", "store and table"])
def test_a_repair_asks_for_the_input_of_the_last_group(command_line, tmp_path, lost):
    """The journal has it, although nobody knows whether it was committed: its transaction begins anew."""
    of_files(command_line, tmp_path, range(1, 7))
    run_bounded(1000, until=3)
    shutil.copytree("t", "former")
    if lost == "store":
        with dying("group.decide.before"):
            run_bounded(1000)
    else:
        run_bounded(1000, until=4)
        shutil.rmtree("t")
        shutil.move("former", "t")
    for path in (tmp_path / "_txtopo").glob("coordinator*"):
        path.unlink()
    (tmp_path / "in" / "d").rename(tmp_path / "d")
    assert "/in/d, and these files are missing" in command_line.refusal("repair", "bounded", "--yes")
    (tmp_path / "d").rename(tmp_path / "in" / "d")
    command_line.told("repair", "bounded", "--yes")
    assert run_bounded(1000) == [*range(1, 7)]
    command_line.told("audit", ".")


@pytest.mark.few(1)
@pytest.mark.parametrize("gone", "cde")
def test_a_fork_asks_for_the_input_too(command_line, tmp_path, gone):
    """It would go on without a file that the first topology has taken; nothing of it is left."""
    of_files(command_line, tmp_path, range(1, 7))
    run_bounded(1000, until=4, max_spout_pending=1)
    with dying("group.decide.before"):
        run_bounded(1000, max_spout_pending=1)
    (tmp_path / "in" / gone).rename(tmp_path / gone)
    refusal = command_line.refusal("fork", "bounded", "2", "side")
    assert f"transactions after 2 took {tmp_path}/in/{gone}, and these files are missing" in refusal
    assert not (tmp_path / "side").exists()
    (tmp_path / gone).rename(tmp_path / "in" / gone)
    command_line.told("fork", "bounded", "2", "side")


@pytest.mark.slow
def test_it_says_how_to_keep_what_is_there(command_line, place):
    """The command that it gives makes the fork."""
    place.run()
    said = command_line.told("rewind", "counting", "3", "--dry-run", "--set", "output=.")
    (told,) = re.findall("first run 'txtopo (fork [^']+)'", said)
    command_line.told("rewind", "counting", "3", "--dry-run")
    assert "forked after transaction 6" in command_line.told(*told.split())
    command_line.told("rewind", "counting", "3", "--yes")
    assert read_tables("words-at-6").txid == TRANSACTIONS


def test_a_run_without_a_journal(command_line):
    """What it has committed can't be undone, and the command says so: it does not take the journal's end for now."""
    command_line.write_module("bounded", BOUNDED)
    run_bounded(1000, until=1)
    run_bounded(1000, journal_bytes_max=0)
    assert "is at transaction 3, but its journal ends at" in command_line.refusal("rewind", "bounded", "1", "--yes")
    assert sorted(read_table("t").to_pydict()["n"]) == [1, 2, 500]


@pytest.mark.slow
def test_again_and_further_back_to_before_the_first(command_line, place):
    """A rewind after a rewind; what was undone is no point any more, and 0 empties the tables."""
    place.run()
    for txid in (5, 2):
        command_line.told("rewind", "counting", str(txid), "--yes")
    assert "transaction 3 is not committed; the last one is 2" in command_line.refusal("rewind", "counting", "3", "-y")
    place.run(4)
    command_line.told("rewind", "counting", "0", "--yes")
    assert read_tables(place.folder).txid == 0
    place.finish(TRANSACTIONS)
    command_line.told("audit", ".")


@pytest.mark.slow
def test_by_one_transaction_after_a_start_that_committed_nothing(command_line, place):
    """The journal has a part that begins with what is undone: it is no point any more."""
    place.run()
    place.run()
    command_line.told("rewind", "counting", "5", "--yes")
    assert "transaction 6 is not committed; the last one is 5" in command_line.refusal("rewind", "counting", "6", "-y")
    assert "transactions 5 to 5 run again\n" in command_line.told("rewind", "counting", "4", "--yes")
    place.finish(2)
    command_line.told("audit", ".")


@pytest.mark.slow
def test_the_code_that_is_there_now_runs_again(command_line, place):
    """A bolt that had counted wrong from a transaction on is mended: all totals are those of the mended one."""
    command_line.write_module(
        "mended",
        """
from tests.acceptance.topologies import CountWords, make_data, words_topology

class Wrong(CountWords):
    def execute(self, tuple):
        self.counts[tuple["word"]] += tuple["n"] * (2 if self.attempt.txid > 3 else 1)

    def prepare(self, config, context, collector, attempt):
        super().prepare(config, context, collector, attempt)
        self.attempt = attempt

def topology(wrong: bool = False):
    committer = Wrong() if wrong else None
    return words_topology(".", make_data(2, 20), take=4, committer=committer)

def config():
    from txtopo import Config
    return Config(group_transactions_max=1)
""",
    )
    target = load_target("mended", {"wrong": "true"}, place.folder)
    run_inline(target.topology, target.config)
    with pytest.raises(AssertionError):
        place.check_totals()
    command_line.told("rewind", "mended", "3", "--yes")
    target = load_target("mended", {}, place.folder)
    run_inline(target.topology, target.config)
    place.check_totals()
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("finisher", variants("rewind", slow=["repair"]))
@pytest.mark.parametrize("step", variants(*STEPS[1::3], long=[each for each in STEPS if each not in STEPS[1::3]]))
def test_a_crash_at_a_step_is_finished_or_undone(command_line, place, step, finisher):
    """Until the plan is on record tables are only fenced; after that no run begins before either command ends it."""
    place.run()
    with armed(Crash(1, only=step)):
        crashed = command_line("rewind", "counting", "3", "--yes")
    assert isinstance(crashed.exception, CrashError)
    if step == "repair.begin.before":
        assert seen_together(place) == TRANSACTIONS
    elif step != "repair.end.after":
        assert seen_together(place) in {None, 3, TRANSACTIONS}
        assert "a rewind of topology 'words'" in command_line.refusal("run", "counting")
        assert "a rewind was interrupted" in command_line.refusal("rewind", "counting")
        again = ["rewind", "counting", "5", "--yes"] if finisher == "rewind" else ["repair", "counting"]
        assert "finishing an interrupted rewind" in command_line.told(*again)
    if step != "repair.begin.before":
        assert place.txids() == {"words": 3, "total": 3}
        assert seen_together(place) == 3
    command_line.told("audit", ".")
    place.finish()
    command_line.told("audit", ".")


@pytest.mark.slow
def test_readers_see_no_mixture_at_any_step(command_line, place):
    """At every failpoint a reader sees all tables as they were, or as they become, or is refused."""
    place.run()
    found: list[tuple[str, int | None]] = []

    def look(name: str) -> None:
        if not name.startswith("folder."):  # a reader writes nothing, so it reaches none itself
            found.append((name, seen_together(place)))

    with armed(look):
        command_line.told("rewind", "counting", "2", "--yes")
    seen = [txid for _, txid in found]
    assert {name for name, _ in found} >= set(STEPS)
    assert (seen[0], seen[-1]) == (TRANSACTIONS, 2)
    assert set(seen) == {TRANSACTIONS, None, 2}
    assert seen == sorted(seen, key=[TRANSACTIONS, None, 2].index), "first as they were, then as they become"


@pytest.mark.long
@pytest.mark.parametrize("step", variants("delta.write.landed", long=STEPS))
def test_a_kill_at_a_step(command_line, place, step):
    """``kill -9`` leaves what a crash does."""
    place.run()
    command_line.killed_at(step, "rewind", "counting", "3", "--yes")
    command_line.told("rewind", "counting", "3", "--yes")
    assert place.txids() == {"words": 3, "total": 3}
    place.finish(TRANSACTIONS - 3)
    command_line.told("audit", ".")


def test_the_points_are_listed_while_it_runs(command_line, place):
    """Without a transaction nothing is changed or locked: the points, how far back, and the settings that bound that."""
    place.run(5)
    running = SqliteStore(place.store)
    running.take_lead("words", "the run")
    before = place.seen()
    lines = command_line.told("rewind", "counting").splitlines()
    assert re.fullmatch(r"topology 'words': at transaction 5, planned \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", lines[0])
    assert lines[1] == "it can be brought back to 4 points:"
    assert [line.partition(", planned ")[0] for line in lines[2:6]] == ["  1", "  2", "  3", "  4"]
    assert lines[6] == "  and to 0, before its first transaction"
    assert "topology.rewind.hours = 168 at least" in lines[-1]
    assert "topology.journal.bytes.max = 1,073,741,824 bytes" in lines[-1]
    refusal = command_line.refusal("rewind", "counting", "3", "--yes")
    running.close()
    assert "'the run'" in refusal
    assert place.seen() == before


@pytest.mark.slow
def test_a_dry_run_counts_what_would_change(command_line, place):
    """Rows that would go, come back and change, versions, and the input; nothing is written."""
    place.run()
    before = place.seen()
    then, now = ({row["word"]: row for row in place.words_as_of(txid)} for txid in (4, TRANSACTIONS))
    text = command_line.told("rewind", "counting", "4", "--dry-run")
    changed = sum(now[word] != row for word, row in then.items())
    gone = len(now) - len(then)
    assert f" equal version 5, {gone} rows would go, 0 come back, {changed} change back\n" in text
    assert "state 'total': " in text
    assert "transactions 5 to 6 would run again" in text
    assert text.endswith("nothing was changed\n")
    assert "nothing to rewind" in command_line.told("rewind", "counting", "6", "--dry-run")
    assert place.seen() == before


@pytest.mark.slow
def test_by_time(command_line, place):
    """The last transaction that was planned by then; a time before the first one or ahead, as slips make it, is refused."""
    place.run()
    now = dt.datetime.now(dt.UTC).isoformat()
    text = command_line.told("rewind", "counting", "--to", now, "--yes")
    assert text == "the topology is at transaction 6 already; nothing to rewind\n"
    before = place.seen()
    for dry in ([], ["--dry-run"]):
        refusal = command_line.refusal("rewind", "counting", "--to", "9999-01-01", "--yes", *dry)
        assert "9999-01-01 00:00:00 UTC has not come yet; the last transaction, 6, was planned at 20" in refusal
        refusal = command_line.refusal("rewind", "counting", "--to", "2000-01-01 12:00", "--yes", *dry)
        assert "the first transaction was planned at 20" in refusal
        assert "give TXID 0" in refusal
    assert place.seen() == before
    assert "write it as '2026-11-20 14:00'" in command_line.refusal("rewind", "counting", "--to", "noon", status=2)
    assert "exclude each other" in command_line.refusal("rewind", "counting", "3", "--to", "2000-01-01", status=2)


@pytest.mark.slow
@pytest.mark.parametrize(("later_ms", "txid"), [(-1, 2), (0, 3), (1, 3)])
def test_by_the_exact_time(command_line, place, later_ms, txid):
    """A transaction that was planned at the very moment is among those that stay."""
    place.run(2)
    place.run(3)
    place.run()
    planned = {each.txid: each.planned for each in history_of(place.folder)}
    assert planned[2].at_ms < planned[3].at_ms - 1
    assert planned[3].at_ms + 1 < planned[4].at_ms
    time = planned[3].at + dt.timedelta(milliseconds=later_ms)
    told = command_line.told("rewind", "counting", "--to", time.isoformat(), "--yes")
    assert f"the topology goes back to transaction {txid}, " in told


@pytest.mark.slow
def test_by_the_time_of_the_first_transaction_that_the_journal_has(command_line, place):
    """What was the last transaction at that very moment is known, and what was before it is not."""
    place.run(3)
    place.run()
    first, *_ = sorted(journal_in(place.folder).iterdir())
    first.unlink()
    known = history_of(place.folder)
    planned = next(each.planned for each in known if each.txid == 4)
    last = max(each.txid for each in known if each.planned.at_ms == planned.at_ms)
    before = (planned.at - dt.timedelta(milliseconds=1)).isoformat()
    refusal = command_line.refusal("rewind", "counting", "--to", before, "--yes")
    assert "the journal does not say which transaction was the last then: it begins with 4" in refusal
    told = command_line.told("rewind", "counting", "--to", planned.at.isoformat(), "--yes")
    assert (f"the topology goes back to transaction {last}, " in told) == (last < TRANSACTIONS), told


@pytest.mark.slow
def test_it_goes_to_the_newest_point_that_all_can_stand_at(command_line, place):
    """A version that is gone, and a transaction inside a group, are passed over; the reasons are told."""
    place.run(3)
    at_3 = {path.name for path in (place.folder / "words" / "_data").iterdir()}
    place.run(4)
    new = {path for path in (place.folder / "words" / "_data").iterdir() if path.name not in at_3}

    run_inline(place.topology(), Config(group_transactions_max=2))
    for path in new:
        path.unlink()
    listed = command_line.told("rewind", "counting")
    assert re.search(r"to 3 points:\n  1, .*\n  2, .*\n  3, .*\n  and to 0", listed)
    gone = "the version of 'words' after transaction 4 is gone (it is of no point, or was vacuumed)"
    assert f"not to 4: {gone}\n" in listed
    text = command_line.told("rewind", "counting", "5", "--yes")
    assert "a later point is not possible: transactions 5 to 6 were committed together\n" in text
    assert f"a later point is not possible: {gone}\n" in text
    assert place.txids() == {"words": 3, "total": 3}
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
def test_before_the_first_transaction_only_if_that_is_asked_for(command_line, place):
    """If no table keeps a point in between, tables are not emptied instead: the command says what is in the way."""
    place.run()
    words = place.folder / "words"
    needed = {words / path for path in DeltaTable(words).file_uris()}
    for path in (words / "_data").iterdir():
        if path not in needed:  # as a vacuum does
            path.unlink()
    before = place.seen()
    for dry in ([], ["--dry-run"]):
        refusal = command_line.refusal("rewind", "counting", "2", "--yes", *dry)
        assert "the version of 'words' after transaction 2 is gone" in refusal
        assert "the next point is 0" in refusal
        assert "the oldest point" not in refusal
        assert "give TXID 0 if that is meant" in refusal
    assert place.seen() == before
    assert "there is no way forward again" in command_line.told("rewind", "counting", "0", "--yes")
    assert place.txids() == {"words": 0, "total": 0}
    place.finish(TRANSACTIONS)


@pytest.mark.slow
def test_a_journal_that_no_longer_has_what_would_run_again(command_line, place):
    """Where nobody knows which input the transactions had, nobody can say that it is there: nothing is changed."""
    place.run(3)
    place.run()
    first, *_ = sorted(journal_in(place.folder).iterdir())
    first.unlink()
    before = place.seen()
    for dry in ([], ["--dry-run"]):
        refusal = command_line.refusal("rewind", "counting", "0", "--yes", *dry)
        assert "the journal no longer has transactions 1 to 3, so it does not say what input" in refusal
    assert place.seen() == before
    refusal = command_line.refusal("fork", "counting", "0", "side")
    assert refusal.endswith("can't be forked at transaction 0: the journal begins after transaction 3\n")
    assert "Give 0" not in command_line.refusal("fork", "counting", "1", "side")
    listed = command_line.told("rewind", "counting")
    assert re.search(r"to 3 points:\n  3, .*\n  4, .*\n  5, .*\nnot to 0", listed)
    assert "and to 0" not in listed
    assert "not to 0: the journal no longer has transactions 1 to 3" in listed
    command_line.told("rewind", "counting", "3", "--yes")
    place.finish(TRANSACTIONS - 3)


LESS = """
from spouts import MemoryTransactionalSpout
from state import DeltaState
from tests.acceptance.topologies import CountWords, make_data
from txtopo import Fields, TransactionalTopologyBuilder

def topology():
    spout = MemoryTransactionalSpout(make_data(2, 20), Fields("word"), 4)
    builder = TransactionalTopologyBuilder("words", "spout", spout, 2)
    builder.set_committer_bolt("count", CountWords(), 2).fields_grouping("spout", Fields("word"))
    builder.set_state("words", DeltaState("words", key=Fields("word: string"), value=Fields("n: long")))
    return builder.build()
"""
"""The same topology without its state ``total``."""


def test_code_that_lacks_a_state_undoes_not_even_one_transaction(command_line, place):
    """Its table would be one transaction ahead of the others."""
    place.run()
    before = place.seen()
    command_line.write_module("less", LESS)
    refusal = command_line.refusal("rewind", "less", "5", "--yes")
    assert "the code lacks 'total', with rows of transactions after 5 that would stay behind" in refusal
    assert place.seen() == before


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("finisher", variants("rewind", slow=["repair"]))
@pytest.mark.parametrize("step", ["repair.begin.after", "repair.journal.after", "repair.end.before"])
def test_who_finishes_it_needs_all_states_too(command_line, place, step, finisher):
    """Code that lacks a state would leave rows of transactions that are undone, also if it only finishes."""
    place.run()
    with armed(Crash(1, only=step)):
        command_line("rewind", "counting", "3", "--yes")
    command_line.write_module("less", LESS)
    again = ["rewind", "less", "3", "--yes"] if finisher == "rewind" else ["repair", "less", "--yes"]
    refusal = command_line.refusal(*again)
    assert "the code lacks 'total', with rows of transactions after 3 that would stay behind" in refusal
    assert "a rewind of topology 'words'" in command_line.refusal("run", "counting")
    command_line.told("rewind", "counting", "3", "--yes")
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
@pytest.mark.parametrize("step", [None, "repair.begin.after", "repair.table.after", "repair.journal.after"])
def test_who_starts_anew_needs_all_states_too(command_line, place, step):
    """The plan names them: code that lacks one would leave its table, and say that it is done."""
    place.run()
    command_line.write_module("less", LESS)
    if step is not None:
        with armed(Crash(1, only=step)):
            command_line("repair", "counting", "--start-anew", "--yes")
    refusal = command_line.refusal("repair", "less", "--yes", *(["--start-anew"] if step is None else []))
    assert "the code lacks 'total', with rows of transactions after 0 that would stay behind" in refusal
    command_line.told("repair", "counting", "--start-anew", "--yes")
    assert not (place.folder / "total").exists()
    place.finish(TRANSACTIONS)
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize("step", [None, "repair.begin.after"])
def test_a_repair_without_coordinator_state_needs_all_states_too(command_line, place, step):
    """The journal says which they are: a table that the code lacks would stay where it is, ahead of the others."""
    place.run(4)
    place.back_up("words")
    place.run()
    place.restore("words")
    place.wipe_store()
    command_line.write_module("less", LESS)
    if step is not None:
        with armed(Crash(1, only=step)):
            command_line("repair", "counting", "--yes")
    assert "the code lacks 'total', with rows of transactions after 4" in command_line.refusal("repair", "less", "-y")
    command_line.told("repair", "counting", "--yes")
    place.finish(TRANSACTIONS - 4)
    command_line.told("audit", ".")


def test_what_is_not_sound_is_to_be_repaired_first(command_line, place):
    place.run(4)
    place.append_word()
    before = place.seen()
    assert "Run 'txtopo repair' first; nothing was changed" in command_line.refusal("rewind", "counting", "2", "--yes")
    assert place.seen() == before


def test_without_agreement_nothing_is_changed(command_line, place):
    place.run()
    before = place.seen()
    assert "agree with --yes; nothing was changed" in command_line.refusal("rewind", "counting", "2")
    assert place.seen() == before


KEEPING = """
from spouts import MemoryTransactionalSpout
from state import DeltaState
from state.transactional import TransactionalState
from tests.acceptance.topologies import CountTuples
from txtopo import Config, Fields, TransactionalTopologyBuilder

class Keeping:
    def __init__(self, inner, goes_back):
        self.inner, self.goes_back = inner, goes_back

    def open_store(self, store, lead, root):
        self.state = TransactionalState(store, lead, root)

    def resume(self, txid, metadata):
        kept = self.state.get_data("last")
        assert kept == (txid or None), f"kept {kept}, but resumed after {txid}"
        self.inner.resume(txid, metadata)

    def rewind(self, txid, metadata, undone):
        if self.goes_back:
            assert self.state.get_data("last") in {txid + len(undone), None}, undone
            self.state.set_data("last", txid or None)
        return self.goes_back

    def initialize_transaction(self, txid, previous):
        self.state.set_data("last", txid)
        return self.inner.initialize_transaction(txid, previous)

    def __getattr__(self, name):
        return getattr(self.inner, name)

class Spout(MemoryTransactionalSpout):
    goes_back = True

    def coordinator(self, config, context):
        return Keeping(super().coordinator(config, context), self.goes_back)

def topology(goes_back: bool = True):
    spout = Spout({0: [["a"]] * 6}, Fields("word"), 1)
    spout.goes_back = goes_back
    builder = TransactionalTopologyBuilder("keeping", "spout", spout, 1)
    builder.set_committer_bolt("count", CountTuples(), 1).global_grouping("spout")
    builder.set_state("total", DeltaState("total", key=Fields("name: string"), value=Fields("n: long")))
    return builder.build()

def config():
    return Config(group_transactions_max=1, max_spout_pending=1)
"""


@pytest.mark.slow
def test_the_spouts_own_values_go_back_in_the_same_step(command_line, place):
    """A spout that can't take them back is refused by name; the former values are kept."""
    command_line.write_module("keeping", KEEPING)
    target = load_target("keeping", {}, place.folder)
    run_inline(target.topology, target.config)

    def kept(below: str = "keeping/source/spout") -> object:
        store = SqliteStore(place.store)
        try:
            return TransactionalState(store, None, below).get_data("last")
        finally:
            store.close()

    for dry in ([], ["--dry-run"]):
        refusal = command_line.refusal("rewind", "keeping", "2", "--yes", *dry, "--set", "goes_back=false")
        assert "the coordinator of spout 'spout' keeps values of its own" in refusal
    assert "would run again" in command_line.told("rewind", "keeping", "2", "--dry-run")
    for step in ("repair.journal.after", "repair.end.before", "repair.end.after"):
        with armed(Crash(1, only=step)):
            command_line("rewind", "keeping", "2", "--yes")
        assert kept() == (2 if step == "repair.end.after" else 6)
    assert kept("keeping/before-repair-1/source/spout") == 6
    report = run_inline(target.topology, target.config)
    assert (report.transactions, kept()) == (4, 6)
    command_line.told("audit", ".")


@pytest.mark.slow
def test_a_repair_that_goes_back_brings_them_back_too(command_line, place):
    """The spout is asked as by a rewind: its cursor would skip the input of what runs again."""
    command_line.write_module("keeping", KEEPING)
    target = load_target("keeping", {}, place.folder)
    run_inline(target.topology, target.config, until=4)
    place.back_up("total")
    run_inline(target.topology, target.config)
    place.restore("total")
    refusal = command_line.refusal("repair", "keeping", "--yes", "--set", "goes_back=false")
    assert "the coordinator of spout 'spout' keeps values of its own" in refusal
    with armed(Crash(1, only="repair.journal.after")):
        command_line("repair", "keeping", "--yes")
    command_line.told("repair", "keeping", "--yes")
    assert run_inline(target.topology, target.config).transactions == 2
    assert read_table(place.folder / "total").to_pydict()["n"] == [6]
    command_line.told("audit", ".")


OPAQUE = """
from spouts import OpaqueMemoryTransactionalSpout
from state import DeltaRows, DeltaState
from committers import AppendCommitter
from tests.acceptance.topologies import CountTuples
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.api.state import StateKind

def topology(output: str = "."):
    spout = OpaqueMemoryTransactionalSpout({0: [[n] for n in range(9)], 1: [[n] for n in range(14)]}, Fields("n: long"), 2)
    builder = TransactionalTopologyBuilder("opaque", "spout", spout, 2)
    builder.set_committer_bolt("count", CountTuples(), 1).global_grouping("spout")
    builder.set_committer_bolt("copy", AppendCommitter("rows"), 2).shuffle_grouping("spout")
    counts = DeltaState(f"{output}/total", Fields("name: string"), Fields("n: long"), StateKind.OPAQUE)
    builder.set_state("total", counts)
    builder.set_state("rows", DeltaRows(f"{output}/rows", Fields("n: long")))
    return builder.build()

def config():
    return Config(group_transactions_max=1, max_spout_pending=4)
"""


@pytest.mark.slow
def test_an_opaque_source_and_a_table_of_rows(command_line, tmp_path):
    """As after an undisturbed run: rows, the values before each, and the input that was taken."""
    command_line.write_module("opaque", OPAQUE)
    targets = {name: load_target("opaque", {"output": name}, tmp_path) for name in ("whole", "rewound")}
    for target in targets.values():
        run_inline(target.topology, target.config)
    text = command_line.told("rewind", "opaque", "4", "--dry-run", "--set", "output=rewound")
    assert "state 'rows': version 8; a new one would equal version 5, 7 rows would go, 0 come back, 0 change" in text
    command_line.told("rewind", "opaque", "4", "--yes", "--set", "output=rewound")
    assert len(read_tables(tmp_path / "rewound").tables["rows"]) == 16
    run_inline(targets["rewound"].topology, targets["rewound"].config)
    seen = [read_tables(tmp_path / name).tables for name in targets]
    rows = [sorted(map(repr, table["rows"].to_pylist())) for table in seen]
    assert rows[0] == rows[1]
    assert seen[0]["total"]["n"].to_pylist() == seen[1]["total"]["n"].to_pylist() == [23]
    command_line.told("audit", "rewound")


@pytest.mark.slow
@pytest.mark.covering(2)
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("to", [4, 0, 6])
@pytest.mark.parametrize("dies_at", ["group.decide.after", None, "table.write.after"])
def test_a_state_without_versions_stays_as_it_is(command_line, group, to, dies_at):
    """The others go back, it is said which does not, and what runs again is not written to it twice, also in a crash."""
    command_line.write_module("beside", BESIDE)

    def run(until=None):
        run_inline(load_target("beside", {}).topology, Config(group_transactions_max=group), until=until)

    run(6)
    assert "state 'other' keeps no versions: it stays as it is\n" in command_line.told("rewind", "beside")
    told = command_line.told("rewind", "beside", str(to), "--yes")
    if to < 6:
        assert f"not undone: what transactions {to + 1} to 6 have written to state 'other', which keeps" in told
    for at in (1, 2) if dies_at is not None else ():
        survives(run, Crash(at, only=dies_at))
    for until in (7, None):
        run(until)
    expected = {"w0": 3, "w1": 3, "w2": 2}
    other = load_target("beside", {}).topology.plan.states["other"].snapshot()
    for rows in (read_table("table"), other):
        assert dict(zip(rows["word"].to_pylist(), rows["n"].to_pylist(), strict=True)) == expected
    command_line.told("audit", ".")
    command_line.told("rewind", "beside", "2", "--yes")
    run()
    assert sorted(read_table("table")["n"].to_pylist()) == [2, 3, 3]


@pytest.mark.slow
@pytest.mark.parametrize(("beside", "counts"), variants(("kept", [1, 1, 1]), slow=[("table", [2, 2, 2])]))
def test_a_state_begun_later_prevents_no_point(command_line, beside, counts):
    """One without versions has only what came after it was begun; a table is begun at the point instead."""
    command_line.write_module("beside", BESIDE)

    def run(until=None, beside=beside, **settings):
        config = Config(group_transactions_max=1, **settings)
        run_inline(load_target("beside", {"beside": beside}).topology, config, until=until)

    run(5, beside="")
    run(6, state_start_empty="other=5")
    command_line.told("rewind", "beside", "2", "--set", f"beside={beside}", "--yes")
    assert read_table("table")["n"].to_pylist() == [1, 1]
    for until in (4, None):
        run(until)
    command_line.told("audit", ".")
    assert sorted(read_table("table")["n"].to_pylist()) == [2, 3, 3]
    other = load_target("beside", {"beside": beside}).topology.plan.states["other"].snapshot()
    assert sorted(other["n"].to_pylist()) == counts


@pytest.mark.slow
def test_a_state_in_memory_prevents_no_point(command_line):
    """It goes on with what its process has."""
    command_line.write_module("beside", BESIDE)
    topology = load_target("beside", {"beside": "memory"}).topology

    def run(until=None):
        run_inline(topology, Config(group_transactions_max=1), until=until)

    run(6)
    told = command_line.told("rewind", "beside", "3", "--set", "beside=memory", "--yes")
    assert "not undone: state 'other', which is in memory: it goes on with what the process has that runs it\n" in told
    assert read_table("table")["n"].to_pylist() == [1, 1, 1]
    run(5)
    run()
    for rows in (read_table("table"), topology.plan.states["other"].snapshot()):
        assert sorted(rows["n"].to_pylist()) == [2, 3, 3]
    command_line.told("audit", ".")
