"""``txtopo explain``: where a transaction stands, from the journal and from what a run leaves beside it."""

import itertools
import json
import os
import shutil
import threading
import time
from collections import Counter

import attrs
import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table
from tests.bolts import Keep
from tests.crashes import Crash, run_with_crash
from tests.processes import ran
from tests.state.delta.two_tables import two_tables
from tests.ui.shapes import misfits
from tests.waiting import DEADLINE_SECS
from txtopo import BasicBolt, Config, FailedException, Fields, TransactionalTopologyBuilder
from txtopo.assembly.snapshot import Snapshot, SnapshotWriter, read_snapshot, snapshots_in
from txtopo.errors import PoisonTransaction, UserCodeError
from txtopo.files.objects import ObjectFolder
from txtopo.files.places import folder_at
from txtopo.inspect.past.explanation import Explanation
from txtopo.journal.ending import METADATA_DIR
from txtopo.journal.entries import JournalHeader
from txtopo.testing.feeders import wait_until
from txtopo.testing.inline import run_inline
from txtopo.topology.user_code.loading import load_target
from txtopo.transactional.core.transitions import Status
from txtopo.ui.openapi import schema_of

GATES = {"hold": threading.Event(), "reached": threading.Event()}


@pytest.fixture(autouse=True)
def gates():
    for gate in GATES.values():
        gate.clear()
    yield
    GATES["hold"].set()


class Checking(BasicBolt):
    """Fails at one word, always or once."""

    output_fields = Fields("attempt", "word")

    def __init__(self, always=(), buggy=()):
        self.always, self.buggy = always, buggy

    def execute(self, tuple, collector):
        if tuple["word"] in self.buggy:
            raise ValueError("a bug")
        if tuple["word"] in self.always:
            raise FailedException(f"{tuple['word']} is not a word")
        collector.emit((tuple[0], tuple["word"]))


class Keeping(Keep):
    """Waits in the commit phase of one transaction until it is let go."""

    def __init__(self, held=None, broken=None, dying_in=None):
        super().__init__()
        self.held, self.broken, self.dying_in = held, broken, dying_in

    def finish_batch(self):
        if self.attempt.txid == self.broken:
            raise ValueError("a bug")
        if self.dying_in is not None and self.attempt.txid == 2:
            assert wait_until(snapshot_file(self.dying_in).exists, DEADLINE_SECS)
            os._exit(1)
        if self.attempt.txid == self.held:
            GATES["reached"].set()
            assert GATES["hold"].wait(DEADLINE_SECS)
        super().finish_batch()


def topology(output, *, always=(), buggy=(), held=None, broken=None, dying_in=None, state=None):
    spout = MemoryTransactionalSpout([[word] for word in "abcdef"], Fields("word"), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 1)
    builder.set_bolt("check", Checking(always, buggy), 1).shuffle_grouping("spout")
    builder.set_committer_bolt("keep", Keeping(held, broken, dying_in), 1).global_grouping("check")
    builder.set_state("words", state or DeltaState(output / "words", Fields("word: string"), Fields("n: long")))
    return builder.build()


def snapshot_file(output):
    return output / METADATA_DIR / "run-t.json"


def rewrite_snapshot(output, writer, body):
    """Change what the snapshot says of its writer and of the run; return what the latter was."""
    file = snapshot_file(output)
    of_writer, of_run = map(json.loads, file.read_text().splitlines())
    file.write_text(f"{json.dumps({**of_writer, **writer})}\n{json.dumps({**of_run, **body})}\n")
    return of_run


def explained(command_line, *arguments):
    return command_line.told("explain", *map(str, arguments))


def refused(command_line, *arguments):
    (line,) = command_line.refusal("explain", *map(str, arguments)).strip().splitlines()
    return line


def test_a_committed_transaction(tmp_path, command_line):
    """The journal tells its attempt, group, input, tuples and rows."""
    assert run_with_crash(lambda: two_tables(tmp_path), Crash(), Config(max_spout_pending=6, group_transactions_max=1))
    text = explained(command_line, tmp_path, 2)
    assert text.startswith("transaction 2: committed\n  attempt   attempt 1, epoch 1, of topology 'crash'\n")
    assert "  group     which holds it alone\n" in text
    assert "  input     " in text
    assert "  tuples    spout " in text
    assert "  written   words: " in text
    assert "  next      nothing: it is done; the last committed transaction is 4\n" in text
    assert "has not begun: the last one that has is 4" in refused(command_line, tmp_path, 5)


def test_a_run_that_goes_on(tmp_path, command_line):
    """A live run tells which component a transaction waits for, since when, and what comes next."""
    made = topology(tmp_path, held=2)
    config = Config(group_transactions_max=1, max_spout_pending=4)
    thread = threading.Thread(target=run_inline, args=(made, config))
    thread.start()
    try:
        assert wait_until(GATES["reached"].is_set, DEADLINE_SECS)

        def shows():
            known = read_snapshot(snapshots_in(folder_at(tmp_path / METADATA_DIR)), "t")
            found = {} if known is None else {transaction.txid: transaction for transaction in known[1].transactions}
            return 3 in found and (found[2].component, found[3].status) == ("keep", Status.PROCESSED.value)

        assert wait_until(shows, DEADLINE_SECS)
        text = explained(command_line, tmp_path, 2)
        assert text.startswith("transaction 2: is in its commit phase\n  since     ")
        assert "  waits for component 'keep', which is running for it now\n" in text
        assert "  attempt 1 processing in job " in text
        assert "  next      its group's commit phases end, and each table gets one Delta write" in text
        assert f"  run       process {os.getpid()} on " in text
        text = explained(command_line, tmp_path, 3)
        assert text.startswith("transaction 3: is processed and waits for its turn\n")
        assert "  next      its turn to commit comes, behind transaction 2, which is in its commit phase\n" in text
        assert "transaction 1: committed" in explained(command_line, tmp_path, 1)
        assert "transaction 99 has not begun: the last one that has is" in refused(command_line, tmp_path, 99)
    finally:
        GATES["hold"].set()
        thread.join()
    assert "transaction 2: committed" in explained(command_line, tmp_path, 2)
    assert read_snapshot(snapshots_in(folder_at(tmp_path / METADATA_DIR)), "t")[1].ended == "the spout is exhausted"


def test_a_transaction_that_fails_as_often_as_it_may(tmp_path, command_line):
    """The error and explain both tell of every attempt, its component and its reason."""
    config = Config(transaction_max_attempts=3, group_transactions_max=1, job_transactions_max=1)
    with pytest.raises(PoisonTransaction) as caught:
        run_inline(topology(tmp_path, always=("c",)), config)
    _, _, story = str(caught.value).partition("what happened to transaction 3 in this run:\n")
    assert 2 <= len(story.splitlines()) <= 8
    assert "attempt 3 failed in 'check': c is not a word" in story
    assert "given up" in story
    text = explained(command_line, tmp_path, 3)
    assert text.startswith("transaction 3: was not committed when the run ended\n")
    assert "  failed    attempt 3, epoch 1 in component 'check', at " in text
    assert "c is not a word" in text
    assert ": PoisonTransaction: it failed 3 times" in text
    assert "  next      the next run resumes with transaction 3\n" in text


def test_a_bug_at_the_first_try_carries_no_story(tmp_path, command_line):
    """It would say nothing more; but explain tells where the run ended."""
    with pytest.raises(UserCodeError) as caught:
        run_inline(topology(tmp_path, broken=2), Config(group_transactions_max=1))
    assert "what happened" not in str(caught.value)
    text = explained(command_line, tmp_path, 2)
    assert "attempt 1 failed in 'keep': ValueError: a bug" in text
    assert "that was in transaction 2, component 'keep'\n" in text
    with pytest.raises(UserCodeError) as caught:
        run_inline(topology(tmp_path, buggy=("c",)), Config(group_transactions_max=1))
    assert "what happened" not in str(caught.value)
    text = explained(command_line, tmp_path, 3)
    assert "attempt 1 failed in 'check': ValueError: a bug" in text
    assert "Traceback" not in text
    assert "without an answer" not in text


@pytest.mark.slow
def test_a_run_that_was_killed(tmp_path, command_line):
    """Its snapshot stays, and the process that wrote it is gone: that is said."""
    program = (
        "import pathlib, sys\n"
        "from tests.cli.look import test_explain as t\n"
        "from txtopo import Config\n"
        "output = pathlib.Path(sys.argv[1])\n"
        "t.run_inline(t.topology(output, dying_in=output), Config(group_transactions_max=1))\n"
    )
    assert ran("-c", program, tmp_path).returncode == 1
    rewrite_snapshot(tmp_path, {}, {"last_begun": 4})  # as it would have been a second later
    text = explained(command_line, tmp_path, 3)
    assert (
        "is dead: it was killed, or could not write its last report, as on a full disk; the one before is 0:0" in text
    )
    assert "the next run resumes with transaction " in text
    run_inline(topology(tmp_path), Config())
    assert "transaction 3: committed\n  attempt   attempt 1, epoch 2" in explained(command_line, tmp_path, 3)


def test_a_run_that_dies_after_its_tables_are_written(tmp_path, command_line):
    """What every table has is committed, although neither the coordinator state nor the snapshot has it yet."""
    crash = Crash(at=6, only="table.write.after")
    assert not run_with_crash(
        lambda: two_tables(tmp_path), crash, Config(max_spout_pending=6, group_transactions_max=1)
    )
    assert set(read_table(tmp_path / "total")["txid"].to_pylist()) == {3}
    assert read_snapshot(snapshots_in(folder_at(tmp_path / METADATA_DIR)), "crash")[1].committed == 2
    assert "transaction 3: committed\n" in explained(command_line, tmp_path, 3)
    assert "the last committed transaction is 3\n" in explained(command_line, tmp_path, 1)
    assert "the next run resumes with transaction 4\n" in explained(command_line, tmp_path, 4)


def test_a_run_that_dies_between_two_tables(tmp_path, command_line):
    """What one table has and another lacks is not committed for certain: the next start finishes it."""
    crash = Crash(at=6, only="table.write.before")
    assert not run_with_crash(
        lambda: two_tables(tmp_path), crash, Config(max_spout_pending=6, group_transactions_max=1)
    )
    assert "the last committed transaction is 2\n" in explained(command_line, tmp_path, 1)
    assert "transaction 3: committed" not in explained(command_line, tmp_path, 3)
    finishes = "the next run finishes the group, which holds it alone, and resumes with transaction 4: a table has it"
    assert finishes in explained(command_line, tmp_path, 3)
    assert finishes in explained(command_line, tmp_path, 4)


def test_a_process_number_that_came_again(tmp_path, command_line):
    """A living process of the same number is not the one that wrote the snapshot."""
    run_inline(topology(tmp_path), Config(), until=2)
    goes_on = {"ended": "", "last_begun": 6}
    rewrite_snapshot(tmp_path, {"process_start": 1}, goes_on)
    assert "is dead: it was killed" in explained(command_line, tmp_path, 3)
    rewrite_snapshot(tmp_path, {"host": "elsewhere", "written_secs": 0}, goes_on)
    assert "this machine can't see whether it is alive" in explained(command_line, tmp_path, 3)


@pytest.mark.parametrize(
    ("txid", "line"),
    [
        (3, "it is the first in line; the run has not recorded more about it"),
        (4, "it waits for transaction 3; explain 3, which is first in line"),
        (5, "it waits for transactions 3 to 4; explain 3, which is first in line"),
    ],
)
def test_a_snapshot_without_pending_transactions(tmp_path, command_line, txid, line):
    """A transaction that the snapshot has no details of waits only for transactions before it."""
    run_inline(topology(tmp_path), Config(group_transactions_max=1), until=2)
    body = rewrite_snapshot(tmp_path, {"written_secs": time.time()}, {"ended": "", "last_begun": 5})
    assert (body["committed"], body["transactions"]) == (2, [])
    text = explained(command_line, tmp_path, txid)
    assert text.startswith(f"transaction {txid}: begun, not committed\n  next      {line}\n")


def test_without_a_snapshot(tmp_path, command_line):
    """The journal and the tables tell what is committed; without the tables, its last group is not certain."""
    run_inline(topology(tmp_path), Config(group_transactions_max=1))
    snapshot_file(tmp_path).unlink()
    assert "transaction 6: committed" in explained(command_line, tmp_path, 6)
    assert "transaction 7: not committed; the last committed one is 6" in explained(command_line, tmp_path, 7)
    shutil.rmtree(tmp_path / "words")
    assert "transaction 5: committed" in explained(command_line, tmp_path, 5)
    assert "transaction 6: attempt 1, epoch 1, entered in the journal" in explained(command_line, tmp_path, 6)
    assert "transaction 7: not committed; the last committed one is 5" in explained(command_line, tmp_path, 7)


def test_without_a_journal(tmp_path, command_line):
    """The snapshot alone tells how far the run came."""
    run_inline(topology(tmp_path), Config({"topology.journal.bytes.max": 0}))
    assert "transaction 2: committed\n  journal   the topology keeps none (topology.journal.bytes.max)" in explained(
        command_line, tmp_path, 2
    )


def test_what_is_asked_wrongly(tmp_path, command_line):
    assert "there is no folder" in refused(command_line, tmp_path / "nowhere", 1)
    assert "there is no journal" in refused(command_line, tmp_path, 1)
    assert command_line("explain", str(tmp_path), "0").exit_code == 2
    run_inline(topology(tmp_path), Config())
    snapshot_file(tmp_path).write_text("no snapshot\n")
    assert "can't be read" in refused(command_line, tmp_path, 1)
    assert "is a folder; --set needs a MODULE" in refused(command_line, tmp_path, 1, "--set", "window=3")


def snapshot_writer(folder, incarnation, epoch, clock=time.monotonic):
    header = JournalHeader("t", incarnation, epoch, {"spout": "repeatable"}, 0, None, {}, {})
    return SnapshotWriter(folder, header, {}, clock)


@pytest.mark.parametrize("is_in_bucket", [False, True])
def test_a_predecessor_hides_nothing(tmp_path, is_in_bucket):
    """A coordinator that has lost its lead stops writing; one of a new incarnation begins whatever was there."""
    run_inline(topology(tmp_path), Config())
    folder = snapshots_in(folder_at(tmp_path / METADATA_DIR))
    _, snapshot = read_snapshot(folder, "t")
    if is_in_bucket:
        folder = ObjectFolder("memory:///predecessor")
    old, new, other = (snapshot_writer(folder, *each) for each in (("i", 4), ("i", 5), ("j", 1)))
    for writer, shown in ((old, 4), (new, 5), (old, 5), (other, 1), (other, 1)):
        writer.write(snapshot)
        assert read_snapshot(folder, "t")[0].epoch == shown


def test_a_snapshot_in_a_bucket_waits_for_news(bucket_server):
    """It is put at once and at the end, and between them no more than once in three seconds, in an idle run a minute.

    Only the first one asks whose the file is.
    """
    folder = ObjectFolder("s3://bucket/news", tuple(bucket_server.options.items()))
    snapshot = Snapshot(0, 1000, 1, 1, None, False, ())
    tenths = itertools.count()
    writer = snapshot_writer(folder, "i", 1, lambda: next(tenths) / 10)
    for now_ms in range(30):
        writer.write(attrs.evolve(snapshot, now_ms=now_ms, committed=now_ms // 10))
    assert bucket_server.requests() == Counter(HEAD=1, PUT=1)
    writer.write(attrs.evolve(snapshot, ended="it was stopped"))
    assert bucket_server.requests() == Counter(HEAD=1, PUT=2)
    assert read_snapshot(folder, "t")[1].ended == "it was stopped"
    assert read_snapshot(folder, "t")[0].every_secs == 60


def documented(command_line, output, txid):
    """Return the document that ``--json`` prints, which must be all that is printed."""
    result = command_line("explain", str(output), str(txid), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    (line,) = result.stdout.splitlines()
    assert line.isascii()
    found = json.loads(line)
    assert list(misfits(found, schema_of(Explanation))) == []
    return found


def test_as_json(tmp_path, command_line):
    """The same facts as in the text, by names: of what is committed, failed, in doubt, or not begun."""
    config = Config(transaction_max_attempts=3, group_transactions_max=1, job_transactions_max=1)
    with pytest.raises(PoisonTransaction):
        run_inline(topology(tmp_path, always=("c",)), config)
    found = documented(command_line, tmp_path, 2)
    expected = {
        "transaction": 2,
        "status": "committed",
        "lastCommitted": 2,
        "topology": "t",
        "attempt": 1,
        "epoch": 1,
        "group": {"first": 2, "last": 2},
        "input": {"0": {"start": 1, "end": 2}},
        "failure": None,
        "tuples": {"spout": 1, "check": 1},
        "written": {"words": {"put": 1, "removed": 0}},
    }
    assert {name: found[name] for name in expected} == expected
    assert found["plannedAt"].endswith("+00:00")
    assert found["lines"][0] == "transaction 2: committed"
    assert found["run"]["pid"] == os.getpid()
    assert (found["run"]["isAlive"], found["run"]["ended"][:19]) == (False, "PoisonTransaction: ")
    failed = documented(command_line, tmp_path, 3)
    assert (failed["status"], failed["input"]) == ("not committed", {"0": {"start": 2, "end": 3}})
    assert failed["failure"].startswith("c is not a word")
    assert "attempt 3 failed in 'check': c is not a word" in " ".join(failed["history"])
    refused = command_line("explain", str(tmp_path), "99", "--json")
    assert (refused.exit_code, refused.stdout) == (1, "")
    skip = Config({"topology.transaction.max.attempts": 1, "topology.transaction.max.attempts.policy": "SKIP"})
    run_inline(topology(tmp_path, always=("c",)), skip)
    assert documented(command_line, tmp_path, 3)["status"] == "given up"
    shutil.rmtree(tmp_path / METADATA_DIR / "journal")
    found = documented(command_line, tmp_path, 3)
    assert (found["status"], found["topology"]) == ("committed", None)


def test_what_is_in_doubt_as_json(tmp_path, command_line):
    """A group that may have been decided is entered, and no more is said of it."""
    config = Config(max_spout_pending=6, group_transactions_max=1)
    assert not run_with_crash(lambda: two_tables(tmp_path), Crash(at=3, only="group.journal.after"), config)
    found = documented(command_line, tmp_path, 3)
    assert (found["status"], found["lastCommitted"], found["group"]) == ("entered", 2, {"first": 3, "last": 3})


def test_secrets_are_hidden_as_json(command_line):
    """Those of the command's settings, too."""
    command_line.write_module("job", MODULE)
    target = load_target("job", {})
    with pytest.raises(PoisonTransaction):
        run_inline(target.topology, target.config)
    told = command_line.told("explain", "job", "2", "--json", "--set", "shop.password=hunter2")
    assert "hunter2" not in told
    assert "at the tuple (word='…')" in json.loads(told)["failure"]


MODULE = """
from spouts import MemoryTransactionalSpout
from state import DeltaState
from tests.bolts import Keep
from tests.cli.look.test_explain import Checking
from txtopo import Config, Fields, TransactionalTopologyBuilder

def topology():
    spout = MemoryTransactionalSpout([["a"], ["hunter2"]], Fields("word"), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 1)
    builder.set_bolt("check", Checking(("hunter2",)), 1).shuffle_grouping("spout")
    builder.set_committer_bolt("keep", Keep(), 1).global_grouping("check")
    builder.set_state("words", DeltaState("out/words", Fields("word: string"), Fields("n: long")))
    return builder.build()

def config():
    return Config({"topology.transaction.max.attempts": 1, "shop.password": "hunter2"})
"""
