"""The graph as declared, unchecked: components, subscriptions, states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from txtopo.api.arguments import checked_arguments
from txtopo.api.components.bolt import Bolt
from txtopo.api.components.groupings import CustomStreamGrouping, Grouping, GroupingKind
from txtopo.api.components.spout import AnySpout, Spout
from txtopo.api.data.copying import copied
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM


@attrs.frozen
class Subscription:
    """One input of a bolt: a component's stream and a grouping."""

    source: str
    stream: str
    grouping: Grouping


@attrs.define(eq=False)
class Declared:
    """A declared spout or bolt."""

    id: str
    component: AnySpout | Spout | Bolt
    parallelism: Any
    is_committer: bool = False
    num_tasks: Any = None
    subscriptions: list[Subscription] = attrs.field(factory=list)
    configuration: dict[str, Any] = attrs.field(factory=dict)
    is_of_spout: bool = False
    """Whether it is a committer of the spout's tables."""
    is_spout: bool = False


class ComponentDeclarer:
    """Sets the options that spouts and bolts have in common."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared

    def set_num_tasks(self, num_tasks: int) -> ComponentDeclarer:
        """Set the number of tasks; it takes precedence over the parallelism."""
        self._declared.num_tasks = num_tasks
        return self

    @checked_arguments
    def add_configuration(self, name: str, value: Any) -> ComponentDeclarer:
        """Add a setting that only this component gets, in the ``config`` of its ``prepare``."""
        self._declared.configuration[name] = copied(value)
        return self


class BoltDeclarer(ComponentDeclarer):
    """Sets a bolt's inputs. Each grouping names a component and, unless it is the default, a stream."""

    def set_num_tasks(self, num_tasks: int) -> BoltDeclarer:
        """Set the number of tasks; it takes precedence over the parallelism."""
        super().set_num_tasks(num_tasks)
        return self

    @checked_arguments
    def add_configuration(self, name: str, value: Any) -> BoltDeclarer:
        """Add a setting that only this bolt gets, in the ``config`` of its ``prepare``."""
        super().add_configuration(name, value)
        return self

    def shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples evenly over the tasks."""
        return self.subscribe(component, stream, Grouping(GroupingKind.SHUFFLE))

    def fields_grouping(self, component: str, fields: Fields, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send tuples with equal values in ``fields`` to the same task."""
        return self.subscribe(component, stream, Grouping(GroupingKind.FIELDS, fields=_as_fields(fields)))

    def partial_key_grouping(self, component: str, fields: Fields, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send each tuple to the less loaded of two tasks, chosen by its values in ``fields``; for skewed keys."""
        return self.subscribe(component, stream, Grouping(GroupingKind.PARTIAL_KEY, fields=_as_fields(fields)))

    def global_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send every tuple to task 0."""
        return self.subscribe(component, stream, Grouping(GroupingKind.GLOBAL))

    def all_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send every tuple to every task."""
        return self.subscribe(component, stream, Grouping(GroupingKind.ALL))

    def none_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples in the cheapest way."""
        return self.subscribe(component, stream, Grouping(GroupingKind.NONE))

    def local_or_shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples evenly, within the process if possible."""
        return self.subscribe(component, stream, Grouping(GroupingKind.LOCAL_OR_SHUFFLE))

    def direct_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Let the emitter choose the task with ``emit_direct``."""
        return self.subscribe(component, stream, Grouping(GroupingKind.DIRECT))

    def custom_grouping(
        self, component: str, grouping: CustomStreamGrouping, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Let your own grouping choose the tasks."""
        return self.subscribe(component, stream, Grouping(GroupingKind.CUSTOM, custom=grouping))

    @checked_arguments
    def subscribe(self, component: str, stream: str, grouping: Grouping) -> BoltDeclarer:
        """Subscribe a stream by any grouping."""
        self._declared.subscriptions.append(Subscription(component, stream, grouping))
        return self


@checked_arguments
def _as_fields(fields: Fields | str | Sequence[str]) -> Fields:
    if isinstance(fields, Fields):
        return fields
    return Fields(fields) if isinstance(fields, str) else Fields(*fields)


@attrs.define(eq=False)
class Graph:
    """All declarations, in order."""

    topology_id: str
    declared: list[Declared] = attrs.field(factory=list)
    states: list[tuple[str, Any]] = attrs.field(factory=list)
    references: list[tuple[str, Any]] = attrs.field(factory=list)
    output: str | None = None

    @property
    def spouts(self) -> list[Declared]:
        """The declared spouts."""
        return [declared for declared in self.declared if declared.is_spout]

    @property
    def bolts(self) -> list[Declared]:
        """The declared bolts."""
        return [declared for declared in self.declared if not declared.is_spout]
