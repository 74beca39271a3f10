"""Growth: what a transaction costs with many components, in many partitions, and into many partitions of a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa

from committers import AppendCommitter, ReduceCommitter
from state import DeltaRows, DeltaState
from tests.harness.benchmarks.inputs import DrawnWords, Rows, words
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.topologies import STATE, BatchSpout, PartialCount, WordSpout, fused
from tests.harness.benchmarks.txtopo_contender import run_checked
from txtopo import BasicBolt, BasicOutputCollector, Config, Fields, Topology, TransactionalTopologyBuilder, Tuple

WORDS = DrawnWords(tuples=64, keys=1_000)
TRANSACTIONS = 400
WIDE_TRANSACTIONS = 20
"""Transactions that write many partitions of a table: each a file of its own."""

EACH = "each"
GROWTH = {"components": (20, 200), "partitions": (8, 64), "table partitions": (100, 1_000)}
"""The two sizes of each kind."""

BOUND = 1.1
"""What one of many may cost, relative to one of few: growth in proportion, and what a measurement needs."""


class Pass(BasicBolt):
    """Hands a tuple on."""

    output_fields = Fields("attempt", "word: string", "n: long")

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit(tuple.values)


@attrs.frozen
class EachKeyOnce:
    """Transactions that have each key once."""

    keys: int

    def batch(self, txid: int) -> pa.Table:
        """Return the rows of a transaction."""
        del txid
        return pa.table({"word": pa.array(words(self.keys)), "n": pa.array(np.ones(self.keys, np.int64))})

    def totals(self, transactions: int) -> np.ndarray:
        """Return the totals by key."""
        return np.full(self.keys, transactions, np.int64)


def growth(bench: Bench) -> Outcome:
    """Measure what one more component or partition costs, among few and among many."""
    measured = measure(_contenders, bench)
    return Outcome(
        workload="growth",
        title="processor time of a transaction: all of it, and for each component or partition",
        unit=Unit("ms", is_lower_better=True),
        lines=measured.lines,
        targets=tuple(
            Target(f"{many:,} {what} {EACH}", f"{few:,} {what} {EACH}", BOUND, is_at_most=True)
            for what, (few, many) in GROWTH.items()
        ),
        phases=measured.phases,
        notes=(
            "processor time is that of the driver's Python, and of spouts and bolts in the executors; the JVM is left out",
        ),
    )


def chain(output: Path, spout: WordSpout, components: int) -> Topology:
    """Return drawn words → partial count → bolts that hand on → reduce: so many components."""
    builder = TransactionalTopologyBuilder("chain", "spout", spout, 1)
    builder.set_bolt("partial", PartialCount()).shuffle_grouping("spout")
    source = "partial"
    for number in range(components - 3):
        builder.set_bolt(f"pass{number}", Pass()).shuffle_grouping(source)
        source = f"pass{number}"
    builder.set_committer_bolt("count", ReduceCommitter(STATE, "word", "n")).fields_grouping(source, Fields("word"))
    builder.set_state(STATE, DeltaState(output / STATE, key=Fields("word: string"), value=Fields("n: long")))
    return builder.build()


def into_partitions(output: Path, spout: BatchSpout) -> Topology:
    """Return record batches → rows, each in a partition of its own."""
    builder = TransactionalTopologyBuilder("partitions", "spout", spout, 1)
    builder.set_committer_bolt("append", AppendCommitter(STATE, Fields("word", "n"))).global_grouping("spout")
    builder.set_state(STATE, DeltaRows(output / STATE, Fields("word: string", "n: long"), partition_by="word"))
    return builder.build()


def _contenders(bench: Bench) -> Sequence[Contender]:
    count, wide = bench.times(TRANSACTIONS, 4), bench.times(WIDE_TRANSACTIONS, 2)

    def of(what: str, size: int, rows: Rows, transactions: int, make: Callable[[Path], Topology]) -> Contender:
        def once(folder: Path) -> Sample:
            began = time.process_time()
            report = run_checked(bench.spark, make(folder), Config(), folder, rows, transactions)
            ms = (time.process_time() - began + report.executor_secs) * 1_000 / transactions
            return Sample({"": ms, EACH: ms / size}, report)

        return Contender(f"{size:,} {what}", Role.TXTOPO, once)

    def components(size: int) -> Contender:
        return of("components", size, WORDS, count, lambda folder: chain(folder, WordSpout(WORDS, count), size))

    def partitions(size: int) -> Contender:
        drawn = attrs.evolve(WORDS, tasks=size)
        return of("partitions", size, drawn, count, lambda folder: fused(folder, WordSpout(drawn, count), size))

    def table_partitions(size: int) -> Contender:
        rows = EachKeyOnce(size)
        return of("table partitions", size, rows, wide, lambda folder: into_partitions(folder, BatchSpout(rows, wide)))

    makers = {"components": components, "partitions": partitions, "table partitions": table_partitions}
    return [makers[what](size) for what, sizes in GROWTH.items() for size in sizes]
