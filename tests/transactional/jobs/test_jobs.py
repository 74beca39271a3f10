"""Jobs are judged: what was sent on each edge must be what was received, for each attempt."""

import pathlib
from typing import ClassVar

import pytest

import txtopo.transactional.jobs.inline_runner
from tests.acceptance.topologies import CountWords, counts_of, make_data, read_total, read_words, words_topology
from txtopo import Config
from txtopo.api.components.planned import NEVER
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.rows_file import remove_rows_files
from txtopo.files.folder import LocalFolder
from txtopo.files.objects import ObjectFolder
from txtopo.testing.inline import run_inline
from txtopo.testing.scenario import limits
from txtopo.transactional.core.actions import AssignedAttempt, Process
from txtopo.transactional.jobs.jobs import JobPlanner
from txtopo.transactional.jobs.stage_run import StageRun
from txtopo.transactional.tasks.batch_run import ShuffleMessage

DATA = make_data(2, 20)


class TamperingStage(StageRun):
    """Loses or doubles the first shuffle message of the first job, as a stage that ran twice and differed might."""

    copies = 1
    is_done = False

    def run(self, items):
        for slot, item in super().run(items):
            copies = 1
            if isinstance(item, ShuffleMessage) and not TamperingStage.is_done:
                TamperingStage.is_done, copies = True, self.copies
            for _ in range(copies):
                yield slot, item


@pytest.mark.parametrize("copies", [0, 2], ids=["lost", "doubled"])
def test_lost_and_doubled_tuples_are_found(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """A shuffle message that is lost or doubled on its way fails its attempt, which is replayed; totals are exact."""
    monkeypatch.setattr(txtopo.transactional.jobs.inline_runner, "StageRun", TamperingStage)
    monkeypatch.setattr(TamperingStage, "copies", copies)
    monkeypatch.setattr(TamperingStage, "is_done", False)
    report = run_inline(words_topology(tmp_path, DATA), Config(layout="spread"))
    assert report.failures == 1
    assert read_words(tmp_path) == counts_of(DATA)
    assert read_total(tmp_path) == sum(counts_of(DATA).values())


def test_acker_turned_off(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With topology.acker.executors = 0 nobody looks: the test above tests what it says."""
    monkeypatch.setattr(txtopo.transactional.jobs.inline_runner, "StageRun", TamperingStage)
    monkeypatch.setattr(TamperingStage, "copies", 0)
    monkeypatch.setattr(TamperingStage, "is_done", False)
    report = run_inline(words_topology(tmp_path, DATA), Config(layout="spread", acker_executors=0))
    assert report.failures == 0
    assert sum(read_words(tmp_path).values()) < sum(counts_of(DATA).values())


def planner_of() -> JobPlanner:
    """Return a planner of the words topology, with two slots and at most 120 pending transactions."""
    plan = words_topology(pathlib.Path("unused"), DATA).plan
    return JobPlanner(
        plan,
        limits(pending=120, job=10),
        slots=2,
        layout="auto",
        staging=ObjectFolder("memory:///staging"),
        received_bytes_max=240_000,
        has_edge_tallies=True,
    )


class LookingCommitter(CountWords):
    """Notes of each transaction whose files wait while it commits."""

    SEEN: ClassVar[list[tuple[int, set[int]]]] = []

    def __init__(self, output: pathlib.Path) -> None:
        super().__init__()
        self.output = output

    def finish_batch(self):
        waiting = self.output.rglob("*.bolts")
        LookingCommitter.SEEN.append((self.attempt.txid, {int(path.name.partition("-")[0]) for path in waiting}))
        super().finish_batch()


def test_what_waits_for_its_commit(tmp_path: pathlib.Path) -> None:
    """Bolts beyond the bound wait in files, which are gone as soon as their transaction was committed."""
    LookingCommitter.SEEN.clear()
    topology = words_topology(tmp_path, DATA, parallelism=3, committer=LookingCommitter(tmp_path))
    run_inline(topology, Config(received_bytes_max=1, max_spout_pending=8, group_transactions_max=1))
    assert read_words(tmp_path) == counts_of(DATA)
    assert LookingCommitter.SEEN
    assert all(min(waiting) == txid for txid, waiting in LookingCommitter.SEEN)


def test_files_of_rows_stay_until_their_transaction_is_committed(tmp_path: pathlib.Path) -> None:
    """Those of later transactions, and what is not a transaction's, stay."""
    for name in ("6-1-0-x.arrow", "7-1-0-x.arrow", "8-1-0-x.arrow", "other.arrow"):
        (tmp_path / name).touch()
    remove_rows_files(LocalFolder(tmp_path), lambda txid: txid <= 7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["8-1-0-x.arrow", "other.arrow"]


def test_bytes_in_memory() -> None:
    """However small the jobs, what all places may report in memory of all pending transactions stays within the bound."""
    planner = planner_of()
    for transactions in (1, 3, 10):
        attempts = tuple(
            AssignedAttempt(TransactionAttempt(txid, 1), None, NEVER) for txid in range(1, transactions + 1)
        )
        job = planner.job(Process(1, attempts, None), 0)
        assert job.report_bytes_max == 1_000 * transactions
