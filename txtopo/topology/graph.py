"""The graph as declared: components, subscriptions, states. Nothing is checked here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from txtopo.api.bolt import Bolt
from txtopo.api.copying import copied
from txtopo.api.fields import Fields
from txtopo.api.groupings import CustomStreamGrouping, Grouping, GroupingKind
from txtopo.api.spout import AnySpout
from txtopo.api.tuples import DEFAULT_STREAM


@attrs.frozen
class Subscription:
    """One input of a bolt: a component's stream, and how its tuples are spread."""

    source: str
    stream: str
    grouping: Grouping


@attrs.define(eq=False)
class Declared:
    """A spout or bolt as it was declared."""

    id: str
    component: AnySpout | Bolt
    parallelism: Any
    is_committer: bool = False
    num_tasks: Any = None
    subscriptions: list[Subscription] = attrs.field(factory=list)
    configuration: dict[str, Any] = attrs.field(factory=dict)
    is_of_spout: bool = False
    """Whether the spout brought it along."""


class ComponentDeclarer:
    """Sets what a spout and a bolt have in common."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared

    def set_num_tasks(self, num_tasks: int) -> ComponentDeclarer:
        """Set how many tasks the component has, where that is not its parallelism."""
        self._declared.num_tasks = num_tasks
        return self

    def add_configuration(self, name: str, value: Any) -> ComponentDeclarer:
        """Add a setting that only this component sees, in the ``config`` of its ``prepare``."""
        self._declared.configuration[name] = copied(value)
        return self


class BoltDeclarer(ComponentDeclarer):
    """Sets a bolt's inputs. Each grouping names a component and, where that has several, a stream."""

    def set_num_tasks(self, num_tasks: int) -> BoltDeclarer:
        """Set how many tasks the bolt has, where that is not its parallelism."""
        super().set_num_tasks(num_tasks)
        return self

    def add_configuration(self, name: str, value: Any) -> BoltDeclarer:
        """Add a setting that only this bolt sees, in the ``config`` of its ``prepare``."""
        super().add_configuration(name, value)
        return self

    def shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples evenly over the tasks."""
        return self._subscribe(component, stream, Grouping(GroupingKind.SHUFFLE))

    def fields_grouping(self, component: str, fields: Fields, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send tuples with equal values in ``fields`` to the same task."""
        return self._subscribe(component, stream, Grouping(GroupingKind.FIELDS, fields=_as_fields(fields)))

    def partial_key_grouping(self, component: str, fields: Fields, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send tuples with equal values in ``fields`` to one of two tasks, the less busy one: for skewed keys."""
        return self._subscribe(component, stream, Grouping(GroupingKind.PARTIAL_KEY, fields=_as_fields(fields)))

    def global_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send every tuple to task 0."""
        return self._subscribe(component, stream, Grouping(GroupingKind.GLOBAL))

    def all_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send every tuple to every task."""
        return self._subscribe(component, stream, Grouping(GroupingKind.ALL))

    def none_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples in whichever way is cheapest."""
        return self._subscribe(component, stream, Grouping(GroupingKind.NONE))

    def local_or_shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples evenly, within the process where that is possible."""
        return self._subscribe(component, stream, Grouping(GroupingKind.LOCAL_OR_SHUFFLE))

    def direct_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Let the emitter choose the task, by ``emit_direct``."""
        return self._subscribe(component, stream, Grouping(GroupingKind.DIRECT))

    def custom_grouping(
        self, component: str, grouping: CustomStreamGrouping, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Let a grouping of your own choose the tasks."""
        return self._subscribe(component, stream, Grouping(GroupingKind.CUSTOM, custom=grouping))

    def _subscribe(self, component: str, stream: str, grouping: Grouping) -> BoltDeclarer:
        self._declared.subscriptions.append(Subscription(component, stream, grouping))
        return self


def _as_fields(fields: Fields | str | Sequence[str]) -> Fields:
    if isinstance(fields, Fields):
        return fields
    return Fields(fields) if isinstance(fields, str) else Fields(*fields)


@attrs.define(eq=False)
class Graph:
    """Everything that was declared, in the order it was."""

    topology_id: str
    declared: list[Declared] = attrs.field(factory=list)
    states: list[tuple[str, Any]] = attrs.field(factory=list)
