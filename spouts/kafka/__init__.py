"""Spouts over Kafka topics; they need confluent-kafka: ``pip install 'txtopo[kafka]'``."""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names

if TYPE_CHECKING:
    from spouts.kafka.opaque import (
        OpaqueKafkaSpout as OpaqueKafkaSpout,
    )
    from spouts.kafka.records import (
        RECORD_FIELDS as RECORD_FIELDS,
        KafkaRecord as KafkaRecord,
    )
    from spouts.kafka.spout import (
        TransactionalKafkaSpout as TransactionalKafkaSpout,
    )

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "spouts.kafka.opaque": ("OpaqueKafkaSpout",),
        "spouts.kafka.records": ("RECORD_FIELDS", "KafkaRecord"),
        "spouts.kafka.spout": ("TransactionalKafkaSpout",),
    },
)
