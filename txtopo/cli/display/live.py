"""A run's progress on a terminal: the pending transactions by phase, the committed transactions, the rate."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from txtopo.assembly.report import Progress, RunReport
from txtopo.cli.console import Console
from txtopo.cli.display.rate import TupleRate
from txtopo.cli.display.summary import print_summary
from txtopo.cli.display.wording import activity, reason_of, share_of, time_left
from txtopo.inspect.past.wording import STATUS_WORDS, readings_of
from txtopo.text.printable import escaped
from txtopo.text.words import clock

WIDTH_MAX = 84
_BAR_WIDTH_MAX = 64
_REASON_MAX = 160

_COMMITTING, _WAITING, _PROCESSING, _READY = "green", "cyan", "yellow", "bright_black"


class Display:
    """A panel that is drawn anew several times a second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_stopping = False
        self._live = Live(_waiting("starting"), console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        """Show a spinner immediately, because Spark takes seconds to start."""
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def stage(self, stage: str) -> None:
        """Show the current step before the run begins."""
        self._live.update(_waiting(stage), refresh=True)

    def stopping(self) -> None:
        """Show that a stop was requested."""
        self._is_stopping = True

    def draw(self, topology_id: str, elapsed_secs: float, rows: Iterable[tuple[str, RenderableType]]) -> None:
        """Show the run."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", justify="right", no_wrap=True)
        grid.add_column()
        for name, content in rows:
            grid.add_row(Text(escaped(name)), content)
        subtitle = "stopping … Ctrl-C again stops immediately" if self._is_stopping else "Ctrl-C stops cleanly"
        self._live.update(
            Panel(
                grid,
                title=Text.assemble((escaped(topology_id), "bold"), (f" {clock(elapsed_secs)}", "dim")),
                title_align="left",
                subtitle=Text(subtitle, "yellow" if self._is_stopping else "dim"),
                subtitle_align="right",
                width=min(WIDTH_MAX, self._console.width),
                border_style="yellow" if self._is_stopping else "green",
            )
        )


class LiveDisplay(Display):
    """Redraws the progress of a transactional topology."""

    def __init__(self, console: Console, pending_max: int) -> None:
        super().__init__(console)
        self._pending_max = pending_max
        self._rate = TupleRate()
        self._begun = time.monotonic()
        self._spark_secs: float | None = None

    def update(self, progress: Progress) -> None:
        """Show a snapshot."""
        if self._spark_secs is None:
            self._spark_secs = time.monotonic() - self._begun
        self._rate.add(progress)
        self.draw(progress.topology_id, progress.elapsed_secs, self._rows(progress))

    def finish(self, report: RunReport) -> None:
        """Replace the display with the summary of the run."""
        self._live.stop()
        print_summary(self._console, report, self._spark_secs or 0.0)

    def _rows(self, progress: Progress) -> Iterator[tuple[str, RenderableType]]:
        yield "pending", Group(_bar(progress, self._pending_max), _legend(progress))
        if progress.transactions:
            yield "committed", _committed(progress)
            yield "next", _next(progress)
        else:
            yield "committed", Text(f"nothing yet: {activity(progress)}")
        if progress.total:
            yield "input", _input(progress, self._rate.secs_left)
        average, recent = f"{self._rate.average:,.0f}/s", f"{self._rate.recent:,.0f}/s"
        rate = Text.assemble((f"{progress.tuples:,}", "bold"), f"   {average}, recently {recent}   ")
        yield "tuples", rate.append(self._rate.history, "green")
        for component, subject, values in readings_of(progress.readings):
            if not subject:
                yield component, Text(values)
        yield "failures", Text(f"{progress.failures:,}", "bold yellow" if progress.failures else "")
        if progress.last_failure:
            yield "", Text(f"the last failure: {reason_of(progress, _REASON_MAX)}", "yellow")


def _waiting(stage: str) -> Spinner:
    return Spinner("dots", Text(f"{stage} …"), style="green")


def _input(progress: Progress, secs_left: float | None) -> Text:
    text = Text(share_of(progress))
    return text if secs_left is None else text.append(f", {time_left(secs_left)}")


def _bar(progress: Progress, pending_max: int) -> Text:
    """Draw the pending transactions: one cell for each, or for several if there may be many.

    After a restart with a lower limit there are more of them than may be.
    """
    pending_max = max(pending_max, progress.committing + progress.processed + progress.processing + progress.ready)
    width = min(pending_max, _BAR_WIDTH_MAX)
    bar = Text(no_wrap=True)
    drawn, counted_so_far = 0, 0
    for number, style in (
        (progress.committing, _COMMITTING),
        (progress.processed, _WAITING),
        (progress.processing, _PROCESSING),
        (progress.ready, _READY),
    ):
        counted_so_far += number
        until = -(-counted_so_far * width // pending_max)
        bar.append("█" * (until - drawn), style)
        drawn = until
    return bar.append("·" * (width - drawn), "dim")


def _legend(progress: Progress) -> Text:
    return Text("  ").join(
        Text.assemble(("■ ", style), f"{number} {words}")
        for number, words, style in (
            (progress.committing, "committing", _COMMITTING),
            (progress.processed, "waiting", _WAITING),
            (progress.processing, "processing", _PROCESSING),
            (progress.ready, "ready", _READY),
        )
    )


def _committed(progress: Progress) -> Text:
    noun = "transaction" if progress.transactions == 1 else "transactions"
    text = Text.assemble((f"{progress.transactions:,}", "bold"), f" {noun}")
    if progress.committed_txid > progress.transactions + progress.dead_letters:
        text.append(f", {progress.committed_txid:,} with those of earlier runs", "dim")
    if progress.dead_letters:
        text.append(f", {progress.dead_letters:,} dead letters", "bold red")
    return text


def _next(progress: Progress) -> Text:
    words = STATUS_WORDS.get(progress.first_uncommitted_status, "has not begun")
    return Text(f"transaction {progress.committed_txid + 1:,} {words}")
