"""The thread that writes a timeline."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import attrs

from txtopo.assembly.snapshot import Writer
from txtopo.engine.timeline.records import (
    ERRORS_MAX,
    FILES,
    PAST_BYTES_MAX,
    PAST_RUNS_MAX,
    RUN,
    SAMPLES_SECS,
    SERIES_MAX,
    SLOTS,
    Entry,
    ErrorRecord,
    RunRecord,
    epochs_in,
    errors_in,
    folder_of,
    packed,
    past_in,
    past_path,
    path_of,
)
from txtopo.engine.timeline.ring import RingHeader, RingWriter, keep_own, read_header
from txtopo.engine.timeline.samples import Sample
from txtopo.files.durable import write_whole
from txtopo.files.folder import LocalFolder
from txtopo.files.proc import start_of
from txtopo.files.records import to_json

FLUSH_SECS = 0.25
"""How often it writes."""

_CLOSE_SECS = 1.0
"""How long the end of a run waits for the last records, which are not worth more."""
_LOG = logging.getLogger("txtopo")


class Recorded(Protocol):
    """What the observer has recorded; the writer's thread calls it."""

    def record(self) -> RunRecord:
        """Return whose timeline it is, and why the run has ended."""

    def drained(self) -> list[Entry]:
        """Return the records that were recorded since the last call."""

    def open_records(self, now_us: int) -> list[Entry]:
        """Return the attempts that are open for long and have moved on since they were recorded."""

    def errors(self) -> tuple[int, list[ErrorRecord]]:
        """Return how many errors there were, and the last ones."""

    def samples(self) -> list[Sample]:
        """Return the samples of now."""

    def discreet(self, text: str) -> str:
        """Return a text without secrets."""


class TimelineWriter:
    """Writes what is recorded, and samples of about so many series, every ``flush_secs`` in a separate thread."""

    def __init__(self, recorded: Recorded, folder: Path, series: int, flush_secs: float) -> None:
        self._recorded = recorded
        self._folder = folder
        self._series = min(SERIES_MAX, 1 << series.bit_length())
        self._flush_secs = flush_secs
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._incarnation, self._epoch = "", 0
        self._former_errors: list[Any] = []
        self._errors_written = 0
        self._told: tuple[str, str] | None = None
        self._has_warned = False

    def start(self, incarnation: str, epoch: int) -> None:
        """Begin; an epoch of 0 is the one after the last."""
        self._incarnation, self._epoch = incarnation, epoch
        self._thread = threading.Thread(target=self._run, name="txtopo-timeline", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the thread write what waits, and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECS)

    def identity(self) -> Writer:
        """Return the process and the time."""
        pid = os.getpid()
        return Writer(self._epoch, self._incarnation, socket.gethostname(), pid, start_of(pid), time.time())

    def _run(self) -> None:
        try:
            rings = self._begin()
        except OSError as error:
            _LOG.debug("the timeline can't be written: %s", error)
            return
        if rings is None:
            return
        records, samples = rings
        second = int(time.time())
        while not self._stop.wait(self._flush_secs):
            # One sample in each second of the clock: at equal pauses a second would now and then have none.
            before, second = second, int(time.time())
            self._collect(records, samples, is_full=second != before)
        self._collect(records, samples, is_full=True)
        for ring in rings:
            with contextlib.suppress(OSError):
                ring.close()

    def _begin(self) -> tuple[RingWriter, RingWriter] | None:
        """Make this epoch's files, take over those of the last one, and put them away; None if there is a successor.

        A crash before that leaves both: readers take the higher epoch, and the next run puts the lower one away.
        """
        folder = self._folder
        folder.mkdir(0o700, parents=True, exist_ok=True)  # its errors quote records: they are not for everybody here
        epochs = epochs_in(folder)
        own_epochs = [epoch for epoch in epochs if self._is_own(epoch)]
        if not self._epoch:
            self._epoch = max(epochs, default=0) + 1
        if own_epochs and own_epochs[0] > self._epoch:
            return None
        former = own_epochs[0] if own_epochs else None
        base_us = time.time_ns() // 1000
        rings = []
        for name, slots in (("samples", SAMPLES_SECS * self._series), ("records", SLOTS)):
            header = RingHeader(slots, self._incarnation, self._epoch, base_us)
            before = None if former is None else path_of(folder, former, name)
            rings.append(RingWriter(path_of(folder, self._epoch, name), header, before))
        samples, records = rings
        if former is not None:
            self._former_errors = errors_in(folder, former)
            self._put_json("errors", self._former_errors)
        entry = Entry(RUN, (base_us, *[0] * 7), number=os.getpid())
        records.put(RUN, 0, *packed(entry, self._epoch, 0, 0))
        self._put_run()
        for epoch in reversed(epochs):
            if epoch != self._epoch:
                _put_away(folder, epoch, folder)
        return records, samples

    def _is_own(self, epoch: int) -> bool:
        header = read_header(path_of(self._folder, epoch, "records"))
        return header is not None and header.incarnation == self._incarnation

    def _collect(self, records: RingWriter, samples: RingWriter, *, is_full: bool) -> None:
        now = time.time_ns() // 1000
        entries = self._recorded.drained()
        if is_full:
            entries += self._recorded.open_records(now)
        for entry in entries:
            safe = self._recorded.discreet(entry.text) if entry.text else ""
            name, text = records.text(entry.name), records.text(safe)
            records.put(entry.kind, entry.outcome, *packed(entry, self._epoch, name, text))
        if is_full:
            for sample in self._recorded.samples():
                samples.put(sample.kind, 0, 0, sample.packed(now, samples.text(sample.name)))
            self._put_errors()
            self._put_run()
        for ring in (records, samples):
            try:
                ring.flush()
            except OSError as error:
                self._warn(error)

    def _put_run(self) -> None:
        record = self._recorded.record()
        if (record.stage, record.ended) != self._told:
            self._told = record.stage, record.ended
            self._put_json("run", to_json(record))

    def _put_errors(self) -> None:
        count, errors = self._recorded.errors()
        if count != self._errors_written:
            self._errors_written = count
            safe = [attrs.evolve(error, text=self._recorded.discreet(error.text)) for error in errors]
            self._put_json("errors", [*self._former_errors, *map(to_json, safe)][-ERRORS_MAX:])

    def _put_json(self, name: str, content: Any) -> None:
        try:
            write_whole(path_of(self._folder, self._epoch, name), json.dumps(content).encode())
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:  # once: a full disk says so elsewhere
            self._has_warned = True
            _LOG.warning("a part of the timeline could not be written: %s", error)


def rename_timeline(metadata_dir: Path, former: str, topology_id: str) -> None:
    """Move a topology's timeline to its new id. What is there, of runs that were refused, becomes earlier runs of it.

    A crash amid it leaves some here and some there; the next call takes the rest.
    """
    folder, new_folder = folder_of(metadata_dir, former), folder_of(metadata_dir, topology_id)
    if not folder.exists():
        return
    for path in (*reversed(past_in(new_folder).values()), new_folder):
        for epoch in reversed(epochs_in(path)):
            _put_away(path, epoch, folder)
    shutil.rmtree(new_folder, ignore_errors=True)
    LocalFolder(metadata_dir).move(folder.name, new_folder.name)


def _put_away(folder: Path, epoch: int, to: Path) -> None:
    """Move the files of a run that is over among those of earlier runs; remove them if that fails.

    A crash amid it leaves a folder without records, which the next run fills.
    """
    try:
        past = past_in(to)
        last = max(past, default=0)
        target = past_path(to, last if last and not epochs_in(past[last]) else last + 1)
        target.mkdir(0o700, parents=True, exist_ok=True)
        for name in FILES:
            file = path_of(target, epoch, name)
            with contextlib.suppress(FileNotFoundError):
                path_of(folder, epoch, name).replace(file)
                if name in {"records", "samples"}:
                    keep_own(file)
        _forget_oldest(to)
    except OSError as error:
        _LOG.debug("the timeline of an earlier run can't be kept: %s", error)
        for name in FILES:
            path_of(folder, epoch, name).unlink(missing_ok=True)


def _forget_oldest(folder: Path) -> None:
    """Remove the oldest of the earlier runs that are too many or too large."""
    total = 0
    for place, path in enumerate(past_in(folder).values()):
        total += sum(file.stat().st_size for file in path.iterdir())
        if place >= PAST_RUNS_MAX or total > PAST_BYTES_MAX:
            shutil.rmtree(path)
