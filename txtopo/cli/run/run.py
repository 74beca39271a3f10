"""``txtopo run``: run a topology and show its progress."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import click
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler

from txtopo.assembly.parts import Observer
from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.report import Progress
from txtopo.assembly.storage import DEFAULT_METADATA_DIR, pending_max_of
from txtopo.cli.command import Command, CommandLineError, WholeNumber, needs_extra
from txtopo.cli.console import Console
from txtopo.cli.display.acked import INTERRUPTED, AckedDisplay, AckedLines
from txtopo.cli.display.interrupts import Interrupts
from txtopo.cli.display.lines import ProgressLines
from txtopo.cli.display.live import LiveDisplay
from txtopo.cli.display.summary import is_stopped_early
from txtopo.cli.target import takes_target
from txtopo.config import REAL_TIME, Config
from txtopo.engine.page import PAGE_FILE, Address, PageOptions, page_of_run
from txtopo.engine.runner import run as run_topology
from txtopo.engine.timeline.ends import metadata_dir_if_any, place_of
from txtopo.engine.timeline.records import METRICS, folder_of
from txtopo.files.objects import ObjectFolder
from txtopo.journal.ending import METADATA_DIR
from txtopo.text.printable import PrintableFormatter
from txtopo.text.secrecy import SecretFilter, command_line, shown, without_secrets
from txtopo.topology.topology import PlainTopology, TransactionalTopology
from txtopo.topology.user_code.loading import Target
from txtopo.topology.user_code.output import PRINT, USER_LOGGER

LOG_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "print": PRINT,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""Levels for the output and log records of user code, by name."""


@click.command(cls=Command)
@takes_target
@click.option("--until", type=WholeNumber(0), metavar="TXID", help="Stop when this transaction is committed.")
@click.option(
    "--real-time",
    is_flag=True,
    help="Process transactions one by one in workers that hold their Spark slots: topology.processing.mode=real-time.",
)
@click.option(
    "--log-level",
    type=click.Choice(list(LOG_LEVELS), case_sensitive=False),
    default="print",
    show_default=True,
    help="The lowest level of log records of spouts and bolts to show; 'print' shows printed lines and warnings.",
)
@click.option(
    "--metrics",
    "address",
    type=Address(),
    metavar="[HOST:]PORT",
    help="Serve /metrics, for Prometheus, and /health at this port of 127.0.0.1, or of HOST; 0 is a free port.",
)
@click.option(
    "--ui",
    "page",
    type=Address(),
    is_flag=False,
    flag_value="0",
    metavar="[[HOST:]PORT]",
    help="Start the page beside the run, at this port of 127.0.0.1, or of HOST; without a port at a free one.",
)
def run(  # noqa: PLR0913, PLR0917 - one for each option
    target: Target,
    until: int | None,
    real_time: bool,  # noqa: FBT001 - click's convention
    log_level: str,
    address: tuple[str, int] | None,
    page: tuple[str, int] | None,
) -> None:
    """Run a topology, transactional or plain, until its input is exhausted.

    MODULE is searched for in the current folder first. ATTRIBUTE is a topology or a function that returns one;
    the default is 'topology'. --set also sets the function's parameters. If a run of a transactional topology was
    stopped or killed, the same command resumes it. Ctrl-C stops the run cleanly; a second Ctrl-C stops it immediately.
    """
    if real_time:
        target = _in_real_time(target)
    atexit.register(gc.freeze)  # to collect at exit what ends with the process anyway would take 0.3 s
    console = Console()
    _log_to(console, target.config, LOG_LEVELS[log_level])
    with _observed(target, address, page, console) as observed:
        if isinstance(target.topology, PlainTopology):
            _run_plain(target, target.topology, until, console, observed)
        else:
            _run_transactional(target, until, console, observed)


def _in_real_time(target: Target) -> Target:
    if isinstance(target.topology, PlainTopology):
        raise CommandLineError(
            f"{target.topology.id!r} is a plain topology, which processes tuple by tuple in any case: leave "
            "--real-time out"
        )
    mode = {"topology.processing.mode": REAL_TIME}
    return attrs.evolve(target, config=target.config.with_settings(mode), values={**target.values, **mode})


@attrs.frozen
class _Observed:
    """Who observes the run, and where it keeps its timeline; None: where it does by itself."""

    observer: Observer | None = None
    timeline: Path | None = None


def _run_transactional(target: Target, until: int | None, console: Console, observed: _Observed) -> None:
    display: LiveDisplay | ProgressLines = ProgressLines()
    if console.is_terminal and not console.is_dumb_terminal:
        display = LiveDisplay(console, pending_max_of(target.plan, target.config))
    interrupts = Interrupts(display.stopping)

    def on_progress(progress: Progress) -> None:
        interrupts.wrap_handlers()  # by the first progress the run has installed its own
        display.update(progress)

    with display, interrupts:
        report = run_topology(
            TransactionalTopology(target.plan),
            target.config,
            until=until,
            on_progress=on_progress,
            on_stage=display.stage,
            observer=observed.observer,
            timeline=observed.timeline,
        )
    display.finish(report)
    if is_stopped_early(report):
        options = [] if until is None else ["--until", str(until)]
        again = command_line(["txtopo", "run", *target.words, *options])
        console.print(f"stopped; to continue: {again}", soft_wrap=True)
        return
    target.call_hook("show_results", console)


def _run_plain(
    target: Target, topology: PlainTopology, until: int | None, console: Console, observed: _Observed
) -> None:
    if until is not None:
        raise CommandLineError(f"{topology.id!r} is a plain topology, which has no transactions: leave --until out")
    display = AckedDisplay(console) if console.is_terminal and not console.is_dumb_terminal else AckedLines()
    interrupts = Interrupts(display.stopping, INTERRUPTED)

    def on_progress(report: PlainReport) -> None:
        interrupts.wrap_handlers()
        display.update(report)

    with display, interrupts:
        report = run_topology(
            topology,
            target.config,
            on_progress=on_progress,
            on_stage=display.stage,
            observer=observed.observer,
            timeline=observed.timeline,
        )
    display.finish(report)
    target.call_hook("show_results", console)


@contextlib.contextmanager
def _observed(
    target: Target, address: tuple[str, int] | None, page: tuple[str, int] | None, console: Console
) -> Iterator[_Observed]:
    if address is None and page is None:
        yield _Observed()
        return
    with needs_extra("metrics" if page is None else "ui"):
        from txtopo.engine.exposition import metrics_file, serving  # noqa: PLC0415 - the extra, when it is needed
        from txtopo.engine.metrics import RunMetrics  # noqa: PLC0415 - as above
    metrics = RunMetrics.of(target.topology)
    with contextlib.ExitStack() as stack:
        timeline = None
        if address is not None:
            console.print(f"metrics: {stack.enter_context(serving(metrics, *address))}", soft_wrap=True)
        if page is not None:
            timeline = place_of(target.topology, target.config)
            if timeline is None:  # it keeps nothing by itself
                timeline = folder_of(Path(DEFAULT_METADATA_DIR), target.topology.id)
            output, storage_options = _shown_by_page(target, timeline)
            options = PageOptions(
                () if isinstance(target.topology, PlainTopology) else target.words,
                {name: without_secrets(str(shown(name, value))) for name, value in target.arguments.items()},
                str(timeline.absolute() / PAGE_FILE),
                storage_options,
            )
            url = stack.enter_context(page_of_run(output, page, options))
            console.print(f"page: {url}", soft_wrap=True)
            stack.enter_context(metrics_file(metrics, timeline / METRICS))
        yield _Observed(metrics, timeline)


def _shown_by_page(target: Target, timeline: Path) -> tuple[str, Mapping[str, str]]:
    """Return the folder or address that the page of a run is of, and the storage options of an address."""
    metadata_dir = metadata_dir_if_any(target.topology, target.config)
    if isinstance(metadata_dir, ObjectFolder):
        return str(metadata_dir.parent), dict(metadata_dir.options)
    return str(timeline.parent.parent if timeline.parent.name == METADATA_DIR else timeline.parent), {}


def _log_to(console: Console, config: Config, user_level: int) -> None:
    """Print log records of txtopo and of the user's code: warnings, and lower levels if requested."""
    handler: logging.Handler = logging.StreamHandler()
    if console.is_terminal:
        handler = RichHandler(
            console=console, show_path=False, markup=False, highlighter=NullHighlighter(), log_time_format="%H:%M:%S"
        )
        handler.setFormatter(PrintableFormatter("%(message)s"))
    else:
        handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_is_asked_for)
    handler.addFilter(SecretFilter())
    if not config.debug:
        # py4j logs connections that a stop closes, with the root logger.
        handler.addFilter(lambda record: Path(record.pathname).parent.name != "py4j")
    context = click.get_current_context()
    # In the driver, bolts log with their own loggers, which inherit the root's level.
    levels = {"txtopo": logging.DEBUG if config.debug else logging.WARNING, USER_LOGGER: user_level}
    if not logging.getLogger().handlers:
        levels[""] = min(user_level, logging.WARNING)
        logging.getLogger().addHandler(handler)
        context.call_on_close(functools.partial(logging.getLogger().removeHandler, handler))
    if context.meta.get("txtopo.debug"):
        levels["txtopo.spark"] = logging.DEBUG  # includes Spark's full message about a failed job
    for name, level in levels.items():
        logger = logging.getLogger(name)
        context.call_on_close(functools.partial(logger.setLevel, logger.level))  # the process may outlive the command
        logger.setLevel(level)


def _is_asked_for(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == "txtopo"
