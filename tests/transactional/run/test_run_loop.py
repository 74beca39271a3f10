"""The run loop: what it does to jobs that are stuck, or that nobody waits for."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pyarrow as pa
import pytest

from tests.acceptance.topologies import counts_of, make_data, read_words, words_topology
from tests.waiting import wait_for
from txtopo import Config, TransactionAttempt
from txtopo.engine.runner import Environment, run_with
from txtopo.errors import JobFailure
from txtopo.testing.inline import InlineJobRunner
from txtopo.transactional.jobs.job_runner import at_the_end
from txtopo.transactional.run import cancelled_jobs, run_loop

DEADLINE_SECS = 30


class Stuck(InlineJobRunner):
    """A runner whose first job is begun, and ends only when it is cancelled."""

    def __init__(self, *parts) -> None:
        super().__init__(*parts)
        self.is_cancelled = threading.Event()

    def run(self, job, on_progress, on_answer=at_the_end):
        if job.job_id == 1:
            on_progress()
            assert self.is_cancelled.wait(DEADLINE_SECS)
            raise JobFailure("cancelled")
        is_first = all(each.attempt.attempt == 1 for each in job.attempts)
        assert is_first or self.is_cancelled.is_set()
        return super().run(job, on_progress, on_answer)

    def cancel(self, job_id):
        if job_id == 1:
            self.is_cancelled.set()


class Busy(Stuck):
    """One whose first job ends only when somebody has been told that it does not."""

    caplog = None

    def run(self, job, on_progress, on_answer=at_the_end):
        if job.job_id == 1:
            on_progress()
            wait_for("what is said of it", lambda: "has not ended" in self.caplog.text, DEADLINE_SECS)
            raise JobFailure("cancelled")
        return super().run(job, on_progress, on_answer)

    def at_work(self):
        return {TransactionAttempt(1, 1): "split"}


def run_stuck(output, on_progress=None, runners=None, kind=Stuck):
    """Run the words topology with a :class:`Stuck` runner, which is put into a list."""

    @contextmanager
    def make_runner(plan, config, prototypes):
        runner = kind(plan, config, prototypes)
        if runners is not None:
            runners.append(runner)
        yield runner

    pa.array(["a"])  # the first one of a process imports pandas, which takes a busy machine longer than the timeout
    topology = words_topology(output, make_data(2, 20))
    return run_with(topology, Config(message_timeout_secs=2), Environment(make_runner), on_progress=on_progress)


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
        run_stuck(tmp_path, break_off, runners)
    assert runners[0].is_cancelled.is_set()


@pytest.mark.parametrize("breaks_off", [False, True])
def test_a_run_that_waits_for_a_cancelled_job_says_for_which(tmp_path, monkeypatch, caplog, breaks_off):
    """While it goes on and has no place for another job, and at its end."""
    monkeypatch.setattr(cancelled_jobs, "FIRST_SECS", 0.1)
    monkeypatch.setattr(run_loop, "LOOK_SECS", 0.01)
    Busy.caplog = caplog

    def break_off(progress):
        if breaks_off and progress.processing:
            raise KeyboardInterrupt

    if breaks_off:
        with pytest.raises(KeyboardInterrupt):
            run_stuck(tmp_path, break_off, kind=Busy)
    else:
        run_stuck(tmp_path, break_off, kind=Busy)
    said = next(message for message in caplog.messages if "has not ended" in message)
    assert said.startswith("job 1 with transaction")
    assert "was cancelled" in said
    assert said.endswith(", in 'split'; the run waits for it")
