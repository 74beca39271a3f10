"""Progress of what Spark SQL runs, as Spark itself knows it: tasks that end, and rows that running ones have read.

No code of ours runs in such a task, so none of it can tell that it gets on. Spark counts a running task's rows in
its executors' heartbeats.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark import SparkContext

LOOK_SECS = 0.5
"""How often Spark is asked."""


class SqlProgress:
    """Tells when the jobs of a group get on, within a context.

    Args:
        context: the Spark context.
        group: the id of the job group.
        on_progress: called whenever they have.
    """

    def __init__(self, context: SparkContext, group: str, on_progress: Callable[[], None]) -> None:
        self._context = context
        self._group = group
        self._on_progress = on_progress
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="txtopo-sql-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _look(self) -> None:
        before: tuple[int, ...] = ()
        while not self._is_over.wait(LOOK_SECS):
            with contextlib.suppress(Py4JError, OSError):  # a stage that is over, or a JVM that is gone
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
        position = [len(stages)]
        for stage in sorted(stages):
            told = tracker.getStageInfo(stage)
            if told is not None:
                position += [stage, told.numActiveTasks, told.numCompletedTasks, told.numFailedTasks]
                position += self._rows(stage) if told.numActiveTasks else []
        return tuple(position)

    def _rows(self, stage: int) -> list[int]:
        """Return the rows that a stage has read and written so far."""
        data = self._context._jsc.sc().statusStore().lastStageAttempt(stage)  # noqa: SLF001 - the tracker does not tell
        return [int(data.inputRecords()), int(data.shuffleReadRecords()), int(data.shuffleWriteRecords())]
