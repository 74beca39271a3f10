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

from state.delta_location import Location
from txtopo.errors import ConfigError, FailedException, LostLead

__all__ = ["NO_HOOKS", "WORLD_ERRORS", "Fence", "state_application"]

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
        marker = table.transaction_version(self._epoch_application)
        if marker is not None and marker > self.epoch:
            raise LostLead(
                f"state {self.state!r} of topology {self.topology_id!r} was opened by a coordinator of epoch "
                f"{marker}; this one has epoch {self.epoch} and writes nothing more",
            )

    def properties(self, txid: int | None = None) -> CommitProperties:
        """Return what a Delta write must carry.

        Args:
            txid: the transaction it makes visible; None for upkeep.
        """
        transactions = [Transaction(self._epoch_application, self.epoch)]
        if txid is not None:
            transactions.append(Transaction(state_application(self.topology_id, self.state), txid))
        return CommitProperties(app_transactions=transactions, max_commit_retries=0)

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

    @property
    def _epoch_application(self) -> str:
        return f"{self.topology_id}/{_EPOCH}"


def state_application(topology_id: str, state: str) -> str:
    """Return the application id that carries the txids of a state's table."""
    return f"{topology_id}/{state}"
