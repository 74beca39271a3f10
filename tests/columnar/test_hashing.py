"""Hashes for fields groupings agree between processes, and with equality; those of columns, with those of values."""

import datetime
import decimal
import enum
import time
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tests.processes import ran
from txtopo.columnar.hashing import hash_columns, stable_hash, text_hashes
from txtopo.errors import FieldsError


class Colour(enum.Enum):
    RED = 1


def test_equal_values_hash_alike() -> None:
    """1, 1.0, True and Decimal(1) are one key, as in a dictionary."""
    assert stable_hash(1) == stable_hash(1.0) == stable_hash(True) == stable_hash(decimal.Decimal(1))
    assert stable_hash((1, "a")) == stable_hash([1.0, "a"])


@pytest.mark.slow
def test_same_in_every_process() -> None:
    """A text hashes alike in processes with other hash seeds."""
    code = "from txtopo.columnar.hashing import stable_hash as h; print(h('kätzchen'), h((b'x', 3, None)))"
    outputs = {ran("-c", code, PYTHONHASHSEED=seed).stdout for seed in ("0", "1", "77")}
    assert outputs == {f"{stable_hash('kätzchen')} {stable_hash((b'x', 3, None))}\n"}


def test_other_keys() -> None:
    """Dates, times, UUIDs, enums and instants in two time zones have hashes."""
    utc = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    east = utc.astimezone(datetime.timezone(datetime.timedelta(hours=3)))
    assert stable_hash(utc) == stable_hash(east)
    keys = [Colour.RED, uuid.UUID(int=5), datetime.date(2026, 1, 1), datetime.timedelta(1)]
    assert len({stable_hash(key) for key in keys}) == 4


def test_keys_without_a_hash() -> None:
    """A key whose type has no dependable hash is refused by value and type."""
    with pytest.raises(FieldsError, match="set"):
        stable_hash({1})


def test_not_a_number() -> None:
    """What is not a number has one hash, though Python gives each such object its own."""
    nans = [float("nan"), float("inf") - float("inf"), decimal.Decimal("nan"), np.float32("nan")]
    assert {stable_hash(nan) for nan in nans} == {stable_hash(float("nan"))}


def test_numbers_of_numpy() -> None:
    """A number of numpy is the key that it equals."""
    assert stable_hash(np.int64(-1)) == stable_hash(np.float32(-1)) == stable_hash(-1)
    assert stable_hash(np.True_) == stable_hash(1)


def test_times_in_two_zones() -> None:
    """Times of day that are equal across zones are one key."""
    utc = datetime.time(12, tzinfo=datetime.UTC)
    east = datetime.time(15, tzinfo=datetime.timezone(datetime.timedelta(hours=3)))
    assert utc == east
    assert stable_hash(utc) == stable_hash(east)


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


@pytest.mark.slow
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
    """Integers round the prime that Python's hashes wrap at agree, and so does -1."""
    prime = 2**61 - 1
    edges = [sign * (prime * k + d) for sign in (1, -1) for k in (0, 1, 2, 3) for d in (-1, 0, 1)]
    assert hash_columns([pa.array(edges, pa.int64())]).tolist() == [stable_hash(edge) for edge in edges]


def test_equal_numbers_of_two_types() -> None:
    """1, 1.0 and Decimal(1) in columns of different types come to the same task."""
    one = stable_hash(1)
    for kind in (pa.int16(), pa.int64(), pa.float64(), pa.decimal128(5, 1)):
        value: Any = decimal.Decimal(1) if pa.types.is_decimal(kind) else 1
        assert hash_columns([pa.array([value], kind)]).tolist() == [one]


@given(st.lists(TEXTS, max_size=12), st.integers(0, 12))
def test_hashes_of_texts(texts: list[str], start: int) -> None:
    """The layout of tables depends on them: a text's length, and its bytes as digits in base FNV's prime."""
    prime = 0x100000001B3

    def expected(text: bytes) -> int:
        return (len(text) + sum(byte * prime**place for place, byte in enumerate(text, 1))) % 2**64

    hashes = text_hashes(pa.array(texts, pa.string()).slice(start))
    assert hashes.tolist() == [expected(text.encode()) for text in texts[start:]]


def test_long_texts_hash_as_short_ones_do() -> None:
    """Texts of any length beside short, empty and null ones agree with single values, on both sides of each limit."""
    texts = ["ab" * (length // 2) + "c" * (length % 2) for length in (0, 1, 8, 511, 512, 513, 520, 4096, 100_001)]
    texts += ["\0" * 600, "é" * 300, "\0" * 599 + "x"]
    column: list[str | None] = [value for text in texts for value in (text, None, "short")]
    for start in range(3):
        hashes = hash_columns([pa.array(column, pa.string())[start:]]).tolist()
        assert hashes == [stable_hash(text) for text in column[start:]]


@pytest.mark.slow
def test_a_key_of_ten_megabytes() -> None:
    """Each of them is hashed in a fraction of a second: a step for every 8 bytes of the longest one took minutes."""
    texts = ["k" * 10_000_000, "", "z" * 10_000_000]
    began = time.process_time()
    hashes = hash_columns([pa.array(texts)]).tolist()
    assert time.process_time() - began < 30
    assert hashes == [stable_hash(text) for text in texts]
