"""The ackers of one worker: each message goes to the acker that its root names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from txtopo.plain.trees.acker import ACKER_MASK, Acker, Settlement
from txtopo.topology.plans.groupings import Pick, divide


class Ackers:
    """The ackers of one worker. There are none if the worker has no spouts, or if no trees are tracked.

    Args:
        numbers: the numbers of these ackers.
        alive: the generations that live, by which the bits of all earlier ones are those of dead ones.
        timeout_secs: the message timeout.
        now: the time, in seconds.
    """

    def __init__(self, numbers: Iterable[int], alive: Collection[int], timeout_secs: float, now: float) -> None:
        dead = sum(1 << each for each in {*range(max(alive))} - {*alive})
        self._ackers = {number: Acker(dead) for number in numbers}
        self._timeout_secs = timeout_secs
        self._rotated_at = now
        self.messages = 0
        """How many roots messages were about, except acks: those of a pass arrive added up, so bolts count them."""

    def __len__(self) -> int:
        return sum(map(len, self._ackers.values()))

    @property
    def untold(self) -> int:
        """How many roots there is news about that nobody has taken."""
        return sum(acker.untold for acker in self._ackers.values())

    def tree_bytes_max(self) -> int:
        """Return how many bytes of memory the largest tree takes; 0 if there is none."""
        return max((acker.tree_bytes_max() for acker in self._ackers.values()), default=0)

    def init(self, inits: Mapping[int, tuple[int, int]], spout_task: int) -> None:
        """Track new trees of a spout task in this worker, given by root: the XOR of its edge ids, and its mask."""
        roots = list(inits)
        self.messages += len(roots)
        for acker, pick in self._divided(roots):
            mine = pick(roots)
            values, masks = zip(*map(inits.__getitem__, mine), strict=True)
            acker.init(mine, values, masks, spout_task)

    def ack(self, roots: Sequence[int], values: Sequence[int], masks: Sequence[int]) -> None:
        """Record acks, as :meth:`Acker.ack` does."""
        for acker, pick in self._divided(roots):
            acker.ack(pick(roots), pick(values), pick(masks))

    def fail(self, roots: Sequence[int]) -> None:
        """Record that a tuple of each of these trees failed."""
        self.messages += len(roots)
        for acker, pick in self._divided(roots):
            acker.fail(pick(roots))

    def reset(self, roots: Sequence[int]) -> None:
        """Let the timeouts of these trees begin again."""
        self.messages += len(roots)
        for acker, pick in self._divided(roots):
            acker.reset(pick(roots))

    def forget(self, roots: Sequence[int]) -> None:
        """Stop tracking trees that their spout task has given up."""
        for acker, pick in self._divided(roots):
            acker.forget(pick(roots))

    def worker_died(self, generation: int) -> None:
        """Fail every tree that has touched a dead generation, now or by a later message."""
        for acker in self._ackers.values():
            acker.worker_died(1 << generation)

    def rotate_if_due(self, now: float) -> None:
        """Drop old early trees, once in each message timeout."""
        if now - self._rotated_at >= self._timeout_secs:
            self._rotated_at = now
            for acker in self._ackers.values():
                acker.rotate()

    def take_settled(self) -> list[Settlement]:
        """Remove and return the news for the spout tasks, as :meth:`Acker.take_settled` does."""
        return [settlement for acker in self._ackers.values() for settlement in acker.take_settled()]

    def _divided(self, roots: Sequence[int]) -> Iterable[tuple[Acker, Pick]]:
        """Return the ackers that track these roots, each with how to pick its own out of a column."""
        if len(self._ackers) == 1:  # by default, and then all roots that come here are of this one
            return [(acker, list) for acker in self._ackers.values()] if roots else []
        return [(self._ackers[number], pick) for number, pick in divide([root & ACKER_MASK for root in roots]).items()]
