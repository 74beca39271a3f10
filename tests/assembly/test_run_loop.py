"""The run loop: what it does to jobs that are stuck, or that nobody waits for."""

import threading
from contextlib import contextmanager

import pytest

from tests.acceptance.topologies import counts_of, make_data, read_words, words_topology
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo import Config, TransactionAttempt
from txtopo.assembly.threads import ThreadPools
from txtopo.engine.runner import Environment, run_with
from txtopo.errors import JobFailure
from txtopo.testing.inline import InlineJobRunner
from txtopo.transactional.jobs.job_runner import at_the_end

TIMEOUT_SECS = 600
"""Longer than any of these tests takes, however busy the machine is: time is skipped."""
TRANSACTIONS = 6
"""Of the rows that the topology reads."""


class Skipping(ThreadPools):
    """Threads whose clock can be put forward."""

    skipped_secs = 0.0

    def now_secs(self):
        return super().now_secs() + self.skipped_secs


class Stuck(InlineJobRunner):
    """A runner whose first job is begun, and ends only when it is cancelled.

    Args:
        parts: of a topology.
        threads: whose clock passes the message timeout when all other transactions are processed; None: it doesn't.
    """

    def __init__(self, *parts, threads=None) -> None:
        super().__init__(*parts)
        self.is_cancelled = threading.Event()
        self.threads = threads
        self.processed = 0

    def run(self, job, on_progress, on_answer=at_the_end):
        if job.job_id == 1:
            on_progress()
            self.stand_still(len(job.attempts))
            raise JobFailure("cancelled")
        is_first = all(attempt.attempt.attempt == 1 for attempt in job.attempts)
        assert is_first or self.is_cancelled.is_set()
        reports = super().run(job, on_progress, on_answer)
        self.processed += len(job.attempts)
        return reports

    def stand_still(self, transactions):
        if self.threads is not None:
            wait_for("the others are processed", lambda: self.processed == TRANSACTIONS - transactions)
        for _ in range(int(DEADLINE_SECS)):
            if self.threads is not None:  # again: the run may hear of the job's progress after the first time
                self.threads.skipped_secs += TIMEOUT_SECS
            if self.is_cancelled.wait(1.0):
                return
        pytest.fail("the job was not cancelled")

    def cancel(self, job_id):
        if job_id == 1:
            self.is_cancelled.set()


class Busy(Stuck):
    """One whose first job ends only when somebody has been told that it does not."""

    caplog = clock = None

    def stand_still(self, transactions):
        super().stand_still(transactions)
        wait_for("what is said of it", self.is_told)

    def is_told(self):
        self.clock.skipped_secs += 1
        return "has not ended" in self.caplog.text

    def at_work(self):
        return {TransactionAttempt(1, 1): "split"}


def run_stuck(output, on_progress=None, runners=None, kind=Stuck, *, times_out=True):
    """Run the words topology with a :class:`Stuck` runner, which is put into a list."""
    threads = Busy.clock = Skipping(2)

    @contextmanager
    def make_runner(plan, config, prototypes):
        runner = kind(plan, config, prototypes, threads=threads if times_out else None)
        if runners is not None:
            runners.append(runner)
        yield runner

    topology = words_topology(output, make_data(2, 20))
    config = Config(message_timeout_secs=TIMEOUT_SECS, jobs_in_flight_max=2)
    environment = Environment(make_runner, make_threads=lambda _jobs_max: threads)
    return run_with(topology, config, environment, on_progress=on_progress)


def test_a_job_that_makes_no_progress_is_cancelled(tmp_path):
    """After the message timeout; only then its transactions run again."""
    assert run_stuck(tmp_path).failures > 0
    assert read_words(tmp_path) == counts_of(make_data(2, 20))


def test_jobs_are_cancelled_when_the_run_breaks_off(tmp_path):
    """Whatever ends it: no job runs on, and none is waited for."""

    def break_off(progress):
        if progress.processing:
            raise KeyboardInterrupt

    runners = []
    with pytest.raises(KeyboardInterrupt):
        run_stuck(tmp_path, break_off, runners, times_out=False)
    assert runners[0].is_cancelled.is_set()


@pytest.mark.parametrize("breaks_off", [False, True])
def test_a_run_that_waits_for_a_cancelled_job_says_for_which(tmp_path, caplog, breaks_off):
    """While it goes on and has no place for another job, and at its end."""
    Busy.caplog = caplog

    def break_off(progress):
        if breaks_off and progress.processing:
            raise KeyboardInterrupt

    if breaks_off:
        with pytest.raises(KeyboardInterrupt):
            run_stuck(tmp_path, break_off, kind=Busy, times_out=False)
    else:
        run_stuck(tmp_path, break_off, kind=Busy)
    said = next(message for message in caplog.messages if "has not ended" in message)
    assert said.startswith("job 1 with transaction")
    assert "was cancelled" in said
    assert said.endswith(", in 'split'; the run waits for it")
