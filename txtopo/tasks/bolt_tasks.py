"""Tasks: one bolt object for one attempt, run as its kind asks for."""

from __future__ import annotations

import dis
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from sys import getrefcount
from threading import get_ident
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
from txtopo.tasks.collector import TaskCollector
from txtopo.tasks.context import TaskContext
from txtopo.tasks.factory import TaskBindings, TaskFactory
from txtopo.tasks.objects import dump_object, load_object
from txtopo.tasks.progress_probe import ProgressProbe
from txtopo.tasks.state_handle import attempt_origin
from txtopo.tasks.user_output import OutputOrigin
from txtopo.topology.plan import ComponentKind, PlannedComponent


class user_code(OutputOrigin):  # noqa: N801 - reads as what it is: with user_code(…)
    """Run a user's code: whatever it raises becomes an error of ours that names where it happened.

    What it prints and logs meanwhile, in this thread, is known to be its own.

    A class and not a generator, for it is entered for every chunk.

    Args:
        component: whose code it is.
        attempt: the attempt it works for; None where it works for none in particular.
        task: the index of its task, where it has one.

    Raises:
        FailedException: the user's own, with its origin.
        TxtopoError: an error of ours, with its origin.
        UserCodeError: anything else, with the traceback: KeyboardInterrupt and GeneratorExit, too, unless it is
            Ctrl-C that comes just then.
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
            OutputOrigin.running.pop(get_ident(), None)  # a line that is delivered may have taken it
        else:
            OutputOrigin.running[get_ident()] = self._before
        if error is None or isinstance(error, ProcessDeath) or _is_from_keyboard(error):
            return
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


def _is_from_keyboard(error: BaseException) -> bool:
    """Whether an error is a KeyboardInterrupt that a signal has raised, and no ``raise`` of the user's.

    Python raises it in the main thread only, wherever that is; the instruction there is no ``raise``.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    code = trace.tb_frame.f_code
    handler = signal.getsignal(signal.SIGINT)
    return code is getattr(handler, "__code__", None) or code.co_code[trace.tb_lasti] != _RAISE


_RAISE = dis.opmap["RAISE_VARARGS"]


class BoltTask(ABC):
    """One bolt object in one task for one attempt.

    Args:
        task_factory: makes the bolt object.
        component: the bolt.
        attempt: the attempt.
        context: the task's context.
        collector: what it emits on.
        probe: shows where the work stands.
        carried: the state of a bolt that was begun in the processing phase, or None for a fresh one.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a task has that many sides
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
        """Let the bolt take the tuples of a chunk."""
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
        """Return the bolt's state, to go on with in the commit phase; None if there is none to keep."""
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
        return None if combiner is None else chunk.combinable(combiner, self._attempt)

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
        self._probe.rows = rows = iter(chunk.handed_rows(self._attempt))
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
