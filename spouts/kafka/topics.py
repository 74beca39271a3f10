"""Which topics a spout reads."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from spouts.kafka.log import KafkaLog, Topic, TopicFilter, TopicPartition
from txtopo.api.arguments import checked_arguments
from txtopo.errors import ConfigError, InputError
from txtopo.text.suggestions import did_you_mean

_log = logging.getLogger(__name__)

_NAMED_MAX = 20
"""How many topics an error message lists."""


def _no_topics(value: Any) -> ConfigError:
    return ConfigError(f"topics is {value!r}; give a name, a list of different names, or a pattern ('^clicks-')")


class NamedTopicFilter(TopicFilter):
    """Chooses topics by their exact names.

    A topic that does not exist when the spout begins ends the run. One that disappears later is left out until it is
    back, with a warning.

    Raises:
        ConfigError: there is no name, a name is given twice, or a name is empty or not a string.
    """

    def __init__(self, *names: str) -> None:
        is_wrong = any(not isinstance(name, str) or not name for name in names)
        if is_wrong or not names or len(set(names)) < len(names):
            raise _no_topics(names)
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
        partitions_chosen = sorted(partition for partition in partitions if partition.topic in self._names)
        missing = self._names.difference(partition.topic for partition in partitions_chosen)
        if missing - self._missing:
            _log.warning(
                "there is no topic %s any more; it is read as soon as there is", ", ".join(map(repr, sorted(missing)))
            )
        self._missing = missing  # so that it warns once of each disappearance, and not at every look
        return partitions_chosen

    def __repr__(self) -> str:
        return f"NamedTopicFilter({', '.join(map(repr, sorted(self._names)))})"


class PatternTopicFilter(TopicFilter):
    """Chooses the topics whose whole name matches a regular expression; never Kafka's own.

    Args:
        pattern: the expression, Python's. With a subscription librdkafka matches it too, so keep to what POSIX has.

    Raises:
        ConfigError: it is not a regular expression.
    """

    @checked_arguments
    def __init__(self, pattern: str | re.Pattern[str]) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"topics is {pattern!r}, which is not a regular expression: {error}") from None

    @property
    def names(self) -> None:
        """None: any topic may match the pattern."""
        return

    @property
    def subscription(self) -> list[str]:
        """The pattern, anchored at both ends; librdkafka takes a topic for a pattern if it begins with ``^``."""
        return [f"^({self._pattern.pattern.removeprefix('^')})$"]

    def takes(self, name: str) -> bool:
        """Return whether a topic matches."""
        return super().takes(name) and self._pattern.fullmatch(name) is not None

    def chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions of the topics that match, sorted."""
        return sorted(partition for partition in partitions if self.takes(partition.topic))

    def __repr__(self) -> str:
        return f"PatternTopicFilter({self._pattern.pattern!r})"

    def __str__(self) -> str:
        return f"the pattern {self._pattern.pattern!r}"


def topic_filter(topics: Any) -> TopicFilter:
    """Return the filter for a spout's ``topics``: a filter, a name, several names, or a pattern.

    A text that begins with ``^`` is a pattern, too.

    Raises:
        ConfigError: it is none of these.
    """
    match topics:
        case TopicFilter():
            return topics
        case re.Pattern():
            return PatternTopicFilter(topics)
        case str() if topics.startswith("^"):
            return PatternTopicFilter(topics)
        case str():
            return NamedTopicFilter(topics)
        case Collection():
            return NamedTopicFilter(*topics)
        case _:
            raise _no_topics(topics)


def check_topics(topics: TopicFilter, topics_there: Sequence[Topic], log: KafkaLog) -> str | None:
    """Return what to say if no topic matches yet, else None; InputError, with a near name, for one that is missing."""
    missing = topics.missing(topic.name for topic in topics_there)
    if missing is not None:
        meant = did_you_mean(missing, _all_names(log)) or "."
        raise InputError(
            f"Kafka has no topic {missing!r}{meant} Correct the spout's topics; or create it, with kafka-topics.sh "
            f"--create or txtopo kafka dev --topic {missing}; or give a pattern ('^{re.escape(missing)}'), which waits "
            "for topics to come"
        )
    if topics.names is not None or topics.chosen(
        partition for topic in topics_there for partition in topic.all_partitions()
    ):
        return None
    all_names = _all_names(log)
    listed = ", ".join(map(repr, all_names[:_NAMED_MAX])) + (", …" if len(all_names) > _NAMED_MAX else "")
    return f"no topic of Kafka matches {topics}; there are: {listed or 'none'}"


def _all_names(log: KafkaLog) -> list[str]:
    return [topic.name for topic in log.topics(PatternTopicFilter(".*"))]
