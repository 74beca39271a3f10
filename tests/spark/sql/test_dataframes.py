"""Columns of DataFrames become the fields of their components."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spouts import DataFrameSpout
from state import MemoryState
from tests.columnar.value_cells import FRAME, refused_in, taken_in
from tests.spark.ranges import Ranges
from tests.topologies import values_in
from txtopo import BatchBolt, DataFrameBolt, Fields, ICommitter, Topology, TransactionalTopologyBuilder, run
from txtopo.errors import TopologyError

TAKEN = taken_in(FRAME)


class OneRow(DataFrameSpout):
    """One row, whose columns are given as fields and their SQL."""

    def __init__(self, columns: dict[str, str]) -> None:
        self.output_fields = Fields("attempt", *columns)
        self._sql = _named(columns)

    def coordinator(self, config, context):
        return Ranges(1, 1)

    def read(self, spark, metadata):
        return spark.range(*metadata).selectExpr(*self._sql)


class Add(DataFrameBolt):
    """Gives each row other columns."""

    def __init__(self, columns: dict[str, str]) -> None:
        self.output_fields = Fields("attempt", *columns)
        self._sql = _named(columns)

    def transform(self, frame):
        return frame.selectExpr("attempt", *self._sql)


class Keep(BatchBolt, ICommitter):
    """Keeps the values of a row."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("seen")
        self.seen: list[Any] = []

    def execute(self, tuple):
        self.seen += tuple[1:]

    def finish_batch(self):
        self.state.multi_put(list(range(len(self.seen))), self.seen)


def _named(columns: dict[str, str]) -> list[str]:
    return [f"{sql} AS {field.partition(':')[0]}" for field, sql in columns.items()]


def topology(way: str, columns: dict[str, str]) -> tuple[Topology, MemoryState]:
    """Return a topology whose spout or bolt has these columns, and what it keeps of them."""
    spout = OneRow(columns if way == "read" else {"x: long": "id"})
    builder = TransactionalTopologyBuilder("columns", "spout", spout, 1)
    if way == "transform":
        builder.set_bolt("bolt", Add(columns)).shuffle_grouping("spout")
    builder.set_bolt("keep", Keep(), 1).global_grouping("spout" if way == "read" else "bolt")
    state = MemoryState(Fields("number: long"), Fields("value"))
    builder.set_state("seen", state)
    return builder.build(), state


@pytest.mark.parametrize("way", ["read", "transform"])
def test_what_is_taken(spark: SparkSession, way: str) -> None:
    """A type that the field's holds is taken, at any depth, and no value changes."""
    columns = {f"x{number}: {kind}": sql for number, (kind, sql, _) in enumerate(TAKEN)}
    built, state = topology(way, columns)
    run(built)
    found = values_in(state)
    for number, (kind, sql, kept) in enumerate(TAKEN):
        assert (type(found[number]), found[number]) == (type(kept), kept), (kind, sql)


@pytest.mark.parametrize(("way", "refused"), [("read", refused_in(FRAME)[::4]), ("transform", refused_in(FRAME))])
def test_what_is_refused(spark: SparkSession, way: str, refused: list[tuple[str, Any]]) -> None:
    """A type that has more than the field's is refused before a row is read, by column and type."""
    for kind, sql in refused:
        with pytest.raises(TopologyError, match=f"{way}.. returned the column 'x' as") as raised:
            run(topology(way, {"x: " + kind: sql})[0])
        assert raised.value.component == ("spout" if way == "read" else "bolt"), (kind, sql)


def test_what_to_do(spark: SparkSession) -> None:
    """The error says how to convert the column, but casts no struct, whose members Spark would take by their order."""
    with pytest.raises(TopologyError, match=r"as double, of which .* convert it by F.col\('x'\).cast\('bigint'\)"):
        run(topology("read", {"x: long": "2.5D"})[0])
    with pytest.raises(TopologyError, match="member by member"):
        run(topology("read", {"x: struct<a: long>": "named_struct('A', 1L)"})[0])
