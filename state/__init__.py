"""State: keyed tables that remember transactions, and stores for what coordinators keep.

``DeltaState``, ``DeltaRows`` and ``MemoryState`` are what ``builder.set_state`` takes. ``TransactionalState`` and
``RotatingTransactionalState`` are for your own coordinators and emitters, over a ``SqliteStore`` (one file,
no server), a ``ZooKeeperStore`` or a ``MemoryStore``. ``read_table`` reads one table without a topology, and
``read_tables`` all of a topology as of one transaction.
"""

from state.delta import DeltaState, read_table
from state.delta_consistent import ConsistentView, read_tables
from state.delta_plain import DeltaRows
from state.memory import MemoryState
from state.memory_store import MemoryStore
from state.sqlite import SqliteStore
from state.transactional import RotatingTransactionalState, TransactionalState
from state.values import NonTransactionalValue, OpaqueValue, TransactionalValue
from state.zookeeper import ZooKeeperStore
from txtopo.contracts.state import MapState, StateKind

__all__ = [
    "ConsistentView",
    "DeltaRows",
    "DeltaState",
    "MapState",
    "MemoryState",
    "MemoryStore",
    "NonTransactionalValue",
    "OpaqueValue",
    "RotatingTransactionalState",
    "SqliteStore",
    "StateKind",
    "TransactionalState",
    "TransactionalValue",
    "ZooKeeperStore",
    "read_table",
    "read_tables",
]
