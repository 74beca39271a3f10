"""txtopo: transactional topologies, as in Storm, on Spark and Delta.

A stream is cut into transactions with rising ids. Many are processed at once; they are committed one after
another, in order, into tables that hold the last txid beside each value. A transaction that fails is
replayed as a whole, and every total is as if it had run once.
"""

from txtopo.config import Config
from txtopo.contracts.bolt import (
    ArrowBatchBolt,
    BasicBolt,
    BatchBolt,
    DataFrameBolt,
    ICommitter,
    OutputFieldsDeclarer,
)
from txtopo.contracts.collector import OutputCollector
from txtopo.contracts.context import TopologyContext
from txtopo.contracts.fields import Fields
from txtopo.contracts.reduction import Combiner
from txtopo.contracts.spout import (
    Coordinator,
    DataFrameSpout,
    Emitter,
    OpaquePartitionedEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedEmitter,
    PartitionedTransactionalSpout,
    TransactionalSpout,
)
from txtopo.contracts.state import MapState, State, StateKind
from txtopo.contracts.tuples import Tuple
from txtopo.core.attempts import TransactionAttempt
from txtopo.errors import FailedException, ReportedFailedException, TxtopoError
from txtopo.monitor.report import Progress, RunReport
from txtopo.runner import run
from txtopo.topology.builder import TransactionalTopologyBuilder
from txtopo.topology.graph import BoltDeclarer, ComponentDeclarer
from txtopo.topology.groupings import CustomStreamGrouping
from txtopo.topology.plan import Topology

__all__ = [
    "ArrowBatchBolt",
    "BasicBolt",
    "BatchBolt",
    "BoltDeclarer",
    "Combiner",
    "ComponentDeclarer",
    "Config",
    "Coordinator",
    "CustomStreamGrouping",
    "DataFrameBolt",
    "DataFrameSpout",
    "Emitter",
    "FailedException",
    "Fields",
    "ICommitter",
    "MapState",
    "OpaquePartitionedEmitter",
    "OpaquePartitionedTransactionalSpout",
    "OutputCollector",
    "OutputFieldsDeclarer",
    "PartitionedCoordinator",
    "PartitionedEmitter",
    "PartitionedTransactionalSpout",
    "Progress",
    "ReportedFailedException",
    "RunReport",
    "State",
    "StateKind",
    "Topology",
    "TopologyContext",
    "TransactionAttempt",
    "TransactionalSpout",
    "TransactionalTopologyBuilder",
    "Tuple",
    "TxtopoError",
    "run",
]
