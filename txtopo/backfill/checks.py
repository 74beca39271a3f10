"""Compares the transactions of a backfill with those that the topology has committed, before any of them is written."""

from __future__ import annotations

from txtopo.backfill.source import Recorded
from txtopo.errors import DivergenceError
from txtopo.journal.journal import JournalEntry
from txtopo.transactional.audit.backfills import difference_between
from txtopo.transactional.commit.groups import Journal


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
