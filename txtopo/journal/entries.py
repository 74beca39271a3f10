"""What the lines of a journal's files say: a header, then one commit group each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from txtopo.api.components.planned import NEVER, Planned
from txtopo.files.formats import FIRST, Format
from txtopo.journal.turns import Rename, Turn

DEAD_LETTERS = "dead-letters"
"""The name of the state for dead letters."""

T = TypeVar("T")


@attrs.frozen
class JournalTable:
    """A state's table, as recorded in the journal."""

    address: str
    """Its path: absolute, or relative to the parent folder of the metadata directory."""
    identity: str


@attrs.frozen
class JournalHeader:
    """The state of the topology when a file was begun."""

    topology: str
    incarnation: str
    epoch: int
    spouts: Mapping[str, str]
    """The kind of each spout by its id: ``repeatable`` or ``opaque``."""
    committed: int
    """The last committed txid."""
    metadata: Any
    """That transaction's metadata, by spout."""
    tables: Mapping[str, JournalTable]
    states: Mapping[str, int | None]
    """All states of the topology, each with the last txid written to it."""
    begun_after: Mapping[str, int] = attrs.field(factory=dict)
    """The states that were begun empty while transactions were committed, each with the last of those."""
    planned: Planned = NEVER
    """When the last committed transaction was planned."""
    undone_until: int = 0
    """The last transaction that was committed before a repair or a rewind went back to ``committed``; 0: none did."""
    store: str = ""
    """Where the run keeps its coordinator state, in words."""
    turns: tuple[Turn, ...] = ()
    """The turns that the topology has gone through."""
    renames: tuple[Rename, ...] = ()
    """The renames up to here."""
    format: Format = FIRST
    """The format of the file; :class:`JournalWriter` sets it."""


Ranges = Mapping[str, Mapping[str, tuple[Any, Any]] | None]
"""Input, (start, end) by spout and partition; None for a spout that does not report it."""


def by_partition(by_spout: Mapping[str, Mapping[str, T] | None]) -> dict[str, T]:
    """Return what is by spout and partition, as people read it: the spout is named if there are several."""
    return {
        f"{spout} {partition}" if len(by_spout) > 1 else partition: each
        for spout, ranges in by_spout.items()
        for partition, each in (ranges or {}).items()
    }


@attrs.frozen
class JournalTransaction:
    """One transaction of a group."""

    txid: int
    attempt: int
    metadata: Any
    fingerprints: Mapping[str, tuple[int, int | None]]
    """(number of tuples, checksum or None) of the tuples that each component emitted."""
    ranges: Ranges = attrs.field(factory=dict)
    """The input that it took of each spout, (start, end) by partition; None if the spout does not report it."""
    is_dead_letter: bool = False
    skipped: Mapping[str, Mapping[str, tuple[tuple[Any, Any], ...]]] = attrs.field(factory=dict)
    """The gaps in that input, by spout and partition: the spout went on without input that was gone."""
    planned: Planned = NEVER
    """When and why it began."""
    failure: str = ""
    """Why the attempt before the one that was committed failed, in a line; empty if it did not, or in another run."""

    @property
    def input(self) -> dict[str, tuple[Any, Any]]:
        """The input that it took, by partition, as people read it."""
        return by_partition(self.ranges)

    @property
    def gaps(self) -> dict[str, tuple[tuple[Any, Any], ...]]:
        """The gaps in that input, by partition, as people read it."""
        return by_partition({**dict.fromkeys(self.ranges), **self.skipped})


@attrs.frozen
class JournalEntry:
    """One commit group."""

    states: Mapping[str, tuple[int, int]]
    """(rows put, rows removed) by the states that it wrote."""
    transactions: tuple[JournalTransaction, ...]

    @property
    def first(self) -> int:
        """The txid of its first transaction."""
        return self.transactions[0].txid

    @property
    def last(self) -> int:
        """The txid of its last transaction, with which its tables are written."""
        return self.transactions[-1].txid


@attrs.frozen
class JournalPart:
    """The header and the entries of one coordinator."""

    header: JournalHeader
    entries: tuple[JournalEntry, ...]
    skips: bool = False
    """Whether entries of this coordinator come before, which were left out."""
