"""The ways of a run's metrics to Prometheus: its text format over HTTP, and by files that somebody else serves.

:func:`serving` answers ``/metrics`` and ``/health`` over HTTP, for ``txtopo run --metrics``. A driver of a cluster has
no port: :func:`written` writes the same text to a file every few seconds, and its supervisor serves it, merged with
those of its other drivers by :class:`WrittenMetrics`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from txtopo.engine.metrics import RunMetrics
from txtopo.errors import ConfigError
from txtopo.files.durable import write_whole
from txtopo.network.acceptor import PAUSE_SECS
from txtopo.network.connections import Connection, ConnectionLimit

_LOG = logging.getLogger(__name__)

WRITE_SECS = 5.0
"""How often :func:`written` writes."""

_CONNECTIONS_MAX = 16  # each costs a thread


@contextlib.contextmanager
def metrics_file(metrics: RunMetrics, path: Path, every_secs: float = WRITE_SECS) -> Iterator[None]:
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
        by_name: dict[str, Metric] = {}
        for value, path in self._files().items():
            for metric in _metrics_in(path):
                merged = by_name.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                if merged.type == metric.type:  # runs of two versions may disagree; Prometheus takes one type a name
                    for sample in metric.samples:
                        merged.samples.append(sample._replace(labels={**sample.labels, self._label: str(value)}))
        yield from by_name.values()


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
