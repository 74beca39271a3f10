"""Groupings: which tasks of a bolt get a tuple of a stream it subscribes to."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs

from txtopo.api.components.context import TopologyContext
from txtopo.api.data.fields import Fields


class GroupingKind(enum.Enum):
    """The groupings of Storm."""

    SHUFFLE = "shuffle"
    """Evenly over the tasks."""
    FIELDS = "fields"
    """Tuples with equal values in some fields go to the same task."""
    GLOBAL = "global"
    """Every tuple goes to task 0."""
    ALL = "all"
    """Every task gets every tuple."""
    NONE = "none"
    """Like shuffle: you do not care which task gets a tuple."""
    LOCAL_OR_SHUFFLE = "local or shuffle"
    """Like shuffle: txtopo keeps a tuple in its process if it can."""
    DIRECT = "direct"
    """The emitter names the task."""
    PARTIAL_KEY = "partial key"
    """Like fields, but each key has two tasks, and the less loaded one gets the tuple."""
    CUSTOM = "custom"
    """A :class:`CustomStreamGrouping` decides."""


EVEN = frozenset({GroupingKind.SHUFFLE, GroupingKind.NONE, GroupingKind.LOCAL_OR_SHUFFLE})
"""Groupings that keep a tuple in its task index if source and target have equal parallelism."""

KEYED = frozenset({GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY})
"""Groupings that choose a task by the values of some fields."""


class CustomStreamGrouping(ABC):
    """A user-defined grouping.

    *You* make it picklable and deterministic: for equal tuples of the same attempt and task it chooses equal tasks.

    *txtopo* guarantees to call ``prepare`` once for each attempt in each task that emits on the stream, before the
    first ``choose_tasks``.
    """

    def prepare(self, context: TopologyContext, stream: str, target_tasks: Sequence[int]) -> None:
        """Prepare for one task that emits on ``stream``; in a transactional topology, for one attempt in it.

        Args:
            context: the emitting task's place in the topology.
            stream: the name of the stream.
            target_tasks: the tasks of the subscribing bolt: ids in a plain topology, indices in a transactional one.
        """

    @abstractmethod
    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> Sequence[int]:
        """Return those of the target tasks that get a tuple.

        Args:
            source_task: the task that emits the tuple: its id in a plain topology, its index in a transactional one.
            values: the tuple's values; in a transactional topology, the attempt first.
        """


@attrs.frozen
class Grouping:
    """A declared grouping."""

    kind: GroupingKind
    fields: Fields | None = None
    custom: CustomStreamGrouping | None = None

    def moves(self, source_parallelism: int, target_parallelism: int) -> bool:
        """Return whether a tuple may go to another task index than the one that emitted it."""
        return self.kind not in EVEN or source_parallelism != target_parallelism

    @property
    def is_direct(self) -> bool:
        """Whether the emitter names the task."""
        return self.kind is GroupingKind.DIRECT

    def __str__(self) -> str:
        if self.fields is not None:
            return f"{self.kind.value}({', '.join(self.fields)})"
        return self.kind.value
