"""Which topics a spout reads, and which of their partitions each task reads."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import attrs

from spouts.kafka.log import ANY_TOPIC, TopicChoice, TopicPartition
from txtopo.errors import ConfigError

_log = logging.getLogger(__name__)


class TopicFilter(ABC):
    """Chooses topics. Must pickle."""

    @property
    @abstractmethod
    def names(self) -> Collection[str] | None:
        """The topics to ask for; None for all, to choose from."""

    @property
    def choice(self) -> TopicChoice:
        """What to ask Kafka for."""
        return ANY_TOPIC if self.names is None else TopicChoice(tuple(sorted(self.names)))

    @property
    @abstractmethod
    def subscription(self) -> list[str]:
        """The topics as a consumer subscribes to them: names, or patterns that begin with ``^``."""

    @abstractmethod
    def chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions of the chosen topics, sorted."""


class NamedTopicFilter(TopicFilter):
    """Chooses topics by their exact names.

    A topic that does not exist when the spout begins ends the run. One that disappears later is left out until it is
    back, with a warning.

    Raises:
        ConfigError: there is no name, or a name is empty or no string.
    """

    def __init__(self, *names: str) -> None:
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ConfigError(f"topics must be names, one at least, not {names!r}")
        self._names = frozenset(names)
        self._missing: frozenset[str] = frozenset()

    @property
    def names(self) -> Collection[str]:
        """The names."""
        return self._names

    @property
    def subscription(self) -> list[str]:
        """The names."""
        return sorted(self._names)

    def chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions of these topics, sorted."""
        found = sorted(each for each in partitions if each.topic in self._names)
        missing = self._names.difference(each.topic for each in found)
        if missing - self._missing:
            _log.warning(
                "there is no topic %s any more; it is read as soon as there is", ", ".join(map(repr, sorted(missing)))
            )
        self._missing = missing  # so that it warns once of each disappearance, and not at every look
        return found

    def __repr__(self) -> str:
        return f"NamedTopicFilter({', '.join(map(repr, sorted(self._names)))})"


class PatternTopicFilter(TopicFilter):
    """Chooses the topics whose whole name matches a regular expression.

    Args:
        pattern: the expression, Python's. With a subscription librdkafka matches it too, so keep to what POSIX has.

    Raises:
        ConfigError: it is no regular expression.
    """

    def __init__(self, pattern: str | re.Pattern[str]) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"{pattern!r} is no regular expression: {error}") from None

    @property
    def names(self) -> None:
        """None: any topic may match the pattern."""
        return

    @property
    def choice(self) -> TopicChoice:
        """The pattern."""
        return TopicChoice((), self._pattern)

    @property
    def subscription(self) -> list[str]:
        """The pattern, anchored at both ends; librdkafka takes a topic for a pattern if it begins with ``^``."""
        return [f"^({self._pattern.pattern.removeprefix('^')})$"]

    def chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions of the topics that match, sorted."""
        return sorted(each for each in partitions if self._pattern.fullmatch(each.topic))

    def __repr__(self) -> str:
        return f"PatternTopicFilter({self._pattern.pattern!r})"


def topic_filter(topics: Any) -> TopicFilter:
    """Return the filter for a spout's ``topics``: a filter, a name, several names, or a pattern."""
    match topics:
        case TopicFilter():
            return topics
        case str() if topics.startswith("^"):
            return PatternTopicFilter(topics)
        case str():
            return NamedTopicFilter(topics)
        case re.Pattern():
            return PatternTopicFilter(topics)
        case _:
            return NamedTopicFilter(*topics)


class Partitioner(ABC):
    """Shares partitions among the tasks of a spout. Must pickle.

    *You* give every partition to exactly one task, in whatever order the tasks ask.
    """

    @abstractmethod
    def share(self, partitions: Sequence[TopicPartition], task_index: int, tasks: int) -> list[TopicPartition]:
        """Return the partitions of one task.

        Args:
            partitions: all of them, sorted by topic and partition.
            task_index: the task's place among the spout's tasks, from 0.
            tasks: the number of the spout's tasks.
        """


@attrs.frozen
class RoundRobinPartitioner(Partitioner):
    """Deals the partitions to the tasks in turn."""

    def share(self, partitions: Sequence[TopicPartition], task_index: int, tasks: int) -> list[TopicPartition]:
        """Return every *tasks*-th partition, from *task_index* on."""
        return list(partitions[task_index::tasks])
