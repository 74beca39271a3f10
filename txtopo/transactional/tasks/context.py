"""The context of a task: its place in the topology, and the states that it may use."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from txtopo.api.components.context import TopologyContext
from txtopo.api.components.planned import BeginReason, Planned
from txtopo.api.data.tuples import TupleSource
from txtopo.api.map_state import MapState
from txtopo.attempts import TransactionAttempt
from txtopo.errors import StateAccessError
from txtopo.files.folder import Folder
from txtopo.topology.plans.plan import Phase, Plan, PlannedComponent
from txtopo.transactional.core.readings import Readings
from txtopo.transactional.tasks.objects import Local, LocalReference
from txtopo.transactional.tasks.reference_handle import ReferenceHandle
from txtopo.transactional.tasks.state_handle import RecordLate, RecordWrite, StateHandle, StateView

StateViews = Mapping[str, StateView]
"""One transaction's views of the states, by name."""

CONTEXT = LocalReference("context")


class TaskContext(TopologyContext, Local):
    """The context of one task."""

    def __init__(  # noqa: PLR0913 - the parts of a task's place
        self,
        plan: Plan,
        component: PlannedComponent,
        task: int,
        views: StateViews | None,
        staging: Folder | None = None,
        *,
        planned: Planned | None = None,
        readings: Readings | None = None,
        record_write: RecordWrite | None = None,
    ) -> None:
        self._staging = staging
        self.has_staged = False
        """Whether the task has asked for its staging folder, and so may have files there."""
        self.topology_id = plan.topology_id
        self.this_component_id = component.id
        self.this_task_index = task
        self.local_reference = CONTEXT
        self._plan = plan
        self._phase = component.phase
        self._views = views
        self._planned = planned
        self._readings = readings
        self._record_write = record_write
        self._handles: list[StateHandle] = []
        self._source: TupleSource | None = None

    @property
    def staging(self) -> Folder | None:
        """The current job's folder for files that are read in the commit phase."""
        self.has_staged = self._staging is not None
        return self._staging

    @property
    def planned_at(self) -> dt.datetime:
        """When the transaction was planned."""
        return super().planned_at if self._planned is None else self._planned.at

    @property
    def is_at_end(self) -> bool:
        """Whether the transaction ends a bounded source."""
        return super().is_at_end if self._planned is None else self._planned.turn is BeginReason.END

    @property
    def source(self) -> TupleSource:
        """The source of the batch that is executed."""
        return super().source if self._source is None else self._source

    def executes(self, source: TupleSource) -> None:
        """Take note of the source of what the bolt executes from now on."""
        self._source = source

    @property
    def this_sources(self) -> tuple[tuple[str, str], ...]:
        """The component and the stream of each subscription."""
        edges = self._plan.inputs(self.this_component_id)
        return tuple(dict.fromkeys((edge.source, edge.stream) for edge in edges))

    @property
    def sources_ahead(self) -> frozenset[str]:
        """The components without tuples in the transaction because their spout waited for another one."""
        if self._planned is None:
            return super().sources_ahead
        ahead = set(self._planned.ahead)
        above = self._plan.spouts_above
        return frozenset(name for name, _ in self.this_sources if ahead and not ahead.isdisjoint(above(name)))

    @property
    def this_targets(self) -> Mapping[str, tuple[str, ...]]:
        """The components that subscribe to each stream."""
        component = self._plan.by_id[self.this_component_id]
        edges = {stream: self._plan.outputs(component.id, stream) for stream in component.streams}
        return {stream: tuple(edge.target for edge in each) for stream, each in edges.items() if each}

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count."""
        self._reached("count").count(self.this_component_id, name, by)

    def gauge(self, name: str, value: float | dt.datetime, of: str = "") -> None:
        """Set a gauge."""
        self._reached("gauge").gauge(self.this_component_id, name, value, of)

    def _reached(self, purpose: str) -> Readings:
        if self._readings is None:
            raise self._no_readings(purpose)
        return self._readings

    def component_tasks(self, component: str) -> list[int]:
        """Return the task indices of a component."""
        return list(range(self._plan.by_id[component].tasks))

    def state(self, name: str) -> MapState:
        """Return the state with this name."""
        if self._phase is not Phase.COMMIT:
            raise StateAccessError(
                f"state {name!r} was requested by a bolt of the processing phase; make it a "
                "committer, or move it below one",
                component=self.this_component_id,
            )
        if name not in self._plan.states:
            names_text = ", ".join(repr(each) for each in self._plan.states) or "none"
            raise StateAccessError(
                f"there is no state {name!r}; add builder.set_state({name!r}, …); states that are set: {names_text}",
                component=self.this_component_id,
            )
        # None in the processing phase, where a committer may ask for the handle but not use it yet.
        view = None if self._views is None else self._views[name]
        plan = self._plan
        fitting = plan.fitting.get(name)
        handle = StateHandle(
            self.this_component_id, name, view, plan.row_tables.get(name), fitting, record_write=self._record_write
        )
        self._handles.append(handle)
        return handle

    def reference(self, name: str) -> ReferenceHandle:
        """Return the reference table with this name."""
        reference = self._plan.references.get(name)
        if reference is None:
            names_text = ", ".join(map(repr, self._plan.references)) or "none"
            raise StateAccessError(
                f"there is no reference {name!r}; add builder.set_reference({name!r}, …); references that are set: "
                f"{names_text}",
                component=self.this_component_id,
            )
        return ReferenceHandle(name, reference, self._planned)

    def end(self, attempt: TransactionAttempt, record_late: RecordLate) -> None:
        """Release the states, because the batch of ``attempt`` is over."""
        for handle in self._handles:
            handle.end(attempt, record_late)
