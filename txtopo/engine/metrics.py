"""Metrics of a run in Prometheus' format: what they are, and how they are collected.

A :class:`RunMetrics` observes one run. It keeps counts and histograms of the run's facts, and the last progress: a few
float operations for each transaction, none for a tuple. It computes everything else when somebody asks.

No metric takes text from settings, metadata or error messages, so none can show a secret. From tuples it takes what a
component passes to ``context.gauge`` by itself: an ``EventClock`` the names of partitions.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from txtopo.assembly.parts import Observer
from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.report import Progress
from txtopo.attempts import epoch_and_try
from txtopo.settings.setting import TopologyKind
from txtopo.topology.topology import Topology
from txtopo.transactional.core.readings import ReadingKind
from txtopo.transactional.core.record.facts import Fact
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.core.record.record import Record

SILENT_SECS = 30.0
"""After so long without a progress report a run is not well; reports come several times a second."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
_LATENCY_POWERS = (8, 26)
"""Complete latencies have bounds from 0.256 ms to 67 s, each twice the one before."""

_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}

_BOTH = frozenset(TopologyKind)
_TRANSACTIONAL = frozenset({TopologyKind.TRANSACTIONAL})
_PLAIN = frozenset({TopologyKind.PLAIN})


@attrs.frozen
class RunMetric:
    """A metric of a run: its name without a counter's ``_total``, and its labels besides ``topology``.

    ``kind`` is ``counter``, ``gauge`` or ``histogram``; ``of`` has the kinds of topologies that report it.
    """

    name: str
    kind: str
    words: str
    of: frozenset[TopologyKind]
    labels: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """The name in Prometheus."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


RUN_METRICS: Mapping[str, RunMetric] = {
    name: RunMetric(f"txtopo_{name}", kind, words, of, tuple(labels))
    for of, metrics in {
        _TRANSACTIONAL: (
            (
                "transactions",
                "gauge",
                "pending transactions (begun, not committed) by phase: ready, processing, processed, committing",
                "phase",
            ),
            ("committed_txid", "gauge", "the last committed transaction"),
            ("transactions_committed", "counter", "committed transactions"),
            ("dead_letters", "counter", "transactions given up and written to the dead letters"),
            ("attempts", "counter", "attempts whose processing phase began"),
            ("attempts_failed", "counter", "failed attempts, in either phase"),
            ("attempts_replayed", "counter", "attempts after the first one of their transaction"),
            ("tuples", "counter", "tuples of a spout in committed transactions", "component"),
            ("jobs", "counter", "jobs that began"),
            ("jobs_lost", "counter", "jobs that Spark lost"),
            (
                "executors_lost",
                "counter",
                "executors that Spark removed: lost ones, and idle ones of dynamic allocation",
            ),
            ("processing_seconds", "histogram", "duration of a successful processing phase, from the start of its job"),
            (
                "commit_seconds",
                "histogram",
                "duration of a committed transaction's commit group: commit phases and writes",
            ),
            ("end_to_end_seconds", "histogram", "from the begin of a transaction to its commit"),
            ("group_transactions", "histogram", "committed transactions of a commit group"),
            ("write_seconds", "histogram", "duration of a Delta write, or of another state's", "state"),
            (
                "component_count",
                "counter",
                "what a component counts in committed transactions, by name",
                "component",
                "name",
            ),
            (
                "component_gauge",
                "gauge",
                (
                    "what a component has measured in the last committed transaction that says it; times "
                    "are in seconds since 1970 UTC"
                ),
                "component",
                "name",
                "of",
            ),
            ("source_remaining_transactions", "gauge", "about how many transactions are left, if the spout knows"),
            ("source_lag_files", "gauge", "files that are not taken whole, if the spout reads files", "component"),
            ("source_lag_bytes", "gauge", "about how many bytes of those files are left", "component"),
        ),
        _PLAIN: (
            ("roots_emitted", "counter", "roots and untracked tuples that spouts emitted"),
            ("roots_acked", "counter", "roots that were acked"),
            ("roots_failed", "counter", "roots that failed"),
            ("roots_pending", "gauge", "roots that are neither"),
            ("complete_latency_seconds", "histogram", "from the emission of a root to its ack"),
            ("component_emitted", "counter", "tuples that a component emitted", "component", "stream"),
            ("component_executed", "counter", "tuples that a bolt executed, or messages for ackers", "component"),
            ("component_acked", "counter", "of a bolt tuples, of a spout roots", "component"),
            ("component_failed", "counter", "of a bolt tuples, of a spout roots", "component"),
            ("errors_reported", "counter", "errors that components reported"),
            ("workers", "gauge", "workers that there should be"),
            ("workers_running", "gauge", "workers that run"),
            ("worker_restarts", "counter", "workers that were started again"),
            ("worker_cpu_seconds", "counter", "processor time of workers"),
        ),
        _BOTH: (
            (
                "source_lag_records",
                "gauge",
                (
                    "records between what is taken (plain topologies: committed) and the end of the "
                    "source, if the spout knows"
                ),
                "component",
            ),
            ("run_seconds", "gauge", "time since the run began"),
        ),
    }.items()
    for name, kind, words, *labels in metrics
}
"""All metrics of runs, by name without the prefix ``txtopo_``."""


class _Histogram:
    """Counts values in buckets. One thread adds; any thread shows."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._total += value

    def show(self) -> _Buckets:
        # Without a lock: ``add`` counts first and sums last, so the sum read here may lack a value that a bucket has.
        total, counts, seen = self._total, self._counts.copy(), 0
        upto = []
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            seen += count
            upto.append((bound, seen))
        return _Buckets(tuple(upto), total)


@attrs.frozen
class _Buckets:
    """A histogram to show: the count of values up to each bound, infinity last, and their sum."""

    upto: tuple[tuple[float, int], ...]
    total: float


Samples = Mapping[tuple[str, ...], "float | _Buckets"]
"""Values by labels."""


class RunMetrics(Observer, Collector):
    """The metrics of one run, with ``topology`` as a label: its observer, and a collector for Prometheus.

    The run loop's thread calls the methods of an observer; any thread collects. ``now_secs`` returns the time.
    """

    def __init__(self, topology: str, now_secs: Callable[[], float] = time.monotonic) -> None:
        self.topology = topology
        self._now_secs = now_secs
        self._stage = "starting"
        self._progress: Progress | PlainReport | None = None
        self._progressed_at = 0.0
        self._executors_lost: Callable[[], int] = lambda: 0
        self._record = Record()
        self._jobs = self._jobs_lost = self._replayed = 0
        self._processing, self._commit, self._end_to_end = (_Histogram(_SECONDS) for _ in range(3))
        self._groups = _Histogram(_SIZES)
        self._writes: dict[str, _Histogram] = {}

    @classmethod
    def of(cls, topology: Topology, name: str | None = None) -> RunMetrics:
        """Return the metrics of a topology that will run."""
        return cls(name or topology.id)

    # The observer of a run.

    def entered(self, stage: str) -> None:
        """Record a step before the run begins."""
        self._stage = stage

    def began(self, record: Record, executors_lost: Callable[[], int]) -> None:
        """Record that the run loop begins."""
        self._record, self._executors_lost = record, executors_lost

    def recorded(self, fact: Fact) -> None:
        """Record a fact."""
        match fact.what:
            case HistoryEvent.PROCESSING:
                self._jobs += 1
                self._replayed += sum(epoch_and_try(attempt.attempt)[1] > 1 for attempt in fact.attempts)
            case HistoryEvent.PROCESSED:
                for txid in fact.txids:
                    self._processing.add(self._secs_since(fact, txid, HistoryEvent.PROCESSING))
            case HistoryEvent.DEAD_LETTER_WRITTEN:
                self._wrote(fact)
            case HistoryEvent.COMMITTED:
                self._wrote(fact)
                commit_secs = self._secs_since(fact, fact.txids[0], HistoryEvent.COMMITTING)
                self._groups.add(len(fact.txids))
                for txid in fact.txids:
                    self._commit.add(commit_secs)
                    self._end_to_end.add(self._secs_since(fact, txid, HistoryEvent.BEGUN, HistoryEvent.RECOVERED))
            case HistoryEvent.JOB_LOST:
                self._jobs_lost += 1

    def _secs_since(self, fact: Fact, txid: int, *whats: HistoryEvent) -> float:
        began_secs = self._record.last_secs(txid, *whats)
        return 0.0 if began_secs is None else fact.at_secs - began_secs

    def _wrote(self, fact: Fact) -> None:
        for state, write in () if fact.measures is None else fact.measures.writes.items():
            if state not in self._writes:
                self._writes[state] = _Histogram(_SECONDS)
            self._writes[state].add(write.secs)

    def progressed(self, progress: Progress | PlainReport) -> None:
        """Record the progress of the run."""
        self._progress, self._progressed_at = progress, self._now_secs()

    # What it shows.

    def health(self) -> tuple[bool, Mapping[str, str]]:
        """Return whether the run is well, and the content of ``/health``."""
        if self._progress is None:
            return True, {"status": "ok", "topology": self.topology, "stage": self._stage}
        silent_secs = self._now_secs() - self._progressed_at
        is_well = silent_secs < SILENT_SECS
        status = "ok" if is_well else f"no sign of life for {silent_secs:.0f} s"
        return is_well, {"status": status, "topology": self.topology, "stage": "running"}

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry())

    def registry(self) -> CollectorRegistry:
        """Return a registry of these metrics only."""
        # auto_describe would collect at once, before there is anything to describe.
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that the run has so far."""
        progress = self._progress
        match progress:
            case None:
                return
            case Progress():
                values = self._of_transactions(progress)
            case PlainReport():
                values = _of_roots(progress)
        for name, metric in RUN_METRICS.items():
            if name in values:
                yield _family(metric, self.topology, values[name])

    def _of_transactions(self, progress: Progress) -> Mapping[str, Samples]:
        phases = ("ready", "processing", "processed", "committing")
        values: dict[str, Samples] = {
            "transactions": {(phase,): getattr(progress, phase) for phase in phases},
            "processing_seconds": {(): self._processing.show()},
            "commit_seconds": {(): self._commit.show()},
            "end_to_end_seconds": {(): self._end_to_end.show()},
            "group_transactions": {(): self._groups.show()},
            "write_seconds": {(state,): histogram.show() for state, histogram in self._writes.copy().items()},
        }
        single: dict[str, float] = {
            "committed_txid": progress.committed_txid,
            "transactions_committed": progress.transactions,
            "dead_letters": progress.dead_letters,
            "attempts": progress.attempts,
            "attempts_failed": progress.failures,
            "attempts_replayed": self._replayed,
            "jobs": self._jobs,
            "jobs_lost": self._jobs_lost,
            "executors_lost": self._executors_lost(),
            "run_seconds": progress.elapsed_secs,
        }
        values["tuples"] = {(spout,): progress.emitted.get(spout, 0) for spout in progress.lags}
        counts = [reading for reading in progress.readings if reading.kind is ReadingKind.COUNT]
        values["component_count"] = {(count.component, count.name): count.value for count in counts}
        values["component_gauge"] = {
            (reading.component, reading.name, reading.of): reading.value
            for reading in progress.readings
            if reading.kind is not ReadingKind.COUNT
        }
        if progress.total is not None:
            single["source_remaining_transactions"] = max(0, progress.total - progress.committed_txid)
        for of in ("records", "files", "bytes"):
            lags = {(spout,): getattr(lag, of) for spout, lag in progress.lags.items()}
            values[f"source_lag_{of}"] = {spout: number for spout, number in lags.items() if number is not None}
        return values | {name: {(): value} for name, value in single.items()}


def _of_roots(report: PlainReport) -> Mapping[str, Samples]:
    components = report.components.items()
    latencies = report.latencies.doublings(*_LATENCY_POWERS)
    upto = (*latencies, (float("inf"), report.latencies.buckets.total()))
    values: dict[str, Samples] = {
        "complete_latency_seconds": {(): _Buckets(upto, report.latencies.total_secs)},
        "component_emitted": {
            (component, stream): emitted
            for component, counts in components
            for stream, emitted in counts.emitted.items()
        },
        "component_executed": {(component,): counts.executed for component, counts in components},
        "component_acked": {(component,): counts.acked for component, counts in components},
        "component_failed": {(component,): counts.failed for component, counts in components},
        "source_lag_records": {(spout,): records for spout, records in report.lag.items()},
    }
    single: dict[str, float] = {
        "roots_emitted": report.emitted,
        "roots_acked": report.acked,
        "roots_failed": report.failed,
        "roots_pending": report.pending,
        "errors_reported": report.reported_errors,
        "workers": report.workers,
        "workers_running": report.workers_running,
        "worker_restarts": report.restarts,
        "worker_cpu_seconds": report.worker_cpu_secs,
        "run_seconds": report.elapsed_secs,
    }
    return values | {name: {(): value} for name, value in single.items()}


def _family(metric: RunMetric, topology: str, samples: Samples) -> Metric:
    family: Any = _FAMILIES[metric.kind](
        metric.name, metric.words[0].upper() + metric.words[1:], labels=("topology", *metric.labels)
    )
    for labels, value in samples.items():
        if isinstance(value, _Buckets):
            buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in value.upto]
            family.add_metric((topology, *labels), buckets, value.total)
        else:
            family.add_metric((topology, *labels), value)
    assert isinstance(family, Metric)
    return family
