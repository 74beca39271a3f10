"""Errors of components: those that end a worker, and those that they report, a limited number in an interval."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

import attrs

from txtopo.topology.user_code.blame import blame, is_not_of_the_code, user_code

log = logging.getLogger("txtopo.user")


def blamed(error: BaseException, component: str, task: int, at: str = "") -> BaseException:
    """Return an exception of a component's code, even an exit, as one that names component, task and ``at`` what."""
    if is_not_of_the_code(error):
        return error
    return blame(error, "raise FailedException to fail a tuple", f"task {task}{at}: ", component=component)


@attrs.define(eq=False)
class ErrorReporter:
    """Reports the errors of one task, at most ``interval_max`` in an interval, which begins with an error."""

    component: str
    task: int
    clock: Callable[[], float]
    interval_secs: float
    interval_max: int
    reported: int = 0
    last: str = ""
    """The last error that was reported, as a line."""
    _began: float | None = None
    _in_interval: int = 0

    def report(self, error: BaseException) -> None:
        """Report an error, unless this interval has had its share."""
        now = self.clock()
        if self._began is None or now - self._began > self.interval_secs:
            self._began, self._in_interval = now, 0
        self._in_interval += 1
        if self._in_interval > self.interval_max:
            return
        self.reported += 1
        self.last = f"{type(error).__name__}: {error}"
        # Whoever has the turn in this thread, the line is of this task; its origin stands in front, and its text once.
        traced = "".join(traceback.format_exception(error))
        traced = traced.removesuffix("".join(traceback.format_exception_only(error))).rstrip()
        with user_code(self.component, task=self.task):
            log.error("%s", f"{self.last}\n{traced}" if traced else self.last)
