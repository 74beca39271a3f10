"""Progress of Spark SQL's work, from Spark's counters: ended tasks, and rows that running tasks have read.

None of txtopo's code runs in such a task, so the task can't report progress itself. Executors' heartbeats bring Spark
the counts of running tasks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark import SparkContext

POLL_SECS = 0.5
"""How often Spark's counters are read."""


class SqlProgress:
    """A context that reports progress of the jobs in a job group."""

    def __init__(self, context: SparkContext, group: str, on_progress: Callable[[], None]) -> None:
        self._context = context
        self._group = group
        self._on_progress = on_progress
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="txtopo-sql-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _poll(self) -> None:
        before: tuple[int, ...] = ()
        while not self._is_over.wait(POLL_SECS):
            with contextlib.suppress(Py4JError, OSError):  # the stage has ended, or the JVM has died
                now = self._position()
                if now != before:
                    before = now
                    self._on_progress()

    def _position(self) -> tuple[int, ...]:
        tracker = self._context.statusTracker()
        stages: set[int] = set()
        for job in tracker.getJobIdsForGroup(self._group):
            information = tracker.getJobInfo(job)
            stages.update(information.stageIds if information is not None else ())
        position: list[int] = []
        for stage in sorted(stages):
            info = tracker.getStageInfo(stage)
            tasks = (0,) if info is None else (info.numActiveTasks, info.numCompletedTasks, info.numFailedTasks)
            if any(tasks):  # a stage that waits for executors makes no progress
                position += [stage, *tasks]
                position += self._rows(stage) if tasks[0] else []
        return tuple(position)

    def _rows(self, stage: int) -> list[int]:
        """Return the numbers of rows that a stage has read and written so far."""
        data = self._context._jsc.sc().statusStore().lastStageAttempt(stage)  # noqa: SLF001 - not in the tracker
        return [int(data.inputRecords()), int(data.shuffleReadRecords()), int(data.shuffleWriteRecords())]
