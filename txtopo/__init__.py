"""txtopo: transactional topologies, as in Storm, on Spark and Delta.

A stream is cut into transactions with rising ids. Many are processed in parallel; they are committed one after another,
in order, into tables that store the last txid with each value. A failed transaction is replayed as a whole, and every
total is as if it had run once.
"""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names
from txtopo.topology.user_code.modules import refuse_twins

if TYPE_CHECKING:
    from txtopo.api.components.bolt import (
        ArrowBatchBolt as ArrowBatchBolt,
        BasicBolt as BasicBolt,
        BatchBolt as BatchBolt,
        DataFrameBolt as DataFrameBolt,
        ICommitter as ICommitter,
        OutputFieldsDeclarer as OutputFieldsDeclarer,
        RichBolt as RichBolt,
    )
    from txtopo.api.components.collector import (
        BasicOutputCollector as BasicOutputCollector,
        BatchOutputCollector as BatchOutputCollector,
        OutputCollector as OutputCollector,
        SpoutOutputCollector as SpoutOutputCollector,
    )
    from txtopo.api.components.context import TaskHook as TaskHook, TopologyContext as TopologyContext
    from txtopo.api.components.groupings import CustomStreamGrouping as CustomStreamGrouping
    from txtopo.api.components.spout import (
        Coordinator as Coordinator,
        DataFrameSpout as DataFrameSpout,
        Emitter as Emitter,
        OpaquePartitionedEmitter as OpaquePartitionedEmitter,
        OpaquePartitionedTransactionalSpout as OpaquePartitionedTransactionalSpout,
        PartitionedCoordinator as PartitionedCoordinator,
        PartitionedEmitter as PartitionedEmitter,
        PartitionedTransactionalSpout as PartitionedTransactionalSpout,
        Spout as Spout,
        SpoutWaitStrategy as SpoutWaitStrategy,
        TransactionalSpout as TransactionalSpout,
    )
    from txtopo.api.data.fields import Fields as Fields
    from txtopo.api.data.tuples import Tuple as Tuple, Tuples as Tuples
    from txtopo.api.dataset import Dataset as Dataset
    from txtopo.api.map_state import MapState as MapState
    from txtopo.api.reduction import Combiner as Combiner
    from txtopo.api.state import State as State
    from txtopo.api.values import StateKind as StateKind
    from txtopo.assembly.plain.report import PlainReport as PlainReport
    from txtopo.assembly.plain.runner import RunningTopology as RunningTopology, start as start
    from txtopo.assembly.report import Progress as Progress, RunReport as RunReport
    from txtopo.attempts import TransactionAttempt as TransactionAttempt
    from txtopo.config import Config as Config
    from txtopo.engine.control import RunControl as RunControl
    from txtopo.engine.runner import run as run
    from txtopo.errors import (
        FailedException as FailedException,
        ReportedFailedException as ReportedFailedException,
        TxtopoError as TxtopoError,
    )
    from txtopo.topology.builders.builder import TransactionalTopologyBuilder as TransactionalTopologyBuilder
    from txtopo.topology.builders.graph import BoltDeclarer as BoltDeclarer, ComponentDeclarer as ComponentDeclarer
    from txtopo.topology.builders.plain_builder import TopologyBuilder as TopologyBuilder
    from txtopo.topology.topology import (
        PlainTopology as PlainTopology,
        Topology as Topology,
        TransactionalTopology as TransactionalTopology,
    )

refuse_twins()

__getattr__, __dir__, __all__ = lazy_names(__name__)
