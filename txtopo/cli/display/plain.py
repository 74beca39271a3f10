"""A run's progress as plain lines: for logs and pipes."""

from __future__ import annotations

import time
from typing import Self

import click

from txtopo.cli.display.rate import TupleRate
from txtopo.cli.display.summary import summary_line
from txtopo.cli.display.wording import activity, count_of, reason_of, share_of, time_left
from txtopo.engine.report import Progress, RunReport

INTERVAL_SECS = 10.0
_REASON_MAX = 200


class PlainLines:
    """Prints a line when transactions have begun, and then about every ten seconds."""

    def __init__(self) -> None:
        self._rate = TupleRate()
        self._printed: float | None = None
        self._begun = time.monotonic()
        self._news = ""

    def __enter__(self) -> Self:
        """Nothing is said before there is something to say."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to clear."""

    def stage(self, stage: str) -> None:
        """Say what is being done before the run begins: it takes seconds."""
        click.echo(f"{stage} …")

    def update(self, progress: Progress) -> None:
        """Take a snapshot; print it if it is time to."""
        self._rate.add(progress)
        if self._news:
            click.echo(self._news)
            self._news = ""
        now = time.monotonic()
        if self._printed is None:
            is_due = progress.first_uncommitted_status != "" or now - self._begun >= INTERVAL_SECS
        else:
            is_due = now - self._printed >= INTERVAL_SECS
        if is_due:
            self._printed = now
            click.echo(_line(progress, self._rate))

    def stopping(self) -> None:
        """Say, at the next snapshot, that a stop was asked for; called by a signal handler."""
        self._news = "stopping: what commits just now is committed; Ctrl-C again ends at once"

    def finish(self, report: RunReport) -> None:
        """Print what the run did."""
        click.echo(f"{report.topology_id}: {summary_line(report)}")


def _line(progress: Progress, rate: TupleRate) -> str:
    if not progress.transactions:
        parts = [f"nothing committed yet: {activity(progress)}"]
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
    parts.append(count_of(progress.failures, "replay"))
    if progress.last_failure:
        parts.append(f"the last failure: {reason_of(progress, _REASON_MAX)}")
    if progress.dead_letters:
        parts.append(count_of(progress.dead_letters, "dead letter"))
    return f"{progress.topology_id}: {progress.elapsed_secs:6.1f} s, {', '.join(parts)}"
