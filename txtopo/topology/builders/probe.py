"""Finds the states that the bolts of the commit phase request, before anything runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import cloudpickle

from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.data.copying import copied
from txtopo.api.data.utc import EPOCH
from txtopo.api.map_state import MapState
from txtopo.api.reference import ReferenceTable
from txtopo.attempts import TransactionAttempt
from txtopo.errors import StateAccessError
from txtopo.topology.plans.plan import ComponentKind, Phase, Plan, PlannedComponent

_ATTEMPT = TransactionAttempt(0, 0)


def find_state_mistakes(plan: Plan) -> Iterator[str]:
    """Find the states that bolts of the commit phase request but nobody set."""
    for component, requested in plan.requested_states.items():
        for name in requested:
            if name not in plan.states:
                state_names = ", ".join(repr(name) for name in plan.states) or "none"
                yield (
                    f"committer {component!r} requests state {name!r}, which is not set; add "
                    f"builder.set_state({name!r}, …); states that are set: {state_names}"
                )


def requested_states(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Call ``prepare`` on a copy of each bolt of the commit phase; return the states it requests, by component."""
    requested = {}
    for component in plan.of_phase(Phase.COMMIT):
        context = _ProbeContext(plan, component)
        _prepare_copy(component, context)
        requested[component.id] = tuple(dict.fromkeys(context.requested))
    return requested


def _prepare_copy(component: PlannedComponent, context: TopologyContext) -> None:
    # By cloudpickle, as for a task: what prepare() changes stays in the copy.
    copy = cloudpickle.loads(cloudpickle.dumps(component.component))
    configuration, collector = copied(component.configuration), _SilentCollector()
    try:
        if component.kind is ComponentKind.BASIC_BOLT:
            copy.prepare(configuration, context)
        else:
            copy.attempt, copy.collector, copy.context, copy.config = (_ATTEMPT, collector, context, configuration)
            copy.prepare(configuration, context, collector, _ATTEMPT)
    except Exception:  # noqa: BLE001 - only the requested states matter here; a run reports other errors
        return


class _ProbeContext(TopologyContext):
    def __init__(self, plan: Plan, component: PlannedComponent) -> None:
        self._plan = plan
        self.topology_id = plan.topology_id
        self.this_component_id = component.id
        self.this_task_index = 0
        self.requested: list[str] = []

    @property
    def planned_at(self) -> dt.datetime:
        return EPOCH

    @property
    def is_at_end(self) -> bool:
        return False

    def component_tasks(self, component: str) -> list[int]:
        return list(range(self._plan.by_id[component].tasks))

    def state(self, name: str) -> MapState:
        self.requested.append(name)
        return _ProbeState()

    def reference(self, name: str) -> ReferenceTable:
        del name
        return _ProbeReference()


class _ProbeReference(ReferenceTable):
    """Refuses all reads: there is no transaction."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise StateAccessError("a reference can be read in a transaction only")

    version = rows = property(_refuse)
    find = take = _refuse


class _ProbeState(MapState):
    """Refuses all reads and writes: no commit phase is running."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise StateAccessError("state can be read and written in the commit phase only")

    multi_get = values_before = rows_before = multi_put = put_rows = multi_update = multi_remove = snapshot = _refuse


class _SilentCollector(BatchOutputCollector):
    def _discard(self, *_: Any, **__: Any) -> None:
        pass

    emit = emit_direct = emit_batch = _discard
