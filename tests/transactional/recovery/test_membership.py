"""Promises 9 and 12: a state that was not in the topology for some transactions is refused, or is begun empty openly."""

import json
import pathlib
import shutil
from functools import partial

import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, MemoryState, SqliteStore, read_table, read_tables
from state.delta.table import DeltaStateTable
from tests.bolts import Count
from tests.crashes import Crash, dying, survives
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.api.store import Put
from txtopo.errors import ConfigError, DivergenceError, StateAccessError
from txtopo.testing.inline import run_inline

ROWS = [[f"w{n % 3}", 1] for n in range(12)]
"""Twelve transactions of one row."""

TOPOLOGY = "t"


class CountUnlessIdle(Count):
    """Puts nothing into a state named ``idle``."""

    def finish_batch(self):
        if self.name != "idle":
            super().finish_batch()


class Place:
    """A folder with the tables of a topology whose states change from run to run."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def topology(self, *names: str, **paths: str):
        builder = TransactionalTopologyBuilder(
            TOPOLOGY, "rows", MemoryTransactionalSpout(ROWS, Fields("word: string", "n: long"), 1)
        )
        for name in names:
            builder.set_committer_bolt(f"count-{name}", CountUnlessIdle(name), 1).global_grouping("rows")
            path = self.folder / paths.get(name, name)
            builder.set_state(name, DeltaState(path, Fields("word: string"), Fields("n: long")))
        return builder.build()

    def run(self, until: int, *names: str, start_empty: object = None, **paths: str):
        config = Config(group_transactions_max=1, state_start_empty=start_empty, state_dir=str(self.folder / "_txtopo"))
        return run_inline(self.topology(*names, **paths), config, until=until)

    def refused(self, *names: str, says: tuple[str, ...], start_empty: object = None) -> None:
        """Check that a run is refused twice, with these words, and that nothing is changed by it."""
        before = self.seen()
        for _ in range(2):
            with pytest.raises(DivergenceError) as refusal:
                self.run(12, *names, start_empty=start_empty)
            for words in (*says, "Nothing was written"):
                assert words in str(refusal.value)
            assert self.seen() == before

    def seen(self) -> dict[str, int]:
        return {str(p): p.stat().st_size for p in self.folder.rglob("*") if "coordinator" not in p.name}

    def total(self, name: str) -> int:
        return sum(row["n"] for row in read_table(self.folder / name).to_pylist())


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    return Place(tmp_path)


def audited(command_line, place, *says: str, status: int = 0) -> str:
    """Audit the folder, and check the exit status and the words."""
    result = command_line("audit", str(place.folder))
    assert result.exit_code == status, result.output
    for words in says:
        assert words in result.output
    return result.output


@pytest.mark.slow
def test_a_state_that_was_left_out_is_refused_and_audited_until_it_left(place, command_line):
    """The refusal names both transactions and the ways on; the table is proved up to where it left, and says so."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    audited(command_line, place, "sums: 4 groups", "up to 4; it left the topology after transaction 4", "✔")
    place.refused(
        "words",
        "sums",
        says=(
            "state 'sums' of topology 't' was left out of the topology after transaction 4",
            "the coordinator state is at transaction 6",
            "Take 'sums' out of the topology again",
            "topology.state.start.empty=sums=6",
            "txtopo repair",
            "--start-anew",
        ),
    )
    place.run(8, "words")
    assert place.total("words") == 8


@pytest.mark.slow
def test_a_new_state_is_refused(place):
    """Its table would begin at the current transaction in silence."""
    place.run(6, "words")
    place.refused("words", "sums", says=("'sums' of topology 't' is new", "at transaction 0", "at transaction 6"))


@pytest.mark.slow
def test_states_may_change_while_nothing_is_committed(place, command_line):
    """Before the first transaction, and by a run that commits nothing, nothing is missed."""
    place.run(0, "words")
    place.run(4, "words", "sums")
    place.run(4, "words")
    place.run(12, "words", "sums")
    assert (place.total("words"), place.total("sums")) == (12, 12)
    audited(command_line, place, "✔")


@pytest.mark.slow
def test_several_states_are_refused_together(place):
    """One setting begins them all."""
    place.run(3, "words", "sums")
    place.run(5, "words")
    place.refused("words", "sums", "more", says=("topology.state.start.empty=sums=5,more=5", "'more'", "'sums'"))
    place.run(7, "words", "sums", "more", start_empty={"sums": 5, "more": 5})
    assert (place.total("sums"), place.total("more")) == (2, 2)


@pytest.mark.slow
def test_begun_empty_and_shown_for_ever(place, command_line):
    """Its former table is kept aside, and every later run's audit says since when it counts."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    place.run(8, "words", "sums", start_empty="sums=6")
    assert (place.total("words"), place.total("sums")) == (8, 2)
    assert sum(row["n"] for row in read_table(place.folder / "sums.before-repair-1").to_pylist()) == 4
    place.run(10, "words", "sums", start_empty="sums=6")
    place.run(12, "words", "sums")
    said = "sums: 6 groups in", "proved from transaction 7 to 12; begun empty after transaction 6, by topology.state"
    audited(command_line, place, *said, "✔")


@pytest.mark.slow
def test_a_setting_left_behind_hides_no_later_gap(place):
    """It is for one transaction only."""
    place.run(4, "words")
    place.run(6, "words", "sums", start_empty="sums=4")
    place.run(8, "words", start_empty="sums=4")
    place.refused("words", "sums", start_empty="sums=4", says=("left out of the topology after transaction 6", "=8"))
    place.refused("words", "sums", start_empty="sums=9", says=("topology.state.start.empty=sums=8",))


@pytest.mark.slow
def test_begun_empty_twice(place, command_line):
    """The later begin counts."""
    place.run(2, "words", "sums")
    place.run(4, "words")
    place.run(6, "words", "sums", start_empty="sums=4")
    place.run(8, "words")
    place.run(10, "words", "sums", start_empty="sums=8")
    assert place.total("sums") == 2
    assert {path.name for path in place.folder.glob("sums*")} == {
        "sums",
        "sums.before-repair-1",
        "sums.before-repair-2",
    }
    audited(command_line, place, "begun empty after transaction 8", "✔")


@pytest.mark.slow
def test_begun_empty_and_nothing_committed_yet(place, command_line):
    """The audit says so before the state has a row."""
    place.run(4, "words")
    place.run(4, "words", "sums", start_empty="sums=4")
    audited(command_line, place, "sums: 0 groups", "begun empty after transaction 4", "✔")
    place.run(5, "words", "sums")
    assert place.total("sums") == 1


@pytest.mark.slow
def test_a_renamed_state_is_a_new_one(place):
    """Its table belongs to the former name, whatever the setting says."""
    place.run(4, "words", "sums")
    with pytest.raises(DivergenceError, match=r"belongs to state 'sums'.*'txtopo rename'"):
        place.run(6, "words", "totals", totals="sums")
    with pytest.raises(DivergenceError, match="belongs to state 'sums'"):
        place.run(6, "words", "totals", totals="sums", start_empty="totals=4")
    place.run(6, "words", "totals", start_empty="totals=4")
    assert place.total("totals") == 2


@pytest.mark.slow
def test_a_state_may_be_begun_empty_at_another_path(place):
    """The former table stays where it is."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    place.run(8, "words", "sums", sums="elsewhere", start_empty="sums=6")
    assert (place.total("sums"), place.total("elsewhere")) == (4, 2)


@pytest.mark.slow
def test_a_table_that_left_may_be_removed(place, command_line):
    """The audit says that it is not proved, and does not fail for it."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    shutil.rmtree(place.folder / "sums")
    audited(command_line, place, "sums: not proved, because its table is gone; it left the topology", "✔")


@pytest.mark.slow
def test_dead_letters_may_come_and_go(place, command_line):
    """Their table is no part of the topology; the audit says when it was away."""

    def run(until, policy):
        config = Config(
            transaction_max_attempts=1, transaction_max_attempts_policy=policy, group_transactions_max=1,
            state_dir=str(place.folder / "_txtopo"),
        )  # fmt: skip
        run_inline(place.topology("words"), config, until=until)

    for until, policy in ((2, "WAIT"), (4, "SKIP"), (6, "WAIT"), (8, "SKIP")):
        run(until, policy)
    audited(command_line, place, "dead-letters: 0 groups", "transactions 1 to 2, 5 to 6, which put nothing", "✔")


@pytest.mark.slow
def test_states_in_memory(tmp_path):
    """They are refused like tables; a state that holds nothing can be begun."""
    states = {name: MemoryState(Fields("word"), Fields("n")) for name in ("words", "sums")}

    def run(until, *names, **settings):
        spout = MemoryTransactionalSpout(ROWS, Fields("word: string", "n: long"), 1)
        builder = TransactionalTopologyBuilder(TOPOLOGY, "rows", spout)
        for name in names:
            builder.set_committer_bolt(f"count-{name}", CountUnlessIdle(name), 1).global_grouping("rows")
            builder.set_state(name, states[name])
        run_inline(builder.build(), Config(**settings), until=until)

    run(4, "words", "sums")
    run(6, "words")
    with pytest.raises(DivergenceError, match="left out of the topology after transaction 4"):
        run(8, "words", "sums")
    with pytest.raises(DivergenceError, match="can't be started empty: it is at transaction 4"):
        run(8, "words", "sums", state_start_empty="sums=6")
    states["sums"] = MemoryState(Fields("word"), Fields("n"))
    run(8, "words", "sums", state_start_empty="sums=6")
    assert sum(kept.value for kept in states["sums"].items().values()) == 2


# Crashes


@pytest.mark.long
@pytest.mark.parametrize("with_setting", [True, False], ids=["again with the setting", "without it"])
def test_a_crash_at_each_step_of_the_begin(tmp_path, command_line, with_setting):
    """What was recorded is gone on with; before that, the state is refused, and nothing of it was touched."""
    for at in range(1, 200):
        place, crash = Place(tmp_path / str(at)), Crash(at)
        place.run(4, "words", "sums")
        place.run(6, "words")
        assert not survives(partial(place.run, 8, "words", "sums", start_empty="sums=6"), crash)
        try:
            place.run(8, "words", "sums", start_empty="sums=6" if with_setting else None)
        except DivergenceError:
            assert not with_setting, crash.name
            assert place.total("sums") == 4
            before = ("lead", "table.open", "folder.", "delta.", "recovery.begin.before")
            assert crash.name.startswith(before), crash.name
            continue
        assert (place.total("words"), place.total("sums")) == (8, 2), crash.name
        audited(command_line, place, "begun empty after transaction 6", "✔")
        if crash.name == "group.commit.after":
            assert at > 20, "the begin has its steps"
            return


@pytest.mark.slow
def test_a_crash_between_the_tables_of_a_group_before_a_state_leaves(place, command_line):
    """The group in progress was the whole topology's, so the state has left after it, not before."""
    place.run(4, "words", "sums")
    with dying("group.commit.before"):
        place.run(6, "words", "sums")
    with pytest.raises(DivergenceError, match="start it once with that state"):
        place.run(8, "words")
    place.run(5, "words", "sums")
    place.run(8, "words")
    place.refused("words", "sums", says=("left out of the topology after transaction 5",))


@pytest.mark.slow
@pytest.mark.parametrize("at", ["table.write.after", "group.commit.before"])
def test_a_new_state_with_a_group_in_progress(place, at):
    """The transactions that recovery finishes count, also the very first ones."""
    with dying(at):
        place.run(3, "words")
    place.refused("words", "sums", says=("'sums' of topology 't' is new", "start.empty=sums=1"))
    place.run(3, "words", "sums", start_empty="sums=1")
    assert (place.total("words"), place.total("sums")) == (3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["table.write.after", "group.commit.before"])
def test_a_group_in_progress_without_the_state(place, at):
    """If recovery will finish it, the state lacks it, although the coordinator state does not say so yet."""
    place.run(4, "words", "sums")
    with dying(at):
        place.run(6, "words")
    place.refused("words", "sums", says=("left out of the topology after transaction 4", "start.empty=sums=5"))
    place.run(6, "words", "sums", start_empty="sums=5")
    assert (place.total("words"), place.total("sums")) == (6, 1)


@pytest.mark.slow
def test_a_dropped_group_without_the_state(place, command_line):
    """Nothing was committed without it."""
    place.run(4, "words", "sums")
    with dying("group.decide.before"):
        place.run(6, "words")
    place.run(6, "words", "sums")
    assert (place.total("words"), place.total("sums")) == (6, 6)
    audited(command_line, place, "1 group dropped", "✔")


@pytest.mark.slow
@pytest.mark.parametrize("at", ["recovery.aside.before", "recovery.aside.after", "recovery.begun.before"])
def test_an_interrupted_begin_is_finished_by_repair(place, command_line, at):
    """Once, whatever the next run does: one without the state leaves it out again."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    with dying(at):
        place.run(8, "words", "sums", start_empty="sums=6")
    told = repair(command_line, place, "words", "sums").output
    assert "finishing an interrupted start with topology.state.start.empty" in told
    assert "nothing to repair" in repair(command_line, place, "words", "sums").output
    place.run(7, "words")
    place.refused("words", "sums", says=("left out of the topology after transaction 6", "start.empty=sums=7"))
    place.run(8, "words", "sums", start_empty="sums=7")
    assert (place.total("words"), place.total("sums")) == (8, 1)


@pytest.mark.slow
def test_a_gap_is_found(place, command_line):
    """A state was put back although the mark says that it had never left: the journal's headers name the states of each run, so the audit finds it."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    store = SqliteStore(place.folder / "_txtopo" / "coordinator.sqlite")
    mark = json.loads(bytes(store.read(f"{TOPOLOGY}/committed")))
    mark["states"]["sums"]["left_after"] = None  # as if it had never left
    lead = store.take_lead(TOPOLOGY, "by hand")
    lead.write([Put(f"{TOPOLOGY}/committed", json.dumps(mark).encode())])
    lead.release()
    store.close()
    place.run(8, "words", "sums")
    text = "transaction 5, state 'sums': the topology ran transactions 5 to 6 without this state"
    audited(command_line, place, text, status=1)


# Repair, and readers


def repair(command_line, place: Place, *names: str, options: tuple[str, ...] = ()):
    command_line.write_module(
        "changing",
        "import pathlib\nfrom tests.transactional.recovery.test_membership import Place\n"
        f"def topology():\n    return Place(pathlib.Path({str(place.folder)!r})).topology(*{names!r})\n",
    )
    return command_line("repair", "changing", "--set", f"topology.state.dir={place.folder}/_txtopo", *options)


@pytest.mark.slow
def test_repair_goes_back_to_where_a_state_left(place, command_line):
    """The transactions that it missed run again, for all."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    refusal = repair(command_line, place, "words", "sums")
    assert "found: state 'sums' of topology 't' was left out" in refusal.output
    assert "a later transaction is not possible: state 'sums' can't be at transaction 6" in refusal.output
    assert "rolled back: 'words' to transaction 4" in refusal.output
    assert repair(command_line, place, "words", "sums", options=("--yes",)).exit_code == 0
    place.run(12, "words", "sums")
    assert (place.total("words"), place.total("sums")) == (12, 12)
    audited(command_line, place, "✔")


@pytest.mark.slow
def test_repair_makes_no_gap_for_a_new_state(place, command_line):
    """There is no transaction to go to; it says what there is to do."""
    place.run(4, "words")
    refusal = repair(command_line, place, "words", "sums", options=("--yes",))
    assert refusal.exit_code == 1
    assert "topology had no such state yet" in refusal.output
    place.refused("words", "sums", says=("is new",))
    assert repair(command_line, place, "words", "sums", options=("--start-anew", "--yes")).exit_code == 0
    place.run(12, "words", "sums")
    assert (place.total("words"), place.total("sums")) == (12, 12)


@pytest.mark.slow
def test_a_wiped_store_remembers_from_the_journal(place, command_line):
    """Who left, and who was begun empty, is in the journal, too."""
    place.run(2, "words", "more")
    place.run(4, "words")
    place.run(6, "words", "sums", start_empty="sums=4")
    for path in (place.folder / "_txtopo").glob("coordinator*"):
        path.unlink()
    assert repair(command_line, place, "words", "sums").exit_code == 0
    place.refused("words", "sums", "more", says=("'more' of topology 't' was left out of the topology after transac",))
    place.run(8, "words", "sums")
    assert place.total("sums") == 4
    audited(command_line, place, "begun empty after transaction 4", "it left the topology after transaction 2", "✔")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["a start", "starting anew"])
def test_a_table_that_can_not_be_moved(place, command_line, monkeypatch, by):
    """As in an object store: what would move it is refused before a plan is on record, and names it."""
    place.run(2, "words", "sums")
    place.run(4, "words")
    monkeypatch.setattr(DeltaStateTable, "why_it_stays", lambda table: f"{table.address} stays where it is")
    if by == "a start":
        with pytest.raises(ConfigError, match="sums stays where it is; nothing was changed"):
            place.run(6, "words", "sums", start_empty="sums=4")
    else:
        result = repair(command_line, place, "words", "sums", options=("--start-anew", "--yes"))
        assert "words stays where it is; nothing was changed" in result.output
    place.run(5, "words")
    shutil.move(place.folder / "sums", place.folder / "former")
    place.run(6, "words", "sums", start_empty="sums=5")
    assert (place.total("words"), place.total("sums")) == (6, 1)


@pytest.mark.slow
def test_repair_below_the_begin_of_a_state(place, command_line):
    """It is begun where the topology goes on then, so it lacks less than before."""
    place.run(4, "words")
    shutil.copytree(place.folder / "words", place.folder / "backup")
    place.run(5, "words")
    place.run(8, "words", "sums", start_empty="sums=5")
    shutil.rmtree(place.folder / "words")
    shutil.move(place.folder / "backup", place.folder / "words")
    assert repair(command_line, place, "words", "sums", options=("--yes",)).exit_code == 0
    place.run(12, "words", "sums")
    assert (place.total("words"), place.total("sums")) == (12, 8)
    audited(command_line, place, "begun empty after transaction 4", "✔")


@pytest.mark.slow
def test_readers_of_a_state_that_was_begun_later(place):
    """All tables are read together from its begin on, and not before."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    assert set(read_tables(place.folder).tables) == {"words"}
    place.run(8, "words", "sums", start_empty="sums=6")
    view = read_tables(place.folder)
    assert (view.txid, view.tables["sums"].num_rows) == (8, 2)
    assert read_tables(place.folder, 6).tables["sums"].num_rows == 0
    with pytest.raises(StateAccessError, match="'sums' was begun empty after transaction 6"):
        read_tables(place.folder, 3)
    place.run(10, "words", "sums", "more", start_empty="more=8")
    assert read_tables(place.folder, 8).tables["more"].num_rows == 0
    for txid in (6, 7):
        with pytest.raises(StateAccessError, match="'more' was begun empty after transaction 8"):
            read_tables(place.folder, txid)


def test_explain(place, command_line):
    """A transaction is shown with the tables that it wrote."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    assert "written   sums: 1 row put" in command_line("explain", str(place.folder), "3").output
    assert "sums" not in command_line("explain", str(place.folder), "5").output


@pytest.mark.slow
def test_replay(place, command_line):
    """Transactions are replayed without the states that they had not, or whose tables do not have them; each is named."""
    place.run(4, "words", "sums")
    place.run(6, "words")
    place.run(8, "words", "sums", start_empty="sums=6")
    folder = str(place.folder)
    repair(command_line, place, "words", "sums")
    settings = ("--set", f"topology.state.dir={folder}/_txtopo", "--set", "topology.spark.master=local[1]")
    for txid in ("3", "5"):
        output = command_line("replay", "changing", txid, *settings).output
        assert "state 'sums' was begun empty after transaction 6" in output
        assert "left out: count-sums, state sums" in output
        assert "state words: 1 row, the same" in output


BOTH = """
import pathlib
from tests.transactional.recovery.test_membership import Place

def topology():
    return Place(pathlib.Path.cwd()).topology("words", "sums")
"""


@pytest.mark.slow
def test_a_state_that_was_begun_later_goes_back_too(place, command_line):
    """It has rows of what is undone as others have; to before it was begun it goes empty."""
    place.run(4, "words")
    place.run(9, "words", "sums", start_empty={"sums": 4})
    command_line.write_module("both", BOTH)
    for txid in (7, 5):
        command_line.told("rewind", "both", str(txid), "--yes")
        assert (place.total("words"), place.total("sums")) == (txid, txid - 4)
    place.run(12, "words", "sums")
    assert (place.total("words"), place.total("sums")) == (12, 8)
    audited(command_line, place, "✔")
