"""What tasks count: tuples emitted, transferred, executed, acked and failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs


@attrs.frozen
class Counts:
    """What a task has counted since it began, or the sum over tasks.

    Args:
        emitted: calls of emit, by stream.
        transferred: tuples sent; one that was emitted to three tasks is three.
        executed: tuples that a bolt executed, or messages for an acker: inits, acks, failures and resets.
        acked: of a bolt, tuples that it acked; of a spout, roots.
        failed: of a bolt, tuples that it failed; of a spout, roots, those whose timeout passed among them.
    """

    emitted: Mapping[str, int] = attrs.field(factory=dict)
    transferred: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return the sums."""
        return Counts(
            dict(Counter(self.emitted) + Counter(other.emitted)),
            self.transferred + other.transferred,
            self.executed + other.executed,
            self.acked + other.acked,
            self.failed + other.failed,
        )


def by_component(counts: Iterable[tuple[str, Counts]]) -> dict[str, Counts]:
    """Return the sums of counts by component.

    Args:
        counts: of each task, its component and its counts.
    """
    sums: dict[str, Counts] = {}
    for component, each in counts:
        sums[component] = sums.get(component, Counts()) + each
    return sums
