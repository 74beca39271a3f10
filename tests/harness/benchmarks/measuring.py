"""Measuring: contenders run in turns, after a warm-up of each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from tests.harness.benchmarks.bench import WARM_UP_SCALE, Bench
from tests.harness.benchmarks.outcome import Line, Role
from tests.harness.benchmarks.phases import phase_rows
from txtopo import RunReport


@attrs.frozen
class Sample:
    """The result of one run of a contender, made only after its totals were checked.

    Args:
        figures: by name, in the workload's unit; the name is empty if there is one figure.
        report: txtopo's own report of the run.
        series: further numbers, for JSON.
    """

    figures: Mapping[str, float]
    report: RunReport | None = None
    series: Mapping[str, Sequence[float]] = attrs.field(factory=dict)


@attrs.frozen
class Contender:
    """One way to compute a workload; ``run`` computes it once, in an empty folder, and checks every total."""

    name: str
    role: Role
    run: Callable[[Path], Sample]
    needs_delta_jars: bool = False


@attrs.frozen
class Measured:
    """The results of all rounds."""

    samples: Mapping[str, tuple[Sample, ...]]
    """By contender, one for each round."""
    lines: tuple[Line, ...]
    phases: Mapping[str, Mapping[str, str]]
    """By contender, the phases of txtopo's last run."""


def measure(
    make: Callable[[Bench], Sequence[Contender]], bench: Bench, warm_up_scale: float = WARM_UP_SCALE
) -> Measured:
    """Run all contenders in turns and return their figures.

    ``make`` returns the contenders for a bench. It is called for the warm-up, with other sizes, and for the rounds.
    """
    if bench.has_warm_up:
        for contender in _able(make(bench.for_warm_up(warm_up_scale)), bench):
            _run(contender, bench, "warm-up")
    contenders = _able(make(bench), bench)
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    # Contenders take turns within a round, so that a change of the machine's load meets all of them.
    for number in range(1, bench.rounds + 1):
        for contender in contenders:
            sample = _run(contender, bench, f"round {number} of {bench.rounds}")
            samples[contender.name].append(sample)
    return Measured(
        samples={name: tuple(each) for name, each in samples.items()},
        lines=tuple(line for contender in contenders for line in _lines(contender, samples[contender.name])),
        phases={
            name: phase_rows(each[-1].report) for name, each in samples.items() if each and each[-1].report is not None
        },
    )


def _able(contenders: Sequence[Contender], bench: Bench) -> list[Contender]:
    return [each for each in contenders if bench.has_delta_jars or not each.needs_delta_jars]


def _run(contender: Contender, bench: Bench, when: str) -> Sample:
    folder = bench.work / "run"
    folder.mkdir(parents=True)
    try:
        with bench.console.status(f"{when}: {contender.name}"):
            return contender.run(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lines(contender: Contender, samples: Sequence[Sample]) -> list[Line]:
    return [
        Line(contender.name, contender.role, figure, tuple(sample.figures[figure] for sample in samples))
        for figure in samples[0].figures
    ]
