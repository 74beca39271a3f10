"""Tools to test topologies, spouts, states and stores; txtopo's tests use them too.

``run_inline`` runs a transactional topology in this process, without Spark. An ``InlineCluster`` runs plain ones, on
simulated time that the test advances; ``FeederSpout`` feeds them. ``complete_topology`` returns all tuples of one.
``simulation`` runs a topology through seeded disasters, and ``checkers`` check every promise in them. ``Scenario``
tests a coordinator event by event. To test your own spout, state or store against its contract, subclass a conformance
class. ``RecordingCollector`` and ``PlainContext`` replace the objects that a bolt receives. ``running_zookeeper``,
``KafkaBroker`` and ``KafkaCluster`` start real servers.
"""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names

if TYPE_CHECKING:
    from txtopo.servers.kafka import (
        KafkaBroker as KafkaBroker,
        KafkaCluster as KafkaCluster,
        KafkaTopics as KafkaTopics,
    )
    from txtopo.servers.zookeeper import (
        ZooKeeperEnsemble as ZooKeeperEnsemble,
        ZooKeeperServer as ZooKeeperServer,
        running_ensemble as running_ensemble,
        running_zookeeper as running_zookeeper,
    )
    from txtopo.testing.checkers import (
        Violation as Violation,
        check_input as check_input,
        check_journal as check_journal,
    )
    from txtopo.testing.collector import Emitted as Emitted, RecordingCollector as RecordingCollector
    from txtopo.testing.complete import CompletedTopology as CompletedTopology, complete_topology as complete_topology
    from txtopo.testing.conformance.changes import (
        ChangesConformance as ChangesConformance,
        ChangesPlace as ChangesPlace,
    )
    from txtopo.testing.conformance.distributor import (
        CodeDistributorConformance as CodeDistributorConformance,
        DistributorNimbus as DistributorNimbus,
        DistributorPlace as DistributorPlace,
    )
    from txtopo.testing.conformance.elector import (
        ElectorPlace as ElectorPlace,
        LeaderElectorConformance as LeaderElectorConformance,
    )
    from txtopo.testing.conformance.expiring import (
        EXPIRING_FIELDS as EXPIRING_FIELDS,
        EXPIRING_KEY as EXPIRING_KEY,
        EXPIRING_VALUE as EXPIRING_VALUE,
        ExpiringKeysConformance as ExpiringKeysConformance,
        ExpiringRowsConformance as ExpiringRowsConformance,
    )
    from txtopo.testing.conformance.spout import (
        DataFrameSpoutConformance as DataFrameSpoutConformance,
        OpaquePartitionedTransactionalSpoutConformance as OpaquePartitionedTransactionalSpoutConformance,
        PartitionedTransactionalSpoutConformance as PartitionedTransactionalSpoutConformance,
        SpoutConformance as SpoutConformance,
        TransactionalSpoutConformance as TransactionalSpoutConformance,
    )
    from txtopo.testing.conformance.state import StateConformance as StateConformance, StatePlace as StatePlace
    from txtopo.testing.conformance.store import StoreConformance as StoreConformance, StorePlace as StorePlace
    from txtopo.testing.context import PlainContext as PlainContext, make_tuple as make_tuple
    from txtopo.testing.feeders import (
        AckFailMapTracker as AckFailMapTracker,
        AckTracker as AckTracker,
        FeederSpout as FeederSpout,
        FixedTupleSpout as FixedTupleSpout,
    )
    from txtopo.testing.inline import run_inline as run_inline
    from txtopo.testing.inline_cluster import InlineCluster as InlineCluster, InlineTopology as InlineTopology
    from txtopo.testing.memory_log import (
        LogCall as LogCall,
        MemoryLog as MemoryLog,
        MemoryLogClient as MemoryLogClient,
        MemoryLogSender as MemoryLogSender,
    )
    from txtopo.testing.redelivering_queue import (
        QueueReader as QueueReader,
        QueueSpout as QueueSpout,
        RedeliveringQueue as RedeliveringQueue,
    )
    from txtopo.testing.scenario import Scenario as Scenario

__getattr__, __dir__, __all__ = lazy_names(__name__)
