"""Small, medium and shuffled transactions: words counted tuple by tuple, beside peers that read them from files."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.harness.benchmarks.inputs import DrawnWords, write_files
from tests.harness.benchmarks.measuring import Bench, Contender, measure
from tests.harness.benchmarks.outcome import Outcome, Target, Unit
from tests.harness.benchmarks.peers import DeltaRsPeer, MergePeer, stream_contender
from tests.harness.benchmarks.topologies import WordSpout, fused, shuffled as shuffled_topology
from tests.harness.benchmarks.txtopo_contender import MODES, TXTOPO, rate_contender
from txtopo import Topology

BATCHES = 12
"""Batches of a peer in a round."""

BATCHES_MIN = 4
"""The first two start the stream, and two more are needed for a time between them."""

_READY_MADE = f"{TXTOPO}, ReduceCommitter"

NOTES = (
    "txtopo's figure is for all transactions from start to stop, a peer's from its third batch on",
    "txtopo draws its words in the emitter, tuple by tuple; the peers read the same words from a Parquet file a batch",
)


def small(bench: Bench) -> Outcome:
    """Measure the cost of a batch apart from its tuples."""
    return _fused(bench, "small", DrawnWords(tuples=1_000), 4_000, 500)


def medium(bench: Bench) -> Outcome:
    """Measure the cost of a tuple in a Python bolt."""
    return _fused(bench, "medium", DrawnWords(tuples=10_000), 1_200, 180)


def shuffled(bench: Bench) -> Outcome:
    """Measure the cost of a tuple that goes to another task."""
    words = DrawnWords(tuples=10_000, tasks=2)
    return _beside_peers(
        bench,
        "shuffled",
        words,
        600,
        lambda folder, count, is_ready_made: shuffled_topology(folder, words, count, 2, is_ready_made=is_ready_made),
        bound=60,
        title="10,000 tuples, 10,000 keys, fields grouping of every tuple",
    )


def _fused(bench: Bench, name: str, words: DrawnWords, transactions: int, bound: float) -> Outcome:
    return _beside_peers(
        bench,
        name,
        words,
        transactions,
        lambda folder, count, is_ready_made: fused(folder, WordSpout(words, count), is_ready_made=is_ready_made),
        bound,
        title=f"{words.tuples:,} tuples, {words.keys:,} keys, per-tuple partial count, fused with the emitter",
    )


def _beside_peers(
    bench: Bench,
    name: str,
    words: DrawnWords,
    transactions: int,
    make: Callable[[Path, int, bool], Topology],
    bound: float,
    title: str,
) -> Outcome:
    """Measure a topology, with a hand-written and with a ready-made committer, beside both peers.

    Args:
        bench: what it runs on.
        name: the workload's.
        words: the words of a transaction.
        transactions: how many of txtopo's are in a round, before scaling.
        make: returns the topology for a folder, a number of transactions, and whether its committer is ready-made.
        bound: the ratio to foreachBatch + MERGE that must be reached.
        title: what is measured.
    """

    def contenders(bench: Bench) -> Sequence[Contender]:
        count, batches = bench.times(transactions, 2), bench.times(BATCHES, BATCHES_MIN)
        source = write_files(bench.work / "inputs", words, batches)

        def ours(mode: str, *, is_ready_made: bool) -> Contender:
            label = f"{mode}, ReduceCommitter" if is_ready_made else mode
            return rate_contender(
                bench.spark, label, lambda folder: make(folder, count, is_ready_made), MODES[mode], words, count
            )

        return [
            *(ours(mode, is_ready_made=is_ready_made) for mode in MODES for is_ready_made in (False, True)),
            stream_contender(bench.spark, MergePeer(), source, words, batches),
            stream_contender(bench.spark, DeltaRsPeer(), source, words, batches),
        ]

    measured = measure(contenders, bench)
    return Outcome(
        workload=name,
        title=title,
        unit=Unit("transactions/s"),
        lines=measured.lines,
        targets=tuple(Target(name, MergePeer.name, bound) for name in (TXTOPO, _READY_MADE)),
        phases=measured.phases,
        notes=NOTES,
    )
