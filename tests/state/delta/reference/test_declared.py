"""DeltaReference: each version as a plain read has it, whoever wrote it and however a process came to it."""

import datetime as dt
import pickle
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from committers import ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaReference, DeltaState, read_table
from state.delta.log.location import Location
from state.delta.read.reading import read_rows
from tests.object_server import object_store
from txtopo import Fields, StateKind, TransactionalTopologyBuilder
from txtopo.api.reference import ReferenceTable, SeenVersion
from txtopo.errors import ConfigError, FieldsError, InputError
from txtopo.testing import run_inline

COLUMNS = pa.schema([("id", pa.int64()), ("country", pa.string()), ("name", pa.string())])


def rows(*ids: int | None, country: str = "ie", name: str = "v0") -> pa.Table:
    return pa.Table.from_pylist([{"id": each, "country": country, "name": f"{name} {each}"} for each in ids], COLUMNS)


def found(table: ReferenceTable, *keys: Any) -> list[Any]:
    """Return the name of each key."""
    columns = [
        list(column) for column in zip(*((key if isinstance(key, tuple) else (key,)) for key in keys), strict=True)
    ]
    wanted = pa.table({str(at): column for at, column in enumerate(columns)})
    return [row["name"] for row in table.look_up(wanted, ["name"]).to_pylist()]


def test_a_version_is_seen_for_ever(tmp_path: Path) -> None:
    """Whatever is written later; the newest is the newest when asked."""
    path = str(tmp_path / "customers")
    write_deltalake(path, rows(1, 2, None, None))
    reference = DeltaReference(path, "id")
    first = reference.newest("customers")
    DeltaTable(path).update(predicate="id = 1", updates={"name": "'changed'"})
    write_deltalake(path, rows(3), mode="append")
    last = reference.newest("customers")
    assert (first.version, last.version) == (0, 2)
    for seen, expected in (
        (first, ["v0 1", None, None]),
        (last, ["changed", "v0 3", None]),
        (first, ["v0 1", None, None]),
    ):
        table = pickle.loads(pickle.dumps(reference)).at(seen)
        assert (table.version, found(table, 1, 3, None)) == (seen.version, expected)
    assert reference.at(last).rows.num_rows == 5


def test_a_process_loads_a_version_once(tmp_path: Path) -> None:
    """However many copies of the reference there are."""
    path = str(tmp_path / "customers")
    write_deltalake(path, rows(1))
    reference = DeltaReference(path, "id")
    seen = reference.newest("customers")
    assert reference.at(seen) is pickle.loads(pickle.dumps(reference)).at(seen)


def test_several_key_columns(tmp_path: Path) -> None:
    """A key with a null in it is not there; types are cast."""
    path = str(tmp_path / "customers")
    write_deltalake(path, pa.concat_tables([rows(1, 2), rows(1, None, country="fr", name="fr")]))
    reference = DeltaReference(path, ["country", "id"])
    table = reference.at(reference.newest("customers"))
    keys = pa.table({"c": ["fr", "ie", None, "fr"], "n": pa.array([1, 2, 1, None], pa.int32())})
    assert table.find(keys).is_valid().to_pylist() == [True, True, False, False]
    assert table.look_up(keys)["name"].to_pylist() == ["fr 1", "v0 2", None, None]
    with pytest.raises(FieldsError, match=r"version 0 of .* has no column 'nam'; did you mean 'name'"):
        table.look_up(keys, ["nam"])


NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("key", "sought"),
    [
        (pa.array([NOON.date()]), pa.array([NOON])),
        (pa.array([Decimal("1.25")]), pa.array([1.2512])),
        (pa.array([True]), pa.array([3])),
        (pa.array([5]), pa.array(["5"])),
    ],
    ids=["a time as a date", "a float as a decimal", "a number as a boolean", "a text"],
)
def test_keys_of_another_kind(tmp_path: Path, key: pa.Array, sought: pa.Array) -> None:
    """A value that would have to change to be a key is not looked up as if it were one: it is refused."""
    write_deltalake(tmp_path / "days", pa.table({"key": key}))
    reference = DeltaReference(tmp_path / "days", "key")
    with pytest.raises(FieldsError, match=r"a key of version 0 of .*: .* does not fit \w+"):
        reference.at(reference.newest("days")).find(pa.table({"k": sought}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_version_is_as_a_plain_read_has_it(tmp_path: Path, seed: int) -> None:
    """Appends, updates, deletes, OPTIMIZE and new columns, from any version to any other."""
    random_ = random.Random(seed)
    path = str(tmp_path / "customers")
    write_deltalake(path, rows(*range(100)))
    top = 100
    for step in range(12):
        table = DeltaTable(path)
        low = random_.randrange(top)
        match random_.choice(["append", "append", "update", "delete", "optimize", "column"]):
            case "append":
                write_deltalake(path, rows(*range(top, top + 7)), mode="append", schema_mode="merge")
                top += 7
            case "update":
                table.update(predicate=f"id >= {low} AND id < {low + 9}", updates={"name": f"'step {step}'"})
            case "delete":
                table.delete(f"id >= {low} AND id < {low + 5}")
            case "optimize":
                table.optimize.compact()
            case _:
                new = rows(top).append_column(f"new{step}", pa.array([step]))
                write_deltalake(path, new, mode="append", schema_mode="merge")
                top += 1
    check_versions(path, "id", random_, top)


def check_versions(path: str, key: str, random_: random.Random, top: int) -> None:
    """Compare some versions, in any order, with what a plain read of each finds."""
    reference = DeltaReference(path, key)
    newest = reference.newest("customers")
    for _ in range(20):
        version = random_.randrange(newest.version + 1)
        then = DeltaTable(path, version=version)
        plain = read_rows(Location.resolve(path, None), then, pa.schema(then.schema()))
        table = reference.at(SeenVersion("customers", newest.identity, version))
        names = [name for name in table.rows.column_names if name in plain.column_names]
        expected = {row[key]: row for row in plain.select(names).to_pylist()}
        assert {row[key]: row for row in table.rows.to_pylist()} == expected
        keys = [random_.randrange(top + 5) for _ in range(50)]
        looked = table.look_up(pa.table({"k": pa.array(keys, plain.schema.field(key).type)}))
        assert [row if row[key] is not None else None for row in looked.to_pylist()] == list(map(expected.get, keys))


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("kind", [StateKind.TRANSACTIONAL, StateKind.OPAQUE])
def test_a_table_of_a_topology(tmp_path: Path, kind: StateKind, *, vectors: bool) -> None:
    """A keyed one, with deletion vectors or without; columns that only txtopo needs are not there."""
    random_ = random.Random(3)
    words = [[random_.randrange(60), 1] for _ in range(400)]
    builder = TransactionalTopologyBuilder("t", "w", MemoryTransactionalSpout(words, Fields("id: long", "n: long"), 9))
    builder.set_bolt("add", ReduceCommitter("totals", "id", "n")).shuffle_grouping("w")
    path = tmp_path / "totals"
    fields = Fields("id: long"), Fields("n: long")
    builder.set_state("totals", DeltaState(path, *fields, kind, deletion_vectors=vectors))
    run_inline(builder.build(), {"topology.group.transactions.max": 2})
    reference = DeltaReference(path, "id")
    newest = reference.newest("totals")
    for version in [*range(1, newest.version + 1), 3, newest.version]:
        table = reference.at(SeenVersion("totals", newest.identity, version))
        txid = max(table.rows["txid"].to_pylist(), default=0)
        if txid:
            assert sorted(table.rows.to_pylist(), key=str) == sorted(read_table(path, txid).to_pylist(), key=str)
        wanted = pa.table({"id": pa.array(range(70), pa.int64())})
        by_id = {row["id"]: row["n"] for row in table.rows.to_pylist()}
        assert table.look_up(wanted)["n"].to_pylist() == [by_id.get(number) for number in range(70)]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_shallow_clone(tmp_path: Path, scheme: str) -> None:
    """Its files are those of another table."""
    write_deltalake(tmp_path / "customers", rows(1, 2))
    entry = "_delta_log/00000000000000000000.json"
    made = (tmp_path / "customers" / entry).read_text().replace('"path":"', f'"path":"{scheme}{tmp_path}/customers/')
    (tmp_path / "clone" / "_delta_log").mkdir(parents=True)
    (tmp_path / "clone" / entry).write_text(made)
    reference = DeltaReference(tmp_path / "clone", "id")
    assert found(reference.at(reference.newest("customers")), 1, 2, 3) == ["v0 1", "v0 2", None]


def test_a_table_in_an_object_store() -> None:
    """From version to version, and a version that is vacuumed."""
    with object_store() as store:
        path, options = "s3://bucket/customers", store.options
        write_deltalake(path, rows(1, 2), storage_options=options)
        reference = DeltaReference(path, "id", storage_options=options)
        first = reference.newest("customers")
        assert found(reference.at(first), 1, 3) == ["v0 1", None]
        write_deltalake(path, rows(3), mode="append", storage_options=options)
        assert found(reference.at(reference.newest("customers")), 1, 3) == ["v0 1", "v0 3"]
        write_deltalake(path, rows(4), mode="overwrite", storage_options=options)
        table = DeltaTable(path, storage_options=options)
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        fresh = DeltaReference(path, "id", columns=[], storage_options=options)
        with pytest.raises(InputError, match=r"version 0 of reference 'customers'.*VACUUM END.*txtopo replan"):
            fresh.at(first)
        assert fresh.at(fresh.newest("customers")).rows["id"].to_pylist() == [4]


def test_columns_and_types_that_change(tmp_path: Path) -> None:
    """Each version has the columns and the type of the key that it had, in a process that holds several."""
    write_deltalake(str(tmp_path), pa.table({"id": pa.array([1], pa.int32()), "v": [1]}))
    reference = DeltaReference(tmp_path, "id")
    seen = [reference.newest("r")]
    write_deltalake(
        str(tmp_path), pa.table({"id": pa.array([2], pa.int32()), "w": ["b"]}), mode="append", schema_mode="merge"
    )
    seen.append(reference.newest("r"))
    wide = pa.table({"id": [1, 2**40], "w": ["a", "c"]})
    write_deltalake(str(tmp_path), wide, mode="overwrite", schema_mode="overwrite")
    seen.append(reference.newest("r"))
    keys = pa.table({"id": [1, 2, 2**40]})
    nothing: dict[str, Any] = {"id": None, "v": None, "w": None}
    expected = [
        [{"id": 1, "v": 1}, {"id": None, "v": None}, {"id": None, "v": None}],
        [{"id": 1, "v": 1, "w": None}, {"id": 2, "v": None, "w": "b"}, nothing],
        [{"id": 1, "w": "a"}, {"id": None, "w": None}, {"id": 2**40, "w": "c"}],
    ]
    for at in (0, 1, 2, 0):
        assert reference.at(seen[at]).look_up(keys).to_pylist() == expected[at]


def test_keys_more_than_once_are_refused_by_name(tmp_path: Path) -> None:
    """In one version, and in one that doubles a key of the version before."""
    path = str(tmp_path / "customers")
    write_deltalake(path, rows(1, 2))
    reference = DeltaReference(path, "id")
    reference.at(reference.newest("customers"))
    write_deltalake(path, rows(2), mode="append")
    with pytest.raises(InputError, match=r"version 1 of reference 'customers'.*1 key more than once.*'id': 2.*replan"):
        reference.at(reference.newest("customers"))
    fresh = DeltaReference(path, "id", columns=[])
    with pytest.raises(InputError, match="more than once"):
        fresh.at(fresh.newest("customers"))


def test_a_version_that_is_vacuumed(tmp_path: Path) -> None:
    """The error names it, who has removed it, and the command that plans again."""
    path = str(tmp_path / "customers")
    write_deltalake(path, rows(1))
    reference = DeltaReference(path, "id")
    seen = reference.newest("customers")
    write_deltalake(path, rows(2), mode="overwrite")
    table = DeltaTable(path)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(InputError, match=r"version 0 of reference 'customers'.*VACUUM END.*txtopo replan"):
        reference.at(seen)


def test_a_table_that_is_gone_or_replaced(tmp_path: Path) -> None:
    """Gone: no such table. Another one in its place is refused, though it has the version."""
    path = str(tmp_path / "customers")
    write_deltalake(path, rows(1))
    reference = DeltaReference(path, "id")
    seen = reference.newest("customers")
    (tmp_path / "customers").rename(tmp_path / "aside")
    with pytest.raises(ConfigError, match="no Delta table"):
        reference.newest("customers")
    with pytest.raises(InputError, match="there is no table any more"):
        reference.at(seen)
    write_deltalake(path, rows(2))
    with pytest.raises(InputError, match="was replaced"):
        reference.at(seen)


def test_what_can_not_be_a_reference(tmp_path: Path) -> None:
    """It is refused when it is looked for, by the column."""
    path = str(tmp_path / "customers")
    write_deltalake(path, rows(1).append_column("weight", pa.array([1.5])))
    with pytest.raises(FieldsError, match="no column 'idd'; did you mean 'id'"):
        DeltaReference(path, "idd").newest("customers")
    with pytest.raises(FieldsError, match="'weight' is double, whose values have no reliable equality"):
        DeltaReference(path, "weight").newest("customers")
    with pytest.raises(ConfigError, match="name one column"):
        DeltaReference(path, [])
    with pytest.raises(ConfigError, match="can't be negative"):
        DeltaReference(path, "id", refresh=dt.timedelta(seconds=-1))
    with pytest.raises(FieldsError, match=r"look it up with 1 columns, not 2"):
        reference = DeltaReference(path, "id")
        reference.at(reference.newest("c")).find(pa.table({"a": [1], "b": [2]}))


def test_bounded_memory(tmp_path: Path) -> None:
    """More than the bound is an error that says what to do; fewer columns may fit."""
    path = str(tmp_path / "customers")
    write_deltalake(path, rows(*range(10_000)))
    large = DeltaReference(path, "id", bytes_max=350_000)
    with pytest.raises(ConfigError, match=r"more than 350,000 bytes.*columns=, raise bytes_max="):
        large.at(large.newest("customers"))
    small = DeltaReference(path, "id", columns=[], bytes_max=350_000)
    assert small.at(small.newest("customers")).rows.column_names == ["id"]
