"""Endurance: ten thousand transactions in a row. Is the last tenth as quick as the first, and memory flat?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.harness.benchmarks.inputs import DrawnWords
from tests.harness.benchmarks.log_times import visible_at
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.memory import MemorySampler
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.topologies import STATE, WordSpout, application, fused
from tests.harness.benchmarks.txtopo_contender import TXTOPO, run_checked
from txtopo import Config

WORDS = DrawnWords(tuples=1_000)
TRANSACTIONS = 10_000
WINDOW = 256

FIRST, LAST = "first tenth", "last tenth"
LATENCY, GAP = "p99 begun → visible", "p99 between Delta writes, a transaction"
PYTHON = "Python MiB"


def endurance(bench: Bench) -> Outcome:
    """Measure a long run against its own first tenth."""
    measured = measure(_contenders, bench)
    return Outcome(
        workload="endurance",
        title=f"{_transactions(bench):,} transactions of {WORDS.tuples:,} tuples in a row",
        unit=Unit("ms or MiB", is_lower_better=True),
        lines=measured.lines,
        targets=tuple(
            Target(f"{TXTOPO} {figure}, {LAST}", f"{TXTOPO} {figure}, {FIRST}", bound, is_at_most=True)
            for figure, bound in ((LATENCY, 1.2), (GAP, 1.2), (PYTHON, 1.1))
        ),
        phases=measured.phases,
        notes=(
            "begun is when the spout's coordinator was asked for a transaction",
            f"the first {WINDOW} transactions (in a small run a tenth), which fill the window, are left out",
            "memory is the median of resident memory in a tenth of the time",
        ),
    )


def _contenders(bench: Bench) -> Sequence[Contender]:
    transactions = _transactions(bench)

    def once(folder: Path) -> Sample:
        spout = WordSpout(WORDS, transactions)
        topology = fused(folder, spout)
        memory = MemorySampler()
        config = Config(max_spout_pending=WINDOW)
        report = run_checked(bench.spark, topology, config, folder, WORDS, transactions, memory)
        visible = visible_at(folder / STATE, application(topology.plan.topology_id), 1, transactions)
        begun = np.array(spout.begun_at)
        latency = (visible - begun) * 1000
        gap = _secs_each(visible, begun[0]) * 1000
        figures = {}
        for name, (first, last) in {
            LATENCY: _p99_of_tenths(latency),
            GAP: _p99_of_tenths(gap),
            PYTHON: memory.tenths_mib(),
        }.items():
            figures |= {f"{name}, {FIRST}": first, f"{name}, {LAST}": last}
        return Sample(figures, report)

    return [Contender(TXTOPO, Role.TXTOPO, once)]


def _secs_each(visible: np.ndarray, start: float) -> np.ndarray:
    """Return for each transaction its share of the time since the Delta write before its own."""
    times, members, counts = np.unique(visible, return_inverse=True, return_counts=True)
    gaps = np.diff(times, prepend=start) / counts
    return gaps[members]


def _p99_of_tenths(values: np.ndarray) -> tuple[float, float]:
    tenth = max(1, len(values) // 10)
    start = min(WINDOW, tenth)
    return float(np.percentile(values[start : start + tenth], 99)), float(np.percentile(values[-tenth:], 99))


def _transactions(bench: Bench) -> int:
    return bench.times(TRANSACTIONS, 100)
