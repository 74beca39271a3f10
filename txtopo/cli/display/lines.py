"""A run's progress as plain lines, for logs and pipes."""

from __future__ import annotations

import time
from typing import Self

import click

from txtopo.assembly.report import Progress, RunReport
from txtopo.cli.display.rate import TupleRate
from txtopo.cli.display.summary import summary_line
from txtopo.cli.display.wording import activity, reason_of, share_of, time_left
from txtopo.inspect.past.wording import readings_of
from txtopo.text.words import count_of

INTERVAL_SECS = 10.0
_REASON_MAX = 200


class Lines:
    """Plain lines of progress; ``stopping`` is the line for a requested stop."""

    def __init__(self, stopping: str) -> None:
        self._on_stop = stopping
        self._news = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def stage(self, stage: str) -> None:
        """Print the current step before the run begins, because it takes seconds."""
        click.echo(f"{stage} …")

    def stopping(self) -> None:
        """Record a stop request, to be printed with the next progress; called by a signal handler."""
        self._news = self._on_stop

    def print_news(self) -> None:
        """Print a recorded stop request."""
        if self._news:
            click.echo(self._news)
            self._news = ""


class ProgressLines(Lines):
    """Prints a line when the first transactions have begun, and then about every 10 seconds."""

    def __init__(self) -> None:
        super().__init__("stopping: the commit in progress is finished; Ctrl-C again stops immediately")
        self._rate = TupleRate()
        self._printed: float | None = None
        self._begun = time.monotonic()

    def update(self, progress: Progress) -> None:
        """Take a snapshot, and print it if the interval has passed."""
        self._rate.add(progress)
        self.print_news()
        now = time.monotonic()
        if self._printed is None:
            is_due = progress.first_uncommitted_status != "" or now - self._begun >= INTERVAL_SECS
        else:
            is_due = now - self._printed >= INTERVAL_SECS
        if is_due:
            self._printed = now
            click.echo(_line(progress, self._rate))

    def finish(self, report: RunReport) -> None:
        """Print the summary of the run."""
        click.echo(f"{report.topology_id}: {summary_line(report)}")


def _line(progress: Progress, rate: TupleRate) -> str:
    if not progress.transactions:
        so_far = (
            f"going on after transaction {progress.committed_txid:,}"
            if progress.committed_txid
            else "nothing committed yet"
        )
        parts = [f"{so_far}: {activity(progress)}"]
    else:
        share = share_of(progress)
        committed = f"{progress.transactions:,} committed (the last is {progress.committed_txid:,}"
        parts = [
            f"{committed}{f', {share}' if share else ''})",
            f"{progress.committing} committing",
            f"{progress.processed} waiting",
            f"{progress.processing} processing",
            f"{progress.ready} ready",
            f"{progress.tuples:,} tuples ({rate.average:,.0f}/s, recently {rate.recent:,.0f}/s)",
        ]
    if rate.secs_left is not None:
        parts.append(time_left(rate.secs_left))
    parts += [f"{component}: {values}" for component, subject, values in readings_of(progress.readings) if not subject]
    parts.append(count_of(progress.failures, "failure"))
    if progress.last_failure:
        parts.append(f"the last failure: {reason_of(progress, _REASON_MAX)}")
    if progress.dead_letters:
        parts.append(count_of(progress.dead_letters, "dead letter"))
    return f"{progress.topology_id}: {progress.elapsed_secs:6.1f} s, {', '.join(parts)}"
