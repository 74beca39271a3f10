"""State: keyed tables that remember transactions, and stores for what coordinators keep.

``DeltaState``, ``DeltaRows`` and ``MemoryState`` are what ``builder.set_state`` takes. ``TransactionalState`` and
``RotatingTransactionalState`` are for your own coordinators and emitters, over a ``SqliteStore`` (one file,
no server), a ``ZooKeeperStore`` or a ``MemoryStore``. ``read_table`` reads one table without a topology, and
``read_tables`` all of a topology as of one transaction.
"""

from typing import TYPE_CHECKING, Any

from state.delta import DeltaState, read_table
from state.delta_consistent import ConsistentView, read_tables
from state.delta_plain import DeltaRows
from state.memory import MemoryState
from state.memory_store import MemoryStore
from state.sqlite import SqliteStore
from state.transactional import RotatingTransactionalState, TransactionalState
from state.values import NonTransactionalValue, OpaqueValue, TransactionalValue
from txtopo.contracts.state import MapState, StateKind

if TYPE_CHECKING:
    from state.zookeeper import ZooKeeperStore

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


def __getattr__(name: str) -> Any:
    """Import what few need when it is asked for: the client of ZooKeeper."""
    if name == "ZooKeeperStore":
        from state.zookeeper import ZooKeeperStore  # noqa: PLC0415 - only here, see above

        return ZooKeeperStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
