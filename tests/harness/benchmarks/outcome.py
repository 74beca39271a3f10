"""The outcome of a workload: the figures of each round, ratios and targets."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Mapping
from typing import Any

import attrs


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
        aim: the ratio to hope for.
        is_at_most: the ratio is figure by figure and must not be above the bound. Otherwise it says how many times
            better the figure is, and must not be below the bound.
    """

    line: str
    against: str
    bound: float
    aim: float | None = None
    is_at_most: bool = False


@attrs.frozen
class Verdict:
    """A target and the ratio that was measured."""

    target: Target
    ratio: float

    @property
    def is_reached(self) -> bool:
        return self._keeps(self.target.bound)

    @property
    def is_aim_reached(self) -> bool:
        return self.target.aim is not None and self._keeps(self.target.aim)

    def _keeps(self, bound: float) -> bool:
        return self.ratio <= bound if self.target.is_at_most else self.ratio >= bound


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
        settings: the sizes, after scaling.
        series: further numbers for JSON and plots.
    """

    workload: str
    title: str
    unit: Unit
    lines: tuple[Line, ...]
    targets: tuple[Target, ...] = ()
    phases: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    series: Mapping[str, Any] = attrs.field(factory=dict)

    def verdicts(self) -> list[Verdict]:
        """Return the ratio of each target whose lines were measured."""
        by_name = {line.name: line for line in self.lines}
        return [
            Verdict(target, self._ratio(target, by_name[target.line], by_name[target.against]))
            for target in self.targets
            if target.line in by_name and target.against in by_name
        ]

    def best(self, line: Line, role: Role) -> Line | None:
        """Return the best line of a role with the same figure as ``line``; None if there is none."""
        lines = [each for each in self.lines if each.role is role and each.figure == line.figure]
        if not lines:
            return None
        return (min if self.unit.is_lower_better else max)(lines, key=lambda each: each.median)

    def _ratio(self, target: Target, line: Line, against: Line) -> float:
        if target.is_at_most:
            return line.median / against.median
        return self.unit.times_better(line.median, against.median)
