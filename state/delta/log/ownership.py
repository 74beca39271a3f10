"""Whose a Delta table is, and which coordinator may write to it.

The *owner* is written into the table's configuration when it is made, and compared whenever it is opened. A table of
another topology, another state, another incarnation of the topology, another kind or other columns is refused before
anything is written, and so is whatever txtopo did not make.

The *fence*: a coordinator that has lost its lead writes nothing more. Every Delta write carries two application
transactions: ``<topology>/<state>`` → txid and ``<topology>/epoch`` → epoch. Opening a state writes the second one
alone, the *marker*. Then a coordinator of an older epoch cannot write, however the two interleave:

1. Old looks at its handle, brought up to date: the marker is newer than its epoch. It stops.
2. Old looks, sees no marker, is paused. New writes the marker. Old writes: the version after the one that
   it looked at is taken, and it may not try the next (``max_commit_retries=0``). It fails, looks, stops.

The second rule is stricter than the conflict that Delta finds between equal application transactions. It
has to be: an overwrite that delta-rs moves behind another's append leaves both in the table, and would
leave rows twice. ``optimize.compact`` keeps to neither rule (delta-rs 1.6), so it is not used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from state.delta.log.entries import EPOCH_NOTE, TXID_NOTE
from state.delta.log.location import Location
from txtopo.api.state import StateKind
from txtopo.errors import ConfigError, DivergenceError, FailedException, LostLead

__all__ = [
    "NO_HOOKS",
    "WORLD_ERRORS",
    "Fence",
    "Owner",
    "columns_misfit",
    "epoch_application",
    "epoch_of",
    "not_empty",
    "not_ours",
    "rolled_back_application",
    "state_application",
]

_EPOCH = "epoch"

_MARKER_TRIES_MAX = 100
"""Tries at the marker; each one that fails means that another Delta write came between."""

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints are made by upkeep, between writes."""

WORLD_ERRORS = (DeltaError, OSError, pa.ArrowException)
"""What delta-rs and its readers raise when the world fails."""


@attrs.frozen
class Fence:
    """What one coordinator may write to one table.

    Args:
        topology_id: its topology.
        state: the state's name.
        epoch: the coordinator's epoch.
    """

    topology_id: str
    state: str = attrs.field()
    epoch: int

    @state.validator
    def _check_state(self, _attribute: object, state: str) -> None:
        if state == _EPOCH:
            raise ConfigError(f"a state cannot be named {_EPOCH!r}: the table's fence has that name; rename it")

    def last_txid(self, table: DeltaTable) -> int | None:
        """Return the last transaction written, as ``table``'s handle knows it."""
        return table.transaction_version(state_application(self.topology_id, self.state))

    def check(self, table: DeltaTable) -> None:
        """Look on the very handle that is to write that no newer epoch has opened the table.

        Raises:
            LostLead: one has.
        """
        marker = epoch_of(table, self.topology_id)
        if marker > self.epoch:
            raise LostLead(
                f"state {self.state!r} of topology {self.topology_id!r} was opened by a coordinator of epoch "
                f"{marker}; this one has epoch {self.epoch} and writes nothing more",
            )

    def properties(self, txid: int | None = None, rolled_back_at: int | None = None) -> CommitProperties:
        """Return what a Delta write must carry.

        Args:
            txid: the transaction it makes visible; None for upkeep.
            rolled_back_at: the version it makes, if that is an older one again.
        """
        transactions = [Transaction(epoch_application(self.topology_id), self.epoch)]
        notes = {EPOCH_NOTE: str(self.epoch)}
        if txid is not None:
            transactions.append(Transaction(state_application(self.topology_id, self.state), txid))
            notes[TXID_NOTE] = str(txid)
        if rolled_back_at is not None:
            application = rolled_back_application(state_application(self.topology_id, self.state))
            transactions.append(Transaction(application, rolled_back_at))
        return CommitProperties(custom_metadata=notes, app_transactions=transactions, max_commit_retries=0)

    def mark(self, table: DeltaTable, txid: int | None = None) -> None:
        """Write the application transactions and nothing else; the handle is brought up to date.

        Args:
            table: the handle to write by.
            txid: a transaction that puts nothing into this table; None for the marker alone.
        """
        table.create_write_transaction(
            [],
            "append",
            table.schema(),
            partition_by=[],
            commit_properties=self.properties(txid),
            post_commithook_properties=NO_HOOKS,
        )
        table.update_incremental()

    def close_behind(self, location: Location) -> DeltaTable:
        """Write the marker, and return a handle that has seen it.

        Raises:
            LostLead: a newer epoch has opened the table.
            FailedException: other writers leave no room for the marker.
        """
        for _ in range(_MARKER_TRIES_MAX):
            table = location.handle()
            self.check(table)
            try:
                self.mark(table)
            except CommitFailedError:
                continue
            return table
        raise FailedException(
            f"state {self.state!r}: {_MARKER_TRIES_MAX} times another Delta write came before the marker of "
            f"epoch {self.epoch} at {location.address}; stop what writes to this table",
        )


def epoch_of(table: DeltaTable, topology_id: str) -> int:
    """Return the newest epoch that has opened a table, as its handle knows it; 0 if none has."""
    return table.transaction_version(epoch_application(topology_id)) or 0


def state_application(topology_id: str, state: str) -> str:
    """Return the application id that carries the txids of a state's table."""
    return f"{topology_id}/{state}"


def rolled_back_application(application: str) -> str:
    """Return the application id that carries the last version which was rolled back to an older one.

    Args:
        application: that of the state's txids.
    """
    return f"{application}/rolled-back"


def epoch_application(topology_id: str) -> str:
    """Return the application id that carries the epochs that have opened a table."""
    return f"{topology_id}/{_EPOCH}"


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
        misfit = columns_misfit(table, schema, partition_by) if found == self else f"it is of {found.text()}"
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


def columns_misfit(table: DeltaTable, schema: pa.Schema, partition_by: Sequence[str]) -> str | None:
    """Return in words how a table's columns differ, or those that it is partitioned by; None if they don't."""
    if table.schema() != Schema.from_arrow(schema):
        return f"its columns are {_columns_text(pa.schema(table.schema()))} and not {_columns_text(schema)}"
    found = list(table.metadata().partition_columns)
    if found == list(partition_by):
        return None
    return f"it is partitioned by ({', '.join(found)}) and not by ({', '.join(partition_by)})"


def _columns_text(schema: pa.Schema) -> str:
    """Return the columns of a table in words."""
    return "(" + ", ".join(f"{field.name}: {field.type}" for field in schema) + ")"
