"""State: keyed tables that remember transactions, and stores for what coordinators keep.

``DeltaState`` and ``MemoryState`` are what ``builder.set_state`` takes. ``TransactionalState`` and
``RotatingTransactionalState`` are for your own coordinators and emitters, over a ``SqliteStore`` (one file,
no server), a ``ZooKeeperStore`` or a ``MemoryStore``.
"""

from state.delta import DeltaState, read_table
from state.memory import MemoryState
from state.memory_store import MemoryStore
from state.sqlite import SqliteStore
from state.transactional import RotatingTransactionalState, TransactionalState
from state.values import NonTransactionalValue, OpaqueValue, TransactionalValue
from state.zookeeper import ZooKeeperStore
from txtopo.contracts.state import MapState, StateKind

__all__ = [
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
]
