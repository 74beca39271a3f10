"""Ready-made spouts, and the contracts to subclass for your own."""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names

if TYPE_CHECKING:
    from spouts.data_source import DataSourceSpout as DataSourceSpout
    from spouts.delta.spout import DeltaTransactionalSpout as DeltaTransactionalSpout
    from spouts.files.spout import FilesTransactionalSpout as FilesTransactionalSpout
    from spouts.memory import MemoryTransactionalSpout as MemoryTransactionalSpout
    from spouts.opaque_memory import OpaqueMemoryTransactionalSpout as OpaqueMemoryTransactionalSpout
    from spouts.sql.opaque import OpaqueSqlTransactionalSpout as OpaqueSqlTransactionalSpout
    from spouts.sql.spout import SqlTransactionalSpout as SqlTransactionalSpout
    from txtopo.api.components.spout import (
        Coordinator as Coordinator,
        DataFrameSpout as DataFrameSpout,
        Emitter as Emitter,
        Lag as Lag,
        OpaquePartitionedEmitter as OpaquePartitionedEmitter,
        OpaquePartitionedTransactionalSpout as OpaquePartitionedTransactionalSpout,
        PartitionedCoordinator as PartitionedCoordinator,
        PartitionedEmitter as PartitionedEmitter,
        PartitionedTransactionalSpout as PartitionedTransactionalSpout,
        SpoutTable as SpoutTable,
        TransactionalSpout as TransactionalSpout,
    )

__getattr__, __dir__, __all__ = lazy_names(__name__)
