"""``txtopo run``: run a topology, and show how it goes."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

import click
from rich.console import Console
from rich.logging import RichHandler

from txtopo.cli.command import Command
from txtopo.cli.interrupts import Interrupts
from txtopo.cli.live import LiveDisplay
from txtopo.cli.plain import PlainLines
from txtopo.cli.summary import is_stopped_early
from txtopo.cli.target import load_target, set_option, target_argument
from txtopo.config import Config
from txtopo.monitor.report import Progress
from txtopo.runner import run as run_topology


@click.command(cls=Command)
@target_argument
@set_option
@click.option("--until", type=click.IntRange(min=0), metavar="TXID", help="Stop when this transaction is committed.")
def run(target: str, pairs: tuple[str, ...], until: int | None) -> None:
    """Run a topology until its input is exhausted.

    MODULE is searched in the current folder first. ATTRIBUTE is a topology or a function that returns one,
    'topology' unless given; --set sets the function's parameters, too. A run that was stopped or killed goes
    on where it was when it is started again. Ctrl-C stops in good order, a second one at once.
    """
    loaded = load_target(target, pairs)
    console = Console(highlight=False)
    _log_to(console, loaded.config)
    display: LiveDisplay | PlainLines = PlainLines()
    if console.is_terminal and not console.is_dumb_terminal:
        display = LiveDisplay(console, loaded.config.max_spout_pending)
    interrupts = Interrupts(display.stopping)

    def on_progress(progress: Progress) -> None:
        interrupts.wrap_handlers()
        display.update(progress)

    with display, interrupts:
        report = run_topology(loaded.topology, loaded.config, until=until, on_progress=on_progress)
    display.finish(report)
    if is_stopped_early(report):
        console.print(f"stopped; to go on: {_command_line(target, pairs, until)}", soft_wrap=True)
        return
    loaded.call_hook("show_results", console)


def _command_line(target: str, pairs: tuple[str, ...], until: int | None) -> str:
    options = [option for pair in pairs for option in ("--set", pair)]
    if until is not None:
        options += ["--until", str(until)]
    return shlex.join(["txtopo", "run", target, *options])


def _log_to(console: Console, config: Config) -> None:
    """Print what txtopo and the user's code log: warnings, or every event and action if asked for."""
    handler: logging.Handler = logging.StreamHandler()
    if console.is_terminal:
        handler = RichHandler(console=console, show_path=False, markup=False)
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    if not config.debug:
        # py4j tells of connections that a stop cuts off, and it does so by the root logger.
        handler.addFilter(lambda record: Path(record.pathname).parent.name != "py4j")
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format="%(message)s")
    logging.getLogger("txtopo").setLevel(logging.DEBUG if config.debug else logging.WARNING)
