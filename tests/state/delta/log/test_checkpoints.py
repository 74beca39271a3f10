"""A checkpoint that is made of the one before has what delta-rs would have put into it."""

import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from state import DeltaState, TransactionalValue, read_table
from state.delta.log.checkpoints import checkpoint_path, make_checkpoint
from state.delta.log.entries import entry_path
from state.delta.log.location import Location
from tests.variants import variants
from txtopo import Fields


def checkpoint(path: Path) -> None:
    """Make one of the newest version."""
    location = Location.resolve(str(path), None)
    make_checkpoint(location, location.handle().version(), lambda _place: True)


def expected(path: Path, scratch: Path) -> set[str]:
    """Return the actions that delta-rs has for the newest version of a copy; of no file that is live, its removal."""
    shutil.copytree(path, scratch)
    table = DeltaTable(scratch)
    table.create_checkpoint()
    rows = pq.read_table(scratch / checkpoint_path(table.version())).to_pylist()
    live = {row["add"]["path"] for row in rows if row["add"] is not None}

    def stays(removed: dict[str, object] | None) -> bool:
        return removed is None or removed["path"] not in live or removed["deletionVector"] is not None

    return {repr(row) for row in rows if stays(row["remove"])}


def found(path: Path) -> set[str]:
    """Return the actions in the checkpoint of the newest version, each of which is there once."""
    rows = pq.read_table(path / checkpoint_path(DeltaTable(path).version())).to_pylist()
    assert len(rows) == len({*map(repr, rows)})
    return {*map(repr, rows)}


def fail(_table: DeltaTable) -> None:
    raise AssertionError("delta-rs is not asked")


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", variants(*range(6), long=range(6, 60)))
def test_versions_of_any_kind(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes and roll-backs of txtopo, with vectors and without, and what others do to such a table."""
    rng = random.Random(seed)
    path, has_vectors = tmp_path / "table", seed % 2 == 1
    state: Any = None
    epoch, txid = 0, 0

    def begin() -> None:
        nonlocal state, epoch
        epoch += 1
        declared = DeltaState(path, Fields("id: long"), Fields("n: long"), deletion_vectors=has_vectors)
        state = declared.open("topology", "s", "life", epoch)

    def write() -> None:
        nonlocal txid
        txid += 1
        keys = rng.sample(range(40), rng.randint(1, 10))
        state.write(txid, {key: TransactionalValue(txid, txid) for key in keys})

    def go_back() -> None:
        nonlocal txid
        begin()
        txid = rng.randint(max(0, txid - 3), txid)
        state.roll_back(txid or None)

    def compact() -> None:
        if not has_vectors:
            DeltaTable(path).optimize.compact()

    begin()
    write()
    checkpoint(path)
    steps: list[Callable[[], None]] = [write, write, write, begin, go_back, compact]
    for number in range(4):
        for _ in range(rng.randint(1, 6)):
            rng.choice(steps)()
        write()
        actions = expected(path, tmp_path / str(number))
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "create_checkpoint", fail)
            checkpoint(path)
        assert found(path) == actions
        rows, again = (read_table(each).sort_by("id") for each in (path, tmp_path / str(number)))
        assert rows.equals(again)


REMOVE = {"remove": {"path": "a%20b", "deletionTimestamp": int(time.time() * 1000), "dataChange": True}}
DOMAIN = {"domainMetadata": {"domain": "of.others", "configuration": "{}", "removed": False}}
TRANSACTION = {"txn": {"appId": "another", "version": 3, "lastUpdated": 5}}


@pytest.mark.parametrize(
    ("action", "is_delta_rs_asked"),
    [
        (REMOVE, False),
        (TRANSACTION, False),
        (DOMAIN, True),
        ({"txn": {**TRANSACTION["txn"], "more": 1}}, True),
        ({"unknown": {}}, True),
    ],
)
def test_actions_of_others(
    action: dict[str, object], is_delta_rs_asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a checkpoint of txtopo has no column for is delta-rs' to keep or to leave out."""
    path = tmp_path / "table"
    state = DeltaState(path, Fields("id: long"), Fields("n: long")).open("topology", "s", "life", 1)
    state.write(1, {1: TransactionalValue(1, 1)})
    checkpoint(path)
    put_action(path, {"txn": {"appId": "another", "version": 2}})
    put_action(path, action)
    actions = expected(path, tmp_path / "copy")
    asked: list[DeltaTable] = []
    make = DeltaTable.create_checkpoint

    def ask(table: DeltaTable) -> None:
        asked.append(table)
        make(table)

    monkeypatch.setattr(DeltaTable, "create_checkpoint", ask)
    checkpoint(path)
    assert found(path) == actions
    assert bool(asked) == is_delta_rs_asked


def put_action(path: Path, action: dict[str, object]) -> None:
    """Put a version of somebody else."""
    (path / entry_path(DeltaTable(path).version() + 1)).write_text(json.dumps(action))


def test_a_checkpoint_with_columns_of_others(tmp_path: Path) -> None:
    """Spark's may have statistics as columns, which those of later files would lack."""
    path = tmp_path / "table"
    state = DeltaState(path, Fields("id: long"), Fields("n: long")).open("topology", "s", "life", 1)
    state.write(1, {1: TransactionalValue(1, 1)})
    checkpoint(path)
    place = path / checkpoint_path(DeltaTable(path).version())
    rows = pq.read_table(place)
    added = rows["add"].combine_chunks()
    bounds = pa.struct([(name, pa.int64()) for name in ("id", "n", "txid")])
    names = ("nullCount", "minValues", "maxValues")
    parsed = pa.struct([("numRecords", pa.int64()), *((name, bounds) for name in names)])
    fields = [*(field.with_nullable(True) for field in added.type), pa.field("stats_parsed", parsed)]
    columns = [*added.flatten(), pa.nulls(rows.num_rows, parsed)]
    more = pa.StructArray.from_arrays(columns, fields=fields, mask=added.is_null())
    pq.write_table(rows.set_column(rows.column_names.index("add"), "add", more), place)
    state.write(2, {1: TransactionalValue(2, 2)})
    actions = expected(path, tmp_path / "copy")
    checkpoint(path)
    assert found(path) == actions
