"""Large commits: a transaction that touches every key of a table. Does the driver's memory grow with it?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.harness.benchmarks.inputs import TouchedKeys, check_delta
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.memory import MemorySampler
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.topologies import STATE, big_state as topology
from tests.harness.benchmarks.txtopo_contender import TXTOPO
from txtopo import Config, run

SIZES = (100_000, 1_000_000, 10_000_000)
"""Keys of the table, and of the transaction."""

PEAK = "Python peak MiB"


def large_commits(bench: Bench) -> Outcome:
    """Measure the commit of one transaction that the executors fold, by its number of keys, and the driver's memory."""
    measured = measure(_contenders, bench)
    smallest, *_, largest = (_label(bench.times(size, 1_000)) for size in SIZES)
    return Outcome(
        workload="large_commits",
        title="every key of a table touched: commit phase and Delta write",
        unit=Unit("ms, or MiB", is_lower_better=True),
        lines=measured.lines,
        targets=(Target(f"{largest} {PEAK}", f"{smallest} {PEAK}", 1.1, is_at_most=True),),
        phases=measured.phases,
        notes=(
            "the table is filled by a first transaction; the figure is the second one's, which touches each key again",
            "the peak is of the driver's Python process while it ran",
        ),
    )


def _contenders(bench: Bench) -> Sequence[Contender]:
    def of(keys: TouchedKeys) -> Contender:
        return Contender(_label(keys.keys), Role.TXTOPO, lambda folder: _run(bench, keys, folder))

    sizes = [bench.times(size, 1_000) for size in SIZES]
    return [of(TouchedKeys(size, size)) for size in sizes]


def _run(bench: Bench, keys: TouchedKeys, folder: Path) -> Sample:
    config = Config({"topology.driver.rows.max": 0})  # the executors fold every group
    with MemorySampler() as memory:
        for transactions in (1, 2):
            made = topology(folder, keys, transactions, is_reduced=True)
            report = run(made, config, spark=bench.spark)
    check_delta(made.plan.topology_id, folder / STATE, keys.totals(2))
    return Sample({"": report.commit_secs * 1000, PEAK: memory.peak_mib()}, report)


def _label(keys: int) -> str:
    return f"{TXTOPO}, {keys:,} keys"
