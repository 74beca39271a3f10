"""The difference between two tables is what a comparison row by row in Python finds."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from state.delta.read.difference import difference

KEYED = pa.schema(
    [
        pa.field("word", pa.string(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        pa.field("n", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("txid", pa.int64()),
    ]
)
BAG = pa.schema([pa.field("word", pa.string()), pa.field("n", pa.float64()), pa.field("txid", pa.int64())])

DAY = dt.date(2024, 1, 1)
WORDS = st.sampled_from(["", "a", "b", "c"])
NUMBERS = st.sampled_from([None, 0.0, 1.5, math.nan])
TXIDS = st.integers(1, 3)
KEYED_ROWS = st.dictionaries(
    st.tuples(WORDS, st.dates(DAY, dt.date(2024, 1, 2))),
    st.tuples(NUMBERS, st.sampled_from([None, [], ["x"], [None]]), TXIDS),
)
BAG_ROWS = st.lists(st.tuples(st.one_of(WORDS, st.none()), NUMBERS, TXIDS), max_size=8)
SINCE = st.one_of(st.none(), TXIDS)


def table(rows, schema):
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(list(each), field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def text(rows: pa.Table) -> list[str]:
    return [repr(tuple(row.values())) for row in rows.to_pylist()]


@given(a=KEYED_ROWS, b=KEYED_ROWS, since=SINCE, with_txids=st.booleans())
@example({("a", DAY): (None, [], 1)}, {("a", DAY): (math.nan, [], 1)}, None, False)
def test_tables_with_keys(a, b, since, with_txids):
    """Keys of one table, keys with other values, and equal rows, each once; a null is no NaN."""
    found = difference(
        *(table([(*key, *row) for key, row in rows.items()], KEYED) for rows in (a, b)),
        since=since,
        with_txids=with_txids,
    )
    end = 3 if with_txids else 2
    keys = {key for rows in (a, b) for key, row in rows.items() if since is None or row[2] >= since}
    shown_a, shown_b = ({key: repr((*key, *row[:end])) for key, row in rows.items() if key in keys} for rows in (a, b))
    assert text(found.only_in_a) == [shown_a[key] for key in sorted(shown_a.keys() - shown_b.keys())]
    assert text(found.only_in_b) == [shown_b[key] for key in sorted(shown_b.keys() - shown_a.keys())]
    both = sorted(shown_a.keys() & shown_b.keys())
    differing = [key for key in both if shown_a[key] != shown_b[key]]
    assert text(found.differing_a) == [shown_a[key] for key in differing]
    assert text(found.differing_b) == [shown_b[key] for key in differing]
    assert (found.equal, found.keys) == (len(both) - len(differing), ("word", "day"))


@given(a=BAG_ROWS, b=BAG_ROWS, since=SINCE)
def test_tables_without_keys(a, b, since):
    """Equal rows belong together one by one."""
    found = difference(table(a, BAG), table(b, BAG), since=since)
    bags = [Counter(repr(row[:2]) for row in rows if since is None or row[2] >= since) for rows in (a, b)]
    assert Counter(text(found.only_in_a)) == bags[0] - bags[1]
    assert Counter(text(found.only_in_b)) == bags[1] - bags[0]
    assert (found.equal, found.differing_a.num_rows) == ((bags[0] & bags[1]).total(), 0)


def test_keys_that_only_one_table_has():
    """Rows belong together as those of tables without keys: what is a key in one of them may be there twice in the other."""
    a, b = (table([("a", DAY, n, None, 1)], KEYED) for n in (1.0, 2.0))
    for schema in (KEYED.set(0, pa.field("word", pa.string())), KEYED.set(1, pa.field("day", pa.date32()))):
        for found in (difference(a, b.cast(schema)), difference(a.cast(schema), b)):
            assert (found.keys, found.differing_a.num_rows) == ((), 0)
            assert (found.only_in_a.num_rows, found.only_in_b.num_rows) == (1, 1)


def test_nested_values():
    """A NaN equals a NaN and a null a null, wherever they are; the two zeros are not the same there."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.list_(pa.float64()))])
    a, b = ([[math.nan], [None], None, [1.0], [0.0]], [[math.nan], [None], None, [None], [-0.0]])
    tables = [pa.table([pa.array(range(5)), pa.array(each, schema.field("v").type)], schema=schema) for each in (a, b)]
    assert difference(*tables).differing_a["k"].to_pylist() == [3, 4]


def test_columns_of_one_table_are_named():
    """What only one table has is not compared, and said so; a number of another type is not the same."""
    a = pa.table({"n": [1], "old": [1]})
    b = pa.table({"n": [1], "new": [1]})
    assert difference(a, b).unlike == ("old", "new")
    assert difference(a, b).count == 0


@pytest.mark.slow
def test_a_million_rows_take_seconds():
    """It works in columns."""
    count = 1_000_000
    schema = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("n", pa.int64())])
    words = pa.array(np.arange(count)).cast(pa.string())
    a = pa.Table.from_arrays([words, pa.array(np.arange(count))], schema=schema)
    b = pa.Table.from_arrays([words, pa.array(np.arange(count) + (np.arange(count) % 1000 == 0))], schema=schema)
    started = time.process_time()
    found = difference(a, b.slice(10))
    assert time.process_time() - started < 60
    assert (found.only_in_a.num_rows, found.differing_a.num_rows) == (10, count // 1000 - 1)
