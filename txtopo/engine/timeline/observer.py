"""The observer that notes what a run does for its timeline."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from txtopo.assembly.parts import Observer
from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.report import Progress
from txtopo.attempts import TransactionAttempt, epoch_and_try
from txtopo.config import SETTINGS, Config
from txtopo.engine.timeline.attempts import AttemptFacts, EndedAttempts, entries_of, reason_alone
from txtopo.engine.timeline.ends import put_end
from txtopo.engine.timeline.records import ERRORS_MAX, SLOTS, Entry, ErrorRecord, RunRecord
from txtopo.engine.timeline.samples import Sample, Sampler
from txtopo.engine.timeline.writer import FLUSH_SECS, TimelineWriter
from txtopo.errors import TxtopoError
from txtopo.files.folder import Folder
from txtopo.files.objects import ObjectFolder
from txtopo.settings.setting import Setting
from txtopo.text.secrecy import shown, without_secrets
from txtopo.topology.plans.description import described, described_plain
from txtopo.topology.topology import PlainTopology, Topology, TransactionalTopology
from txtopo.transactional.core.record.facts import Fact, Trouble
from txtopo.transactional.core.record.history import HistoryEvent, first_line
from txtopo.transactional.core.record.record import Record

OPEN_SECS = 1.0
"""An attempt that is open for so long is recorded before it ends."""

ERROR_CHARACTERS_MAX = 4_000
"""A longer error would take many records of the ring; its beginning names the cause."""


class Timeline(Observer):
    """Observes a run, and writes its timeline every ``flush_secs``.

    The folder is made once the run has the lead, or at once for a plain topology. If ``metadata_dir``, the topology's,
    is in a bucket, the timeline is put there at the end.
    """

    def __init__(
        self,
        topology: Topology,
        config: Config,
        folder: Path,
        flush_secs: float = FLUSH_SECS,
        metadata_dir: Folder | None = None,
    ) -> None:
        self._folder, self._metadata_dir = folder, metadata_dir
        self._is_plain = isinstance(topology, PlainTopology)
        self._topology_id = topology.id
        self._graph = graph = _described(topology)
        self._given = config.given
        self._settings = {name: _setting_text(name, value) for name, value in config.given.items()}
        self._started = time.time()
        self._ended = EndedAttempts(SLOTS)
        self._errors: collections.deque[ErrorRecord] = collections.deque(maxlen=ERRORS_MAX)
        self._error_count = 0
        self._sampler = Sampler()
        self._recorded: dict[int, float] = {}
        """Of each attempt that is recorded as open, its last moment then."""
        self._stage = ""
        self.ended = ""
        """Why the run has ended; empty while it runs."""
        self._is_failed = False
        series = (
            8 + sum(1 + len(component["streams"]) for component in graph["components"]) + len(graph.get("states", ()))
        )
        self._writer = TimelineWriter(self, folder, series, flush_secs)
        if self._is_plain:
            self._writer.start("", 0)

    # The observer of a run, called in the run loop's thread.

    def entered(self, stage: str) -> None:
        """Record a step before the run begins."""
        self._stage = stage

    def leads(self, incarnation: str, epoch: int) -> None:
        """Begin to write."""
        self._writer.start(incarnation, epoch)

    def began(self, record: Record, executors_lost: Callable[[], int]) -> None:
        """Record that the run loop begins."""
        del executors_lost
        self._stage, self._ended.record = "", record

    def recorded(self, fact: Fact) -> None:
        """Record a fact."""
        self._ended.add(fact)
        match fact.what:
            case HistoryEvent.PROCESSING:
                self._sampler.jobs += 1
            case HistoryEvent.COMMITTING | HistoryEvent.WRITING_DEAD_LETTER:
                self._sampler.groups += 1
            case HistoryEvent.FAILED | HistoryEvent.STOPPED if isinstance(fact, Trouble):
                if fact.times or fact.what is HistoryEvent.STOPPED:  # otherwise it failed only because the run stops
                    self._record_error(fact.reason, fact.component or "", fact.attempts[0] if fact.attempts else None)

    def progressed(self, progress: Progress | PlainReport) -> None:
        """Record the progress."""
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
        epoch = self._writer.identity().epoch
        if epoch and isinstance(self._metadata_dir, ObjectFolder):
            put_end(self._metadata_dir, self._folder, self._topology_id, epoch)

    def _record_error(self, text: str, component: str, attempt: TransactionAttempt | None) -> None:
        self._error_count += 1
        cut = text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[:ERROR_CHARACTERS_MAX]} …"
        epoch, tries = (None, None) if attempt is None else epoch_and_try(attempt.attempt)
        txid = None if attempt is None else attempt.txid
        self._errors.append(ErrorRecord(time.time(), component, reason_alone(cut), txid, tries, epoch))

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

    def drained(self) -> list[Entry]:
        """Return the records of what has ended since the last call."""
        entries = list(entries_of(self._ended.drained()))
        for entry in entries:
            self._sampler.recorded(entry)
        return entries

    def open_records(self, now_us: int) -> list[Entry]:
        """Return the attempts that are open for long and have moved on since they were recorded."""
        records, before, self._recorded = [], self._recorded, {}
        is_open = [AttemptFacts(txid, facts) for txid, facts in self._ended.record.open()]
        for (txid, facts, _), entry in zip(is_open, entries_of(is_open), strict=True):
            last_secs = facts[-1].at_secs
            if now_us - (entry.times[3] or entry.times[1]) >= OPEN_SECS * 1e6:
                self._recorded[txid] = last_secs
                if before.get(txid) != last_secs:
                    records.append(entry)
        return records

    def errors(self) -> tuple[int, list[ErrorRecord]]:
        """Return how many errors there were, and the last ones."""
        return self._error_count, list(self._errors)

    def samples(self) -> list[Sample]:
        """Return the samples of now."""
        return self._sampler.samples()

    def discreet(self, text: str) -> str:
        """Return a text without secrets, those of the settings among them: anybody may read the files."""
        return without_secrets(text, self._given)


def _setting_text(name: str, value: Any) -> str:
    text = Setting.text_of(value) if name in SETTINGS else value
    return str(text) if value is None else without_secrets(str(shown(name, text)))


def _described(topology: Topology) -> dict[str, Any]:
    if isinstance(topology, PlainTopology):
        return described_plain(topology.plan)
    assert isinstance(topology, TransactionalTopology), "there are two kinds"
    return described(topology.plan)
