"""The outcome of a workload: the figures of each round, ratios and targets; as tables and as JSON."""

import enum
import json
import os
import platform
import statistics
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from tests.harness.benchmarks.history import Entry, history, last_like, moved


class Role(enum.Enum):
    TXTOPO = "txtopo"
    PEER = "peer"
    LIMIT = "limit"


@attrs.frozen
class Unit:
    """The unit of figures, and whether lower ones are better."""

    name: str
    is_lower_better: bool = False

    def times_better(self, figure: float, than: float) -> float:
        """Return how many times better one figure is than another."""
        return than / figure if self.is_lower_better else figure / than


@attrs.frozen
class Line:
    """One figure of one contender, in each round."""

    contender: str
    role: Role
    figure: str
    """The name of the figure, such as ``p99``; empty if the contender has one."""
    rounds: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.contender} {self.figure}".strip()

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


@attrs.frozen
class Target:
    """A ratio to reach, between two lines given by name.

    Args:
        line: the line to judge.
        against: the line to compare it with.
        bound: the ratio that must be reached.
        is_at_most: the ratio is figure by figure and must not be above the bound. Otherwise it says how many times
            better the figure is, and must not be below the bound.
    """

    line: str
    against: str
    bound: float
    is_at_most: bool = False


@attrs.frozen
class Verdict:
    """A target, the ratio that was measured, and whether it keeps the bound."""

    target: Target
    ratio: float
    is_reached: bool


@attrs.frozen
class Outcome:
    """The result of a workload.

    Args:
        workload: its name.
        title: what is measured, in a line.
        unit: of all figures.
        lines: the figures.
        targets: the ratios to reach; targets whose lines were not measured are skipped.
        phases: for each of txtopo's set-ups, the phases of its last round and how long they took.
        notes: what a reader must know to judge the figures.
    """

    workload: str
    title: str
    unit: Unit
    lines: tuple[Line, ...]
    targets: tuple[Target, ...] = ()
    phases: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()

    def verdicts(self) -> list[Verdict]:
        """Return the ratio of each target whose lines were measured."""
        by_name = {line.name: line for line in self.lines}
        verdicts = []
        for target in self.targets:
            if target.line in by_name and target.against in by_name:
                figure, against = by_name[target.line].median, by_name[target.against].median
                ratio = figure / against if target.is_at_most else self.unit.times_better(figure, against)
                is_reached = ratio <= target.bound if target.is_at_most else ratio >= target.bound
                verdicts.append(Verdict(target, ratio, is_reached))
        return verdicts

    def best(self, line: Line, role: Role) -> Line | None:
        """Return the best line of a role with the same figure as ``line``; None if there is none."""
        lines = [each for each in self.lines if each.role is role and each.figure == line.figure]
        if not lines:
            return None
        return (min if self.unit.is_lower_better else max)(lines, key=lambda each: each.median)


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
    for column in ("at least", "measured"):
        table.add_column(column, justify="right")
    table.add_column("")
    for verdict in verdicts:
        target = verdict.target
        sign = "≤ " if target.is_at_most else ""
        word = "[green]reached" if verdict.is_reached else "[red]missed"
        name = f"{target.line}, by {target.against}"
        table.add_row(name, sign + _number(target.bound), _number(verdict.ratio), word)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_moved(console: Console, entry: Entry) -> None:
    """Print what has moved by more than noise since the last run in the history that compares."""
    before = last_like(history(), entry)
    if before is None:
        console.print("the history has no run of these workloads on such a machine, with these versions")
        return
    moves = moved(before, entry)
    if not moves:
        console.print(f"nothing has moved by more than noise since {before.at}")
        return
    table = Table(title=f"moved by more than noise since {before.at}", title_justify="left")
    table.add_column("")
    for column in ("before", "now", "times better"):
        table.add_column(column, justify="right")
    for move in moves:
        name = f"{move.workload}: {move.line}"
        table.add_row(name, _number(move.before), _number(move.after), f"{move.times_better:.2f}")
    console.print(table)


def processor() -> str:
    """Return what people call this machine's processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow")


def versions() -> dict[str, str]:
    """Return the versions of Python and the packages that figures depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def write_json(folder: Path, outcome: Outcome, **settings: Any) -> Path:
    """Write an outcome with all rounds, the settings and the versions to ``WORKLOAD.json``, and return its path."""
    document = {
        **attrs.asdict(
            outcome, value_serializer=lambda _, __, value: value.value if isinstance(value, Role) else value
        ),
        "verdicts": [attrs.asdict(verdict) for verdict in outcome.verdicts()],
        "settings": settings,
        "cores": os.cpu_count(),
        "versions": versions(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{outcome.workload}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
