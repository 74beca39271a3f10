"""States: tables that record transactions, and stores for coordinator state.

Pass a ``DeltaState``, ``DeltaRows``, ``DeltaExpiringRows`` or ``MemoryState`` to ``builder.set_state``, or for a table
of a database an ``SqlState`` or ``SqlRows``, and a ``DeltaReference``, a table that the topology only reads, to
``builder.set_reference``. A ``KafkaState`` is a topic that the topology writes.
``TransactionalState`` and ``RotatingTransactionalState`` are for your own coordinators and emitters, over a
``SqliteStore`` (one file, no server), a ``ZooKeeperStore``, an ``ObjectStore`` (a bucket) or a ``MemoryStore``.
``read_table`` reads one table without a topology, ``read_tables`` reads all tables of a topology as of one transaction,
and ``read_points`` returns the transactions as of which either can be read.
"""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names

if TYPE_CHECKING:
    from state.delta.expiring.state import DeltaExpiringRows as DeltaExpiringRows
    from state.delta.keyed.state import DeltaState as DeltaState, read_table as read_table
    from state.delta.read.consistent import (
        ConsistentView as ConsistentView,
        read_points as read_points,
        read_tables as read_tables,
    )
    from state.delta.read.points import ShownPoint as ShownPoint, ShownPoints as ShownPoints
    from state.delta.reference.declared import DeltaReference as DeltaReference
    from state.delta.rows.state import DeltaRows as DeltaRows
    from state.delta.schema import RowFormat as RowFormat, checked_fields as checked_fields
    from state.kafka.state import KafkaState as KafkaState
    from state.memory import MemoryState as MemoryState
    from state.sql.keyed import SqlState as SqlState
    from state.sql.rows import SqlRows as SqlRows
    from state.stores.memory import MemoryStore as MemoryStore
    from state.stores.objects import ObjectStore as ObjectStore
    from state.stores.sqlite import SqliteStore as SqliteStore
    from state.stores.zookeeper import ZooKeeperStore as ZooKeeperStore
    from state.transactional import (
        RotatingTransactionalState as RotatingTransactionalState,
        TransactionalState as TransactionalState,
    )
    from txtopo.api.map_state import MapState as MapState
    from txtopo.api.values import (
        NonTransactionalValue as NonTransactionalValue,
        OpaqueValue as OpaqueValue,
        StateKind as StateKind,
        TransactionalValue as TransactionalValue,
    )

__getattr__, __dir__, __all__ = lazy_names(__name__)
