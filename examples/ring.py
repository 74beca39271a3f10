"""A ring that transactions rewire, to check that each of them runs exactly once, in order and in both tables.

Two tables, ``next`` and ``back``, hold a ring of nodes. Like FoundationDB's Cycle workload, a transaction takes three
neighbours and swaps the first two. So each transaction depends on all earlier ones: if one ran twice, ran out of order
or reached only one of the tables, the ring would differ or be broken.

Run it with ``txtopo run examples.ring``, or through a thousand disasters: ``txtopo simulate examples.ring``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table
from txtopo import (
    BatchBolt,
    BatchOutputCollector,
    Fields,
    ICommitter,
    TopologyContext,
    TransactionalTopology,
    TransactionalTopologyBuilder as Builder,
    Tuple,
)

OUTPUT = "txtopo-data/ring"
NODES = 7
TURNS = 24


class Rethread(BatchBolt, ICommitter):
    """Swaps two neighbours for each tuple, one after another."""

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Get both tables."""
        self.next = context.state("next")
        self.back = context.state("back")
        self.turns: list[tuple[int, int]] = []

    def execute(self, tuple: Tuple) -> None:
        """Record where to swap; runs in the processing phase."""
        self.turns.append((tuple["turn"], tuple["node"]))

    def finish_batch(self) -> None:
        """Swap two neighbours: ``before → a → b → after`` becomes ``before → b → a → after``."""
        if not self.turns:
            return
        ring = threaded({node: kept.value for node in range(NODES) if (kept := self.next.get(node)) is not None})
        for _, before in sorted(self.turns):  # tuples of several spout tasks arrive in any order
            a = ring[before]
            b = ring[a]
            ring[before], ring[a], ring[b] = b, ring[b], a
        self.next.multi_put(list(ring), list(ring.values()))
        self.back.multi_put(list(ring.values()), list(ring))


def threaded(ring: Mapping[int, int]) -> dict[int, int]:
    """Return the stored ring, or the initial one, in which each node is followed by the next number."""
    return dict(ring) or {node: (node + 1) % NODES for node in range(NODES)}


def check_state(tables: Mapping[str, Mapping[Any, Any]]) -> None:
    """Check that both tables hold the same ring; the simulator calls this after every transaction."""
    ring = threaded(tables["next"])
    node, seen = 0, []
    for _ in range(NODES):
        seen.append(node)
        node = ring[node]
    assert node == 0, f"the ring does not close: {ring}"
    assert len(set(seen)) == NODES, f"the ring has lost nodes: {ring}"
    assert not tables["back"] or all(tables["back"][ring[n]] == n for n in ring), "one table is behind the other"


def topology(output: str = OUTPUT, turns: int = TURNS, parallelism: int = 2) -> TransactionalTopology:
    """Return the topology, which makes ``turns`` swaps, some in each transaction."""
    rows = [[turn, (turn * turn + turn // 3) % NODES] for turn in range(turns)]
    spout = MemoryTransactionalSpout({0: rows[0::2], 1: rows[1::2]}, Fields("turn: long", "node: long"), 2)
    builder = Builder("ring", "spout", spout, parallelism)
    builder.set_committer_bolt("rethread", Rethread(), 1).global_grouping("spout")
    for name in ("next", "back"):
        table = DeltaState(f"{output}/{name}", key=Fields("node: long"), value=Fields("neighbour: long"))
        builder.set_state(name, table)
    return builder.build()


def show_results(console: Console, output: str) -> None:
    """Print the ring."""
    rows = read_table(f"{output}/next").to_pylist()
    ring = threaded({row["node"]: row["neighbour"] for row in rows})
    node, shown = 0, ["0"]
    for _ in range(NODES):
        node = ring[node]
        shown.append(str(node))
    console.print(f"the ring: {' → '.join(shown)}; the tables are in {output}", soft_wrap=True)
