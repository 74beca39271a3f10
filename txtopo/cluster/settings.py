"""The settings of daemons and of the commands that talk to them, with Storm's names where Storm has them.

A daemon reads a TOML file and ``--set``. In the file, dots are either part of a name in quotes or tables::

    "nimbus.seeds" = ["10.0.0.1:6627", "10.0.0.2:6627"]

    [storm.zookeeper]
    servers = "10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181"
"""

from __future__ import annotations

import importlib
import math
import os
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txtopo.errors import ConfigError
from txtopo.files.durable import sync_path
from txtopo.settings.kinds import (
    CREDENTIALS,
    FLAG,
    NODE,
    PORT,
    SECONDS,
    SERVERS,
    TEXT,
    TEXT_OR_NONE,
    Kind,
    integer,
    one_of,
    or_none,
    to_servers,
    with_ports,
)
from txtopo.settings.setting import GivenSettings, Setting, unknown_setting

_TOKEN_BYTES = 32
_TOKEN_MODE = 0o600


def _to_wait(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or (number < 0 and number != -1) or not math.isfinite(number):
        raise ValueError
    return number


def _to_address(value: Any) -> str:
    [address] = to_servers(value)
    if with_ports([address], 1) != address:
        raise ValueError  # it has no port
    return address


_address = or_none(Kind("host:port", _to_address))

_log_format = or_none(one_of("text", "json"))

_wait = Kind("a number of seconds; 0: do not wait; -1: wait forever", _to_wait)

_ZOOKEEPER_PORT = 2181

CLUSTER_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("storm.zookeeper.servers", ("127.0.0.1:2181",), SERVERS, "ZooKeeper's servers, host:port"),
        Setting("storm.zookeeper.root", "/txtopo-cluster", NODE, "ZooKeeper node above all nodes of the cluster"),
        Setting("storm.zookeeper.session.timeout.secs", 10.0, SECONDS, "how long a silent daemon counts as alive"),
        Setting("storm.zookeeper.auth", None, CREDENTIALS, "user:password for digest ACLs on all nodes; none: open"),
        Setting("storm.local.dir", "txtopo-local", TEXT, "folder of a daemon's code, logs and records of processes"),
        Setting("cluster.token.file", "~/.txtopo/token", TEXT, "file of the token that requests need; made if missing"),
        Setting("nimbus.seeds", ("127.0.0.1:6627",), SERVERS, "nimbuses that commands ask for the leader"),
        Setting("nimbus.host", "127.0.0.1", TEXT, "address that nimbus listens on"),
        Setting("nimbus.port", 6627, PORT, "port that nimbus listens on"),
        Setting("nimbus.address", None, _address, "host:port by which others reach this nimbus; none: as it listens"),
        Setting("nimbus.task.timeout.secs", 30.0, SECONDS, "how long a driver may be silent before it is moved"),
        Setting("nimbus.task.launch.secs", 120.0, SECONDS, "how long a new assignment may be without a heartbeat"),
        Setting("nimbus.task.moves.max", 3, integer(1), "supervisors on which a driver may keep failing at its start"),
        Setting("nimbus.monitor.freq.secs", 3.0, SECONDS, "how often the leader looks without having been told"),
        Setting("nimbus.code.sync.freq.secs", 10.0, SECONDS, "how often code is fetched without having been told"),
        Setting(
            "nimbus.code.lost.secs", 600.0, SECONDS, "after which time without a live holder a topology has failed"
        ),
        Setting("nimbus.leader.elector", "zookeeper", TEXT, "zookeeper, or MODULE:CLASS of a LeaderElector"),
        Setting("nimbus.code.distributor", "local", TEXT, "local, shared, or MODULE:CLASS of a CodeDistributor"),
        Setting("nimbus.code.distributor.folder", None, TEXT_OR_NONE, "the folder of the shared one, a path or a URI"),
        Setting("nimbus.upload.bytes.max", 256 << 20, integer(1), "the largest submission, in bytes"),
        Setting("nimbus.submissions.max", 16, integer(1), "submissions at a time: each has a thread for minutes"),
        Setting("nimbus.submission.check.secs", 120.0, SECONDS, "how long a supervisor may check submitted code"),
        Setting("topology.min.replication.count", 1, integer(1), "nimbuses that hold new code, the leader among them"),
        Setting("topology.max.replication.wait.time.sec", 60.0, _wait, "how long a submission waits for them"),
        Setting("supervisor.host", "127.0.0.1", TEXT, "address that a supervisor listens on"),
        Setting("supervisor.port", 6628, PORT, "port that a supervisor listens on"),
        Setting("supervisor.slots", 4, integer(0), "drivers that a supervisor runs at a time"),
        Setting("supervisor.monitor.frequency.secs", 1.0, SECONDS, "how often a supervisor looks at its drivers"),
        Setting("supervisor.worker.start.timeout.secs", 120.0, SECONDS, "how long a driver may take to start"),
        Setting("supervisor.worker.timeout.secs", 30.0, SECONDS, "how long a driver may be silent before it is ended"),
        Setting("supervisor.worker.shutdown.sleep.secs", 3.0, SECONDS, "from SIGTERM to SIGKILL"),
        Setting("supervisor.worker.start.retries", 3, integer(1), "failed starts in a row before nimbus is told"),
        Setting(
            "supervisor.worker.backoff.reset.secs",
            30.0,
            SECONDS,
            "after how long a run a driver that ends is started again at once; sooner, after 1 s, 2 s … 10 s",
        ),
        Setting("supervisor.address", None, _address, "host:port by which others reach it; none: as it listens"),
        Setting("supervisor.work.dir", ".", TEXT, "the working folder of drivers, from which relative paths go"),
        Setting("supervisor.stops.drivers", False, FLAG, "whether SIGTERM to a supervisor ends its drivers, too"),
        Setting("supervisor.driver.log.format", None, _log_format, "of drivers' logs; none: as the supervisor's own"),
        Setting("supervisor.isolation.secs", 20.0, SECONDS, "how long a supervisor without ZooKeeper keeps drivers"),
    )
}
"""All settings of daemons, by name."""


class ClusterConfig(GivenSettings):
    """The configuration of a daemon or client; given values may be texts.

    Raises:
        ConfigError: a name is unknown, or a value is invalid.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        given = {name: _converted(name, value) for name, value in (values or {}).items()}
        super().__init__(given, {name: setting.default for name, setting in CLUSTER_SETTINGS.items()})

    @classmethod
    def read(cls, path: Path | None, values: Mapping[str, Any] | None = None) -> ClusterConfig:
        """Return a TOML file's settings (None: the defaults) with ``values`` over them; ConfigError if one is wrong."""
        if path is None:
            return cls(values)
        try:
            tables = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"the configuration {path} cannot be read: {error}") from error
        return cls({**_flat(tables), **(values or {})})

    @property
    def zookeeper_hosts(self) -> str:
        """ZooKeeper's servers as ``"host:port,host:port"``."""
        return with_ports(self["storm.zookeeper.servers"], _ZOOKEEPER_PORT)

    def address_of(self, kind: str) -> str:
        """Return the host:port by which others reach a daemon; ConfigError if it listens on all and none is given."""
        host = self[f"{kind}.host"]
        if self[f"{kind}.address"] is None and host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            raise ConfigError(
                f"{kind}.host is {host}, by which no other machine reaches it: give its host:port in {kind}.address"
            )
        return self[f"{kind}.address"] or f"{f'[{host}]' if ':' in host else host}:{self[f'{kind}.port']}"

    def make(self, setting: str, kind: type) -> Any:
        """Return an object of a setting's ``MODULE:CLASS``; ConfigError if there is none that derives from ``kind``."""
        name = self[setting]
        module, _, attribute = name.partition(":")
        try:
            made = getattr(importlib.import_module(module), attribute)()
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"{setting} is {name!r}, which cannot be made: {error}") from error
        if not isinstance(made, kind):
            raise ConfigError(f"{setting} is {name!r}, which is not a {kind.__name__}")
        return made

    def check_isolation(self) -> None:
        """Raise a ConfigError if a driver without ZooKeeper may still run when the leader starts it elsewhere."""
        isolation, shutdown = "supervisor.isolation.secs", "supervisor.worker.shutdown.sleep.secs"
        timeout = "nimbus.task.timeout.secs"
        if self[isolation] + self[shutdown] >= self[timeout]:
            raise ConfigError(
                f"{isolation} + {shutdown} is {self[isolation] + self[shutdown]:g} s; it must be less than {timeout}, "
                f"{self[timeout]:g} s: a driver whose machine has lost ZooKeeper must be gone when the leader starts "
                "it elsewhere"
            )


def cluster_token(path: Path) -> str:
    """Return the cluster's token; make one if the file does not exist, readable by its owner only.

    Raises:
        ConfigError: the file cannot be read or made, is empty, or others can read it.
    """
    path = path.expanduser()
    try:
        if not path.exists():
            _make_token(path)
        mode = path.stat().st_mode & 0o777
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"the token {path} cannot be read: {error.strerror}; see cluster.token.file") from error
    if mode & 0o077:
        raise ConfigError(f"the token {path} can be read by others: chmod 600 {path}")
    if not token:
        raise ConfigError(f"the token {path} is empty: remove the file, and a new one is made")
    return token


def _make_token(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A crash before the link leaves a draft that nobody reads. A daemon must never find the token half written.
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _TOKEN_MODE)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
    sync_path(draft)
    try:
        os.link(draft, path)  # unlike a rename, a link fails if another daemon was first
    except FileExistsError:
        return
    finally:
        draft.unlink()


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _converted(name: str, value: Any) -> Any:
    if name not in CLUSTER_SETTINGS:
        raise ConfigError(unknown_setting(name, CLUSTER_SETTINGS, of=" of daemons"))
    return CLUSTER_SETTINGS[name].converted(value)
