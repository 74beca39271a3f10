"""Large commits: a transaction that touches every key of a table, by the driver, by the executors, and by ``MERGE``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.harness.benchmarks.bench import Bench
from tests.harness.benchmarks.inputs.checking import check_delta
from tests.harness.benchmarks.inputs.rows import TouchedKeys, rows_of
from tests.harness.benchmarks.measuring import Contender, Sample, measure
from tests.harness.benchmarks.memory import MemorySampler
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.topologies import STATE, big_state as topology
from tests.harness.benchmarks.txtopo_contender import TXTOPO
from txtopo import Config, run

SIZES = (100_000, 1_000_000, 10_000_000)
"""Keys of the table, and of the transaction."""

EXECUTORS, DRIVER, MERGE = f"{TXTOPO}, executors", f"{TXTOPO}, driver", "delta-spark MERGE"
PEAK = "Python peak MiB"
DRIVER_KEYS_MAX = 1_000_000
"""Larger transactions are not folded in the driver here, because its memory is what is measured."""


def large_commits(bench: Bench) -> Outcome:
    """Measure the commit of one transaction by its number of keys, and the driver's memory."""
    measured = measure(_contenders, bench)
    smallest, *_, largest = (f"{EXECUTORS}, {_keys(bench, size):,} keys" for size in SIZES)
    return Outcome(
        workload="large_commits",
        title="every key of a table touched: commit phase and Delta write",
        unit=Unit("ms, or MiB", is_lower_better=True),
        lines=measured.lines,
        targets=(Target(f"{largest} {PEAK}", f"{smallest} {PEAK}", 1.1, is_at_most=True),),
        phases=measured.phases,
        notes=(
            "the table is filled by a first transaction; the figure is the second one's, which touches each key again",
            f"txtopo folds {EXECUTORS.partition(', ')[2]} where a group has more than topology.driver.rows.max rows",
            "the MERGE finds its source in a Parquet file; the peak is of the driver's Python process while it ran",
        ),
        settings={"keys": [_keys(bench, size) for size in SIZES]},
    )


def _keys(bench: Bench, size: int) -> int:
    return bench.times(size, 1_000)


def _contenders(bench: Bench) -> Sequence[Contender]:
    contenders = []
    for size in SIZES:
        keys = TouchedKeys(_keys(bench, size), _keys(bench, size))
        label = f"{keys.keys:,} keys"
        contenders.append(Contender(f"{EXECUTORS}, {label}", Role.TXTOPO, _ours(bench, keys, 0)))
        if size <= DRIVER_KEYS_MAX:
            contenders.append(Contender(f"{DRIVER}, {label}", Role.TXTOPO, _ours(bench, keys, 1 << 40)))
            merge = Contender(f"{MERGE}, {label}", Role.PEER, _merge(bench, keys), needs_delta_jars=True)
            contenders.append(merge)
    return contenders


def _ours(bench: Bench, keys: TouchedKeys, driver_rows_max: int) -> Callable[[Path], Sample]:
    def run_once(folder: Path) -> Sample:
        config = Config({"topology.driver.rows.max": driver_rows_max})
        memory = MemorySampler(bench.spark)
        with memory:
            for transactions in (1, 2):
                made = topology(folder, keys, transactions, is_reduced=True)
                report = run(made, config, spark=bench.spark)
        check_delta(made.plan.topology_id, folder / STATE, keys.totals(2))
        return Sample({"": report.commit_secs * 1000, PEAK: memory.peak_mib("python")}, report)

    return run_once


def _merge(bench: Bench, keys: TouchedKeys) -> Callable[[Path], Sample]:
    def run_once(folder: Path) -> Sample:
        from delta.tables import DeltaTable  # whoever has no delta-spark leaves this contender out

        source, table = str(folder / "source"), str(folder / "table")
        spark = bench.spark
        spark.createDataFrame(rows_of(keys.indexes(1))).write.parquet(source)
        frame = spark.read.parquet(source)
        frame.write.format("delta").save(table)
        started = time.perf_counter()
        merger = DeltaTable.forPath(spark, table).alias("t").merge(frame.alias("s"), "t.word = s.word")
        merger.whenMatchedUpdate(set={"n": "t.n + s.n"}).whenNotMatchedInsertAll().execute()
        elapsed_secs = time.perf_counter() - started
        check_delta(MERGE, Path(table), keys.totals(2))
        return Sample({"": elapsed_secs * 1000})

    return run_once
