"""The fence of a Delta table: a coordinator that has lost its lead writes nothing more.

Every Delta write carries two application transactions: ``<topology>/<state>`` → txid and
``<topology>/epoch`` → epoch. Opening a state writes the second one alone, the *marker*. Then a coordinator
of an older epoch cannot write, however the two interleave:

1. Old looks at its handle, brought up to date: the marker is newer than its epoch. It stops.
2. Old looks, sees no marker, is paused. New writes the marker. Old writes: the version after the one that
   it looked at is taken, and it may not try the next (``max_commit_retries=0``). It fails, looks, stops.

The second rule is stricter than the conflict that Delta finds between equal application transactions. It
has to be: an overwrite that delta-rs moves behind another's append leaves both in the table, and would
leave rows twice. ``optimize.compact`` keeps to neither rule (delta-rs 1.6), so it is not used here.
"""

from __future__ import annotations

import attrs
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from state.delta.log.entries import EPOCH_NOTE, TXID_NOTE
from state.delta.log.location import Location
from txtopo.errors import ConfigError, FailedException, LostLead

__all__ = [
    "NO_HOOKS",
    "WORLD_ERRORS",
    "Fence",
    "epoch_application",
    "epoch_of",
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
