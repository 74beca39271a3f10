"""Spans of transactions: what a collector of OpenTelemetry gets of a run."""

import logging

import attrs
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests.engine.lineage.test_observer import Refusing, topology
from txtopo import Config
from txtopo.engine.runner import run_with
from txtopo.engine.tracing import Tracing, provider_of
from txtopo.errors import ConfigError, UserCodeError
from txtopo.journal.entries import DEAD_LETTERS
from txtopo.testing import run_inline
from txtopo.testing.inline import inline_environment

CONFIG = Config(max_spout_pending=6, group_transactions_max=2)
SKIP = {"topology.transaction.max.attempts": 2, "topology.transaction.max.attempts.policy": "SKIP"}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def spans_of(bolt=None, config=CONFIG, exporter=None):
    """Run the topology; return its spans."""
    exporter = exporter or InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with Tracing("shop", config.given, provider) as tracing:
        run_with(topology(bolt), config, attrs.evolve(inline_environment(), observer=tracing))
    return exporter.get_finished_spans()


def named(spans, name):
    return [span for span in spans if span.name == name]


def children(spans, parent):
    return {span.name: span for span in spans if span.parent and span.parent.span_id == parent.context.span_id}


def test_each_transaction_is_a_trace_of_its_phases_and_each_group_one_of_its_writes():
    """Phases lie within their transaction, and the commit of each links to its group, which has a span a state."""
    spans = spans_of()
    transactions = {each.attributes["txtopo.txid"]: each for each in named(spans, "transaction")}
    assert sorted(transactions) == list(range(1, 8))
    groups = {each.context.span_id: each for each in named(spans, "commit group")}
    for transaction in transactions.values():
        assert transaction.attributes["txtopo.outcome"] == "committed"
        assert transaction.attributes["txtopo.topology"] == "shop"
        phases = children(spans, transaction)
        assert {"processing", "commit"} <= {*phases} <= {"metadata", "processing", "commit"}
        assert all(
            transaction.start_time <= phase.start_time <= phase.end_time <= transaction.end_time
            for phase in phases.values()
        )
        (link,) = phases["commit"].links
        assert link.context.span_id in groups
    for group in groups.values():
        assert {*children(spans, group)} == {
            f"{step} {state}" for step in ("prepare", "publish") for state in ("log", "totals")
        }


def test_each_attempt_is_a_trace_of_its_own():
    """One that fails has an error with its reason, and one that is given up leads to a dead letter."""
    spans = spans_of(Refusing(4), CONFIG.with_settings(SKIP))
    second = [each for each in named(spans, "transaction") if each.attributes["txtopo.txid"] == 2]
    outcomes = [(each.attributes["txtopo.outcome"], each.status.status_code) for each in second]
    assert outcomes == [("failed", StatusCode.ERROR)] * 2 + [("given up", StatusCode.ERROR)]
    assert "again and again" in second[0].status.description
    assert second[0].attributes["txtopo.component"] == "check"
    assert len({each.context.trace_id for each in second}) == 3
    assert any(f"publish {DEAD_LETTERS}" in children(spans, each) for each in named(spans, "commit group"))


def test_a_reason_has_no_secrets():
    """A collector gets what a bolt raised without the settings' secrets and those of known forms."""
    error, exporter = "hunter2 at postgresql://me:swordfish@host/shop", InMemorySpanExporter()
    with pytest.raises(UserCodeError):
        spans_of(Refusing(19, error), CONFIG.with_settings({"my.password": "hunter2"}), exporter)
    (failed,) = [span for span in exporter.get_finished_spans() if span.status.status_code is StatusCode.ERROR]
    assert "… at postgresql://…@host/shop" in failed.status.description


class Broken(SpanExporter):
    """An exporter that always raises."""

    def export(self, spans):
        raise ConnectionError("nobody listens")

    def get_finished_spans(self):
        return ()


def test_a_collector_that_fails_harms_no_run(caplog):
    """The run ends as without it."""
    with caplog.at_level(logging.WARNING):
        spans_of(exporter=Broken())
    assert len([record for record in caplog.records if record.message.startswith("tracing: ")]) <= 1


def test_the_exporter_is_that_of_the_environment(monkeypatch):
    """OpenTelemetry's variables say where spans go; one that is not there is refused at once."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert provider_of("shop").resource.attributes["service.name"] == "shop"
    assert run_inline(topology(), Config(tracing=True), until=2).committed_txid == 2
    monkeypatch.setenv("OTEL_SERVICE_NAME", "sales")
    assert provider_of("shop").resource.attributes["service.name"] == "sales"
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    with pytest.raises(ConfigError, match="no exporter 'pigeon' is installed"):
        run_inline(topology(), Config(tracing=True))
