"""The summary at the end of a run."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from txtopo.assembly.report import RunReport
from txtopo.cli.console import Console
from txtopo.text.words import count_of
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.core.readings import ReadingKind


def is_stopped_early(report: RunReport) -> bool:
    """Whether the run was stopped on request."""
    return report.reason == StopReason.REQUESTED.value


def summary_line(report: RunReport) -> str:
    """Return a report as one line."""
    parts = [
        count_of(report.transactions, "transaction") + f" committed, the last is {report.committed_txid}",
        count_of(report.tuples, "tuple") + f" ({_per_second(report.tuples, report)}/s)",
        count_of(report.failures, "failure"),
    ]
    if report.dead_letters:
        parts.append(count_of(report.dead_letters, "dead letter"))
    parts += [f"{count_of(rows, 'row')} in {name}" for name, rows in report.spout_rows.items()]
    return f"done in {report.elapsed_secs:.1f} s: {report.reason}; {'; '.join(parts)}"


def print_summary(console: Console, report: RunReport, spark_secs: float) -> None:
    """Print a report for a person."""
    mark = ("■ ", "bold yellow") if is_stopped_early(report) else ("✔ ", "bold green")
    console.print(Text.assemble(mark, (report.topology_id, "bold"), f": {report.reason}"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", justify="right")
    grid.add_column(justify="right", style="bold")
    grid.add_column()
    transactions = f"committed, {_per_second(report.transactions, report)}/s; the last is {report.committed_txid}"
    grid.add_row("transactions", f"{report.transactions:,}", transactions)
    grid.add_row("tuples", f"{report.tuples:,}", f"{_per_second(report.tuples, report)}/s")
    grid.add_row("failures", f"{report.failures:,}", f"of {count_of(report.attempts, 'attempt')}")
    if report.dead_letters:
        grid.add_row("dead letters", f"{report.dead_letters:,}", "transactions given up")
    for name, rows in report.spout_rows.items():
        grid.add_row(name, f"{rows:,}", "rows written by the spout itself")
    for reading in report.readings:
        if reading.kind is ReadingKind.COUNT:
            grid.add_row(reading.name, f"{reading.value:,}", f"counted by {reading.component}")
    phases = f"processing {report.processing_secs:.1f} s, commit {report.commit_secs:.1f} s"
    grid.add_row("time", f"{report.elapsed_secs:.1f} s", f"{phases}; before that, {spark_secs:.1f} s to start Spark")
    console.print(grid)


def _per_second(number: int, report: RunReport) -> str:
    rate = number / report.elapsed_secs if report.elapsed_secs > 0 else 0.0
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"  # noqa: PLR2004 - two digits say enough
