"""The deaths of a run's workers: after which one the run fails, because another restart would be in vain."""

from __future__ import annotations

from collections import deque

from txtopo.errors import InputError

SAME_ERROR_MAX = 5
"""A run ends after this many deaths in a row by the same error, if no root was acked between them and each worker ran
for less than ``topology.worker.restart.period.secs``: the next worker would die of it, too."""


class RestartLimit:
    """Counts deaths; more than ``restarts_max`` restarts in ``period_secs`` are too many."""

    def __init__(self, restarts_max: int, period_secs: float) -> None:
        self._restarts_max = restarts_max
        self._period_secs = period_secs
        self._restarts: deque[float] = deque()
        self._same_error: tuple[str, ...] = ()
        """What the deaths in a row have in common."""
        self._same_deaths = 0

    def progressed(self) -> None:
        """Begin the count of equal deaths again: what the workers die of does not keep the topology from working."""
        self._same_deaths = 0

    def blame(self, error: Exception, lasted_secs: float) -> None:
        """Count how many workers in a row have died of the same error; this one had run for ``lasted_secs``."""
        place, has_lasted = _where(error), lasted_secs > self._period_secs
        self._same_deaths = self._same_deaths + 1 if place == self._same_error and not has_lasted else 1
        self._same_error = place

    def count(self, error: Exception | None, now: float, *, is_excused: bool) -> bool:
        """Count a death, with the worker's error; return whether it fails the run, as an excused one never does."""
        if not is_excused:
            self._restarts.append(now)
        while self._restarts and self._restarts[0] <= now - self._period_secs:
            self._restarts.popleft()
        # The next worker would find the same input that can't be read, or the same source that refuses it.
        is_in_vain = isinstance(error, InputError)
        is_hopeless = error is not None and self._same_deaths >= SAME_ERROR_MAX
        is_too_much = is_in_vain or is_hopeless or len(self._restarts) > self._restarts_max
        return is_too_much and not is_excused


def _where(error: Exception) -> tuple[str, ...]:
    """Return kind, component and line of an error: two errors are the same if these are, whatever values they name."""
    component, cause = getattr(error, "component", None), getattr(error, "cause", None)
    lines = [line.strip() for line in str(cause or "").splitlines() if line.lstrip().startswith("File ")]
    return type(error).__name__, str(component), lines[-1] if lines else first_line(error)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; its type if there is none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
