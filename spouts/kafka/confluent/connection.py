"""The connection of both clients: partitions in the form of confluent-kafka, and errors that name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spouts.kafka.log import TopicPartition
from txtopo.errors import InputError, SourceFailure
from txtopo.network.kafka_connection import KafkaConnection

END_OF_PARTITION = "_PARTITION_EOF"


class BrokerConnection(KafkaConnection):
    """Takes partitions in txtopo's form, and names the one that an error is about."""

    def places(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> list[Any]:
        """Return partitions in the client's form, with their offsets if they have any."""
        kind = self.library.TopicPartition
        if isinstance(partitions, Mapping):
            return [kind(partition.topic, partition.partition, offset) for partition, offset in partitions.items()]
        return [kind(partition.topic, partition.partition) for partition in partitions]

    def check(self, places: Iterable[Any]) -> None:
        """Raise the first error among answers about partitions."""
        for place in places:
            if place.error is not None:
                raise self.failure_at(place.error, place.topic, place.partition)

    def failure_at(self, error: Any, topic: str | None, partition: int) -> InputError | SourceFailure:
        """Return txtopo's error for one about a partition; without a topic it is about no partition."""
        return self.failure(error, "" if topic is None else str(TopicPartition(topic, partition)))
