"""What a run samples once a second."""

from __future__ import annotations

import collections
import json
import math
import time

import attrs

from txtopo.api.components.spout import Lag
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.report import Progress
from txtopo.engine.timeline import records
from txtopo.files.proc import memory_bytes
from txtopo.plain.tasks.metrics import Counts, LatencyHistogram

NUMBERS = 12
"""How many numbers a sample has."""

_LATENCIES_MAX = 10_000
"""Of more transactions between two samples the last ones count."""


@attrs.frozen
class Sample:
    """A sample: its kind, what it is of, and up to twelve numbers, in the order of ``records``; None if unknown."""

    kind: int
    name: str
    numbers: tuple[float | None, ...]

    def packed(self, now_us: int, name: int) -> bytes:
        """Return it as the body of a record; ``name`` is the record that holds its name."""
        padded = (*self.numbers, *[None] * (NUMBERS - len(self.numbers)))
        return records.SAMPLE.pack(now_us, name, *(math.nan if each is None else each for each in padded))


class Sampler:
    """Counts what a run's progress does not tell, and takes the samples, in the timeline's thread."""

    def __init__(self) -> None:
        self.progress: Progress | PlainReport | None = None
        self.jobs = 0
        self.groups = 0
        self._writes: dict[str, tuple[float, ...]] = {}
        self._latencies_us: collections.deque[int] = collections.deque(maxlen=_LATENCIES_MAX)
        self._complete: collections.Counter[int] = collections.Counter()

    def recorded(self, entry: records.Entry) -> None:
        """Count a record: how long a visible transaction took from when it was available, and what was written."""
        times = entry.times
        if entry.kind == records.WRITE:
            count, secs, rows, removed = self._writes.get(entry.name, (0.0, 0.0, 0.0, 0.0))
            took = (times[3] - times[0]) / 1e6
            self._writes[entry.name] = (count + 1, secs + took, rows + entry.number, removed + times[4])
        elif entry.outcome in {records.VISIBLE, records.GIVEN_UP}:
            self._latencies_us.append(times[7] - times[0])

    def samples(self) -> list[Sample]:
        """Return the samples of now."""
        match self.progress:
            case Progress() as progress:
                return [self._driver(), *self._of_transactions(progress)]
            case PlainReport() as report:
                return [self._driver(report.workers_killed), *self._of_roots(report)]
            case _:
                return [self._driver()]

    def _driver(self, workers_killed: int | None = None) -> Sample:
        latencies = sorted(self._latencies_us)
        self._latencies_us.clear()
        p50, p99 = (latencies[int(len(latencies) * share)] / 1e6 if latencies else None for share in (0.5, 0.99))
        numbers = (p50, p99, self.jobs, self.groups, memory_bytes(), time.process_time(), workers_killed)
        return Sample(records.DRIVER, "", numbers)

    def _of_transactions(self, progress: Progress) -> list[Sample]:
        numbers = (
            progress.committed_txid,
            progress.transactions,
            progress.dead_letters,
            progress.attempts,
            progress.failures,
            progress.tuples,
            progress.ready,
            progress.processing,
            progress.processed,
            progress.committing,
            progress.lag,
            None if progress.total is None else max(0, progress.total - progress.committed_txid),
        )
        files = (progress.lag_files, progress.lag_bytes)
        return [
            Sample(records.PROGRESS, "", numbers),
            *([] if files == (None, None) else [Sample(records.LAG, "", files)]),
            *(
                Sample(records.LAG, spout, (lag.files, lag.bytes, lag.records))
                for spout, lag in progress.lags.items()
                if len(progress.lags) > 1 and lag != Lag()
            ),
            *(Sample(records.STATE, name, sums) for name, sums in self._writes.items()),
            *(Sample(records.COMPONENT, name, (emitted,)) for name, emitted in progress.emitted.items()),
            *(_of_stream(*origin, tuples) for origin, tuples in progress.emitted_on.items()),
            *(
                Sample(
                    records.READING,
                    json.dumps([reading.component, reading.name, reading.of, reading.kind.value]),
                    (reading.value,),
                )
                for reading in progress.readings[: records.SERIES_MAX]
            ),
        ]

    def _of_roots(self, report: PlainReport) -> list[Sample]:
        lately = LatencyHistogram()
        lately.buckets = report.latencies.buckets - self._complete
        self._complete = report.latencies.buckets.copy()
        numbers = (
            report.emitted,
            report.acked,
            report.failed,
            report.pending,
            lately.quantile(0.5),
            lately.quantile(0.99),
            report.workers,
            report.workers_running,
            report.restarts,
            report.worker_cpu_secs,
            sum(report.lag.values()) if report.lag else None,
            report.reported_errors,
        )
        components = report.components.items()
        return [
            Sample(records.ROOTS, "", numbers),
            *(
                Sample(records.COMPONENT, name, (*_counts(counts), report.queued.get(name)))
                for name, counts in components
            ),
            *(
                _of_stream(name, stream, tuples)
                for name, counts in components
                for stream, tuples in counts.emitted.items()
                if stream != DEFAULT_STREAM
            ),
        ]


def _of_stream(component: str, stream: str, tuples: int) -> Sample:
    return Sample(records.STREAM, json.dumps([component, stream]), (tuples,))


def _counts(counts: Counts) -> tuple[float, ...]:
    return sum(counts.emitted.values()), counts.transferred, counts.executed, counts.acked, counts.failed
