"""Compares the transactions of a backfill with those that the topology has committed, before any of them is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txtopo.errors import DivergenceError
from txtopo.transactional.backfill.source import Recorded
from txtopo.transactional.commit.groups import Journal
from txtopo.transactional.journal.journal import JournalEntry, JournalTransaction
from txtopo.transactional.tasks.fingerprint import Fingerprint


class CheckedJournal:
    """A backfill's journal, which refuses a transaction that is not the one that the topology has committed.

    The components that the topology had are compared by the number of tuples that they emitted, and by their checksums
    where both are known. A component that the recorded transactions never named may be new.
    """

    def __init__(self, journal: Journal, recorded: Recorded, components: tuple[str, ...]) -> None:
        self._journal = journal
        self._recorded = recorded
        self._components = components
        self._seen: set[str] = set()
        """The components that recorded transactions have named so far."""

    def enter(self, entry: JournalEntry) -> None:
        """Compare the transactions of a group, and append it to the journal; see :meth:`Journal.enter`.

        Raises:
            DivergenceError: one of them differs; nothing of its group is written.
        """
        for transaction in entry.transactions:
            then = self._recorded[transaction.txid]
            self._seen.update(then.fingerprints)
            difference = difference_between(then, transaction, self._components, self._seen)
            if difference is not None:
                raise DivergenceError(
                    f"{difference}. Nothing of it is written. Run the backfill with code that emits what was emitted "
                    "then, or begin after that transaction with --from",
                    txid=transaction.txid,
                )
        self._journal.enter(entry)
        for transaction in entry.transactions:
            self._recorded.pop(transaction.txid)


def difference_between(
    then: JournalTransaction, now: JournalTransaction, components: tuple[str, ...], known: set[str]
) -> str | None:
    """Describe the first difference between a transaction and its backfill; None if there is none.

    Args:
        then: as the topology has committed it.
        now: as the backfill has.
        components: those that ran in the backfill, in topological order.
        known: those that the topology had.
    """
    if (then.metadata, then.planned.at_ms) != (now.metadata, now.planned.at_ms):
        return "it is another transaction now than when the backfill began it, because the topology has gone back"
    if then.is_dead_letter:
        return None
    for name in components:
        if name not in known:
            continue
        was, found = _fingerprint(then.fingerprints, name), _fingerprint(now.fingerprints, name)
        if was.tuples != found.tuples:
            counts = f"{was.tuples} at the commit, {found.tuples} now"
            return f"component {name!r} emits other tuples than it did then ({counts}): its code or its input changed"
        if None not in {was.checksum, found.checksum} and was.tuples and was.checksum != found.checksum:
            return (
                f"component {name!r} emits {found.tuples} tuples as it did then, but with different values, in another "
                "order or from other tasks: its code, its input or its parallelism changed"
            )
    return None


def _fingerprint(fingerprints: Mapping[str, tuple[Any, Any]], name: str) -> Fingerprint:
    tuples, checksum = fingerprints.get(name, (0, 0))
    return Fingerprint(tuples, checksum)
