"""Spouts: ready-made sources of transactions, and the contracts to subclass for your own."""

from spouts.files import FilesTransactionalSpout
from spouts.memory import MemoryTransactionalSpout
from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from txtopo.contracts.spout import (
    Coordinator,
    DataFrameSpout,
    Emitter,
    OpaquePartitionedEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedEmitter,
    PartitionedTransactionalSpout,
    SpoutTable,
    TransactionalSpout,
)

__all__ = [
    "Coordinator",
    "DataFrameSpout",
    "Emitter",
    "FilesTransactionalSpout",
    "MemoryTransactionalSpout",
    "OpaqueMemoryTransactionalSpout",
    "OpaquePartitionedEmitter",
    "OpaquePartitionedTransactionalSpout",
    "PartitionedCoordinator",
    "PartitionedEmitter",
    "PartitionedTransactionalSpout",
    "SpoutTable",
    "TransactionalSpout",
]
