"""Tasks of bolts, and the tick tuples that they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import attrs

from txtopo.api.bolt import BasicBolt, RichBolt
from txtopo.api.context import BoltEvent
from txtopo.api.tuples import Tuple, TupleSource
from txtopo.errors import FailedException, ReportedFailedException
from txtopo.plain.tasks.collectors import BasicCollector, BoltCollector
from txtopo.plain.tasks.metrics import Counts
from txtopo.plain.tasks.task import WEIGHED_SECS, Shared, Task
from txtopo.plain.trees.tuples import TreeTuple
from txtopo.topology.plain_plan import PlainComponent, PlainKind

EXECUTED_AT_ONCE_MAX = 512
"""The most tuples that a task executes in one turn."""

TURN_SECS = 0.05
"""A slow bolt ends its turn after this long: until then, frames wait in the sockets."""

CHECKED_MAX = 64
"""The most tuples between two looks at the clock. A bolt that takes a millisecond a tuple looks after each."""


class BoltTask(Task):
    """A task of a rich bolt or a basic bolt. It prepares its object at once."""

    def __init__(self, shared: Shared, component: PlainComponent, task: int) -> None:
        super().__init__(shared, component, task)
        self.queue = shared.queues[task]
        self.collector = BoltCollector(self.output)
        shared.observer.watch(task, self.collector)
        self._executed = 0
        self._clock = shared.clock
        self._is_full = shared.is_full
        self._unchecked = 1
        with self.user_code():
            self._bolt: Any = shared.make_object(component.id)
            if component.kind is PlainKind.BASIC_BOLT:
                self._execute = self._basic(self._bolt)
                self._bolt.prepare(self.config, self.context)
            else:
                bolt: RichBolt = self._bolt
                self._execute = bolt.execute
                bolt.prepare(self.config, self.context, self.collector)
                self._execute = bolt.execute  # prepare() may have set another one

    def run(self) -> int:
        """Execute some of the waiting tuples; return how many.

        Raises:
            UserCodeError: the bolt raised an exception other than a FailedException.
        """
        clock = self._clock
        weighed_at = checked_at = clock()
        end = checked_at + TURN_SECS
        taken = self.queue.take(EXECUTED_AT_ONCE_MAX)
        waiting, done = iter(taken), 0
        while done < len(taken):
            self._run_some(islice(waiting, self._unchecked))
            done += self._unchecked
            now = clock()
            self._unchecked = min(2 * self._unchecked, CHECKED_MAX) if now - checked_at < WEIGHED_SECS else 1
            checked_at = now
            if now >= end:
                break
            if now - weighed_at >= WEIGHED_SECS:
                if self._is_full():
                    break
                weighed_at = now
        if done < len(taken):
            self.queue.give_back(taken[done:])
        executed = min(done, len(taken))
        self._executed += executed
        return executed

    def _run_some(self, waiting: Iterator[TreeTuple]) -> None:
        execute, hooks = self._execute, self._hooks
        while True:  # the iterator is behind a tuple that has failed, so the next round goes on with the one after it
            current: TreeTuple | None = None
            try:
                if hooks:
                    for current in waiting:
                        execute(current)
                        self._tell_executed(current)
                else:
                    for current in waiting:
                        execute(current)
                break
            except FailedException as error:
                self._failed(current, error)
            except BaseException as error:  # noqa: BLE001 - the user's code
                raise self.blamed(error) from None

    @property
    def counts(self) -> Counts:
        """The counts of the task."""
        return attrs.evolve(self.collector.counts(), executed=self._executed)

    def close(self) -> None:
        """Clean the bolt up."""
        with self.user_code():
            self._bolt.cleanup()
            self.close_hooks()

    def _basic(self, bolt: BasicBolt) -> Callable[[Tuple], None]:
        collector = BasicCollector(self.collector)
        call, ack = bolt.execute, self.collector.ack

        def execute(tuple: Tuple) -> None:
            collector.anchor = tuple
            call(tuple, collector)
            ack(tuple)

        return execute

    def _failed(self, tuple: Tuple | None, error: FailedException) -> None:
        assert tuple is not None, "only execute() raises it"
        if isinstance(error, ReportedFailedException):
            self.errors.report(error)
        self.collector.fail(tuple)

    def _tell_executed(self, tuple: Tuple) -> None:
        for hook in self._hooks:
            hook.executed(BoltEvent(tuple, self.id))


@attrs.define(eq=False)
class Ticks:
    """The ticks of the tasks of one bolt."""

    tasks: list[BoltTask]
    every_secs: float
    due_at: float
    source: TupleSource

    def send(self, now: float) -> bool:
        """Put a tick tuple into each task's queue if one is due; return whether it is."""
        if now < self.due_at:
            return False
        # Ticks that were missed are skipped: a bolt that was slow gets one, not a burst.
        missed = (now - self.due_at) // self.every_secs
        self.due_at += self.every_secs * (1 + missed)
        for task in self.tasks:
            task.queue.newest.append(TreeTuple((self.every_secs,), self.source, 0, 0))
        return True
