"""The task factory: creates the parts of tasks, in one process, for one run of a topology."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs

from txtopo.api.components.optional import call_if_there
from txtopo.api.data.copying import UNCHANGEABLE, copied
from txtopo.errors import RuleError
from txtopo.files.folder import Folder
from txtopo.topology.plans.plan import Plan, PlannedComponent
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.tasks.context import CONTEXT, TaskContext
from txtopo.transactional.tasks.objects import Local, LocalReference, dump_object, maker_of
from txtopo.transactional.tasks.reference_handle import REFERENCE
from txtopo.transactional.tasks.state_handle import RecordLate, RecordWrite


def nothing_is_late(error: RuleError) -> None:
    """Do nothing: for tasks outside of a run."""


COLLECTOR = LocalReference("collector")
CONFIGURATION = LocalReference("configuration")


@attrs.frozen(eq=False)
class _Configured:
    """A component's configuration, and the names of its mutable values, of which each task gets a copy."""

    values: dict[str, Any]
    changeable: tuple[str, ...]

    @staticmethod
    def of(configuration: Mapping[str, Any]) -> _Configured:
        constants, changeable = dict(configuration), []
        for name, value in configuration.items():
            if type(value) not in UNCHANGEABLE:
                constants[name] = copied(value)
                if constants[name] is not value:
                    changeable.append(name)
        return _Configured(constants, tuple(changeable))


class Configuration(dict[str, Any], Local):
    """A task's copy of its component's configuration, which it may change.

    Every task gets an equal copy, so a bolt that is pickled for another task includes it only if it has changed it.
    """

    def __init__(self, configured: _Configured) -> None:
        super().__init__(configured.values)
        for name in configured.changeable:
            self[name] = copied(self[name])
        self._configured = configured

    @property
    def local_reference(self) -> LocalReference | None:  # type: ignore[override]
        """A reference to another task's equal copy; None once this one was changed."""
        return CONFIGURATION if self == self._configured.values else None

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


@attrs.define(eq=False)
class TaskFactory:
    """Creates contexts and components' objects, in one process, for one run of a topology."""

    plan: Plan
    config: Mapping[str, Any]
    prototypes: Mapping[str, bytes]
    staging: Folder | None = None
    """The current job's folder for files that are read in the commit phase."""
    record_late: RecordLate = nothing_is_late
    """Tells the run loop what a component's own thread did after its batch was over; called in that thread."""
    record_write: RecordWrite | None = None
    """Told of each write of a component to a state, if anybody asks for that."""
    _emitters: dict[tuple[str, int], Any] = attrs.field(factory=dict, init=False)
    _configurations: dict[str, _Configured] = attrs.field(factory=dict, init=False)

    def configuration(self, component: PlannedComponent) -> Configuration:
        """Return a new copy of a component's configuration, which its task may change."""
        configured = self._configurations.get(component.id)
        if configured is None:
            overrides = component.configuration
            configured = _Configured.of({**self._of_all.values, **overrides}) if overrides else self._of_all
            self._configurations[component.id] = configured
        return Configuration(configured)

    @functools.cached_property
    def _of_all(self) -> _Configured:
        """The configuration of components without their own settings."""
        return _Configured.of(dict(self.config.items()))

    def fresh(self, component: PlannedComponent) -> Any:
        """Return a new copy of a declared bolt."""
        return maker_of(component.component.__class__, self.prototypes[component.id])()

    def coordinator(self, spout: PlannedComponent) -> Any:
        """Return a new coordinator of a spout; call this in the driver."""
        return spout.component.coordinator(self.configuration(spout), TaskContext(self.plan, spout, 0, None))

    def emitter(self, spout: PlannedComponent, task: int) -> Any:
        """Return the emitter of a spout task; created once in each process."""
        if (spout.id, task) not in self._emitters:
            context = TaskContext(self.plan, spout, task, None)
            self._emitters[spout.id, task] = spout.component.emitter(self.configuration(spout), context)
        return self._emitters[spout.id, task]

    def cleanup_before(self, spout_id: str, txid: int) -> None:
        """Call ``cleanup_before`` of every emitter of a spout in this process."""
        for (name, _), emitter in self._emitters.items():
            if name == spout_id:
                call_if_there(emitter, "cleanup_before", txid)

    def close(self) -> None:
        """Close the emitters."""
        # Each is removed before it is closed, so that a second close() does not close it again if this one raises.
        while self._emitters:
            call_if_there(self._emitters.popitem()[1], "close")


def prototypes_of(plan: Plan) -> dict[str, bytes]:
    """Return each bolt's pickled object, by component id; raise UserCodeError if a spout or bolt does not pickle."""
    frozen = {}
    for component in plan.components:
        with user_code(component.id, None):
            frozen[component.id] = dump_object(component.component)
    for spout in plan.spouts:
        del frozen[spout.id]  # the plan has it already, with all rows that an in-memory spout may hold
    return frozen


class TaskBindings(dict[LocalReference, Any]):
    """The targets of references in a task of the commit phase; states and reference tables are looked up on access."""

    def __init__(self, context: TaskContext, collector: Any, configuration: Configuration) -> None:
        super().__init__({COLLECTOR: collector, CONTEXT: context, CONFIGURATION: configuration})
        self._context = context

    def __missing__(self, reference: LocalReference) -> Any:
        handle_of = self._context.reference if reference.role == REFERENCE else self._context.state
        return handle_of(reference.name)
