"""The steps of a commit group come in an order that a crash between any two of them can be finished from."""

import errno
import itertools
import logging
import operator
import os
import shutil
import threading
import time
from typing import ClassVar

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from committers import AppendCommitter
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, DeltaState, MemoryStore, SqliteStore, read_table
from state.delta.upkeep.rounds import LogUpkeep
from state.stores.memory import MemoryPlace
from tests.acceptance.topologies import CountTuples
from tests.bolts import Collecting, Take
from tests.crashes import dying
from tests.full_disk import no_descriptor_left
from tests.journals import opened_journal
from tests.topologies import committing, run_pausing
from tests.transactional.recovery.divergences import DATA, TRANSACTIONS, Place, keep_notes_beside
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo import Config, Fields, ICommitter
from txtopo.api.values import StateKind
from txtopo.engine.runner import run_with
from txtopo.errors import ClusterError, FailedException, FieldsError, InternalError, RuleError, StopError
from txtopo.failpoints import armed
from txtopo.files.folder import LocalFolder
from txtopo.journal.journal import read_journal
from txtopo.testing.inline import inline_environment, run_inline


def test_the_order_of_a_groups_steps(tmp_path):
    """Whatever a group needs is durable before its note decides it, and nothing of it is visible before that."""
    reached: list[str] = []
    with armed(reached.append):
        Place(tmp_path).run(1)
    steps = ("table.prepare", "group.journal", "group.decide", "table.write", "group.commit")
    reached = [name for name in reached if name.startswith(steps)]
    decided, written = reached.index("group.decide.before"), reached.index("table.write.before")
    assert sorted(reached[:decided]) == sorted(
        ["group.journal.before", "group.journal.after"] + ["table.prepare.before", "table.prepare.after"] * 2
    )
    assert reached[decided:written] == ["group.decide.before", "group.decide.after"]
    assert sorted(reached[written:-2]) == sorted(["table.write.before", "table.write.after"] * 2)
    assert reached[-2:] == ["group.commit.before", "group.commit.after"]


def test_the_committed_mark_rides_on_the_next_write(tmp_path):
    """A group costs one write of the coordinator state, whose next note carries the mark of the group before."""
    reached: list[str] = []
    with armed(reached.append):
        run_inline(Place(tmp_path).topology(), Config(group_transactions_max=1, max_spout_pending=TRANSACTIONS))
    riding = [name for name, after in itertools.pairwise(reached) if after == "group.commit.before"]
    assert riding.count("group.decide.before") >= TRANSACTIONS // 2


NOTES = "*/_data/note-*"


@pytest.mark.slow
def test_a_note_that_is_too_large_for_a_value_lies_beside_a_table(tmp_path, monkeypatch):
    """Notes go with the group after theirs; a crash before the last table is written loses nothing."""
    keep_notes_beside(monkeypatch)
    place, notes = Place(tmp_path), set()

    def handler(name):
        if name == "table.write.before":
            notes.update(path.name for path in tmp_path.glob(NOTES))

    place.crash("table.write.before")
    with armed(handler):
        place.run()
    assert len(notes) == TRANSACTIONS - 1
    place.check_totals()
    assert list(tmp_path.glob(NOTES)) == []


@pytest.mark.slow
def test_a_note_that_cannot_be_written_stops_the_run(tmp_path, monkeypatch):
    """The error says what to do, and the next run goes on as if nothing had been."""
    keep_notes_beside(monkeypatch)
    place = Place(tmp_path)

    def no_space(folder, path, *arguments, **options):
        if "note-" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return put(folder, path, *arguments, **options)

    put = LocalFolder.put
    with monkeypatch.context() as patched, pytest.raises(StopError, match="Free some disk space"):
        patched.setattr(LocalFolder, "put", no_space)
        place.run()
    place.run()
    place.check_totals()


WAITS = "no file descriptor is left (ulimit -n): work waits until this process can open files again"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "step", ["group.journal.before", "table.prepare.before", "group.decide.after", "table.write.before", "bolt.execute"]
)
def test_a_driver_without_descriptors_waits_for_them(tmp_path, caplog, step):
    """From any step on it begins nothing until there are some again, says so, and goes on as if nothing had been."""
    reached: list[str] = []

    def starve() -> None:
        with no_descriptor_left():
            is_gone.set()
            wait_for("somebody waits", lambda: is_over.is_set() or WAITS in map(logging.LogRecord.getMessage, records))

    def handler(name: str) -> None:
        reached.append(name)
        if name == step and reached.count(step) == 3:  # what is imported late is there by then
            starving.start()
            assert is_gone.wait(DEADLINE_SECS)

    records, is_gone, is_over, starving = (
        caplog.records,
        threading.Event(),
        threading.Event(),
        threading.Thread(target=starve),
    )
    place = Place(tmp_path)
    pause = lambda secs: is_over.wait(secs / 5)
    try:
        with armed(handler):
            run_pausing(place.topology(), pause, Config(group_transactions_max=1))
    finally:
        is_over.set()
        starving.join()
    place.check_totals()
    assert WAITS in caplog.text


STEPS = ["group.decide.after", "table.write.before", "table.write.after", "group.commit.before", "group.commit.after"]


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_large", [False, True], ids=["note in a value", "note elsewhere"])
def test_a_machine_lost_with_its_disk(tmp_path, monkeypatch, step, is_large):
    """Where the store outlives it, whoever leads next finishes the group that it had decided."""
    if is_large:
        keep_notes_beside(monkeypatch)
    place, store_place, disk = Place(tmp_path), MemoryPlace(), tmp_path / "disk of a machine"
    environment = attrs.evolve(inline_environment(), make_store=lambda: MemoryStore(store_place))
    config = Config(group_transactions_max=1, state_dir=str(disk))
    for at in (2, 3):
        with dying(step, at):
            run_with(place.topology(), config, environment)
        shutil.rmtree(disk)
    run_with(place.topology(), config, environment)
    place.check_totals()
    assert list(tmp_path.glob(NOTES)) == []


def test_nothing_is_kept_of_the_metadata_of_committed_transactions(tmp_path):
    """Neither of the last transaction of a group nor of those before it."""
    run_inline(Place(tmp_path).topology(), Config(group_transactions_max=4, max_spout_pending=TRANSACTIONS))
    store = SqliteStore(Place(tmp_path).store)
    assert list(store.children("words/metadata")) == []
    store.close()


class InTurns(Take, ICommitter):
    """Writes to one state, then to the other, then to both."""

    def prepare(self, config, context, collector, attempt):
        names = [("one",), ("two",), ("one", "two")][(attempt.txid - 1) // 2]
        self.states = [context.state(name) for name in names]

    def finish_batch(self):
        for state in self.states:
            state.update("n", lambda old: (old or 0) + 1)


@pytest.mark.slow
def test_tables_that_are_written_in_turns(tmp_path):
    """What each table was last written with is known to the next run, however long ago that was."""

    def run(until=None):
        spout = MemoryTransactionalSpout(DATA, Fields("word"), 4)
        states = {
            name: DeltaState(tmp_path / name, Fields("name: string"), Fields("n: long")) for name in ("one", "two")
        }
        run_inline(committing(spout, InTurns(), **states), Config(group_transactions_max=1), until=until)
        return [state.snapshot()["n"].to_pylist() for state in states.values()]

    assert run(3) == [[2], [1]]
    assert run(5) == [[3], [3]]
    assert run() == [[4], [4]]


def test_what_each_transaction_of_a_group_took(tmp_path):
    """The journal has it, also of a source that knows it only by what the transaction before had taken."""
    spout = OpaqueMemoryTransactionalSpout({0: [["a"]], 1: [["b"]] * 5}, Fields("word"), 1)
    total = DeltaState(tmp_path / "total", Fields("name: string"), Fields("n: long"), StateKind.OPAQUE)
    run_inline(committing(spout, CountTuples(), total=total), Config(max_spout_pending=6))
    (part,) = read_journal(opened_journal(tmp_path))
    taken = [transaction.input for entry in part.entries for transaction in entry.transactions]
    assert len(part.entries) < len(taken), "some transactions share a group"
    assert taken[:5] == [{"0": (0, 1), "1": (0, 1)}, *({"1": (at, at + 1)} for at in range(1, 5))]


def test_upkeep_that_fails_stops_no_run(tmp_path, monkeypatch, caplog):
    """The group is committed; upkeep is tried again after a later one, where a warning says what failed."""

    def at_once(upkeep, *what):
        begin(upkeep, *what)
        upkeep.close()

    def on_a_full_disk(_table):
        raise OSError(errno.ENOSPC, "No space left on device")

    begin = LogUpkeep.begin
    monkeypatch.setattr(LogUpkeep, "begin", at_once)
    monkeypatch.setattr(DeltaTable, "create_checkpoint", on_a_full_disk)
    state = DeltaState(tmp_path / "total", Fields("name: string"), Fields("n: long"), upkeep_every_writes=1)
    spout = MemoryTransactionalSpout(DATA, Fields("word"), 4)
    run_inline(committing(spout, CountTuples(), total=state), Config(group_transactions_max=1))
    assert state.snapshot()["n"].to_pylist() == [sum(map(len, DATA.values()))]
    assert sum("No space left" in message for message in caplog.messages) == TRANSACTIONS // 2


@pytest.mark.slow
def test_a_mark_that_is_older_than_what_the_log_keeps(tmp_path):
    """Upkeep after a long pause keeps the version that the durable mark names: a crash right after it does no harm."""

    def run(every_writes, until=None):
        spout = MemoryTransactionalSpout(DATA, Fields("word: string"), 4)
        rows = DeltaRows(tmp_path / "rows", Fields("word: string"), upkeep_every_writes=every_writes, files_max=1)
        topology = committing(spout, AppendCommitter("rows"), rows=rows)
        run_inline(topology, Config(group_transactions_max=1), until=until)

    run(2, until=2)  # upkeep has compacted the table: a version after the one of the mark, with a checkpoint
    log = tmp_path / "rows" / "_delta_log"
    for file in log.iterdir():
        os.utime(file, (time.time() - 90 * 24 * 3600,) * 2)
    kept = set(log.glob("*.json"))
    with dying("table.maintain.after"):
        run(1)
    mark = max(kept)
    assert mark in {*log.glob("*.json")}
    run(1)
    assert sorted(read_table(tmp_path / "rows")["word"].to_pylist()) == sorted(
        word for rows in DATA.values() for (word,) in rows
    )


class Fails(Take, ICommitter):
    """Adds a row, and one to a count; then each transaction but the first one fails once."""

    def prepare(self, config, context, collector, attempt):
        self.attempt = attempt
        self.rows, self.folded = context.state("rows"), context.state("folded")

    def finish_batch(self):
        self.rows.append([(self.attempt.txid,)])
        self.folded.multi_reduce({"n": 1}, operator.add)
        if self.attempt.txid > 1 and self.attempt.attempt == 1:
            raise FailedException("once")


def test_rows_of_an_attempt_that_failed_are_never_written(tmp_path):
    """Neither those it has added nor those it has folded, although the transactions before it in its group are."""
    spout = MemoryTransactionalSpout(DATA, Fields("word"), 4)
    rows = DeltaRows(tmp_path / "rows", Fields("n: long"))
    folded = DeltaState(tmp_path / "folded", Fields("name: string"), Fields("n: long"))
    report = run_inline(committing(spout, Fails(), rows=rows, folded=folded), Config(max_spout_pending=TRANSACTIONS))
    assert report.failures == TRANSACTIONS - 1
    assert sorted(rows.snapshot()["n"].to_pylist()) == list(range(1, TRANSACTIONS + 1))
    assert folded.snapshot()["n"].to_pylist() == [TRANSACTIONS]


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("error", [InternalError, ClusterError, RuleError, StopError, FailedException])
@pytest.mark.parametrize("step", ["table.prepare", "group.journal", "group.decide", "group.commit", "table.maintain"])
def test_an_error_that_nobody_expects_ends_the_run(tmp_path, step, error):
    """Whatever it is: no run waits for a group whose commit has ended with it, and the next run goes on."""
    place, raised = Place(tmp_path), []

    def handler(name):
        if name == f"{step}.before" and not raised:
            raised.append(error("out of the blue"))
            raise raised[0]

    is_retried = error is FailedException and step in {"table.prepare", "table.maintain"}
    with armed(handler):
        if is_retried:
            place.run()
        else:
            with pytest.raises(error, match="out of the blue") as caught:
                place.run()
            assert caught.value is raised[0]
    place.run()
    place.check_totals()


class Folds(Take, ICommitter):
    """Folds each transaction's number into a count, and counts how often each batch is finished."""

    FINISHED: ClassVar[list[int]] = []

    def __init__(self, amounts):
        self.amounts = amounts

    def prepare(self, config, context, collector, attempt):
        self.attempt = attempt
        self.folded = context.state("folded")

    def finish_batch(self):
        self.FINISHED.append(self.attempt.txid)
        self.folded.multi_reduce({"n": self.amounts[self.attempt.txid - 1]}, operator.add)


def folding(tmp_path, amounts):
    rows = {0: [[str(txid)] for txid in range(1, len(amounts) + 1)]}
    state = DeltaState(tmp_path / "folded", Fields("name: string"), Fields("n: long"))
    Folds.FINISHED.clear()
    spout = MemoryTransactionalSpout(rows, Fields("word"), 1)
    return committing(spout, Folds(amounts), name="folds", folded=state), state


LARGEST = (1 << 63) - 1


def test_a_group_that_must_fold_by_key_finishes_each_batch_once(tmp_path):
    """Sums that may overflow are folded key by key from the rows that the bolts have given once."""
    topology, state = folding(tmp_path, [LARGEST, -LARGEST, LARGEST - 5, 5])
    run_inline(topology, Config(max_spout_pending=4))
    assert state.snapshot()["n"].to_pylist() == [LARGEST]
    assert sorted(Folds.FINISHED) == [1, 2, 3, 4]


def test_a_folded_value_that_does_not_fit_fails_its_own_transaction(tmp_path):
    """Promise 4: the error names the component, transaction and attempt that folded it; those before it are written."""
    topology, state = folding(tmp_path, [LARGEST - 1, 1, 1])
    with pytest.raises(FieldsError, match="does not fit") as raised:
        run_inline(topology, Config(max_spout_pending=4))
    assert (raised.value.component, raised.value.txid, raised.value.attempt is None) == ("folds", 3, False)
    assert state.snapshot().to_pylist() == [{"name": "n", "n": LARGEST, "txid": 2}]


class Looks(Fails):
    """Adds a row, folds a number, and then looks at what was before: what earlier transactions have folded is put."""

    def finish_batch(self):
        self.rows.append([(self.attempt.txid,)])
        self.folded.multi_reduce({"n": (1 << 31) - 1}, operator.add)
        if self.attempt.txid > 1:
            self.folded.rows_before(pa.table({"name": ["n"]}), Fields("n: int"))


def test_what_does_not_fit_only_with_what_was_folded_before_leaves_nothing(tmp_path):
    """Promise 4: neither in its own table nor in another of its transaction, but those before it are written."""
    spout = MemoryTransactionalSpout(DATA, Fields("word"), 4)
    rows = DeltaRows(tmp_path / "rows", Fields("n: long"))
    folded = DeltaState(tmp_path / "folded", Fields("name: string"), Fields("n: int"))
    with pytest.raises(FieldsError, match="does not fit") as raised:
        run_inline(committing(spout, Looks(), rows=rows, folded=folded), Config(max_spout_pending=TRANSACTIONS))
    assert (raised.value.component, raised.value.txid) == ("count", 2)
    assert rows.snapshot()["n"].to_pylist() == [1]
    assert folded.snapshot()["txid"].to_pylist() == [1]


class Blobs(Collecting):
    """Puts bytes that compress to as many, for as many keys as each word says."""

    def finish_batch(self):
        for word in self.words:
            self.state.multi_put({key: os.urandom(5_000) for key in range(int(word))})


@pytest.mark.slow
@pytest.mark.parametrize("has_vectors", [False, True])
def test_a_group_that_writes_much_again_makes_the_next_ones_larger(tmp_path, caplog, has_vectors):
    """A large table costs its size for each group: so groups are fewer, and one warning names what it would take."""
    spout = MemoryTransactionalSpout({0: [["2000"], *[["1"]] * 40]}, Fields("word"), 1)
    words = DeltaState(tmp_path / "words", Fields("key: int"), Fields("blob: binary"), deletion_vectors=has_vectors)
    run_inline(committing(spout, Blobs(), words=words), Config(max_spout_pending=20, group_transactions_max=10))
    (part,) = read_journal(opened_journal(tmp_path))
    told = [record.message for record in caplog.records if "deletion_vectors" in record.message]
    small = [entry for entry in part.entries if entry.last - entry.first < 9]
    if has_vectors:
        assert told == []
    else:
        (message,) = told
        assert message.startswith("state 'words': a commit group writes 10 MB again")
        assert len(small) <= 3, "the first ones, before it is known what a group costs, and the last one"
