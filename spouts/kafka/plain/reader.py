"""What the parts of an opened KafkaSpout share: its partitions and consumer, where failures go, and their timers."""

from __future__ import annotations

from collections.abc import Callable

from spouts.kafka.log import ConsumerSettings, KafkaConsumer, TopicPartition
from spouts.kafka.plain.config import KafkaSpoutConfig
from spouts.kafka.plain.progress import MessageId, PartitionProgress
from txtopo.api.components.collector import SpoutOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.errors import InputError, SourceFailure
from txtopo.network.kafka_connection import REPEAT_SECS
from txtopo.text.repeated import Repeated

DELAY_MS = 500
"""How much later than its period a timer is due for the first time."""


class Timer:
    """Is due once in a period; times are in milliseconds."""

    def __init__(self, period_ms: float, now_ms: float) -> None:
        self._period_ms = period_ms
        self._due_ms = now_ms + DELAY_MS + period_ms

    def is_due(self, now_ms: float) -> bool:
        """Return whether the timer is due; if so, its next period begins."""
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._period_ms
        return True


class Reader:
    """A task of a KafkaSpout from its opening to its end."""

    def __init__(
        self,
        config: KafkaSpoutConfig,
        context: TopologyContext,
        collector: SpoutOutputCollector,
        clock: Callable[[], float],
    ) -> None:
        self.config = config
        self.context = context
        self.collector = collector
        self.group_id = config.group_id or f"{context.topology_id}-{context.this_component_id}"
        self.partitions: dict[TopicPartition, PartitionProgress] = {}
        """The partitions that are assigned to this task; only the ``Assignment`` adds and removes them."""
        self.is_active = self.is_closed = False
        self._clock = clock
        self._errors = Repeated(REPEAT_SECS, clock=clock)
        self.consumer: KafkaConsumer = config.connect(
            ConsumerSettings(config.servers, self.group_id, config.offset_reset, config.properties, self.report)
        )

    def now_ms(self) -> float:
        """Return the time, in milliseconds."""
        return self._clock() * 1000

    def in_flight(self, message_id: MessageId) -> PartitionProgress | None:
        """Return the partition of a message; None if the message is not in flight in this assignment."""
        progress = self.partitions.get(message_id.partition)
        return progress if progress is not None and progress.is_in_flight(message_id) else None

    def seek(self, progress: PartitionProgress, offset: int) -> bool:
        """Let reading go on at an offset; if Kafka can't do that now, report it and return False."""
        try:
            self.consumer.seek(progress.partition, offset)
        except SourceFailure as error:
            self.report(error)
            return False
        progress.position = offset
        return True

    def report(self, error: BaseException) -> None:
        """Report a failure of Kafka, repeats only now and then; raise an InputError, which the spout can't survive."""
        if isinstance(error, InputError):
            raise error
        if not isinstance(error, SourceFailure):
            self.collector.report_error(error)
            return
        text = self._errors.shown(error.message)
        if text is not None:  # without a traceback, which says nothing to the user
            self.collector.report_error(SourceFailure(text))

    def report_input(self, text: str) -> None:
        """Report what is wrong with the input, and go on."""
        self.collector.report_error(InputError(text))
