"""The Delta write of txtopo: what it writes is what every reader reads."""

import datetime as dt
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings, strategies as st

from state.delta.log.data_files import DATA_FOLDER, DataFolder, files_of, partition_text
from state.delta.log.entries import entry_path
from state.delta.log.location import Location
from state.delta.log.put import Change, entry_of, refuse_unknown
from tests.budgets import examples
from txtopo.errors import ConfigError
from txtopo.files.folder import LocalFolder

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)
DATES = st.dates(dt.date(1583, 1, 1), dt.date(9999, 12, 31))
TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.float64(): st.floats(),
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=40),
    pa.bool_(): st.booleans(),
    pa.date32(): DATES,
    pa.timestamp("us", "UTC"): TIMES,
    pa.decimal128(20, 4): st.decimals(-(10**15), 10**15, places=4),
    pa.list_(pa.int64()): st.lists(st.integers(0, 9), max_size=3),
}
PARTITIONS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS.filter(bool),  # Delta takes an empty text for null
    pa.int64(): VALUES[pa.int64()],
    pa.date32(): DATES,
    pa.bool_(): st.booleans(),
}

Rows = list[dict[str, Any]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Schema, pa.Field | None, list[tuple[Any, Rows]]]:
    """Draw a schema, a partition column or none, and for each file the partition's value and the rows."""
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    schema = pa.schema([pa.field(f"c{number}", kind) for number, kind in enumerate(kinds)])
    partition = draw(st.none() | st.sampled_from([pa.field("p", kind) for kind in PARTITIONS]))
    row = st.fixed_dictionaries({field.name: st.none() | VALUES[field.type] for field in schema})
    value = st.none() if partition is None else st.none() | PARTITIONS[partition.type]
    return schema, partition, draw(st.lists(st.tuples(value, st.lists(row, max_size=5)), min_size=1, max_size=4))


def plain_rows(root: Path, version: int, partition: pa.Field | None) -> Rows:
    """Read a table as the protocol says, from the log and its Parquet files alone."""
    added: dict[str, Any] = {}
    for number in range(version + 1):
        for line in (root / entry_path(number)).read_bytes().splitlines():
            action = json.loads(line)
            if "add" in action:
                added[action["add"]["path"]] = action["add"]
            if "remove" in action:
                del added[action["remove"]["path"]]
    rows: Rows = []
    for add in added.values():
        found = pq.read_table(root / add["path"], partitioning=None).to_pylist()
        assert json.loads(add["stats"])["numRecords"] == len(found)
        extra = {} if partition is None else {"p": typed(add["partitionValues"]["p"], partition.type)}
        rows += [row | extra for row in found]
    return rows


def typed(text: str | None, kind: pa.DataType) -> Any:
    """Return a partition's value from the log's text."""
    if text is None or pa.types.is_string(kind):
        return text
    return pa.scalar(text).cast(kind).as_py()


def comparable(rows: Rows) -> list[str]:
    """Return rows in a form that can be sorted: one NaN equals another, and a moment has no name of its zone."""
    return sorted(repr(sorted((name, plain(value)) for name, value in row.items())) for row in rows)


def plain(value: Any) -> Any:
    """Return a value in that form."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value.isoformat() if isinstance(value, dt.datetime) else value


def write(root: Path, schema: pa.Schema, partition: pa.Field | None, files: list[tuple[Any, Rows]]) -> int:
    """Create a table, add a file in each version, and return the last one."""
    columns = schema if partition is None else schema.append(partition)
    DeltaTable.create(str(root), schema=columns, partition_by=None if partition is None else ["p"])
    (root / DATA_FOLDER).mkdir()
    folder, data = LocalFolder(root), DataFolder(Location.resolve(str(root), None))
    for version, (value, rows) in enumerate(files, 1):
        text = {} if partition is None else {"p": None if value is None else partition_text(value)}
        held = pa.Table.from_pylist([row if partition is None else row | {"p": value} for row in rows], schema=columns)
        file = data.put(f"file-{version}", held, text)
        entry = entry_of(Change([file]), {"txtopo.txid": str(version)}, {"topology/state": version}, 1_700_000_000_000)
        assert folder.put_if_absent(entry_path(version), entry)
    return len(files)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(tables())
def test_every_reader_reads_what_was_written(drawn: tuple[pa.Schema, pa.Field | None, list[tuple[Any, Rows]]]) -> None:
    """delta-rs, before and after a checkpoint, and a plain reader see the rows, all types, nulls and partitions."""
    schema, partition, files = drawn
    extra = [{} if partition is None else {"p": value} for value, _ in files]
    expected = comparable([row | each for each, (_, rows) in zip(extra, files, strict=True) for row in rows])
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "table"
        version = write(root, schema, partition, files)
        assert comparable(plain_rows(root, version, partition)) == expected
        for _ in range(2):
            table = DeltaTable(str(root))
            assert table.version() == version
            assert table.transaction_version("topology/state") == version
            assert comparable(pa.table(table.scan()).to_pylist()) == expected
            table.create_checkpoint()


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(tables())
def test_no_file_is_skipped_that_has_a_row(drawn: tuple[pa.Schema, pa.Field | None, list[tuple[Any, Rows]]]) -> None:
    """A reader that looks for a value finds every row that has it, whatever the statistics let it skip."""
    schema, partition, files = drawn
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "table"
        write(root, schema, partition, files)
        table = DeltaTable(str(root))
        for field in schema:
            if field.type in {pa.int64(), pa.int8(), pa.string(), pa.date32()}:
                for value in {row[field.name] for _, rows in files for row in rows} - {None}:
                    expected = sum(row[field.name] == value for _, rows in files for row in rows)
                    literal = f"'{str(value).replace(chr(39), chr(39) * 2)}'" if not isinstance(value, int) else value
                    found = pa.table(table.scan(predicate=f"{field.name} = {literal}"))
                    assert found.num_rows == expected


def test_a_file_that_is_replaced_is_gone(tmp_path: Path) -> None:
    """A version that removes a file and adds another shows the new one alone, and keeps the old one in its past."""
    root = tmp_path / "table"
    schema = pa.schema([pa.field("n", pa.int64())])
    version = write(root, schema, None, [(None, [{"n": 1}])])
    data = DataFolder(Location.resolve(str(root), None))
    old = list(files_of(data.location, DeltaTable(str(root))).values())
    new = data.put("new", pa.table({"n": [2]}, schema=schema))
    assert LocalFolder(root).put_if_absent(entry_path(version + 1), entry_of(Change([new], old), {}, {}, 1))
    assert pa.table(DeltaTable(str(root)).scan())["n"].to_pylist() == [2]
    assert pa.table(DeltaTable(str(root), version=1).scan())["n"].to_pylist() == [1]


CHANGES = {
    "the constraint 'small'": lambda table: table.alter.add_constraint({"small": "n < 9"}),
    "the property delta.appendOnly": lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
    "a change data feed": lambda table: table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"}),
    "the table feature 'deletionVectors'": lambda table: table.alter.set_table_properties(
        {"delta.enableDeletionVectors": "true"}
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_not_known_is_refused(tmp_path: Path, what: str) -> None:
    """A table that asks more of a writer than txtopo gives is refused by name."""
    table = DeltaTable.create(str(tmp_path), schema=pa.schema([pa.field("n", pa.int64())]))
    refuse(table)
    CHANGES[what](table)
    with pytest.raises(ConfigError, match=what):
        refuse(DeltaTable(str(tmp_path)))


def refuse(table: DeltaTable) -> None:
    """Check a table as a writer does."""
    refuse_unknown("here", table.protocol(), table.metadata().configuration, table.schema().to_json())
