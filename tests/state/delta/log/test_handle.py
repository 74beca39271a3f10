"""What a handle says of application transactions: the same as delta-rs', by one pass."""

import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from state.delta.log.handle import Handle
from state.delta.log.location import Location
from tests.object_server import ObjectStore

NAMES = ("a", "a/epoch", 'ä "txn"', "once", "never")


def write(path: str, number: int, **options: object) -> None:
    """Write a version with application transactions, of which the last one is in each fourth only."""
    told = [Transaction(name, number * 10 + at) for at, name in enumerate(NAMES[:3])]
    told += [Transaction("once", number)] if number == 2 else []
    told = told if number % 4 else told[2:3]
    properties = CommitProperties(app_transactions=told)
    rows = pa.table({"word": ['{"txn": 1}']})
    write_deltalake(path, rows, mode="append", commit_properties=properties, **options)


def said(table: DeltaTable) -> list[int | None]:
    return [table.transaction_version(name) for name in NAMES]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path of a table of ten versions, with a checkpoint in between."""
    for number in range(10):
        write(str(tmp_path / "t"), number)
        if number == 6:
            DeltaTable(tmp_path / "t").create_checkpoint()
    return str(tmp_path / "t")


def opened(path: str, version: int | None = None) -> DeltaTable:
    handle = Location.resolve(path, None).handle(version)
    assert isinstance(handle, Handle)
    return handle


def test_each_version_as_delta_rs_says(path: str) -> None:
    """With and without a checkpoint before it, and where a transaction was never told of."""
    for version in range(10):
        assert said(opened(path, version)) == said(DeltaTable(path, version=version))
    assert said(opened(path)) == [90, 91, 92, 2, None]


def test_a_handle_that_goes_on(path: str) -> None:
    """What has come since is read when it is at a later version; what has not is not seen."""
    handle = opened(path, 5)
    before = said(handle)
    write(path, 10)
    assert said(handle) == before
    handle.update_incremental()
    assert said(handle) == said(DeltaTable(path)) == [100, 101, 102, 2, None]
    handle.load_as_version(3)
    assert said(handle) == said(DeltaTable(path, version=3))


def test_a_log_that_begins_with_its_checkpoint(path: str) -> None:
    """The entries before it may be gone."""
    for version in range(6):
        (Path(path) / f"_delta_log/{version:020d}.json").unlink()
    assert said(opened(path)) == said(DeltaTable(path)) == [90, 91, 92, 2, None]
    assert said(opened(path, 6)) == said(DeltaTable(path, version=6))


def test_a_checkpoint_in_parts(path: str) -> None:
    """delta-rs reads what has another form than txtopo's."""
    log = Path(path) / "_delta_log"
    (log / "_last_checkpoint").unlink()
    whole = log / f"{6:020d}.checkpoint.parquet"
    whole.rename(log / f"{6:020d}.checkpoint.{1:010d}.{1:010d}.parquet")
    for version in range(6):
        (log / f"{version:020d}.json").unlink()
    assert said(opened(path)) == said(DeltaTable(path)) == [90, 91, 92, 2, None]


def test_transactions_that_are_forgotten(tmp_path: Path) -> None:
    """delta-rs says which, if the table has the property for it."""
    path = str(tmp_path / "t")
    write(path, 1, configuration={"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    assert said(opened(path)) == said(DeltaTable(path))


def test_a_log_that_is_damaged_since(path: str) -> None:
    """The error is that of delta-rs, and not an answer without what is missing."""
    for damage in (Path.unlink, lambda entry: entry.write_bytes(b'{"txn": ')):
        copy = f"{path}-copy"
        shutil.copytree(path, copy)
        handle = opened(copy)
        damage(Path(copy) / f"_delta_log/{8:020d}.json")
        with pytest.raises(DeltaError):
            handle.transaction_version("once")
        shutil.rmtree(copy)


def test_one_pass(bucket_server: ObjectStore) -> None:
    """However many are asked for: each entry is read once, and later the new ones."""
    path = "s3://bucket/t"
    for number in range(5):
        write(path, number, storage_options=bucket_server.options)
    handle = Location.resolve(path, bucket_server.options).handle()
    with bucket_server.counting() as asked:
        assert said(handle) == [30, 31, 42, 2, None]
    assert asked == Counter(GET=5, LIST=1)
    write(path, 5, storage_options=bucket_server.options)
    handle.update_incremental()
    with bucket_server.counting() as asked:
        assert said(handle) == [50, 51, 52, 2, None]
    assert asked == Counter(GET=1)
