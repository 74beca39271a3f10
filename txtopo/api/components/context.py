"""The context that a spout or bolt receives: its place in the topology, and the topology's states."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import attrs

from txtopo.api.data.tuples import Tuple, TupleSource
from txtopo.api.map_state import MapState
from txtopo.api.reference import ReferenceTable
from txtopo.errors import StateAccessError
from txtopo.files.folder import Folder


class TaskHook:
    """Watches one task of a plain topology; override what you want to know. See ``TopologyContext.add_task_hook``."""

    def prepare(self, config: Any, context: TopologyContext) -> None:
        """Acquire resources; called when the hook is added."""

    def emitted(self, event: EmitEvent) -> None:
        """Learn that the task emitted a tuple; of a bolt, acks and failures of tracked tuples are messages too."""

    def spout_acked(self, event: SpoutEvent) -> None:
        """Learn that a root was acked; called before the spout's ``ack``."""

    def spout_failed(self, event: SpoutEvent) -> None:
        """Learn that a root failed; called before the spout's ``fail``."""

    def executed(self, event: BoltEvent) -> None:
        """Learn that ``execute`` returned."""

    def bolt_acked(self, event: BoltEvent) -> None:
        """Learn that the bolt acked a tuple."""

    def bolt_failed(self, event: BoltEvent) -> None:
        """Learn that the bolt failed a tuple."""

    def cleanup(self) -> None:
        """Release resources; called at the end of a run."""


@attrs.frozen
class EmitEvent:
    """A tuple that was emitted: its values, its stream, the task that emitted it and those that get it."""

    values: Any
    stream: str
    task: int
    to_tasks: list[int]


@attrs.frozen
class SpoutEvent:
    """A root that was settled: its message id, the spout task, and after how many seconds it was."""

    message_id: Any
    task: int
    latency_secs: float | None


@attrs.frozen
class BoltEvent:
    """A tuple that a bolt's task executed, acked or failed."""

    tuple: Tuple
    task: int


class TopologyContext(ABC):
    """A task's place in its topology."""

    topology_id: str
    """The id of the topology."""
    this_component_id: str
    """The id of the spout or bolt."""
    this_task_index: int
    """The index of this task among those of its component, from 0."""

    @property
    def staging(self) -> Folder | None:
        """A folder shared by executors and driver for files that a committer reads in the commit phase; None if none.

        It is beside the topology's tables, on a disk or in a bucket. txtopo removes a file after its commit if its name
        starts with the txid and ends with ``.arrow``, and all others at the end of the run.
        """
        return None

    @property
    def this_task_id(self) -> int:
        """The id of this task: unique in a plain topology; the same as ``this_task_index`` in a transactional one."""
        return self.this_task_index

    @property
    def planned_at(self) -> dt.datetime:
        """When the source began the transaction: wall-clock time with a time zone, UTC, in whole milliseconds.

        *txtopo* guarantees that it is the same at every attempt, in both phases, after a crash, and in ``txtopo
        replay``; and that it is never earlier than that of the transaction before. Only if an opaque spout begins an
        uncommitted transaction again is it a later one. So decide by it, and not by the clock, what a replay must
        decide alike.

        Raises:
            StateAccessError: there is no transaction: the topology is a plain one, or this is the context of a spout,
                whose objects outlive transactions.
        """
        raise self._no_transaction("planned_at")

    @property
    def is_at_end(self) -> bool:
        """Whether the transaction ends a bounded source; see :attr:`BatchBolt.at_end`.

        Raises:
            StateAccessError: as for :attr:`planned_at`.
        """
        raise self._no_transaction("is_at_end")

    @property
    def source(self) -> TupleSource:
        """The component and the stream of the batch that the bolt executes; of a tuple it is ``tuple.source``.

        Ask in ``execute_batch`` and ``execute_combined`` of a batch bolt, and in ``execute`` of an Arrow batch bolt,
        whose batches do not tell.

        Raises:
            StateAccessError: no batch is executed, or the topology is a plain one.
        """
        raise StateAccessError(
            "no batch is executed here that could have a source; ask in execute_batch() of a batch bolt",
            component=self.this_component_id,
        )

    @property
    def this_sources(self) -> tuple[tuple[str, str], ...]:
        """The component and the stream of each subscription of this bolt; of a transactional topology only.

        Raises:
            StateAccessError: the topology is a plain one.
        """
        raise self._no_transaction("this_sources")

    @property
    def sources_ahead(self) -> frozenset[str]:
        """The components that this bolt subscribes to whose spout waits in this transaction for another one.

        Such a spout has input, but its event time is too far ahead; see ``skew_max`` of an ``EventClock``.

        Raises:
            StateAccessError: as for :attr:`planned_at`.
        """
        raise self._no_transaction("sources_ahead")

    @property
    def this_targets(self) -> Mapping[str, tuple[str, ...]]:
        """The components that subscribe to each stream of this one; a stream without any is not among them.

        A bolt need not make what nobody reads.

        Raises:
            StateAccessError: the topology is a plain one.
        """
        raise self._no_transaction("this_targets")

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count of this component, in the commit phase; see :meth:`gauge`.

        Args:
            name: the name of the count, such as ``"late"``.
            by: how much to add.
        """
        raise self._no_readings("count")

    def gauge(self, name: str, value: float | dt.datetime, of: str = "") -> None:
        """Set a gauge of this component, in the commit phase.

        *txtopo* guarantees that the counts and gauges of a transaction show once it is committed: in metrics, in the
        report of the run and in ``txtopo explain``. Those of an attempt that fails do not. They begin anew with each
        run, as other metrics do, so decide nothing by them.

        Args:
            name: the name of the gauge, such as ``"open"``.
            value: its value, or a time with a time zone.
            of: what it is about, if the component has several, such as a partition. There should be few: each is kept
                in memory as long as the run lasts, and anyone who may see metrics sees it.

        Raises:
            StateAccessError: this is not the commit phase, or the topology is a plain one.
        """
        raise self._no_readings("gauge")

    def _no_readings(self, what: str) -> StateAccessError:
        return StateAccessError(
            f"{what}() was called outside of a commit phase; call it in finish_batch() of a committer or of a bolt "
            "below one",
            component=self.this_component_id,
        )

    def _no_transaction(self, what: str) -> StateAccessError:
        return StateAccessError(
            f"there is no transaction here that {what} could be of; ask the context of a bolt of a transactional "
            "topology",
            component=self.this_component_id,
        )

    @abstractmethod
    def component_tasks(self, component: str) -> list[int]:
        """Return the tasks of a component, in order.

        In a plain topology these are task ids, unique in the topology: what ``emit`` returns and ``emit_direct`` takes.
        In a transactional one they are indices, from 0 to the component's number of tasks less one.
        """

    def offload(self, call: Callable[[], Any], on_done: Callable[[Future[Any]], None]) -> None:
        """Run a slow call, such as a write over the network, while the worker goes on; in plain topologies only.

        *You* let ``call`` touch nothing that your other methods use. *txtopo* guarantees to run the calls of a task one
        after another, in a separate thread, and then ``on_done`` in the thread of all your other methods.

        Args:
            call: the call.
            on_done: receives the finished future, whose ``result()`` returns or raises what the call did.

        Raises:
            StateAccessError: the topology is a transactional one, whose bolts may simply wait.
        """
        del call, on_done
        raise StateAccessError(
            "a transactional topology has no offload(): its bolts may wait for slow calls",
            component=self.this_component_id,
        )

    def add_task_hook(self, hook: TaskHook) -> None:
        """Add a hook that watches this task; in ``prepare`` or ``open`` of a component of a plain topology.

        Raises:
            StateAccessError: the topology is a transactional one, which has no hooks.
        """
        raise StateAccessError(
            f"a transactional topology has no task hooks; {type(hook).__name__} is for plain topologies",
            component=self.this_component_id,
        )

    @abstractmethod
    def state(self, name: str) -> MapState:
        """Return the state that the builder's ``set_state`` declared under ``name``.

        Call it in ``prepare`` of a committer or of a bolt below one. Read and write the state only in the commit
        phase: in ``finish_batch``, and in ``execute`` for tuples emitted in the commit phase.

        Raises:
            StateAccessError: there is no such state, this component runs in the processing phase, or the topology is
                a plain one, which has no states.
        """

    def reference(self, name: str) -> ReferenceTable:
        """Return the reference table that the builder's ``set_reference`` declared under ``name``.

        Call it in ``prepare``. A bolt of either phase may use it in all of its methods.

        Raises:
            StateAccessError: there is no such reference, or the topology is a plain one, which has none.
        """
        raise StateAccessError(
            f"there is no reference {name!r} here; a transactional topology has those of builder.set_reference",
            component=self.this_component_id,
        )
