"""Spark's Delta reads what txtopo writes, at every version: what it shows is what delta-rs shows, and was put."""

import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings

from state import DeltaRows, DeltaState
from tests.budgets import examples
from tests.state.delta.delta_tables import LARGE, maintain, sized
from tests.state.delta.log.test_put import Rows, comparable, tables, write
from tests.state.delta.spark_session import numbers_streamed, rows_at, run_sql
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.api.writes import RowsMode, TransactionRows

pytestmark = pytest.mark.long


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(tables())
def test_generated_tables(
    spark: ProcessPoolExecutor, drawn: tuple[pa.Schema, pa.Field | None, list[tuple[Any, Rows]]]
) -> None:
    """All types, nulls and partitions are read as they were written, up to each version."""
    schema, partition, files = drawn
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "table"
        write(root, schema, partition, files)
        expected: Rows = []
        for version, (value, rows) in enumerate(files, 1):
            expected += [row | ({} if partition is None else {"p": value}) for row in rows]
            assert comparable(spark.submit(rows_at, root, version).result()) == comparable(expected)


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "streamed"])
def test_a_life_of_a_keyed_table(spark: ProcessPoolExecutor, tmp_path: Path, is_held: bool) -> None:
    """Markers, writes, removals, upkeep, an OPTIMIZE by Spark between them, a roll-back, an adoption."""
    declared = DeltaState(
        tmp_path, Fields("k: string", "j: long"), Fields("v: long"), upkeep_every_writes=3, files_max=2
    )
    state = sized(declared, **({} if is_held else LARGE)).open("topology", "s", "life", 1)
    for txid in range(1, 10):
        note = state.prepare(txid, {("a", txid % 4): TransactionalValue(txid, txid), ("é😀", txid - 3): None})
        if txid % 3 == 0:
            spark.submit(run_sql, f"OPTIMIZE delta.`{tmp_path}`").result()
        state.publish(txid, note)
        state.maintain()
    write_deltalake(
        tmp_path,
        pa.table({"k": ["x"], "j": [1], "v": [2], "txid": [3]}, schema=pa.schema(DeltaTable(tmp_path).schema())),
        mode="append",
    )
    state = declared.open("topology", "s", "life", 2)
    state.roll_back(5)
    spark.submit(run_sql, f"DELETE FROM delta.`{tmp_path}` WHERE j = 1").result()
    state = declared.open("topology", "s", "life", 3)
    state.adopt()
    state.write(6, {("a", 1): TransactionalValue(6, 60)})
    same_at_every_version(spark, tmp_path)


def test_a_life_of_a_table_of_rows(spark: ProcessPoolExecutor, tmp_path: Path) -> None:
    """Appends, replaced partitions with names that Delta encodes, upkeep, a roll-back."""
    declared = DeltaRows(
        tmp_path, Fields("day: string", "n: long"), partition_by="day", upkeep_every_writes=2, files_max=2
    )
    state = declared.open("topology", "s", "life", 1)
    for txid in range(1, 9):
        rows = pa.table({"day": ["a b%", "ä/é", f"{txid % 2}"], "n": [txid] * 3})
        mode = RowsMode.REPLACE if txid % 4 == 0 else RowsMode.APPEND
        state.write(txid, state.write_rows([TransactionRows(txid, rows, mode)]))
        if txid == 5:
            spark.submit(run_sql, f"OPTIMIZE delta.`{tmp_path}`").result()
        state.maintain()
    state.roll_back(3)
    state.write(4, state.write_rows([TransactionRows(4, pa.table({"day": ["a b%"], "n": [1]}), RowsMode.REPLACE)]))
    same_at_every_version(spark, tmp_path)


def same_at_every_version(spark: ProcessPoolExecutor, root: Path) -> None:
    """Compare what Spark and delta-rs see."""
    newest = DeltaTable(root).version()
    assert newest > 10
    for version in range(newest + 1):
        expected = pa.table(DeltaTable(root, version=version).scan()).to_pylist()
        assert comparable(spark.submit(rows_at, root, version).result()) == comparable(expected)


def test_a_stream_goes_on_over_our_compactions(spark: ProcessPoolExecutor, tmp_path: Path) -> None:
    """Whoever streams a table of rows gets each row once: versions that only move rows are none of its business."""
    declared = DeltaRows(tmp_path / "t", Fields("n: long"), upkeep_every_writes=1, files_max=1)
    state = declared.open("topology", "s", "life", 1)
    for txid in range(1, 6):
        rows = pa.table({"n": [txid]})
        state.write(txid, state.write_rows([TransactionRows(txid, rows, RowsMode.APPEND)]))
        if txid % 2:
            spark.submit(numbers_streamed, tmp_path / "t", tmp_path).result()
        maintain(state)
    streamed = spark.submit(numbers_streamed, tmp_path / "t", tmp_path).result()
    assert sorted(streamed) == [1, 2, 3, 4, 5]
    assert len(DeltaTable(tmp_path / "t").file_uris()) == 1
