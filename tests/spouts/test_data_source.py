"""Data sources of PySpark as spouts: each range of offsets once, whatever a source returns."""
# ruff: noqa: N802, N815 - the names are PySpark's

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.datasource")

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spouts import DataSourceSpout
from txtopo import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, FieldsError, InputError
from txtopo.testing import TransactionalSpoutConformance
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.context import PlainContext

END = 60


class Range(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class NumbersReader(DataSourceStreamReader):
    """60 numbers, of which 10 more are there whenever it is asked."""

    committed: ClassVar[list[Any]] = []

    def initialOffset(self) -> dict:
        return {"n": 0}

    def latestOffset(self, start: dict, limit: Any) -> dict:
        return {"n": min(END, start["n"] + getattr(limit, "max_rows", 10))}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        return [Range(n, min(n + 4, end["n"])) for n in range(start["n"], end["n"], 4)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return ((n, f"#{n}") for n in range(partition.start, partition.end))

    def commit(self, end: dict) -> None:
        self.committed.append(end)


class BatchesReader(NumbersReader):
    """The same in record batches, whose columns come in another order, and single rows among them."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        numbers = list(range(partition.start, partition.end))
        yield numbers[0], f"#{numbers[0]}"
        yield pa.RecordBatch.from_pydict({"text": [f"#{n}" for n in numbers[1:]], "n": numbers[1:]})


class FormerReader(NumbersReader):
    """The signature of PySpark 4.0 and 4.1: all is there at once."""

    def latestOffset(self) -> dict:
        return {"n": END}


class SimpleReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict:
        return {"n": 0}

    def read(self, start: dict) -> tuple[Iterator[tuple], dict]:
        end = {"n": min(END, start["n"] + 10)}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict, end: dict) -> Iterator[tuple]:
        return iter([(n, f"#{n}") for n in range(start["n"], end["n"])])


class Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return (
            "n bigint NOT NULL, `text` string COMMENT 'what it says'"
            if self.options.get("schema")
            else "n: long, text string"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        assert schema.fieldNames() == ["n", "text"]
        return {"batches": BatchesReader, "former": FormerReader}.get(self.options.get("reader", ""), NumbersReader)()


class SimpleNumbers(Numbers):
    streamReader = DataSource.streamReader

    def schema(self) -> StructType:
        return StructType([StructField("n", LongType()), StructField("text", StringType())])

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return SimpleReader()


class TestStreamReader(TransactionalSpoutConformance):
    @pytest.fixture(params=[None, "batches", 7])
    def spout(self, request: pytest.FixtureRequest) -> DataSourceSpout:
        kind = request.param
        if isinstance(kind, int):
            return DataSourceSpout(Numbers, rows_max=kind, until_end=True)
        return DataSourceSpout(Numbers, {"reader": kind} if kind else None, until_end=True)


class TestSimpleReader(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self) -> DataSourceSpout:
        return DataSourceSpout(SimpleNumbers, until_end=True)


def emitted(spout: DataSourceSpout, metadata: Any) -> list[tuple[Any, ...]]:
    attempt = TransactionAttempt(1, 1)
    collector = RecordingCollector(attempt, spout.output_fields)
    spout.emitter({}, PlainContext()).emit_batch(attempt, metadata, collector)
    return [values[1:] for values in collector.tuples]


def test_the_former_signature() -> None:
    """A source of PySpark 4.0 has one range; a limit of rows for it is refused."""
    spout = DataSourceSpout(Numbers, {"reader": "former"}, until_end=True)
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(0, None)
    metadata = coordinator.initialize_transaction(1, None)
    assert (metadata, coordinator.is_exhausted()) == ({"start": {"n": 0}, "end": {"n": END}}, True)
    assert emitted(spout, metadata) == [(n, f"#{n}") for n in range(END)]
    with pytest.raises(ConfigError, match="takes no limit"):
        DataSourceSpout(Numbers, {"reader": "former"}, rows_max=5).reader()


def test_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is told the end of the last transaction of those that are committed, also after a new start."""
    committed: list[Any] = []
    monkeypatch.setattr(NumbersReader, "committed", committed)
    spout = DataSourceSpout(Numbers)
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(0, None)
    metadata = None
    for txid in range(1, 5):
        assert coordinator.is_ready()
        metadata = coordinator.initialize_transaction(txid, metadata)
    coordinator.cleanup_before(1)
    coordinator.cleanup_before(4)
    coordinator.cleanup_before(4)
    assert committed == [{"n": 30}]
    again = spout.coordinator({}, PlainContext())
    again.resume(4, metadata)
    again.cleanup_before(5)
    assert committed == [{"n": 30}, {"n": 40}]


def test_rows_without_progress() -> None:
    """A simple reader that returns rows and no later offset is refused: they would come for ever."""

    class Stuck(SimpleReader):
        def read(self, start: dict) -> tuple[Iterator[tuple], dict]:
            return iter([(1, "a")]), start

    class StuckNumbers(SimpleNumbers):
        def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
            return Stuck()

    coordinator = DataSourceSpout(StuckNumbers).coordinator({}, PlainContext())
    coordinator.resume(0, None)
    with pytest.raises(InputError, match="return an offset after them"):
        coordinator.is_ready()


def test_schemas() -> None:
    """A schema in SQL or of PySpark's types gives the fields; what can't be read asks for them."""
    expected = Fields("n: bigint", "text: string")
    for spout in (
        DataSourceSpout(Numbers),
        DataSourceSpout(Numbers, {"schema": "sql"}),
        DataSourceSpout(SimpleNumbers),
    ):
        assert spout.values == expected

    class NoSchema(Numbers):
        def schema(self) -> str:
            return "n"

    with pytest.raises(FieldsError, match="give fields="):
        DataSourceSpout(NoSchema)


@pytest.mark.parametrize(("row", "match"), [((1,), "row of 1 values"), (("x", "y"), "field 'n'")])
def test_rows_that_do_not_fit(row: tuple, match: str) -> None:
    """A row of another length, or with a value of another type, is an error that names the source and the field."""

    class Wrong(NumbersReader):
        def read(self, partition: InputPartition) -> Iterator[Any]:
            return iter([row])

    class WrongNumbers(Numbers):
        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return Wrong()

    with pytest.raises(InputError, match=match):
        emitted(DataSourceSpout(WrongNumbers), {"start": {"n": 0}, "end": {"n": 1}})
