"""Places: where tasks live, and what they find there: context, state handles, and their own bolt object."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.contracts.context import TopologyContext
from txtopo.contracts.copying import copied
from txtopo.contracts.optional import call_if_there
from txtopo.contracts.reduction import Reducible, Rows
from txtopo.contracts.state import Key, MapState, State, StateValue, Updater
from txtopo.core.attempts import TransactionAttempt
from txtopo.errors import RuleError, StateAccessError
from txtopo.phases.copying_view import StateView
from txtopo.phases.objects import Placed, PlaceReference, freeze, thaw
from txtopo.topology.plan import Phase, Plan, PlannedComponent

StateViews = Mapping[str, StateView]
"""The states as one transaction sees them, by name; empty in the processing phase."""

COLLECTOR = PlaceReference("collector")
CONTEXT = PlaceReference("context")
CONFIGURATION = PlaceReference("configuration")


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


NoteLate = Callable[[RuleError], None]
"""Is told of what a component does when its batch is over: the thread that does it may swallow the error."""


class StateHandle(MapState, Placed):
    """What a bolt holds of a state: it reaches the state in the commit phase only, and one thread at a time."""

    def __init__(
        self,
        component: str,
        name: str,
        view: StateView | None,
        rows: State | None,
        fitting: State | None = None,
    ) -> None:
        self.place_reference = PlaceReference("state", name)
        self._rows = rows
        self._fitting = fitting
        if rows is not None:
            self.fields = rows.value
            self.partition_by = rows.partition_by
        self._component = component
        self._name = name
        self._view = view
        self._lock = threading.RLock() if view is None else view.lock
        self._over: tuple[TransactionAttempt, NoteLate] | None = None

    def end(self, attempt: TransactionAttempt, note_late: NoteLate) -> None:
        """Refuse all that is asked of the state from now on, for the batch of ``attempt`` is over."""
        with self._lock:
            if self._view is not None:
                self._view, self._over = None, (attempt, note_late)

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

    def fitted(self, key: Key, value: Any) -> Key:
        """Return a key as it is kept, in either phase."""
        return key if self._fitting is None else self._fitting.fitted(self._name, key, value)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key."""
        with self._lock:
            self._reach_to_write().multi_remove(keys)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows."""
        with self._lock:
            return self._reach().snapshot(txid)

    def _reach_to_write(self) -> StateView:
        if _note_write is not None:
            _note_write(self._component, self._name)
        return self._reach()

    def _reach(self) -> StateView:
        if self._view is None:
            if self._over is not None:
                raise self._late(*self._over)
            raise StateAccessError(
                f"state {self._name!r} can be read and written in the commit phase only, because before it "
                "earlier transactions are not settled; do it in finish_batch()",
                component=self._component,
            )
        return self._view

    def _late(self, attempt: TransactionAttempt, note_late: NoteLate) -> StateAccessError:
        error = StateAccessError(
            f"state {self._name!r} was kept beyond the commit phase of transaction {attempt.txid}; ask context.state() "
            "for it anew in prepare(), and wait in finish_batch() for threads of your own",
            **attempt_origin(self._component, attempt),
        )
        note_late(error)
        return error


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
        self._handles: list[StateHandle] = []

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
        plan = self._plan
        handle = StateHandle(self.this_component_id, name, view, plan.row_tables.get(name), plan.fitting.get(name))
        self._handles.append(handle)
        return handle

    def end(self, attempt: TransactionAttempt, note_late: NoteLate) -> None:
        """Let go of the states: the batch of ``attempt`` is over."""
        for handle in self._handles:
            handle.end(attempt, note_late)


@attrs.frozen(eq=False)
class _Configured:
    """A component's configuration, and the names of the values that can be changed: each task gets a copy."""

    values: dict[str, Any]
    changeable: tuple[str, ...]

    def copy(self) -> dict[str, Any]:
        """Return a copy that shares nothing changeable."""
        made = self.values.copy()
        for name in self.changeable:
            made[name] = copied(made[name])
        return made


class Configuration(dict[str, Any], Placed):
    """The configuration as a component sees it: its own, to be changed at will.

    Every place has the like of it, so a bolt takes it along to another one only where it has changed it.
    """

    def __init__(self, configured: _Configured) -> None:
        super().__init__(configured.copy())
        self._configured = configured

    @property
    def place_reference(self) -> PlaceReference | None:  # type: ignore[override]
        """What another place has instead; None once it was changed."""
        return CONFIGURATION if self == self._configured.values else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a dictionary."""
        return dict, (dict(self),)


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
    tell_late: NoteLate | None = None
    """Tells the driver of what is done when a batch is over, from a process that nobody may ask again."""
    _late: deque[RuleError] = attrs.field(factory=deque, init=False)
    _emitters: dict[int, Any] = attrs.field(factory=dict, init=False)
    _configurations: dict[str, _Configured] = attrs.field(factory=dict, init=False)

    def configuration(self, component: PlannedComponent) -> Configuration:
        """Return the configuration as a component sees it: its own, to be changed at will."""
        found = self._configurations.get(component.id)
        if found is None:
            given = {**self.config, **component.configuration}
            own = {name: copied(value) for name, value in given.items()}
            changeable = tuple(name for name, value in own.items() if value is not given[name])
            found = self._configurations[component.id] = _Configured(own, changeable)
        return Configuration(found)

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

    def note_late(self, error: RuleError) -> None:
        """Note what a component has done when its batch was over; from any thread."""
        self._late.append(error)
        if self.tell_late is not None:
            self.tell_late(error)

    def take_late(self) -> RuleError | None:
        """Return what was noted so and not taken yet, the first of it; None if nothing was."""
        return self._late.popleft() if self._late else None

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


class TaskPlace(dict[PlaceReference, Any]):
    """What references stand for in a task of the commit phase; states are found when they are asked for."""

    def __init__(self, context: TaskContext, collector: Any, configuration: Configuration) -> None:
        super().__init__({COLLECTOR: collector, CONTEXT: context, CONFIGURATION: configuration})
        self._context = context

    def __missing__(self, reference: PlaceReference) -> Any:
        return self._context.state(reference.name)


def attempt_origin(component: str, attempt: TransactionAttempt) -> dict[str, Any]:
    """Return the origin that errors carry, as keyword arguments."""
    return {"component": component, "txid": attempt.txid, "attempt": attempt.attempt}
