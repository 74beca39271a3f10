"""What audit and replay learn from a state about its table: facts, without judgement."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

SAMPLES_MAX = 3
"""Maximum number of sample rows for each finding."""


@attrs.frozen
class RowChanges:
    """The differences between the rows of a version and those of the version before."""

    put: int
    """The number of rows with a txid above that of the version before."""
    put_low: int | None
    """The lowest txid among them; None if there are none."""
    put_high: int | None
    removed: int
    """The number of keys that disappeared."""
    unexplained: tuple[str, ...] = ()
    """Samples of rows that changed, appeared or came back without a txid above that of the version before."""
    doubled: tuple[str, ...] = ()
    """Samples of keys that occur more than once."""


@attrs.frozen
class TableVersion:
    """One version of a table."""

    version: int
    txid: int | None
    """The last txid written to the table; None before the first."""
    epoch: int | None
    """The epoch of the coordinator that wrote it; None if no coordinator did."""
    operation: str
    """The name of the operation in the table's log."""
    touches: bool
    """Whether it adds or removes data, or changes the table's metadata."""
    moves: bool = False
    """Whether it moves rows to other files, by its own account, and does nothing else."""
    is_rollback: bool = False
    """Whether a repair restored an older version with it."""
    is_adoption: bool = False
    """Whether a repair accepted other writers' changes with it."""
    changes: RowChanges | None = None
    """The changes of its rows; None if they were not compared, or the files are gone."""
    follows: bool = True
    """Whether the version before it in the history made way for it; False if those in between are gone."""


@attrs.frozen
class TableHistory:
    """The existing versions of a state's table, oldest first; of older ones, those of points."""

    state: str
    address: str
    identity: str
    versions: tuple[TableVersion, ...]
    doubled: tuple[str, ...] = ()
    """Keys that occur more than once in the newest version, whether or not it can be compared with the one before."""

    def until(self, txid: int) -> TableHistory:
        """Return the history up to a transaction."""
        return attrs.evolve(self, versions=tuple(version for version in self.versions if (version.txid or 0) <= txid))


@attrs.frozen
class StateComparison:
    """The rows written to a state at the commit and in the replay."""

    state: str
    rows: int | None
    """The number of compared rows: those that the transaction put and no later one of its group replaced.

    None if rows do not name their transaction, so that none could be compared.
    """
    difference: str | None
    """The first row that differs, in words; None if none does."""


def rolled_back_from(versions: Sequence[TableVersion], txid: int | None) -> int:
    """Return the index of the first version that a rollback to ``txid`` undoes; at least 1.

    The rollback keeps the version that the write of that transaction made, and undoes all later ones by any writer. If
    that version is gone, it keeps those of transactions before.
    """
    wanted = txid or 0
    for kept in range(len(versions), 1, -1):
        version, before = versions[kept - 1], versions[kept - 2]
        made = version.is_adoption or version.is_rollback or (before.txid or 0) != wanted
        if (version.txid or 0) == wanted and made:
            return kept
    if versions and (versions[0].txid or 0) == wanted:
        return 1
    return max((kept for kept, version in enumerate(versions, 1) if (version.txid or 0) < wanted), default=1)
