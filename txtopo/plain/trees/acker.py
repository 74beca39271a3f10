"""The acker: tracks tuple trees, in constant memory for each root. See the package for the algorithm.

An acker has two kinds of trees:

- *Known* trees: their init message has come, so the acker knows the spout task. They leave when they are settled, or
  when the spout task gives them up (:meth:`Acker.forget`).
- *Early* trees: an ack or failure came before the init message, or after the tree was settled. The acker can't tell
  which, so it drops them after some rotations, as Storm's ``RotatingMap`` does.
"""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from collections.abc import Callable, Container, Sequence
from sys import getsizeof
from typing import NamedTuple

RandomBits = Callable[[int], int]
"""Returns an integer of that many random bits: ``random.Random(seed).getrandbits``."""

ROTATIONS = 3
"""An early tree is dropped at its third rotation, one for each message timeout: no spout waits for it any more."""

EDGE_BITS = 64
ROOT_BITS = 48
ACKER_BITS = 16
ACKERS_MAX = 1 << ACKER_BITS
"""How many ackers a topology may have."""
ACKER_MASK = ACKERS_MAX - 1
"""The bits of a root that are the number of its acker."""


def draw_root(bits: RandomBits, ackers: Sequence[int], used: Container[int]) -> int:
    """Return the id of a new root: 64 bits, the lowest 16 of which are the number of its acker.

    So any worker knows from the root where to send an ack. The random part spreads the roots of a spout task evenly
    over ``ackers``, those of its own worker.
    """
    while True:
        drawn = bits(ROOT_BITS)
        root = drawn << ACKER_BITS | ackers[drawn % len(ackers)]
        # 0 means no root. Two roots of one id would settle each other; Storm does not look (STORM-17).
        if drawn and root not in used:
            return root


def acker_of(root: int) -> int:
    """Return the number of the acker that tracks a root."""
    return root & ACKER_MASK


class Outcome(enum.Enum):
    """What became of a root."""

    ACKED = "acked"
    FAILED = "failed"
    RESET = "timeout reset"


class Settlement(NamedTuple):
    """News for a spout task: what became of some of its roots."""

    spout_task: int
    outcome: Outcome
    roots: list[int]


class _Tree:
    """A tuple tree; it takes as much memory for a million tuples as for one."""

    __slots__ = ("is_failed", "mask", "spout_task", "value")

    def __init__(self, value: int, mask: int, spout_task: int) -> None:
        self.value = value
        self.mask = mask
        self.spout_task = spout_task
        self.is_failed = False


class Acker:
    """One acker task. Messages come as columns: the roots, and a value and a mask for each.

    ``dead`` are the bits of the generations that died before this acker began.
    """

    def __init__(self, dead: int = 0) -> None:
        self._acked: defaultdict[int, list[int]] = defaultdict(list)
        """By spout task. Most news is of these, so there is no :class:`Settlement` for each."""
        self._others: list[Settlement] = []
        self._known: dict[int, _Tree] = {}
        self._early: deque[dict[int, _Tree]] = deque(({} for _ in range(ROTATIONS)), maxlen=ROTATIONS)
        """By rotation, the youngest first."""
        self._dead = dead

    def __len__(self) -> int:
        return len(self._known) + sum(map(len, self._early))

    def tree_bytes_max(self) -> int:
        """Return how many bytes of memory the largest tree takes; 0 if there is none."""
        trees = [tree for trees in (self._known, *self._early) for tree in trees.values()]
        return max((sum(getsizeof(getattr(tree, name)) for name in tree.__slots__) for tree in trees), default=0)

    @property
    def untold(self) -> int:
        """How many roots there is news about that nobody has taken."""
        return sum(map(len, self._acked.values())) + len(self._others)

    def take_settled(self) -> list[Settlement]:
        """Remove and return the news for the spout tasks: failures and resets, oldest first, and what was acked."""
        settled = [*self._others, *(Settlement(task, Outcome.ACKED, roots) for task, roots in self._acked.items())]
        self._others.clear()
        self._acked.clear()
        return settled

    def init(self, roots: Sequence[int], values: Sequence[int], masks: Sequence[int], spout_task: int) -> None:
        """Track new trees.

        Args:
            roots: their roots.
            values: for each, the XOR of the edge ids of the root's tuples; 0 if nobody receives them.
            masks: for each, the bits of the workers that these were sent to.
            spout_task: the task that emitted all of them.
        """
        known, dead, has_early = self._known, self._dead, any(self._early)
        for root, value, mask in zip(roots, values, masks, strict=True):
            tree = self._take_early(root) if has_early else None
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
        """Record that tuples were acked.

        Args:
            roots: the roots of their trees.
            values: for each, the XOR of the edge ids that were acked and of those that were added.
            masks: for each, the bits of the workers that the added ones were sent to.
        """
        known, dead, acked = self._known, self._dead, self._acked
        for root, value, mask in zip(roots, values, masks, strict=True):
            tree = known.get(root)
            if tree is None:
                tree = self._early_tree(root)
                tree.value ^= value
                tree.mask |= mask
                continue
            tree.value = rest = tree.value ^ value
            if mask:
                tree.mask |= mask
                if mask & dead:  # the tree's earlier bits need no look: worker_died has settled those
                    self._settle(root, tree)
                    continue
            if not rest:  # as _settle() would: a known tree has not failed
                del known[root]
                acked[tree.spout_task].append(root)

    def fail(self, roots: Sequence[int]) -> None:
        """Record that a tuple of each of these trees failed."""
        for root in roots:
            tree = self._known.get(root) or self._early_tree(root)
            tree.is_failed = True
            if root in self._known:
                self._settle(root, tree)

    def reset(self, roots: Sequence[int]) -> None:
        """Tell the spout tasks to begin the timeouts of these trees again; unknown trees are ignored."""
        for root in roots:
            if root in self._known:
                self._others.append(Settlement(self._known[root].spout_task, Outcome.RESET, [root]))

    def forget(self, roots: Sequence[int]) -> None:
        """Stop tracking trees that their spout task has given up."""
        for root in roots:
            self._known.pop(root, None)

    def worker_died(self, bit: int) -> None:
        """Fail every tree whose mask has this bit, of a dead generation, now or by a later message."""
        self._dead |= bit
        for root, tree in [(root, tree) for root, tree in self._known.items() if tree.mask & bit]:
            self._settle(root, tree)

    def rotate(self) -> None:
        """Drop the oldest rotation of early trees; called once for each message timeout."""
        self._early.appendleft({})

    def _early_tree(self, root: int) -> _Tree:
        # A tree stays in its rotation: if each message made it young again, a stale one might never leave.
        for trees in self._early:
            if root in trees:
                return trees[root]
        tree = self._early[0][root] = _Tree(0, 0, -1)
        return tree

    def _take_early(self, root: int) -> _Tree | None:
        return next((trees.pop(root) for trees in self._early if root in trees), None)

    def _settle(self, root: int, tree: _Tree) -> None:
        """Tell the spout task if the tree has failed, or if all of its tuples were acked."""
        if tree.is_failed or tree.mask & self._dead:
            self._others.append(Settlement(tree.spout_task, Outcome.FAILED, [root]))
        elif tree.value == 0:
            self._acked[tree.spout_task].append(root)
        else:
            return
        del self._known[root]
