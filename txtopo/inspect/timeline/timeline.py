"""Reads the timeline that a run writes (:mod:`txtopo.engine.timeline`), while it does or afterwards."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import operator
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from txtopo.engine.timeline.records import (
    ATTEMPT,
    FAILED,
    GIVEN_UP,
    METRICS,
    OPEN,
    RETURNED,
    RUN,
    VISIBLE,
    WRITE,
    ErrorRecord,
    RunRecord,
    epochs_in,
    errors_in,
    path_of,
)
from txtopo.engine.timeline.ring import TEXT, read_header
from txtopo.errors import ConfigError
from txtopo.files.records import DAMAGE, from_json, to_json
from txtopo.inspect.timeline.attempts import (
    Attempt,
    Timeline,
    TimelineAttempts,
    TimelineRun,
    TimelineWrites,
    TransactionLine,
    Transactions,
    Write,
)
from txtopo.inspect.timeline.rings import EVENTS, SAMPLES, Ring, Rows

POLL_SECS = 0.1
"""How often the files are looked at, however many ask."""

ALL_SECS = 3.0
"""How old the whole timeline may be that a page begins with: it asks for the rest at once."""

CLOCKS_US = 2_000_000
"""How far the clock of a run may be ahead, which may be on another machine, for its samples to count as of now."""

_ANSWERS_MAX = 16
"""How many answers are kept: viewers of one page ask after one of the last few records."""

OUTCOMES = {OPEN: "open", VISIBLE: "visible", FAILED: "failed", RETURNED: "returned", GIVEN_UP: "dead letter"}
_OF_ATTEMPT = ("txid", "number", "epoch", "small", "job", "group", "count", "name", "text")
"""The columns of an attempt, in the order of a :class:`TimelineAttempts`, before its moments."""
TIMES = ("available", "begun", "metadata", "started", "processed", "grouped", "phases", "ended")
"""The moments of an attempt, in the order of its record."""


class TimelineReader:
    """The timeline of one topology. Any thread may use it; what many ask at the same time is made once.

    ``folder`` need not exist: a topology without a timeline has an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._events = Ring(folder, "records", EVENTS)
        self._samples = Ring(folder, "samples", SAMPLES)
        self._refreshed_at = 0.0
        self._latest: dict[int, dict[str, Any]] = {}
        """The last sample of each kind and name in the last run."""
        self._answers: dict[tuple[int, int], bytes] = {}
        self._all = -ALL_SECS, b""
        """When the whole timeline was encoded, and how it begins."""

    @property
    def is_there(self) -> bool:
        """Whether a run has left a timeline."""
        return bool(epochs_in(self.folder))

    def run(self) -> RunRecord | None:
        """Return whose timeline it is; None if there is none, or of another version."""
        for epoch in epochs_in(self.folder):
            with contextlib.suppress(OSError, *DAMAGE):
                return _read_run(path_of(self.folder, epoch, "run"))
        return None

    def errors(self) -> list[ErrorRecord]:
        """Return the last errors, oldest first; damaged ones are left out."""
        records = []
        for error in next((errors_in(self.folder, epoch) for epoch in epochs_in(self.folder)), []):
            with contextlib.suppress(*DAMAGE):
                records.append(from_json(error, ErrorRecord))
        return records

    def damage(self, *names: str) -> str:
        """Return which of the files of the last run can't be read; empty if all that are there can.

        Args:
            names: of :data:`~txtopo.engine.timeline.records.FILES`.
        """
        for epoch, file in itertools.product(epochs_in(self.folder)[:1], names):
            path = path_of(self.folder, epoch, file)
            try:
                _READ[file](path)
            except FileNotFoundError:
                continue
            except (OSError, *DAMAGE) as error:
                reason = getattr(error, "strerror", None) or "it is damaged, or another version of txtopo wrote it"
                return f"{path} can't be read: {reason}"
        return ""

    def check(self, *names: str) -> None:
        """Raise ConfigError if a file of the last run can't be read; see :meth:`damage`."""
        damage = self.damage(*names)
        if damage:
            raise ConfigError(damage)

    @property
    def metrics(self) -> Path:
        """The file into which a run writes its metrics in Prometheus' format, if it does."""
        return self.folder / METRICS

    def since(self, since: int, now_secs: float) -> bytes:
        """Return the answer to ``/timeline?since=``, as JSON; raise ConfigError if the records can't be read."""
        self.check("records")
        with self._lock:
            self._refresh()
            ring = self._events
            now_at = time.monotonic()
            if not since and now_at - self._all[0] < ALL_SECS:
                answer = self._all[1]
            else:
                answer = self._encoded(since)
                if not since:
                    self._all = time.monotonic(), answer
            now = round(now_secs * 1000 - ring.base_us / 1000, 3)
            return answer + b',"now":%s}' % str(now).encode()

    def _encoded(self, since: int) -> bytes:
        """Return the answer after a record without its end."""
        key = (since, self._events.head)
        if key not in self._answers:
            while len(self._answers) >= _ANSWERS_MAX:
                self._answers.pop(next(iter(self._answers)))
            content = to_json(_timeline(self._events, since))
            del content["now"]  # the end of each answer has it
            self._answers[key] = json.dumps(content, separators=(",", ":")).encode()[:-1]
        return self._answers[key]

    def transactions(
        self, first: int, last: int | None, limit: int, *, failed: bool, undone_to: int | None = None
    ) -> Transactions:
        """Return the answer to ``/transactions``, newest first; raise ConfigError if the records can't be read."""
        self.check("records")
        with self._lock:
            self._refresh()
            ring = self._events
            rows = ring.rows[ring.rows["kind"] == ATTEMPT]
            rows = rows[rows["txid"] >= first]
            if last is not None:
                rows = rows[rows["txid"] <= last]
            of_interest = rows[rows["small"] == FAILED] if failed else rows
            txids = np.unique(of_interest["txid"])[::-1]
            begun = _begun(ring, undone_to)
            shown = [_transaction(ring, rows[rows["txid"] == txid], begun) for txid in txids[:limit]]
            return Transactions(shown, len(txids) > limit)

    def attempts(self, txid: int, undone_to: int | None = None) -> list[Attempt]:
        """Return the attempts at a transaction, in order; what is committed after ``undone_to`` was undone."""
        with self._lock:
            self._refresh()
            ring = self._events
            rows = ring.rows[(ring.rows["kind"] == ATTEMPT) & (ring.rows["txid"] == txid)]
            return _attempts(ring, rows, _begun(ring, undone_to)) if len(rows) else []

    def writes(self, epoch: int, group: int) -> list[Write]:
        """Return the writes of a commit group."""
        with self._lock:
            rows = self._events.rows
            own = rows[(rows["kind"] == WRITE) & (rows["epoch"] == epoch) & (rows["group"] == group)]
            return [
                Write(
                    self._events.text(row["name"]),
                    int(row["count"]),
                    int(row["times"][4]),
                    *map(_secs, row["times"][:4]),
                )
                for row in own
            ]

    def samples(self, kind: int, secs: float | None = None, now_secs: float | None = None) -> list[tuple[str, Rows]]:
        """Return the samples of a kind by name, each in order: the last ``secs`` seconds before a moment, or all.

        What was sampled before somebody set the clock back may be of a later time than the moment: it is left out.
        """
        with self._lock:
            self._refresh()
            ring = self._samples
            rows = ring.rows[ring.rows["kind"] == kind]
            if secs is not None:
                now_us = (now_secs or time.time()) * 1e6
                rows = rows[(rows["at"] >= now_us - secs * 1e6) & (rows["at"] <= now_us + CLOCKS_US)]
            named: dict[str, list[Rows]] = {}
            for name in np.unique(rows["name"]):  # the same name may have been written again, as another record
                named.setdefault(ring.text(name), []).append(rows[rows["name"] == name])
            return [(name, np.concatenate(parts)) for name, parts in named.items()]

    def last(self, kind: int) -> dict[str, Rows]:
        """Return the last sample of a kind, by name, if it is of the last run."""
        with self._lock:
            self._refresh()
            return self._latest.get(kind, {}).copy()

    def _refresh(self) -> None:
        if time.monotonic() - self._refreshed_at < POLL_SECS:
            return
        self._events.read_on()
        samples, is_new = self._samples.read_on()
        if is_new:
            self._latest = {}
        # By number, not by time: somebody may have set the clock back.
        for at in np.flatnonzero((samples["kind"] != TEXT) & (samples["seq"] > self._samples.before)).tolist():
            row = samples[at]
            self._latest.setdefault(int(row["kind"]), {})[self._samples.text(row["name"])] = row.copy()
        self._refreshed_at = time.monotonic()

    def close(self) -> None:
        """Close the files. Whoever still asks gets what was read of them."""
        with self._lock:
            self._refreshed_at = math.inf
            self._events.close()
            self._samples.close()


_OF_COMPONENT = operator.itemgetter("id", "kind", "class", "tasks", "streams")
_OF_EDGE = operator.itemgetter("source", "stream", "target", "grouping")
_OF_STATE = operator.itemgetter("class", "kind", "key", "value", "path")


def _read_run(path: Path) -> RunRecord:
    """Read a run's record; the graph in it has all that the page shows, or it counts as damaged."""
    record = from_json(json.loads(path.read_text()), RunRecord)
    graph = record.graph
    parts = (
        (_OF_COMPONENT, graph["components"]),
        (_OF_EDGE, graph["edges"]),
        (_OF_STATE, graph.get("states", {}).values()),
    )
    for names_of, found in parts:
        for each in found:
            names_of(each)
    return record


def _read_errors(path: Path) -> list[ErrorRecord]:
    return [from_json(error, ErrorRecord) for error in json.loads(path.read_text())]


def _read_ring(path: Path) -> None:
    if path.is_file() and read_header(path) is None:
        raise ValueError(f"{path} is no ring")


_READ: Mapping[str, Callable[[Path], Any]] = {
    "run": _read_run,
    "errors": _read_errors,
    "records": _read_ring,
    "samples": _read_ring,
}


def _timeline(ring: Ring, since: int) -> Timeline:
    is_lost = bool(since) and not (ring.first - 1 <= since <= ring.head)
    rows = ring.rows if is_lost or not since else ring.after(since)
    attempts, writes, runs = (rows[rows["kind"] == kind] for kind in (ATTEMPT, WRITE, RUN))
    texts = {*attempts["name"].tolist(), *attempts["text"].tolist(), *writes["name"].tolist()} - {0}
    of_writes = [
        *(writes[name].tolist() for name in ("epoch", "group", "name")),
        *(_millis(ring, writes, at) for at in range(4)),
        writes["count"].tolist(),
        writes["times"][:, 4].tolist(),
    ]
    return Timeline(
        ring.head,
        is_lost,
        ring.base_us / 1000,
        ring.epoch,
        [
            TimelineRun(int(row["epoch"]), int(row["count"]), (int(row["times"][0]) - ring.base_us) / 1000)
            for row in runs
        ],
        TimelineAttempts(
            *(attempts[name].tolist() for name in _OF_ATTEMPT),
            *(_millis(ring, attempts, at) for at in range(len(TIMES))),
        ),
        TimelineWrites(*of_writes),
        {str(seq): ring.texts[seq] for seq in sorted(texts) if seq in ring.texts},
        now=0.0,
    )


def _millis(ring: Ring, rows: Rows, at: int) -> list[float]:
    times = rows["times"][:, at]
    found: list[float] = np.where(times > 0, (times - ring.base_us) / 1000, 0.0).tolist()
    return found


def _secs(time_us: int) -> float | None:
    return int(time_us) / 1e6 if time_us > 0 else None


def _latest(rows: Rows) -> Iterator[Any]:
    """Yield the last row of each attempt, in the order of their first rows."""
    latest: dict[tuple[int, int], Any] = {}
    for row in rows:
        latest[int(row["epoch"]), int(row["number"])] = row
    yield from latest.values()


def _attempt(ring: Ring, row: Any) -> Attempt:
    return Attempt(
        int(row["number"]),
        epoch=int(row["epoch"]),
        outcome=OUTCOMES.get(int(row["small"]), "open"),
        job=int(row["job"]) or None,
        group=int(row["group"]) or None,
        tuples=int(row["count"]),
        component=ring.text(row["name"]) or None,
        error=ring.text(row["text"]) or None,
        **{f"{name}_at": _secs(row["times"][at]) for at, name in enumerate(TIMES)},
    )


def _begun(ring: Ring, undone_to: int | None) -> dict[float, int]:
    """Return the first transaction that each epoch has begun, the next one too if it was brought back."""
    rows = ring.rows[ring.rows["kind"] == ATTEMPT]
    begun = {float(epoch): int(rows["txid"][rows["epoch"] == epoch].min()) for epoch in np.unique(rows["epoch"])}
    return begun if undone_to is None else {**begun, math.inf: undone_to + 1}


def _attempts(ring: Ring, rows: Rows, begun: Mapping[float, int]) -> list[Attempt]:
    """Return the attempts at a transaction; what is committed was undone if a later epoch begins there or before."""
    attempts = [_attempt(ring, row) for row in _latest(rows)]
    epoch = max(epoch for epoch, first in begun.items() if first <= rows["txid"][0])
    return [
        attrs.evolve(attempt, outcome="undone")
        if attempt.outcome in {"visible", "dead letter"} and attempt.epoch < epoch
        else attempt
        for attempt in attempts
    ]


def _transaction(ring: Ring, rows: Rows, begun: Mapping[float, int]) -> TransactionLine:
    attempts: list[Attempt] = []
    for attempt in _attempts(ring, rows, begun):
        attempts = [attempt] if attempts and attempts[-1].outcome == "undone" else [*attempts, attempt]
    last = attempts[-1]
    failure = next((attempt for attempt in reversed(attempts) if attempt.error), None)
    began = min(filter(None, (attempt.begun_at for attempt in attempts)), default=None)
    return TransactionLine(
        int(rows["txid"][0]),
        status=outcome_of(attempts),
        attempts=len(attempts),
        epoch=last.epoch,
        group=last.group,
        tuples=last.tuples,
        began_at=began,
        ended_at=last.ended_at,
        secs=None if last.ended_at is None or began is None else last.ended_at - began,
        component=None if failure is None else failure.component,
        error=None if failure is None else failure.error,
    )


def outcome_of(attempts: Sequence[Attempt]) -> str:
    """Return the status of a transaction in a word or two, from its attempts."""
    last = attempts[-1]
    match last.outcome:
        case "visible":
            return "committed"
        case "dead letter" | "failed" | "undone" as outcome:
            return outcome
        case "returned":
            return "ready"
        case _ if last.grouped_at:
            return "committing"
        case _:
            return "processed" if last.processed_at else "processing"
