"""Values are folded to the same result in every order, and wherever transactions are cut."""

import itertools
import math
import operator
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from txtopo.api.map_state import folded_by_key
from txtopo.api.reduction import combining


def added(one: Any, other: Any) -> Any:
    """Return the sum, of single values or of tuples: a function of a user's."""
    return tuple(map(operator.add, one, other)) if isinstance(one, tuple) else one + other


def longest(one: str, other: str) -> str:
    """Return the longer text, of two as long the last one."""
    return max(one, other, key=lambda text: (len(text), text))


DECIMALS = [Decimal(10**19), Decimal(-(10**19)), Decimal("1E-18")]


@pytest.mark.parametrize(
    ("values", "function", "expected"),
    [
        (DECIMALS, operator.add, Decimal("1E-18")),
        (DECIMALS, added, Decimal("1E-18")),
        ([(decimal, 1) for decimal in DECIMALS], added, (Decimal("1E-18"), 3)),
        ([1, None, 2], operator.add, 3),
        ([1, None, 2], added, 3),
        ([1, None, 2], max, 2),
        ([None, None], min, None),
        ([1.0, math.nan, 2.0], max, math.nan),
        ([1.0, math.nan, 2.0], min, 1.0),
        ([math.nan, None, math.nan], min, math.nan),
        (["b", "a", None], min, "a"),
        (["b", "aa", None], longest, "aa"),
    ],
    ids=str,
)
def test_every_order_and_cut(values: list[Any], function: Callable[[Any, Any], Any], expected: Any) -> None:
    """Decimals of 38 digits are exact, None is skipped and NaN is the largest number, with functions of one's own too."""
    for ordered in itertools.permutations(values):
        for cut in range(len(ordered)):
            old = None
            for part in (ordered[:cut], ordered[cut:]):
                keys, update = folded_by_key([("a", value) for value in part], function)
                for key in keys:
                    old = update(key, old)
            assert repr(old) == repr(expected)


def test_it_moves_with_its_committer() -> None:
    """What combines two values can be pickled, as the function can that it was made of."""
    assert pickle.loads(pickle.dumps(combining(added)))(1, None) == 1
