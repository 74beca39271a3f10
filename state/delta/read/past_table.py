"""A state's table as it was after some transaction, for reading only: what every kind of state has in common."""

from __future__ import annotations

from typing import Never

import pyarrow as pa
from deltalake import DeltaTable

from state.delta.log.fence import WORLD_ERRORS, state_application
from state.delta.log.location import Location
from state.delta.read.history import read_snapshot, shown_schema, version_as_of
from state.delta.read.reading import read_rows
from txtopo.api.state import OpenedState, StateKind, Writes
from txtopo.errors import ConfigError, StateAccessError

__all__ = ["PastDeltaTable"]


class PastDeltaTable(OpenedState):
    """A table at the newest version whose txid is not above a wanted one. It refuses to be written.

    Args:
        topology_id: the topology that the table belongs to.
        location: where it lies.
        state: the state's name.
        kind: its kind.
        txid: the last transaction to see.

    Raises:
        ConfigError: there is no table.
        StateAccessError: what it held then is no longer kept.
    """

    def __init__(self, topology_id: str, location: Location, state: str, kind: StateKind, txid: int) -> None:
        self._location = location
        self._state = state
        self._kind = kind
        self._application = state_application(topology_id, state)
        latest = location.existing()
        if latest is None:
            raise ConfigError(f"state {state!r}: there is no table at {location.address}")
        found = version_as_of(location, latest, self._application, txid)
        if found is None:
            raise self._gone(txid)
        self._table: DeltaTable = found
        self._txid = txid

    @property
    def identity(self) -> str:
        """Delta's id of the table."""
        return str(self._table.metadata().id)

    @property
    def last_txid(self) -> int | None:
        """The last transaction that the table had got then; None before the first."""
        return self._table.transaction_version(self._application)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as they were then, or as of an earlier transaction."""
        schema = shown_schema(self._table, self._kind)
        if txid is not None and txid < self._txid:
            return read_snapshot(self._location, self._application, schema, txid)
        return self._read(schema)

    def write(self, txid: int, values: Writes) -> Never:  # noqa: ARG002 - refused
        """Refuse."""
        raise self._refusal()

    def _read(self, schema: pa.Schema) -> pa.Table:
        try:
            return read_rows(self._table, schema)
        except WORLD_ERRORS as error:
            raise self._gone(self._txid) from error

    def _gone(self, txid: int) -> StateAccessError:
        return StateAccessError(
            f"state {self._state!r}: what the table at {self._location.address} held as of transaction {txid} "
            "is no longer kept, or cannot be read; a later transaction may be",
            txid=txid,
        )

    def _refusal(self) -> StateAccessError:
        return StateAccessError(f"state {self._state!r} is shown as it was in the past, and cannot be written")
