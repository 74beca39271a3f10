"""Metrics of a run: their text, and the ways out."""

from __future__ import annotations

import resource
import socket
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer

import attrs
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.api.components.spout import Lag
from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.report import Progress
from txtopo.attempts import TransactionAttempt
from txtopo.config import TopologyKind
from txtopo.engine.metrics import RUN_METRICS, SILENT_SECS, RunMetrics, serving, written
from txtopo.errors import ConfigError
from txtopo.network.connections import REQUEST_SECS
from txtopo.plain.tasks.metrics import Counts, LatencyHistogram
from txtopo.transactional.core.measures import Measures, StateWrite
from txtopo.transactional.core.record.facts import Fact, of_attempts
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.core.record.record import Record

PROGRESS = Progress(
    topology_id="words",
    committed_txid=12,
    processing=3,
    processed=2,
    committing=1,
    ready=4,
    first_uncommitted_status="committing",
    transactions=10,
    dead_letters=1,
    tuples=640,
    failures=5,
    elapsed_secs=9.5,
    last_failure="the password is hunter2",
    total=40,
    attempts=21,
    lags={"numbers": Lag(77, 3, 4096)},
    emitted={"numbers": 640, "bolt": 7},
)


def latencies(*secs: float) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for each in secs:
        histogram.add(each)
    return histogram


REPORT = PlainReport(
    topology_id="words",
    reason="",
    elapsed_secs=3.0,
    emitted=9,
    acked=4,
    failed=2,
    pending=3,
    latency_p50_secs=0.01,
    latency_p99_secs=0.5,
    components={
        "spout": Counts({"default": 9, "late": 1}, 10, 0, 4, 2),
        "split": Counts({"default": 30}, 30, 9, 8, 1),
        "__acker": Counts(executed=40),
    },
    workers=2,
    workers_running=1,
    restarts=1,
    worker_cpu_secs=4.25,
    reported_errors=6,
    last_error="the password is hunter2",
    latencies=latencies(0.010, 0.020, 0.5, 100.0),
    lag={"spout": 123},
)


@attrs.define
class Clock:
    """A clock that a test sets."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def values_of(text: bytes | str) -> dict[str, float]:
    """Return the samples of a page by name and labels, without the topology's."""
    content = text if isinstance(text, str) else text.decode()
    found = {}
    for family in text_string_to_metric_families(content):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "topology"}
            shown = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            found[f"{sample.name}{{{shown}}}" if shown else sample.name] = sample.value
    return found


def attempt(txid: int, number: int = 1) -> TransactionAttempt:
    return TransactionAttempt(txid, number)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> RunMetrics:
    return RunMetrics("words", clock)


def test_transactions_are_followed_from_begin_to_commit(metrics: RunMetrics, clock: Clock) -> None:
    """Each phase, the whole way and the groups are measured, each transaction once, with its last attempt."""
    record = Record()
    metrics.began(record, lambda: 0)

    def note(fact: Fact) -> None:
        record.add(fact)
        metrics.recorded(fact)

    def happen(what: HistoryEvent, *attempts: TransactionAttempt) -> None:
        note(of_attempts(clock.now, what, attempts))

    note(Fact(clock.now, HistoryEvent.BEGUN, (1, 2, 3), planned_ms=(0, 0, 0)))
    clock.now += 0.01
    happen(HistoryEvent.PROCESSING, attempt(1), attempt(2), attempt(3))
    clock.now += 0.2
    happen(HistoryEvent.PROCESSED, attempt(1))
    happen(HistoryEvent.PROCESSED, attempt(2))
    note(Fact(clock.now, HistoryEvent.JOB_LOST, (), job_id=1))
    happen(HistoryEvent.PROCESSING, attempt(3, 2))
    happen(HistoryEvent.COMMITTING, attempt(1), attempt(2))
    clock.now += 0.04
    measures = Measures({"counts": StateWrite((0.0, 0.01), (0.02, 0.05), 1, 0)})
    note(of_attempts(clock.now, HistoryEvent.COMMITTED, (attempt(1), attempt(2)), measures=measures))
    clock.now += 0.96
    happen(HistoryEvent.PROCESSED, attempt(3, 2))
    happen(HistoryEvent.COMMITTING, attempt(3, 2))
    clock.now += 2.0
    happen(HistoryEvent.COMMITTED, attempt(3, 2))
    metrics.progressed(PROGRESS)
    found = values_of(metrics.text())
    assert found["txtopo_processing_seconds_count"] == 3
    assert found["txtopo_processing_seconds_sum"] == pytest.approx(0.2 + 0.2 + 1.0)
    assert found["txtopo_processing_seconds_bucket{le=0.25}"] == 2
    assert found["txtopo_commit_seconds_count"] == 3
    assert found["txtopo_commit_seconds_sum"] == pytest.approx(0.04 + 0.04 + 2.0)
    assert found["txtopo_end_to_end_seconds_sum"] == pytest.approx(0.25 + 0.25 + 3.21)
    assert found["txtopo_end_to_end_seconds_bucket{le=+Inf}"] == 3
    assert found["txtopo_group_transactions_bucket{le=1.0}"] == 1
    assert found["txtopo_group_transactions_bucket{le=2.0}"] == 2
    assert found["txtopo_write_seconds_sum{state=counts}"] == pytest.approx(0.03)
    assert (found["txtopo_jobs_total"], found["txtopo_jobs_lost_total"]) == (2, 1)
    assert found["txtopo_attempts_replayed_total"] == 1


def test_progress_of_a_transactional_run(metrics: RunMetrics) -> None:
    """The figures of the last progress, with the phases as labels."""
    metrics.began(Record(), lambda: 2)
    metrics.progressed(PROGRESS)
    found = values_of(metrics.text())
    phases = {phase: found[f"txtopo_transactions{{phase={phase}}}"] for phase in ("ready", "processing", "processed")}
    assert phases == {"ready": 4, "processing": 3, "processed": 2}
    expected = {
        "txtopo_committed_txid": 12,
        "txtopo_transactions_committed_total": 10,
        "txtopo_dead_letters_total": 1,
        "txtopo_attempts_total": 21,
        "txtopo_attempts_failed_total": 5,
        "txtopo_tuples_total{component=numbers}": 640,
        "txtopo_executors_lost_total": 2,
        "txtopo_source_remaining_transactions": 28,
        "txtopo_source_lag_records{component=numbers}": 77,
        "txtopo_source_lag_files{component=numbers}": 3,
        "txtopo_source_lag_bytes{component=numbers}": 4096,
        "txtopo_run_seconds": 9.5,
    }
    assert {name: found[name] for name in expected} == expected


def test_report_of_a_plain_run(metrics: RunMetrics) -> None:
    """Roots, components, workers, and complete latencies in buckets."""
    metrics.progressed(REPORT)
    found = values_of(metrics.text())
    expected = {
        "txtopo_roots_emitted_total": 9,
        "txtopo_roots_acked_total": 4,
        "txtopo_roots_failed_total": 2,
        "txtopo_roots_pending": 3,
        "txtopo_component_emitted_total{component=spout,stream=late}": 1,
        "txtopo_component_executed_total{component=split}": 9,
        "txtopo_component_acked_total{component=split}": 8,
        "txtopo_component_failed_total{component=split}": 1,
        "txtopo_errors_reported_total": 6,
        "txtopo_workers": 2,
        "txtopo_workers_running": 1,
        "txtopo_worker_restarts_total": 1,
        "txtopo_worker_cpu_seconds_total": 4.25,
        "txtopo_source_lag_records{component=spout}": 123,
        "txtopo_complete_latency_seconds_bucket{le=0.008192}": 0,
        "txtopo_complete_latency_seconds_bucket{le=0.016384}": 1,
        "txtopo_complete_latency_seconds_bucket{le=0.032768}": 2,
        "txtopo_complete_latency_seconds_bucket{le=67.108864}": 3,
        "txtopo_complete_latency_seconds_bucket{le=+Inf}": 4,
        "txtopo_complete_latency_seconds_count": 4,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["txtopo_complete_latency_seconds_sum"] == pytest.approx(100.53, rel=0.022)


@pytest.mark.parametrize(("kind", "progress"), [(TopologyKind.TRANSACTIONAL, PROGRESS), (TopologyKind.PLAIN, REPORT)])
def test_every_metric_is_in_the_table(metrics: RunMetrics, kind: TopologyKind, progress: Any) -> None:
    """A run has the metrics that the table has for its kind, with their types, and with Prometheus' endings."""
    measures = Measures({"counts": StateWrite((0.0, 0.0), (0.0, 0.1), 1, 0)})
    metrics.recorded(of_attempts(0.1, HistoryEvent.DEAD_LETTER_WRITTEN, (attempt(1),), measures=measures))
    metrics.progressed(progress)
    shown = {(family.name, family.type) for family in text_string_to_metric_families(metrics.text().decode())}
    assert shown == {(each.name, each.kind) for each in RUN_METRICS.values() if kind in each.of}
    for line in metrics.text().decode().splitlines():
        assert line.startswith("#") or 'topology="words"' in line
    for metric in RUN_METRICS.values():
        assert metric.kind != "histogram" or metric.name.endswith(("_seconds", "_transactions"))


def test_pages(metrics: RunMetrics, clock: Clock) -> None:
    """``/metrics`` and ``/health`` over HTTP; a run without a sign of life is not well."""
    metrics.progressed(PROGRESS)
    with serving(metrics, "127.0.0.1", 0) as url, httpx.Client(trust_env=False, timeout=DEADLINE_SECS) as client:
        answer = client.get(url)
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert values_of(answer.text)["txtopo_committed_txid"] == 12
        health = url.replace("/metrics", "/health")
        answer = client.get(health)
        assert (answer.status_code, answer.json()["status"], answer.json()["stage"]) == (200, "ok", "running")
        clock.now += SILENT_SECS + 1
        answer = client.get(health)
        assert (answer.status_code, answer.json()["status"]) == (503, "no sign of life for 31 s")
        assert client.get(url + "/other").status_code == 404
        assert client.post(url).status_code == 405
        port = httpx.URL(url).port
        with (
            pytest.raises(ConfigError, match=f"cannot serve metrics on 127.0.0.1:{port}"),
            serving(metrics, "127.0.0.1", port),
        ):
            pass
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False, timeout=DEADLINE_SECS)


def test_no_descriptor_is_left(metrics: RunMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not spin meanwhile, and answers who has waited."""
    accept, tries = WSGIServer.get_request, []

    def noted(self: WSGIServer) -> Any:
        tries.append(None)
        return accept(self)

    monkeypatch.setattr(WSGIServer, "get_request", noted)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(metrics, "127.0.0.1", 0) as url, socket.socket() as waiting:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            waiting.connect(("127.0.0.1", httpx.URL(url).port))
            wait_for("three tries to accept", lambda: len(tries) >= 3)
            assert len(tries) < 50
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        waiting.settimeout(DEADLINE_SECS)
        waiting.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert waiting.recv(15).endswith(b"200 OK")


@pytest.mark.long
def test_silent_connection(metrics: RunMetrics) -> None:
    """It is closed after some seconds."""
    with serving(metrics, "127.0.0.1", 0) as url:
        port = httpx.URL(url).port
        assert port is not None
        with socket.create_connection(("127.0.0.1", port), 3 * REQUEST_SECS) as connection:
            connection.sendall(b"GET /metr")
            assert connection.recv(1) == b""


def test_file(metrics: RunMetrics, tmp_path: Path) -> None:
    """It is written again and again while the run goes on, and once more at the end."""
    path = tmp_path / "metrics.prom"
    metrics.progressed(PROGRESS)
    with written(metrics, path, every_secs=0.01):
        wait_for("the file", path.exists)
        path.unlink()
        wait_for("the file", path.exists)
        assert values_of(path.read_text())["txtopo_committed_txid"] == 12
    metrics.progressed(attrs.evolve(PROGRESS, committed_txid=13))
    with written(metrics, path, every_secs=60.0):
        pass
    assert values_of(path.read_text())["txtopo_committed_txid"] == 13
    assert list(tmp_path.iterdir()) == [path]


def test_file_that_cannot_be_written(metrics: RunMetrics, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run goes on; the log says so."""
    with written(metrics, tmp_path / "gone" / "metrics.prom", every_secs=60.0):
        pass
    assert "the metrics cannot be written" in caplog.text
