"""Open windows: transactions that touch and close few of a million. Does it cost anything that the others are open?"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from tests.harness.benchmarks.event_time import topologies
from tests.harness.benchmarks.event_time.events import (
    COLUMNS,
    START_MS,
    TIMESTAMP,
    WINDOW_SECS,
    AfterBatches,
    answers,
    check_windows,
)
from tests.harness.benchmarks.event_time.files import write_transactions
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.memory import MemorySampler
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.txtopo_contender import TXTOPO
from txtopo import Config, run

KEYS = 10_000
"""Windows that a transaction touches and closes: one of each key."""
DELAYS = (1, 100)
"""The delays in minutes, which make so many windows of each key stay open: 10,000 and 1,000,000 in all."""
TRANSACTIONS = 100
"""In a round, after those that open the windows."""

PEAK = "Python peak MiB"


def open_windows(bench: Bench) -> Outcome:
    """Measure what a transaction costs with few and with many windows open."""
    measured = measure(_contenders, bench)
    few, many = (_name(bench, delay) for delay in DELAYS)
    return Outcome(
        workload="open_windows",
        title=f"transactions that touch and close {_keys(bench):,} windows each",
        unit=Unit("ms a transaction, or MiB", is_lower_better=True),
        lines=measured.lines,
        targets=(Target(f"{many} commits", f"{few} commits", 1.3, is_at_most=True),),
        phases=measured.phases,
        notes=(
            "the events are the same; a longer delay keeps more windows open",
            f"measured is a run of {_transactions(bench)} transactions after another that has opened the windows",
            "commits are RunReport.commit_secs by transactions, without the start, which reads the open windows",
        ),
    )


@attrs.frozen
class _Minutes:
    """Transactions of a minute of event time, in which each key has one event."""

    keys: int

    def table(self, transactions: int) -> pa.Table:
        count = self.keys * transactions
        times_us = START_MS * 1000 + np.arange(count) * (WINDOW_SECS * 1_000_000) // self.keys
        names = pa.array([f"k{key}" for key in range(self.keys)])
        return pa.table(
            {
                "key": names.take(pa.array(np.arange(count) % self.keys)),
                "at": pa.array(times_us).cast(TIMESTAMP),
                "value": pa.array(np.ones(count, np.int64)),
            }
        )


def _contenders(bench: Bench) -> Sequence[Contender]:
    return [Contender(_name(bench, delay), Role.TXTOPO, functools.partial(_run, bench, delay)) for delay in DELAYS]


def _run(bench: Bench, delay: int, folder: Path) -> Sample:
    keys, filling = _keys(bench), max(DELAYS) + 2  # both are filled by the same transactions
    transactions = filling + _transactions(bench)
    events = _Minutes(keys).table(transactions)
    prepared = sorted(write_transactions(bench.work / "inputs" / f"minutes, {len(events)}", events, keys).iterdir())
    source = folder / "source"
    source.mkdir()
    files = len(prepared) // transactions
    topology = functools.partial(topologies.windows, source, folder, delay * WINDOW_SECS)
    for part in (prepared[: filling * files], prepared[filling * files :]):
        for path in part:
            os.link(path, source / path.name)
        with MemorySampler() as memory:
            report = run(topology(), Config(), spark=bench.spark)
    closed = pa.table(DeltaTable(str(folder / topologies.TABLE)).scan(columns=list(COLUMNS)))
    check_windows(_name(bench, delay), closed, answers(events, AfterBatches(keys, 1, delay * WINDOW_SECS)))
    cost_ms = report.commit_secs / report.transactions * 1000
    return Sample({"commits": cost_ms, PEAK: memory.peak_mib()}, report)


def _name(bench: Bench, delay: int) -> str:
    return f"{TXTOPO}, {_keys(bench) * delay:,} open windows,"


def _keys(bench: Bench) -> int:
    return bench.times(KEYS, 100)


def _transactions(bench: Bench) -> int:
    return bench.times(TRANSACTIONS, 4)
