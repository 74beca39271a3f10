"""What a spout or bolt alone is given in tests: a topology context of one task, without a topology, and tuples."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.context import TopologyContext
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM, Tuple, TupleSource
from txtopo.api.data.utc import EPOCH
from txtopo.api.map_state import MapState
from txtopo.api.reference import ReferenceTable
from txtopo.errors import StateAccessError, TopologyError
from txtopo.plain.trees.tuples import TreeTuple


@attrs.define(eq=False)
class PlainContext(TopologyContext):
    """A context with the values that you give.

    Args:
        this_component_id: the id of the spout or bolt under test.
        this_task_index: the index of its task, from 0.
        tasks: the number of its tasks.
        topology_id: the topology's id.
        components: the number of tasks of each other component, by id.
        states: the states that :meth:`state` returns, by name.
        references: the reference tables that :meth:`reference` returns, by name.
        planned_at: when the transaction was planned.
        is_at_end: whether it ends a bounded source.
        counts: what :meth:`count` was told, by name.
        gauges: what :meth:`gauge` was told last, by name and what it is of.
    """

    this_component_id: str = "spout"
    this_task_index: int = 0
    tasks: int = 1
    topology_id: str = "topology"
    components: Mapping[str, int] = attrs.field(factory=dict)
    states: Mapping[str, MapState] = attrs.field(factory=dict)
    references: Mapping[str, ReferenceTable] = attrs.field(factory=dict)
    planned_at: dt.datetime = EPOCH
    is_at_end: bool = False
    counts: dict[str, int] = attrs.field(factory=dict)
    gauges: dict[tuple[str, str], float | dt.datetime] = attrs.field(factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + by

    def gauge(self, name: str, value: float | dt.datetime, of: str = "") -> None:
        """Set a gauge."""
        self.gauges[name, of] = value

    def component_tasks(self, component: str) -> list[int]:
        """Return the task indices of a component.

        Raises:
            TopologyError: the context has no such component.
        """
        if component == self.this_component_id:
            return list(range(self.tasks))
        if component not in self.components:
            raise TopologyError(f"there is no component {component!r} here; name it in PlainContext(components=…)")
        return list(range(self.components[component]))

    def state(self, name: str) -> MapState:
        """Return the state of that name.

        Raises:
            StateAccessError: the context has no such state.
        """
        if name not in self.states:
            raise StateAccessError(f"there is no state {name!r} here; name it in PlainContext(states=…)")
        return self.states[name]

    def reference(self, name: str) -> ReferenceTable:
        """Return the reference table of that name.

        Raises:
            StateAccessError: the context has no such reference.
        """
        if name not in self.references:
            raise StateAccessError(f"there is no reference {name!r} here; name it in PlainContext(references=…)")
        return self.references[name]


def make_tuple(
    values: Sequence[Any],
    *,
    fields: Fields | Sequence[str] | None = None,
    component: str = "component",
    stream: str = DEFAULT_STREAM,
    task: int = 1,
) -> Tuple:
    """Return a tuple as a bolt of a plain topology receives it; it belongs to no tuple tree.

    The fields are field1, field2 and so on unless given. ``component``, ``stream`` and ``task`` say where it comes
    from.

    Raises:
        ValueError: there are not as many fields as values.
    """
    names = [f"field{number}" for number in range(1, len(values) + 1)] if fields is None else list(fields)
    if len(names) != len(values):
        raise ValueError(f"{len(values)} values for the {len(names)} fields {', '.join(names)}")
    return TreeTuple(tuple(values), TupleSource(component, stream, task, Fields(*names)), 0, 0)
