"""What the tasks of a worker share, and what tasks of spouts and bolts have in common."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from txtopo.api.components.collector import OutputCollector, SpoutOutputCollector
from txtopo.api.components.context import TaskHook
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import TupleSource
from txtopo.config import Config, component_config
from txtopo.plain.tasks.context import PlainTaskContext
from txtopo.plain.tasks.errors import ErrorReporter, blamed
from txtopo.plain.tasks.metrics import Counts
from txtopo.plain.tasks.offload import Offloading
from txtopo.plain.tasks.outbox import Outbox
from txtopo.plain.tasks.output import OutputStream, TaskOutput
from txtopo.plain.tasks.queues import TaskQueue
from txtopo.topology.plans.assignment import Assignment
from txtopo.topology.plans.groupings import chooser
from txtopo.topology.plans.plain_plan import SYSTEM, SYSTEM_TASK, TICK_STREAM, PlainComponent, PlainPlan

WEIGHED_SECS = 0.001
"""A task's output is weighed each time its turn has taken this long: meanwhile, it can't fill more than some MB."""


class Observer:
    """Observes the tasks of a worker; this one only records which task has its turn."""

    current: tuple[str, int] | None = None
    """The component and task whose code runs, for any thread to read; None: no task's code does."""

    def turn(self, component: str, task: int) -> None:
        """Called when the code of a task begins to run."""
        self.current = component, task

    def no_turn(self) -> None:
        """Called when no task's code runs any more."""
        self.current = None

    def timers_ran(self) -> None:
        """Called several times a second."""

    def watched_bolt(self, task: int, collector: OutputCollector) -> OutputCollector:
        """Return what a bolt's task emits and acks with, given its collector: the same, or one that watches it."""
        del task
        return collector

    def watched_spout(self, collector: SpoutOutputCollector) -> SpoutOutputCollector:
        """Return what a spout's task emits with, given its collector."""
        return collector


@attrs.frozen
class Shared:
    """What all tasks of a worker share."""

    plan: PlainPlan
    assignment: Assignment
    worker: int
    config: Config
    outbox: Outbox
    queues: Mapping[int, TaskQueue]
    """The queues of the bolts' tasks, by task."""
    sources: Sequence[TupleSource]
    """Where tuples come from, by the numbers of tasks and streams; see :func:`tuple_sources`."""
    clock: Callable[[], float]
    """Returns the time, in seconds."""
    rng: random.Random
    make_object: Callable[[str], Any]
    """Makes a task's object, given the component's id."""
    offloading: Offloading
    observer: Observer
    is_full: Callable[[], bool]
    """Weighs all tuples that wait; returns whether a task that emits must end its turn."""


def tuple_sources(plan: PlainPlan) -> list[TupleSource]:
    """Return where tuples come from, every stream of every task and then ticks: frames name a source by its place."""
    return [
        *(
            TupleSource(component.id, stream, task, fields)
            for component in plan.components
            for task in component.tasks
            for stream, fields in component.streams.items()
        ),
        TupleSource(SYSTEM, TICK_STREAM, SYSTEM_TASK, Fields("rate_secs")),
    ]


class Task(ABC):
    """A task of a spout or bolt."""

    def __init__(self, shared: Shared, component: PlainComponent, task: int) -> None:
        self.component = component
        self.id = task
        self.config = component_config(shared.config, component.configuration)
        self.errors = ErrorReporter(
            component.id,
            task,
            shared.clock,
            shared.config.error_throttle_interval_secs,
            shared.config.max_error_report_per_interval,
        )
        self._observer = shared.observer
        self._hooks: list[TaskHook] = []
        self.context = PlainTaskContext(
            shared.plan, component, task, self.config, self._hooks, shared.offloading, self.user_code
        )
        with self.user_code():  # custom groupings are prepared
            streams = {name: self._stream(shared, name, fields) for name, fields in component.streams.items()}
        self.output = TaskOutput(
            component.id, task, streams, shared.outbox, shared.rng.getrandbits, self.errors, self._hooks
        )

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """The counts of the task."""

    @abstractmethod
    def close(self) -> None:
        """Close the task's object and its hooks."""

    @contextmanager
    def user_code(self) -> Iterator[None]:
        """Run the user's code outside of a pass, as the task's turn. Its errors name the task."""
        self._observer.turn(self.component.id, self.id)
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - the user's code
            raise self.blamed(error) from None
        finally:
            self._observer.no_turn()

    def blamed(self, error: BaseException, at: str = "") -> BaseException:
        """Return an exception of the user's code as one that names the component and the task, and what it was at."""
        return blamed(error, self.component.id, self.id, at)

    def close_hooks(self) -> None:
        """Tell the hooks that the run ends."""
        for hook in self._hooks:
            hook.cleanup()

    def _stream(self, shared: Shared, name: str, fields: Fields) -> OutputStream:
        plan, worker_of = shared.plan, shared.assignment.worker_of
        number = shared.sources.index(TupleSource(self.component.id, name, self.id, fields))
        choices, direct = [], set[int]()
        for edge in plan.outputs(self.component.id, name):
            tasks = plan.by_id[edge.target].tasks
            if edge.grouping.is_direct:
                direct.update(tasks)
                continue
            local = [task for task in tasks if worker_of[task] == shared.worker]
            choices.append(chooser(edge, fields, self.id, tasks, local, self.context, shared.rng))
        return OutputStream(
            name=name,
            fields=fields,
            source=shared.sources[number],
            number=number,
            choices=choices,
            direct_tasks=frozenset(direct) if name in self.component.direct_streams else None,
        )
