"""Columns as bytes: the Arrow column that is made of them is the one that would be made of the values."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from txtopo.columnar.column_bytes import to_bytes

TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
NUMBERS = st.integers(-(2**31), 2**31 - 1)
ANYTHING = st.one_of(TEXTS, NUMBERS, st.integers(), st.booleans(), st.floats(), st.none(), st.binary(), st.just("\0"))


def array_of(values: list[Any]) -> pa.Array | None:
    encoded = to_bytes(values)
    return None if encoded is None else encoded.to_array(len(values))


@pytest.mark.slow
@given(st.lists(TEXTS, min_size=1))
def test_texts(values: list[str]) -> None:
    """Texts are texts, whatever their characters are."""
    array = array_of(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.string()))


@given(st.lists(NUMBERS, min_size=1))
def test_numbers(values: list[int]) -> None:
    """Whole numbers of 32 bits are longs."""
    assert array_of(values).equals(pa.array(values, pa.int64()))


@pytest.mark.slow
@given(st.lists(ANYTHING, min_size=1))
def test_anything(values: list[Any]) -> None:
    """What is made of any values at all is exactly those values, or nothing is made."""
    array = array_of(values)
    if array is not None:
        assert [(type(value), value) for value in array.to_pylist()] == [(type(value), value) for value in values]


class LooksLikeNumbers:
    """Is shown by bytes that lie as those of a marshalled number do."""

    def __repr__(self):
        return "1234i678"


@pytest.mark.parametrize(
    "values",
    [
        ["a", "\0"],
        ["a\ud800"],
        ["12345i\ud800"],
        [True],
        [1, True],
        [2**31],
        [1, 1.0],
        [None],
        ["a", None],
        [[1]],
        [LooksLikeNumbers()],
    ],
)
def test_no_column(values: list[Any]) -> None:
    """Zeros in a text, halves of characters, mixtures, and what only looks like numbers are no column."""
    assert array_of(values) is None
