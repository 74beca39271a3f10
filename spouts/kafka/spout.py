"""The repeatable spout over Kafka: a transaction's metadata says exactly which offsets it holds.

::

    {"topics": {"clicks": {"id": id of the topic, "partitions": [[number, start, end], …]}, …}}

Metadata names all known partitions, also those that give the transaction no record: it says where the next transaction
continues.
"""

from __future__ import annotations

import copy
import datetime as dt
import logging
import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from spouts.bad_records import BAD_RECORDS, WithBadRecords
from spouts.kafka.confluent.connection import BrokerConnection
from spouts.kafka.confluent.log import DRIVER_ANSWER_SECS, RESERVED, BrokerLog, shared_log
from spouts.kafka.log import KafkaLog, Lost, OnLost, Span, TopicFilter, TopicPartition
from spouts.kafka.planner import FirstPoll, OnLostRecords, Planner, PlannerOptions, Publisher, check_ids
from spouts.kafka.records import (
    BAD_RECORDS_FIELDS,
    RECORD_FIELDS,
    BadRecords,
    BadRecordsTable,
    Deserializer,
    RecordFormat,
    RefusedRecords,
    record_format,
)
from spouts.kafka.topics import NamedTopicFilter, topic_filter
from txtopo.api.arguments import check_positive, checked_arguments
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Coordinator, Emitter, Metadata, TransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.api.dataset import Dataset
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.network.kafka_connection import kafka_address, kafka_servers
from txtopo.text.client_properties import ClientProperties, Value

_TIMEOUT = "topology.message.timeout.secs"
_TIMEOUT_SECS = 30.0
"""The timeout of transactions, where the configuration has none."""
_PATIENCE_SHARE = 3
"""A read gives up after 1/3 of the transaction's timeout, so that its own error is reported and not the timeout."""

_CURE = (
    "Give the spout on_lost='skip' to go on without these records, or use an OpaqueKafkaSpout, which takes what can be "
    "read; and let the topic keep its records for longer than a stopped topology may take to come back"
)

logger = logging.getLogger("txtopo.kafka")


class KafkaInput(WithBadRecords):
    """What both batch spouts over Kafka share; the arguments are those of :class:`TransactionalKafkaSpout`."""

    bad_records_fields = BAD_RECORDS_FIELDS

    @checked_arguments
    def __init__(  # noqa: PLR0913 - the options of a reader
        self,
        servers: str | Sequence[str],
        topics: TopicFilter | str | re.Pattern[str] | Sequence[str],
        fields: Fields | None = None,
        *,
        deserializer: str | Deserializer | None = None,
        first_poll: str | int | dt.datetime = "earliest",
        properties: Mapping[str, Value] | None = None,
        dead_letter: str | os.PathLike[str] | None = None,
        batch_records_max: int = 10_000,
        publish_group: str | None = None,
        on_lost: str = "fail",
        until_end: bool = False,
    ) -> None:
        check_positive("batch_records_max", batch_records_max)
        if on_lost not in {records.value for records in OnLostRecords}:
            raise ConfigError(f"on_lost is {on_lost!r}; give 'fail' or 'skip'")
        self.servers = kafka_servers(servers)
        self.values = (fields or RECORD_FIELDS).with_attempt().without_attempt()
        """The fields after the attempt."""
        self.output_fields = self.values.with_attempt()
        self.deserializer = deserializer
        self.properties = ClientProperties(properties, RESERVED)
        self.dead_letter = None if dead_letter is None else os.fspath(dead_letter)
        self.publish_group = publish_group
        self.options = PlannerOptions(
            topic_filter(topics), FirstPoll.of(first_poll), batch_records_max, OnLostRecords(on_lost), until_end
        )
        self.make_format()  # for its errors, which are the user's, at once rather than on an executor

    def datasets(self, partitions: Collection[str]) -> Mapping[str, Dataset]:
        """Return the topics: those that are named, or those that a pattern has matched so far."""
        names = self.options.topics.names
        if names is None:
            names = {partition.rpartition("-")[0] for partition in partitions}
        return {f"{topic}-": Dataset(kafka_address(self.servers), topic) for topic in names}

    def make_format(self) -> RecordFormat:
        """Return what makes tuples of records; raise FieldsError if the fields do not suit the deserializer."""
        return record_format(self.values, self.deserializer)

    def forked(self) -> Self:
        """Return this spout without a group to publish to: the group is the original's."""
        fork = copy.copy(self)
        fork.publish_group = None
        return fork

    def make_log(self, config: Mapping[str, Any], *, is_shared: bool) -> KafkaLog:
        """Return a client of the cluster: this thread's, which tasks share, or a new one that the caller closes."""
        secs = float(config.get(_TIMEOUT) or _TIMEOUT_SECS) / _PATIENCE_SHARE
        if is_shared:
            return shared_log(self.servers, self.properties, secs)
        return BrokerLog(BrokerConnection(self.servers, self.properties), secs, DRIVER_ANSWER_SECS)

    def bad_records(self, collector: BatchOutputCollector) -> BadRecords:
        """Return what takes the bad records of one task of an attempt."""
        if self.dead_letter is None:
            return RefusedRecords()
        return BadRecordsTable(lambda batch: collector.emit_batch(batch, stream=BAD_RECORDS))


class TransactionalKafkaSpout(KafkaInput, TransactionalSpout):
    """Emits the records of Kafka topics; every attempt at a transaction reads exactly the same ones.

    It reads only records of committed Kafka transactions. A transaction takes records from all partitions that have
    some; it may hold none, if its offsets are all markers, aborted or compacted.

    *You* keep records in the topics until their transactions are committed, and install confluent-kafka wherever tasks
    run. *txtopo* guarantees that each record belongs to exactly one transaction, over any number of runs, and that
    records of a partition are emitted in their order.

    Args:
        servers: ``host:port`` of some brokers, with commas between them or as a list.
        topics: a topic, a list of topics, or a pattern that whole names must match: an ``re.Pattern``, or a text that
            begins with ``^``. A topic that is named must exist, and with ``until_end`` a pattern must match one. Topics
            and partitions that appear later are found, and begin at their beginning.
        fields: the fields after the attempt. None: all of a record's own, :data:`spouts.kafka.RECORD_FIELDS`. Some of
            those names: these only; ``key`` and ``value`` may be strings. Other fields are the members of a JSON value
            and need types. Records travel as Arrow columns if the fields have types.
        deserializer: ``"json"`` for members that have the name of a record's own field; ``"json+record"`` if the fields
            ``topic``, ``partition``, ``offset`` and ``timestamp`` are the record's own, beside members; or a function
            that takes a :class:`spouts.kafka.KafkaRecord` and returns its values in the order of the fields, or by
            their names; None for no tuple.
        first_poll: where the first run begins: ``"earliest"``, ``"latest"``, a datetime with a time zone or ms since
            1970, or ``"group:NAME"``, the offsets that a consumer group has stored, else the beginning.
        properties: settings of librdkafka, for example for TLS and SASL. A value may be ``env:NAME`` or ``file:PATH``;
            it is resolved where a client is made, on the driver and the executors, and shows nowhere.
        dead_letter: a Delta table that takes each record that can't be deserialized exactly once: topic, partition,
            offset, timestamp, key, value and reason. None: the first such record stops the run with an error that
            names it.
        batch_records_max: the maximum number of offsets, hence of records, of each partition in a transaction. There
            is no limit in bytes: a transaction's size is about this times the size of a record.
        publish_group: a consumer group to which offsets are published after their commit, for Kafka's tools.
            txtopo never reads it.
        on_lost: what to do if retention has removed records that were not read yet: ``"fail"``, stop with an error
            that names them; or ``"skip"``, go on without them and log a warning; ``txtopo audit`` names them.
        until_end: whether the run ends with the records that were there when it began. Otherwise it ends only by
            ``run(…, until=…)``, SIGINT or SIGTERM.

    Raises:
        FieldsError: the fields do not suit the deserializer.
        ConfigError: another argument is wrong.
    """

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator; raise InputError if a topic does not exist, or Kafka refuses the client."""
        del context
        coordinator = _KafkaCoordinator(self, self.make_log(config, is_shared=False))
        coordinator.planner.check_topics()
        return coordinator

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return the emitter of a task: of n tasks, it takes every n-th partition that has records."""
        tasks = len(context.component_tasks(context.this_component_id))
        return _KafkaEmitter(self, config, context.this_task_index, tasks)

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return the offsets of the transaction by ``topic-partition``."""
        del previous_metadata
        return {
            f"{topic}-{number}": (before, end)
            for topic, planned in metadata["topics"].items()
            for number, start, end in planned["partitions"]
            if (before := _skipped_from(planned, number, start)) < end
        }

    def input_skipped(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, Sequence[tuple[Any, Any]]]:
        """Return the offsets below those of the transaction that were gone before it was planned."""
        del previous_metadata
        return {
            f"{topic}-{number}": [(before, first_kept)]
            for topic, planned in metadata["topics"].items()
            for number, before, first_kept in planned.get("skipped", ())
        }


class KafkaShare:
    """A task's share of a batch: reads spans and emits their records.

    ``ids`` are the topics' ids as they were planned.
    """

    def __init__(
        self,
        spout: KafkaInput,
        log: KafkaLog,
        ids: Mapping[str, str],
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
    ) -> None:
        self.has_emitted = False
        """Whether something was emitted; only another attempt can do without it."""
        self._bad = spout.bad_records(collector)
        self._log = log
        self._ids = ids
        self._attempt = attempt
        self._collector = collector

    def emit(self, spans: Sequence[Span], records: RecordFormat, on_lost: OnLost) -> None:
        """Emit the records of spans; ``on_lost`` is called if records are gone from a topic that is still the same.

        Raises:
            SourceFailure: they can't be read now.
            InputError: a topic was created again, or a record is bad and refused.
        """
        names = {span.partition.topic for span in spans}

        def check_topics() -> None:
            check_ids(self._ids, self._log.topics(NamedTopicFilter(*names)))

        def lost(loss: Lost) -> None:
            check_topics()
            on_lost(loss)

        try:
            for _, messages in self._log.read(spans, lost):
                self.has_emitted = True
                records.emit(self._attempt, messages, self._bad, self._collector)
        except SourceFailure:
            check_topics()  # a topic that was created again may lack these offsets; that error says more
            raise
        self._bad.finish()
        # After the read rather than before it:
        #
        # 1. A check before the read finds the planned id.
        # 2. Somebody deletes the topic and creates it again.
        # 3. The read returns other records under the planned offsets, and nothing notices.
        #
        # An id never comes back. If it is the planned one after the read, it was the same topic throughout.
        check_topics()


class PlanningCoordinator:
    """What the coordinators of both batch spouts share: a planner, and a publisher of what is committed."""

    def __init__(self, spout: KafkaInput, log: KafkaLog) -> None:
        self.planner = Planner(log, spout.options)
        self._log = log
        self._publisher = Publisher(log, spout.publish_group, spout.options.now_secs)

    def cleanup_before(self, txid: int) -> None:
        """Publish the offsets of committed transactions when it is time."""
        self._publisher.committed_before(txid)

    def wait_ready(self, secs: float) -> bool:
        """Wait for records."""
        return self.planner.wait_ready(secs)

    def is_exhausted(self) -> bool:
        """Whether all records up to the end are taken."""
        return self.planner.is_exhausted()

    def lag(self) -> int | None:
        """Return how many offsets are left."""
        return self.planner.lag()

    def close(self) -> None:
        """Publish, and drop the clients."""
        self._publisher.publish()
        self._log.close()


class _KafkaCoordinator(PlanningCoordinator, Coordinator):
    def rewind(self, txid: int, metadata: Metadata, undone: Sequence[Metadata]) -> bool:
        """Check that Kafka has the records; a published group goes back when the next run begins."""
        del metadata  # the undone transactions begin where it ends
        begins: dict[TopicPartition, int] = {}
        for each in reversed(undone):
            begins |= {
                TopicPartition(topic, number): _skipped_from(planned, number, start)
                for topic, planned in each["topics"].items()
                for number, start, _ in planned["partitions"]
            }
        self.planner.check_rewind(begins, is_to_the_start=bool(undone) and not txid)
        return True

    def resume(self, txid: int, metadata: Metadata) -> None:
        positions, ids = _planned(metadata)
        self.planner.resume(positions, ids)
        if metadata is not None:
            self.planner.transaction_begun()  # this metadata is durable, and says where each partition begins
        self._publisher.transaction_begun(txid, positions)

    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        positions, ids = _planned(previous_metadata)
        self.planner.resume(positions, ids)
        spans = self.planner.next_spans()
        topics: dict[str, Any] = {}
        for partition, before in sorted(self.planner.positions.items()):
            span = spans.get(partition)
            start, end = (before, before) if span is None else (span.start, span.end)
            planned = topics.setdefault(partition.topic, {"id": self.planner.ids[partition.topic], "partitions": []})
            planned["partitions"].append([partition.partition, start, end])
            if start > before:
                # Durable with the metadata, so that the audit names the loss.
                planned.setdefault("skipped", []).append([partition.partition, before, start])
            self.planner.positions[partition] = end
        self._publisher.transaction_begun(txid, self.planner.positions)
        self.planner.transaction_begun()
        return {"topics": topics}

    def is_ready(self) -> bool:
        self._publisher.publish_if_time()
        return bool(self.planner.next_spans()) or self.planner.must_begin

    def remaining(self, metadata: Metadata) -> int | None:
        positions, _ = _planned(metadata)
        return self.planner.remaining(positions)


class _KafkaEmitter(Emitter):
    def __init__(self, spout: TransactionalKafkaSpout, config: Mapping[str, Any], task: int, tasks: int) -> None:
        self._spout = spout
        self._config = config
        self._task = task
        self._tasks = tasks
        self._format = spout.make_format()

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector
    ) -> Mapping[str, Sequence[tuple[Any, Any]]] | None:
        spans = [
            Span(TopicPartition(topic, number), start, end)
            for topic, planned in metadata["topics"].items()
            for number, start, end in planned["partitions"]
            if start < end
        ][self._task :: self._tasks]
        if not spans:
            return None
        _, ids = _planned(metadata)
        log = self._spout.make_log(self._config, is_shared=True)  # for each batch: attempts run in several threads
        skipped: dict[str, list[tuple[int, int]]] = {}

        def skip(lost: Lost) -> None:
            if self._spout.options.on_lost is OnLostRecords.FAIL:
                raise InputError(f"{_all_lost(log, metadata, lost)}. {_CURE}")
            logger.warning("%s; they are skipped", lost)
            at = lost.span.partition
            gap = lost.next, min(lost.first_kept, lost.span.end)
            skipped.setdefault(f"{at.topic}-{at.partition}", []).append(gap)

        KafkaShare(self._spout, log, ids, attempt, collector).emit(spans, self._format, skip)
        return skipped


def _skipped_from(planned: Mapping[str, Any], number: int, start: int) -> int:
    """Return where a partition's range begins, including the offsets that were skipped before its first one."""
    return next((before for of, before, _ in planned.get("skipped", ()) if of == number), start)


def _all_lost(log: KafkaLog, metadata: Metadata, loss: Lost) -> str:
    """Return what is gone of all partitions, from where a transaction begins: a task has found only a part of it."""
    begins = {
        TopicPartition(topic, number): start
        for topic, planned in metadata["topics"].items()
        for number, start, _ in planned["partitions"]
    }
    try:
        starts = log.starts(sorted(begins))
    except SourceFailure:  # the run stops anyway, with what this task has found
        starts = {loss.span.partition: loss.first_kept}
    lost_ranges = [
        (partition, begins[partition], first)
        for partition, first in sorted(starts.items())
        if first > begins[partition]
    ]
    ranges = "; ".join(f"{partition}: offsets {start} to {first - 1}" for partition, start, first in lost_ranges)
    return f"records were not read yet and are gone (retention, or somebody deleted them): {ranges}"


def _planned(metadata: Metadata) -> tuple[dict[TopicPartition, int], dict[str, str]]:
    """Return the next offset to plan of each partition, and the topics' ids."""
    topics = (metadata or {"topics": {}})["topics"]
    positions = {
        TopicPartition(topic, number): end
        for topic, planned in topics.items()
        for number, _, end in planned["partitions"]
    }
    return positions, {topic: planned["id"] for topic, planned in topics.items()}
