"""``txtopo nimbus``: run a nimbus."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import click

from txtopo.cli.command import Command, CommandLineError
from txtopo.cli.settings import parse_pairs
from txtopo.errors import RuleError


@click.command(cls=Command)
@click.option(
    "--config",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file with settings of daemons.",
)
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A setting; overrides the file.")
@click.option("--log-file", type=click.Path(dir_okay=False, path_type=Path), help="Log there, not to standard error.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def nimbus(path: Path | None, pairs: tuple[str, ...], log_file: Path | None, log_format: str) -> None:
    """Run a nimbus, one of the daemons that take submissions and lead a cluster.

    Run several, on different machines, under systemd or the like: a nimbus ends on whatever it does not expect, and
    goes on where it was when it is started again. SIGTERM and Ctrl-C end it in good order; running topologies go on.
    """
    try:
        from txtopo.cluster import daemon  # noqa: PLC0415 - the extra's packages are imported when they are needed
        from txtopo.cluster.api import NimbusApi  # noqa: PLC0415
        from txtopo.cluster.nimbus import Nimbus  # noqa: PLC0415
        from txtopo.cluster.settings import ClusterConfig, cluster_token  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise CommandLineError(f"{error}; daemons need more packages: pip install 'txtopo[cluster]'") from error
    daemon.log_to(log_file, log_format)
    log = logging.getLogger("txtopo.nimbus")
    with contextlib.ExitStack() as stack:
        try:
            config = ClusterConfig.read(path, parse_pairs(pairs))
            token = cluster_token(Path(config["cluster.token.file"]))
            listener = stack.enter_context(daemon.listen(config["nimbus.host"], config["nimbus.port"]))
            address = config["nimbus.address"] or f"{config['nimbus.host']}:{config['nimbus.port']}"
            running = Nimbus(config, address, token, daemon.version(), daemon.fail)
            running.start()
        except RuleError:
            raise
        except Exception as error:  # noqa: BLE001 - fail fast: whatever it is, the process ends
            log.critical("cannot start: %s", error)
            click.get_current_context().exit(daemon.EXIT_START)
        log.info("nimbus %s listens on %s, with ZooKeeper at %s", daemon.version(), address, config.zookeeper_hosts)
        app = NimbusApi(running, token, daemon.version()).app
        daemon.serve(app, listener, running.begin_stop, running.stop)
        log.info("nimbus %s has ended", address)
