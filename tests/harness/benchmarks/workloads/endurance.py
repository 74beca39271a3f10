"""Endurance: ten thousand transactions in a row. Is the last tenth as quick as the first, and memory flat?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.harness.benchmarks.bench import Bench
from tests.harness.benchmarks.inputs.rows import DrawnWords
from tests.harness.benchmarks.log_times import visible_at
from tests.harness.benchmarks.measuring import Contender, Sample, measure
from tests.harness.benchmarks.memory import MemorySampler, jvm_heap_mib
from tests.harness.benchmarks.outcome import Line, Outcome, Role, Target, Unit
from tests.harness.benchmarks.topologies import STATE, application, fused
from tests.harness.benchmarks.txtopo_contender import TXTOPO, run_checked
from tests.harness.benchmarks.word_spouts import WordSpout
from txtopo import Config

WORDS = DrawnWords(tuples=1_000)
TRANSACTIONS = 10_000
WINDOW = 256

FIRST, LAST = "first tenth", "last tenth"
LATENCY, GAP = "p99 begun → visible", "p99 between Delta writes, a transaction"
PYTHON, JVM = "Python MiB", "JVM MiB"


def endurance(bench: Bench) -> Outcome:
    """Measure a long run against its own first tenth."""
    measured = measure(_contenders, bench)
    (samples,) = measured.samples.values()
    lines = [
        Line(tenth, Role.TXTOPO, figure, tuple(sample.figures[f"{tenth} {figure}"] for sample in samples))
        for figure in (LATENCY, GAP, PYTHON, JVM)
        for tenth in (FIRST, LAST)
    ]
    return Outcome(
        workload="endurance",
        title=f"{_transactions(bench):,} transactions of {WORDS.tuples:,} tuples in a row",
        unit=Unit("ms or MiB", is_lower_better=True),
        lines=tuple(lines),
        targets=tuple(
            Target(f"{LAST} {figure}", f"{FIRST} {figure}", bound, aim, is_at_most=True)
            for figure, bound, aim in ((LATENCY, 1.2, 1.0), (GAP, 1.2, 1.0), (PYTHON, 1.1, None))
        ),
        phases=measured.phases,
        notes=(
            "begun is when the spout's coordinator was asked for a transaction",
            f"the first {WINDOW} transactions (in a small run a tenth), which fill the window, are left out",
            "memory is the median of resident memory in a tenth of the time",
            "a JVM takes what it may before it collects: its heap after a collection is in the JSON",
        ),
        settings={
            "transactions": _transactions(bench),
            "tuples": WORDS.tuples,
            "keys": WORDS.keys,
            "max_spout_pending": WINDOW,
        },
        series={name: [list(sample.series[name]) for sample in samples] for name in samples[0].series},
    )


def _contenders(bench: Bench) -> Sequence[Contender]:
    transactions = _transactions(bench)

    def once(folder: Path) -> Sample:
        spout = WordSpout(WORDS, transactions)
        topology = fused(folder, spout)
        heap = [jvm_heap_mib(bench.spark)]
        memory = MemorySampler(bench.spark)
        config = Config(max_spout_pending=WINDOW)
        report = run_checked(bench.spark, topology, config, folder, WORDS, transactions, memory)
        heap.append(jvm_heap_mib(bench.spark))
        visible = visible_at(folder / STATE, application(topology.plan.topology_id), 1, transactions)
        begun = np.array([spout.begun_at[txid] for txid in range(1, transactions + 1)])
        latency = (visible - begun) * 1000
        gap = _secs_each(visible, begun[0]) * 1000
        figures = {
            f"{tenth} {name}": float(value)
            for name, values in ((LATENCY, latency), (GAP, gap))
            for tenth, value in zip((FIRST, LAST), _p99_of_tenths(values), strict=True)
        }
        for name, process in ((PYTHON, "python"), (JVM, "jvm")):
            figures[f"{FIRST} {name}"], figures[f"{LAST} {name}"] = memory.tenths_mib(process)
        series = {
            "memory_secs": memory.secs,
            "python_mib": memory.mib["python"],
            "jvm_mib": memory.mib["jvm"],
            "jvm_heap_mib_before_and_after": heap,
            "latency_ms_by_hundredth": _by_hundredth(latency),
        }
        return Sample(figures, report, series)

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


def _by_hundredth(values: np.ndarray) -> list[float]:
    return [round(float(np.median(part)), 2) for part in np.array_split(values, 100) if len(part)]


def _transactions(bench: Bench) -> int:
    return bench.times(TRANSACTIONS, 100)
