"""Outcomes as tables."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from tests.harness.benchmarks.outcome import Line, Outcome, Role, Verdict

_MERGE_PEER = "foreachBatch + MERGE"


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Print figures, targets, phases and notes of a workload."""
    console.print(_figures(outcome))
    verdicts = outcome.verdicts()
    if verdicts:
        console.print(_verdicts(verdicts))
    if outcome.phases:
        console.print(_phases(outcome.phases))
    for note in outcome.notes:
        console.print(f"- {note}", style="dim")
    console.print()


def _figures(outcome: Outcome) -> Table:
    rounds = max(len(line.rounds) for line in outcome.lines)
    table = Table(
        title=f"{outcome.workload}: {outcome.title}\n{outcome.unit.name}, rounds: {rounds}", title_justify="left"
    )
    columns = {
        "x best peer": lambda line: outcome.best(line, Role.PEER),
        "x MERGE peer": lambda line: _line_of(outcome, _MERGE_PEER, line.figure),
        "x limit": lambda line: outcome.best(line, Role.LIMIT),
    }
    shown = {name: against for name, against in columns.items() if any(against(line) for line in outcome.lines)}
    table.add_column("")
    for column in ("median", "min - max", *shown):
        table.add_column(column, justify="right")
    for line in outcome.lines:
        against = [each(line) for each in shown.values()]
        ratios = [_number(outcome.unit.times_better(line.median, each.median)) if each else "" for each in against]
        spread = f"{_number(min(line.rounds))} - {_number(max(line.rounds))}"
        table.add_row(line.name, _number(line.median), spread, *ratios)
    return table


def _line_of(outcome: Outcome, contender: str, figure: str) -> Line | None:
    return next((line for line in outcome.lines if line.contender == contender and line.figure == figure), None)


def _phases(phases: Mapping[str, Mapping[str, str]]) -> Table:
    table = Table(title="where the time of the last round went")
    table.add_column("")
    for contender in phases:
        table.add_column(contender, justify="right")
    for phase in dict.fromkeys(phase for rows in phases.values() for phase in rows):
        table.add_row(phase, *(rows.get(phase, "") for rows in phases.values()))
    return table


def _verdicts(verdicts: list[Verdict]) -> Table:
    table = Table()
    table.add_column("target")
    for column in ("at least", "aim", "measured"):
        table.add_column(column, justify="right")
    table.add_column("")
    for verdict in verdicts:
        target = verdict.target
        sign = "≤ " if target.is_at_most else ""
        word = (
            "[green]aim reached"
            if verdict.is_aim_reached
            else "[green]reached"
            if verdict.is_reached
            else "[red]missed"
        )
        aim = "" if target.aim is None else sign + _number(target.aim)
        name = f"{target.line}, by {target.against}"
        table.add_row(name, sign + _number(target.bound), aim, _number(verdict.ratio), word)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
