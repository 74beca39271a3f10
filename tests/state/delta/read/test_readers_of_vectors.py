"""What the readers that people have make of tables with deletion vectors: the live rows, or a clear refusal."""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from state import DeltaState
from tests.state.delta.delta_tables import held_merges, merge, sized
from tests.state.delta.foreign import live_files
from tests.state.delta.read.readers import READERS, Filter, delta_rs_dataset, ids, spark_literal
from tests.state.delta.spark_session import ids_where
from tests.state.delta.vector_tables import VectorTable
from txtopo import Fields
from txtopo.api.values import TransactionalValue

MANY = 200_000

SHAPES: dict[str, tuple[int, Iterable[int]]] = {
    "the first row": (9, [0]),
    "the last row": (9, [8]),
    "all but one": (9, [n for n in range(9) if n != 4]),
    "all": (9, range(9)),
    "none": (9, []),
    "either side of 65,536": (70_000, [65_535, 65_536]),
    "long ranges": (MANY, [*range(100, 70_000), *range(131_000, 199_000)]),
    "every other one": (MANY, range(1, MANY, 2)),
    "all but the last of many": (MANY, range(MANY - 1)),
}
"""The number of rows in a file, and the positions of those that are dead."""

CASES = [
    (shape, group_rows)
    for shape, (count, _) in SHAPES.items()
    for group_rows in (None, 4, 30_000)
    if group_rows is None or count / 30 < group_rows < count
]
"""Each in one row group and in several."""

RIGHT = [reader for reader in READERS if reader is not delta_rs_dataset]

FILTERS = (Filter("id", "<", 5), Filter("id", ">=", 65_536), Filter("id", "=", 1), Filter("id", "is not null"))


def made(root: Path, shape: str, group_rows: int | None) -> VectorTable:
    """Make a table of two files, one of which has the dead rows of a shape, and some before it."""
    count, dead = SHAPES[shape]
    table = VectorTable(root)
    path = table.add(list(range(count)), group_rows)
    table.add([count, count + 1], group_rows)
    table.mark(**{path: BitMap64([1, 2])})
    table.mark(**{path: BitMap64(dead)})
    return table


def passing(table: VectorTable, wanted: Filter) -> list[int]:
    return [own for own in table.shown if wanted.passes(own)]


@pytest.mark.few(2)
@pytest.mark.parametrize(("shape", "group_rows"), CASES)
@pytest.mark.parametrize("reader", RIGHT, ids=lambda reader: reader.__name__)
def test_live_rows_are_read(tmp_path: Path, reader, shape: str, group_rows: int | None) -> None:
    """By every reader that knows vectors, with filters, before a checkpoint of the log and after it."""
    table = made(tmp_path / "t", shape, group_rows)
    found = {wanted: ids(reader(table.root, wanted)) for wanted in FILTERS}
    assert found == {wanted: passing(table, wanted) for wanted in FILTERS}
    assert ids(reader(table.root)) == table.shown
    DeltaTable(table.root).create_checkpoint()
    assert ids(reader(table.root)) == table.shown


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.to_pyarrow_table(),
        lambda table: table.to_pyarrow_dataset(),
        lambda table: table.to_pandas(),
    ],
    ids=["to_pyarrow_table", "to_pyarrow_dataset", "to_pandas"],
)
def test_readers_that_do_not_know_vectors_refuse(tmp_path: Path, read) -> None:
    """They say why; nobody is shown dead rows."""
    table = made(tmp_path / "t", "the first row", None)
    with pytest.raises(Exception, match=r"(?i)deletion.?vectors"):
        read(DeltaTable(table.root))


def test_a_count_has_dead_rows(tmp_path: Path) -> None:
    """As delta-rs counts: what the documentation says of it."""
    table = made(tmp_path / "t", "all but one", None)
    assert (DeltaTable(table.root).count(), len(table.shown)) == (11, 3)


@pytest.mark.long
@pytest.mark.parametrize(("shape", "group_rows"), CASES)
def test_spark_reads_live_rows(spark: ProcessPoolExecutor, tmp_path: Path, shape: str, group_rows: int | None) -> None:
    """The same of Spark's Delta."""
    table = made(tmp_path / "t", shape, group_rows)
    found = spark.submit(ids_where, table.root, ["true", *(each.sql(spark_literal) for each in FILTERS)]).result()
    assert found == [table.shown, *(passing(table, each) for each in FILTERS)]


BY_N = (Filter("n", "=", 3), Filter("n", "<", 3), Filter("n", ">=", 4), Filter("id", "=", 7), Filter("id", ">=", 25))


class Life:
    """A state with deletion vectors, whose files are merged, rewritten, and moved by others; and what it should hold.

    ``check`` is called after each step, with the table's folder and the value n of each id.
    """

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, check: Callable[[Path, dict[int, int]], None]
    ) -> None:
        self.root = root
        self.model: dict[int, int] = {}
        self._check = check
        self._gate, self._begun = held_merges(monkeypatch)
        declared = DeltaState(root, Fields("id: long"), Fields("n: long"), deletion_vectors=True)
        self._state = sized(declared, tier_files=4, rewritten_rows=8).open("topology", "s", "life", 1)
        self._txid = 0

    def write(self, *own: int) -> None:
        """Give some ids the number of the transaction; a negative one is removed."""
        self._txid += 1
        values = {abs(each): TransactionalValue(self._txid, self._txid) if each >= 0 else None for each in own}
        self._state.write(self._txid, values)
        self.model.update({key: self._txid for key, value in values.items() if value is not None})
        self.model = {key: n for key, n in self.model.items() if -key not in own or not key}
        self._check(self.root, self.model)

    def live(self) -> None:
        """Do all of it."""
        for first in (0, 10, 20):
            self.write(*range(first, first + 10))
        self._gate.clear()
        self.write(5, 15, -16, 25)
        self._state.maintain()
        assert self._begun.wait(600)
        self.write(7, -8, 27)
        self._gate.set()
        merge(self._state)
        assert "merged" in " ".join(live_files(self.root))
        self._check(self.root, self.model)
        self.write(*range(1, 30))
        merge(self._state)
        self._check(self.root, self.model)
        for move in (DeltaTable.create_checkpoint, lambda table: table.optimize.compact()):
            move(DeltaTable(self.root))
            self._check(self.root, self.model)
            self.write(3, 28, 40)
        DeltaTable(self.root).optimize.z_order(["n"])
        self._check(self.root, self.model)
        self.write(-3, 4)
        merge(self._state)
        self._check(self.root, self.model)
        self._state.close()


def check_statistics(root: Path) -> None:
    """Check what the log says of each file: the number of all of its rows, and whether its bounds are exact."""
    for entry in sorted((root / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            added = json.loads(line).get("add")
            if added is not None and added["path"].startswith("_data/"):
                stats = json.loads(added["stats"])
                assert stats["numRecords"] > added.get("deletionVector", {}).get("cardinality", -1)
                assert stats.get("tightBounds", True) == ("deletionVector" not in added)


@pytest.mark.slow
def test_all_that_becomes_of_a_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged, rewritten, optimized or put in another order, and written to again: each reader sees what it holds."""

    def check(root: Path, model: dict[int, int]) -> None:
        check_statistics(root)
        for reader in RIGHT:
            found = reader(root, None, ("id", "n"))
            assert dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True)) == model, reader.__name__
            assert found.num_rows == len(model), reader.__name__
            for wanted in BY_N:
                own = [key for key, n in model.items() if wanted.passes({"id": key, "n": n}[wanted.column])]
                assert ids(reader(root, wanted)) == sorted(own), (reader.__name__, wanted)

    Life(tmp_path / "t", monkeypatch, check).live()


@pytest.mark.long
def test_spark_reads_all_that_becomes_of_a_table(
    spark: ProcessPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of Spark's Delta."""

    def check(root: Path, model: dict[int, int]) -> None:
        found = spark.submit(ids_where, root, ["true", *(each.sql(spark_literal) for each in BY_N)]).result()
        passing = [
            sorted(key for key, n in model.items() if each.passes({"id": key, "n": n}[each.column])) for each in BY_N
        ]
        assert found == [sorted(model), *passing]

    Life(tmp_path / "t", monkeypatch, check).live()
