"""What the readers that people have make of our tables: the rows that were put, with every filter."""

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from state import DeltaRows, DeltaState
from tests.budgets import examples
from tests.state.delta.read.kinds import KINDS, PARTITIONS, VALUES, fields_of
from tests.state.delta.read.readers import (
    READERS,
    SQL_READERS,
    Condition,
    Filter,
    delta_rs_dataset,
    ids,
    without_statistics,
)
from tests.state.delta.rows.rows_tables import put
from txtopo import Fields
from txtopo.api.values import TransactionalValue

FIELDS = Fields("id: long") + fields_of("s", "d", "f", "t", "m", "n", "a", "b")


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


@pytest.mark.few(1)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_filter_finds_what_it_would_find_without_statistics(plain_table, reader):
    """No reader skips a file that has a row, whatever the column, the values and the filter."""
    path, columns, bare = plain_table
    assert ids(reader(path)) == list(range(75))
    some = random.Random(3).sample(list(filters(columns)), examples(25))
    wrong = [each for each in some if ids(reader(path, each)) != ids(reader(bare, each))]
    assert wrong == []


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_every_filter_finds_what_it_would_find_without_statistics(plain_table, reader):
    """The same with every filter."""
    path, columns, bare = plain_table
    wrong = [each for each in filters(columns) if ids(reader(path, each)) != ids(reader(bare, each))]
    assert wrong == []


@pytest.mark.few(3)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_column_that_was_added_later_is_found(tmp_path, reader):
    """Older files have nulls in a column that was added: a filter finds them, and the later values."""
    state = DeltaRows(tmp_path / "t", Fields("id: long", "s: string")).open("topology", "s", "life", 1)
    put(state, (1, ("append", [(1, "a"), (2, "b")])))
    wider = Fields("id: long", "s: string", "n: long")
    state = DeltaRows(tmp_path / "t", wider, schema_evolution="add").open("topology", "s", "life", 2)
    state.grow()
    put(state, (2, ("append", [(3, "c", 7)])))
    assert ids(reader(tmp_path / "t", Filter("n", "is null"))) == [1, 2]
    assert ids(reader(tmp_path / "t", Filter("n", "=", 7))) == [3]
    assert ids(reader(tmp_path / "t", Filter("s", "=", "b"))) == [2]


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_each_partition_is_found(tmp_path, reader):
    """A row is in the partition that it was put into, whatever its value's letters."""
    fields = Fields("id: long", "d: double", "p: string", "day: date", "k: int")
    state = DeltaRows(tmp_path / "t", fields, partition_by=("p", "day", "k")).open("topology", "s", "life", 1)
    rows = [(n, 1.5, value, dt.date(2024, 1, 1 + n), n % 3) for n, value in enumerate(PARTITIONS)]
    put(state, (1, ("append", rows)))
    found = {value: ids(reader(tmp_path / "t", Filter("p", "=", value))) for value in PARTITIONS}
    assert found == {value: [n] for n, value in enumerate(PARTITIONS)}
    assert ids(reader(tmp_path / "t", Filter("day", "<", dt.date(2024, 1, 2)))) == [0]
    assert ids(reader(tmp_path / "t", Filter("k", "=", 2))) == [n for n in range(len(PARTITIONS)) if n % 3 == 2]
    assert ids(reader(tmp_path / "t", Filter("p", "is not null"))) == list(range(len(PARTITIONS)))


@pytest.mark.few(2)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("kind", ["struct<x: long>", "array<long>", "map<string,long>"])
def test_nulls_of_several_values_are_found(tmp_path, reader, kind):
    """A column of structs, arrays or maps is null where it was put so, beside columns with bounds."""
    fields = Fields("id: long", f"v: {kind}")
    state = DeltaRows(tmp_path / "t", fields).open("topology", "s", "life", 1)
    value = {"struct<x: long>": {"x": 1}, "array<long>": [1, None], "map<string,long>": {"x": 1}}[kind]
    for txid, values in enumerate(([value] * 2, [None, value], [None] * 2), 1):
        rows = [{"id": txid * 2 + place, "v": each} for place, each in enumerate(values)]
        put(state, (txid, ("append", pa.Table.from_pylist(rows, schema=fields.arrow_schema()))))
    assert ids(reader(tmp_path / "t", Filter("v", "is null"))) == [4, 6, 7]
    assert ids(reader(tmp_path / "t", Filter("v", "is not null"))) == [2, 3, 5]
    assert ids(reader(tmp_path / "t", Filter("id", ">=", 6))) == [6, 7]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_values_beside_keys_are_found(tmp_path: Path, reader):
    """A keyed table whose values have no bounds in the log is read by key and by value."""
    state = DeltaState(tmp_path / "t", key=Fields("id: long"), value=Fields("d: double", "m: decimal(10,2)"))
    table = state.open("topology", "s", "life", 1)
    table.write(1, {n: TransactionalValue(1, (n / 2, Decimal(n))) for n in range(10)})
    assert ids(reader(tmp_path / "t", Filter("d", ">=", 3.0))) == [6, 7, 8, 9]
    assert ids(reader(tmp_path / "t", Filter("m", "=", Decimal(4)))) == [4]
    assert ids(reader(tmp_path / "t", Filter("id", "=", 4))) == [4]


@pytest.fixture(scope="module", params=KINDS)
def filled(request, tmp_path_factory):
    """A table of each kind."""
    return KINDS[request.param](tmp_path_factory.mktemp("kinds"))


def comparable(rows):
    """Return rows by id, in a form that tells the zeros apart, and takes NaN for NaN."""
    return [
        {
            name: repr(value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value)
            for name, value in row.items()
        }
        for row in sorted(rows, key=lambda row: row["id"])
    ]


def wrong_filters(reader, filled, wanted):
    """Return the filters with which a reader finds other rows than a plain computation, where all engines agree."""
    takes_bits = reader.__name__.startswith("delta_rs")
    return [
        each for each in wanted if not is_right(filled, each, ids(reader(filled.path, each)), takes_bits=takes_bits)
    ]


def is_right(filled, wanted, found, *, takes_bits=False):
    """Whether a filter has found what a plain computation finds, leaving out where engines differ, whoever wrote it.

    That is whether NaN passes a comparison, and, for engines that compare lists by bits, whether one zero is in a list.
    """
    decided, expected = set(), set()
    for row in filled.rows:
        value = row[wanted.column]
        is_zero = takes_bits and wanted.operator == "in" and value == 0
        if wanted.value is None or not isinstance(value, float) or not (math.isnan(value) or is_zero):
            decided.add(row["id"])
        if wanted.passes(value):
            expected.add(row["id"])
    return [n for n in found if n in decided] == sorted(expected & decided)


def filters_of(filled):
    """Return filters of each column of a table."""
    columns = [name for name in filled.rows[0] if name in VALUES]
    yield from (each for each in filters(columns) if not (isinstance(each.value, float) and math.isnan(each.value)))
    if "p" in filled.rows[0]:
        days = dt.date(1500, 2, 1), dt.date(2024, 1, 1)
        yield from (Filter("p", operator, value) for value in PARTITIONS for operator in ("=", "<", ">="))
        yield from (Filter("day", operator, value) for value in days for operator in ("=", "<", ">="))
        yield from (Filter("k", operator, value) for value in (-1, 0, 1) for operator in ("=", "<", ">="))
        yield from (Filter("flag", "=", value) for value in (True, False))
        yield Filter("p", "in", tuple(PARTITIONS[3:6]))
        yield from (Filter(name, what) for name in ("p", "day", "k", "flag") for what in ("is null", "is not null"))


@pytest.mark.few(3)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_rows_are_read_as_they_were_put(filled, reader):
    """Every value of every row, by every reader."""
    found = reader(filled.path, columns=list(filled.rows[0])).to_pylist()
    assert comparable(found) == comparable(filled.rows)


@pytest.mark.few(1)
@pytest.mark.covering(1)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_filter_finds_what_a_plain_computation_finds(filled, reader):
    """Whatever the kind of table and the filter."""
    assert wrong_filters(reader, filled, random.Random(7).sample(list(filters_of(filled)), 12)) == []


CONDITIONS = (
    "s like 'z%'",
    "not (s like 'z%')",
    "s like 'z%' or s = 'é'",
    "s = 'null' and not (n = -1)",
    "n < id",
    "n >= id and s is not null",
    "n between -1 and 9007199254740992",
    "not (n between -1 and 9007199254740992)",
    "a < date '1582-10-15' or a is null",
    "not (a < date '1582-10-15')",
    "a not in (date '1500-02-28', date '1582-10-04')",
    "b or n < 0",
    "not b and id in (1, 5, 20, 33)",
    "s > 'a' and s < 'zz' and (n is null or n > 0)",
)


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("reader", SQL_READERS, ids=lambda reader: reader.__name__)
def test_a_combined_condition_finds_what_it_would_find_without_statistics(filled, tmp_path, reader):
    """Negations, alternatives, beginnings of texts, and columns beside each other."""
    bare = without_statistics(filled.path, tmp_path / "bare")
    every = list(map(Condition, CONDITIONS))
    assert [each for each in every if ids(reader(filled.path, each)) != ids(reader(bare, each))] == []


@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_are_in_no_dictionary(tmp_path, kind, zero):
    """Spark looks for the bits of a zero in a dictionary, and skips rows that have the other zero."""
    fields = Fields("id: long", f"one: {kind}", f"two: {kind}", "tags: array<long>")
    for with_tags in (True, False):
        own = fields if with_tags else fields.subset(fields.names[:-1])
        state = DeltaRows(tmp_path / f"t{with_tags}", own).open("topology", "s", "life", 1)
        rows = {"id": [1] * 120, "one": [1.5, zero, None] * 40, "two": [1.5, 2.5, None] * 40, "tags": [[1]] * 120}
        put(state, (1, ("append", pa.table({name: rows[name] for name in own.names}, schema=own.arrow_schema()))))
        (file,) = (tmp_path / f"t{with_tags}" / "_data").glob("*.parquet")
        group = pq.ParquetFile(file).metadata.row_group(0)
        found = {
            group.column(n).path_in_schema for n in range(group.num_columns) if group.column(n).has_dictionary_page
        }
        assert ("one" in found, "two" in found, "id" in found) == (False, True, True)


@pytest.mark.parametrize("reader", [each for each in READERS if each is not delta_rs_dataset])
def test_nan_is_found(tmp_path, reader):
    """It is the largest value to all engines but Arrow's datasets, whatever else is in its file."""
    fields = Fields("id: long", "d: double", "f: float")
    state = DeltaRows(tmp_path / "t", fields).open("topology", "s", "life", 1)
    put(state, (1, ("append", [(1, 0.5, 0.5), (2, math.nan, math.nan), (3, None, 2.5)])))
    for column in ("d", "f"):
        assert ids(reader(tmp_path / "t", Filter(column, "=", math.nan))) == [2]
        assert ids(reader(tmp_path / "t", Filter(column, ">=", 100.0))) == [2]
        assert ids(reader(tmp_path / "t", Filter(column, "=", 0.5))) == [1]


@pytest.mark.parametrize("x", [1.5, math.nan])
def test_nan_is_in_no_bounds(tmp_path, x):
    """Nor that in a struct; other columns have bounds."""
    fields = Fields("id: long", "one: struct<x: double>", "two: double")
    state = DeltaRows(tmp_path / "t", fields).open("topology", "s", "life", 1)
    put(state, (1, ("append", pa.table({"id": [1], "one": [{"x": x}], "two": [1.5]}, schema=fields.arrow_schema()))))
    (file,) = (tmp_path / "t" / "_data").glob("*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    assert [group.column(n).statistics is not None for n in range(4)] == [True, x == 1.5, True, True]


def test_zeros_of_structs_are_in_no_dictionary(tmp_path):
    """Spark looks for the parts of a struct, too."""
    fields = Fields("id: long", "one: struct<x: double, y: struct<z: float>>", "two: struct<x: double>")
    for number, (x, z) in enumerate(((1.5, 2.5), (-0.0, 2.5), (1.5, 0.0))):
        state = DeltaRows(tmp_path / f"t{number}", fields).open("topology", "s", "life", 1)
        rows = {"id": [1] * 120, "one": [{"x": x, "y": {"z": z}}, None] * 60, "two": [{"x": 1.5}] * 120}
        put(state, (1, ("append", pa.table(rows, schema=fields.arrow_schema()))))
        (file,) = (tmp_path / f"t{number}" / "_data").glob("*.parquet")
        group = pq.ParquetFile(file).metadata.row_group(0)
        assert [group.column(n).has_dictionary_page for n in range(4)] == [True, *[number == 0] * 3]


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_every_filter_finds_what_a_plain_computation_finds(filled, reader):
    """The same with every filter."""
    assert wrong_filters(reader, filled, filters_of(filled)) == []
