"""Tasks: one bolt object for one attempt, run according to its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from sys import getrefcount
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import Tuple
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.chunks import Chunk
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.columnar.reducing import ReductionCombiner
from txtopo.failpoints import reach
from txtopo.topology.builders.kinds import takes_batches
from txtopo.topology.plans.plan import ComponentKind, PlannedComponent
from txtopo.topology.user_code.blame import record_tuple, user_code
from txtopo.transactional.tasks.collector import TaskCollector
from txtopo.transactional.tasks.context import TaskContext
from txtopo.transactional.tasks.factory import TaskBindings, TaskFactory
from txtopo.transactional.tasks.objects import dump_object, load_object


class BoltTask(ABC):
    """One bolt object in one task for one attempt; ``carried`` is its pickled state of the processing phase."""

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
        self._context = context
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
        self._context.executes(chunk.source)
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
        if chunk.is_combined:
            self._bolt.execute_combined(with_attempt(chunk.batch(), chunk.source.fields, self._attempt))
            return
        batch = self._as_batch(chunk)
        if batch is not None:
            self._bolt.execute_batch(with_attempt(batch, chunk.source.fields, self._attempt))
            return
        execute, source = self._bolt.execute, chunk.source
        self._probe.rows = rows = iter(chunk.handed_rows(self._attempt))
        tuple_object = Tuple((), source)
        unshared = getrefcount(tuple_object)  # a bolt that keeps the Tuple holds one more reference to it
        try:
            for values in rows:  # reuse the Tuple unless the bolt has kept it: creating one is half of the cost
                if getrefcount(tuple_object) != unshared:
                    tuple_object = Tuple((), source)
                tuple_object.values = values
                execute(tuple_object)
        except Exception as error:
            _record(error, tuple_object)
            raise

    def _as_batch(self, chunk: Chunk) -> pa.RecordBatch | None:
        """Return a chunk's columns without the attempt if the bolt takes columns; None to execute tuple by tuple."""
        if not takes_batches(type(self._bolt)):
            return None
        if chunk.source.fields.columnar:
            return chunk.batch()
        combiner = self._bolt.combiner()
        return chunk.combinable(combiner, self._attempt) if isinstance(combiner, ReductionCombiner) else None

    def _finish(self) -> None:
        self._bolt.finish_batch()


class _ArrowTask(_BatchTask):
    def _execute(self, chunk: Chunk) -> None:
        self._bolt.execute(with_attempt(chunk.batch(), chunk.source.fields, self._attempt))


class _BasicTask(BoltTask):
    """A task of a BasicBolt, which has no state between tuples."""

    def _prepare(self, configuration: Any, context: TaskContext) -> None:
        self._bolt.prepare(configuration, context)

    def _execute(self, chunk: Chunk) -> None:
        execute, source, collector = self._bolt.execute, chunk.source, self.collector
        self._probe.rows = rows = iter(chunk.handed_rows(self._attempt))
        tuple_object = Tuple((), source)
        unshared = getrefcount(tuple_object)
        try:
            for values in rows:  # as in _BatchTask
                if getrefcount(tuple_object) != unshared:
                    tuple_object = Tuple((), source)
                tuple_object.values = values
                execute(tuple_object, collector)
        except Exception as error:
            _record(error, tuple_object)
            raise

    def _finish(self) -> None:
        self._bolt.cleanup()

    def carry(self) -> bytes | None:
        """Clean up and return None: the commit phase creates a fresh bolt."""
        self._finish()
        return None


def _record(error: Exception, executed: Tuple) -> None:
    """Note in an error which tuple was executed, without the attempt."""
    record_tuple(error, executed.fields.names[1:], executed.values[1:])


_TASKS: dict[ComponentKind, type[BoltTask]] = {
    ComponentKind.BASIC_BOLT: _BasicTask,
    ComponentKind.BATCH_BOLT: _BatchTask,
    ComponentKind.ARROW_BOLT: _ArrowTask,
}


def task_type(component: PlannedComponent) -> type[BoltTask]:
    """Return the class that runs a component's tasks."""
    return _TASKS[component.kind]


def with_attempt(batch: pa.RecordBatch, fields: Fields, attempt: TransactionAttempt) -> pa.RecordBatch:
    """Return a stream's columns with the attempt column in front."""
    columns = [attempt_column(attempt, batch.num_rows), *batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=[fields.names[0], *batch.schema.names])


def attempt_column(attempt: TransactionAttempt, length: int) -> pa.StructArray:
    """Return the attempt as a column of ``length`` equal structs of ``txid`` and ``attempt``."""
    txids = pa.array(np.full(length, attempt.txid, dtype=np.int64))
    attempts = pa.array(np.full(length, attempt.attempt, dtype=np.int64))
    return pa.StructArray.from_arrays([txids, attempts], names=["txid", "attempt"])
