"""Tasks: one bolt object for one attempt, run according to its kind."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from sys import getrefcount
from threading import current_thread, get_ident, main_thread
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.api.bolt import BatchBolt
from txtopo.api.fields import Fields
from txtopo.api.tuples import Tuple
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.chunks import Chunk
from txtopo.errors import TxtopoError, UserCodeError
from txtopo.failpoints import ProcessDeath, reach
from txtopo.topology.output import OutputOrigin, is_worker
from txtopo.topology.plan import ComponentKind, PlannedComponent
from txtopo.transactional.tasks.collector import TaskCollector
from txtopo.transactional.tasks.context import TaskContext
from txtopo.transactional.tasks.factory import TaskBindings, TaskFactory
from txtopo.transactional.tasks.objects import dump_object, load_object
from txtopo.transactional.tasks.progress_probe import ProgressProbe
from txtopo.transactional.tasks.state_handle import attempt_origin


class user_code(OutputOrigin):  # noqa: N801 - it is used like a function: with user_code(…)
    """A context for user code: turns exceptions into txtopo's errors, with their origin.

    Output that this thread prints or logs in the context is attributed to the component.

    This is a class and not a generator because it is entered for every chunk.

    Args:
        component: the component that the code belongs to.
        attempt: the attempt that it works for; None if it works for no particular one.
        task: the index of its task; None if it has none.

    Raises:
        FailedException: raised by the code; its origin is added.
        TxtopoError: any other error of txtopo; its origin is added.
        UserCodeError: the code raised anything else, including KeyboardInterrupt and GeneratorExit; with the traceback.
            A KeyboardInterrupt in the driver's main thread passes unchanged: it may be a Ctrl-C.
    """

    __slots__ = ("_before",)

    def __init__(self, component: str, attempt: TransactionAttempt | None, task: int | None = None) -> None:
        self.component = component
        self.attempt = attempt
        self.task = task

    def __enter__(self) -> None:
        running, thread = OutputOrigin.running, get_ident()
        self._before = running.get(thread)
        running[thread] = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            OutputOrigin.running.pop(get_ident(), None)  # delivering a line may have removed it
        else:
            OutputOrigin.running[get_ident()] = self._before
        if error is None or isinstance(error, ProcessDeath):
            return
        if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread() and not is_worker():
            return  # only there does a Ctrl-C arrive; elsewhere the code itself has raised it
        origin: dict[str, Any] = {"component": self.component}
        if self.attempt is not None:
            origin = attempt_origin(self.component, self.attempt)
        if not isinstance(error, TxtopoError):
            raise UserCodeError(
                f"{_in_words(error)}; raise FailedException to have a transaction replayed",
                **origin,
                cause="".join(traceback.format_exception(error)),
            ) from None
        for name, value in origin.items():
            if getattr(error, name) is None:
                setattr(error, name, value)


def _in_words(error: BaseException) -> str:
    """Return the name of an exception, and its message if it has one."""
    name, message = type(error).__name__, str(error)
    return f"{name}: {message}" if message else name


class BoltTask(ABC):
    """One bolt object in one task for one attempt.

    Args:
        task_factory: creates the bolt object.
        component: the bolt.
        attempt: the attempt.
        context: the task's context.
        collector: collects the tuples that the bolt emits.
        probe: reports the progress of the work.
        carried: the pickled state of a bolt carried over from the processing phase; None for a fresh bolt.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a task depends on that many parts
        self,
        task_factory: TaskFactory,
        component: PlannedComponent,
        attempt: TransactionAttempt,
        context: TaskContext,
        collector: TaskCollector,
        probe: ProgressProbe,
        carried: bytes | None = None,
    ) -> None:
        self._component = component
        self._attempt = attempt
        self._index = context.this_task_index
        self._probe = probe
        self.collector = collector
        configuration = task_factory.configuration(component)
        with user_code(component.id, attempt, context.this_task_index):
            if carried is None:
                self._bolt = task_factory.fresh(component)
                self._prepare(configuration, context)
            else:
                bindings = TaskBindings(context, collector, configuration)
                self._bolt = load_object(type(component.component), carried, bindings)

    def execute(self, chunk: Chunk) -> None:
        """Let the bolt execute the tuples of a chunk."""
        self._probe.attempt = self._attempt
        with user_code(self._component.id, self._attempt, self._index):
            reach("bolt.execute")
            self._execute(chunk)
        self.collector.flush()

    def finish(self) -> None:
        """Let the bolt finish its batch."""
        with user_code(self._component.id, self._attempt, self._index):
            reach("bolt.finish")
            self._finish()
        self.collector.flush()
        self.collector.close()
        self.collector.refuse_rest()

    def carry(self) -> bytes | None:
        """Return the bolt's pickled state for the commit phase; None if the bolt has no state to keep."""
        with user_code(self._component.id, self._attempt, self._index):
            return dump_object(self._bolt)

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
        self._probe.rows = rows = iter(chunk.handed_rows(self._attempt))
        one = Tuple((), source)
        unshared = getrefcount(one)
        for values in rows:  # reuse the Tuple unless the bolt has kept it: creating one is half of the cost
            if getrefcount(one) != unshared:
                one = Tuple((), source)
            one.values = values
            execute(one)

    def _as_batch(self, chunk: Chunk) -> pa.RecordBatch | None:
        """Return a chunk's columns without the attempt if the bolt takes columns; None to execute tuple by tuple."""
        if not takes_batches(type(self._bolt)):
            return None
        if chunk.source.fields.columnar:
            return chunk.batch()
        combiner = self._bolt.combiner()
        return None if combiner is None else chunk.combinable(combiner, self._attempt)

    def _finish(self) -> None:
        self._bolt.finish_batch()


class _ArrowTask(_BatchTask):
    """A task of an ArrowBatchBolt."""

    def _execute(self, chunk: Chunk) -> None:
        self._bolt.execute(with_attempt(chunk.batch(), chunk.source.fields, self._attempt))


class _BasicTask(BoltTask):
    """A task of a BasicBolt, which has no state between tuples."""

    def _prepare(self, configuration: Any, context: TaskContext) -> None:
        self._bolt.prepare(configuration, context)

    def _execute(self, chunk: Chunk) -> None:
        execute, source, collector = self._bolt.execute, chunk.source, self.collector
        self._probe.rows = rows = iter(chunk.handed_rows(self._attempt))
        one = Tuple((), source)
        unshared = getrefcount(one)
        for values in rows:  # as in _BatchTask
            if getrefcount(one) != unshared:
                one = Tuple((), source)
            one.values = values
            execute(one, collector)

    def _finish(self) -> None:
        self._bolt.cleanup()

    def carry(self) -> bytes | None:
        """Clean up and return None: the commit phase creates a fresh bolt."""
        self._finish()
        return None


_TASKS: dict[ComponentKind, type[BoltTask]] = {
    ComponentKind.BASIC_BOLT: _BasicTask,
    ComponentKind.BATCH_BOLT: _BatchTask,
    ComponentKind.ARROW_BOLT: _ArrowTask,
}


def task_type(component: PlannedComponent) -> type[BoltTask]:
    """Return the class that runs a component's tasks."""
    return _TASKS[component.kind]


def takes_batches(kind: type[BatchBolt]) -> bool:
    """Return whether txtopo calls ``execute_batch`` of a bolt of class ``kind`` for columnar streams.

    The most derived class that defines one of the two methods decides: a subclass that overrides only ``execute``
    wants to be called tuple by tuple.
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
    """Return a stream's columns with the attempt column in front."""
    columns = [attempt_column(attempt, batch.num_rows), *batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=[fields.names[0], *batch.schema.names])


def attempt_column(attempt: TransactionAttempt, length: int) -> pa.StructArray:
    """Return the attempt as a column of ``length`` equal structs of ``txid`` and ``attempt``."""
    txids = pa.array(np.full(length, attempt.txid, dtype=np.int64))
    attempts = pa.array(np.full(length, attempt.attempt, dtype=np.int64))
    return pa.StructArray.from_arrays([txids, attempts], names=["txid", "attempt"])
