"""The ways out of a run's metrics."""

import resource
import socket
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer

import attrs
import httpx
import pytest

from tests.engine.progress import PROGRESS, Clock, values_of
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.engine.exposition import metrics_file, serving
from txtopo.engine.metrics import SILENT_SECS, RunMetrics
from txtopo.errors import ConfigError
from txtopo.network.connections import REQUEST_SECS


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
    with metrics_file(metrics, path, every_secs=0.01):
        wait_for("the file", path.exists)
        path.unlink()
        wait_for("the file", path.exists)
        assert values_of(path.read_text())["txtopo_committed_txid"] == 12
    metrics.progressed(attrs.evolve(PROGRESS, committed_txid=13))
    with metrics_file(metrics, path, every_secs=60.0):
        pass
    assert values_of(path.read_text())["txtopo_committed_txid"] == 13
    assert list(tmp_path.iterdir()) == [path]


def test_file_that_cannot_be_written(metrics: RunMetrics, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run goes on; the log says so."""
    with metrics_file(metrics, tmp_path / "gone" / "metrics.prom", every_secs=60.0):
        pass
    assert "the metrics cannot be written" in caplog.text
