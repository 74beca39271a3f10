"""Metrics of a run: their values."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.progress import PROGRESS, Clock, values_of
from txtopo.assembly.plain.report import PlainReport
from txtopo.attempts import TransactionAttempt
from txtopo.engine.metrics import RUN_METRICS, RunMetrics
from txtopo.plain.tasks.metrics import Counts, LatencyHistogram
from txtopo.settings.setting import TopologyKind
from txtopo.transactional.core.measures import Measures, StateWrite
from txtopo.transactional.core.record.facts import Fact, of_attempts
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.core.record.record import Record


def latencies(*secs: float) -> LatencyHistogram:
    histogram = LatencyHistogram()
    histogram.add(secs)
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


def attempt(txid: int, number: int = 1) -> TransactionAttempt:
    return TransactionAttempt(txid, number)


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
    assert shown == {(metric.name, metric.kind) for metric in RUN_METRICS.values() if kind in metric.of}
    for line in metrics.text().decode().splitlines():
        assert line.startswith("#") or 'topology="words"' in line
    for metric in RUN_METRICS.values():
        assert metric.kind != "histogram" or metric.name.endswith(("_seconds", "_transactions"))
