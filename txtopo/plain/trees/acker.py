"""The acker: tracks tuple trees, in constant memory for each root. See the package for the algorithm.

A tree is in one of two places:

- *Known* trees: their init message has come, so the acker knows the spout task. They leave when they are settled, or
  when the spout task gives them up (:meth:`Acker.forget`).
- *Early* trees: something came before the init message, or after the tree was settled. The two can't be told apart, so
  these expire after some rotations, in silence.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from sys import getsizeof
from typing import NamedTuple

from txtopo.plain.trees.rotating_map import RotatingMap

ROTATIONS = 3
"""An early tree is dropped at its third rotation, one for each message timeout: no spout waits for it by then."""


class Outcome(enum.Enum):
    """What a spout task learns of a root."""

    ACKED = "acked"
    FAILED = "failed"
    RESET = "timeout reset"


class Settlement(NamedTuple):
    """What the acker tells a spout task of one of its roots."""

    spout_task: int
    root: int
    outcome: Outcome


class _Tree:
    """What the acker holds of a tuple tree: as much for one tuple as for a million."""

    __slots__ = ("is_failed", "mask", "spout_task", "value")

    def __init__(self, value: int, mask: int, spout_task: int) -> None:
        self.value = value
        self.mask = mask
        self.spout_task = spout_task
        self.is_failed = False


class Acker:
    """One acker task. Messages come as columns: the roots, and a value and a mask for each.

    What follows from them is in :attr:`settled` until somebody takes it.

    Args:
        dead: the bits of the incarnations of workers that have died before.
    """

    def __init__(self, dead: int = 0) -> None:
        self.settled: list[Settlement] = []
        """What the spout tasks must be told, oldest first; take it by :meth:`take_settled`."""
        self._known: dict[int, _Tree] = {}
        self._early: RotatingMap[int, _Tree] = RotatingMap(ROTATIONS)
        self._dead = dead

    def __len__(self) -> int:
        return len(self._known) + len(self._early)

    def tree_bytes_max(self) -> int:
        """Return how much memory the largest of the trees takes; 0 if there is none."""
        trees = [*self._known.values(), *self._early.values()]
        return max((sum(getsizeof(getattr(tree, name)) for name in tree.__slots__) for tree in trees), default=0)

    def take_settled(self) -> list[Settlement]:
        """Return what the spout tasks must be told, and forget it."""
        settled, self.settled = self.settled, []
        return settled

    def init(self, roots: Sequence[int], values: Sequence[int], masks: Sequence[int], spout_task: int) -> None:
        """Begin to track trees.

        Args:
            roots: their roots.
            values: of each, the XOR of the edge ids of the root's own tuples; 0 if nobody receives them.
            masks: of each, the bits of the workers that these were sent to.
            spout_task: the task that emitted them all.
        """
        known, dead, has_early = self._known, self._dead, len(self._early) > 0
        for root, value, mask in zip(roots, values, masks, strict=True):
            tree = self._early.remove(root) if has_early else None
            if tree is None:
                tree = _Tree(value, mask, spout_task)
            else:
                tree.value ^= value
                tree.mask |= mask
                tree.spout_task = spout_task
            known[root] = tree
            if not tree.value or tree.is_failed or tree.mask & dead:
                self._settle(root, tree)

    def ack(self, roots: Sequence[int], values: Sequence[int], masks: Sequence[int]) -> None:
        """Take note that tuples were acked.

        Args:
            roots: the roots of their trees.
            values: of each, the XOR of the edge ids that were acked and of those that were added.
            masks: of each, the bits of the workers that the added ones were sent to.
        """
        known, dead = self._known, self._dead
        for root, value, mask in zip(roots, values, masks, strict=True):
            tree = known.get(root)
            if tree is None:
                tree = self._early_tree(root)
                tree.value ^= value
                tree.mask |= mask
                continue
            tree.value ^= value
            tree.mask |= mask
            if not tree.value or mask & dead:  # what was dead before is settled already
                self._settle(root, tree)

    def fail(self, roots: Sequence[int]) -> None:
        """Take note that a tuple of each of these trees failed."""
        for root in roots:
            tree = self._known.get(root) or self._early_tree(root)
            tree.is_failed = True
            if root in self._known:
                self._settle(root, tree)

    def reset(self, roots: Sequence[int]) -> None:
        """Pass on that these trees want their timeout to begin anew; unknown ones are ignored."""
        for root in roots:
            if root in self._known:
                self.settled.append(Settlement(self._known[root].spout_task, root, Outcome.RESET))

    def forget(self, roots: Sequence[int]) -> None:
        """Stop tracking trees that their spout task has given up."""
        for root in roots:
            self._known.pop(root, None)

    def worker_died(self, bit: int) -> None:
        """Fail every tree that an incarnation of a worker was sent a tuple of.

        Args:
            bit: the mask of that incarnation. It is dead for ever: later messages that name it fail their trees.
        """
        self._dead |= bit
        for root, tree in [(root, tree) for root, tree in self._known.items() if tree.mask & bit]:
            self._settle(root, tree)

    def rotate(self) -> None:
        """Let early trees grow older; called once for each message timeout."""
        self._early.rotate()

    def _early_tree(self, root: int) -> _Tree:
        tree = self._early.get(root)
        if tree is None:
            tree = _Tree(0, 0, -1)
            self._early.put(root, tree)
        return tree

    def _settle(self, root: int, tree: _Tree) -> None:
        """Tell the spout task if the tree is done: failed, if both hold."""
        if tree.is_failed or tree.mask & self._dead:
            outcome = Outcome.FAILED
        elif tree.value == 0:
            outcome = Outcome.ACKED
        else:
            return
        del self._known[root]
        self.settled.append(Settlement(tree.spout_task, root, outcome))
