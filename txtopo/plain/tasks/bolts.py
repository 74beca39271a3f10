"""Tasks of bolts, and the tick tuples that they get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat
from sys import getrefcount
from typing import Any

import attrs

from txtopo.api.components.bolt import RichBolt
from txtopo.api.components.context import BoltEvent
from txtopo.api.data.tuples import Tuple, TupleSource
from txtopo.errors import FailedException, ReportedFailedException
from txtopo.plain.frames import Columns
from txtopo.plain.tasks.collectors import BasicCollector, BoltCollector
from txtopo.plain.tasks.metrics import Counts
from txtopo.plain.tasks.task import WEIGHED_SECS, Shared, Task
from txtopo.plain.trees.tuples import SETTLED, Edges, Roots, TreeTuple, TreeTuples
from txtopo.topology.plans.plain_plan import PlainComponent, PlainKind

EXECUTED_AT_ONCE_MAX = 2_000
"""The most tuples that a task executes in one turn, and that ``execute_batch`` gets at once.

It is what a pass of the spouts becomes if each tuple splits into some: with fewer, the rest would pile up.
"""

TURN_SECS = 0.05
"""A slow bolt ends its turn after this long: until then, frames wait in the sockets."""

CHECKED_MAX = 64
"""The most tuples between two looks at the clock. A bolt that takes a millisecond a tuple looks after each."""

_Row = tuple[Sequence[Any], TupleSource, Roots, Edges]
"""What a :class:`TreeTuple` is made of."""


def _references() -> int:
    """Return what ``getrefcount`` says of an object that one local variable refers to, and nothing else."""
    alone = object()
    return getrefcount(alone)


_ALONE = _references()


class BoltTask(Task):
    """A task of a rich bolt or a basic bolt. It prepares its object at once."""

    def __init__(self, shared: Shared, component: PlainComponent, task: int) -> None:
        super().__init__(shared, component, task)
        self.queue = shared.queues[task]
        self.collector = BoltCollector(self.output)
        self._given = shared.observer.watched_bolt(task, self.collector)
        """What the bolt emits and acks with."""
        self._executed = 0
        self._sources = shared.sources
        self._clock = shared.clock
        self._is_full = shared.is_full
        self._unchecked = 1
        self._at_once = EXECUTED_AT_ONCE_MAX
        """How many tuples a turn takes: few for a slow bolt, since what it gives back is weighed again."""
        with self.user_code():
            self._bolt: Any = shared.make_object(component.id)
            if component.kind is PlainKind.BASIC_BOLT:
                self._execute = BasicCollector(self._given, self._bolt).execute
                self._bolt.prepare(self.config, self.context)
            else:
                bolt: RichBolt = self._bolt
                self._execute = bolt.execute
                bolt.prepare(self.config, self.context, self._given)
                self._execute = bolt.execute  # prepare() may have set another one

    def run(self) -> int:
        """Execute some of the waiting tuples; return how many; raise UserCodeError for other than FailedException."""
        clock = self._clock
        weighed_at = checked_at = clock()
        end = checked_at + TURN_SECS
        batches = self.queue.take(self._at_once)
        count = sum(len(columns.values) for columns in batches)
        waiting, done_count = chain.from_iterable(map(self._rows, batches)), 0
        while done_count < count:
            self._run_some(islice(waiting, self._unchecked))
            done_count += self._unchecked
            now = clock()
            self._unchecked = min(2 * self._unchecked, CHECKED_MAX) if now - checked_at < WEIGHED_SECS else 1
            checked_at = now
            if now >= end:
                break
            if now - weighed_at >= WEIGHED_SECS:
                if self._is_full():
                    break
                weighed_at = now
        if done_count < count:
            self.queue.give_back(batches, done_count)
            self._at_once = done_count
        else:
            self._at_once = min(2 * self._at_once, EXECUTED_AT_ONCE_MAX)
        executed = min(done_count, count)
        self._executed += executed
        return executed

    def _rows(self, columns: Columns) -> Iterator[_Row]:
        columns.fill()
        return zip(columns.values, repeat(self._sources[columns.source]), columns.roots, columns.edges, strict=False)

    def _run_some(self, waiting: Iterator[_Row]) -> None:
        execute, hooks, make, alone = self._execute, self._hooks, object.__new__, _ALONE
        current = make(TreeTuple)
        while True:  # the iterator is behind a tuple that has failed, so the next round goes on with the one after it
            try:
                for values, source, roots, edges in waiting:
                    # An object that the bolt has not kept is taken again: that costs half of a new one.
                    if getrefcount(current) > alone:
                        current = make(TreeTuple)
                    current.values = values
                    current.source = source
                    current.roots = roots
                    current.edges = edges
                    current.mask = 0
                    execute(current)
                    if hooks:
                        self._tell_executed(current)
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

    def _failed(self, tuple: Tuple, error: FailedException) -> None:
        if isinstance(error, ReportedFailedException):
            self.errors.report(error)
        self._given.fail(tuple)

    def _tell_executed(self, tuple: Tuple) -> None:
        for hook in self._hooks:
            hook.executed(BoltEvent(tuple, self.id))


class BatchTask(BoltTask):
    """A task of a rich bolt that takes what waits at once, by ``execute_batch``."""

    def run(self) -> int:
        """Execute some waiting tuples, one call for each stream; return how many; errors as :meth:`BoltTask.run`."""
        by_stream: dict[tuple[str, str], list[Columns]] = {}
        for columns in self.queue.take(EXECUTED_AT_ONCE_MAX):
            columns.fill()
            source = self._sources[columns.source]
            by_stream.setdefault((source.component, source.stream), []).append(columns)
        executed = 0
        for each in by_stream.values():
            tuples = self._together(each)
            self._run_batch(tuples)
            executed += len(tuples)
        self._executed += executed
        return executed

    def _together(self, columns: list[Columns]) -> TreeTuples:
        parts = [(self._sources[column.source], len(column.values)) for column in columns]
        if len(columns) == 1:
            (single,) = columns
            return TreeTuples(parts, single.values, single.roots, single.edges)
        values, roots, edges = list[Any](), list[Any](), list[Any]()
        for column in columns:
            values += column.values
            roots += column.roots
            edges += column.edges
        return TreeTuples(parts, values, roots, edges)

    def _run_batch(self, tuples: TreeTuples) -> None:
        try:
            self._bolt.execute_batch(tuples)
        except FailedException as error:
            if isinstance(error, ReportedFailedException):
                self.errors.report(error)
            for each in tuples:
                if each.roots is not SETTLED:
                    self._given.fail(each)
            return
        except BaseException as error:  # noqa: BLE001 - the user's code
            raise self.blamed(error, f", {len(tuples)} tuples of {tuples.source_component!r}") from None
        if self._hooks:
            for each in tuples:
                self._tell_executed(each)


def bolt_task(shared: Shared, component: PlainComponent, task: int) -> BoltTask:
    """Make a task of a bolt, and prepare its object."""
    return (BatchTask if component.takes_batches else BoltTask)(shared, component, task)


@attrs.define(eq=False)
class Ticks:
    """The ticks of the tasks of one bolt."""

    tasks: list[BoltTask]
    every_secs: float
    due_at: float
    source: int
    """The number of the source of ticks."""

    def send(self, now: float) -> bool:
        """Put a tick tuple into each task's queue if one is due; return whether it was."""
        if now < self.due_at:
            return False
        # Ticks that were missed are skipped: a bolt that was slow gets one, not a burst.
        missed = (now - self.due_at) // self.every_secs
        self.due_at += self.every_secs * (1 + missed)
        for task in self.tasks:
            tick = Columns(self.source, task.id)
            tick.values = [(self.every_secs,)]
            task.queue.put(tick)
        return True
