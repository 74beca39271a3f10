"""What the workloads small, medium and shuffled have in common: drawn words, beside peers that read them from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.harness.benchmarks.bench import Bench
from tests.harness.benchmarks.inputs.files import write_files
from tests.harness.benchmarks.inputs.rows import DrawnWords
from tests.harness.benchmarks.measuring import Contender, measure
from tests.harness.benchmarks.outcome import Outcome, Target, Unit
from tests.harness.benchmarks.peers.delta_rs import DeltaRsPeer
from tests.harness.benchmarks.peers.merge import MergePeer
from tests.harness.benchmarks.peers.stream import stream_contender
from tests.harness.benchmarks.txtopo_contender import TXTOPO, rate_contender
from txtopo import Config, Topology

BATCHES = 12
"""Batches of a peer in a round."""

BATCHES_MIN = 4
"""The first two start the stream, and two more are needed for a time between them."""

_READY_MADE = f"{TXTOPO}, ReduceCommitter"

NOTES = (
    "txtopo's figure is for all transactions from start to stop, a peer's from its third batch on",
    "txtopo draws its words in the emitter, tuple by tuple; the peers read the same words from a Parquet file a batch",
)


def beside_peers(
    bench: Bench,
    name: str,
    words: DrawnWords,
    transactions: int,
    make: Callable[[Path, int, bool], Topology],
    bounds: tuple[float, float],
    title: str,
) -> Outcome:
    """Measure a topology, with a hand-written and with a ready-made committer, beside both peers.

    Args:
        bench: what it runs on.
        name: the workload's.
        words: the words of a transaction.
        transactions: how many of txtopo's are in a round, before scaling.
        make: returns the topology for a folder, a number of transactions, and whether its committer is ready-made.
        bounds: the ratio to foreachBatch + MERGE that must be reached, and the aim.
        title: what is measured.
    """

    def contenders(bench: Bench) -> Sequence[Contender]:
        count, batches = bench.times(transactions, 2), bench.times(BATCHES, BATCHES_MIN)
        source = write_files(bench.work / "inputs", words, batches)

        def ours(label: str, *, is_ready_made: bool) -> Contender:
            return rate_contender(
                bench.spark, label, lambda folder: make(folder, count, is_ready_made), Config(), words, count
            )

        return [
            ours(TXTOPO, is_ready_made=False),
            ours(_READY_MADE, is_ready_made=True),
            stream_contender(bench.spark, MergePeer(), source, words, batches),
            stream_contender(bench.spark, DeltaRsPeer(), source, words, batches),
        ]

    measured = measure(contenders, bench)
    settings: Mapping[str, int] = {
        "transactions": bench.times(transactions, 2),
        "tuples": words.tuples,
        "keys": words.keys,
        "peer_batches": bench.times(BATCHES, BATCHES_MIN),
    }
    return Outcome(
        workload=name,
        title=title,
        unit=Unit("transactions/s"),
        lines=measured.lines,
        targets=tuple(Target(name, MergePeer.name, *bounds) for name in (TXTOPO, _READY_MADE)),
        phases=measured.phases,
        notes=NOTES,
        settings=settings,
    )
