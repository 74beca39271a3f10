"""What whoever waits for a job of the pool makes of its actions: reports, losses, and values of a commit phase.

*Take* is how it waits: a queue that another thread fills, or a simulator that lets things happen meanwhile.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from txtopo.columnar.progress_probe import current_probe
from txtopo.errors import JobFailure, StateFailure
from txtopo.transactional.jobs.job_runner import OnAnswer, at_the_end
from txtopo.transactional.jobs.pool import Action, Answer, ComputeAsked, EndJob, JobAsked, Lose
from txtopo.transactional.jobs.pool_body import Computed
from txtopo.transactional.jobs.stage_run import Job, Report

ANSWER_SECS = 0.2
"""While a job runs, its answers are passed on this often: so a backlog still forms large commit groups."""

Take = Callable[[float | None], Action | None]
"""Waits for the next action of a job and returns it; None once so many seconds have passed, if they are limited."""


def job_asked(number: int, job: Job, content: bytes) -> JobAsked:
    """Return the event that begins a job in the pool; ``content`` is the job pickled."""
    layout = job.layout
    return JobAsked(number, content, len(job.attempts), layout.partitions, len(layout.stages), layout.is_spread)


def collected(job: Job, take: Take, on_answer: OnAnswer, now_secs: Callable[[], float]) -> list[Report]:
    """Take a job's answers until it has ended; return reports not passed on; JobFailure if it was lost or cancelled."""
    reports: list[Report] = []
    passed_at = now_secs()
    while True:
        waits = bool(reports) and on_answer is not at_the_end
        left_secs = passed_at + ANSWER_SECS - now_secs()
        action = None if waits and left_secs <= 0 else take(left_secs if waits else None)
        match action:
            case None:
                on_answer(reports, {})
                reports, passed_at = [], now_secs()
            case Answer(_, _, contents):
                reports += [report for content in contents for report in pickle.loads(content)]  # noqa: S301 - ours
            case Lose(_, index, error):  # at once: another worker may try it
                on_answer((), {job.attempts[index].attempt: error})
            case EndJob(_, None):
                return reports
            case EndJob(_, error):
                if reports:
                    on_answer(reports, {})
                raise JobFailure(f"a job was lost: {error}")
            case _:
                raise AssertionError(f"{action} is not for a job")


def compute_asked(function: Callable[[Any], Any], items: Sequence[Any]) -> Callable[[int], ComputeAsked]:
    """Return what makes the event that computes ``function(item)`` for each item, given the number of its job."""
    contents = tuple(cloudpickle.dumps((function, item)) for item in items)
    return lambda number: ComputeAsked(number, contents)


def computed(count: int, take: Take) -> list[Any]:
    """Take a commit phase's values in the order of items, stepping the probe; StateFailure if a worker died in it."""
    probe = current_probe()
    values: dict[int, Any] = {}
    while True:
        match take(None):
            case Answer(_, index, (content,)):
                probe.step()
                outcome: Computed = pickle.loads(content)  # noqa: S301 - from our workers
                if outcome.error is not None:
                    raise StateFailure(f"a worker failed in the commit phase: {outcome.error}")
                values[index] = outcome.value
            case EndJob(_, None):
                return [values[index] for index in range(count)]
            case EndJob(_, error):
                raise StateFailure(f"a job of the commit phase was lost: {error}")
            case unexpected:
                raise AssertionError(f"{unexpected} is not for a commit phase")
