"""A big state: transactions that touch few of five million keys. Does the size of the table cost anything?"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.harness.benchmarks.inputs import TouchedKeys, check_delta
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.peers import merge_rows
from tests.harness.benchmarks.topologies import BatchSpout, big_state as big_topology
from tests.harness.benchmarks.txtopo_contender import TXTOPO, run_checked
from txtopo import Config, RunReport

KEYS = 5_000_000
TOUCHED = 10_000
LOADS = 10
"""Transactions that put all keys into the table at first; one alone would be a test of something else."""
GROUP = 64
TRANSACTIONS = 12 * GROUP
"""In a round."""
MERGES = 5
"""Of the peer, in a round."""

WINDOW = 3 * GROUP
"""A window of which one part is processed, one waits and one is written: jobs of ``GROUP``."""

REDUCE, UPDATE = f"{TXTOPO}, ReduceCommitter", f"{TXTOPO}, multi_update"
PEER = "delta-rs MERGE"
WRITES, COMMITS = "Delta writes", "whole commits"


def big_state(bench: Bench) -> Outcome:
    """Measure Delta writes into a table of many keys, beside a delta-rs MERGE of one transaction."""
    states = bench.work / "states"
    try:
        measured = measure(lambda each: _contenders(each, states / f"{each.scale:g}"), bench)
    finally:
        shutil.rmtree(states, ignore_errors=True)
    return Outcome(
        workload="big_state",
        title=f"{_keys(bench).touched:,} of {_keys(bench).keys:,} keys touched",
        unit=Unit("ms a transaction", is_lower_better=True),
        lines=measured.lines,
        targets=tuple(Target(f"{name} {WRITES}", f"{PEER} {WRITES}", 10) for name in (REDUCE, UPDATE)),
        phases=measured.phases,
        notes=(
            f"txtopo's {COMMITS} are RunReport.commit_secs by transactions: finish_batch, reading, journal and Delta writes",
            f"a MERGE reads and writes in one: its figure stands for {WRITES} and for {COMMITS}",
            "the rounds of a contender go on, one after another, in one table",
            f"the peer merges {_keys(bench).touched:,} rows that lie ready in Arrow into a table of one file",
        ),
    )


class _GrowingTable:
    """A table of txtopo that is filled once; each round adds transactions."""

    def __init__(self, bench: Bench, folder: Path, *, is_reduced: bool) -> None:
        self._bench = bench
        self._folder = folder
        self._is_reduced = is_reduced
        self._keys = _keys(bench)
        self._done = 0

    def run_round(self, _folder: Path) -> Sample:
        """Run a round's transactions and return what their commits cost."""
        if not self._done:
            self._run(LOADS)
        transactions = _transactions(self._bench)
        report = self._run(transactions)
        secs = {WRITES: report.step_secs["table writes"], COMMITS: report.commit_secs}
        return Sample({name: each / transactions * 1000 for name, each in secs.items()}, report)

    def _run(self, transactions: int) -> RunReport:
        self._done += transactions
        topology = big_topology(self._folder, BatchSpout(self._keys, self._done), is_reduced=self._is_reduced)
        config = Config(max_spout_pending=WINDOW, group_transactions_max=GROUP)
        return run_checked(self._bench.spark, topology, config, self._folder, self._keys, self._done)


class _MergedTable:
    """A table that delta-rs merges into, one transaction at a time; filled once, too."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._keys = _keys(bench)
        self._folder = folder
        self._done = 0

    def run_round(self, _folder: Path) -> Sample:
        """Merge some transactions and return what one took."""
        if not self._done:
            for txid in range(1, LOADS + 1):
                write_deltalake(str(self._folder), self._keys.batch(txid), mode="append")
            table = DeltaTable(str(self._folder))
            table.optimize.compact()
            self._done = LOADS
        table = DeltaTable(str(self._folder))
        secs = [self._merge(table) for _ in range(MERGES)]
        check_delta(PEER, self._folder, self._keys.totals(self._done))
        return Sample(dict.fromkeys((WRITES, COMMITS), sum(secs) / len(secs) * 1000))

    def _merge(self, table: DeltaTable) -> float:
        self._done += 1
        rows: pa.Table = self._keys.batch(self._done)
        started = time.perf_counter()
        merge_rows(table, rows, self._done)
        return time.perf_counter() - started


def _contenders(bench: Bench, folder: Path) -> Sequence[Contender]:
    return [
        Contender(REDUCE, Role.TXTOPO, _GrowingTable(bench, folder / "reduce", is_reduced=True).run_round),
        Contender(UPDATE, Role.TXTOPO, _GrowingTable(bench, folder / "update", is_reduced=False).run_round),
        Contender(PEER, Role.PEER, _MergedTable(bench, folder / "merged").run_round),
    ]


def _keys(bench: Bench) -> TouchedKeys:
    keys = bench.times(KEYS, 1_000)
    return TouchedKeys(keys, min(TOUCHED, keys // 10), LOADS)


def _transactions(bench: Bench) -> int:
    return bench.times(TRANSACTIONS, GROUP)
