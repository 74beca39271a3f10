"""Replaces the outside in a simulated run: folders whose files are taken at once, and Kafka without a broker.

Thousands of schedules run on simulated time. So nothing in them may wait for the real clock. Nothing may be written to
the outside either: if a schedule committed offsets, it would commit those of the real topology's consumer group.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from committers.kafka import KafkaBolt, KafkaMessage, KafkaSender, SenderSettings
from spouts.files.spout import FilesTransactionalSpout
from spouts.files.watch import WatchTimes
from spouts.kafka.plain.config import KafkaSpoutConfig
from spouts.kafka.plain.dead_letters import DeadLetter, DeadLetterHook
from spouts.kafka.plain.spout import KafkaSpout
from spouts.kafka.planner import Planner
from spouts.kafka.spout import KafkaInput
from txtopo.errors import ConfigError
from txtopo.testing.memory_log import MemoryLog
from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.topology.plans.plan import SPOUTS, Plan, PlannedComponent

_TO_A_BROKER = attrs.fields(KafkaSpoutConfig).connect.default


def standing_in(plan: Plan) -> Plan:
    """Return a transactional plan whose spouts take what is there without waiting, and publish nothing.

    Raises:
        ConfigError: a spout reads Kafka, which does not answer: each schedule would wait for it in real time.
    """
    components = tuple(
        _standing_in(component) if component.kind in SPOUTS else component for component in plan.components
    )
    return attrs.evolve(plan, components=components)


def _standing_in(planned: PlannedComponent) -> PlannedComponent:
    spout = copy.copy(planned.component)  # the user may run the topology after it was simulated
    match spout:
        case FilesTransactionalSpout(watch=WatchTimes()):
            spout.watch = WatchTimes(settle_secs=0, poll_secs=0, now_secs=_no_time, spent_secs=_no_time)
        case KafkaInput():
            spout.publish_group = None
            with contextlib.closing(spout.make_log({}, is_shared=False)) as log:
                if not Planner(log, spout.options).check_topics():
                    raise ConfigError(
                        f"{planned.id!r} reads Kafka at {spout.servers}, which does not answer; a simulated run "
                        "reads what is there when it begins, so start Kafka first; 'txtopo kafka dev' starts a broker"
                    )
        case _:
            return planned
    return attrs.evolve(planned, component=spout)


def check_sources(plan: PlainPlan) -> None:
    """Raise ConfigError if a plain topology's spout reads from Kafka's brokers: it can't be simulated."""
    for component in plan.components:
        if isinstance(component.component, KafkaSpout) and component.component.config.connect is _TO_A_BROKER:
            raise ConfigError(
                f"{component.id!r} reads Kafka, and a simulated run is never connected to a broker: it would commit "
                "offsets of the real group; simulate the topology with connect=log.connect in the settings of "
                f"{component.id!r}, where log is a txtopo.testing.MemoryLog with some records"
            )


@attrs.define(eq=False)
class Outside:
    """The outside of one schedule of a plain topology; ``clock`` returns the time in seconds."""

    clock: Callable[[], float]
    _logs: dict[MemoryLog, MemoryLog] = attrs.field(factory=dict)
    """This schedule's copy of each log that a spout was given: every schedule begins with the same records."""

    def stand_in(self, component: Any) -> None:
        """Connect a new object of a component to this outside."""
        match component:
            case KafkaSpout():
                component.clock = self.clock
                log = getattr(component.config.connect, "__self__", None)
                component.config = attrs.evolve(
                    component.config,
                    fields=None,  # the translator has them
                    deserializer=None,
                    connect=self._log(log).connect if isinstance(log, MemoryLog) else component.config.connect,
                    dead_letter=None if component.config.dead_letter is None else _NoLetters(),
                )
            case KafkaBolt():
                component.connect = _Sender

    def _log(self, given: MemoryLog) -> MemoryLog:
        if given not in self._logs:
            self._logs[given] = given.copy()
        return self._logs[given]


class _NoLetters(DeadLetterHook):
    """Replaces the user's hook, which would write dead letters to the outside."""

    def take(self, letters: Sequence[DeadLetter]) -> None:
        """Keep nothing."""


class _Sender(KafkaSender):
    """A sender that acknowledges every record at once."""

    def __init__(self, settings: SenderSettings) -> None:
        del settings

    def send(self, message: KafkaMessage, on_delivery: Callable[[Exception | None], None]) -> bool:
        """Acknowledge a record."""
        del message
        on_delivery(None)
        return True

    def serve(self, timeout_secs: float) -> None:
        """Do nothing: every record is acknowledged already."""

    def close(self, timeout_secs: float) -> None:
        """Do nothing."""


def _no_time() -> float:
    return 0.0
