"""Spouts over Kafka topics; they need confluent-kafka, the extra ``kafka``."""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names

if TYPE_CHECKING:
    from spouts.kafka.debezium import Debezium as Debezium
    from spouts.kafka.log import (
        KafkaRecord as KafkaRecord,
        TopicFilter as TopicFilter,
        TopicPartition as TopicPartition,
    )
    from spouts.kafka.opaque import OpaqueKafkaSpout as OpaqueKafkaSpout
    from spouts.kafka.plain.config import (
        FirstPollOffsetStrategy as FirstPollOffsetStrategy,
        KafkaSpoutConfig as KafkaSpoutConfig,
        KafkaTupleListener as KafkaTupleListener,
        ProcessingGuarantee as ProcessingGuarantee,
    )
    from spouts.kafka.plain.dead_letters import (
        DeadLetter as DeadLetter,
        DeadLetterHook as DeadLetterHook,
        DeltaDeadLetters as DeltaDeadLetters,
    )
    from spouts.kafka.plain.partitioner import (
        Partitioner as Partitioner,
        RoundRobinPartitioner as RoundRobinPartitioner,
    )
    from spouts.kafka.plain.progress import MessageId as MessageId
    from spouts.kafka.plain.retries import ExponentialBackoff as ExponentialBackoff, RetryPolicy as RetryPolicy
    from spouts.kafka.plain.spout import KafkaSpout as KafkaSpout
    from spouts.kafka.plain.translators import (
        ByTopicRecordTranslator as ByTopicRecordTranslator,
        DefaultRecordTranslator as DefaultRecordTranslator,
        JsonRecordTranslator as JsonRecordTranslator,
        KafkaTuple as KafkaTuple,
        RecordTranslator as RecordTranslator,
        SimpleRecordTranslator as SimpleRecordTranslator,
    )
    from spouts.kafka.records import RECORD_FIELDS as RECORD_FIELDS
    from spouts.kafka.registry import SchemaRegistry as SchemaRegistry
    from spouts.kafka.spout import TransactionalKafkaSpout as TransactionalKafkaSpout
    from spouts.kafka.topics import NamedTopicFilter as NamedTopicFilter, PatternTopicFilter as PatternTopicFilter

__getattr__, __dir__, __all__ = lazy_names(__name__)
