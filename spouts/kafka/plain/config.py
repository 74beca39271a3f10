"""The settings of a KafkaSpout."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Self, TypeVar

import attrs

from spouts.kafka.log import Connect, ConsumerSettings, KafkaConsumer, TopicFilter, TopicPartition
from spouts.kafka.plain.dead_letters import DeadLetterHook, dead_letter_hook
from spouts.kafka.plain.partitioner import Partitioner, RoundRobinPartitioner
from spouts.kafka.plain.progress import MessageId
from spouts.kafka.plain.retries import ExponentialBackoff, RetryPolicy
from spouts.kafka.plain.translators import DefaultRecordTranslator, RecordTranslator, translator_for
from spouts.kafka.topics import topic_filter
from txtopo.api.arguments import check_positive, checked_class
from txtopo.api.components.collector import SpoutOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError
from txtopo.network.kafka_connection import kafka_servers
from txtopo.text.client_properties import ClientProperties, Value
from txtopo.text.suggestions import did_you_mean

_log = logging.getLogger(__name__)

RESERVED_PROPERTIES = {
    "bootstrap.servers": "it is the first argument, servers",
    "group.id": "give group_id",
    "enable.auto.commit": "choose a processing_guarantee; a timer would also commit records that fail later",
    "enable.auto.offset.store": "choose a processing_guarantee",
    "enable.partition.eof": "the spout finds the log end itself",
    "max.poll.records": "give batch_records_max",
}
_STORMS = {
    "poll_timeout_ms": "a poll never waits, because the worker's loop would; leave it out",
    "emit_null_tuples": "let the deserializer or translator return a list of None for a record without values",
    "metrics_bucket_secs": "the tuple_listener learns the metrics every minute; KafkaSpout.metrics() asks for them",
    "metrics_time_bucket_size_in_secs": "as metrics_bucket_secs: leave it out",
    "max_poll_records": "give batch_records_max",
    "record_translator": "give translator",
    "topic_partitioner": "give partitioner",
    "topic_filter": "give it as the second argument, topics",
    "kafka_props": "give properties, by librdkafka's names",
}
"""Settings of Storm's that have no counterpart or another name, with the reason and what to do."""

_OFFSET_RESET = "auto.offset.reset"
_FROM_FIELDS = DefaultRecordTranslator()
"""Stands for the translator that follows from the fields."""

_E = TypeVar("_E", bound=Enum)


class ProcessingGuarantee(Enum):
    """What becomes of a record when something fails.

    ``AT_LEAST_ONCE``: its offset is committed after its tuple was acked; a failed tuple is emitted again.
    ``AT_MOST_ONCE``: its offset is committed before it is emitted; it may be lost, and is never emitted twice.
    ``NO_GUARANTEE``: offsets are committed now and then, acked or not; a record may be lost, or emitted twice.
    """

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"
    NO_GUARANTEE = "no_guarantee"


_RIGHT_RESETS = {
    ProcessingGuarantee.AT_LEAST_ONCE: ("earliest", "records are skipped that were not processed"),
    ProcessingGuarantee.AT_MOST_ONCE: ("latest", "records may come again"),
}
"""The ``auto.offset.reset`` that each guarantee needs, and what happens with another one."""


class FirstPollOffsetStrategy(Enum):
    """Where reading begins if this topology has not committed an offset yet.

    A topology that has committed goes on from there, whatever the strategy: after a restart, a rebalance, or being
    deactivated. It is the same topology if it has the same id. With ``UNCOMMITTED`` reading goes on from offsets that
    others have committed to the group; without it, they do not matter.

    With ``TIMESTAMP`` reading begins at the first record of the time ``start_timestamp`` or later, or at the end.
    (Storm accepts the timestamp strategies for plain spouts, and ignores them.)
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    UNCOMMITTED_EARLIEST = "uncommitted_earliest"
    UNCOMMITTED_LATEST = "uncommitted_latest"
    UNCOMMITTED_TIMESTAMP = "uncommitted_timestamp"

    @property
    def takes_commits_of_others(self) -> bool:
        """Whether to go on from offsets that others have committed to the group."""
        return self.value.startswith("uncommitted_")

    @property
    def is_latest(self) -> bool:
        """Whether to begin at the log's end if no commit matters."""
        return self.value.endswith("latest")

    @property
    def is_timestamp(self) -> bool:
        """Whether to begin at a time if no commit matters."""
        return self.value.endswith("timestamp")


class KafkaTupleListener:
    """Watches the tuples of a KafkaSpout; override what you want to know. Must pickle; each task has one of its own."""

    def open(self, config: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector) -> None:
        """Prepare; called when the spout is opened."""

    def on_emit(self, values: Any, message_id: MessageId) -> None:
        """Called when a tuple was emitted, for the first time or again."""

    def on_ack(self, message_id: MessageId) -> None:
        """Called when a tuple was acked, even if another task has its partition by now."""

    def on_partitions_reassigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called with all partitions that this task holds from now on."""

    def on_retry(self, message_id: MessageId) -> None:
        """Called when a tuple has failed and will be emitted again."""

    def on_max_retry_reached(self, message_id: MessageId) -> None:
        """Called when a tuple has failed too often; it is done at once, or when the dead-letter hook has taken it."""

    def on_metrics(self, metrics: Mapping[str, int]) -> None:
        """Called every minute with how far this task is behind the log end; see ``KafkaSpout.metrics``."""


def _unknown(name: str) -> ConfigError:
    if name in _STORMS:
        return ConfigError(f"{name} is a setting of Storm's spout, and not of this one: {_STORMS[name]}")
    return ConfigError(f"KafkaSpout has no setting {name!r}{did_you_mean(name, _NAMES)}")


def _connect_to_broker(settings: ConsumerSettings) -> KafkaConsumer:
    from spouts.kafka.confluent.consumer import BrokerConsumer  # noqa: PLC0415 - reading a log in memory does not need it

    return BrokerConsumer(settings)


def _first_poll(value: Any) -> Any:
    if isinstance(value, dt.datetime | int):
        return _since_1970(value, "first_poll")
    return _member("first_poll", FirstPollOffsetStrategy, value)


def _since_1970(value: Any, name: str = "start_timestamp") -> int:
    match value:
        case dt.datetime() if value.tzinfo is not None:
            return round(value.timestamp() * 1000)
        case int() if not isinstance(value, bool) and value >= 0:
            return value
    raise ConfigError(f"{name} is {value!r}; give a datetime with a time zone, or ms since 1970")


def _guarantee(value: ProcessingGuarantee | str) -> ProcessingGuarantee:
    return _member("processing_guarantee", ProcessingGuarantee, value)


def _member(name: str, kind: type[_E], value: Any) -> _E:
    if isinstance(value, kind):
        return value
    for member in kind:
        if isinstance(value, str) and value.lower() == member.value:
            return member
    allowed = ", ".join(repr(member.value) for member in kind)
    also = ", a datetime with a time zone, or ms since 1970" if kind is FirstPollOffsetStrategy else ""
    raise ConfigError(f"{name} is {value!r}, which is no {kind.__name__}; choose one of {allowed}{also}")


def _positive(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value <= 0:
        raise ConfigError(f"{attribute.name} must be a number above 0, not {value!r}")


def _positive_count(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    check_positive(attribute.name, value)


def _client_properties(properties: Mapping[str, Value] | None) -> ClientProperties:
    return ClientProperties(properties, RESERVED_PROPERTIES)


@checked_class
@attrs.frozen
class KafkaSpoutConfig:
    """How a KafkaSpout reads.

    Args:
        servers: host:port of brokers, separated by commas, or a list of them.
        topics: a name, several names, a pattern that whole names match (a compiled regular expression, or a text that
            begins with ``^``), or a TopicFilter. A named topic must exist; a pattern waits for topics to appear.
        fields: parts of a record to emit: topic, partition, offset, key, value (both as text), timestamp, headers; the
            first five unless given. Other fields are members of values that are JSON objects. Types do not matter.
        deserializer: ``"json"`` for members that have the name of a part; or a function that takes a KafkaRecord and
            returns its values in the order of the fields, or by their names; None for no tuple.
        first_poll: where to begin if this topology has not committed yet: a FirstPollOffsetStrategy or its value, such
            as ``"earliest"``; a datetime with a time zone, or ms since 1970, for ``"timestamp"`` with that time.
        properties: settings of librdkafka by its names; secrets as ``env:NAME`` or ``file:PATH``.
        dead_letter: takes records that failed too often or can't be deserialized: the path of a Delta table, a function
            that is called with a DeadLetter, or a DeadLetterHook. None: a record that failed too often is given up,
            with an error in the log and the report; one that can't be deserialized stops the run.
        group_id: the consumer group; ``<topology>-<component>`` unless given.
        processing_guarantee: see ProcessingGuarantee.
        offset_commit_period_ms: how often to commit. AT_MOST_ONCE commits after each poll instead.
        max_uncommitted_offsets: while a partition has this many emitted and uncommitted offsets, only retries among
            them are read from it. A poll may exceed this by ``batch_records_max`` - 1. AT_LEAST_ONCE only.
        batch_records_max: the maximum number of records of a poll.
        start_timestamp: a datetime with a time zone, or ms since 1970, for the timestamp strategies.
        partition_refresh_period_ms: how often to look for new topics and partitions, with manual assignment.
        retry_service: when a failed tuple is emitted again, and when it is given up.
        tuple_tracking_enforced: emit message ids with the other two guarantees too, so that
            ``topology.max.spout.pending`` and latencies work. Failures still have no effect there.
        tuple_listener: watches the tuples.
        translator: makes tuples of records, in place of fields and deserializer.
        partitioner: shares partitions among tasks, with manual assignment.
        subscribe: join the consumer group and take the partitions that Kafka gives, rather than share them among the
            tasks (*manual assignment*). Other programs may join and leave the group. A rebalance does not disturb
            partitions that stay with a member.
        connect: makes the client; tests give that of a ``txtopo.testing.MemoryLog``.

    Raises:
        ConfigError: a setting is unknown, or has a wrong value.
    """

    servers: str = attrs.field(converter=kafka_servers)
    topics: TopicFilter = attrs.field(converter=topic_filter)
    fields: Fields | None = attrs.field(default=None)
    deserializer: Any = attrs.field(default=None, kw_only=True)
    first_poll: FirstPollOffsetStrategy = attrs.field(
        default=FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST, converter=_first_poll, kw_only=True
    )
    properties: ClientProperties = attrs.field(default=None, converter=_client_properties, kw_only=True)
    dead_letter: DeadLetterHook | None = attrs.field(default=None, converter=dead_letter_hook, kw_only=True)
    group_id: str | None = attrs.field(default=None, kw_only=True)
    processing_guarantee: ProcessingGuarantee = attrs.field(
        default=ProcessingGuarantee.AT_LEAST_ONCE, converter=_guarantee, kw_only=True
    )
    offset_commit_period_ms: float = attrs.field(default=30_000, validator=_positive, kw_only=True)
    max_uncommitted_offsets: int = attrs.field(default=10_000_000, validator=_positive_count, kw_only=True)
    batch_records_max: int = attrs.field(default=500, validator=_positive_count, kw_only=True)
    start_timestamp: int = attrs.field(default=0, converter=_since_1970, kw_only=True)
    partition_refresh_period_ms: float = attrs.field(default=2_000, validator=_positive, kw_only=True)
    retry_service: RetryPolicy = attrs.field(factory=ExponentialBackoff, kw_only=True)
    tuple_tracking_enforced: bool = attrs.field(default=False, kw_only=True)
    tuple_listener: KafkaTupleListener = attrs.field(factory=KafkaTupleListener, kw_only=True)
    translator: RecordTranslator = attrs.field(default=_FROM_FIELDS, kw_only=True)
    partitioner: Partitioner = attrs.field(factory=RoundRobinPartitioner, kw_only=True)
    subscribe: bool = attrs.field(default=False, kw_only=True)
    connect: Connect = attrs.field(default=_connect_to_broker, kw_only=True, repr=False)

    def __new__(cls, *_: Any, **settings: Any) -> Self:
        """Refuse an unknown setting with the reason, before attrs refuses it without one."""
        for name in settings:
            if name not in _NAMES:
                raise _unknown(name)
        return super().__new__(cls)

    def __attrs_post_init__(self) -> None:
        if self.translator is _FROM_FIELDS:
            # Past attrs' __setattr__, which refuses: the class is frozen.
            object.__setattr__(self, "translator", translator_for(self.fields, self.deserializer))
        elif self.fields is not None or self.deserializer is not None:
            raise ConfigError("give fields or a translator; a translator has its own fields")
        if isinstance(self.first_poll, int):
            object.__setattr__(self, "start_timestamp", self.first_poll)
            object.__setattr__(self, "first_poll", FirstPollOffsetStrategy.TIMESTAMP)
        reset = self.properties.get(_OFFSET_RESET)
        right, risk = _RIGHT_RESETS.get(self.processing_guarantee, (reset, ""))
        if reset not in {None, right, "none", "error"}:
            words = "%s is %s: if an offset does not exist any more, %s; %s needs %s, or error"
            _log.warning(words, _OFFSET_RESET, reset, risk, self.processing_guarantee.value, right)

    @property
    def is_at_least_once(self) -> bool:
        """Whether offsets are committed behind what was acked."""
        return self.processing_guarantee is ProcessingGuarantee.AT_LEAST_ONCE

    @property
    def offset_reset(self) -> str | None:
        """Where reading goes on if an offset does not exist; None: the client's default.

        AT_LEAST_ONCE goes on at the earliest offset unless the properties say otherwise.
        """
        value = self.properties.get(_OFFSET_RESET)
        if value is None:
            return "earliest" if self.is_at_least_once else None
        return "error" if value == "none" else str(value)  # Java's name for librdkafka's "error"


_NAMES = tuple(attribute.name for attribute in attrs.fields(KafkaSpoutConfig))
