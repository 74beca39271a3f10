"""The interface that runs jobs: on Spark, or anything else that can run the stages of a layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txtopo.attempts import TransactionAttempt
from txtopo.transactional.jobs.stage_run import Job, Report
from txtopo.transactional.tasks.factory import nothing_is_late
from txtopo.transactional.tasks.state_handle import RecordLate

OnAnswer = Callable[[Sequence[Report], Mapping[TransactionAttempt, str]], None]
"""Takes answers before a job's end: all reports of some attempts, and attempts that are lost, each with the reason."""


def at_the_end(reports: Sequence[Report], lost: Mapping[TransactionAttempt, str]) -> None:
    """Take no answer before a job's end: for whoever runs a job of one attempt."""
    raise AssertionError(f"nobody waits for {reports} and {lost}")


class JobRunner(ABC):
    """Runs jobs. *An implementation* must be thread-safe: each job in flight calls :meth:`run` in a separate thread."""

    slots: int
    """The number of partitions that run at the same time: Spark's task slots."""
    record_late: RecordLate = staticmethod(nothing_is_late)
    """Tells the run loop what a component's own thread did after its batch was over; the run sets it."""

    @abstractmethod
    def run(self, job: Job, on_progress: Callable[[], None], on_answer: OnAnswer = at_the_end) -> Sequence[Report]:
        """Run a job to its end and return the reports; call ``on_progress`` while the work makes progress.

        The attempts of a job time out ``topology.message.timeout.secs`` after the last call. A runner that is answered
        attempt by attempt may call ``on_answer`` before the end, in the calling thread, and returns what is left.

        Raises:
            JobFailure: the job was lost, or cancelled.
        """

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Run :meth:`txtopo.api.state.Executors.compute`; by default in this process."""
        return [function(item) for item in items]

    def at_work(self) -> Mapping[TransactionAttempt, str]:
        """Return the component that each attempt has been in for a while on an executor, as far as it is known."""
        return {}

    def executors_lost(self) -> int:
        """Return how many executors were lost since the start, as far as it is known; called on any thread."""
        return 0

    @abstractmethod
    def cancel(self, job_id: int) -> None:
        """Stop a job that runs, or is about to, however long that takes; return at once."""

    @abstractmethod
    def close(self) -> None:
        """Release resources."""
