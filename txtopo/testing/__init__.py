"""Tools to test topologies, spouts, states and stores; txtopo's own tests use them too.

``run_inline`` runs a transactional topology in this process, without Spark. An ``InlineCluster`` runs plain ones, on
time that a test moves; ``FeederSpout`` feeds them, and ``complete_topology`` returns all that was emitted.
``simulation`` runs a topology through seeded disasters, and ``checkers`` check every promise in them. ``Scenario``
tests a coordinator event by event. To test your own spout, state or store against its contract, subclass a conformance
class. ``RecordingCollector`` and ``PlainContext`` replace the objects that a bolt receives. ``running_zookeeper``,
``KafkaBroker`` and ``KafkaCluster`` start real servers.
"""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names

if TYPE_CHECKING:
    from txtopo.testing.checkers import (
        Violation as Violation,
        check_input as check_input,
        check_journal as check_journal,
    )
    from txtopo.testing.collector import Emitted as Emitted, RecordingCollector as RecordingCollector
    from txtopo.testing.complete import CompletedTopology as CompletedTopology, complete_topology as complete_topology
    from txtopo.testing.conformance.distributor import (
        CodeDistributorConformance as CodeDistributorConformance,
        DistributorNimbus as DistributorNimbus,
        DistributorPlace as DistributorPlace,
    )
    from txtopo.testing.conformance.elector import (
        ElectorPlace as ElectorPlace,
        LeaderElectorConformance as LeaderElectorConformance,
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
    from txtopo.testing.context import PlainContext as PlainContext
    from txtopo.testing.feeders import (
        AckFailMapTracker as AckFailMapTracker,
        AckTracker as AckTracker,
        FeederSpout as FeederSpout,
        FixedTupleSpout as FixedTupleSpout,
    )
    from txtopo.testing.inline import run_inline as run_inline
    from txtopo.testing.inline_cluster import InlineCluster as InlineCluster, InlineTopology as InlineTopology
    from txtopo.testing.kafka import (
        KafkaBroker as KafkaBroker,
        KafkaCluster as KafkaCluster,
        KafkaTopics as KafkaTopics,
    )
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
    from txtopo.testing.tuples import make_tuple as make_tuple
    from txtopo.testing.zookeeper import (
        ZooKeeperEnsemble as ZooKeeperEnsemble,
        ZooKeeperServer as ZooKeeperServer,
        running_ensemble as running_ensemble,
        running_zookeeper as running_zookeeper,
    )

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "txtopo.testing.checkers": ("Violation", "check_input", "check_journal"),
        "txtopo.testing.collector": ("Emitted", "RecordingCollector"),
        "txtopo.testing.complete": ("CompletedTopology", "complete_topology"),
        "txtopo.testing.conformance.distributor": (
            "CodeDistributorConformance",
            "DistributorNimbus",
            "DistributorPlace",
        ),
        "txtopo.testing.conformance.elector": ("ElectorPlace", "LeaderElectorConformance"),
        "txtopo.testing.conformance.spout": (
            "DataFrameSpoutConformance",
            "OpaquePartitionedTransactionalSpoutConformance",
            "PartitionedTransactionalSpoutConformance",
            "SpoutConformance",
            "TransactionalSpoutConformance",
        ),
        "txtopo.testing.conformance.state": ("StateConformance", "StatePlace"),
        "txtopo.testing.conformance.store": ("StoreConformance", "StorePlace"),
        "txtopo.testing.context": ("PlainContext",),
        "txtopo.testing.feeders": ("AckFailMapTracker", "AckTracker", "FeederSpout", "FixedTupleSpout"),
        "txtopo.testing.inline": ("run_inline",),
        "txtopo.testing.inline_cluster": ("InlineCluster", "InlineTopology"),
        "txtopo.testing.kafka": ("KafkaBroker", "KafkaCluster", "KafkaTopics"),
        "txtopo.testing.memory_log": ("LogCall", "MemoryLog", "MemoryLogClient", "MemoryLogSender"),
        "txtopo.testing.redelivering_queue": ("QueueReader", "QueueSpout", "RedeliveringQueue"),
        "txtopo.testing.scenario": ("Scenario",),
        "txtopo.testing.tuples": ("make_tuple",),
        "txtopo.testing.zookeeper": ("ZooKeeperEnsemble", "ZooKeeperServer", "running_ensemble", "running_zookeeper"),
    },
)
