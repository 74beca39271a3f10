"""Ids of roots: unique, spread evenly, and they say who tracks them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from txtopo.plain.trees.ids import ACKERS_MAX, acker_of, draw_root


def test_roots_spread_over_ackers():
    """S17: of 100,000 roots each of four ackers gets 24 to 26 %, and no two roots are the same."""
    bits = random.Random(1).getrandbits
    roots: set[int] = set()
    for _ in range(100_000):
        roots.add(draw_root(bits, [0, 1, 2, 3], roots))
    shares = Counter(map(acker_of, roots))
    assert len(roots) == 100_000
    assert sorted(shares) == [0, 1, 2, 3]
    assert all(24_000 <= share <= 26_000 for share in shares.values())


@pytest.mark.parametrize("acker", [0, 1, 500, ACKERS_MAX - 1])
def test_a_root_says_its_acker(acker):
    """Whoever acks a tuple knows the acker of its root from the root alone; a root has 64 bits and is not 0."""
    bits = random.Random(2).getrandbits
    roots = [draw_root(bits, [acker], ()) for _ in range(1000)]
    assert {acker_of(root) for root in roots} == {acker}
    assert all(0 < root < 1 << 64 for root in roots)


def test_ids_in_use_are_not_drawn():
    """W4: a root id that is pending is never given to another root; 0, which means none, never to any."""
    drawn = iter([0, 5, 5, 6])
    taken = {5 << 16}
    assert draw_root(lambda _bits: next(drawn), [0], taken) == 6 << 16
