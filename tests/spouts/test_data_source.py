"""Data sources of PySpark as spouts: each range of offsets once, whatever a source returns."""
# ruff: noqa: N802, N815 - the names are PySpark's

import datetime as dt
import json
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
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
from pyspark.sql.types import LongType, Row, StringType, StructField, StructType

from spouts import DataSourceSpout
from state import read_table
from tests.crashes import Crash, run_with_crash
from txtopo import Fields, TransactionalTopology
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, FieldsError, InputError
from txtopo.streams import Flow
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


def emitted(spout: DataSourceSpout, metadata: Any, task: int = 0, tasks: int = 1) -> list[tuple[Any, ...]]:
    attempt = TransactionAttempt(1, 1)
    collector = RecordingCollector(attempt, spout.output_fields)
    spout.emitter({}, PlainContext(tasks=tasks, this_task_index=task)).emit_batch(attempt, metadata, collector)
    return [values[1:] for values in collector.tuples]


def source_of(reader: type[DataSourceStreamReader], schema: str = "n: long, text string") -> type[DataSource]:
    """A source with a reader and a schema."""

    class Made(DataSource):
        @classmethod
        def name(cls) -> str:
            return "made"

        def schema(self) -> str:
            return schema

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return reader()

    return Made


def begun(spout: DataSourceSpout, tasks: int = 1) -> Any:
    """A coordinator at the first transaction."""
    coordinator = spout.coordinator({}, PlainContext(tasks=tasks))
    coordinator.resume(0, None)
    return coordinator


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


class Shuffled(NumbersReader):
    """Nested offsets whose names come in any order, and partitions in any order, too."""

    def initialOffset(self) -> dict:
        return {"of": {"a": {"n": 0, "is": True}, "b": {"n": 0}}, "v": (1, 2)}

    def latestOffset(self) -> dict:
        names = random.sample(["a", "b"], 2)
        return {"v": (1, 2), "of": {name: {"n": END, **({"is": True} if name == "a" else {})} for name in names}}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        found = [
            InputPartition((name, n)) for name, of in end["of"].items() for n in range(start["of"][name]["n"], of["n"])
        ]
        return random.sample(found, len(found))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        name, n = partition.value
        return iter([(n, name)])


def test_offsets_and_partitions_without_an_order() -> None:
    """Names of offsets, and partitions, may come in another order each time: each row is in one task, and once."""
    spout = DataSourceSpout(source_of(Shuffled), until_end=True, poll_secs=0)
    coordinator = begun(spout, tasks=3)
    metadata = coordinator.initialize_transaction(1, None)
    assert (coordinator.is_ready(), coordinator.is_exhausted()) == (False, True)
    rows = [row for task in range(3) for row in emitted(spout, json.loads(json.dumps(metadata)), task, 3)]
    assert sorted(rows) == [(n, name) for n in range(END) for name in "ab"]
    coordinator.close()
    again = spout.coordinator({}, PlainContext(tasks=3))
    again.resume(1, json.loads(json.dumps(metadata)))
    assert again.is_exhausted()


class OfThisProcess(NumbersReader):
    """Partitions by what the process has, such as its cores."""

    cores: ClassVar[int] = 1

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self.cores)]


def test_partitions_that_differ_between_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that divide other partitions than the driver's would leave some out: refused."""
    spout = DataSourceSpout(source_of(OfThisProcess), until_end=True)
    metadata = begun(spout, tasks=2).initialize_transaction(1, None)
    monkeypatch.setattr(OfThisProcess, "cores", 2)
    with pytest.raises(InputError, match="let it depend on the offsets alone, or read with one task"):
        emitted(spout, metadata, 1, 2)


class Fetching(NumbersReader):
    """Has in its partitions what it fetched when it was asked how far it goes, as readers of web services do."""

    fetched = 0

    def latestOffset(self) -> dict:
        self.fetched = END
        return {"n": END}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        return [Range(start["n"], self.fetched)]


class Listening(SimpleReader):
    """Returns what it heard, once."""

    def readBetweenOffsets(self, start: dict, end: dict) -> Iterator[tuple]:
        return iter(())

    def read(self, start: dict) -> tuple[Iterator[tuple], dict]:
        return iter([(1, "a")]), {"n": start["n"] + 1}


class Listener(SimpleNumbers):
    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return Listening()


@pytest.mark.parametrize("source", [source_of(Fetching), Listener])
@pytest.mark.parametrize("tasks", [1, 2])
def test_rows_that_one_reader_keeps_to_itself(source: type[DataSource], tasks: int) -> None:
    """A source whose ranges no other reader gets is refused: its tasks would read nothing, without a word."""
    coordinator = begun(DataSourceSpout(source), tasks)
    with pytest.raises(InputError, match="can't read again what is from"):
        coordinator.initialize_transaction(1, None)


class ByChance(NumbersReader):
    """Has something in its partitions that is another one each time, and is no matter of its rows."""

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        return [InputPartition(random.random())]


def test_partitions_that_differ_by_chance() -> None:
    """One task reads them whatever they are."""
    coordinator = begun(DataSourceSpout(source_of(ByChance)))
    assert coordinator.initialize_transaction(1, None) == {"start": {"n": 0}, "end": {"n": 10}}


def test_metadata_of_a_former_version() -> None:
    """Transactions that were planned before there was a digest are read."""
    spout = DataSourceSpout(Numbers, until_end=True)
    rows = [row for task in range(2) for row in emitted(spout, {"start": {"n": 0}, "end": {"n": 9}}, task, 2)]
    assert sorted(rows) == [(n, f"#{n}") for n in range(9)]


class Back(NumbersReader):
    """A replica that is behind now and then; None if it has no word."""

    ends: ClassVar[list[Any]] = []

    def latestOffset(self) -> Any:
        return self.ends.pop(0)


def test_offsets_that_go_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An offset before the last one is nothing new: nothing is read twice."""
    ends = [{"n": 20}, {"n": 15}, None, {"n": 3}, {"n": 25}]
    monkeypatch.setattr(Back, "ends", ends)
    spout = DataSourceSpout(source_of(Back), poll_secs=0)
    coordinator = begun(spout)
    first = coordinator.initialize_transaction(1, None)
    assert [coordinator.is_ready() for _ in range(4)] == [False, False, False, True]
    second = coordinator.initialize_transaction(2, first)
    assert [row[0] for each in (first, second) for row in emitted(spout, each)] == list(range(25))
    assert "is at {'n': 15}, and was read up to {'n': 20}" in caplog.text


class Failing(NumbersReader):
    """Fails when it is told what is committed, and when it is stopped."""

    told: ClassVar[list[Any]] = []

    def commit(self, end: dict) -> None:
        self.told.append(end)
        raise OSError("the queue is away")

    def stop(self) -> None:
        raise OSError("the queue is away")


def test_a_failing_commit(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What is committed stays so: the run goes on, and the source is told again with the next transaction."""
    told: list[Any] = []
    monkeypatch.setattr(Failing, "told", told)
    coordinator = begun(DataSourceSpout(source_of(Failing)))
    first = coordinator.initialize_transaction(1, None)
    coordinator.cleanup_before(2)
    coordinator.cleanup_before(2)
    coordinator.initialize_transaction(2, first)
    coordinator.cleanup_before(3)
    coordinator.close()
    assert told == [{"n": 10}, {"n": 10}, {"n": 20}]
    assert "commit({'n': 10}) of source 'made' failed" in caplog.text


class Told(NumbersReader):
    """Is told where a run that ends is to end."""

    prepared: ClassVar[list[int]] = []

    def prepareForTriggerAvailableNow(self) -> None:
        self.prepared.append(1)


@pytest.mark.parametrize("until_end", [True, False])
def test_a_source_that_knows_its_end(monkeypatch: pytest.MonkeyPatch, until_end: bool) -> None:
    """A source that can fix its end is asked to, once, by a run that ends with it."""
    prepared: list[int] = []
    monkeypatch.setattr(Told, "prepared", prepared)
    coordinator = begun(DataSourceSpout(source_of(Told), until_end=until_end))
    coordinator.resume(1, {"start": {"n": 0}, "end": {"n": 10}})
    assert prepared == [1] * until_end


AT = dt.datetime(2026, 7, 1, 12)  # noqa: DTZ001 - a local time, as sources have them
SCHEMA = (
    "text string, n long, at timestamp, price decimal(9,2), of struct<a:int,b:string>, by map<string,long>, raw binary"
)
ROW = {
    "text": 5,
    "n": 1,
    "at": AT,
    "price": Decimal("1.005"),
    "of": Row(a=1, b=True),
    "by": {"k": 2},
    "raw": bytearray(b"x"),
}


class Values(NumbersReader):
    rows: ClassVar[list[Any]] = []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(self.rows)


@pytest.mark.parametrize("row", [Row(**dict(reversed(ROW.items()))), tuple(ROW.values()), list(ROW.values())])
def test_values_as_spark_has_them(monkeypatch: pytest.MonkeyPatch, row: Any) -> None:
    """A Row comes by its names, and values are converted as Spark's readers of data sources do it."""
    monkeypatch.setattr(Values, "rows", [row])
    spout = DataSourceSpout(source_of(Values, SCHEMA))
    expected = ("5", 1, AT.astimezone(dt.UTC), Decimal("1.00"), {"a": 1, "b": "true"}, [("k", 2)], b"x")
    assert emitted(spout, {"start": {"n": 0}, "end": {"n": 1}}) == [expected]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ({"n": 1, "text": "a"}, "give tuples, lists, Rows"),
        (Row(n=1, txt="a"), "a Row of n, txt"),
        ("ab", "give tuples"),
    ],
)
def test_rows_that_are_none(monkeypatch: pytest.MonkeyPatch, row: Any, match: str) -> None:
    """A dict would give its names as values, a text its letters."""
    monkeypatch.setattr(Values, "rows", [row])
    with pytest.raises(InputError, match=match):
        emitted(DataSourceSpout(source_of(Values)), {"start": {"n": 0}, "end": {"n": 1}})


def test_options_have_no_case() -> None:
    """Options are as Spark gives them."""
    assert DataSourceSpout(Numbers, {"Schema": "sql"}, until_end=True).values == Fields("n: bigint", "text: string")
    assert DataSourceSpout(Numbers, {"SCHEMA": "sql"})._made_source().options["schema"] == "sql"


def test_offsets_that_are_no_json() -> None:
    """An offset that can't be kept is refused by name, at the first one."""

    class Dates(NumbersReader):
        def initialOffset(self) -> dict:
            return {"at": AT}

    with pytest.raises(InputError, match="can't be kept: Object of type datetime"):
        begun(DataSourceSpout(source_of(Dates)))


def test_a_published_source(tmp_path: Path) -> None:
    """A package of PyPI that streams changes of SQL Server, here from its own stand-in for one: each once, in order."""
    mssql_cdc = pytest.importorskip("mssql_cdc.source", reason="pip install --no-deps mssql-cdc-pyspark")
    fake = pytest.importorskip("mssql_cdc.fake")
    database = fake.FakeCdcDatabase(str(tmp_path / "db"), ["dbo_orders"], columns={"dbo_orders": "id INT, text STRING"})
    options = {"backend": "fake", "fakePath": str(tmp_path / "db"), "captureInstance": "dbo_orders"}

    def copy() -> TransactionalTopology:
        flow = Flow("copy", output=str(tmp_path / "out"))
        spout = DataSourceSpout(mssql_cdc.MssqlCdcDataSource, options, rows_max=3, until_end=True)
        flow.source("changes", spout, parallelism=2).append("orders")
        return flow.build()

    for start, at in ((0, 7), (20, 19), (40, 40), (60, 0)):
        for number in range(start, start + 20):
            database.commit("dbo_orders", [(2, {"id": number, "text": "a"})])
        database.idle()
        run_with_crash(copy, Crash(at))
    orders = read_table(tmp_path / "out" / "orders").sort_by("txid")["id"].to_pylist()
    assert orders == list(range(80))
