"""What a timeline consists of: its files, and the layout of its records and samples."""

from __future__ import annotations

import enum
import json
import re
import struct
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import attrs

from txtopo.assembly.snapshot import Writer
from txtopo.attempts import TransactionAttempt, epoch_and_try
from txtopo.files.records import DAMAGE

SLOTS = 32_768
"""The records of a timeline: 4 MiB, about 10,000 transactions."""

SAMPLES_SECS = 3_600
"""How far the plots reach back, with a sample a second."""
SERIES_MAX = 64
"""Of more series, the samples reach back less than an hour."""

ERRORS_MAX = 100
"""How many errors are kept; equal ones are shown as one, so these are many."""

PAST_RUNS_MAX, PAST_BYTES_MAX = 50, 64 << 20
"""How many earlier runs of a topology are kept, and how large they may be altogether; the oldest go first."""

RUN, ATTEMPT, WRITE = 2, 3, 4
"""Kinds of records."""

OPEN, VISIBLE, FAILED, RETURNED, GIVEN_UP = range(5)
"""Outcomes of an attempt."""

EVENT = struct.Struct("<QIIIIQQ8qQ")
"""Of all three: txid, epoch, job, group, tuples or rows or pid, name, text, eight times in microseconds, spare.

The times of an attempt are: available, begun, metadata durable, started, processed, grouped, phases over, ended; those
of a write: prepared from, to, published from, to; then the number of keys removed.
"""

PROGRESS, DRIVER, STATE, READING, ROOTS, COMPONENT, STREAM, LAG = range(10, 18)
"""Kinds of samples."""

SAMPLE = struct.Struct("<qQ12d")
"""Of all samples: the time in microseconds, the name, twelve numbers; NaN for what is unknown.

Which number is which, the classes below say, one for each kind. A reading has only its value. A stream, whose name is
that of its component and its own in JSON, has only the tuples emitted on it; those on default streams are the rest.
"""


class OfProgress(enum.IntEnum):
    """Places of the numbers of a transactional run."""

    COMMITTED, TRANSACTIONS, DEAD_LETTERS, ATTEMPTS, FAILURES, TUPLES = range(6)
    READY, PROCESSING, PROCESSED, COMMITTING, LAG, REMAINING = range(6, 12)


class OfLag(enum.IntEnum):
    """Places of the numbers of what waits in a source; without a name in all that do not know their records."""

    FILES, BYTES, RECORDS = range(3)


class OfDriver(enum.IntEnum):
    """Places of the numbers of a driver; the latencies are those from available to visible."""

    P50, P99, JOBS, GROUPS, MEMORY_BYTES, CPU_SECS, WORKERS_KILLED = range(7)


class OfState(enum.IntEnum):
    """Places of the numbers of a state."""

    WRITES, SECS, ROWS, REMOVED = range(4)


class OfRoots(enum.IntEnum):
    """Places of the numbers of a plain topology's run."""

    EMITTED, ACKED, FAILED, PENDING, P50, P99 = range(6)
    WORKERS, WORKERS_RUNNING, RESTARTS, WORKERS_CPU_SECS, LAG, ERRORS = range(6, 12)


class OfComponent(enum.IntEnum):
    """Places of the numbers of a component; a transactional run knows only the first, the tuples of all streams."""

    EMITTED, TRANSFERRED, EXECUTED, ACKED, FAILED, QUEUED = range(6)


VALUE = 0
"""The place of a reading's value."""

_USHORT, _UINT = 0xFFFF, 0xFFFFFFFF
_NAME = re.compile(r"(\d{10})\.records")

FOLDER_PREFIX = "timeline-"

FILES = ("samples", "errors", "run", "records")
"""The files of an epoch. The records come last: an epoch without them is none."""

_PAST = "past"

METRICS = "metrics.prom"
"""The file in a timeline's folder that has the run's metrics, if its page serves them."""


def folder_of(metadata_dir: Path, topology_id: str) -> Path:
    """Return the folder of a topology's timeline."""
    return metadata_dir / f"{FOLDER_PREFIX}{urllib.parse.quote(topology_id, safe='')}"


def epochs_in(folder: Path) -> list[int]:
    """Return the epochs that have a timeline in a folder, the last one first."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    return sorted((int(found[1]) for found in map(_NAME.fullmatch, names) if found is not None), reverse=True)


def path_of(folder: Path, epoch: int, name: str) -> Path:
    """Return the path of one of :data:`FILES` of an epoch."""
    return folder / f"{epoch:010}.{name}"


def past_in(folder: Path) -> dict[int, Path]:
    """Return the timelines of a topology's earlier runs, the last first: folders with the files of one epoch each."""
    try:
        by_number = {int(path.name): path for path in (folder / _PAST).iterdir() if path.name.isdecimal()}
    except OSError:
        return {}
    return dict(sorted(by_number.items(), reverse=True))


def past_path(folder: Path, number: int) -> Path:
    """Return the folder of an earlier run."""
    return folder / _PAST / f"{number:010}"


class Entry(NamedTuple):  # made for each transaction, at less than half the cost of a frozen class of attrs
    """A record before it is packed.

    Args:
        kind: ``ATTEMPT`` or ``WRITE``.
        times: eight, in microseconds since 1970; see :data:`EVENT`.
        outcome: of an attempt.
        attempt: which one; None for a write.
        job: of an attempt.
        group: the commit group, 0 for none yet.
        number: an attempt's tuples, or a write's rows.
        name: the component that failed, or the state that was written.
        text: why the attempt failed, in a line.
    """

    kind: int
    times: tuple[int, ...]
    outcome: int = OPEN
    attempt: TransactionAttempt | None = None
    job: int = 0
    group: int = 0
    number: int = 0
    name: str = ""
    text: str = ""


def packed(entry: Entry, epoch: int, name: int, text: int) -> tuple[int, bytes]:
    """Return a record's number, that of an attempt's try, and its body; ``name`` and ``text`` are records of those."""
    _, times, _, attempt, job, group, number, _, _ = entry
    txid = tries = 0
    if attempt is not None:
        txid, (epoch, tries) = attempt.txid, epoch_and_try(attempt.attempt)
    body = EVENT.pack(txid, epoch & _UINT, job & _UINT, group & _UINT, min(number, _UINT), name, text, *times, 0)
    return min(tries, _USHORT), body


@attrs.frozen
class RunRecord:
    """Whose timeline it is; ``EPOCH.run``.

    ``settings`` are those that were given, as people may see them; ``stage`` is the step before the run loop begins,
    empty from then on; ``ended`` says why the run ended, empty while it runs; ``is_failed`` whether that was an error.
    """

    topology: str
    kind: str
    writer: Writer
    started_secs: float
    graph: Mapping[str, Any]
    settings: Mapping[str, str]
    stage: str = ""
    ended: str = ""
    is_failed: bool = False


@attrs.frozen
class ErrorRecord:
    """An error of a run; one of those in ``EPOCH.errors``."""

    at_secs: float
    component: str
    text: str
    txid: int | None = None
    attempt: int | None = None
    epoch: int | None = None


def errors_in(folder: Path, epoch: int) -> list[Any]:
    """Return the last errors of an epoch, oldest first, as JSON; none if the file is not there or damaged."""
    try:
        errors = json.loads(path_of(folder, epoch, "errors").read_text())
        return errors if isinstance(errors, list) else []
    except (OSError, *DAMAGE):
        return []
