"""Hashes of columns: a typed and an untyped stream send equal keys to the same task."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from txtopo.columnar.column_hashing import hash_columns
from txtopo.columnar.hashing import stable_hash

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), TEXTS),
    (pa.binary(), st.binary(max_size=40)),
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.decimal128(10, 2), st.decimals("-99999999.99", "99999999.99", places=2)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(datetime.UTC))),
    (pa.list_(pa.int64()), st.lists(st.integers(0, 5), max_size=3)),
]


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=[str(kind) for kind, _ in COLUMNS])
@given(data=st.data())
def test_agrees_with_single_values(kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """Each row's hash is ``stable_hash`` of its value, for every type, nulls and slices included."""
    chosen = data.draw(st.lists(values | st.none(), max_size=12))
    start = data.draw(st.integers(0, len(chosen)))
    column = pa.array(chosen, kind).slice(start)
    assert hash_columns([column]).tolist() == [stable_hash(value) for value in chosen[start:]]


@given(st.lists(st.tuples(TEXTS | st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=12))
def test_several_columns(keys: list[tuple[Any, ...]]) -> None:
    """The key of several columns hashes as the tuple of their values."""
    texts, numbers = zip(*keys, strict=True)
    columns = [pa.array(texts, pa.string()), pa.array(numbers, pa.int64())]
    assert hash_columns(columns).tolist() == [stable_hash(key) for key in keys]


def test_edges_of_integers() -> None:
    """Integers round the prime that Python's own hashes wrap at agree, and so does -1."""
    prime = 2**61 - 1
    edges = [sign * (prime * k + d) for sign in (1, -1) for k in (0, 1, 2, 3) for d in (-1, 0, 1)]
    assert hash_columns([pa.array(edges, pa.int64())]).tolist() == [stable_hash(edge) for edge in edges]


def test_equal_numbers_of_two_types() -> None:
    """1, 1.0 and Decimal(1) in columns of different types come to the same task."""
    one = stable_hash(1)
    for kind in (pa.int16(), pa.int64(), pa.float64(), pa.decimal128(5, 1)):
        value: Any = decimal.Decimal(1) if pa.types.is_decimal(kind) else 1
        assert hash_columns([pa.array([value], kind)]).tolist() == [one]
