"""``KafkaState``: what transactions append to a topic, once for each reader of committed records."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.rows.format import DeclaredRows, checked_rows_fields
from state.delta.schema import TXID_FIELD
from state.kafka.client import KafkaMarks, KafkaWriter, checked_library
from state.kafka.records import RecordLimits, checked_record_fields, misfit_of_records
from state.marks import Mark, MarkedTable, Owner
from state.noted_rows import AppendsNotedRows
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.fields import Fields
from txtopo.api.dataset import Dataset
from txtopo.api.state import CanBeRenamed, CanBeRepaired, TableDescription
from txtopo.api.values import StateKind
from txtopo.api.writes import Rows, RowsMode
from txtopo.columnar.rows_file import in_memory
from txtopo.errors import ConfigError, DivergenceError, FailedException, FieldsError, StateAccessError, StateFailure
from txtopo.network.kafka_connection import kafka_address, kafka_servers
from txtopo.text.client_properties import ClientProperties, Value

_RESERVED = {
    "bootstrap.servers": "it is the first argument, servers",
    "transactional.id": "it is made of the topology's id and the state's name",
    "transaction.timeout.ms": "it is the argument transaction_secs",
    "enable.idempotence": "a transaction needs it",
    "acks": "a transaction needs all",
    "isolation.level": "only committed records count",
}

_NO_PAST = (
    "the records that are published stay, and KafkaState(…, publishes_again=True) would publish others after them"
)

_FIELDS = Fields("key: string", "value: string")

_LIMITS = RecordLimits()
"""Those of librdkafka."""


class KafkaState(DeclaredRows):
    """A table of rows that are records of a Kafka topic: a commit group is one transaction of Kafka.

    ``AppendCommitter`` fills it, or your committer by ``state.append(rows)``. The fields are those of a record, and no
    others: ``value``, and if you like ``key``, ``partition``, ``timestamp`` and ``headers``. A null value is a
    tombstone; without a partition, records with equal keys go to the same one, as Java's producer has it.

    *You* read the topic with ``isolation.level=read_committed``.
    *txtopo* guarantees that such a reader gets the records of each transaction once, in each partition in the order of
    txids, whatever fails. It may get them before the tables beside the state have the transaction.

    It needs the extra ``kafka``, brokers of version 2.5 or newer, and the right to write with a transactional id that
    begins with ``txtopo-``. The topic is created if it is missing, with the broker's defaults; so is the compacted
    topic of one partition with the marks of what is published. A group's records pass through the coordinator's store.

    Args:
        servers: host:port of brokers, separated by commas.
        topic: the topic.
        fields: the fields, each with a type.
        properties: settings of librdkafka by its names; secrets as ``env:NAME`` or ``file:PATH``.
        publish_secs: for how long the publication of a group is tried again before the run stops: longer than an
            election of leaders takes.
        transaction_secs: Kafka's ``transaction.timeout.ms``: how long a group may take. A broker allows 15 minutes.
        publishes_again: what a rewind to before the last transaction does: False refuses it, True lets it be, and the
            transactions after the point are published again, behind the former ones.
        marks_topic: the topic with the marks, of this state alone; by default ``TOPIC.txtopo``. Its name, after
            ``txtopo-``, is the transactional id.

    Raises:
        ConfigError: an option is out of range, a property is refused, or confluent-kafka is missing.
        FieldsError: a field is no part of a record.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - each has a default, and is named
        self,
        servers: str | Sequence[str],
        topic: str,
        fields: Fields = _FIELDS,
        *,
        properties: Mapping[str, Value] | None = None,
        publish_secs: float = 120.0,
        transaction_secs: float = 60.0,
        publishes_again: bool = False,
        marks_topic: str | None = None,
    ) -> None:
        checked_rows_fields(fields, ())
        checked_record_fields(fields)
        if not (publish_secs > 0 and transaction_secs > 0):
            raise ConfigError(f"publish_secs and transaction_secs must be above 0: {publish_secs}, {transaction_secs}")
        self.topic = topic
        self.marks_topic = f"{topic}.txtopo" if marks_topic is None else marks_topic
        for name in (self.topic, self.marks_topic):
            if not name or topic_name(name) != name:
                raise ConfigError(f"{name!r} is no name of a topic: use up to 200 letters, digits, '.', '_' and '-'")
        if self.marks_topic == self.topic:
            raise ConfigError(f"marks_topic is {topic!r}, the topic itself: its readers would get the marks, too")
        self.key = Fields()
        self.value = fields
        self.kind = StateKind.ROWS
        self.servers = kafka_servers(servers)
        self.properties = ClientProperties(properties, _RESERVED)
        checked_library(self.servers, self.properties)
        self.retry_secs = publish_secs
        self.transaction_secs = transaction_secs
        self.publishes_again = publishes_again

    def table(self) -> KafkaTable:
        """Return the marks for inspection."""
        return KafkaTable(self, self._marks())

    @property
    def dataset(self) -> Dataset:
        """The topic, of the first of the brokers; see :attr:`State.dataset`."""
        return Dataset(kafka_address(self.servers), self.topic)

    def writer(self, marks: KafkaMarks, limits: RecordLimits = _LIMITS) -> KafkaWriter:
        """Return a producer that has fenced all former ones of the state, and settled their transactions."""
        batch_bytes = min(_LIMITS.bytes_max, limits.bytes_max)
        return KafkaWriter(marks, f"txtopo-{self.marks_topic}", self.transaction_secs, batch_bytes)

    def _marks(self) -> KafkaMarks:
        return KafkaMarks(self.servers, self.properties, self.topic, self.marks_topic)

    def open(self, topology_id: str, name: str, incarnation: str, epoch: int) -> OpenedKafkaState:
        """Fence every producer of an earlier epoch, and settle its transactions; see :meth:`State.open`.

        Raises:
            StateFailure: Kafka does not answer.
            StopError: a transaction hangs.
        """
        opened = OpenedKafkaState(self, self._marks(), Owner(topology_id, name, incarnation), epoch)
        opened.begin()
        return opened

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Refuse: a topic keeps what it was told to, and a reader reads it."""
        del txid
        raise StateAccessError(f"a KafkaState has no snapshot: read topic {self.topic!r} with a consumer")

    def forked(self, topology_id: str) -> KafkaState:
        """Return this state with a separate topic, ``TOPIC-ID`` by the id of the fork; see :meth:`State.forked`."""
        fork = copy.copy(self)
        fork.topic = topic_name(f"{self.topic}-{topology_id}")
        fork.marks_topic = f"{fork.topic}.txtopo"
        return fork

    def __repr__(self) -> str:
        return f"KafkaState({self.topic!r}, {self.value})"


class OpenedKafkaState(AppendsNotedRows, CanBeRepaired):
    """A KafkaState opened by one coordinator; made by :meth:`KafkaState.open`.

    Kafka can't prepare a transaction of which another producer would decide later.
    """

    def __init__(self, declared: KafkaState, marks: KafkaMarks, owner: Owner, epoch: int) -> None:
        super().__init__(declared.form(owner.state))
        self.declared: KafkaState = declared
        self._marks = marks
        self._owner = owner
        self._epoch = epoch
        self._writer: KafkaWriter | None = None
        self._mark = Mark.new(owner, declared.kind.value, epoch)
        self._limits = _LIMITS

    def begin(self) -> None:
        """Make the topics if they are missing, fence, and record the epoch."""
        existing_topics, marks = self._marks.partitions(), self._marks.marks_topic
        if marks in existing_topics:
            _check_marks_topic(marks, existing_topics[marks], self._marks.settings(marks))
        if self._marks.topic not in existing_topics:
            last = (self._last_mark().txid or 0) if marks in existing_topics else 0
            if last:
                raise DivergenceError(f"{self._topic_gone()}; the state is at transaction {last}", txid=last)
            self._marks.create(self._marks.topic, {})
        if marks not in existing_topics:
            self._marks.create(marks, {"cleanup.policy": "compact"}, partitions=1)
        self._commit([], lambda mark: attrs.evolve(mark, epoch=self._epoch))

    @property
    def identity(self) -> str:
        """A random id, drawn when the first mark was written."""
        return self._mark.identity

    @property
    def last_txid(self) -> int | None:
        """The txid of the last write, read anew."""
        return self._last_mark().txid

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table:
        """Return rows with the fields, in memory; see :meth:`TakesRows.rows_to_write`."""
        fitted = in_memory(super().rows_to_write(rows, mode))
        misfit = misfit_of_records(fitted, self._limits) if fitted.num_rows else None
        if misfit is not None:
            raise FieldsError(f"state {self._owner.state!r}, row {misfit[0]}: {misfit[1]}; nothing was written")
        return fitted

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Refuse; see :meth:`KafkaState.snapshot`."""
        return self.declared.snapshot(txid)

    def roll_back(self, txid: int | None) -> None:
        """Forget later transactions, whose records stay; see :meth:`CanBeRepaired.roll_back`."""
        target, last = txid or 0, self._last_mark().txid or 0
        if target == last:
            return
        if target > last or not self.declared.publishes_again:
            raise StateAccessError(f"state {self._owner.state!r} is at transaction {last}, not {target}: {_NO_PAST}")
        self._commit([], lambda mark: mark.rolled_back(target, self._epoch), is_behind=True)

    def record_turn(self, txid: int) -> None:
        """Keep in the mark that the topology has gone back; see :meth:`CanBeRepaired.record_turn`."""
        self._commit([], lambda mark: mark.turned(txid, self._epoch))

    def adopt(self) -> None:
        """Do nothing but look for a newer epoch: what others have written is theirs."""
        self._last_mark()

    def close(self) -> None:
        """Let go of the producer."""
        self._abandon()

    def _write(self, txid: int, rows: pa.Table) -> None:
        if self._resolved().txid is not None and (self._mark.txid or 0) >= txid:
            return
        new = rows.filter(pc.greater(rows[TXID_FIELD], self._mark.txid or 0))
        self._commit([new], lambda mark: attrs.evolve(mark, txid=txid))

    def _resolved(self) -> Mark:
        """Return the mark of a state that no other producer can write any more without fencing this one.

        1. A crash, or an error, before the commit leaves a transaction that Kafka aborts: the mark is the one before.
        2. One during the commit leaves a transaction of unknown outcome. ``init_transactions`` returns once Kafka has
        ended it, and then the mark says how. 3. A coordinator that is too late finds a newer epoch in the mark.
        """
        if self._writer is None:
            self._last_mark()  # a coordinator that is too late leaves without a trace
            existing_topics, topic = self._marks.partitions(), self._marks.topic
            if self._mark.txid and topic not in existing_topics:
                raise StateFailure(self._topic_gone())
            bytes_max = int(self.declared.properties.get("message.max.bytes", _LIMITS.bytes_max))  # type: ignore[arg-type]
            partitions = existing_topics.get(topic, 1)
            self._limits = RecordLimits.of_settings(partitions, self._marks.settings(topic), bytes_max)
            self._writer = self.declared.writer(self._marks, self._limits)
            try:
                self._marks.wait_until_stable(self.declared.retry_secs)
                self._mark = self._last_mark()
            except BaseException:
                self._abandon()
                raise
        return self._mark

    def _commit(self, rows: Sequence[pa.Table], change: Callable[[Mark], Mark], *, is_behind: bool = False) -> None:
        """Write records and the mark that ``change`` makes of the last one; ``is_behind``: it may have a lower txid."""
        mark = change(self._resolved())
        assert self._writer is not None, "it is settled"
        assert is_behind or (mark.txid or 0) >= (self._mark.txid or 0), "txids rise"
        try:
            self._check_taken(rows)
            self._writer.write(rows, mark, self.declared.transaction_secs)
        except BaseException as error:
            self._abandon()
            if isinstance(error, FailedException):
                with contextlib.suppress(FailedException):
                    self._last_mark()  # raises LostLead if it was fenced by a newer epoch
            raise
        self._mark = mark

    def _check_taken(self, rows: Sequence[pa.Table]) -> None:
        """Raise StateFailure for records that fitted when their group was decided: some age, and topics are changed."""
        for part in rows:
            misfit = misfit_of_records(part, self._limits) if part.num_rows else None
            if misfit is not None:
                raise StateFailure(
                    f"topic {self._marks.topic!r} of {self.declared.servers} takes a record of transaction "
                    f"{part[TXID_FIELD][misfit[0]]} no more, which is decided: {misfit[1]}. Let the topic take it, "
                    "with kafka-configs.sh or kafka-topics.sh; it is published then"
                )

    def _topic_gone(self) -> str:
        return (
            f"topic {self._marks.topic!r} of {self.declared.servers} is gone: create it again, with as many partitions "
            "as it had. The records that it had are not published again"
        )

    def _abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def _last_mark(self) -> Mark:
        """Return the last mark that is visible; raise if it is not this coordinator's to write."""
        mark = self._marks.read()
        address = f"topic {self._marks.topic!r} of {self.declared.servers}"
        if mark is None:
            attrs.evolve(self._mark, txid=None).check_seen(self._mark.txid, address)
            return self._mark
        is_ours = mark.identity == self._mark.identity
        if is_ours:
            mark.check_epoch(self._epoch, address)  # before the owner, which a rename at a later epoch has changed
        mark.check_owner(self._owner, address)
        mark.check_epoch(self._epoch, address)
        if is_ours:
            mark.check_seen(self._mark.txid, address)
        return mark


class KafkaTable(MarkedTable, CanBeRenamed):
    """The marks of a KafkaState, for inspection."""

    def __init__(self, declared: KafkaState, marks: KafkaMarks) -> None:
        self._declared = declared
        self._marks = marks

    @property
    def address(self) -> str:
        """The servers and the topic."""
        return f"kafka://{self._declared.servers}/{self._marks.topic}"

    @property
    def no_past(self) -> str:
        """Why no earlier transaction can be returned to; see :attr:`StateTable.no_past`."""
        return "" if self._declared.publishes_again else _NO_PAST

    def describe(self) -> TableDescription | None:
        """Return what the last mark says; see :meth:`StateTable.describe`."""
        mark = self.mark()
        if mark is None:
            return None
        return mark.described()

    def is_kept(self, txid: int | None) -> bool:
        """Return whether the topology may go back to a transaction; see :meth:`StateTable.is_kept`."""
        return bool(self.kept([txid or 0]))

    def kept(self, txids: Collection[int]) -> set[int]:
        """Return those of many transactions that the topology may go back to."""
        mark = self.mark()
        last = 0 if mark is None else mark.txid or 0
        return {txid for txid in txids if txid == last or (txid < last and self._declared.publishes_again)}

    def asides(self) -> list[int]:
        """Return none: no topic is ever moved."""
        return []

    def why_it_stays(self) -> str:
        """Return how to begin anew by hand; see :meth:`StateTable.why_it_stays`."""
        return (
            f"topic {self._marks.topic!r} can't be moved: to begin anew, delete topic {self._marks.marks_topic!r}, "
            "after which all transactions are published again, behind what is there; or give the state another topic"
        )

    def set_aside(self, number: int) -> None:
        """Refuse, unless nothing is there; see :meth:`StateTable.set_aside`."""
        del number
        if self.mark() is not None:
            raise ConfigError(self.why_it_stays())

    def rename(self, topology_id: str, name: str, epoch: int) -> None:
        """Write a mark with the new names, which no producer of before can follow; see :meth:`CanBeRenamed.rename`.

        The transactional id is made of the topic's name, so it stays.
        """
        own_mark = self.mark()
        if own_mark is None:
            return
        own_mark.check_epoch(epoch, self.address)
        writer = self._declared.writer(self._marks)
        try:
            self._marks.wait_until_stable(self._declared.retry_secs)
            mark = self.mark() or own_mark
            mark.check_epoch(epoch, self.address)
            owner = Owner(topology_id, name, mark.owner.incarnation)
            writer.write([], attrs.evolve(mark, owner=owner, epoch=epoch), self._declared.transaction_secs)
        finally:
            writer.abandon()

    def mark(self) -> Mark | None:
        """Return the state's mark; None if there is none."""
        if self._marks.marks_topic not in self._marks.partitions():
            return None
        return self._marks.read()


def _check_marks_topic(name: str, partitions: int, settings: Mapping[str, str]) -> None:
    """Refuse a topic for marks, made by somebody else, that would forget the last one or have it where nobody looks.

    Raises:
        ConfigError: it is none for marks.
    """
    if partitions != 1 or settings.get("cleanup.policy", "compact") != "compact":
        raise ConfigError(
            f"topic {name!r}, of the marks of what is published, must have 1 partition and cleanup.policy=compact, so "
            f"that the last mark is kept: it has {partitions} and {settings.get('cleanup.policy', 'compact')}. Set the "
            "policy with kafka-configs.sh; a topic without marks may be deleted, and is made anew"
        )


def topic_name(text: str) -> str:
    """Return a text as the name of a topic, with a hash if characters of it had to go."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:200]
    return name if name == text else f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
