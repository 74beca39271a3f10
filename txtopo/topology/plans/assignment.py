"""The assignment: which worker has which tasks of a plain topology, including its ackers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs

from txtopo.topology.plans.plain_plan import PlainComponent, PlainPlan

ACKER = "__acker"
"""The component that ackers are tasks of."""


@attrs.frozen
class Executor:
    """Tasks of a component that stay together in one worker; a spout's have a common limit of pending roots."""

    component: str
    tasks: tuple[int, ...]
    worker: int


@attrs.frozen(slots=False)
class Assignment:
    """Where the tasks of a topology are. Workers are numbered from 0."""

    workers: int
    executors: tuple[Executor, ...]
    """The executors of all components, those of :data:`ACKER` last."""

    @cached_property
    def worker_of(self) -> Mapping[int, int]:
        """The worker of each task, also of ackers."""
        return {task: executor.worker for executor in self.executors for task in executor.tasks}

    @cached_property
    def acker_tasks(self) -> tuple[int, ...]:
        """The tasks of the ackers, by the ackers' numbers: 0 and up."""
        return tuple(task for executor in self.executors if executor.component == ACKER for task in executor.tasks)

    @cached_property
    def is_acking(self) -> bool:
        """Whether tuple trees are tracked."""
        return bool(self.acker_tasks)

    def ackers_of(self, worker: int) -> list[int]:
        """Return the numbers, not the tasks, of the ackers in a worker."""
        return [number for number, task in enumerate(self.acker_tasks) if self.worker_of[task] == worker]

    def executors_of(self, worker: int) -> tuple[Executor, ...]:
        """Return the executors in a worker."""
        return tuple(executor for executor in self.executors if executor.worker == worker)


def assign(plan: PlainPlan, workers: int, ackers: int | None) -> Assignment:
    """Deal the executors out to the workers in turn, and give each worker with spouts its ackers.

    A root's acker is in the worker of its spout task, so that the two die together. So every worker with spouts has at
    least one acker, and no other worker has any. If ``ackers`` is None, each has one; if it is 0, no trees are tracked.
    """
    shares = [(component.id, tasks) for component in plan.components for tasks in _split(component)]
    executors = [Executor(component, tasks, index % workers) for index, (component, tasks) in enumerate(shares)]
    spouts = {component.id for component in plan.spouts}
    homes = sorted({executor.worker for executor in executors if executor.component in spouts})
    acker_count = len(homes) if ackers is None else 0 if ackers == 0 else max(ackers, len(homes))
    first = 1 + max(task for component in plan.components for task in component.tasks)
    trackers = [Executor(ACKER, (first + i,), homes[i % len(homes)]) for i in range(acker_count)]
    return Assignment(workers, (*executors, *trackers))


def _split(component: PlainComponent) -> list[tuple[int, ...]]:
    least, more = divmod(len(component.tasks), component.parallelism)
    sizes = [least + (index < more) for index in range(component.parallelism)]
    shares, start = [], 0
    for size in sizes:
        shares.append(component.tasks[start : start + size])
        start += size
    return shares
