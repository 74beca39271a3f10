"""A KafkaSpout on a log in memory, in time that a test moves: one call at a time, as a worker makes them."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import attrs
import cloudpickle

from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.config import KafkaSpoutConfig
from spouts.kafka.plain.progress import MessageId
from spouts.kafka.plain.retries import ExponentialBackoff
from spouts.kafka.plain.spout import KafkaSpout
from spouts.kafka.plain.translators import SimpleRecordTranslator
from txtopo.api.components.collector import SpoutOutputCollector
from txtopo.api.data.fields import Fields
from txtopo.testing.context import PlainContext
from txtopo.testing.memory_log import MemoryLog

TOPIC = "test"
STREAM = "test_stream"
GROUP = "kafkaSpoutTestGroup"
NO_DELAY = ExponentialBackoff(0, 0, delay_max_ms=0)
P1, P2 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@attrs.frozen
class Emission:
    """What a spout emitted."""

    values: Sequence[Any]
    stream: str
    id: MessageId | None

    @property
    def offset(self) -> int:
        assert self.id is not None
        return self.id.offset


class Collector(SpoutOutputCollector):
    """Keeps what is emitted and reported."""

    def __init__(self) -> None:
        self.emitted: list[Emission] = []
        self.errors: list[BaseException] = []

    def emit(self, values: Sequence[Any], stream: str = "default", message_id: Any = None) -> list[int]:
        self.emitted.append(Emission(tuple(values), stream, message_id))
        return [1]

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = "default", message_id: Any = None) -> None:
        raise NotImplementedError

    def pending_count(self) -> int:
        return len(self.emitted)

    def report_error(self, error: BaseException) -> None:
        self.errors.append(error)


class Context(PlainContext):
    """Runs what is offloaded at once, or when a test says so."""

    def __init__(self, topology_id: str, tasks: int, index: int) -> None:
        super().__init__(topology_id=topology_id, tasks=tasks, this_task_index=index)
        self.holds = False
        self.offloaded: list[tuple[Callable[[], Any], Callable[[Future[Any]], None]]] = []

    def offload(self, call: Callable[[], Any], on_done: Callable[[Future[Any]], None]) -> None:
        self.offloaded.append((call, on_done))
        if not self.holds:
            self.run_offloaded()

    def run_offloaded(self) -> None:
        while self.offloaded:
            call, on_done = self.offloaded.pop(0)
            done: Future[Any] = Future()
            try:
                done.set_result(call())
            except Exception as error:  # noqa: BLE001 - as the worker does
                done.set_exception(error)
            on_done(done)


class Clock:
    """Milliseconds that a test moves."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms / 1000


class Rig:
    """A spout task, opened and active.

    The settings are those of Storm's tests: polls of 5, retries without delay, commits every 2 s, EARLIEST, and 250
    uncommitted offsets.
    """

    def __init__(
        self,
        log: MemoryLog,
        *,
        topology_id: str = "topology",
        tasks: int = 1,
        index: int = 0,
        clock: Clock | None = None,
        topics: Any = TOPIC,
        activate: bool = True,
        collector: Collector | None = None,
        **settings: Any,
    ) -> None:
        self.log = log
        self.clock = clock or Clock()
        defaults: Mapping[str, Any] = {
            "group_id": GROUP,
            "batch_records_max": 5,
            "retry_service": NO_DELAY,
            "offset_commit_period_ms": 2_000,
            "first_poll": "earliest",
            "max_uncommitted_offsets": 250,
            "connect": log.connect,
            "translator": SimpleRecordTranslator(_topic_key_value, Fields("topic", "key", "value"), STREAM),
        }
        config = cloudpickle.loads(cloudpickle.dumps(KafkaSpoutConfig("memory", topics, **{**defaults, **settings})))
        self.spout = KafkaSpout(config, clock=self.clock)
        self.collector = collector or Collector()
        self.context = Context(topology_id, tasks, index)
        self.spout.open({}, self.context, self.collector)
        if activate:
            self.spout.activate()
            self.members = log.members(GROUP)[-1:]
            """The client of this spout, if it has subscribed."""

    @property
    def emitted(self) -> list[Emission]:
        return self.collector.emitted

    @property
    def offsets(self) -> list[int]:
        """The offsets of all that was emitted with an id."""
        return [each.offset for each in self.emitted]

    def call(self, times: int = 1) -> list[Emission]:
        """Call next_tuple; return what was emitted."""
        before = len(self.emitted)
        for _ in range(times):
            self.spout.next_tuple()
        return self.emitted[before:]

    def ack(self, emissions: Sequence[Emission]) -> None:
        for emission in emissions:
            self.spout.ack(emission.id)

    def fail(self, emissions: Sequence[Emission]) -> None:
        for emission in emissions:
            self.spout.fail(emission.id)

    def advance(self, ms: float) -> None:
        self.clock.ms += ms

    def commit_step(self) -> list[Emission]:
        """Let the time of a commit come."""
        self.advance(2_500)
        return self.call()

    def commits(self) -> int | None:
        """Let the time of a commit come; return what the group has committed then."""
        self.commit_step()
        return self.committed()

    def committed(self, partition: TopicPartition = P1) -> int | None:
        """Return what the group has committed."""
        stored = self.log.committed(GROUP).get(partition)
        return None if stored is None else stored.offset

    def completed(self, partition: TopicPartition = P1) -> int:
        """Return what the spout takes for committed."""
        return self.spout.metrics()[f"{partition.topic}/partition_{partition.partition}/latestCompletedOffset"]

    def expire(self) -> None:
        """Let the group take this member for dead."""
        (client,) = self.members
        if not client.is_expired:
            self.log.expire(client)

    def asked(self, *names: str) -> list[Any]:
        """Return with what the client was called, of calls of that name; forget the calls."""
        found = [call.given for call in self.log.calls if call.name in names]
        self.log.calls.clear()
        return found


def filled(messages: int, partitions: int = 1, topic: str = TOPIC) -> MemoryLog:
    """Return a log with so many messages in each partition: key and value are the number."""
    log = MemoryLog()
    log.create_topic(topic, partitions)
    for partition in range(partitions):
        log.append(topic, [(str(number), str(number)) for number in range(messages)], partition)
    return log


def _topic_key_value(record: Any) -> Sequence[Any]:
    key, value = (None if each is None else each.decode() for each in (record.key, record.value))
    return record.topic, key, value
