"""The commands that ask a cluster: list, kill, activate, deactivate, rebalance, logs, leader."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from txtopo.cli.command import Command, format_option, needs_extra, parse_pairs
from txtopo.cli.console import table_console
from txtopo.cluster.summaries import TopologySummary
from txtopo.files.records import dumped, to_json
from txtopo.text.printable import escaped

DEV_FOLDER = "txtopo-cluster"
_LINE_CHARACTERS_MAX = 160
COMMANDS_CONFIG = "cluster.toml"
"""The file that ``txtopo cluster dev`` writes into its folder, for commands."""

_CONFIGS = (Path("~/.txtopo/cluster.toml"), Path(DEV_FOLDER, COMMANDS_CONFIG))
"""Where a command without ``--config`` looks for one, in this order."""


def takes_cluster(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config`` and ``--seeds`` to a command, which receives a function that returns a client."""

    @click.option(
        "--config",
        "config_path",
        envvar="TXTOPO_CLUSTER_CONFIG",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A TOML file with nimbus.seeds and cluster.token.file; by default the first that exists of "
        f"{' and '.join(map(str, _CONFIGS))}.",
    )
    @click.option("--seeds", metavar="HOST:PORT,…", help="Nimbuses to ask for the leader; overrides nimbus.seeds.")
    @functools.wraps(function)
    def command(config_path: Path | None, seeds: str | None, **options: Any) -> Any:
        return function(connect=functools.partial(_client, config_path, seeds), **options)

    return command


@contextlib.contextmanager
def _client(path: Path | None, seeds: str | None, patience_secs: float = 30.0) -> Iterator[Any]:
    with needs_extra("cluster"):
        from txtopo.cluster.client import ClusterClient  # noqa: PLC0415 - the extra's packages, when they are needed
        from txtopo.cluster.settings import ClusterConfig, cluster_token  # noqa: PLC0415
    config_file = path or next((each for each in (path.expanduser() for path in _CONFIGS) if each.is_file()), None)
    config = ClusterConfig.read(config_file, {"nimbus.seeds": seeds} if seeds else {})
    token = cluster_token(Path(config["cluster.token.file"]))
    with ClusterClient(config["nimbus.seeds"], token, patience_secs) as client:
        yield client


Connect = Callable[..., contextlib.AbstractContextManager[Any]]


@click.command(name="list", cls=Command)
@click.argument("name", required=False)
@takes_cluster
@format_option("text", "json")
def list_command(connect: Connect, form: str, name: str | None) -> None:
    """List the topologies of a cluster; or show all of the topology NAME, with the whole reason of a failure."""
    with connect() as client:
        topologies = client.topologies() if name is None else client.topology(name)
    if form == "json":
        click.echo(dumped(to_json(topologies)))
    elif name is None:
        _print_list(topologies)
    else:
        _print_topology(topologies)


def _print_list(topologies: Sequence[TopologySummary]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("NAME", "STATUS", "UPTIME", "SUPERVISOR", "STAGE", "PROGRESS"):
        table.add_column(name)
    for topology in topologies:
        table.add_row(
            topology.name,
            topology.status,
            f"{topology.uptime_seconds} s",
            topology.slot,
            _line(_stage(topology)),
            _line(topology.reason, f"txtopo list {topology.name}") if topology.reason else _progress(topology),
        )
    table_console().print(table)


def _print_topology(topology: TopologySummary) -> None:
    lines = {
        "name": topology.name,
        "id": topology.id,
        "topology": topology.topology_id,
        "status": topology.status,
        "reason": topology.reason or "",
        "stage": _stage(topology),
        "progress": _progress(topology),
        "uptime": f"{topology.uptime_seconds} s",
        "supervisor": topology.slot,
        "code": f"{topology.replication_count} copies; holders: {', '.join(topology.holders) or 'none'}",
        "settings": ", ".join(f"{name}={value}" for name, value in topology.settings.items()),
    }
    for title, text in lines.items():
        if text:
            first, *more = (escaped(line, keep="\t") for line in text.splitlines())
            click.echo("\n".join([f"{title:<10}  {first}", *(f"{'':<10}  {line}" for line in more)]))


def _stage(topology: TopologySummary) -> str:
    """Return the driver's stage, or why there is no driver."""
    beat = topology.heartbeat
    if beat is not None:
        return f"{beat.stage}: {beat.detail}" if beat.detail else beat.stage
    if topology.status not in {"ACTIVE", "INACTIVE", "REBALANCING"}:
        return ""
    return "no slot is free" if topology.assignment is None else "no heartbeat yet"


def _line(text: str, whole_by: str = "") -> str:
    """Return the first line of a text, shortened; name the command that prints all, ``whole_by``."""
    lines = text.strip().splitlines() or [""]
    line = lines[0] if len(lines[0]) <= _LINE_CHARACTERS_MAX else f"{lines[0][:_LINE_CHARACTERS_MAX]}…"
    return escaped(line if line == text.strip() or not whole_by else f"{line} (all of it: {whole_by})")


def _progress(topology: TopologySummary) -> str:
    figures = {} if topology.heartbeat is None else topology.heartbeat.figures
    return ", ".join(f"{name} {value:g}" for name, value in figures.items() if value)


_waits = click.option(
    "--wait", "wait_secs", type=click.FloatRange(0, 1e9), metavar="SECONDS", help="By default the message timeout."
)


@click.command(cls=Command)
@click.argument("name")
@_waits
@takes_cluster
def kill(connect: Connect, name: str, wait_secs: float | None) -> None:
    """Kill a topology: its driver stops in good order, and after the wait the topology is removed.

    Tables and coordinator state stay: submitted again, it goes on where it was. A second kill replaces the wait of the
    first, so that '--wait 0' hastens.
    """
    with connect() as client:
        _print_change(client.kill(name, wait_secs), "kill")


@click.command(cls=Command)
@click.argument("name")
@takes_cluster
def activate(connect: Connect, name: str) -> None:
    """Let a deactivated topology go on."""
    with connect() as client:
        _print_change(client.activate(name))


@click.command(cls=Command)
@click.argument("name")
@takes_cluster
def deactivate(connect: Connect, name: str) -> None:
    """Let a topology begin no transaction; those in flight are committed. The spouts of a plain one are deactivated."""
    with connect() as client:
        _print_change(client.deactivate(name))


@click.command(cls=Command)
@click.argument("name")
@_waits
@click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A setting to change, as for 'txtopo submit'."
)
@takes_cluster
def rebalance(connect: Connect, name: str, wait_secs: float | None, pairs: tuple[str, ...]) -> None:
    """Deactivate a topology, and after the wait start it anew, perhaps elsewhere and with changed settings."""
    settings = parse_pairs(pairs)
    with connect() as client:
        _print_change(client.rebalance(name, wait_secs, settings), "rebalance")


def _print_change(after: TopologySummary, waits_for: str = "") -> None:
    left_secs = after.seconds_left if waits_for else None
    waits = f"; {waits_for} in {math.ceil(left_secs)} s" if left_secs else ""
    click.echo(f"{after.id} is {after.status}{waits}")


@click.command(cls=Command)
@click.argument("name")
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@takes_cluster
def logs(connect: Connect, name: str, follows: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Print the end of the log of a topology's driver."""
    with connect() as client:
        for part in client.log(name, follows=follows):
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()


@click.command(cls=Command)
@takes_cluster
def leader(connect: Connect) -> None:
    """Print the address of the nimbus that leads."""
    with connect() as client:
        click.echo(client.leader())
