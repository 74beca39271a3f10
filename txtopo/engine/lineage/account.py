"""What a run has read and written so far, added up from its facts; or, of one that was killed, from its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from txtopo.api.reference import SeenVersion
from txtopo.journal.entries import JournalEntry
from txtopo.transactional.core.measures import StateWrite, TransactionInput
from txtopo.transactional.core.record.facts import Fact, Trouble
from txtopo.transactional.core.record.history import HistoryEvent

PARTITIONS_MAX = 1_000
"""Of how many partitions of a spout the ranges are kept: those that were read last. Files are partitions, too."""


@attrs.define(eq=False)
class Read:
    """What was read of a spout: (start, end) by partition, of those that were read last.

    ``left_out`` is how often a partition had to go; ``tuples`` is None where that is not known.
    """

    ranges: dict[str, tuple[Any, Any]] = attrs.field(factory=dict)
    left_out: int = 0
    tuples: int = 0

    def add(self, ranges: Mapping[str, tuple[Any, Any]]) -> None:
        """Add the ranges of the next transaction."""
        for partition, (start, end) in ranges.items():
            before = self.ranges.pop(partition, None)
            self.ranges[partition] = (start if before is None else before[0], end)
        while len(self.ranges) > PARTITIONS_MAX:
            del self.ranges[next(iter(self.ranges))]
            self.left_out += 1


@attrs.define(eq=False)
class StateWrites:
    """What was written to a state: the last transaction, the version that it made if there are any, and rows."""

    txid: int = 0
    version: int | None = None
    rows: int = 0
    removed: int = 0


@attrs.define(eq=False)
class Account:
    """What a run has read and written. The transactions of a run follow each other, so two numbers say which."""

    first: int | None = None
    """The first transaction that it has committed; None if there is none yet."""
    last: int | None = None
    dead_letters: int = 0
    failures: int = 0
    """Failed attempts."""
    read: dict[str, Read] = attrs.field(factory=dict)
    """By spout."""
    references: dict[str, SeenVersion] = attrs.field(factory=dict)
    """The versions that the last transaction has seen, by reference."""
    written: dict[str, StateWrites] = attrs.field(factory=dict)
    """By state."""

    def add(self, fact: Fact) -> None:
        """Add what a fact tells."""
        match fact.what:
            case HistoryEvent.COMMITTED | HistoryEvent.DEAD_LETTER_WRITTEN:
                self._commit(fact.txids, is_dead=fact.what is HistoryEvent.DEAD_LETTER_WRITTEN)
                if fact.measures is not None:
                    self._take(fact.measures.inputs)
                    for spout, read in self.read.items():
                        read.tuples += fact.measures.emitted.get(spout, 0)
                    for state, write in fact.measures.writes.items():
                        self._write(state, fact.txids[-1], write)
            case HistoryEvent.FAILED if isinstance(fact, Trouble) and fact.times:
                self.failures += 1

    def add_recorded(self, entry: JournalEntry) -> None:
        """Add a group of a run that can't tell any more; a journal has no versions of tables."""
        self._commit(
            [transaction.txid for transaction in entry.transactions],
            is_dead=any(transaction.is_dead_letter for transaction in entry.transactions),
        )
        self._take(
            TransactionInput(transaction.ranges, transaction.planned.references) for transaction in entry.transactions
        )
        for transaction in entry.transactions:
            for spout, read in self.read.items():
                read.tuples += transaction.fingerprints.get(spout, (0, None))[0]
        for state, (rows, removed) in entry.states.items():
            self._write(state, entry.last, StateWrite((0.0, 0.0), (0.0, 0.0), rows, removed))

    def _commit(self, txids: Iterable[int], *, is_dead: bool) -> None:
        for txid in txids:
            self.first, self.last = self.first or txid, txid
            self.dead_letters += is_dead

    def _take(self, inputs: Iterable[TransactionInput]) -> None:
        for each in inputs:
            for spout, ranges in each.ranges.items():
                if ranges is not None:
                    self.read.setdefault(spout, Read()).add(ranges)
            for version in each.references:
                self.references[version.name] = version

    def _write(self, state: str, txid: int, write: StateWrite) -> None:
        writes = self.written.setdefault(state, StateWrites())
        writes.txid, writes.version = txid, write.version
        writes.rows += write.rows
        writes.removed += write.removed
