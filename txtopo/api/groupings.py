"""Groupings: which tasks of a bolt get a tuple of a stream it subscribes to."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs

from txtopo.api.context import TopologyContext
from txtopo.api.fields import Fields


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
    """As shuffle: you do not care."""
    LOCAL_OR_SHUFFLE = "local or shuffle"
    """As shuffle: tasks that can be in the same process are."""
    DIRECT = "direct"
    """The emitter names the task."""
    PARTIAL_KEY = "partial key"
    """As fields, but each key has two tasks, and the one with less to do gets the tuple."""
    CUSTOM = "custom"
    """A :class:`CustomStreamGrouping` decides."""


EVEN = frozenset({GroupingKind.SHUFFLE, GroupingKind.NONE, GroupingKind.LOCAL_OR_SHUFFLE})
"""Groupings that move nothing between components of equal parallelism."""

KEYED = frozenset({GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY})
"""Groupings that look at the values of some fields."""


class CustomStreamGrouping(ABC):
    """A grouping of your own. Must pickle, and must choose alike for equal tuples of an attempt and task."""

    def prepare(self, context: TopologyContext, stream: str, target_tasks: Sequence[int]) -> None:
        """Get ready; called once for each attempt in each task that emits on ``stream``."""

    @abstractmethod
    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> Sequence[int]:
        """Return the indices of the tasks that get a tuple.

        Args:
            source_task: the index of the task that emits it.
            values: its values, the attempt first.
        """


@attrs.frozen
class Grouping:
    """A grouping as it was declared."""

    kind: GroupingKind
    fields: Fields | None = None
    custom: CustomStreamGrouping | None = None

    def moves(self, source_parallelism: int, target_parallelism: int) -> bool:
        """Whether tuples may leave the task index they are emitted in."""
        return self.kind not in EVEN or source_parallelism != target_parallelism

    def __str__(self) -> str:
        if self.fields is not None:
            return f"{self.kind.value}({', '.join(self.fields)})"
        return self.kind.value
