"""The plan of a plain topology: its components with their tasks, and the edges between them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from txtopo.api.data.fields import Fields
from txtopo.config import Config, component_config
from txtopo.topology.plans.plan import Edge

SYSTEM = "__system"
"""The component that emits ticks, and a stream of every component, on which nothing is emitted."""

TICK_STREAM = "__tick"

SYSTEM_TASK = -1
"""The task that emits ticks."""


class PlainKind(enum.Enum):
    """How a component of a plain topology is run."""

    SPOUT = "spout"
    RICH_BOLT = "rich bolt"
    BASIC_BOLT = "basic bolt"


@attrs.frozen
class PlainComponent:
    """A spout or bolt of a plain topology."""

    id: str
    kind: PlainKind
    component: Any
    """The declared object: the prototype of each task's object."""
    parallelism: int
    """The number of executors; tasks of one executor stay in one worker."""
    tasks: tuple[int, ...]
    """The ids of its tasks, unique in the topology."""
    streams: Mapping[str, Fields]
    direct_streams: frozenset[str]
    configuration: Mapping[str, Any]
    takes_batches: bool = False
    """Whether txtopo calls ``execute_batch`` of its bolt."""


@attrs.frozen(slots=False)
class PlainPlan:
    """The components, in the order of declaration, and their edges."""

    topology_id: str
    components: tuple[PlainComponent, ...]
    edges: tuple[Edge, ...]

    @cached_property
    def by_id(self) -> Mapping[str, PlainComponent]:
        """The components by id."""
        return {component.id: component for component in self.components}

    @cached_property
    def spouts(self) -> tuple[PlainComponent, ...]:
        """The spouts."""
        return tuple(component for component in self.components if component.kind is PlainKind.SPOUT)

    def limited(self, config: Config) -> PlainPlan:
        """Return the plan with at most ``topology.max.task.parallelism`` tasks a component; new ids have no gaps."""
        components: list[PlainComponent] = []
        next_task = 1
        for component in self.components:
            most = component_config(config, component.configuration)["topology.max.task.parallelism"]
            count = len(component.tasks) if most is None else min(len(component.tasks), most)
            tasks = tuple(range(next_task, next_task + count))
            components.append(attrs.evolve(component, tasks=tasks, parallelism=min(component.parallelism, count)))
            next_task += count
        return attrs.evolve(self, components=tuple(components))

    def without_objects(self) -> PlainPlan:
        """Return the plan as workers need it: without the declared objects, which they get pickled."""
        return attrs.evolve(
            self, components=tuple(attrs.evolve(component, component=None) for component in self.components)
        )

    def outputs(self, component: str, stream: str) -> tuple[Edge, ...]:
        """Return the edges that a stream feeds."""
        return tuple(edge for edge in self.edges if (edge.source, edge.stream) == (component, stream))
