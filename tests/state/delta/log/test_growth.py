"""Tables that get a column: earlier rows have nulls there for every reader, whenever it happens and whatever was open."""

import datetime as dt
from collections.abc import Mapping

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from state import DeltaRows, DeltaState, StateKind, read_table, read_tables
from tests.crashes import Crash, run_with_crash
from tests.processes import ran
from tests.state.delta.delta_tables import LARGE, merge, sized
from tests.state.delta.inline_executors import InlineExecutors
from tests.state.delta.log.growing import CONFIG, MODULE, check, topology
from tests.state.delta.read.readers import Filter, delta_rs_dataset
from txtopo import Fields
from txtopo.api.values import OpaqueValue, TransactionalValue
from txtopo.api.writes import RowsMode, TransactionRows
from txtopo.errors import ConfigError, DivergenceError, FieldsError, LostLead
from txtopo.failpoints import armed
from txtopo.testing.inline import run_inline

KEY, OLD, NEW = Fields("k: string"), Fields("n: long"), Fields("n: long", "note: string")


@attrs.define
class Place:
    """A table that coordinators open one after another."""

    path: str
    kind: StateKind = StateKind.TRANSACTIONAL
    epoch: int = 0
    sizes: Mapping[str, int] = attrs.field(factory=dict)

    def declared(self, value: Fields = OLD, evolution: str | None = None):
        return sized(DeltaState(self.path, KEY, value, self.kind, schema_evolution=evolution), **self.sizes)

    def opened(self, value: Fields = OLD, evolution: str | None = None):
        self.epoch += 1
        return self.declared(value, evolution).open("topology", "s", "life", self.epoch)

    def grown(self, value: Fields = NEW):
        state = self.opened(value, "add")
        state.grow()
        return state

    def rows(self, txid=None):
        return sorted(tuple(row.values()) for row in read_table(self.path, txid).to_pylist())


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(str(tmp_path / "t"))


def test_the_past_has_the_columns_of_then(place):
    """A replay looks at a table as its transaction did, also as of an earlier one, whatever columns it has got since."""
    state = place.opened()
    for txid in (1, 2, 3):
        state.write(txid, {"a": TransactionalValue(txid, txid)})
    place.grown().write(4, {"a": TransactionalValue(4, (4, "d"))})
    past = place.declared(NEW).open_as_of("topology", "s", 2)
    assert [past.snapshot(txid).to_pylist() for txid in (1, 2)] == [[{"k": "a", "n": n, "txid": n}] for n in (1, 2)]


def test_earlier_rows_have_nulls(place):
    """A table grows once, by a version that changes no row; later versions, past ones and other readers know nulls."""
    place.opened().write(1, {key: TransactionalValue(1, 1) for key in "ab"})
    state = place.grown()
    version = state.version
    state.grow()
    assert state.version == version
    assert [value.value for value in state.multi_get(["a", "b"])] == [(1, None), (1, None)]
    state.write(2, {"a": TransactionalValue(2, (2, "new"))})
    assert place.rows() == [("a", 2, "new", 2), ("b", 1, None, 1)]
    assert place.rows(1) == [("a", 1, None, 1), ("b", 1, None, 1)]
    assert sorted(DeltaTable(place.path).to_pyarrow_table()["note"].to_pylist(), key=str) == [None, "new"]
    history = [entry["operation"] for entry in DeltaTable(place.path).history()]
    assert history.count("ADD COLUMNS") == 1
    state.roll_back(1)
    assert place.rows() == [("a", 1, None, 1), ("b", 1, None, 1)]
    assert delta_rs_dataset(place.path, Filter("note", "is null"), ["k"]).num_rows == 2


@pytest.mark.parametrize("way", ["whole", "files", "executors"])
def test_a_write_that_was_prepared_before(place, way):
    """What earlier code has prepared is published, and then written over; in each way of writing a keyed table."""
    if way == "files":
        place.sizes = LARGE
    state = place.opened()
    state.write(1, {key: TransactionalValue(1, 1) for key in "abc"})
    note = state.prepare(2, {"a": TransactionalValue(2, 2), "c": None})
    # What the note replaces is moved meanwhile, so that the new code has to work it out anew.
    table = DeltaTable(place.path)
    table.optimize.compact()
    state = place.opened(NEW, "add")
    state.publish(2, note)
    state.grow()
    assert place.rows() == [("a", 2, None, 2), ("b", 1, None, 1)]
    if way == "executors":
        state.use_executors(InlineExecutors(), 0)
    state.write(3, {"a": TransactionalValue(3, (3, "new")), "d": TransactionalValue(3, (1, "new"))})
    assert place.rows() == [("a", 3, "new", 3), ("b", 1, None, 1), ("d", 1, "new", 3)]


def test_previous_values_of_an_opaque_state(place):
    """A value of before has a previous one of before; a key that was new has none."""
    place.kind = StateKind.OPAQUE
    place.opened().write(1, {"a": OpaqueValue(1, 2, 1), "b": OpaqueValue(1, 1, None)})
    state = place.grown()
    assert state.multi_get(["a", "b"]) == [OpaqueValue(1, (2, None), (1, None)), OpaqueValue(1, (1, None), None)]
    state.write(2, {"a": OpaqueValue(2, (3, "new"), (2, None))})
    assert place.opened(NEW).multi_get(["a"]) == [OpaqueValue(2, (3, "new"), (2, None))]
    assert [row["note"] for row in read_table(place.path).sort_by("k").to_pylist()] == ["new", None]


def test_a_timestamp_without_a_time_zone(place):
    """Its table feature comes with the column."""
    place.opened().write(1, {"a": TransactionalValue(1, 1)})
    moment = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - it is the point
    place.grown(Fields("n: long", "at: timestamp_ntz")).write(2, {"b": TransactionalValue(2, (1, moment))})
    assert place.rows() == [("a", 1, None, 1), ("b", 1, moment, 2)]
    assert "timestampNtz" in DeltaTable(place.path).protocol().reader_features


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("k: string", "n: long, note: string", "it lacks note: string, .* 'txtopo evolve MODULE' adds it once"),
        ("k: string", "n: string, note: string", "its columns are"),
        ("k: string", "note: string", "no column can be removed, so keep n;"),
        ("k: string, j: string", "n: long", "its columns are"),
    ],
    ids=["not asked for", "another type", "renamed", "another key"],
)
def test_what_is_refused(place, key, value, reason):
    """All else is refused before anything is written, with the columns on both sides."""
    place.opened()
    version = DeltaTable(place.path).version()
    evolution = None if reason.startswith("it lacks") else "add"
    state = DeltaState(place.path, Fields(*key.split(", ")), Fields(*value.split(", ")), schema_evolution=evolution)
    with pytest.raises(DivergenceError, match=reason):
        state.open("topology", "s", "life", 2)
    assert DeltaTable(place.path).version() == version


def test_earlier_code_is_refused(place):
    """A table never loses a column: code that does not know it is told to keep the field."""
    place.opened()
    place.grown()
    with pytest.raises(DivergenceError, match="no column can be removed, so keep note"):
        place.opened()
    with pytest.raises(ConfigError, match="schema_evolution is 'drop'"):
        place.declared(OLD, "drop")
    with pytest.raises(FieldsError, match="column 'n' would be in the table twice"):
        place.declared(Fields("n: long", "N: long"), "add")


def test_a_former_coordinator_adds_nothing(place):
    """One that was superseded between opening and growing stops."""
    place.opened()
    former = place.opened(NEW, "add")
    place.opened()
    with pytest.raises(LostLead):
        former.grow()
    assert "note" not in {field.name for field in DeltaTable(place.path).schema().fields}


def put(state, txid, **columns):
    """Append rows to a table of rows."""
    state.write(txid, state.write_rows([TransactionRows(txid, pa.table(columns), RowsMode.APPEND)]))


def test_rows(tmp_path):
    """A table of rows grows though an OPTIMIZE takes the version, and compaction brings files of before and after together."""
    path = tmp_path / "t"
    fields = [Fields("k: string", "n: long"), Fields("k: string", "n: long", "note: string")]
    options = {"partition_by": "k", "upkeep_every_writes": 1, "files_max": 1}
    state = DeltaRows(path, fields[0], **options).open("t", "s", "l", 1)
    put(state, 1, k=["a", "b"], n=[1, 1])
    put(state, 2, k=["a"], n=[2])
    state = DeltaRows(path, fields[1], **options, schema_evolution="add").open("t", "s", "l", 2)
    taken = []

    def optimize(name):
        if name == "delta.write.checked" and not taken:
            taken.append(DeltaTable(path).version())
            DeltaTable(path).optimize.compact()

    with armed(optimize):
        state.grow()
    assert DeltaTable(path).version() == taken[0] + 2
    put(state, 3, k=["a"], n=[3], note=["new"])
    expected = [("a", 1, None, 1), ("a", 2, None, 2), ("a", 3, "new", 3), ("b", 1, None, 1)]
    for _ in range(2):
        assert sorted(tuple(row.values()) for row in read_table(path).to_pylist()) == expected
        merge(state)
    assert len(DeltaTable(path).file_uris()) == 2


def run(folder, note=None, evolution=None, until=None):
    run_inline(topology(folder, note, evolution), CONFIG, until=until)


@pytest.fixture
def command(command_line, tmp_path):
    command_line.write_module("growing", MODULE.format(folder=str(tmp_path / "out")))
    return command_line


@pytest.mark.slow
def test_replayed_audited_and_repaired_over_the_change(command, tmp_path):
    """What was committed before the change, at it and after it replays the same; a repair goes back over it."""
    folder = tmp_path / "out"
    run(folder, until=4)
    run(folder, "new", "add", until=7)
    for txid in range(1, 8):
        result = command("replay", "growing", "--set", "note=new", str(txid))
        assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "✔ the same"), (txid, result.output)
    command.told("audit", str(folder))
    assert {row["note"] for row in read_tables(folder, 4).tables["all"].to_pylist()} == {None}
    for name in ("words", "latest"):
        state = topology(folder, "new").plan.states[name]
        description = state.table().describe()
        state.open("growing", name, description.incarnation, description.epoch).roll_back(4)
    assert "transaction 4" in command.told("repair", "growing", "--set", "note=new", "--yes")
    run(folder, "newer")
    assert check(folder, "newer") == 4
    command.told("audit", str(folder))


@pytest.mark.slow
def test_refused_and_then_evolved(command, tmp_path):
    """A run names the fields and the ways on, and leaves all as it was; evolve adds them, once."""
    folder = tmp_path / "out"
    run(folder, until=3)
    versions = {name: DeltaTable(folder / name).version() for name in ("words", "latest", "all")}
    with pytest.raises(
        DivergenceError,
        match=r"it lacks note: string, .*evolve MODULE.*as it was, or give it another name and another path",
    ) as refused:
        run(folder, "new")
    assert "Nothing was written" in str(refused.value)
    assert versions == {name: DeltaTable(folder / name).version() for name in versions}
    told = command.told("evolve", "growing", "--set", "note=new")
    assert "state 'latest': added note: string, previous_note: string; earlier rows have nulls there\n" in told
    assert told.endswith("done; to continue: txtopo run growing --set note=new\n")
    assert command.told("evolve", "growing", "--set", "note=new").startswith("nothing to do")
    command.told("audit", str(folder))
    run(folder, "new")
    assert check(folder, "new") == 3
    with pytest.raises(DivergenceError, match=r"no column can be removed.*as it was, or give it another name"):
        run(folder)


STRIDES = [
    pytest.param(range(3, 4_000, 50), id="some"),
    pytest.param(range(1, 4_000), id="all", marks=pytest.mark.long),
]


@pytest.mark.slow
@pytest.mark.parametrize("numbers", STRIDES)
def test_in_the_middle_of_a_kill_loop(command_line, tmp_path, numbers):
    """A run dies, one with new fields dies, and a third ends exactly, at whatever failpoint the first two died."""
    died = set()
    for at in numbers:
        folder, first, second = tmp_path / str(at), Crash(20 + at * 7 % 60), Crash(at)
        run_with_crash(lambda: topology(folder), first, CONFIG)  # noqa: B023 - it is called at once
        if run_with_crash(lambda: topology(folder, "new", "add"), second, CONFIG):  # noqa: B023
            break
        died.add(second.name)
        run(folder, "new", "add")
        check(folder, "new")
        result = command_line("audit", str(folder))
        assert result.exit_code == 0, (at, second.name, result.output)
    else:
        pytest.fail("the run reaches more failpoints than that")
    assert numbers.step > 1 or {"table.grow.before", "table.grow.after", "delta.write.landed"} <= died


SPARK = """
import sys
from delta import configure_spark_with_delta_pip
from txtopo.spark.session.delta import CATALOG, EXTENSION
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.extensions", EXTENSION).config("spark.sql.catalog.spark_catalog", CATALOG)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
for name in ("words", "latest", "all"):
    frame = spark.read.format("delta").load(f"{sys.argv[1]}/{name}")
    print(name, sorted({str(row["note"]) for row in frame.collect()}), frame.where("note is null").count())
old = spark.read.format("delta").option("versionAsOf", 2).load(f"{sys.argv[1]}/words")
print(old.columns)
"""


@pytest.mark.long
@pytest.mark.slow
def test_read_by_spark(tmp_path):
    """Spark finds nulls in rows of before, and in a version of before the column is not there."""
    pytest.importorskip("delta", reason="there is no delta-spark for this Spark: pip install '.[spark-delta]'")
    run(tmp_path, until=3)
    run(tmp_path, "new", "add", until=4)
    done = ran("-c", SPARK, tmp_path)
    if "unresolved dependency" in done.stderr or "download failed" in done.stderr:
        pytest.skip("Delta's JARs can't be fetched from Maven here")
    nulls = {
        name: sum(row["note"] is None for row in read_table(tmp_path / name).to_pylist())
        for name in ("words", "latest", "all")
    }
    expected = [f"{name} ['None', 'new'] {count}" for name, count in nulls.items()]
    lines = [line for line in done.stdout.splitlines() if not line.startswith(":: loading settings")]
    assert lines == [*expected, "['word', 'n', 'txid']"], done.stderr


def test_what_users_have_set_stays(place):
    """A table that grows keeps its properties, name and description, and all else of its metadata but the schema."""
    place.opened().write(1, {"a": TransactionalValue(1, 1)})
    table = DeltaTable(place.path)
    table.alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 9 days", "shop.owner": "me"}, raise_if_not_exists=False
    )
    table.alter.set_table_name("words")
    table.alter.set_table_description("counted words")
    before = DeltaTable(place.path).metadata()
    place.grown().write(2, {"b": TransactionalValue(2, (2, "new"))})
    after = DeltaTable(place.path).metadata()
    for name in ("id", "name", "description", "partition_columns", "created_time", "configuration"):
        assert getattr(after, name) == getattr(before, name)
    assert after.configuration["shop.owner"] == "me"
