"""Plans what the next transaction reads: which partitions exist, the position in each, and where their logs end.

These rules ensure that nothing is lost or read twice:

1. A partition that exists at the topology's first look begins where ``first_poll`` says. One that appears later begins
   at its beginning: its records were written while the topology existed. "The latest" means another offset at each
   start, so a transaction without records makes that offset durable at once, or that there was no partition. With other
   places but the beginning, the first transaction makes durable where each partition begins, also those that it takes
   nothing of.
2. Offsets mean nothing in a topic that was deleted and created again. So metadata keeps the topic's id, which the
   driver checks at each look and the executors check after each read.
3. A log can look shorter for a moment, while its partition changes its leader. If it stays shorter than what was read
   from it, later records under these offsets are others, and the run stops.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import attrs

from spouts.kafka.log import NO_ID, KafkaLog, Lost, Span, Topic, TopicFilter, TopicPartition, UnansweredError, all_of
from spouts.kafka.topics import check_topics
from txtopo.errors import ConfigError, FailedException, InputError, SourceFailure
from txtopo.network.kafka_connection import REPEAT_SECS
from txtopo.text.repeated import Repeated

DISCOVERY_SECS = 2.0
"""How often topics and partitions are looked for."""

LATE_SECS = 10.0
"""How overdue a look for topics may be before the driver waits for the answer."""

FIRST_QUESTIONS = 6
"""How often a run asks at its start whether the topics exist, each time for ``DRIVER_ANSWER_SECS``."""

SHORTER_SECS = 60.0
"""How long a log may end before the next offset to plan until the run stops; see rule 3."""

PUBLISH_SECS = 1.0
"""The shortest time between two publications of offsets."""

logger = logging.getLogger("txtopo.kafka")


class OnLostRecords(enum.Enum):
    """What to do if retention has removed records that were not read yet."""

    FAIL = "fail"
    SKIP = "skip"


@attrs.frozen
class FirstPoll:
    """Where partitions begin that exist at the first look: ``earliest``, ``latest``, ``timestamp`` or ``group``."""

    place: str
    timestamp_ms: int = 0
    group: str = ""

    @classmethod
    def of(cls, value: str | int | dt.datetime) -> FirstPoll:
        """Return the place that a spout's ``first_poll`` says."""
        match value:
            case "earliest" | "latest" as place:
                return cls(str(place))
            case str() if value.startswith("group:") and len(value) > len("group:"):
                return cls("group", group=value.removeprefix("group:"))
            case dt.datetime() if value.tzinfo is not None:
                return cls("timestamp", round(value.timestamp() * 1000))
            case int() if not isinstance(value, bool) and value >= 0:
                return cls("timestamp", value)
        raise ConfigError(
            f"first_poll is {value!r}; give 'earliest', 'latest', a datetime with a time zone, milliseconds since "
            "1970, or 'group:NAME' for the offsets that a consumer group has stored"
        )

    def offsets(self, log: KafkaLog, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where partitions begin; with ``group``, those without a stored offset begin at their beginning."""
        match self.place:
            case "latest":
                offsets = log.ends(partitions)
            case "timestamp":
                offsets = log.at(partitions, self.timestamp_ms)
            case "group":
                offsets = dict(log.starts(partitions))
                offsets.update({partition: at.offset for partition, at in log.stored(partitions, self.group).items()})
            case _:
                offsets = log.starts(partitions)
        return all_of(offsets, partitions)


@attrs.frozen
class PlannerOptions:
    """The options of a spout that decide what it takes.

    A transaction has at most ``records_max`` offsets of each partition. With ``until_end`` the run ends where the logs
    ended at its first look.
    """

    topics: TopicFilter
    first_poll: FirstPoll
    records_max: int
    on_lost: OnLostRecords
    until_end: bool
    now_secs: Callable[[], float] = time.monotonic


class Planner:
    """The partitions of a spout, and what the next transaction reads of each."""

    def __init__(self, log: KafkaLog, options: PlannerOptions) -> None:
        self.positions: dict[TopicPartition, int] = {}
        """By partition: the next offset to plan."""
        self.ids: dict[str, str] = {}
        """By topic: its id."""
        self._log = log
        self._options = options
        self._partitions: list[TopicPartition] = []
        self._ends: Mapping[TopicPartition, int] = {}
        self._last: Mapping[TopicPartition, int] | None = None
        """With ``until_end``: where each partition ended at the first look."""
        self._woken_at: Mapping[TopicPartition, int] | None = None
        """The ends when new records were last waited for and came."""
        self._discover_at_secs = float("-inf")
        self._is_first_refresh = True
        self._log_starts: Mapping[TopicPartition, int] = {}
        """If lost records are skipped: the first offset that is still there of each partition."""
        self._shorter_since: dict[TopicPartition, float] = {}
        self._has_begun = False
        self._is_checked = False
        """Whether the topics were seen to exist; a topic that disappears after that is waited for."""

    @property
    def must_begin(self) -> bool:
        """Whether a transaction must make durable where partitions begin, even without records; see rule 1."""
        return self._options.first_poll.place == "latest" and not self._has_begun and not self._is_first_refresh

    @property
    def must_keep_begins(self) -> bool:
        """Whether the next transaction must make durable where each partition begins; see rule 1."""
        return not self._has_begun and bool(self._partitions) and self._options.first_poll.place != "earliest"

    def transaction_begun(self) -> None:
        """Record that such a transaction exists."""
        self._has_begun, self._is_first_refresh = True, False

    def resume(self, positions: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> None:
        """Go on from the metadata of a transaction."""
        self.positions = {**self.positions, **positions}
        self.ids.update(ids)

    def check_rewind(self, begins: Mapping[TopicPartition, int], *, is_to_the_start: bool) -> None:
        """Check that the records that a rewind is to have read again would be.

        Args:
            begins: where they begin in each partition.
            is_to_the_start: whether the rewind undoes the first transaction, so that ``first_poll`` says again where
                partitions begin.

        Raises:
            InputError: some are gone, unless ``on_lost`` says that these are skipped; or ``first_poll`` would name
                another place now.
            SourceFailure: Kafka does not answer.
        """
        if is_to_the_start and self._options.first_poll.place in {"latest", "group"}:
            raise InputError(
                f"first_poll is {self._options.first_poll.place!r}, which is another place now than when the spout "
                "began; go back to its first transaction at most"
            )
        if self._options.on_lost is OnLostRecords.SKIP or not begins:
            return
        first = self._log.starts(sorted(begins))
        lost = [
            f"{partition}: offsets {at} to {first[partition] - 1}"
            for partition, at in sorted(begins.items())
            if first.get(partition, at) > at
        ]
        if lost:
            raise InputError(
                f"records that are to be read again are gone (retention, or somebody deleted them): {'; '.join(lost)}"
            )

    def check_topics(self) -> bool:
        """Check that the topics exist; return False if Kafka does not answer, which is left to the first look.

        Raises:
            InputError: a topic does not exist; or no topic matches the pattern, and with ``until_end`` none may come.
        """
        for _ in range(FIRST_QUESTIONS):
            with contextlib.suppress(FailedException):  # Kafka may be starting, too; an InputError passes
                self._check(self._log.topics(self._options.topics))
                return True
        return False

    def next_spans(self) -> dict[TopicPartition, Span]:
        """Return the spans of the next transaction, by partition; leave out partitions with nothing to take.

        A span is empty if all that was left of its partition is gone and skipped: without it a run would never reach
        its end, and no transaction would record the loss.

        Raises:
            SourceFailure: Kafka does not answer.
            InputError: a topic was created again, or a log is shorter than what was planned of it.
        """
        now = self._options.now_secs()
        has_news = now >= self._discover_at_secs and self._discover(now)
        if has_news or not self._spans():  # the ends of the last look serve until nothing is left below them
            self._refresh(now)
        return self._spans()

    def wait_ready(self, secs: float) -> bool:
        """Wait for records after the known ends, up to ``secs``; return whether there are some."""
        # Records that the look after a wake-up does not count, such as those of an open transaction, would wake the
        # caller again and again.
        if not self._ends or self._ends == self._woken_at:
            return False
        is_woken = self._log.wait(self._ends, secs)
        self._woken_at = self._ends if is_woken else None
        return is_woken

    def is_exhausted(self) -> bool:
        """Return whether everything is planned that was there at the first look; never without ``until_end``."""
        if not self._options.until_end:
            return False
        if self._last is None:
            self.next_spans()
        assert self._last is not None, "a look has set it"
        return not self.must_begin and all(
            self.positions.get(partition, 0) >= end for partition, end in self._last.items()
        )

    def transactions_left(self) -> int:
        """Return how many transactions it takes to reach the known ends."""
        spans = self.next_spans()
        sizes = (self._end_of(partition) - span.start for partition, span in spans.items())
        return -(-max(sizes, default=0) // self._options.records_max)

    def remaining(self, positions: Mapping[TopicPartition, int]) -> int | None:
        """Return how many transactions are left from given offsets on; None if the spout does not end."""
        if self._last is None:
            return None
        records_left = (
            end - positions.get(partition, self.positions.get(partition, 0)) for partition, end in self._last.items()
        )
        return max(0, -(-max(records_left, default=0) // self._options.records_max))

    def lag(self) -> int | None:
        """Return how many offsets were not planned at the last look at the logs' ends; None before the first."""
        if not self._ends:
            return None
        return sum(max(0, end - self.positions.get(partition, 0)) for partition, end in self._ends.items())

    def _spans(self) -> dict[TopicPartition, Span]:
        spans = {}
        for partition in self._partitions:
            start = max(self.positions[partition], self._log_starts.get(partition, 0))
            end = max(start, self._end_of(partition))
            if end > self.positions[partition]:
                spans[partition] = Span(partition, start, min(end, start + self._options.records_max))
        return spans

    def _end_of(self, partition: TopicPartition) -> int:
        end = self._ends.get(partition, 0)
        return end if self._last is None else min(end, self._last.get(partition, 0))

    def _discover(self, now: float) -> bool:
        """Look for topics and partitions; return False if the answer is not there yet."""
        is_late = now >= self._discover_at_secs + LATE_SECS
        try:
            # To wait for new topics would delay the new records of known ones.
            topics = self._log.topics(self._options.topics, waits=is_late or not self._partitions)
        except UnansweredError:
            if is_late or not self._partitions:
                raise
            return False
        self._check(topics)
        missing = self._options.topics.missing(topic.name for topic in topics)
        if missing is not None:
            raise SourceFailure(f"Kafka has no topic {missing!r} now")
        check_ids(self.ids, topics)  # before self.ids takes the ids that were found
        partitions = [partition for topic in topics for partition in topic.all_partitions()]
        new = [partition for partition in partitions if partition not in self.positions]
        if new:
            log, first_poll = self._log, self._options.first_poll
            first = first_poll.offsets(log, new) if self._is_first_refresh else log.starts(new)
            if not self._is_first_refresh:
                logger.info("new partitions: %s", ", ".join(map(str, new)))
            self.positions.update(first)
        self._is_first_refresh = False
        if self._options.on_lost is OnLostRecords.SKIP:
            self._skip_lost(partitions)
        self._partitions = partitions
        self.ids.update({topic.name: topic.id for topic in topics})
        self._discover_at_secs = now + DISCOVERY_SECS
        return True

    def _check(self, topics: Sequence[Topic]) -> None:
        """Check at the start of a run without metadata that there is something to read."""
        if self._is_checked or self.positions:
            return
        nothing = check_topics(self._options.topics, topics, self._log)
        if nothing is not None:
            if self._options.until_end:
                raise InputError(f"{nothing}. The run would end without reading anything; correct the spout's topics")
            logger.warning("%s. Those that come later are read", nothing)
        self._is_checked = True

    def _skip_lost(self, partitions: Sequence[TopicPartition]) -> None:
        starts = self._log.starts(partitions)
        for partition, first_kept in starts.items():
            position = self.positions[partition]
            if first_kept > max(position, self._log_starts.get(partition, 0)):
                lost = Lost(Span(partition, position, first_kept), position, first_kept)
                logger.warning("%s; they are skipped", lost)
        self._log_starts = starts

    def _refresh(self, now: float) -> None:
        ends = self._log.ends(self._partitions)
        if self._options.until_end and self._last is None:
            if len(ends) < len(self._partitions):
                raise SourceFailure("a partition has no leader now")  # the run would end without its records
            self._last = dict(ends)
        self._ends = ends
        shorter = {}
        for partition, end in self._ends.items():
            if end < self.positions[partition]:
                shorter[partition] = self._shorter_since.get(partition, now)
                if now - shorter[partition] >= SHORTER_SECS:
                    raise InputError(
                        f"{partition} ends at offset {end}, but offsets up to {self.positions[partition]} were taken: "
                        "its log was cut off, so later records under these offsets are others. Give the topology "
                        "another id and new tables, or bring the partition's records back"
                    )
        self._shorter_since = shorter


def check_ids(expected: Mapping[str, str], topics: Sequence[Topic]) -> None:
    """Raise InputError if a topic was deleted and created again since its offsets were taken."""
    for topic in topics:
        before = expected.get(topic.name, NO_ID)
        if NO_ID not in {before, topic.id} and topic.id != before:
            raise InputError(
                f"topic {topic.name!r} was deleted and created again (its id was {before} and is {topic.id}), so the "
                "offsets that were taken mean other records. To read the new topic, give the topology another id and "
                "new tables; to go on, bring the former topic back under its name"
            )


class Publisher:
    """Publishes the offsets of committed transactions to a consumer group, for Kafka's tools.

    It never reads the group: metadata says where the spout continues. So a crash before a publication loses nothing.
    Without a group it does nothing.
    """

    def __init__(self, log: KafkaLog, group: str | None, now_secs: Callable[[], float]) -> None:
        self._log = log
        self._group = group
        self._now_secs = now_secs
        self._begun: deque[tuple[int, Mapping[TopicPartition, int]]] = deque()
        self._committed: Mapping[TopicPartition, int] = {}
        self._due: Mapping[TopicPartition, int] = {}
        self._publish_at_secs = float("-inf")
        self._errors = Repeated(REPEAT_SECS, clock=now_secs)

    def transaction_begun(self, txid: int, ends: Mapping[TopicPartition, int]) -> None:
        """Note where a transaction ends; a transaction that begins again replaces itself and later ones."""
        if self._group is not None:
            while self._begun and self._begun[-1][0] >= txid:
                self._begun.pop()
            self._begun.append((txid, dict(ends)))

    def committed_before(self, txid: int) -> None:
        """Record that the transactions below ``txid`` are committed, and publish their offsets if it is time."""
        while self._begun and self._begun[0][0] < txid:
            _, self._due = self._begun.popleft()
        self.publish_if_time()

    def publish_if_time(self) -> None:
        """Publish what is due, if it is time; also called while no further transaction begins."""
        if self._due and self._now_secs() >= self._publish_at_secs:
            self.publish()

    def publish(self) -> None:
        """Publish what is due; log a failure, since the next publication covers it."""
        due, self._due = self._due, {}
        if not due or self._group is None:
            return
        self._publish_at_secs = self._now_secs() + PUBLISH_SECS
        try:
            self._log.store(
                {partition: at for partition, at in due.items() if self._committed.get(partition) != at}, self._group
            )
            self._committed = due
        except (FailedException, InputError) as error:
            self._due = due
            text = self._errors.shown(f"the offsets could not be published to group {self._group!r}: {error}")
            if text is not None:
                logger.warning("%s", text)
