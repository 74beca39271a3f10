"""What the readers that people have make of our tables: the rows that were put, with every filter."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from state import DeltaRows, DeltaState
from tests.state.delta.read.readers import READERS, Filter, without_statistics
from tests.state.delta.rows.rows_tables import put
from txtopo import Fields
from txtopo.api.values import TransactionalValue

UTC = dt.UTC
VALUES = {
    "s": ["a", "b", "", "z" * 40, "z" * 40 + "x", "\uffff", "\U0001f600", "é", "a'b", "y" * 32 + "\U0001f600", "null"],
    "d": [math.nan, -0.0, 0.0, 1.5, -1.5, math.inf, -math.inf, 1e308, 0.1, 5e-324],
    "f": [-0.0, 0.0, 1.5, 0.10000000149011612],
    "t": [
        dt.datetime(2024, 1, 1, tzinfo=UTC),
        dt.datetime(2024, 1, 1, 0, 0, 0, 123456, UTC),
        dt.datetime(2024, 1, 1, 0, 0, 0, 123999, UTC),
        dt.datetime(1960, 1, 1, 0, 0, 0, 1, UTC),
        dt.datetime(2250, 1, 1, tzinfo=UTC),
    ],
    "m": [Decimal("0.0000"), Decimal("1234567890123456789012345678901234.7891"), Decimal("-0.1000")],
    "n": [0, -1, 2**63 - 1, -(2**63), 2**53 + 1, 2**53],
    "a": [dt.date(2024, 1, 1), dt.date(1583, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)],
    "b": [True, False],
}
FIELDS = Fields(
    "id: long",
    "s: string",
    "d: double",
    "f: float",
    "t: timestamp",
    "m: decimal(38,4)",
    "n: long",
    "a: date",
    "b: boolean",
)
PARTITIONS = [
    "a=b",
    "a/b",
    "ü",
    "%",
    "%41",
    " ",
    "a ",
    "a:b",
    "\U0001f600",
    "a'b",
    'a"b',
    "a\\b",
    "a?b",
    "a+b",
    "null",
    "01",
]


def filters(columns):
    """Return filters of each column: equality, ranges, nulls, several values."""
    for column in columns:
        values = VALUES[column]
        yield from (Filter(column, "is null"), Filter(column, "is not null"), Filter(column, "in", tuple(values[1:3])))
        for value in values:
            # Arrow has no order of NaN and a bound, whoever wrote the table, so it is only looked for.
            is_nan = isinstance(value, float) and math.isnan(value)
            yield from (Filter(column, operator, value) for operator in (("=",) if is_nan else ("=", "<", ">=")))


def rows_of(fields, seed=5, count=25):
    """Return the rows of some files: columns with one value, with nulls only, and mixed ones."""
    draw = random.Random(seed)
    for first in range(0, count * 3, 3):
        columns = {"id": [first, first + 1, first + 2]}
        for name in fields.names[1:]:
            kind, same = draw.random(), draw.choice(VALUES[name])
            any_of = [*VALUES[name], None]
            columns[name] = [same if kind < 0.4 else None if kind < 0.5 else draw.choice(any_of) for _ in range(3)]
        yield pa.table(columns, schema=fields.arrow_schema())


@pytest.fixture(scope="module", params=["all columns have bounds", "one has none"])
def plain_table(request, tmp_path_factory):
    """A table of rows in which each file has other bounds, its columns, and a copy of it without any bounds."""
    root = tmp_path_factory.mktemp("readers")
    fields = (
        FIELDS if request.param == "one has none" else FIELDS.subset([name for name in FIELDS.names if name != "m"])
    )
    state = DeltaRows(root / "t", fields).open("topology", "s", "life", 1)
    for txid, rows in enumerate(rows_of(fields), 1):
        put(state, (txid, ("append", rows)))
    state.close()
    return root / "t", fields.names[1:], without_statistics(root / "t", root / "bare")


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_filter_finds_what_it_would_find_without_statistics(plain_table, reader):
    """No reader skips a file that has a row, whatever the column, the values and the filter."""
    path, columns, bare = plain_table
    assert Counter(reader(path, None)) == Counter(range(75))
    some = random.Random(3).sample(list(filters(columns)), 25)
    wrong = [each for each in some if sorted(reader(path, each)) != sorted(reader(bare, each))]
    assert wrong == []


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_every_filter_finds_what_it_would_find_without_statistics(plain_table, reader):
    """The same with every filter."""
    path, columns, bare = plain_table
    wrong = [each for each in filters(columns) if sorted(reader(path, each)) != sorted(reader(bare, each))]
    assert wrong == []


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_column_that_was_added_later_is_found(tmp_path, reader):
    """Older files have nulls in a column that was added: a filter finds them, and the later values."""
    state = DeltaRows(tmp_path / "t", Fields("id: long", "s: string")).open("topology", "s", "life", 1)
    put(state, (1, ("append", [(1, "a"), (2, "b")])))
    wider = Fields("id: long", "s: string", "n: long")
    state = DeltaRows(tmp_path / "t", wider, schema_evolution="add").open("topology", "s", "life", 2)
    state.grow()
    put(state, (2, ("append", [(3, "c", 7)])))
    assert sorted(reader(tmp_path / "t", Filter("n", "is null"))) == [1, 2]
    assert reader(tmp_path / "t", Filter("n", "=", 7)) == [3]
    assert reader(tmp_path / "t", Filter("s", "=", "b")) == [2]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_each_partition_is_found(tmp_path, reader):
    """A row is in the partition that it was put into, whatever its value's letters."""
    fields = Fields("id: long", "d: double", "p: string", "day: date", "k: int")
    state = DeltaRows(tmp_path / "t", fields, partition_by=("p", "day", "k")).open("topology", "s", "life", 1)
    rows = [(n, 1.5, value, dt.date(2024, 1, 1 + n), n % 3) for n, value in enumerate(PARTITIONS)]
    put(state, (1, ("append", rows)))
    found = {value: reader(tmp_path / "t", Filter("p", "=", value)) for value in PARTITIONS}
    assert found == {value: [n] for n, value in enumerate(PARTITIONS)}
    assert reader(tmp_path / "t", Filter("day", "<", dt.date(2024, 1, 2))) == [0]
    assert sorted(reader(tmp_path / "t", Filter("k", "=", 2))) == [n for n in range(len(PARTITIONS)) if n % 3 == 2]
    assert sorted(reader(tmp_path / "t", Filter("p", "is not null"))) == list(range(len(PARTITIONS)))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_values_beside_keys_are_found(tmp_path: Path, reader):
    """A keyed table whose values have no bounds in the log is read by key and by value."""
    state = DeltaState(tmp_path / "t", key=Fields("id: long"), value=Fields("d: double", "m: decimal(10,2)"))
    table = state.open("topology", "s", "life", 1)
    table.write(1, {n: TransactionalValue(1, (n / 2, Decimal(n))) for n in range(10)})
    assert sorted(reader(tmp_path / "t", Filter("d", ">=", 3.0))) == [6, 7, 8, 9]
    assert reader(tmp_path / "t", Filter("m", "=", Decimal(4))) == [4]
    assert reader(tmp_path / "t", Filter("id", "=", 4)) == [4]
