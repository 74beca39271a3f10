"""The history of a state's table, as facts that anyone can judge: one value for each version of the table."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

SAMPLES_MAX = 3
"""Rows of a kind that are named in full."""


@attrs.frozen
class RowChanges:
    """How the rows of a version differ from those of the version before."""

    put: int
    """Rows that carry a txid above that of the version before."""
    put_low: int | None
    """The lowest txid among them; None if there are none."""
    put_high: int | None
    removed: int
    """Keys that are gone."""
    unexplained: tuple[str, ...] = ()
    """Rows that changed, appeared or came back and carry no txid above that of the version before; some of them."""
    doubled: tuple[str, ...] = ()
    """Keys that stand more than once; some of them."""


@attrs.frozen
class TableVersion:
    """One version of a table."""

    version: int
    txid: int | None
    """The last txid written to the table; None before the first."""
    epoch: int | None
    """The epoch of the coordinator that made it; None if no coordinator did."""
    operation: str
    """What its maker calls what it did."""
    touches: bool
    """Whether it adds or removes data, or changes what the table is."""
    is_rollback: bool = False
    """Whether a repair made it an older version again."""
    is_adoption: bool = False
    """Whether a repair took what others had changed for the state's own."""
    changes: RowChanges | None = None
    """What it did to the rows; None if that was not looked at, or what it takes is no longer kept."""


@attrs.frozen
class TableHistory:
    """The versions of a state's table that are kept, oldest first."""

    state: str
    address: str
    identity: str
    versions: tuple[TableVersion, ...]

    def until(self, txid: int) -> TableHistory:
        """Return the history up to a transaction."""
        return attrs.evolve(self, versions=tuple(each for each in self.versions if (each.txid or 0) <= txid))


def rolled_back_from(versions: Sequence[TableVersion], txid: int | None) -> int:
    """Return where, in a table's versions, those begin that a rollback to ``txid`` takes back; the first one stays.

    What the write of that transaction has left, stays; versions after it do not, whoever made them.
    """
    wanted = txid or 0
    for kept in range(len(versions), 1, -1):
        version, before = versions[kept - 1], versions[kept - 2]
        made = version.is_adoption or version.is_rollback or (before.txid or 0) != wanted
        if (version.txid or 0) == wanted and made:
            return kept
    return 1
