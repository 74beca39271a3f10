"""``txtopo nimbus`` and ``txtopo supervisor``: run a daemon."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from txtopo.cli.command import Command, needs_extra, parse_pairs
from txtopo.errors import RuleError
from txtopo.text.extras import version

Options = Callable[[Callable[..., Any]], Callable[..., Any]]


def _daemon_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options: list[Options] = [
        click.option(
            "--config",
            "path",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A TOML file with settings of daemons.",
        ),
        click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A setting; overrides the file."),
        click.option(
            "--log-file", type=click.Path(dir_okay=False, path_type=Path), help="Log there, not to standard error."
        ),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="How log lines are written; each is an object with json.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command(cls=Command)
@_daemon_options
def nimbus(path: Path | None, pairs: tuple[str, ...], log_file: Path | None, log_format: str) -> None:
    """Run a nimbus, one of the daemons that take submissions and lead a cluster.

    Run several, on different machines, under systemd or the like: a nimbus ends on whatever it does not expect, and
    goes on where it was when it is started again. SIGTERM and Ctrl-C end it in good order; running topologies go on.
    """
    _run("nimbus", path, pairs, log_file, log_format)


@click.command(cls=Command)
@_daemon_options
def supervisor(path: Path | None, pairs: tuple[str, ...], log_file: Path | None, log_format: str) -> None:
    """Run a supervisor, the daemon that runs topologies' drivers on its machine.

    Run one on each machine, under systemd or the like. Whether it is killed, stopped or started again, its drivers run
    on; started again, it adopts them.
    """
    _run("supervisor", path, pairs, log_file, log_format)


def _run(kind: str, path: Path | None, pairs: tuple[str, ...], log_file: Path | None, log_format: str) -> None:
    with needs_extra("cluster"):
        from txtopo.cluster.logs import log_to  # noqa: PLC0415
        from txtopo.cluster.nimbus.api import NimbusApi  # noqa: PLC0415
        from txtopo.cluster.nimbus.daemon import Nimbus  # noqa: PLC0415
        from txtopo.cluster.serving import server  # noqa: PLC0415 - the extra's packages are imported when they are needed
        from txtopo.cluster.settings import ClusterConfig, cluster_token  # noqa: PLC0415
        from txtopo.cluster.supervisor.api import SupervisorApi  # noqa: PLC0415
        from txtopo.cluster.supervisor.daemon import Supervisor  # noqa: PLC0415
        from txtopo.cluster.supervisor.pages import DriverPages  # noqa: PLC0415
    log_to(log_file, log_format)
    log = logging.getLogger(f"txtopo.{kind}")
    with contextlib.ExitStack() as stack:
        try:
            config = ClusterConfig.read(path, parse_pairs(pairs))
            if config["supervisor.driver.log.format"] is None:
                config = ClusterConfig({**config.given, "supervisor.driver.log.format": log_format})
            token = cluster_token(Path(config["cluster.token.file"]))
            host, port, address = config[f"{kind}.host"], config[f"{kind}.port"], config.address_of(kind)
            # Before the daemon announces itself: a second one on the same port must not be seen by anybody.
            listener = stack.enter_context(server.listen(host, port))
            make = Nimbus if kind == "nimbus" else Supervisor
            running: Nimbus | Supervisor = make(config, address, token, version(), server.fail)
            running.start()
        except RuleError:
            raise  # a mistake in the settings: ``Command`` prints it, and a restart would not help
        except Exception as error:  # noqa: BLE001 - fail fast: whatever it is, the process ends
            log.critical("cannot start: %s", error)
            click.get_current_context().exit(server.EXIT_START)
        log.info("%s %s listens on %s, with ZooKeeper at %s", kind, version(), address, config.zookeeper_hosts)
        if isinstance(running, Supervisor):
            app = SupervisorApi(running, token, DriverPages(running.logs.place, running.topologies)).app
        else:
            app = NimbusApi(running, token, version()).app
        server.serve(app, listener, running.begin_stop, running.stop)
        log.info("%s %s has ended", kind, address)
