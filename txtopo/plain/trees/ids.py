"""Ids of roots and of edges, drawn from random bits that the caller gives."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

RandomBits = Callable[[int], int]
"""Returns a whole number of as many random bits: ``random.Random(seed).getrandbits``."""

EDGE_BITS = 64
ROOT_BITS = 48
ACKER_BITS = 16
ACKERS_MAX = 1 << ACKER_BITS
"""How many ackers a topology may have."""


def draw_root(bits: RandomBits, ackers: Sequence[int], taken: Container[int]) -> int:
    """Return the id of a new root: 64 bits, the lowest 16 of which say which acker tracks it.

    Any worker can send an ack without asking who the acker is. The random part spreads a spout task's roots evenly over
    the ackers it may choose from.

    Args:
        bits: the random bits.
        ackers: the numbers of the ackers of the spout task's own worker.
        taken: root ids that are in use. Storm does not look (STORM-17): two roots of one id would settle each other.
    """
    while True:
        drawn = bits(ROOT_BITS)
        root = drawn << ACKER_BITS | ackers[drawn % len(ackers)]
        if drawn and root not in taken:
            return root


def acker_of(root: int) -> int:
    """Return the number of the acker that tracks a root."""
    return root & (ACKERS_MAX - 1)
