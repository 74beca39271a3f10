"""Sums of decimals are exact, whatever the order."""

from __future__ import annotations

import itertools
import operator
from decimal import Decimal

from txtopo.api.map_state import folded_by_key

VALUES = [Decimal(10**19), Decimal(-(10**19)), Decimal("1E-18")]


def test_every_order_and_cut() -> None:
    """The sum of decimals with 38 digits is the same in every order, and wherever transactions are cut."""
    for values in itertools.permutations(VALUES):
        for cut in range(len(values)):
            old = None
            for part in (values[:cut], values[cut:]):
                keys, update = folded_by_key([("a", value) for value in part], operator.add)
                for key in keys:
                    old = update(key, old)
            assert old == Decimal("1E-18")
