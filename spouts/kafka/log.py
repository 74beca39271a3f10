"""What the spouts need of Kafka, behind an interface that a test can implement without a broker.

Offsets count everything in a partition: records, those of aborted transactions, the markers that end transactions, and
records that compaction has removed. So a range of offsets may hold fewer records than offsets, or none.
"""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs

from txtopo.errors import ConfigError, InputError, SourceFailure

NO_ID = ""
"""The id of a topic whose broker gives none, as brokers before Kafka 2.8 do."""

_NAMED_MAX = 20
"""How many topics a message names."""


@attrs.frozen(order=True, cache_hash=True)
class TopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


@attrs.frozen
class Topic:
    """A topic as it is now. A topic that was deleted and made anew has another id."""

    name: str
    id: str
    partitions: int

    def all_partitions(self) -> list[TopicPartition]:
        """Return its partitions in order."""
        return [TopicPartition(self.name, number) for number in range(self.partitions)]


@attrs.frozen
class Span:
    """The offsets of a partition from ``start`` to before ``end``."""

    partition: TopicPartition
    start: int
    end: int


@attrs.frozen
class Lost:
    """Records of a span that are no longer in the log: those before ``first_kept``."""

    span: Span
    next: int
    """The offset that was to be read next."""
    first_kept: int

    def __str__(self) -> str:
        end = min(self.first_kept, self.span.end)
        return (
            f"{self.span.partition}: offsets {self.next} to {end - 1} were not read yet and are gone; the log begins "
            f"at {self.first_kept} (retention, or somebody deleted them)"
        )


@attrs.frozen
class TopicChoice:
    """The topics of a spout: names, or a pattern of names.

    Args:
        names: the names; empty if there is a pattern.
        pattern: a regular expression that a whole name must match.
    """

    names: tuple[str, ...]
    pattern: re.Pattern[str] | None = None

    @classmethod
    def of(cls, topics: str | re.Pattern[str] | Sequence[str]) -> TopicChoice:
        """Return the choice for a spout's argument: a name, names, or a pattern; a text with ``^`` in front is one.

        Raises:
            ConfigError: it is none of these.
        """
        if isinstance(topics, re.Pattern):
            return cls((), topics)
        if isinstance(topics, str) and topics.startswith("^"):
            try:
                return cls((), re.compile(topics))
            except re.error as error:
                raise ConfigError(f"topics is {topics!r}, which is no regular expression: {error}") from None
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        wrong = next((name for name in names if not isinstance(name, str) or not name), None)
        if wrong is not None or not names or len(set(names)) < len(names):
            raise ConfigError(
                f"topics is {topics!r}; give a name, a list of different names, or a pattern ('^clicks-')"
            )
        return cls(names)

    def missing(self, found: Iterable[str]) -> str | None:
        """Return the first of its names that is not among those that were found."""
        there = set(found)
        return next((name for name in self.names if name not in there), None)

    def takes(self, name: str) -> bool:
        """Return whether a topic belongs to it; a pattern never takes Kafka's own topics."""
        if self.pattern is not None:
            return self.pattern.fullmatch(name) is not None and not name.startswith("__")
        return name in self.names


def missing_topic(name: str, there: Iterable[str]) -> InputError:
    """Return the error for a topic that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(name, there, 1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return InputError(
        f"Kafka has no topic {name!r}{meant} Correct the spout's topics; or create it, with kafka-topics.sh --create "
        f"or txtopo kafka dev --topic {name}; or give a pattern ('^{re.escape(name)}'), which waits for topics to come"
    )


def no_topic_matches(what: str, there: Iterable[str]) -> str:
    """Return what to say if no topic matches a pattern."""
    known = sorted(name for name in there if not name.startswith("__"))
    listed = ", ".join(map(repr, known[:_NAMED_MAX])) + (", …" if len(known) > _NAMED_MAX else "")
    return f"no topic of Kafka matches {what}; there are: {listed or 'none'}"


class Message(Protocol):
    """A record as the client gives it; its parts are methods. Its headers are for ``records.py`` alone to ask for."""

    def topic(self) -> str: ...  # noqa: D102 - as confluent_kafka.Message
    def partition(self) -> int: ...  # noqa: D102
    def offset(self) -> int: ...  # noqa: D102
    def key(self) -> bytes | None: ...  # noqa: D102
    def value(self) -> bytes | None: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def headers(self) -> Any: ...  # noqa: D102


OnLost = Callable[[Lost], None]
"""Called when records of a span are gone; returns to go on with what is left of the span, or raises."""


class UnansweredError(SourceFailure):
    """A question has been asked and not been answered yet; ask again for the answer."""


class KafkaLog(ABC):
    """The topics of a cluster, as one spout sees them: only records of committed transactions.

    *An implementation* raises SourceFailure if it has no answer now, and InputError if it never will, for example
    because the client may not read. Asked about no partition, it answers with nothing. It is used by one thread at a
    time.
    """

    @abstractmethod
    def topics(self, choice: TopicChoice, *, waits: bool = True) -> list[Topic]:
        """Return the topics of a choice that exist, by name.

        Args:
            choice: the topics.
            waits: whether to wait for the answer; otherwise UnansweredError is raised until it is there.
        """

    @abstractmethod
    def starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offset that each partition still has; one request for all."""

    @abstractmethod
    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end of what can be read of each partition; one request for all.

        Partitions that can't be read now, because they have no leader, are left out.
        """

    @abstractmethod
    def at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record at or after a time, in ms since 1970; the end if there is none."""

    @abstractmethod
    def stored(self, partitions: Sequence[TopicPartition], group: str) -> Mapping[TopicPartition, int]:
        """Return the offsets that a consumer group has stored; partitions without one are left out."""

    @abstractmethod
    def store(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """Store offsets for a consumer group; partitions that do not exist any more are left out."""

    @abstractmethod
    def read(self, spans: Sequence[Span], on_lost: OnLost) -> Iterator[tuple[Span, Sequence[Message]]]:
        """Yield the records of spans, span by span and in order, some thousand at a time.

        How they are divided depends on the records alone, not on time: what an attempt emits is the same each time.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""
