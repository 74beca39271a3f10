"""The observer that notes what a run does for its timeline."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from txtopo.assembly.parts import Observer
from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.report import Progress
from txtopo.attempts import TransactionAttempt, epoch_and_try
from txtopo.config import Config
from txtopo.engine.timeline.records import (
    ATTEMPT,
    ERRORS_MAX,
    FAILED,
    GIVEN_UP,
    OPEN,
    RETURNED,
    SLOTS,
    VISIBLE,
    WRITE,
    Entry,
    ErrorRecord,
    RunRecord,
)
from txtopo.engine.timeline.samples import Sample, Sampler
from txtopo.engine.timeline.writer import FLUSH_SECS, TimelineWriter
from txtopo.errors import TxtopoError
from txtopo.text.secrecy import shown, without_secrets
from txtopo.topology.plans.description import described, described_plain
from txtopo.topology.topology import PlainTopology, Topology, TransactionalTopology
from txtopo.transactional.core.record.facts import Fact, Trouble
from txtopo.transactional.core.record.history import HistoryEvent, first_line
from txtopo.transactional.core.record.record import Record

OPEN_SECS = 1.0
"""An attempt that is open for so long is recorded before it ends."""

ERROR_CHARACTERS_MAX = 4_000

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


class Timeline(Observer):
    """Observes a run, and writes its timeline.

    Args:
        topology: the one that runs.
        config: its settings.
        folder: of the timeline; made once the run has the lead, or at once for a plain topology.
        flush_secs: how often it writes.
    """

    def __init__(self, topology: Topology, config: Config, folder: Path, flush_secs: float = FLUSH_SECS) -> None:
        self._is_plain = isinstance(topology, PlainTopology)
        self._topology_id = topology.id
        self._graph = graph = _described(topology)
        self._given = config.given
        self._settings = {name: without_secrets(str(shown(name, value))) for name, value in config.given.items()}
        self._started = time.time()
        self._queue: collections.deque[Entry] = collections.deque(maxlen=SLOTS)
        self._errors: collections.deque[ErrorRecord] = collections.deque(maxlen=ERRORS_MAX)
        self._error_count = 0
        self._sampler = Sampler()
        self._record = Record()
        self._recorded: dict[int, float] = {}
        """Of each attempt that is recorded as open, its last moment then."""
        self._stage = ""
        self.ended = ""
        """Why the run has ended; empty while it runs."""
        self._is_failed = False
        series = 8 + sum(1 + len(each["streams"]) for each in graph["components"]) + len(graph.get("states", ()))
        self._writer = TimelineWriter(self, folder, series, flush_secs)
        if self._is_plain:
            self._writer.start("", 0)

    # The observer of a run, called in the run loop's thread.

    def entered(self, stage: str) -> None:
        """Note a step before the run begins."""
        self._stage = stage

    def leads(self, incarnation: str, epoch: int) -> None:
        """Begin to write."""
        self._writer.start(incarnation, epoch)

    def began(self, record: Record, executors_lost: Callable[[], int]) -> None:
        """Note that the run loop begins."""
        del executors_lost
        self._stage, self._record = "", record

    def recorded(self, fact: Fact) -> None:
        """Note a fact."""
        match fact.what:
            case HistoryEvent.PROCESSING:
                self._sampler.jobs += 1
            case HistoryEvent.COMMITTING | HistoryEvent.WRITING_DEAD_LETTER:
                self._sampler.groups += 1
            case HistoryEvent.COMMITTED:
                self._committed(fact, VISIBLE)
            case HistoryEvent.DEAD_LETTER_WRITTEN:
                self._committed(fact, GIVEN_UP)
            case HistoryEvent.ROLLED_BACK if fact.attempts:
                self._ended(fact, RETURNED)
            case HistoryEvent.FAILED | HistoryEvent.STOPPED if isinstance(fact, Trouble):
                self._failed(fact)

    def _committed(self, fact: Fact, outcome: int) -> None:
        shift_secs = _shift_secs()
        ended_us = _micros(fact, shift_secs)
        writes = {} if fact.measures is None else fact.measures.writes
        phases_secs = min((write.prepared[0] for write in writes.values()), default=None)
        phases_us = 0 if phases_secs is None else int((shift_secs + phases_secs) * 1e6)
        group = 0
        for txid in fact.txids:
            facts = self._record.of(txid)
            entry = self._entry(txid, facts, shift_secs, outcome, phases_us=phases_us, ended_us=ended_us)
            self._sampler.visible(ended_us - entry.times[0])
            self._queue.append(entry)
            group = entry.group
        for state, write in writes.items():
            times = [int((shift_secs + secs) * 1e6) for secs in (*write.prepared, *write.published)]
            self._queue.append(Entry(WRITE, (*times, write.removed), group=group, number=write.rows, name=state))
            self._sampler.wrote(state, write)

    def _ended(self, fact: Fact, outcome: int, component: str = "", text: str = "") -> None:
        shift_secs = _shift_secs()
        ended_us = _micros(fact, shift_secs)
        for txid in fact.txids:
            facts = self._record.of(txid)
            entry = self._entry(txid, facts, shift_secs, outcome, ended_us=ended_us)
            self._queue.append(attrs.evolve(entry, name=component, text=text))

    def _failed(self, fact: Trouble) -> None:
        component = fact.component or ""
        if fact.times or fact.what is HistoryEvent.STOPPED:  # otherwise it failed only because the run stops
            self._record_error(fact.reason, component, fact.attempts[0] if fact.attempts else None)
        self._ended(fact, FAILED, component, first_line(_own_reason(fact.reason)))

    def _entry(  # noqa: PLR0913 - as an entry's
        self,
        txid: int,
        facts: Sequence[Fact],
        shift_secs: float,
        outcome: int = OPEN,
        *,
        phases_us: int = 0,
        ended_us: int = 0,
    ) -> Entry:
        """Return the record of a transaction's last attempt; ``shift_secs`` makes the run's clock that of the day."""
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
        group = 0 if grouped is None else grouped.group_id or 0
        begun_us = _micros(begun, shift_secs)
        planned_us = 0 if begun is None else begun.planned_ms[txid - begun.txids[0]] * 1000
        times = (
            planned_us or begun_us,
            begun_us,
            _micros(saved, shift_secs) or begun_us,
            _micros(started, shift_secs),
            _micros(processed, shift_secs),
            _micros(grouped, shift_secs),
            phases_us,
            ended_us,
        )
        attempts_of = grouped or started
        attempt = None if attempts_of is None else attempts_of.attempt_of(txid)
        job = 0 if started is None else started.job_id or 0
        tuples = 0 if processed is None else processed.tuples[txid - processed.txids[0]]
        return Entry(ATTEMPT, times, outcome, attempt, job, group, tuples)

    def progressed(self, progress: Progress | PlainReport) -> None:
        """Note the progress."""
        before, self._sampler.progress = self._sampler.progress, progress
        self._stage = ""
        if isinstance(progress, PlainReport) and progress.last_error:
            last = before.last_error if isinstance(before, PlainReport) else ""
            if progress.last_error != last:
                self._record_error(progress.last_error, "", None)

    def __enter__(self) -> Self:
        """Observe the run until the context ends."""
        return self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        """Write what waits, and why the run ended; wait a second at most for a disk that hangs."""
        if error is not None:
            text = error.message if isinstance(error, TxtopoError) else str(error)
            self.ended, self._is_failed = f"{type(error).__name__}: {first_line(text)}", True
        self._writer.close()

    def _record_error(self, text: str, component: str, attempt: TransactionAttempt | None) -> None:
        self._error_count += 1
        cut = text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[:ERROR_CHARACTERS_MAX]} …"
        epoch, tries = (None, None) if attempt is None else epoch_and_try(attempt.attempt)
        txid = None if attempt is None else attempt.txid
        self._errors.append(ErrorRecord(time.time(), component, _own_reason(cut), txid, tries, epoch))

    # Called by the writer's thread.

    def record(self) -> RunRecord:
        """Return whose timeline it is, and why the run has ended."""
        kind = "plain" if self._is_plain else "transactional"
        writer = self._writer.identity()
        return RunRecord(
            self._topology_id,
            kind,
            writer,
            self._started,
            self._graph,
            self._settings,
            self._stage,
            self.discreet(self.ended),
            self._is_failed,
        )

    def taken(self) -> list[Entry]:
        """Return the records that were recorded since the last call."""
        return [self._queue.popleft() for _ in range(len(self._queue))]

    def open_records(self, now_us: int) -> list[Entry]:
        """Return the attempts that are open for long and have moved on since they were recorded."""
        found, before, self._recorded = [], self._recorded, {}
        shift_secs = _shift_secs()
        for txid, facts in self._record.open():
            entry, last_secs = self._entry(txid, facts, shift_secs), facts[-1].at_secs
            if now_us - (entry.times[3] or entry.times[1]) >= OPEN_SECS * 1e6:
                self._recorded[txid] = last_secs
                if before.get(txid) != last_secs:
                    found.append(entry)
        return found

    def errors(self) -> tuple[int, list[ErrorRecord]]:
        """Return how many errors there were, and the last ones."""
        return self._error_count, list(self._errors)

    def samples(self) -> list[Sample]:
        """Return the samples of now."""
        return self._sampler.samples()

    def discreet(self, text: str) -> str:
        """Return a text without secrets, those of the settings among them: anybody may read the files."""
        return without_secrets(text, self._given)


def _shift_secs() -> float:
    """Return how far the time of day is ahead of a run's clock."""
    return time.time() - time.monotonic()


def _micros(fact: Fact | None, shift_secs: float) -> int:
    return 0 if fact is None else int((shift_secs + fact.at_secs) * 1e6)


def _described(topology: Topology) -> dict[str, Any]:
    if isinstance(topology, PlainTopology):
        return described_plain(topology.plan)
    assert isinstance(topology, TransactionalTopology), "there are two kinds"
    return described(topology.plan)


def _own_reason(text: str) -> str:
    """Return a reason without its leading origin, which stands beside it."""
    return text.partition("] ")[2] or text if text.startswith("[component ") else text
