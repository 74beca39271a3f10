"""Java servers on this machine: what is missing is said in one line."""

from __future__ import annotations

import pytest

from txtopo.errors import ConfigError
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
