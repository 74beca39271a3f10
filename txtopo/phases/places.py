"""Places: where tasks live, and what they find there: context, state handles, and their own bolt object."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.contracts.context import TopologyContext
from txtopo.contracts.optional import call_if_there
from txtopo.contracts.reduction import Reducible, Rows
from txtopo.contracts.state import Key, MapState, State, StateValue, Updater
from txtopo.core.attempts import TransactionAttempt
from txtopo.errors import StateAccessError
from txtopo.phases.objects import Place, Placed, PlaceReference, freeze, thaw
from txtopo.phases.state_view import TransactionView
from txtopo.topology.plan import Phase, Plan, PlannedComponent

StateViews = Mapping[str, TransactionView]
"""The states as one transaction sees them, by name; empty in the processing phase."""

COLLECTOR = PlaceReference("collector")
CONTEXT = PlaceReference("context")


NoteWrite = Callable[[str, str], None]
"""Is told of each write: the component that writes, and the state."""

_note_write: NoteWrite | None = None


@contextlib.contextmanager
def writes_noted(note: NoteWrite) -> Iterator[None]:
    """Tell ``note`` which component writes which state, in this process within the context."""
    global _note_write  # noqa: PLW0603 - one process, one that looks on
    before, _note_write = _note_write, note
    try:
        yield
    finally:
        _note_write = before


class StateHandle(MapState, Placed):
    """What a bolt holds of a state: it reaches the state in the commit phase only, and one thread at a time."""

    def __init__(self, component: str, name: str, view: TransactionView | None, rows: State | None) -> None:
        self.place_reference = PlaceReference("state", name)
        self._rows = rows
        if rows is not None:
            self.fields = rows.value
            self.partition_by = rows.partition_by
        self._component = component
        self._name = name
        self._view = view
        self._lock = threading.RLock() if view is None else view.lock

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return what is kept for each key."""
        with self._lock:
            return self._reach().multi_get(keys)

    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key."""
        with self._lock:
            self._reach_to_write().multi_put(values, of_keys)

    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``."""
        with self._lock:
            return self._reach_to_write().multi_update(keys, function)

    def get(self, key: Key) -> Any:
        """Return what is kept for ``key``."""
        with self._lock:
            return self._reach().get(key)

    def put(self, key: Key, value: Any) -> None:
        """Put ``value`` for ``key``."""
        with self._lock:
            self._reach_to_write().put(key, value)

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of ``key`` by ``function(old)``."""
        with self._lock:
            return self._reach_to_write().update(key, function)

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into what is kept."""
        with self._lock:
            self._reach_to_write().multi_reduce(values, function)

    def append(self, rows: Rows) -> None:
        """Add rows to a table of rows."""
        with self._lock:
            self._reach_to_write().append(rows)

    def replace_partitions(self, rows: Rows) -> None:
        """Put rows in the place of what earlier transactions left in their partitions."""
        with self._lock:
            self._reach_to_write().replace_partitions(rows)

    def as_rows(self, rows: Rows) -> pa.Table:
        """Return rows with the columns of a table of rows, in either phase."""
        return super().as_rows(rows) if self._rows is None else self._rows.as_rows(self._name, rows)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key."""
        with self._lock:
            self._reach_to_write().multi_remove(keys)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows."""
        with self._lock:
            return self._reach().snapshot(txid)

    def _reach_to_write(self) -> TransactionView:
        if _note_write is not None:
            _note_write(self._component, self._name)
        return self._reach()

    def _reach(self) -> TransactionView:
        if self._view is None:
            raise StateAccessError(
                f"state {self._name!r} can be read and written in the commit phase only, because before it "
                "earlier transactions are not settled; do it in finish_batch()",
                component=self._component,
            )
        return self._view


class TaskContext(TopologyContext, Placed):
    """The context of one task."""

    def __init__(
        self, plan: Plan, component: PlannedComponent, task: int, views: StateViews | None, staging_dir: str = ""
    ) -> None:
        self.staging_dir = staging_dir
        self.topology_id = plan.topology_id
        self.this_component_id = component.id
        self.this_task_index = task
        self.place_reference = CONTEXT
        self._plan = plan
        self._phase = component.phase
        self._views = views

    def component_tasks(self, component: str) -> list[int]:
        """Return the task indices of a component."""
        return list(range(self._plan.by_id[component].tasks))

    def state(self, name: str) -> MapState:
        """Return the state of that name."""
        if self._phase is not Phase.COMMIT:
            raise StateAccessError(
                f"state {name!r} was asked for by a bolt that works ahead of the commit phase; make it a "
                "committer, or put it below one",
                component=self.this_component_id,
            )
        if name not in self._plan.states:
            known = ", ".join(repr(each) for each in self._plan.states) or "none"
            raise StateAccessError(
                f"there is no state {name!r}; add builder.set_state({name!r}, …); states that are set: {known}",
                component=self.this_component_id,
            )
        view = None if self._views is None else self._views[name]
        return StateHandle(self.this_component_id, name, view, self._plan.row_tables.get(name))


@attrs.define(eq=False)
class Workshop:
    """Makes contexts and components' objects, in one process, for one run of a topology.

    Args:
        plan: the topology.
        config: the configuration by dotted names.
        prototypes: each bolt's frozen object, by id.
    """

    plan: Plan
    config: Mapping[str, Any]
    prototypes: Mapping[str, bytes]
    staging_dir: str = ""
    """Where files wait for the commit phase, as the job at hand says."""
    _emitters: dict[int, Any] = attrs.field(factory=dict, init=False)
    _configurations: dict[str, Mapping[str, Any]] = attrs.field(factory=dict, init=False)

    def configuration(self, component: PlannedComponent) -> Mapping[str, Any]:
        """Return the configuration as a component sees it."""
        if component.id not in self._configurations:
            self._configurations[component.id] = {**self.config, **component.configuration}
        return self._configurations[component.id]

    def fresh(self, component: PlannedComponent) -> Any:
        """Return a new object of a bolt, as it was declared."""
        return thaw(type(component.component), self.prototypes[component.id], {})

    def emitter(self, task: int) -> Any:
        """Return the emitter of a spout task; made once in a process."""
        if task not in self._emitters:
            spout = self.plan.spout
            context = TaskContext(self.plan, spout, task, None)
            self._emitters[task] = spout.component.emitter(self.configuration(spout), context)
        return self._emitters[task]

    def cleanup_before(self, txid: int) -> None:
        """Tell every emitter made here that transactions below ``txid`` are done with."""
        for emitter in self._emitters.values():
            call_if_there(emitter, "cleanup_before", txid)

    def close(self) -> None:
        """Close the emitters."""
        while self._emitters:
            call_if_there(self._emitters.popitem()[1], "close")


def prototypes_of(plan: Plan) -> dict[str, bytes]:
    """Return each bolt's frozen object, by id.

    Raises:
        UserCodeError: a spout or bolt does not pickle.
    """
    frozen = {component.id: freeze(component.component) for component in plan.components}
    del frozen[plan.spout.id]  # it travels as it is, with all the rows that one in memory may hold
    return frozen


def place_of(context: TaskContext, collector: Any, plan: Plan) -> Place:
    """Return what references stand for in a task of the commit phase."""
    handles = {PlaceReference("state", name): context.state(name) for name in plan.states}
    return {COLLECTOR: collector, CONTEXT: context, **handles}


def attempt_origin(component: str, attempt: TransactionAttempt) -> dict[str, Any]:
    """Return the origin that errors carry, as keyword arguments."""
    return {"component": component, "txid": attempt.txid, "attempt": attempt.attempt}
