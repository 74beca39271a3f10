"""Java servers on this machine: what is missing is said in one line."""

import socket

import pytest

from txtopo.errors import ConfigError
from txtopo.servers.server import free_port
from txtopo.testing import ZooKeeperServer


def test_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """No traceback of a subprocess: the error says what to install, and no process is left."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    server = ZooKeeperServer(tmp_path)
    with pytest.raises(ConfigError, match="but there is no Java: install Java"):
        server.start()
    with pytest.raises(ConfigError, match="but there is no Java: install Java"):
        server.run_java("jars/*", "Main")
    assert not server.is_running


def test_java_home_counts(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """As it does for Spark, whichever Java is on the path."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="no bin/java in JAVA_HOME"):
        ZooKeeperServer(tmp_path).start()


def test_a_port_is_nobody_elses() -> None:
    """Its server can listen there, again and again; in between nothing answers, and nobody else can have it."""
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
