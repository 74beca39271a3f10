"""A run's progress as plain lines: for logs and pipes."""

from __future__ import annotations

import time
from typing import Self

import click

from txtopo.cli.rate import TupleRate
from txtopo.cli.summary import summary_line
from txtopo.monitor.report import Progress, RunReport

INTERVAL_SECS = 2.0


class PlainLines:
    """Prints a line about every two seconds."""

    def __init__(self) -> None:
        self._rate = TupleRate()
        self._printed = 0.0
        self._news = ""

    def __enter__(self) -> Self:
        """Say at once that something happens: Spark takes seconds to start."""
        click.echo("starting Spark …")
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to clear."""

    def update(self, progress: Progress) -> None:
        """Take a snapshot; print it if it is time to."""
        self._rate.add(progress)
        if self._news:
            click.echo(self._news)
            self._news = ""
        now = time.monotonic()
        if now - self._printed >= INTERVAL_SECS:
            self._printed = now
            click.echo(_line(progress, self._rate.per_second))

    def stopping(self) -> None:
        """Say, at the next snapshot, that a stop was asked for; called by a signal handler."""
        self._news = "stopping: what commits just now is committed; Ctrl-C again ends at once"

    def finish(self, report: RunReport) -> None:
        """Print what the run did."""
        click.echo(f"{report.topology_id}: {summary_line(report)}")


def _line(progress: Progress, tuples_per_sec: float) -> str:
    parts = [
        f"{progress.elapsed_secs:6.1f} s",
        f"{progress.transactions} committed (the last is {progress.committed_txid})",
        f"{progress.committing} committing",
        f"{progress.processed} waiting",
        f"{progress.processing} processing",
        f"{progress.ready} ready",
        f"{progress.tuples} tuples ({tuples_per_sec:.0f}/s)",
        f"{progress.failures} replays",
    ]
    if progress.dead_letters:
        parts.append(f"{progress.dead_letters} dead letters")
    return f"{progress.topology_id}: {', '.join(parts)}"
