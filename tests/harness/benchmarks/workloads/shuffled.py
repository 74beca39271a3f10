"""Shuffled transactions: the cost of a tuple that goes to another task."""

from __future__ import annotations

from tests.harness.benchmarks.bench import Bench
from tests.harness.benchmarks.inputs.rows import DrawnWords
from tests.harness.benchmarks.outcome import Outcome
from tests.harness.benchmarks.topologies import shuffled as shuffled_topology
from tests.harness.benchmarks.workloads.beside_peers import beside_peers

TASKS = 2
WORDS = DrawnWords(tuples=10_000, tasks=TASKS)
TRANSACTIONS = 600


def shuffled(bench: Bench) -> Outcome:
    """Measure transactions of 10,000 tuples, each of which goes to the committer by a fields grouping."""
    return beside_peers(
        bench,
        "shuffled",
        WORDS,
        TRANSACTIONS,
        lambda folder, count, is_ready_made: shuffled_topology(
            folder, WORDS, count, TASKS, is_ready_made=is_ready_made
        ),
        bounds=(60, 120),
        title="10,000 tuples, 10,000 keys, fields grouping of every tuple",
    )
