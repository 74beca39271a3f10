"""Spans of the phases of transactions, for a collector of OpenTelemetry.

Each attempt at a transaction is a trace: from its begin to its end, with a span for each phase. Each commit group is
another one, with a span for each state that is prepared and published; the commit phases of its transactions link to
it, because they share it.

They are made of the record's facts when an attempt has ended, as the timeline's records are, by a separate thread.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from txtopo.assembly.parts import Observer
from txtopo.attempts import TransactionAttempt, epoch_and_try
from txtopo.engine.timeline.attempts import EndedAttempts, entries_of
from txtopo.engine.timeline.records import FAILED, GIVEN_UP, RETURNED, VISIBLE, WRITE, Entry
from txtopo.errors import ConfigError
from txtopo.text.extras import version
from txtopo.text.secrecy import without_secrets
from txtopo.transactional.core.record.facts import Fact
from txtopo.transactional.core.record.record import Record

EXPORTER = "OTEL_TRACES_EXPORTER"
"""OpenTelemetry's variable of the environment with the name of the exporter."""

WAITING_MAX = 20_000
"""How many attempts wait for the collector; of more, the oldest are dropped."""

AT_ONCE = 256
"""How many attempts become spans before these are sent: the SDK's queue takes 2,048 spans, and drops more."""

_FLUSH_SECS = 1.0
"""How often what has ended becomes spans."""
_SEND_SECS, _CLOSE_SECS = 10.0, 10.0
"""How long a collector is waited for, and at the end of a run once more: as long as the SDK waits by itself."""
_OUTCOMES = {VISIBLE: "committed", GIVEN_UP: "given up", FAILED: "failed", RETURNED: "rolled back"}

logger = logging.getLogger("txtopo")


def provider_of(topology_id: str) -> TracerProvider:
    """Return the process's provider of tracers, or one by OpenTelemetry's variables; ConfigError without exporter."""
    tracer_provider = trace.get_tracer_provider()
    if isinstance(tracer_provider, TracerProvider):
        return tracer_provider
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": topology_id}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in os.environ.get(EXPORTER, "otlp").split(","):
        if name.strip() != "none":
            provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
    return provider


def _exporter(name: str) -> Any:
    entry_point = {"otlp": "otlp_proto_http"}.get(name, name)
    entry_points = list(importlib.metadata.entry_points(group="opentelemetry_traces_exporter", name=entry_point))
    if not entry_points:
        raise ConfigError(
            f"topology.tracing: no exporter {name!r} is installed; install opentelemetry-exporter-otlp-proto-http, or "
            f"set {EXPORTER}"
        )
    return entry_points[0].load()()


class Tracing(Observer):
    """Observes a run, and makes spans of its attempts and groups; None sends them by :func:`provider_of`.

    No span has a secret of ``settings``, those that were given.
    """

    def __init__(
        self, topology_id: str, settings: Mapping[str, object], provider: TracerProvider | None = None
    ) -> None:
        self._topology_id = topology_id
        self._settings = settings
        self._is_own = provider is None
        self._provider = provider or provider_of(topology_id)
        self._tracer = self._provider.get_tracer("txtopo", version())
        self._ended = EndedAttempts(WAITING_MAX)
        self._stop = threading.Event()
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="txtopo-tracing", daemon=True)

    # The observer of a run, called in the run loop's thread.

    def began(self, record: Record, executors_lost: Callable[[], int]) -> None:
        """Record that the run loop begins."""
        del executors_lost
        self._ended.record = record

    def recorded(self, fact: Fact) -> None:
        """Keep what has ended."""
        self._ended.add(fact)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send what waits; wait some seconds at most for a collector that hangs."""
        self._stop.set()
        self._thread.join(_CLOSE_SECS)

    # The thread that makes spans.

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._stop.wait(_FLUSH_SECS)
            try:
                while ended := self._ended.drained(AT_ONCE):
                    self._trace(entries_of(ended))
                    if not self._provider.force_flush(int(_SEND_SECS * 1000)):
                        self._warn("it does not take them in time")
            except Exception as error:  # noqa: BLE001 - whatever an exporter raises, the run goes on
                self._warn(f"{type(error).__name__}: {error}")
            if self._ended.dropped:
                self._warn(f"it is too slow, {self._ended.dropped} attempts are left out so far")
        if self._is_own:
            with contextlib.suppress(Exception):
                self._provider.shutdown()

    def _warn(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("tracing: the collector lacks spans (%s); the run goes on", without_secrets(why))

    def _trace(self, entries: Iterator[Entry]) -> None:
        group: Any = None
        number = ends = 0
        for entry in entries:
            if entry.kind == WRITE:
                self._write(entry, group)
                continue
            if group is not None and entry.group != number:
                group.end(ends)
                group = None
            grouped, ended = entry.times[5], entry.times[7]
            if group is None and entry.outcome in {VISIBLE, GIVEN_UP} and grouped:
                number, ends = entry.group, ended * 1000
                group = self._tracer.start_span(
                    "commit group", start_time=grouped * 1000, attributes=self._own({"txtopo.group": number})
                )
            if entry.attempt is not None:
                self._attempt(entry, entry.attempt, group)
        if group is not None:
            group.end(ends)

    def _attempt(self, entry: Entry, attempt: TransactionAttempt, group: Any) -> None:
        _, begun_us, saved, started, processed, grouped, _, ended = entry.times
        epoch, tries = epoch_and_try(attempt.attempt)
        attributes = {
            "txtopo.txid": attempt.txid,
            "txtopo.attempt": tries,
            "txtopo.epoch": epoch,
            "txtopo.outcome": _OUTCOMES.get(entry.outcome, "open"),
            "txtopo.tuples": entry.number,
        }
        first = (started if tries > 1 else begun_us) or started or ended
        span = self._tracer.start_span("transaction", start_time=first * 1000, attributes=self._own(attributes))
        if entry.outcome in {FAILED, GIVEN_UP}:
            if entry.name:
                span.set_attribute("txtopo.component", entry.name)
            span.set_status(trace.Status(trace.StatusCode.ERROR, without_secrets(entry.text, self._settings)))
        within = trace.set_span_in_context(span)
        if tries == 1 and begun_us and saved > begun_us:
            self._phase("metadata", begun_us, saved, within)
        if started:
            self._phase("processing", started, processed or ended, within, job=entry.job)
        if grouped:
            links = [] if group is None else [trace.Link(group.get_span_context())]
            self._phase("commit", grouped, ended, within, links, group=entry.group)
        span.end(ended * 1000)

    def _write(self, entry: Entry, group: Any) -> None:
        within = None if group is None else trace.set_span_in_context(group)
        prepared, until, published, ended = entry.times[:4]
        self._phase(f"prepare {entry.name}", prepared, until, within, rows=entry.number)
        self._phase(f"publish {entry.name}", published, ended, within, rows=entry.number)

    def _phase(self, name: str, begin_us: int, end_us: int, within: Any, links: Any = (), **values: int) -> None:
        attributes = {f"txtopo.{key}": value for key, value in values.items()}
        span = self._tracer.start_span(name, within, start_time=begin_us * 1000, attributes=attributes, links=links)
        span.end(end_us * 1000)

    def _own(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"txtopo.topology": self._topology_id, **attributes}
