"""Whose a Delta table is: written into its configuration when it is made, compared whenever it is opened.

A table of another topology, another state, another incarnation of the topology, another kind or other columns is
refused before anything is written, and so is whatever txtopo did not make.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from state.delta.log.entries import EPOCH_NOTE
from state.delta.log.fence import state_application
from state.delta.log.location import Location
from txtopo.api.state import StateKind
from txtopo.errors import DivergenceError

__all__ = ["Owner", "columns_text", "not_empty", "not_ours", "partition_misfit"]

_TOPOLOGY, _STATE, _INCARNATION, _KIND = "txtopo.topology", "txtopo.state", "txtopo.life", "txtopo.kind"

_WAY_OUT = (
    "Give the state another path; or, if the table is no longer needed, remove it; or, if it belongs to "
    "coordinator state that was lost, bring that back, or see what 'txtopo repair' can do"
)


@attrs.frozen
class Owner:
    """What a table belongs to.

    Args:
        topology_id: the topology.
        state: the state's name in it.
        incarnation: the topology's incarnation that the table was made in.
        kind: what is kept beside each value.
    """

    topology_id: str
    state: str
    incarnation: str
    kind: StateKind

    @staticmethod
    def of(table: DeltaTable) -> Owner | None:
        """Return the owner that ``table`` was made for, None if txtopo did not make it."""
        configuration = table.metadata().configuration
        names = (_TOPOLOGY, _STATE, _INCARNATION, _KIND)
        if any(configuration.get(name) is None for name in names):
            return None
        topology_id, state, incarnation, kind = (configuration[name] for name in names)
        if kind not in {known.value for known in StateKind}:
            return None
        return Owner(topology_id, state, incarnation, StateKind(kind))

    def take(self, location: Location, schema: pa.Schema, partition_by: Sequence[str] = ()) -> DeltaTable:
        """Return a handle of this owner's table, made now if there is none.

        Args:
            location: where it lies.
            schema: its columns.
            partition_by: those that it is partitioned by.

        Raises:
            DivergenceError: what lies there is another's.
        """
        table = location.existing() or self._make(location, schema, partition_by)
        found = Owner.of(table)
        if found is None:
            raise not_ours(location)
        if found != self:
            raise self._divergence(location, table, f"it is of {found.text()}")
        if table.schema() != Schema.from_arrow(schema):
            columns = columns_text(pa.schema(table.schema()))
            raise self._divergence(location, table, f"its columns are {columns} and not {columns_text(schema)}")
        misfit = partition_misfit(table, partition_by)
        if misfit is not None:
            raise self._divergence(location, table, misfit)
        return table

    def text(self) -> str:
        """Return the owner in words."""
        kind = self.kind.value
        return f"topology {self.topology_id!r}, state {self.state!r}, incarnation {self.incarnation!r}, kind {kind!r}"

    def _make(self, location: Location, schema: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        foreign = location.foreign_file()
        if foreign is not None:
            raise not_empty(location, foreign)
        if location.folder is not None:
            location.folder.mkdir(parents=True, exist_ok=True)
        try:
            return DeltaTable.create(
                location.address,
                schema=schema,
                partition_by=list(partition_by) or None,
                name=self.state,
                description=f"State {self.state} of the txtopo topology {self.topology_id}",
                configuration={
                    _TOPOLOGY: self.topology_id,
                    _STATE: self.state,
                    _INCARNATION: self.incarnation,
                    _KIND: self.kind.value,
                },
                storage_options=location.options,
                commit_properties=CommitProperties(custom_metadata={EPOCH_NOTE: "0"}),
                raise_if_key_not_exists=False,
            )
        except DeltaError:
            # 1. we find no table; 2. another coordinator makes it; 3. ours is refused. Theirs is the table.
            table = location.existing()
            if table is None:
                raise
            return table

    def _divergence(self, location: Location, table: DeltaTable, what: str) -> DivergenceError:
        found = Owner.of(table) or self
        last = table.transaction_version(state_application(found.topology_id, found.state))
        written = "nothing has been written to it" if last is None else f"its last transaction is {last}"
        return DivergenceError(
            f"the table at {location.address} does not belong to {self.text()}: {what}; {written}. {_WAY_OUT}.",
            txid=last,
        )


def not_ours(location: Location) -> DivergenceError:
    """Return the error for a Delta table that txtopo did not make."""
    return DivergenceError(f"the Delta table at {location.address} was not made by txtopo. {_WAY_OUT}.")


def not_empty(location: Location, foreign: Path) -> DivergenceError:
    """Return the error for a place where something else lies."""
    return DivergenceError(
        f"{location.address} is no Delta table, and it is not empty: {foreign.name} lies there. {_WAY_OUT}."
    )


def partition_misfit(table: DeltaTable, partition_by: Sequence[str]) -> str | None:
    """Return in words how the columns differ that a table is partitioned by; None if they don't."""
    found = list(table.metadata().partition_columns)
    if found == list(partition_by):
        return None
    return f"it is partitioned by ({', '.join(found)}) and not by ({', '.join(partition_by)})"


def columns_text(schema: pa.Schema) -> str:
    """Return the columns of a table in words."""
    return "(" + ", ".join(f"{field.name}: {field.type}" for field in schema) + ")"
