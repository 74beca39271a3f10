"""The record of a run: its facts by transaction, within bounds.

It keeps those of every transaction that is not committed, the rolled-back ones among them, and of the last committed
ones. What concerns several transactions is one fact that all of them share, so a transaction costs a few appended
references.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from txtopo.transactional.core.record.facts import Fact, Trouble
from txtopo.transactional.core.record.history import (
    REASON_CHARACTERS_MAX,
    History,
    HistoryEntry,
    HistoryEvent,
    shortened,
)

COMMITTED_KEPT = 256
"""The number of committed transactions whose facts are kept."""

FACTS_MAX = 32
"""Maximum number of facts of one transaction."""

FACTS_KEPT_FIRST = 8
"""Of more facts, so many first ones are kept, which show how the trouble began, and those after them are dropped."""

_OF_DEAD_LETTERS = {HistoryEvent.WRITING_DEAD_LETTER, HistoryEvent.DEAD_LETTER_WRITTEN}
_LIVE = {
    HistoryEvent.PROCESSING,
    HistoryEvent.PROCESSED,
    HistoryEvent.COMMITTING,
    HistoryEvent.RETURNED,
    HistoryEvent.WRITING_DEAD_LETTER,
}
_LAST = {HistoryEvent.COMMITTED, HistoryEvent.DEAD_LETTER_WRITTEN}


class Record:
    """Keeps facts since ``began_secs``: one thread notes them, any may ask for those of a transaction."""

    def __init__(self, began_secs: float = 0.0) -> None:
        self._began_secs = began_secs
        self._facts: dict[int, list[Fact]] = {}
        self._left_out: dict[int, int] = {}

    def add(self, fact: Fact) -> None:
        """Keep a fact, without what is large in it."""
        if fact.measures is not None:
            fact = attrs.evolve(fact, measures=None)
        if isinstance(fact, Trouble) and len(fact.reason) > REASON_CHARACTERS_MAX:
            fact = attrs.evolve(fact, reason=shortened(fact.reason))
        for txid in fact.txids:
            facts = self._facts.get(txid)
            if facts is None:
                self._facts[txid] = [fact]
                continue
            facts.append(fact)
            if len(facts) > FACTS_MAX:
                del facts[FACTS_KEPT_FIRST]
                self._left_out[txid] = self._left_out.get(txid, 0) + 1
        if fact.what in _LAST:
            for txid in fact.txids:
                self._facts.pop(txid - COMMITTED_KEPT, None)
                self._left_out.pop(txid - COMMITTED_KEPT, None)

    def of(self, txid: int) -> Sequence[Fact]:
        """Return the facts of a transaction, oldest first; without those that its record had no room for."""
        return self._facts.get(txid, ())

    def last_secs(self, txid: int, *whats: HistoryEvent) -> float | None:
        """Return the moment of the last fact of these kinds about a transaction; None if there is none."""
        for fact in reversed(self.of(txid)):  # 3x faster than next()
            if fact.what in whats:
                return fact.at_secs
        return None

    def open(self) -> Sequence[tuple[int, Sequence[Fact]]]:
        """Return the transactions with a live attempt and their facts."""
        all_facts = list(self._facts.items())  # copies in one step each: more may be recorded meanwhile
        return [(txid, tuple(facts)) for txid, facts in all_facts if facts[-1].what in _LIVE]

    def history(self, txid: int) -> History:
        """Return the history of a transaction; without entries if nothing is known about it."""
        return History(txid, tuple(self._entry(fact, txid) for fact in self.of(txid)), self._left_out.get(txid, 0))

    def _entry(self, fact: Fact, txid: int) -> HistoryEntry:
        return HistoryEntry(
            at_ms=round((fact.at_secs - self._began_secs) * 1000),
            what=fact.what,
            attempt=None if fact.what in _OF_DEAD_LETTERS else fact.attempt_of(txid),
            job_id=fact.job_id,
            group_id=fact.group_id,
            component=fact.component if isinstance(fact, Trouble) else None,
            reason=fact.reason if isinstance(fact, Trouble) else "",
        )
