"""What a run says of cancelled jobs that it waits for."""

from txtopo import TransactionAttempt
from txtopo.assembly.cancelled_jobs import CancelledJobs


def test_said_at_growing_intervals() -> None:
    """After 10 s, and then at twice the time each: which transactions, where they are, and for how long."""
    jobs = CancelledJobs()
    attempts = [TransactionAttempt(txid, 1) for txid in (7, 8, 9)]
    jobs.began(5, attempts)
    jobs.began(6, attempts[:1])
    assert jobs.overdue(100.0, {}) == []
    jobs.cancelled(5, 100.0)
    jobs.cancelled(5, 109.0)  # again, by the end of the run
    at_work = {attempts[1]: "split", TransactionAttempt(10, 1): "count"}
    said = [now for now in range(100, 200) if jobs.overdue(float(now), at_work)]
    assert said == [110, 120, 140, 180]
    assert jobs.overdue(300.0, at_work) == [
        "job 5 with transactions 7 to 9 was cancelled 200 s ago and has not ended, in 'split'; the run waits for it"
    ]
    jobs.cancelled(6, 300.0)
    jobs.ended(5)
    assert jobs.overdue(1_000.0, {}) == [
        "job 6 with transaction 7 was cancelled 700 s ago and has not ended; the run waits for it"
    ]
