"""Measuring: contenders run in turns, after a warm-up of each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
from pyspark.sql import SparkSession
from rich.console import Console

from tests.harness.benchmarks.outcome import Line, Role
from txtopo import RunReport

WARM_UP_SCALE = 0.15
"""The size of a warm-up relative to a round, unless a workload gives another."""


@attrs.frozen
class Bench:
    """Session, sizes and a folder.

    Args:
        spark: the session of all contenders.
        work: a folder for tables and inputs, removed at the end.
        console: shows the progress.
        rounds: the number of measured rounds.
        scale: a factor on the sizes; the targets are for 1.
        has_delta_jars: whether Spark itself can write Delta tables; contenders that need it are left out otherwise.
        has_warm_up: whether each contender runs once before it is measured.
    """

    spark: SparkSession
    work: Path
    console: Console
    rounds: int = 3
    scale: float = 1.0
    has_delta_jars: bool = True
    has_warm_up: bool = True

    def times(self, count: int, low: int = 1) -> int:
        """Return a count, scaled, and at least ``low``."""
        return max(low, round(count * self.scale))

    def for_warm_up(self, scale: float) -> Bench:
        """Return a bench with sizes scaled once more, for runs that are not measured."""
        return attrs.evolve(self, scale=self.scale * scale)


@attrs.frozen
class Sample:
    """The result of one run of a contender, made only after its totals were checked.

    Args:
        figures: by name, in the workload's unit; the name is empty if there is one figure.
        report: txtopo's report of the run.
        steps: further phases of it, with their times.
    """

    figures: Mapping[str, float]
    report: RunReport | None = None
    steps: Mapping[str, str] = attrs.field(factory=dict)


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
        lines=tuple(line for contender in contenders for line in _lines(contender, samples[contender.name])),
        phases={
            name: {**each[-1].steps, **phase_rows(each[-1].report)}
            for name, each in samples.items()
            if each and each[-1].report is not None
        },
    )


def _able(contenders: Sequence[Contender], bench: Bench) -> list[Contender]:
    return [contender for contender in contenders if bench.has_delta_jars or not contender.needs_delta_jars]


def _run(contender: Contender, bench: Bench, when: str) -> Sample:
    # Another one each time: what a peer's threads still write after its end may outlive the removal of its folder.
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=bench.work))
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


def phase_rows(report: RunReport) -> Mapping[str, str]:
    """Return the phases of a run, with their times, from the report of a run that has committed something."""
    each = max(report.transactions, 1)
    return {
        "from start to stop": f"{report.elapsed_secs:.2f} s",
        "transactions": f"{report.transactions:,}",
        "attempts, failed": f"{report.attempts:,}, {report.failures:,}",
        "processing, summed over jobs": _share(report.processing_secs, report.elapsed_secs, each),
        "… of it, processor time in spouts and bolts": _share(report.executor_secs, report.elapsed_secs, each),
        "commits": _share(report.commit_secs, report.elapsed_secs, each),
        **{f"… {step}": _share(secs, report.elapsed_secs, each) for step, secs in report.step_secs.items()},
    }


def _share(secs: float, elapsed_secs: float, transactions: int) -> str:
    share = secs / elapsed_secs if elapsed_secs else 0.0
    return f"{secs:.2f} s, {share:.0%}, {secs / transactions * 1000:.2f} ms each"
