"""The progress of a plain topology: what is acked, failed and pending, on a terminal or as lines."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from txtopo.assembly.plain.report import PlainReport
from txtopo.cli.console import Console
from txtopo.cli.display.lines import INTERVAL_SECS, Lines
from txtopo.cli.display.live import Display
from txtopo.cli.display.rate import RecentRate
from txtopo.text.words import count_of


class _Rate:
    """How many roots a second are acked, lately; if none is, how many tuples the spouts emit."""

    def __init__(self) -> None:
        self._acked, self._emitted = RecentRate(), RecentRate()
        self._is_acking = False

    def add(self, report: PlainReport) -> None:
        self._acked.add(report.elapsed_secs, report.acked)
        self._emitted.add(report.elapsed_secs, report.emitted)
        self._is_acking = report.acked > 0

    @property
    def recent(self) -> float:
        """The rate over several seconds, because workers report their counts only every second or two."""
        return (self._acked if self._is_acking else self._emitted).per_sec


INTERRUPTED = "interrupted; what was pending is neither acked nor failed, and its source must offer it again"
"""The farewell of an immediate stop: a plain topology has no state to resume from."""


class AckedLines(Lines):
    """Prints a line about every ten seconds: for logs and pipes."""

    def __init__(self, every_secs: float = INTERVAL_SECS) -> None:
        super().__init__("stopping: what is pending is waited for; Ctrl-C again ends at once")
        self._rate = _Rate()
        self._every_secs = every_secs
        self._printed = time.monotonic() - every_secs + 1.0  # the first one soon

    def update(self, report: PlainReport) -> None:
        """Take a report, and print it if the interval has passed."""
        self._rate.add(report)
        self.print_news()
        if report.emitted and time.monotonic() - self._printed >= self._every_secs:
            self._printed = time.monotonic()
            rates = _rates(report, self._rate)
            click.echo(f"{report.topology_id}: {report.elapsed_secs:6.1f} s, {_counts(report)}, {rates}")

    def finish(self, report: PlainReport) -> None:
        """Print the summary of the run."""
        click.echo(f"{report.topology_id}: done in {report.elapsed_secs:.1f} s: {report.reason}; {_counts(report)}")


class AckedDisplay(Display):
    """Redraws the progress of a plain topology."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._rate = _Rate()

    def update(self, report: PlainReport) -> None:
        """Show a report."""
        self._rate.add(report)
        self.draw(report.topology_id, report.elapsed_secs, self._rows(report))

    def finish(self, report: PlainReport) -> None:
        """Replace the display with the summary of the run."""
        self._live.stop()
        self._console.print(Text.assemble(("✔ ", "bold green"), (report.topology_id, "bold"), f": {report.reason}"))
        self._console.print(f"{_counts(report)} in {report.elapsed_secs:.1f} s")

    def _rows(self, report: PlainReport) -> Iterator[tuple[str, RenderableType]]:
        yield "roots", Text(_counts(report))
        yield "", Text(_rates(report, self._rate))
        workers = f"{report.workers_running} of {report.workers} run, {count_of(report.restarts, 'restart')}"
        yield "workers", Text(workers, "yellow" if report.workers_running < report.workers else "")
        for name, counts in report.components.items():
            emitted = sum(counts.emitted.values())
            yield name, Text(f"{counts.executed:,} executed, {emitted:,} emitted, {counts.failed:,} failed")
        if report.last_error:
            yield "last error", Text(report.last_error, "yellow")


def _counts(report: PlainReport) -> str:
    least = "at least " if report.workers_killed else ""  # their last counts died with them
    parts = [
        f"{least}{report.emitted:,} emitted",
        f"{least}{report.acked:,} acked",
        f"{least}{report.failed:,} failed",
        f"{report.pending:,} pending",
    ]
    if report.restarts:
        parts.append(count_of(report.restarts, "worker restart"))
    return ", ".join(parts)


def _rates(report: PlainReport, rate: _Rate) -> str:
    recent = rate.recent
    per_sec = f"{recent:,.0f}/s" if recent >= 10 or not recent else f"{recent:.2g}/s"  # noqa: PLR2004 - two digits
    if report.latency_p50_secs is None or report.latency_p99_secs is None:
        return per_sec
    p50, p99 = _millis(report.latency_p50_secs), _millis(report.latency_p99_secs)
    return f"{per_sec}, complete latency p50 {p50}, p99 {p99}"


def _millis(secs: float) -> str:
    millis = secs * 1e3
    return f"{millis:,.0f} ms" if millis >= 100 else f"{millis:.3g} ms"  # noqa: PLR2004 - three digits say enough
