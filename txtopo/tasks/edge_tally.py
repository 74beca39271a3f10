"""Edge tallies: what producers sent on each edge must be what consumers received.

Storm's acker XORs the ids of a tuple tree. Here each chunk of tuples has an id, drawn from its content, its
edge and its position; producers and consumers keep, for each edge, the number of tuples and the XOR of the ids.
A Spark retry of a bolt that is not deterministic sends other chunks than those already received, and shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs


@attrs.define(eq=True)
class EdgeTally:
    """What was sent and what was received on one edge, for one attempt."""

    sent: int = 0
    sent_ids: int = 0
    received: int = 0
    received_ids: int = 0

    def add(self, other: EdgeTally) -> None:
        """Add what another slot has seen of the same edge and attempt."""
        self.sent += other.sent
        self.sent_ids ^= other.sent_ids
        self.received += other.received
        self.received_ids ^= other.received_ids

    @property
    def is_settled(self) -> bool:
        """Whether all that was sent was received, and nothing else."""
        return self.sent == self.received and self.sent_ids == self.received_ids


def total(tallies: Iterable[Mapping[int, EdgeTally]]) -> dict[int, EdgeTally]:
    """Return the tallies of all slots together, by edge index."""
    sums: dict[int, EdgeTally] = {}
    for tally in tallies:
        for edge, seen in tally.items():
            sums.setdefault(edge, EdgeTally()).add(seen)
    return sums
