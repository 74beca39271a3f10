"""Values are weighed about right, for little work, whatever they are."""

from array import array
from collections import deque

import numpy as np
import pyarrow as pa
import pytest

from txtopo.plain.tasks.weighing import OBJECTS_MAX, TUPLE_BYTES, tuples_bytes


class Holder:
    """Has its data in an attribute."""

    def __init__(self, data: object) -> None:
        self.data = data


class Rude:
    """Does not say how large it is."""

    def __sizeof__(self) -> int:
        raise ValueError("none of your business")


@pytest.mark.parametrize(
    "value",
    [
        "x" * 100_000,
        b"x" * 100_000,
        ["x" * 1_000 for _ in range(100)],
        {str(number): {"deep": ["x" * 1_000]} for number in range(75)},
        ({"a": ("x" * 100_000,)},),
        deque([bytes(50_000), bytes(50_001)]),
        frozenset("x" * (1_000 + number) for number in range(97)),
        Holder({"x": Holder(bytes(100_000))}),
        array("b", bytes(100_000)),
        np.zeros(200_000, np.int8)[:100_000],
        memoryview(bytes(100_000)),
        pa.table({"x": pa.array([b"x" * 96] * 1_000)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_about_right(value: object) -> None:
    """A value of 100 kB weighs that, give or take a third, however it is nested or held."""
    assert 70_000 < tuples_bytes([(value, 1)]) < 140_000
    assert tuples_bytes([(value, 1)] * 1_000) < 1.4e8


def test_the_work_is_bounded() -> None:
    """Of a value with very many objects some are looked at; one that holds itself is looked at once."""
    seen = 0

    class Counted(str):
        __slots__ = ()

        def __sizeof__(self) -> int:
            nonlocal seen
            seen += 1
            return 100

    tuples_bytes([([[[Counted("x") for _ in range(20)] for _ in range(20)] for _ in range(20)],)])
    assert 0 < seen <= OBJECTS_MAX
    ring: list[object] = []
    ring.append(ring)
    assert tuples_bytes([(ring,)]) < 1_000


def test_rude_values() -> None:
    """A class that fails when it is asked for its size weighs nothing, and ends nothing."""
    assert tuples_bytes([(Rude(),)]) == TUPLE_BYTES
