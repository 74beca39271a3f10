"""The invariants: a coordinator that breaks one is found out."""

from collections.abc import Callable

import pytest

from tests.transactional.core.stories import begin
from txtopo.attempts import TransactionAttempt
from txtopo.testing.checkers import validate
from txtopo.testing.scenario import Scenario, commit, limits, processed
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.transitions import Status


def _committing() -> Coordinator:
    """Return a coordinator with 1 and 2 in a commit group, 3 being processed and 4 processed."""
    story = Scenario(limits(pending=4))
    begin(story, 4)
    story >> processed("4:1") >> processed("2:1")
    story >> processed("1:1") << commit(1, "1:1", "2:1")
    return story.coordinator


def test_a_sound_coordinator_passes() -> None:
    """Nothing is wrong with it."""
    validate(_committing())


def _gap(broken: Coordinator) -> None:
    del broken._pending.by_txid[3]


def _jobs(broken: Coordinator) -> None:
    broken._jobs.txids.update({job_id: (job_id,) for job_id in range(2, 9)})


def _large_job(broken: Coordinator) -> None:
    broken._jobs.txids[1] = (1, 2, 3, 4, 5)


def _scattered_job(broken: Coordinator) -> None:
    broken._jobs.txids[1] = (1, 3)


def _wrong_place(broken: Coordinator) -> None:
    broken._pending.by_txid[3].txid = 7


def _stays(broken: Coordinator) -> None:
    broken._pending.by_txid[3].status = Status.COMMITTED


def _no_attempt(broken: Coordinator) -> None:
    broken._pending.by_txid[3].attempt = None


def _foreign_attempt(broken: Coordinator) -> None:
    broken._pending.by_txid[3].attempt = TransactionAttempt(4, 1)


def _beyond(broken: Coordinator) -> None:
    broken.limits = limits(pending=3)


def _no_job(broken: Coordinator) -> None:
    broken._jobs.txids.clear()


def _no_group(broken: Coordinator) -> None:
    broken._group = None


def _late_group(broken: Coordinator) -> None:
    broken._pending.by_txid[1].status = Status.PROCESSED
    broken._pending.by_txid[2].status = Status.PROCESSED
    broken._pending.by_txid[3].status = Status.COMMITTING


def _scattered_group(broken: Coordinator) -> None:
    broken._pending.by_txid[4].status = Status.COMMITTING


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (_gap, "pending transactions have no gap"),
        (_jobs, "no more jobs in flight than allowed"),
        (_large_job, "a job is bounded"),
        (_scattered_job, "a job is consecutive"),
        (_wrong_place, "each txid is mapped to its transaction"),
        (_stays, "a committed transaction is not pending"),
        (_no_attempt, "live statuses have an attempt"),
        (_foreign_attempt, "an attempt has its transaction's txid"),
        (_beyond, "no transaction beyond the bound has a live attempt"),
        (_no_job, "a processing transaction is in a job in flight"),
        (_no_group, "a committing transaction is in a group in flight"),
        (_late_group, "a group starts at the lowest uncommitted one"),
        (_scattered_group, "a group is consecutive"),
    ],
)
def test_a_broken_coordinator_is_found_out(break_it: Callable[[Coordinator], None], message: str) -> None:
    """Each invariant is looked at."""
    broken = _committing()
    break_it(broken)
    with pytest.raises(AssertionError, match=message):
        validate(broken)
