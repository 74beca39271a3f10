"""The settings of daemons, and the token."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from txtopo.cluster.settings import CLUSTER_SETTINGS, ClusterConfig, cluster_token
from txtopo.errors import ConfigError

FILE = """
"nimbus.seeds" = ["10.0.0.1:6627", "10.0.0.2:6627"]
supervisor.slots = 2
nimbus.submissions.max = 4

[storm.zookeeper]
servers = "10.0.0.1:2181,10.0.0.2:2181"
session.timeout.secs = 5
"""


def test_file_and_texts(tmp_path: Path) -> None:
    """A TOML file is read, and texts from the command line go above it."""
    (tmp_path / "cluster.toml").write_text(FILE)
    config = ClusterConfig.read(tmp_path / "cluster.toml", {"supervisor.slots": "7"})
    assert config["nimbus.seeds"] == ("10.0.0.1:6627", "10.0.0.2:6627")
    assert config.zookeeper_hosts == "10.0.0.1:2181,10.0.0.2:2181"
    assert config["storm.zookeeper.session.timeout.secs"] == 5.0
    assert config["supervisor.slots"] == 7
    assert config["nimbus.port"] == 6627
    assert config["nimbus.submissions.max"] == 4
    assert set(config) == set(CLUSTER_SETTINGS)


@pytest.mark.parametrize("content", ["nimbus = ", "\x00", None])
def test_file_that_cannot_be_read(tmp_path: Path, content: str | None) -> None:
    """The error names it."""
    if content is not None:
        (tmp_path / "cluster.toml").write_text(content)
    with pytest.raises(ConfigError, match=r"cluster\.toml cannot be read"):
        ClusterConfig.read(tmp_path / "cluster.toml")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nimbus.port", 0),
        ("nimbus.task.timeout.secs", "0"),
        ("topology.max.replication.wait.time.sec", -2),
        ("topology.max.replication.wait.time.sec", "nan"),
        ("topology.min.replication.count", 0),
        ("nimbus.seeds", []),
        ("nimbus.address", "nimbus-1"),
        ("nimbus.address", "10.0.0.1:6627,10.0.0.2:6627"),
        ("supervisor.address", "http://10.0.0.1:6628"),
    ],
)
def test_bad_value(name: str, value: Any) -> None:
    """The error says what it must be."""
    with pytest.raises(ConfigError, match=rf"{name} is .*; it must be"):
        ClusterConfig({name: value})


@pytest.mark.parametrize("kind", ["nimbus", "supervisor"])
def test_daemon_that_listens_on_all_addresses(kind: str) -> None:
    """It must say by which others reach it: as 0.0.0.0 two nimbuses would be one, and a client would ask itself."""
    given = {f"{kind}.host": "0.0.0.0", f"{kind}.port": 7}
    with pytest.raises(ConfigError, match=rf"{kind}\.host is 0\.0\.0\.0, .* in {kind}\.address"):
        ClusterConfig(given).address_of(kind)
    assert ClusterConfig({**given, f"{kind}.address": "10.0.0.4:8"}).address_of(kind) == "10.0.0.4:8"
    assert ClusterConfig({**given, f"{kind}.host": "10.0.0.4"}).address_of(kind) == "10.0.0.4:7"
    assert ClusterConfig({**given, f"{kind}.host": "fd00::4"}).address_of(kind) == "[fd00::4]:7"


@pytest.mark.parametrize(
    ("isolation", "shutdown", "timeout", "is_right"),
    [(20, 3, 30, True), (20, 3, 23, False), (20, 3, 23.1, True), (27, 3, 30, False), (4, 30, 30, False)],
)
def test_isolated_driver_ends_in_time(isolation: float, shutdown: float, timeout: float, is_right: bool) -> None:
    """A driver whose machine has lost ZooKeeper must be gone when the leader starts it elsewhere; the defaults fit."""
    config = ClusterConfig(
        {
            "supervisor.isolation.secs": isolation,
            "supervisor.worker.shutdown.sleep.secs": shutdown,
            "nimbus.task.timeout.secs": timeout,
        }
    )
    if is_right:
        config.check_isolation()
    else:
        with pytest.raises(ConfigError, match=r"supervisor.isolation.secs \+ .* must be less than nimbus.task.timeout"):
            config.check_isolation()
    ClusterConfig().check_isolation()


def test_credentials_are_not_shown() -> None:
    """Not in the representation of a configuration, which may be logged."""
    assert "secret" not in repr(ClusterConfig({"storm.zookeeper.auth": "user:secret"}))


def test_token_is_made_once(tmp_path: Path) -> None:
    """Of daemons that start at the same moment all get the same; only its owner can read the file."""
    path = tmp_path / "folder" / "token"
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: cluster_token(path), range(8)))
    assert len(tokens) == 1
    assert len(tokens.pop()) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["token"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_token_that_others_can_read(tmp_path: Path, mode: int) -> None:
    """It is refused, with the command that mends it."""
    path = tmp_path / "token"
    cluster_token(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        cluster_token(path)
