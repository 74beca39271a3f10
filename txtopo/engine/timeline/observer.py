"""The observer that notes what a run does for its timeline."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
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
from txtopo.secrecy import shown, without_secrets
from txtopo.topology.description import described, described_plain
from txtopo.topology.topology import PlainTopology, Topology, TransactionalTopology
from txtopo.transactional.commit.groups import StateWrite
from txtopo.transactional.core.actions import Action, Commit, DeadLetter, Process, SaveMetadata
from txtopo.transactional.core.events import (
    Committed,
    Event,
    Failed,
    Fenced,
    GroupEnded,
    MetadataCreated,
    Processed,
    Recovered,
    RuleBroken,
)
from txtopo.transactional.core.facts import Trouble
from txtopo.transactional.core.history import first_line

OPEN_SECS = 1.0
"""An attempt that is open for so long is recorded before it ends."""

ERROR_CHARACTERS_MAX = 4_000


@attrs.define(eq=False)
class _Open:
    """An attempt that has not ended, with its moments in microseconds since 1970; 0: not yet."""

    attempt: TransactionAttempt
    job: int
    available: int
    begun: int
    metadata: int
    started: int
    processed: int = 0
    grouped: int = 0
    phases: int = 0
    failed: int = 0
    group: int = 0
    tuples: int = 0
    recorded: int = 0
    """Its last moment when it was recorded as open."""

    def record(self, outcome: int, ended: int, component: str = "", text: str = "") -> Entry:
        times = (
            self.available,
            self.begun,
            self.metadata,
            self.started,
            self.processed,
            self.grouped,
            self.phases,
            ended,
        )
        return Entry(ATTEMPT, times, outcome, self.attempt, self.job, self.group, self.tuples, component, text)


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
        self._begun: dict[int, list[int]] = {}
        """Of each pending transaction: when it was available, begun, its metadata durable."""
        self._unsaved: tuple[int, ...] = ()
        self._open: dict[int, _Open] = {}
        self._group: tuple[int, tuple[TransactionAttempt, ...]] = (0, ())
        self._phases = 0
        self._stage = ""
        self.ended = ""
        """Why the run has ended; empty while it runs."""
        self._is_failed = False
        series = 8 + sum(1 + len(each["streams"]) for each in graph["components"]) + len(graph.get("states", ()))
        self._writer = TimelineWriter(self, folder, series, flush_secs)
        if self._is_plain:
            self._writer.start("", 0)

    # The observer of a run. All but ``wrote`` are called in the run loop's thread.

    def entered(self, stage: str) -> None:
        """Note a step before the run begins."""
        self._stage = stage

    def leads(self, incarnation: str, epoch: int) -> None:
        """Begin to write."""
        self._writer.start(incarnation, epoch)

    def began(self, executors_lost: Callable[[], int]) -> None:
        """Note that the run loop begins."""
        del executors_lost
        self._stage = ""

    def acted(self, action: Action) -> None:
        """Note an action."""
        now = time.time_ns() // 1000
        self._saved(now)
        match action:
            case SaveMetadata():
                self._unsaved = tuple(begun.txid for begun in action.begun)
            case Process():
                self._sampler.jobs += 1
                for assigned in action.attempts:
                    txid = assigned.attempt.txid
                    self._close(txid, RETURNED, now)
                    available, begun, metadata = self._begun.get(txid, (now, now, now))
                    self._open[txid] = _Open(assigned.attempt, action.job_id, available, begun, metadata or begun, now)
            case Commit():
                self._begin_group(action.group_id, tuple(each.attempt for each in action.group), now)
            case DeadLetter():
                txid = action.given_up.attempt.txid
                available, begun, metadata = self._begun.get(txid, (now, now, now))
                self._open[txid] = _Open(action.given_up.attempt, 0, available, begun, metadata, 0)
                self._begin_group(action.group_id, (action.given_up.attempt,), now)

    def happened(self, event: Event) -> None:
        """Note an event."""
        now = time.time_ns() // 1000
        match event:
            case MetadataCreated() | Recovered():
                durable = now if isinstance(event, Recovered) else 0
                for begun in event.begun:
                    self._begun[begun.txid] = [begun.planned.at_ms * 1000 or now, now, durable]
            case Processed():
                for found in self._live(event.attempt):  # not the late answer of an earlier attempt
                    found.processed, found.tuples = now, event.tuples
            case Failed():
                for found in self._live(event.attempt):  # the rest once the core has judged it: see failed()
                    found.failed = now
            case Committed():
                self._committed(event.attempts, now)
            case GroupEnded():
                self._end_group()
            case RuleBroken() | Fenced():
                self._stopped_by(event.error, event.attempt if isinstance(event, RuleBroken) else None)

    def failed(self, failure: Trouble) -> None:
        """Note a failed attempt."""
        txid, component = failure.attempt.txid, failure.component or ""
        found = self._open.get(txid)
        at = found.failed if found is not None and found.failed else time.time_ns() // 1000
        self._note_error(failure.reason, component, failure.attempt)
        self._close(txid, FAILED, at, component, first_line(_own_reason(failure.reason)))

    def wrote(self, state: str, write: StateWrite) -> None:
        """Note that a state was written; called in the thread that commits."""
        shift = time.time() - time.monotonic()
        times = [int((shift + secs) * 1e6) for secs in (*write.prepared, *write.published)]
        self._phases = min(self._phases or times[0], times[0])
        self._queue.append(Entry(WRITE, (*times, write.removed), group=self._group[0], number=write.rows, name=state))
        self._sampler.wrote(state, write)

    def progressed(self, progress: Progress | PlainReport) -> None:
        """Note the progress."""
        before, self._sampler.progress = self._sampler.progress, progress
        self._stage = ""
        if isinstance(progress, PlainReport) and progress.last_error:
            last = before.last_error if isinstance(before, PlainReport) else ""
            if progress.last_error != last:
                self._note_error(progress.last_error, "", None)

    def __enter__(self) -> Self:
        """Observe the run until the context ends."""
        return self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        """Write what waits, and why the run ended; wait a second at most for a disk that hangs."""
        if error is not None:
            text = error.message if isinstance(error, TxtopoError) else str(error)
            self.ended, self._is_failed = f"{type(error).__name__}: {first_line(text)}", True
        self._writer.close()

    def _saved(self, now: int) -> None:
        """What follows a SaveMetadata comes after it is durable."""
        for txid in self._unsaved:
            if txid in self._begun:
                self._begun[txid][2] = now
        self._unsaved = ()

    def _begin_group(self, group: int, attempts: tuple[TransactionAttempt, ...], now: int) -> None:
        self._sampler.groups += 1
        self._phases = 0
        self._group = group, attempts
        for attempt in attempts:
            found = self._open.get(attempt.txid)
            if found is not None:
                found.group, found.grouped = group, now

    def _end_group(self) -> None:
        for attempt in self._group[1]:
            for left in self._live(attempt):
                if not left.failed:  # its turn did not come: it joins a later group
                    left.grouped = left.group = left.phases = 0
        self._group = (0, ())

    def _live(self, attempt: TransactionAttempt) -> list[_Open]:
        """Return the open attempt if it is this one."""
        found = self._open.get(attempt.txid)
        return [found] if found is not None and found.attempt == attempt else []

    def _committed(self, attempts: tuple[TransactionAttempt, ...], now: int) -> None:
        for attempt in attempts:
            self._begun.pop(attempt.txid, None)
            found = self._open.get(attempt.txid)
            if found is None:
                continue
            found.phases = self._phases
            self._sampler.visible(now - found.available)
            # A dead letter has an attempt of its own, which processes nothing.
            self._close(attempt.txid, VISIBLE if found.started else GIVEN_UP, now)

    def _close(self, txid: int, outcome: int, now: int, component: str = "", text: str = "") -> None:
        found = self._open.pop(txid, None)
        if found is None:
            return
        self._queue.append(found.record(outcome, now, component, text))

    def _stopped_by(self, error: Exception, attempt: TransactionAttempt | None) -> None:
        component = getattr(error, "component", None) or ""
        self._note_error(str(error), component, attempt)
        if attempt is not None:
            self._close(attempt.txid, FAILED, time.time_ns() // 1000, component, first_line(_own_reason(str(error))))

    def _note_error(self, text: str, component: str, attempt: TransactionAttempt | None) -> None:
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
        """Return the records that were noted since the last call."""
        return [self._queue.popleft() for _ in range(len(self._queue))]

    def open_records(self, now_us: int) -> list[Entry]:
        """Return the attempts that are open for long and have moved on since they were recorded."""
        found = []
        for each in list(self._open.values()):  # a copy in one step: the run loop changes it meanwhile
            last = max(each.begun, each.started, each.processed, each.grouped)
            if last != each.recorded and now_us - (each.started or each.begun) >= OPEN_SECS * 1e6:
                each.recorded = last
                phases = self._phases if each.group and each.group == self._group[0] else 0
                found.append(attrs.evolve(each, phases=phases).record(OPEN, 0))
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


def _described(topology: Topology) -> dict[str, Any]:
    if isinstance(topology, PlainTopology):
        return described_plain(topology.plan)
    assert isinstance(topology, TransactionalTopology), "there are two kinds"
    return described(topology.plan)


def _own_reason(text: str) -> str:
    """Return a reason without its leading origin, which stands beside it."""
    return text.partition("] ")[2] or text if text.startswith("[component ") else text
