"""The context of a task of a plain topology."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

from txtopo.api.components.context import TaskHook, TopologyContext
from txtopo.api.map_state import MapState
from txtopo.errors import StateAccessError, TopologyError
from txtopo.plain.tasks.offload import Offloading
from txtopo.topology.plans.plain_plan import PlainComponent, PlainPlan


class PlainTaskContext(TopologyContext):
    """The context of one task. The component may add to ``hooks``; its code runs within ``user_code()``."""

    def __init__(  # noqa: PLR0913, PLR0917 - everything that a task may ask for
        self,
        plan: PlainPlan,
        component: PlainComponent,
        task: int,
        config: Mapping[str, Any],
        hooks: list[TaskHook],
        offloading: Offloading,
        user_code: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.topology_id = plan.topology_id
        self.this_component_id = component.id
        self.this_task_index = component.tasks.index(task)
        self._task = task
        self._plan = plan
        self._config = config
        self._hooks = hooks
        self._offloading = offloading
        self._user_code = user_code

    @property
    def this_task_id(self) -> int:
        """The id of this task, unique in the topology."""
        return self._task

    def component_tasks(self, component: str) -> list[int]:
        """Return the ids of a component's tasks, in order; raise TopologyError if there is no such component."""
        planned = self._plan.by_id.get(component)
        if planned is None:
            ids = ", ".join(map(repr, self._plan.by_id))
            raise TopologyError(
                f"there is no component {component!r}; there are: {ids}", component=self.this_component_id
            )
        return list(planned.tasks)

    def offload(self, call: Callable[[], Any], on_done: Callable[[Future[Any]], None]) -> None:
        """Run a slow call in the thread of this task, and then ``on_done`` in the worker's."""

        def on_done_here(future: Future[Any]) -> None:
            with self._user_code():
                on_done(future)

        self._offloading.submit(self._task, call, on_done_here)

    def add_task_hook(self, hook: TaskHook) -> None:
        """Add a hook that watches this task."""
        hook.prepare(self._config, self)
        self._hooks.append(hook)

    def state(self, name: str) -> MapState:
        """Raise StateAccessError: only transactional topologies have states."""
        raise StateAccessError(
            f"a plain topology has no states, so no {name!r}; write what you count by a sink of committers, or use a "
            "transactional topology",
            component=self.this_component_id,
        )
