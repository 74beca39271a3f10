"""What somebody else does to a table with deletion vectors: rows that move are believed, rows that change refused."""

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from state import DeltaState, read_table
from tests.state.delta.delta_tables import sized
from tests.state.delta.foreign import live_files, move_rows
from tests.state.delta.spark_session import run_sql
from tests.state.delta.vector_tables import mark_dead
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.errors import DivergenceError

LIVE = {n: n for n in range(10) if n not in {0, 1, 2, 5}}

KEEPS_NOTHING = {"retention_hours": 0, "dry_run": False, "enforce_retention_duration": False, "full": True}

MOVES: Mapping[str, Callable[[DeltaTable], object]] = {
    "compact": lambda table: table.optimize.compact(),
    "z-order": lambda table: table.optimize.z_order(["n"]),
    "vacuum": lambda table: table.vacuum(**KEEPS_NOTHING),
    "checkpoint": lambda table: table.create_checkpoint(),
    "compact and vacuum": lambda table: (table.optimize.compact(), table.vacuum(**KEEPS_NOTHING)),
    "twice": lambda table: (table.optimize.z_order(["n"]), table.optimize.z_order(["id"])),
}
CHANGES: Mapping[str, Callable[[DeltaTable], object]] = {
    "DELETE": lambda table: table.delete("id = 7"),
    "UPDATE": lambda table: table.update({"n": "n + 1"}, predicate="id = 7"),
    "RESTORE": lambda table: table.restore(table.version() - 3),
}
BY_SPARK_MOVES = (
    "OPTIMIZE {}",
    "OPTIMIZE {} ZORDER BY (n)",
    "VACUUM {} RETAIN 0 HOURS",
    "REORG TABLE {} APPLY (PURGE)",
)
BY_SPARK_CHANGES = ("DELETE FROM {} WHERE id = 7", "UPDATE {} SET n = 9 WHERE id = 7", "RESTORE {} TO VERSION AS OF 3")


class Marked:
    """A table of ten ids in files of four, of which transactions 3 and 4 have marked some dead."""

    def __init__(self, path: Path, **sizes: int) -> None:
        self.path, self.sizes = path, sizes
        state = self.opened(1)
        state.write(1, {n: TransactionalValue(1, n) for n in range(8)})
        state.write(2, {n: TransactionalValue(2, n) for n in range(8, 10)})
        mark_dead(path, 3, lambda rows: pc.less(rows["id"], 2), epoch=2)
        mark_dead(path, 4, lambda rows: pc.is_in(rows["id"], pa.array([2, 5])), epoch=3)

        self.state = self.opened(4)

    def opened(self, epoch: int):
        declared = DeltaState(self.path, Fields("id: long"), Fields("n: long"), deletion_vectors=True)
        return sized(declared, **self.sizes).open("topology", "s", "life", epoch)

    def rows(self, txid: int | None = None) -> dict[int, int]:
        found = read_table(self.path, txid)
        return dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))

    def goes_on(self) -> None:
        """Check that a run goes on, whether it has looked before or not, and that one can still go back."""
        assert self.rows() == LIVE
        for txid in (5, 6):
            state = self.state if txid == 5 else self.opened(5)
            state.write(txid, {4: TransactionalValue(txid, txid), 1: TransactionalValue(txid, 10)})
            assert self.rows() == LIVE | {4: txid, 1: 10}
        assert self.rows(3) == {n: n for n in range(2, 10)}
        state.roll_back(3)
        assert self.rows() == {n: n for n in range(2, 10)}

    def refuses(self, operation: str) -> None:
        """Check that nothing is written on top of a change, and that going back takes it back."""
        table = self.state.declared.table()
        assert f"{operation} made version" in str(table.foreign_change(self.state.version))
        with pytest.raises(DivergenceError, match=rf"{operation} made version .*'txtopo repair' undoes the change"):
            self.state.write(5, {4: TransactionalValue(5, 40)})
        self.state.roll_back(4)
        self.goes_on()


@pytest.mark.parametrize("is_running", [True, False])
def test_rows_in_files_that_the_log_does_not_count(tmp_path: Path, is_running: bool) -> None:
    """A writer need not collect statistics: the rows beside those that a later write marks stay."""
    table = Marked(tmp_path / "t")
    move_rows(table.path, live_files(table.path), has_statistics=False)
    if not is_running:
        table.state.close()
        table.state = table.opened(5)
    table.state.write(5, {4: TransactionalValue(5, 5)})
    assert table.rows() == LIVE | {4: 5}
    table.state.write(6, {3: TransactionalValue(6, 6)})
    assert table.rows() == LIVE | {4: 5, 3: 6}


@pytest.fixture
def marked(tmp_path: Path) -> Marked:
    return Marked(tmp_path, file_rows=4)


@pytest.mark.few(1)
@pytest.mark.parametrize("move", MOVES)
def test_rows_that_move(marked: Marked, move: str) -> None:
    """Dead rows stay dead, whatever files the live ones are in now, and vector files stay that a version needs."""
    before = {*(marked.path / "_data").glob("*.bin")}
    MOVES[move](DeltaTable(marked.path))
    assert before == {*(marked.path / "_data").glob("*.bin")}
    marked.goes_on()


@pytest.mark.few(1)
@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_change(marked: Marked, change: str) -> None:
    """A row that is deleted, changed, or alive again is refused, with the way back."""
    CHANGES[change](DeltaTable(marked.path))
    marked.refuses(change)


@pytest.mark.parametrize("optimize", [MOVES["compact"], MOVES["z-order"]])
def test_one_that_has_looked_before_us(marked: Marked, optimize: Callable[[DeltaTable], object]) -> None:
    """Whoever moves rows that we mark meanwhile fails."""
    other = DeltaTable(marked.path)
    mark_dead(marked.path, 5, lambda rows: pc.less(rows["id"], 7), epoch=4)
    with pytest.raises(CommitFailedError):
        optimize(other)
    assert marked.rows() == {n: n for n in range(7, 10)}


@pytest.mark.slow
def test_dead_rows_that_come_back_are_a_change(marked: Marked) -> None:
    """A version that says that it moves rows, and takes the vector away."""
    held = DeltaTable(marked.path)
    log = marked.path / "_delta_log" / f"{held.version() - 1:020d}.json"
    entry = next(line for line in log.read_text().splitlines() if '"add"' in line)
    removed = entry.replace('"add"', '"remove"').replace("modificationTime", "deletionTimestamp")
    added = entry.partition(',"deletionVector"')[0] + "}}"
    lines = ('{"commitInfo":{"operation":"OPTIMIZE"}}', removed, added)
    text = "\n".join(lines).replace('"dataChange":true', '"dataChange":false')
    log.with_name(f"{held.version() + 1:020d}.json").write_text(text)
    assert len(marked.rows()) > len(LIVE)
    marked.refuses("OPTIMIZE")


@pytest.mark.long
@pytest.mark.parametrize("statement", BY_SPARK_MOVES)
def test_spark_moves_rows(spark: ProcessPoolExecutor, marked: Marked, statement: str) -> None:
    """The same of Spark's Delta."""
    before = {*(marked.path / "_data").glob("*.bin")}
    spark.submit(run_sql, "SET spark.databricks.delta.retentionDurationCheck.enabled = false").result()
    spark.submit(run_sql, statement.format(f"delta.`{marked.path}`")).result()
    assert before == {*(marked.path / "_data").glob("*.bin")}
    marked.goes_on()


@pytest.mark.long
@pytest.mark.parametrize("statement", BY_SPARK_CHANGES)
def test_spark_changes_rows(spark: ProcessPoolExecutor, marked: Marked, statement: str) -> None:
    """The same of Spark's Delta."""
    spark.submit(run_sql, statement.format(f"delta.`{marked.path}`")).result()
    marked.refuses(statement.partition(" ")[0])
