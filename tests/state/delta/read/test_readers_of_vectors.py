"""What the readers that people have make of tables with deletion vectors: the live rows, or a clear refusal."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from tests.state.delta.read.readers import READERS, Filter, delta_rs_dataset, ids, spark_literal
from tests.state.delta.spark_session import ids_where
from tests.state.delta.vector_tables import VectorTable

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


@pytest.mark.few(4)
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
