"""``txtopo cluster dev``: a whole cluster on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import attrs
import click

from txtopo.cli.cluster.asking import COMMANDS_CONFIG, DEV_FOLDER
from txtopo.cli.command import Command, CommandLineError, WholeNumber, needs_extra, parse_pairs

_POLL_SECS = 0.2
_AGAIN_SECS = 1.0
_READY_SECS = 120.0
"""A supervisor ends its drivers first, each of which may take as long as its last transactions do."""
_TICK_MS = 500
"""ZooKeeper's tickTime: sessions may last from 1 s to 10 s."""


class _Stop(BaseException):
    """Ctrl-C or SIGTERM."""


@click.group()
def cluster() -> None:
    """Run a whole cluster."""


@cluster.command(cls=Command)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEV_FOLDER,
    show_default=True,
    help="Everything that the cluster keeps; start it there again, and it goes on.",
)
@click.option("--nimbuses", type=WholeNumber(1), default=1, show_default=True, help="How many of them to run.")
@click.option("--supervisors", type=WholeNumber(1), default=1, show_default=True, help="How many of them to run.")
@click.option("--port", type=WholeNumber(1), default=6627, show_default=True, help="Of the first nimbus.")
@click.option(
    "--supervisor-port", type=WholeNumber(1), default=6728, show_default=True, help="Of the first supervisor."
)
@click.option("--zookeeper-port", type=WholeNumber(1), default=2181, show_default=True, help="Of the ZooKeeper.")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A setting of all daemons.")
def dev(  # noqa: PLR0913, PLR0917 - options of the command line
    folder: Path,
    nimbuses: int,
    supervisors: int,
    port: int,
    supervisor_port: int,
    zookeeper_port: int,
    pairs: tuple[str, ...],
) -> None:
    """Run a ZooKeeper, nimbuses and supervisors on this machine, and start those again that end.

    For trying things out: kill what you like. Ctrl-C ends all of them in good order, with the topologies' drivers;
    started again in the same folder, the topologies go on.
    """
    with needs_extra("cluster"):
        import starlette  # noqa: F401, PLC0415 - so that its lack is told before anything is started

        from txtopo.cluster.driver.child import child_environment  # noqa: PLC0415 - as above
        from txtopo.cluster.settings import ClusterConfig, cluster_token  # noqa: PLC0415 - the extra, when it is needed
    folder = folder.absolute()
    seeds = ",".join(f"127.0.0.1:{port + number}" for number in range(nimbuses))
    shared = {
        "storm.zookeeper.servers": f"127.0.0.1:{zookeeper_port}",
        "nimbus.seeds": seeds,
        "cluster.token.file": str(folder / "token"),
        "supervisor.stops.drivers": "true",
        **parse_pairs(pairs),
    }
    config = ClusterConfig(shared)  # finds mistakes now, not in each daemon
    cluster_token(Path(config["cluster.token.file"]))
    commands = folder / COMMANDS_CONFIG
    write_config(commands, {name: shared[name] for name in ("nimbus.seeds", "cluster.token.file")})
    daemons = [
        _Daemon(kind, number, folder, {**shared, f"{kind}.port": str(first + number)}, child_environment())
        for kind, first, count in (("nimbus", port, nimbuses), ("supervisor", supervisor_port, supervisors))
        for number in range(count)
    ]
    with _stopped_by_signals(), contextlib.suppress(_Stop), _zookeeper(folder, zookeeper_port), _kept(daemons):
        _wait_until_up(daemons)
        click.echo(
            f"the cluster runs: nimbus.seeds is {seeds}; commands take --config {commands}, by default if they run "
            f"here; its logs are in {folder}; Ctrl-C ends it"
        )
        while True:
            _restart_ended(daemons)
    click.echo("the cluster has ended")


@attrs.define(eq=False)
class _Daemon:
    """A daemon's process, started again when it ends."""

    kind: str
    number: int
    folder: Path
    settings: dict[str, str]
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    start_at: float = 0.0

    @property
    def name(self) -> str:
        """Its name, also of its folder and log."""
        return f"{self.kind}-{self.number + 1}"

    def start(self) -> None:
        """Start it."""
        # In a file: on a command line, everybody on the machine could read the credentials for ZooKeeper.
        config = self.folder / f"{self.name}.toml"
        write_config(config, {**self.settings, "storm.local.dir": str(self.folder / self.name)})
        command = [sys.executable, "-P", "-m", "txtopo", self.kind, "--config", str(config)]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our command
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def is_up(self) -> bool:
        """Whether it answers."""
        import httpx  # noqa: PLC0415 - the extra

        with contextlib.suppress(httpx.HTTPError):
            port = self.settings[f"{self.kind}.port"]
            return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success
        return False


def write_config(path: Path, settings: Mapping[str, str]) -> None:
    """Write settings of daemons or commands to a file that is for its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    text = "".join(f"{_quoted(name)} = {_quoted(value)}\n" for name, value in settings.items())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _quoted(text: str) -> str:
    """Return a text as TOML; JSON's strings are such, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)  # once: the end takes a few seconds
        raise _Stop

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _zookeeper(folder: Path, port: int) -> Iterator[None]:
    from txtopo.servers.zookeeper import ZooKeeperServer  # noqa: PLC0415 - only here

    home = folder / "zookeeper"
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)  # its log holds the settings of topologies, secrets among them, and its files are for everybody
    server = ZooKeeperServer(home, tick_time_ms=_TICK_MS, heap_mb=128, port=port)
    click.echo("starting ZooKeeper, from PySpark's JARs")
    try:
        server.start()
        yield
    finally:
        server.kill()


@contextlib.contextmanager
def _kept(daemons: Sequence[_Daemon]) -> Iterator[None]:
    """Start all; end them at the end: supervisors first, with their drivers, then nimbuses."""
    try:
        for daemon in daemons:
            daemon.start()
        yield
    finally:
        for kind in ("supervisor", "nimbus"):
            ending = [daemon.process for daemon in daemons if daemon.kind == kind and daemon.process is not None]
            for process in ending:
                process.send_signal(signal.SIGTERM)
            for process in ending:
                try:
                    process.wait(_READY_SECS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _wait_until_up(daemons: Sequence[_Daemon]) -> None:
    deadline = time.monotonic() + _READY_SECS
    while not all(daemon.is_up() for daemon in daemons):
        for daemon in daemons:
            if daemon.process is not None and daemon.process.poll() is not None:
                log = (daemon.folder / f"{daemon.name}.log").read_text(errors="replace").strip()
                raise CommandLineError(f"{daemon.name} does not start: {log.rpartition(chr(10))[2]}")
        if time.monotonic() > deadline:
            raise CommandLineError(f"the daemons are not up after {_READY_SECS:g} s; see their logs")
        time.sleep(_POLL_SECS)


def _restart_ended(daemons: Sequence[_Daemon]) -> None:
    """Start again what has ended; wait a moment."""
    now = time.monotonic()
    for daemon in daemons:
        if daemon.process is not None and daemon.process.poll() is not None:
            click.echo(f"{daemon.name} ended with status {daemon.process.returncode}; it is started again")
            daemon.process, daemon.start_at = None, now + _AGAIN_SECS
        if daemon.process is None and now >= daemon.start_at:
            daemon.start()
    time.sleep(_POLL_SECS)
