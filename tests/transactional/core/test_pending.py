"""The choice of transactions for the next job and the next commit group."""

import pytest

from txtopo.api.components.planned import NEVER
from txtopo.testing.scenario import limits
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.core.limits import Limits
from txtopo.transactional.core.pending import Pending, pending_end
from txtopo.transactional.core.spout_policy import OPAQUE
from txtopo.transactional.core.transitions import Status

STATUSES = {
    "r": Status.READY,
    "p": Status.PROCESSING,
    "P": Status.PROCESSED,
    "c": Status.COMMITTING,
    "d": Status.DEAD,
}
NOW_MS = 1_000


def _pending(text: str, bounds: Limits, committed: int = 0) -> Pending:
    """Transactions by letter: their status; a for ready but alone, l for ready later."""
    pending = Pending(bounds, TransactionMetadata(committed, None, NEVER))
    for txid, letter in enumerate(text, committed + 1):
        pending.begin(TransactionMetadata(txid, None, NEVER))
        transaction = pending.by_txid[txid]
        transaction.tries.is_suspect = letter == "a"
        transaction.tries.not_before_ms = NOW_MS + 1 if letter == "l" else NOW_MS
        transaction.status = STATUSES.get(letter, Status.READY)
    return pending


def _job(text: str, bounds: Limits, committed: int = 0) -> list[int]:
    return [each.txid for each in _pending(text, bounds, committed).job(NOW_MS, bounds.job_transactions_max)]


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("", []),
        ("r", [1]),
        ("rr", [1, 2]),
        ("rrrr", [1, 2, 3]),  # no more than three
        ("prr", [2, 3]),
        ("rpr", [1]),  # consecutive
        ("pPcdr", [5]),
        ("pppp", []),
        ("arr", [1]),  # alone
        ("rar", [1]),
        ("par", [2]),
        ("lrr", [2, 3]),  # the first is not due: others need not wait for it
        ("rlr", [1]),
        ("llll", []),
    ],
)
def test_jobs(text: str, job: list[int]) -> None:
    """The lowest ready one and those ready right behind it, bounded; one that a job was lost with goes alone."""
    assert _job(text, limits(pending=9, job=3)) == job


@pytest.mark.parametrize(
    ("text", "job"),
    [("rr", [1, 2]), ("PcdrrP", [4, 5]), ("prr", []), ("lrr", []), ("Plr", []), ("ar", [1]), ("pPr", [])],
)
def test_jobs_of_an_opaque_spout(text: str, job: list[int]) -> None:
    """All before it must be known: processed, or given up with what it emitted."""
    assert _job(text, limits(pending=9, job=3, spout=OPAQUE)) == job


def test_jobs_stay_within_the_bound() -> None:
    """Nothing is processed beyond the bound of pending transactions or beyond the transaction asked for."""
    assert _job("rrrr", limits(pending=2, job=9), committed=5) == [6, 7]
    assert _job("pprr", limits(pending=2, job=9), committed=5) == []
    assert _job("rrrr", limits(pending=9, job=9, until=8), committed=5) == [6, 7, 8]
    assert _job("pppr", limits(pending=9, job=9, until=8), committed=5) == []


@pytest.mark.parametrize(
    ("text", "group"),
    [("", []), ("P", [1]), ("PPPP", [1, 2, 3]), ("PrP", [1]), ("rPP", []), ("PPdP", [1, 2]), ("cP", [])],
)
def test_groups(text: str, group: list[int]) -> None:
    """The processed ones from the lowest uncommitted one on, bounded: never past a gap (promise 1)."""
    chosen = _pending(text, limits(group=3), 4).group()
    assert [each.txid - 4 for each in chosen] == group


def test_the_last_that_may_begin() -> None:
    """The bound moves with what is committed, up to the transaction asked for."""
    assert pending_end(5, limits(pending=3)) == 8
    assert pending_end(5, limits(pending=3, until=7)) == 7
    assert pending_end(5, limits(pending=3, until=9)) == 8
