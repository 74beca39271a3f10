"""The transactional spouts over Kafka, reading a MemoryLog."""

from typing import Any

from spouts.kafka import OpaqueKafkaSpout, TransactionalKafkaSpout
from txtopo.testing.memory_log import MemoryLog, MemoryLogReader


class _InMemory:
    def __init__(self, world: MemoryLog, *arguments: Any, **options: Any) -> None:
        super().__init__("memory", *arguments, **options)
        self.world = world

    def make_log(self, config, *, is_shared):
        return MemoryLogReader(self.world)


class TransactionalInMemory(_InMemory, TransactionalKafkaSpout):
    """A TransactionalKafkaSpout on a log in memory, its first argument."""


class OpaqueInMemory(_InMemory, OpaqueKafkaSpout):
    """An OpaqueKafkaSpout on a log in memory, its first argument."""
