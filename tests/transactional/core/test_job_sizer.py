"""How large jobs become."""

from txtopo.testing.scenario import begun, recovered
from txtopo.transactional.core.actions import Process
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import JobEnded, Processed
from txtopo.transactional.core.job_sizer import FIRST_JOB_TRANSACTIONS, JobSizer
from txtopo.transactional.core.limits import Limits

LIMITS = Limits(1_000, 64, 2, 64, timeout_ms=1_000, job_target_ms=1_000)


def grown(sizer: JobSizer, *elapsed_ms: int, limits: Limits = LIMITS) -> list[int]:
    """Return the jobs' sizes, each job as full as it may be."""
    sizes = [sizer.transactions_max]
    for each in elapsed_ms:
        sizer = sizer.after(sizer.transactions_max, each, limits)
        sizes.append(sizer.transactions_max)
    return sizes


def test_small_transactions() -> None:
    """Jobs of small transactions grow quickly until they hold all they may, however long the first one took."""
    assert FIRST_JOB_TRANSACTIONS == 2
    assert grown(JobSizer.at_start(LIMITS), 5_000, 90, 400, 200, 200) == [2, 4, 20, 40, 64, 64]


def test_large_transactions() -> None:
    """Jobs of transactions that take long shrink until a job takes about as long as it should, one at least."""
    assert grown(JobSizer.at_start(LIMITS), 9_000, 8_000, 700, 1_400, 3_000, 5_000, 9_000) == [2, 4, 1, 2, 2, 1, 1, 1]


def test_jobs_that_are_not_full() -> None:
    """A job that held less than it might says nothing for larger ones."""
    sizer = JobSizer(16, is_warm=True)
    assert sizer.after(3, 50, LIMITS).transactions_max == 16
    assert sizer.after(3, 6_000, LIMITS).transactions_max == 1
    assert sizer.after(4, 2_400, LIMITS).transactions_max == 2, "as many as come nearest to the target"


def test_no_target() -> None:
    """Without a target every job holds what it may."""
    limits = Limits(100, 32, 2, 64, timeout_ms=1_000)
    assert grown(JobSizer.at_start(limits), 9_000, 1, limits=limits) == [32, 32, 32]


def test_cold_jobs() -> None:
    """Jobs that begin beside the first one pay for the start of the executors, too: they shrink nothing."""
    first = JobSizer.at_start(LIMITS)
    second = first.behind_the_first(LIMITS)
    assert (first.transactions_max, second.transactions_max) == (2, 8)
    sizer = first.after(2, 1_900, LIMITS, is_cold=True)
    assert sizer.transactions_max == 8
    assert sizer.after(8, 9_000, LIMITS, is_cold=True).transactions_max == 16
    assert sizer.after(3, 9_000, LIMITS, is_cold=True) == sizer
    assert sizer.behind_the_first(LIMITS) == sizer, "it is warm"
    assert sizer.transaction_us is None, "cold jobs teach nothing"


def test_what_is_learnt() -> None:
    """The time of a transaction is that of a warm job; a job of less than half of its size says no more."""
    sizer = JobSizer(16, is_warm=True).after(16, 800, LIMITS)
    assert sizer.transaction_us == 50_000
    assert sizer.after(7, 700, LIMITS).transaction_us == 50_000
    assert sizer.after(8, 480, LIMITS).transaction_us == 60_000


def test_a_run_begins_where_the_last_one_was() -> None:
    """The first job holds what half of a job's time is enough for, one at least; and the one beside it no more."""
    for transaction_us, first in ((50_000, 10), (1, 64), (9_000_000, 1)):
        sizer = JobSizer.at_start(LIMITS, transaction_us)
        assert (sizer.transactions_max, sizer.transaction_us) == (first, transaction_us)
        assert sizer.behind_the_first(LIMITS) == sizer
    assert grown(JobSizer.at_start(LIMITS, 50_000), 5_000, 400) == [10, 20, 40]


def first_packs(*begun_together: int, limits: Limits = LIMITS) -> list[int]:
    """Return the sizes of the jobs that begin, nothing being known, as transactions are begun; none of them ends."""
    core = Coordinator(limits)
    core.handle(recovered())
    sizes, last = [], 0
    for count in begun_together:
        actions = core.handle(begun(*range(last + 1, last + count + 1)))
        sizes += [len(action.attempts) for action in actions if isinstance(action, Process)]
        last += count
    return sizes


def test_what_waits_counts() -> None:
    """The first job of unknown transactions is an eighth of those that wait, from 2 to 8; what is alone goes at once."""
    assert [first_packs(waiting) for waiting in (1, 8, 32, 64, 1_000)] == [[1], [2, 6], [4, 16], [8, 16], [8, 16]]
    assert first_packs(1, 32) == [1, 8]
    narrow = Limits(9, 3, 2, 64, timeout_ms=1_000, job_target_ms=1_000)
    assert first_packs(9, limits=narrow) == [2, 3]


def test_what_waits_does_not_count_where_something_is_known() -> None:
    """A job size that was learnt, or none that is looked for, is not changed by what waits."""
    for sizer in (JobSizer.at_start(LIMITS, 500_000), JobSizer(3, is_warm=True)):
        assert sizer.with_backlog(1_000, LIMITS) == sizer
    without_target = Limits(100, 32, 2, 64, timeout_ms=1_000)
    sizer = JobSizer.at_start(without_target)
    assert sizer.with_backlog(1_000, without_target) == sizer


def test_large_transactions_of_a_backlog() -> None:
    """Jobs that no start of executors can explain shrink at once, so that few large ones are guessed wrong."""
    first = JobSizer.at_start(LIMITS).with_backlog(1_000, LIMITS)
    assert first.after(8, 50_000, LIMITS).transactions_max == 1
    assert first.after(8, 13_000, LIMITS).transactions_max == 3
    assert first.after(8, 12_000, LIMITS).transactions_max == 16, "it may have been the start"
    assert first.after(8, 50_000, LIMITS).transaction_us is None, "cold jobs teach nothing"


def test_only_jobs_that_began_before_the_first_one_ended_are_cold() -> None:
    """The time of a transaction is learnt from the first job that finds the executors started, and not before."""
    core = Coordinator(Limits(9, 4, 2, 64, timeout_ms=1_000, job_target_ms=1_000))
    core.handle(recovered())
    core.handle(begun(*range(1, 10)))
    learnt = []
    for job_id in (1, 2, 3):
        processed = [Processed(core.pending[txid].attempt, None) for txid in core.jobs[job_id]]
        core.handle(*processed, JobEnded(job_id, 600))
        learnt.append(core.transaction_us)
    assert learnt == [None, None, 200_000]
