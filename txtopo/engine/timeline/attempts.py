"""What a timeline records of attempts and writes, made of facts when they are written.

The run loop's thread only says which attempts have ended. What it costs to make records of them is the timeline's
thread's: attempts of the same facts, as those of a job and a group are, have their moments in common.
"""

from __future__ import annotations

import itertools
import operator
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import attrs

from txtopo.engine.timeline import records
from txtopo.transactional.core.measures import Measures
from txtopo.transactional.core.record.facts import Fact, Trouble
from txtopo.transactional.core.record.history import HistoryEvent, first_line
from txtopo.transactional.core.record.record import Record

OUTCOMES = {
    HistoryEvent.COMMITTED: records.VISIBLE,
    HistoryEvent.DEAD_LETTER_WRITTEN: records.GIVEN_UP,
    HistoryEvent.ROLLED_BACK: records.RETURNED,
    HistoryEvent.FAILED: records.FAILED,
    HistoryEvent.STOPPED: records.FAILED,
}
"""The facts that end an attempt, and how."""

_NOT_YET = (None,) * 5
_PLACES = {
    HistoryEvent.BEGUN: 0,
    HistoryEvent.RECOVERED: 0,
    HistoryEvent.METADATA_SAVED: 1,
    HistoryEvent.PROCESSING: 2,
    HistoryEvent.PROCESSED: 3,
    HistoryEvent.COMMITTING: 4,
    HistoryEvent.WRITING_DEAD_LETTER: 4,
    HistoryEvent.RETURNED: 4,
}
"""Which of the moments of an attempt a fact is: begun, metadata durable, started, processed, grouped."""


class AttemptFacts(NamedTuple):  # made for each transaction, at half the cost of a class of attrs
    """The facts of a transaction's last attempt: those of the record, and the one that ended it, if one has."""

    txid: int
    facts: Sequence[Fact]
    end: Fact | None = None


class EndedAttempts:
    """Keeps the last ``waiting_max`` attempts that have ended, from the run loop's thread, until another takes them."""

    def __init__(self, waiting_max: int) -> None:
        self.record = Record()
        """The run's."""
        self._waiting_max = waiting_max
        self._ended: deque[AttemptFacts] = deque(maxlen=waiting_max)
        self.dropped = 0
        """How many had to go before they were drained."""

    def add(self, fact: Fact) -> None:
        """Keep the attempts that a fact ends."""
        match fact.what:
            case HistoryEvent.COMMITTED | HistoryEvent.DEAD_LETTER_WRITTEN:
                # No fact follows for these transactions, so their lists stay as they are.
                ended = [AttemptFacts(txid, self.record.of(txid), fact) for txid in fact.txids]
            case HistoryEvent.FAILED:
                ended = [AttemptFacts(txid, tuple(self.record.of(txid)), fact) for txid in fact.txids]
            case HistoryEvent.ROLLED_BACK if fact.attempts:
                ended = [AttemptFacts(txid, tuple(self.record.of(txid)), fact) for txid in fact.txids]
            case _:
                return
        self.dropped += max(0, len(self._ended) + len(ended) - self._waiting_max)
        self._ended.extend(ended)

    def drained(self, most: int | None = None) -> list[AttemptFacts]:
        """Return the next ones, and forget them."""
        waiting = len(self._ended)
        return [self._ended.popleft() for _ in range(waiting if most is None else min(waiting, most))]


@attrs.frozen
class _Moments:
    """What attempts of the same facts have in common."""

    begun: Fact | None
    processed: Fact | None
    attempts_of: Fact | None
    """The last fact that names the attempts."""
    begun_us: int
    times: tuple[int, ...]
    """Of a record, those after the first one."""
    outcome: int
    job: int
    group: int
    component: str
    reason: str

    @classmethod
    def of(cls, facts: Sequence[Fact], end: Fact | None, shift_secs: float) -> _Moments:
        last: list[Fact | None] = [*_NOT_YET]
        reached = -1
        for fact in facts:
            place = _PLACES.get(fact.what)
            if place is None:
                continue
            if place < reached:
                last[place:] = _NOT_YET[place:]  # what came later was of another attempt, or of another group
            last[place], reached = fact, place
        begun, saved, started, processed, grouped = last
        if grouped is not None and grouped.what is HistoryEvent.WRITING_DEAD_LETTER:
            started = processed = None  # an attempt of its own, which processes nothing
        elif grouped is not None and grouped.what is HistoryEvent.RETURNED:
            grouped = None  # its turn did not come: it joins a later group
        measures = None if end is None else end.measures
        writes = () if measures is None else measures.writes.values()
        phases_secs = min((write.prepared[0] for write in writes), default=None)
        begun_us = _micros(begun, shift_secs)
        times = (
            begun_us,
            _micros(saved, shift_secs) or begun_us,
            _micros(started, shift_secs),
            _micros(processed, shift_secs),
            _micros(grouped, shift_secs),
            0 if phases_secs is None else int((shift_secs + phases_secs) * 1e6),
            _micros(end, shift_secs),
        )
        return cls(
            begun,
            processed,
            grouped or started,
            begun_us,
            times,
            records.OPEN if end is None else OUTCOMES[end.what],
            job=0 if started is None else started.job_id or 0,
            group=0 if grouped is None else grouped.group_id or 0,
            component=(end.component or "") if isinstance(end, Trouble) else "",
            reason=first_line(reason_alone(end.reason)) if isinstance(end, Trouble) else "",
        )

    def entry(self, txid: int) -> records.Entry:
        begun_us, processed = self.begun, self.processed
        planned_us = 0 if begun_us is None else begun_us.planned_ms[txid - begun_us.txids[0]] * 1000
        return records.Entry(
            records.ATTEMPT,
            (planned_us or self.begun_us, *self.times),
            self.outcome,
            None if self.attempts_of is None else self.attempts_of.attempt_of(txid),
            self.job,
            self.group,
            0 if processed is None else processed.tuples[txid - processed.txids[0]],
            self.component,
            self.reason,
        )


def entries_of(attempts: Iterable[AttemptFacts]) -> Iterator[records.Entry]:
    """Yield the records of attempts, and after those of a commit group those of its writes."""
    shift_secs = time.time() - time.monotonic()  # what is recorded is told by the time of day, facts by a run's clock
    for end, ended in itertools.groupby(attempts, operator.attrgetter("end")):
        facts = None
        for attempt in ended:
            if attempt.facts != facts:
                facts = attempt.facts
                moments = _Moments.of(facts, end, shift_secs)
            yield moments.entry(attempt.txid)
        if end is not None and end.measures is not None:
            yield from _writes(end.measures, moments.group, shift_secs)


def _writes(measures: Measures, group: int, shift_secs: float) -> Iterator[records.Entry]:
    for state, write in measures.writes.items():
        times = [int((shift_secs + secs) * 1e6) for secs in (*write.prepared, *write.published)]
        yield records.Entry(records.WRITE, (*times, write.removed, 0, 0, 0), group=group, number=write.rows, name=state)


def reason_alone(text: str) -> str:
    """Return a reason without its leading origin, which stands beside it."""
    return text.partition("] ")[2] or text if text.startswith("[component ") else text


def _micros(fact: Fact | None, shift_secs: float) -> int:
    return 0 if fact is None else int((shift_secs + fact.at_secs) * 1e6)
