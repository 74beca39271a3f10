"""Small transactions: the cost of a batch apart from its tuples."""

from __future__ import annotations

from tests.harness.benchmarks.bench import Bench
from tests.harness.benchmarks.inputs.rows import DrawnWords
from tests.harness.benchmarks.outcome import Outcome
from tests.harness.benchmarks.topologies import fused
from tests.harness.benchmarks.word_spouts import WordSpout
from tests.harness.benchmarks.workloads.beside_peers import beside_peers

WORDS = DrawnWords(tuples=1_000)
TRANSACTIONS = 4_000


def small(bench: Bench) -> Outcome:
    """Measure transactions of 1,000 tuples, counted tuple by tuple in Python, fused with the emitter."""
    return beside_peers(
        bench,
        "small",
        WORDS,
        TRANSACTIONS,
        lambda folder, count, is_ready_made: fused(folder, WordSpout(WORDS, count), is_ready_made=is_ready_made),
        bounds=(500, 2_000),
        title="1,000 tuples, 10,000 keys, per-tuple partial count",
    )
