"""Medium transactions: the cost of a tuple in a per-tuple Python bolt."""

from __future__ import annotations

from tests.harness.benchmarks.bench import Bench
from tests.harness.benchmarks.inputs.rows import DrawnWords
from tests.harness.benchmarks.outcome import Outcome
from tests.harness.benchmarks.topologies import fused
from tests.harness.benchmarks.word_spouts import WordSpout
from tests.harness.benchmarks.workloads.beside_peers import beside_peers

WORDS = DrawnWords(tuples=10_000)
TRANSACTIONS = 1_200


def medium(bench: Bench) -> Outcome:
    """Measure transactions of 10,000 tuples, counted tuple by tuple in Python, fused with the emitter."""
    return beside_peers(
        bench,
        "medium",
        WORDS,
        TRANSACTIONS,
        lambda folder, count, is_ready_made: fused(folder, WordSpout(WORDS, count), is_ready_made=is_ready_made),
        bounds=(180, 300),
        title="10,000 tuples, 10,000 keys, per-tuple partial count",
    )
