"""Scale: the cost of a run as one size grows and the others stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from tests.harness.benchmarks.bench import Bench
from tests.harness.benchmarks.inputs.rows import DrawnWords
from tests.harness.benchmarks.measuring import Contender, Sample, measure
from tests.harness.benchmarks.memory import MemorySampler
from tests.harness.benchmarks.outcome import Outcome, Role, Unit
from tests.harness.benchmarks.topologies import fused
from tests.harness.benchmarks.txtopo_contender import run_checked
from tests.harness.benchmarks.word_spouts import WordSpout
from txtopo import Config


@attrs.frozen
class Point:
    """One run of a series."""

    transactions: int = 500
    tuples: int = 1_000
    keys: int = 10_000
    parallelism: int = 1
    window: int = 256

    def scaled(self, bench: Bench) -> Point:
        """Return the point for a bench: with fewer transactions, since the other sizes are compared."""
        return attrs.evolve(self, transactions=bench.times(self.transactions, 4))


SERIES: Mapping[str, Mapping[int, Point]] = {
    "transactions": {n: Point(transactions=n) for n in (100, 300, 1_000, 3_000)},
    "tuples": {n: Point(transactions=max(20, 500_000 // n), tuples=n) for n in (100, 1_000, 10_000, 100_000)},
    "keys": {n: Point(transactions=200, tuples=10_000, keys=n) for n in (1_000, 10_000, 100_000, 1_000_000)},
    "parallelism": {n: Point(transactions=200, tuples=10_000, parallelism=n) for n in (1, 2, 4, 8)},
    "window": {n: Point(transactions=max(60, 3 * n), window=n) for n in (1, 4, 16, 64, 256, 768)},
}
"""By the size that grows, its runs; spout, bolt and committer all have the parallelism."""


def scale(bench: Bench) -> Outcome:
    """Measure each series; each of its runs is a contender."""
    measured = measure(_contenders, bench)
    series = {
        name: [
            {name: getattr(point.scaled(bench), name), **_middle(measured.samples[_label(name, value)])}
            for value, point in points.items()
        ]
        for name, points in SERIES.items()
    }
    return Outcome(
        workload="scale",
        title="cost against transactions, tuples, keys, parallelism, window",
        unit=Unit("tuples/s"),
        lines=measured.lines,
        notes=(
            "parallelism is that of spout, bolt and committer; the layout is txtopo's own choice",
            "a process seldom gives memory back, so the plots show what it has taken so far, run by run",
        ),
        settings={name: [attrs.asdict(p.scaled(bench)) for p in points.values()] for name, points in SERIES.items()},
        series=series,
    )


def _contenders(bench: Bench) -> list[Contender]:
    return [
        Contender(_label(name, value), Role.TXTOPO, _runner(bench, point.scaled(bench)))
        for name, points in SERIES.items()
        for value, point in points.items()
    ]


def _runner(bench: Bench, point: Point) -> Callable[[Path], Sample]:
    words = DrawnWords(point.tuples, point.keys, point.parallelism)

    def once(folder: Path) -> Sample:
        topology = fused(folder, WordSpout(words, point.transactions), point.parallelism, max(2, point.parallelism))
        memory = MemorySampler(bench.spark)
        config = Config(max_spout_pending=point.window)
        report = run_checked(bench.spark, topology, config, folder, words, point.transactions, memory)
        series = {
            "transactions_per_sec": [report.transactions / report.elapsed_secs],
            "commit_ms_a_transaction": [report.commit_secs / report.transactions * 1000],
            "python_mib_peak": [memory.peak_mib("python")],
        }
        return Sample({"": report.tuples / report.elapsed_secs}, series=series)

    return once


def _middle(samples: tuple[Sample, ...]) -> dict[str, float]:
    """Return the numbers of the round whose tuples/s are in the middle."""
    middle = sorted(samples, key=lambda sample: sample.figures[""])[len(samples) // 2]
    return {"tuples_per_sec": middle.figures[""], **{name: values[0] for name, values in middle.series.items()}}


def _label(name: str, value: int) -> str:
    return f"{name} {value:,}"
