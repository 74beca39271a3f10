"""Tasks: one bolt object for one attempt, run as its kind asks for."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from sys import getrefcount
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.contracts.bolt import BatchBolt
from txtopo.contracts.fields import Fields
from txtopo.contracts.tuples import Tuple
from txtopo.core.attempts import TransactionAttempt
from txtopo.errors import TxtopoError, UserCodeError
from txtopo.failpoints import reach
from txtopo.phases.chunks import Chunk
from txtopo.phases.collector import TaskCollector
from txtopo.phases.combinable import combinable_columns
from txtopo.phases.objects import freeze, thaw
from txtopo.phases.places import TaskContext, Workshop, attempt_origin, place_of
from txtopo.phases.watch import Watch
from txtopo.topology.plan import ComponentKind, PlannedComponent


class user_code:  # noqa: N801 - reads as what it is: with user_code(…)
    """Run a user's code: whatever it raises becomes an error of ours that names where it happened.

    A class and not a generator, for it is entered for every chunk.

    Args:
        component: whose code it is.
        attempt: the attempt it works for.

    Raises:
        FailedException: the user's own, with its origin.
        TxtopoError: an error of ours, with its origin.
        UserCodeError: anything else, with the traceback.
    """

    __slots__ = ("_attempt", "_component")

    def __init__(self, component: str, attempt: TransactionAttempt) -> None:
        self._component = component
        self._attempt = attempt

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, (Exception, SystemExit)):
            return
        origin = attempt_origin(self._component, self._attempt)
        if not isinstance(error, TxtopoError):
            raise UserCodeError(
                f"{type(error).__name__}: {error}; raise FailedException to have a transaction replayed",
                **origin,
                cause="".join(traceback.format_exception(error)),
            ) from None
        for name, value in origin.items():
            if getattr(error, name) is None:
                setattr(error, name, value)


class BoltTask(ABC):
    """One bolt object in one task for one attempt.

    Args:
        workshop: makes the bolt object.
        component: the bolt.
        attempt: the attempt.
        context: the task's context.
        collector: what it emits on.
        watch: shows where the work stands.
        carried: the state of a bolt that was begun in the processing phase, or None for a fresh one.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a task has that many sides
        self,
        workshop: Workshop,
        component: PlannedComponent,
        attempt: TransactionAttempt,
        context: TaskContext,
        collector: TaskCollector,
        watch: Watch,
        carried: bytes | None = None,
    ) -> None:
        self._component = component
        self._attempt = attempt
        self._watch = watch
        self.collector = collector
        configuration = workshop.configuration(component)
        with user_code(component.id, attempt):
            if carried is None:
                self._bolt = workshop.fresh(component)
                self._prepare(configuration, context)
            else:
                place = place_of(context, collector, workshop.plan)
                self._bolt = thaw(type(component.component), carried, place)

    def execute(self, chunk: Chunk) -> None:
        """Let the bolt take the tuples of a chunk."""
        self._watch.attempt = self._attempt
        with user_code(self._component.id, self._attempt):
            reach("bolt.execute")
            self._execute(chunk)
        self.collector.flush()

    def finish(self) -> None:
        """Let the bolt finish its batch."""
        with user_code(self._component.id, self._attempt):
            reach("bolt.finish")
            self._finish()
        self.collector.flush()
        self.collector.close()

    def carry(self) -> bytes | None:
        """Return the bolt's state, to go on with in the commit phase; None if there is none to keep."""
        with user_code(self._component.id, self._attempt):
            return freeze(self._bolt)

    @abstractmethod
    def _prepare(self, configuration: Any, context: TaskContext) -> None: ...

    @abstractmethod
    def _execute(self, chunk: Chunk) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...


class _BatchTask(BoltTask):
    """A task of a BatchBolt."""

    def _prepare(self, configuration: Any, context: TaskContext) -> None:
        bolt = self._bolt
        bolt.attempt, bolt.collector, bolt.context, bolt.config = (
            self._attempt,
            self.collector,
            context,
            configuration,
        )
        bolt.prepare(configuration, context, self.collector, self._attempt)

    def _execute(self, chunk: Chunk) -> None:
        batch = self._as_batch(chunk)
        if batch is not None:
            self._bolt.execute_batch(with_attempt(batch, chunk.source.fields, self._attempt))
            return
        execute, source = self._bolt.execute, chunk.source
        self._watch.rows = rows = iter(chunk.rows(self._attempt))
        one = Tuple((), source)
        unshared = getrefcount(one)
        for values in rows:  # a tuple that the bolt has not kept is used again: making one is half of the cost
            if getrefcount(one) != unshared:
                one = Tuple((), source)
            one.values = values
            execute(one)

    def _as_batch(self, chunk: Chunk) -> pa.RecordBatch | None:
        """Return a chunk's columns without the attempt where the bolt takes them; None: tuple by tuple."""
        if not takes_batches(type(self._bolt)):
            return None
        if chunk.source.fields.columnar:
            return chunk.batch()
        combiner = self._bolt.combiner()
        return None if combiner is None else combinable_columns(chunk, combiner, self._attempt)

    def _finish(self) -> None:
        self._bolt.finish_batch()


class _ArrowTask(_BatchTask):
    """A task of an ArrowBatchBolt."""

    def _execute(self, chunk: Chunk) -> None:
        self._bolt.execute(with_attempt(chunk.batch(), chunk.source.fields, self._attempt))


class _BasicTask(BoltTask):
    """A task of a BasicBolt, which keeps nothing between two tuples."""

    def _prepare(self, configuration: Any, context: TaskContext) -> None:
        self._bolt.prepare(configuration, context)

    def _execute(self, chunk: Chunk) -> None:
        execute, source, collector = self._bolt.execute, chunk.source, self.collector
        self._watch.rows = rows = iter(chunk.rows(self._attempt))
        one = Tuple((), source)
        unshared = getrefcount(one)
        for values in rows:  # as in a task of a BatchBolt
            if getrefcount(one) != unshared:
                one = Tuple((), source)
            one.values = values
            execute(one, collector)

    def _finish(self) -> None:
        self._bolt.cleanup()

    def carry(self) -> bytes | None:
        """Return nothing: the next phase's object is a fresh one."""
        self._finish()
        return None


_TASKS: dict[ComponentKind, type[BoltTask]] = {
    ComponentKind.BASIC_BOLT: _BasicTask,
    ComponentKind.BATCH_BOLT: _BatchTask,
    ComponentKind.ARROW_BOLT: _ArrowTask,
}


def task_type(component: PlannedComponent) -> type[BoltTask]:
    """Return how a component's tasks are run."""
    return _TASKS[component.kind]


def takes_batches(kind: type[BatchBolt]) -> bool:
    """Whether a bolt of class ``kind`` is called by ``execute_batch``, for columnar streams.

    The class nearest to the object decides: whoever overrides ``execute`` of a bolt that has both means it.
    """
    for each in kind.__mro__:
        if each is BatchBolt:
            break
        if "execute_batch" in vars(each):
            return True
        if "execute" in vars(each):
            break
    return False


def with_attempt(batch: pa.RecordBatch, fields: Fields, attempt: TransactionAttempt) -> pa.RecordBatch:
    """Return columns of a stream with such fields behind the attempt's."""
    columns = [attempt_column(attempt, batch.num_rows), *batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=[fields.names[0], *batch.schema.names])


def attempt_column(attempt: TransactionAttempt, length: int) -> pa.StructArray:
    """Return the attempt as a column of ``length`` equal structs of ``txid`` and ``attempt``."""
    txids = pa.array(np.full(length, attempt.txid, dtype=np.int64))
    attempts = pa.array(np.full(length, attempt.attempt, dtype=np.int64))
    return pa.StructArray.from_arrays([txids, attempts], names=["txid", "attempt"])
