"""Metrics of a run in Prometheus' format: what they are, how they are collected, and two ways out.

A :class:`RunMetrics` observes one run. It keeps counts and histograms of the run's facts, and the last progress: a few
float operations for each transaction, none for a tuple. It computes everything else when somebody asks.

:func:`serving` answers ``/metrics`` and ``/health`` over HTTP, for ``txtopo run --metrics``. A driver of a cluster has
no port: :func:`written` writes the same text to a file every few seconds, and its supervisor serves it.

No metric takes text from settings, metadata or error messages, so none can show a secret. From tuples it takes what a
component passes to ``context.gauge`` by itself: an ``EventClock`` the names of partitions.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import attrs
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from txtopo.assembly.parts import Observer
from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.report import Progress
from txtopo.attempts import epoch_and_try
from txtopo.config import TopologyKind
from txtopo.errors import ConfigError
from txtopo.files.durable import write_whole
from txtopo.network.acceptor import PAUSE_SECS
from txtopo.network.connections import Connection, ConnectionLimit
from txtopo.topology.topology import Topology
from txtopo.transactional.core.readings import ReadingKind
from txtopo.transactional.core.record.facts import Fact
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.core.record.record import Record

_LOG = logging.getLogger(__name__)

SILENT_SECS = 30.0
"""After so long without a progress report a run is not well; reports come several times a second."""

WRITE_SECS = 5.0
"""How often :func:`written` writes."""

_CONNECTIONS_MAX = 16  # each costs a thread

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
    metric.name.removeprefix("txtopo_"): metric
    for metric in (
        RunMetric(
            "txtopo_transactions",
            "gauge",
            "pending transactions (begun, not committed) by phase: ready, processing, processed, committing",
            _TRANSACTIONAL,
            ("phase",),
        ),
        RunMetric("txtopo_committed_txid", "gauge", "the last committed transaction", _TRANSACTIONAL),
        RunMetric("txtopo_transactions_committed", "counter", "committed transactions", _TRANSACTIONAL),
        RunMetric(
            "txtopo_dead_letters", "counter", "transactions given up and written to the dead letters", _TRANSACTIONAL
        ),
        RunMetric("txtopo_attempts", "counter", "attempts whose processing phase began", _TRANSACTIONAL),
        RunMetric("txtopo_attempts_failed", "counter", "failed attempts, in either phase", _TRANSACTIONAL),
        RunMetric(
            "txtopo_attempts_replayed", "counter", "attempts after the first one of their transaction", _TRANSACTIONAL
        ),
        RunMetric(
            "txtopo_tuples", "counter", "tuples of a spout in committed transactions", _TRANSACTIONAL, ("component",)
        ),
        RunMetric("txtopo_jobs", "counter", "jobs that began", _TRANSACTIONAL),
        RunMetric("txtopo_jobs_lost", "counter", "jobs that Spark lost", _TRANSACTIONAL),
        RunMetric(
            "txtopo_executors_lost",
            "counter",
            "executors that Spark removed: lost ones, and idle ones of dynamic allocation",
            _TRANSACTIONAL,
        ),
        RunMetric(
            "txtopo_processing_seconds",
            "histogram",
            "duration of a successful processing phase, from the start of its job",
            _TRANSACTIONAL,
        ),
        RunMetric(
            "txtopo_commit_seconds",
            "histogram",
            "duration of a committed transaction's commit group: commit phases and writes",
            _TRANSACTIONAL,
        ),
        RunMetric(
            "txtopo_end_to_end_seconds", "histogram", "from the begin of a transaction to its commit", _TRANSACTIONAL
        ),
        RunMetric("txtopo_group_transactions", "histogram", "committed transactions of a commit group", _TRANSACTIONAL),
        RunMetric(
            "txtopo_write_seconds",
            "histogram",
            "duration of a Delta write, or of another state's",
            _TRANSACTIONAL,
            ("state",),
        ),
        RunMetric(
            "txtopo_component_count",
            "counter",
            "what a component counts in committed transactions, by name",
            _TRANSACTIONAL,
            ("component", "name"),
        ),
        RunMetric(
            "txtopo_component_gauge",
            "gauge",
            "what a component has measured in the last committed transaction that says it; times are in seconds since "
            "1970 UTC",
            _TRANSACTIONAL,
            ("component", "name", "of"),
        ),
        RunMetric(
            "txtopo_source_remaining_transactions",
            "gauge",
            "about how many transactions are left, if the spout knows",
            _TRANSACTIONAL,
        ),
        RunMetric("txtopo_roots_emitted", "counter", "roots and untracked tuples that spouts emitted", _PLAIN),
        RunMetric("txtopo_roots_acked", "counter", "roots that were acked", _PLAIN),
        RunMetric("txtopo_roots_failed", "counter", "roots that failed", _PLAIN),
        RunMetric("txtopo_roots_pending", "gauge", "roots that are neither", _PLAIN),
        RunMetric("txtopo_complete_latency_seconds", "histogram", "from the emission of a root to its ack", _PLAIN),
        RunMetric(
            "txtopo_component_emitted", "counter", "tuples that a component emitted", _PLAIN, ("component", "stream")
        ),
        RunMetric(
            "txtopo_component_executed",
            "counter",
            "tuples that a bolt executed, or messages for ackers",
            _PLAIN,
            ("component",),
        ),
        RunMetric("txtopo_component_acked", "counter", "of a bolt tuples, of a spout roots", _PLAIN, ("component",)),
        RunMetric("txtopo_component_failed", "counter", "of a bolt tuples, of a spout roots", _PLAIN, ("component",)),
        RunMetric("txtopo_errors_reported", "counter", "errors that components reported", _PLAIN),
        RunMetric("txtopo_workers", "gauge", "workers that there should be", _PLAIN),
        RunMetric("txtopo_workers_running", "gauge", "workers that run", _PLAIN),
        RunMetric("txtopo_worker_restarts", "counter", "workers that were started again", _PLAIN),
        RunMetric("txtopo_worker_cpu_seconds", "counter", "processor time of workers", _PLAIN),
        RunMetric(
            "txtopo_source_lag_records",
            "gauge",
            "records between what is taken (plain topologies: committed) and the end of the source, if the spout knows",
            _BOTH,
            ("component",),
        ),
        RunMetric(
            "txtopo_source_lag_files",
            "gauge",
            "files that are not taken whole, if the spout reads files",
            _TRANSACTIONAL,
            ("component",),
        ),
        RunMetric(
            "txtopo_source_lag_bytes",
            "gauge",
            "about how many bytes of those files are left",
            _TRANSACTIONAL,
            ("component",),
        ),
        RunMetric("txtopo_run_seconds", "gauge", "time since the run began", _BOTH),
    )
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
    """The metrics of one run: its observer, and a collector for Prometheus.

    The run loop's thread calls the methods of an observer; any thread collects.

    Args:
        topology: the value of the label ``topology``.
        now_secs: returns the time in seconds.
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
        """Note a step before the run begins."""
        self._stage = stage

    def began(self, record: Record, executors_lost: Callable[[], int]) -> None:
        """Note that the run loop begins."""
        self._record, self._executors_lost = record, executors_lost

    def recorded(self, fact: Fact) -> None:
        """Note a fact."""
        match fact.what:
            case HistoryEvent.PROCESSING:
                self._jobs += 1
                self._replayed += sum(epoch_and_try(each.attempt)[1] > 1 for each in fact.attempts)
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
        """Note the progress of the run."""
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
        counts = [each for each in progress.readings if each.kind is ReadingKind.COUNT]
        values["component_count"] = {(each.component, each.name): each.value for each in counts}
        values["component_gauge"] = {
            (each.component, each.name, each.of): each.value
            for each in progress.readings
            if each.kind is not ReadingKind.COUNT
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


# The ways out.


@contextlib.contextmanager
def written(metrics: RunMetrics, path: Path, every_secs: float = WRITE_SECS) -> Iterator[None]:
    """Write the metrics to a file every few seconds and at the end; a reader sees a whole file or none."""
    ended = threading.Event()

    def write() -> None:
        try:
            write_whole(path, metrics.text())
        except OSError as error:  # a full disk must not end the run
            _LOG.warning("the metrics cannot be written to %s: %s", path, error)

    def run() -> None:
        while not ended.wait(every_secs):
            write()

    thread = threading.Thread(target=run, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(every_secs)  # it writes the same draft
        write()


class _SilentHandler(WSGIRequestHandler):
    """Logs no request."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


class _Server(ThreadingWSGIServer):
    """Bounds its connections: each costs a file descriptor and a thread of the run's process."""

    def __init__(self, *arguments: Any) -> None:
        self._limit = ConnectionLimit(_CONNECTIONS_MAX)
        self._places: dict[socket.socket, Connection] = {}
        super().__init__(*arguments)

    def get_request(self) -> Any:
        """Accept a connection; if that fails, for example without a descriptor, only after a pause: else it spins."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(PAUSE_SECS)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is a place for a connection."""

        def close() -> None:
            with contextlib.suppress(OSError):  # its own thread was faster
                request.shutdown(socket.SHUT_RDWR)

        place = self._limit.enter(client_address[0], close)
        if place is not None:
            self._places[request] = place
        return place is not None

    def shutdown_request(self, request: Any) -> None:
        place = self._places.pop(request, None)
        if place is not None:
            self._limit.leave(place)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a peer that goes away during its answer is not a fault of the run."""

    def service_actions(self) -> None:
        """Close the connections whose time is over; called twice a second."""
        super().service_actions()
        self._limit.sweep()


class _ServerOfIPv6(_Server):
    address_family = socket.AF_INET6


WRITTEN_SECS = 60.0
"""The greatest age of written metrics: older ones are of a process that is dead or stuck."""

_WRITTEN_BYTES_MAX = 4 << 20
"""Written metrics have some KiB; a larger file was not written by a run."""


class WrittenMetrics(Collector):
    """Merges files that runs have written: each metric once, its values with a label that tells the files apart.

    ``files`` returns the files by the label's value; a missing, old or damaged one is left out.
    """

    def __init__(self, label: str, files: Callable[[], Mapping[Any, Path]]) -> None:
        self._label = label
        self._files = files

    def describe(self) -> list[Metric]:
        """Yield nothing: the metrics change with the runs."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all files."""
        found: dict[str, Metric] = {}
        for value, path in self._files().items():
            for metric in _metrics_in(path):
                one = found.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                if one.type == metric.type:  # runs of two versions may disagree; Prometheus takes one type a name
                    for each in metric.samples:
                        one.samples.append(each._replace(labels={**each.labels, self._label: str(value)}))
        yield from found.values()


def _metrics_in(path: Path) -> list[Metric]:
    """Return the metrics in a file; none if it is missing, old, too large or damaged."""
    with contextlib.suppress(OSError, ValueError):
        stat = path.stat()
        if stat.st_size <= _WRITTEN_BYTES_MAX and time.time() - stat.st_mtime <= WRITTEN_SECS:
            return list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    return []


@contextlib.contextmanager
def serving(metrics: RunMetrics, host: str, port: int) -> Iterator[str]:
    """Serve ``/metrics`` and ``/health`` over HTTP; port 0 is a free one.

    Yields:
        The URL of the metrics.

    Raises:
        ConfigError: the address cannot be used.
    """
    show = make_wsgi_app(metrics.registry())

    def app(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                answer: Iterable[bytes] = show(environ, start_response)
                return answer
            case "/health":
                is_well, content = metrics.health()
                status = "200 OK" if is_well else "503 Service Unavailable"
            case _:
                status, content = "404 Not Found", {"error": "there are /metrics and /health"}
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(content).encode()]

    kind: type[WSGIServer] = _ServerOfIPv6 if ":" in host else _Server
    try:
        server = make_server(host, port, app, kind, _SilentHandler)
    except OSError as error:
        raise ConfigError(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
