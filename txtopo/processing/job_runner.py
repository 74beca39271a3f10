"""What runs jobs: Spark, or whatever else can run the stages of a layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from txtopo.errors import TxtopoError
from txtopo.processing.stage_run import Job, Report


class JobRunner(ABC):
    """Runs jobs somewhere. Called from several threads at once."""

    slots: int
    """How many slots run at the same time."""

    @abstractmethod
    def run(self, job: Job, on_progress: Callable[[], None]) -> Sequence[Report]:
        """Run a job to its end and return all reports.

        Args:
            job: what the job does.
            on_progress: called now and then while the work gets on.

        Raises:
            JobFailure: the job was lost, or cancelled.
        """

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return ``function`` of each item; see :class:`txtopo.api.state.Executors`. Here by default."""
        return [function(item) for item in items]

    def take_late(self) -> TxtopoError | None:
        """Return what a component has done when its batch was over and reported; None if nothing new is known."""
        return None

    @abstractmethod
    def cancel(self, job_id: int) -> None:
        """Stop a job that runs; nothing happens if there is none."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held."""
