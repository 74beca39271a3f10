"""OPTIMIZE, ZORDER, VACUUM and CHECKPOINT by Spark's Delta beside our own writes, and its readers held open meanwhile."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import state.delta.upkeep.past
import state.delta.upkeep.rounds
import state.delta.upkeep.schedule
import state.delta.writer
from state import read_table
from tests.state.delta.delta_tables import LARGE, all_of, maintain
from tests.state.delta.dying_run import KINDS as DYING, DyingRun
from tests.state.delta.read.kinds import KINDS
from tests.state.delta.read.readers import READERS
from tests.state.delta.read.test_readers import comparable
from tests.state.delta.read.test_readers_during_upkeep import DAY_SECS, RETENTION_DAYS, History, clock, keys, rows
from tests.state.delta.spark_session import (
    HELD,
    attempt_sql,
    checkpoint,
    hold,
    process_id,
    read_held,
    rows_at,
    run_sql,
)
from tests.state.delta.table_life import LIVES, RECENT_SECS
from tests.state.delta.test_foreign_optimize import Table

pytestmark = pytest.mark.long

OPTIMIZE = "OPTIMIZE delta.`{}`"
ZORDER = "OPTIMIZE delta.`{}` ZORDER BY (n)"
VACUUM = "VACUUM delta.`{}` RETAIN 0 HOURS"
INT96, MICROS = (f"SET spark.sql.parquet.outputTimestampType={kind}" for kind in ("INT96", "TIMESTAMP_MICROS"))


@pytest.fixture(autouse=True)
def _with_any_retention(spark: ProcessPoolExecutor) -> None:
    spark.submit(run_sql, "SET spark.databricks.delta.retentionDurationCheck.enabled=false").result()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table(spark: ProcessPoolExecutor, tmp_path: Path, kind: str) -> None:
    """What Spark has moved is what it was: to txtopo, and with times in microseconds to all readers."""
    filled = KINDS[kind](tmp_path)
    columns, expected = list(filled.rows[0]), comparable(filled.rows)
    version = DeltaTable(filled.path).version()
    for times, statement in ((INT96, OPTIMIZE), (INT96, ZORDER), (MICROS, ZORDER)):
        spark.submit(run_sql, times).result()
        spark.submit(run_sql, statement.format(filled.path)).result()
        assert comparable(read_table(filled.path).select(columns).to_pylist()) == expected
    spark.submit(run_sql, INT96).result()
    assert DeltaTable(filled.path).version() >= version + 2
    for reader in READERS:
        assert comparable(reader(filled.path, columns=columns).to_pylist()) == expected, reader.__name__


@pytest.fixture(params=["files", "partitioned"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table with some transactions, in several files."""
    made = Table(tmp_path / "t", request.param, **LARGE)
    for txid in (1, 2, 4):
        made.write(txid)
    return made


@contextlib.contextmanager
def stopped_within(spark: ProcessPoolExecutor, statement: str, path: Path) -> Iterator[Future[str | None]]:
    """Run a statement, and stop Spark's process within the context, once it has begun to write a data file."""
    number = spark.submit(process_id).result()
    before = data_files(path)
    done = spark.submit(attempt_sql, statement.format(path))
    while data_files(path) == before and not done.done():
        time.sleep(0.001)
    os.kill(number, signal.SIGSTOP)
    try:
        yield done
    finally:
        os.kill(number, signal.SIGCONT)


def data_files(path: Path) -> set[Path]:
    """Return the data files that are not in the folder of ours."""
    return {file for file in path.rglob("*.parquet") if file.parent.name not in {"_data", "_delta_log"}}


@pytest.mark.parametrize("statement", [OPTIMIZE, ZORDER])
@pytest.mark.parametrize("deed", ["write", "writes", "upkeep", "opening", "roll back"])
def test_one_that_is_stopped_and_goes_on_after_our_versions(
    spark: ProcessPoolExecutor, table: Table, deed: str, statement: str
) -> None:
    """Spark's OPTIMIZE that has read the table before our versions fails, or leaves every row once."""
    with stopped_within(spark, statement, table.path) as done:
        match deed:
            case "write":
                table.write(5)
            case "writes":
                for txid in (5, 6, 8):
                    table.write(txid)
            case "upkeep":
                maintain(table.opened)
            case "opening":
                table.open()
            case "roll back":
                table.opened.roll_back(4)
                table.opened.roll_back(2)
                table.go_back(2)
    error = done.result()
    assert error is None or deed != "opening"
    assert table.rows() == table.model
    table.write(9)
    assert table.rows() == table.model


@pytest.mark.parametrize("kind", DYING)
def test_one_after_another_beside_a_run_with_kills(spark: ProcessPoolExecutor, tmp_path: Path, kind: str) -> None:
    """Groups, upkeep and a coordinator that dies every few steps: each transaction is there once, and so is each row."""
    run, txid, done = DyingRun(tmp_path, kind, 200, tier_files=2, **LARGE), 0, 0
    by_k, vacuum = ZORDER.replace("(n)", "(k)"), VACUUM.replace("0", "1")
    for statement in (OPTIMIZE, by_k, vacuum, OPTIMIZE, OPTIMIZE, by_k):
        for _ in range(4):
            txid += 1
            run.write(txid)
        error = spark.submit(attempt_sql, statement.format(tmp_path))
        for _ in range(6):
            txid += 1
            run.write(txid)
        spark.submit(checkpoint, tmp_path).result()
        done += error.result() is None
        assert error.result() is None or "concurrent" in str(error.result()).lower()
    assert run.is_exact()
    assert run.deaths
    assert done


@pytest.mark.parametrize("fill", [keys, rows])
@pytest.mark.parametrize("log_hours", [None, 31 * 24])
def test_what_is_held_open_over_our_upkeep(
    spark: ProcessPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Any, log_hours: int | None
) -> None:
    """A DataFrame, a query that has run before, a version and a half-read result are whole later, or an error."""
    history = History(tmp_path / "t", monkeypatch)
    opened, add_0 = fill(history)
    if log_hours is not None:
        opened.keep_history(all_of(log_hours))
    versions = history.versions[-4:]  # Spark itself refuses those before the last week
    for version in versions:
        assert spark.submit(hold, history.path, version).result() is None
    wrong: list[tuple[str, int, str, str]] = []

    def look(moment: str, *ways: str) -> None:
        for version in versions:
            for way in ways:
                found = spark.submit(read_held, history.path, version, way).result()
                said = history.wrong(version, lambda found=found: as_rows(found))
                if said is not None:
                    wrong.append((moment, version, way, said))

    maintain(opened)
    history.note(0, history.held)
    look("after upkeep", *HELD)
    history.later_days = RETENTION_DAYS + 1
    history.write(-history.later_days, add_0, history.held | {0})
    later = clock(lambda: time.time() + history.later_days * DAY_SECS)
    with monkeypatch.context() as patch:
        for each in (state.delta.upkeep.schedule, state.delta.upkeep.past):
            patch.setattr(each, "time", later)
        patch.setattr(state.delta.writer, "time", later)
        maintain(opened)
    look("after a week", "version", "run before", "view")
    assert wrong == [], "\n".join(map(str, wrong))


@pytest.mark.parametrize("kind", LIVES)
def test_points_are_read_and_left_whole(
    spark: ProcessPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Spark opens each by its number, before and after its own upkeep at its defaults; the newest version, too."""
    life = LIVES[kind](monkeypatch, tmp_path / "t")
    life.run(range(1, 70))
    life.maintain(RECENT_SECS + 61)
    versions = [version for version in life.versions() if life.txid_of(version) is not None]
    assert [life.txid_of(version) for version in versions] == [20, 40, 60, 69]
    spark.submit(run_sql, "SET spark.databricks.delta.retentionDurationCheck.enabled=true").result()
    for statement in (None, "VACUUM delta.`{}`", "VACUUM delta.`{}` LITE", None):
        if statement is None:
            spark.submit(checkpoint, life.path).result()
        else:
            spark.submit(run_sql, statement.format(life.path)).result()
        for version in versions:
            found = pa.Table.from_pylist(spark.submit(rows_at, life.path, version).result())
            assert life.rows_in(found) == life.rows_after(life.txid_of(version)), (statement, version)
    assert life.declared.table().kept(range(70)) >= {0, *life.points}


def as_rows(found: list[int] | str) -> pa.Table:
    """Return ids as rows, or raise the error that there was instead."""
    if isinstance(found, str):
        raise OSError(found)
    return pa.table({"id": pa.array(found, pa.int64())})
