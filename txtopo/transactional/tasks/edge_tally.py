"""Edge tallies: check that consumers received exactly what producers sent on each edge.

Storm's acker XORs the ids of a tuple tree. Here each chunk of tuples has an id, derived from its content, edge and
position; producers and consumers keep, for each edge, the number of tuples and the XOR of the ids. This detects a Spark
retry of a bolt that is not deterministic:

1. Partition A of stage 1 sends chunks to partitions B and C of stage 2. B receives its chunk.
2. Spark loses A's output before C has read it, and runs A again. The bolt now emits different tuples.
3. A's tally contains the new chunks, B's the old one. The ids differ, so the attempt fails and is replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs


@attrs.define(eq=True)
class EdgeTally:
    """The tuples sent and received on one edge, for one attempt."""

    sent: int = 0
    sent_ids: int = 0
    received: int = 0
    received_ids: int = 0

    def add(self, other: EdgeTally) -> None:
        """Add another partition's tally of the same edge and attempt."""
        self.sent += other.sent
        self.sent_ids ^= other.sent_ids
        self.received += other.received
        self.received_ids ^= other.received_ids

    @property
    def agrees(self) -> bool:
        """Whether exactly the sent tuples were received."""
        return self.sent == self.received and self.sent_ids == self.received_ids


def total(tallies: Iterable[Mapping[int, EdgeTally]]) -> dict[int, EdgeTally]:
    """Return the sum of the partitions' tallies, by edge index."""
    sums: dict[int, EdgeTally] = {}
    for tally in tallies:
        for edge, edge_tally in tally.items():
            sums.setdefault(edge, EdgeTally()).add(edge_tally)
    return sums
