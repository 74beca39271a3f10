"""What an audit finds and proves."""

from __future__ import annotations

from typing import Any

import attrs

from txtopo.api.reference import SeenVersion
from txtopo.journal.entries import JournalEntry, JournalHeader
from txtopo.journal.turns import Rename


@attrs.frozen
class Finding:
    """A violation of a check."""

    text: str
    txid: int | None = None
    state: str | None = None
    version: int | None = None

    def __str__(self) -> str:
        where = [
            f"{name} {value}"
            for name, value in (
                ("transaction", self.txid),
                ("state", self.state and repr(self.state)),
                ("table version", self.version),
            )
            if value is not None
        ]
        return f"{', '.join(where)}: {self.text}" if where else self.text


@attrs.define
class TableProof:
    """The proof for one table."""

    state: str
    from_txid: int
    """The proof covers the history after this transaction; 0 for all of it."""
    to_txid: int
    versions: int = 0
    groups: int = 0
    rows_put: int = 0
    rows_removed: int = 0
    unread: int = 0
    """The number of groups' versions whose rows were not compared."""
    between: int = 0
    """The number of groups between points, whose own versions are gone: their rows were compared as one."""
    believed: int = 0
    """The number of other writers' versions that moved rows, by their own account, and whose rows were not compared."""
    repaired: int = 0
    """The number of versions that repairs made, to roll back or to accept other writers' changes."""
    begun_after: int = 0
    """The state was begun empty after this transaction; 0 if it was not."""
    backfilled_to: int = 0
    """The state joined the topology after this transaction, and a backfill wrote its table until then; 0: none did."""
    left_after: int | None = None
    """The last transaction at which the topology had the state; None if it has it still."""
    away: tuple[tuple[int, int], ...] = ()
    """The transactions, (first, last), at which a state that may come and go was not in the topology."""


@attrs.define
class AuditReport:
    """The findings and the proofs of an audit."""

    findings: list[Finding] = attrs.field(factory=list)
    epochs: int = 0
    groups: int = 0
    first: int = 0
    last: int = 0
    """All transactions from ``first`` to ``last`` are committed."""
    dead_letters: int = 0
    void: int = 0
    """The number of groups that were entered and not committed; they were dropped, and their transactions ran again."""
    partitions: int = 0
    ranges: int = 0
    skipped: dict[str, list[tuple[int, Any, Any]]] = attrs.field(factory=dict)
    """The input that the spout skipped because it was gone: (txid, start, end), by partition."""
    references: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    """The first and the last version of each reference table that transactions have seen."""
    replanned: list[tuple[int, SeenVersion]] = attrs.field(factory=list)
    """The transactions that were planned again with a newer version of a reference table, and that."""
    untold: int = 0
    """The number of transactions whose input the spout does not report."""
    in_flight: tuple[int, int] | None = None
    """(first, last) txid of a group that was entered but is not in every table yet."""
    has_it: tuple[str, ...] = ()
    """The states whose tables have this group."""
    lacks_it: tuple[str, ...] = ()
    """The other states that it names."""
    renames: tuple[Rename, ...] = ()
    """The renames of the topology and its states."""
    tables_read: int = 0
    """The number of tables whose histories were read."""
    tables: list[TableProof] = attrs.field(factory=list)
    elsewhere: list[str] = attrs.field(factory=list)
    """States of the topology in the journal whose tables were not audited."""
    departed: dict[str, int] = attrs.field(factory=dict)
    """Such states that have left the topology, each with the last transaction at which it had them."""


@attrs.frozen
class CountedEntry:
    """An entry that counts, and the epochs that may have written its tables: from its own to that of the next header.

    The next coordinator finishes a group that this one left; only a table that was restored from before it opened that
    may get it from a later one.
    """

    entry: JournalEntry
    header: JournalHeader
    epoch_max: int | None
    """None if there is no later epoch in the journal."""

    @property
    def epoch(self) -> int:
        """The epoch that entered it."""
        return self.header.epoch
