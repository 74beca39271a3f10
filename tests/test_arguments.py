"""Each argument of what users make: something of another kind is one sentence that names it, and nothing is begun."""

import datetime as dt
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import committers
import spouts
import spouts.kafka
import state
from committers import (
    AppendCommitter,
    ApplyChanges,
    ApproxCountDistinct,
    ApproxQuantile,
    ArgMax,
    ArgMin,
    Collect,
    Count,
    CountDistinct,
    Days,
    Deduplicate,
    DeltaAppendBolt,
    DeltaUpsertBolt,
    EventClock,
    EventTime,
    First,
    Hours,
    IntervalJoin,
    JoinStream,
    Last,
    LastN,
    LookupJoin,
    Max,
    Mean,
    Min,
    ReduceCommitter,
    ReplaceCommitter,
    Sessions,
    Sliding,
    StreamJoin,
    Sum,
    TimerCommitter,
    TopN,
    Tumbling,
    WindowCommitter,
    WindowUpdateCommitter,
)
from committers.kafka import KafkaBolt
from spouts import (
    DataSourceSpout,
    DeltaTransactionalSpout,
    FilesTransactionalSpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    OpaqueSqlTransactionalSpout,
    SqlTransactionalSpout,
)
from spouts.kafka import (
    ByTopicRecordTranslator,
    Debezium,
    DefaultRecordTranslator,
    DeltaDeadLetters,
    ExponentialBackoff,
    JsonRecordTranslator,
    KafkaSpout,
    KafkaSpoutConfig,
    OpaqueKafkaSpout,
    PatternTopicFilter,
    SchemaRegistry,
    SimpleRecordTranslator,
    TransactionalKafkaSpout,
)
from state import (
    DeltaExpiringRows,
    DeltaReference,
    DeltaRows,
    DeltaState,
    KafkaState,
    MemoryState,
    MemoryStore,
    ObjectStore,
    RotatingTransactionalState,
    SqliteStore,
    SqlRows,
    SqlState,
    TransactionalState,
    ZooKeeperStore,
    read_points,
    read_table,
    read_tables,
)
from txtopo import (
    BasicBolt,
    BatchBolt,
    Config,
    Fields,
    Spout,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    run,
    start,
)
from txtopo.errors import ConfigError, FieldsError, TxtopoError

WRONG = [None, 5, b"x", object(), "", [], [None], [5], {5: 5}, {None}, float("nan"), -1.5, int, "a\0", "a\nb"]

N, V, SECOND = Fields("n: long"), Fields("v: long"), dt.timedelta(seconds=1)
TIMED = Fields("k: string", "at: timestamp")
KAFKA = {"servers": "h:1", "topics": "t", "fields": Fields("value: string")}
TABLE = {"upkeep_every_writes": 5, "files_max": 5, "vacuum_retention_hours": None, "storage_options": None}
WINDOW = {"state": "s", "clock": "c", "time": "t", "window": Tumbling(SECOND), "aggregates": {"count": Count()}}
BOUNDS = {"flush_secs": 1.0, "rows_max": 5, "bytes_max": 100}


class Timers(TimerCommitter):
    """As little as there is."""

    def on_rows(self, *_):
        """Do nothing."""

    def on_timer(self, *_):
        """Do nothing."""


class Source:
    """As little as a data source of PySpark has."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def schema(self) -> str:
        """One column."""
        return "n: long"

    def streamReader(self, schema: object) -> None:  # noqa: N802 - PySpark's name
        """Nothing is read."""


SQL = {
    "url": "postgresql://a@b/c",
    "table": "rows",
    "fields": Fields("n: long", "at: timestamp"),
    "schema": "s",
    "rows_max": 5,
    "watch": True,
    "poll_secs": 1.0,
}

RIGHT: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (
        DeltaTransactionalSpout,
        {
            "path": "p",
            "fields": N,
            "starting_version": 1,
            "changes": "skip",
            "batch_bytes": 10,
            "batch_files_max": 2,
            "watch": True,
            "poll_secs": 1.0,
            "storage_options": {},
        },
    ),
    (
        DataSourceSpout,
        {"source": Source, "options": {}, "fields": N, "rows_max": 5, "until_end": True, "poll_secs": 1.0},
    ),
    (SqlTransactionalSpout, {**SQL, "id": "n"}),
    (SchemaRegistry, {"url": "http://a", "properties": {"max.retries": 0}}),
    (OpaqueSqlTransactionalSpout, {**SQL, "key": ["n"], "updated_at": "at"}),
    (
        FilesTransactionalSpout,
        {
            "path": ".",
            "fields": N,
            "format": "csv",
            "batch_bytes": 10,
            "batch_files_max": 2,
            "header": True,
            "delimiter": ",",
            "quote": '"',
            "watch": True,
            "settle_secs": 1.0,
            "poll_secs": 1.0,
            "now_secs": float,
            "dead_letter": "_bad",
        },
    ),
    (MemoryTransactionalSpout, {"data": [[1]], "fields": N, "take_per_batch": 1}),
    (OpaqueMemoryTransactionalSpout, {"data": {0: [1]}, "fields": N, "take_per_batch": 1}),
    *(
        (
            kind,
            {
                **KAFKA,
                "deserializer": None,
                "first_poll": "earliest",
                "properties": None,
                "dead_letter": "d",
                "batch_records_max": 5,
                "publish_group": "g",
                "on_lost": "fail",
                "until_end": True,
            },
        )
        for kind in (TransactionalKafkaSpout, OpaqueKafkaSpout)
    ),
    (KafkaSpout, {**KAFKA, "group_id": "g", "retry_service": ExponentialBackoff(), "clock": float}),
    (
        KafkaSpoutConfig,
        {
            **KAFKA,
            "deserializer": None,
            "first_poll": "latest",
            "properties": None,
            "dead_letter": "d",
            "group_id": "g",
            "processing_guarantee": "at_least_once",
            "offset_commit_period_ms": 1,
            "max_uncommitted_offsets": 1,
            "batch_records_max": 1,
            "start_timestamp": 1,
            "partition_refresh_period_ms": 1,
            "tuple_tracking_enforced": True,
            "subscribe": True,
        },
    ),
    (
        KafkaBolt,
        {"servers": "h:1", "topic": "t", "key_field": "k", "value_field": "v", "properties": None, "connect": len},
    ),
    (PatternTopicFilter, {"pattern": "a"}),
    (DefaultRecordTranslator, {"fields": Fields("value", "key")}),
    (JsonRecordTranslator, {"fields": N, "stream": "s"}),
    (SimpleRecordTranslator, {"function": len, "fields": N, "stream": "s"}),
    (ByTopicRecordTranslator, {"default": DefaultRecordTranslator()}),
    (DeltaDeadLetters, {"path": "p"}),
    (ExponentialBackoff, {"initial_ms": 1, "period_ms": 1, "retries_max": 1, "delay_max_ms": 1}),
    (AppendCommitter, {"state": "s", "fields": ["n"]}),
    (
        ApplyChanges,
        {
            "state": "s",
            "tombstones": "t",
            "key": N,
            "values": V,
            "sequence": Fields("at: long"),
            "deleted": "d",
            "unchanged": "u",
            "time": "w",
            "history": "h",
            "versions_max": 5,
        },
    ),
    (Debezium, {"parts": {"lsn": "source.lsn"}, "deleted": "d", "unchanged": "u"}),
    (ReplaceCommitter, {"state": "s", "fields": ["n"]}),
    (ReduceCommitter, {"state": "s", "key": "k", "value": "n", "function": max}),
    (ReduceCommitter, {"state": "s", "key": ["k"], "values": {"n": Sum("n")}}),
    *((kind, {"field": "n"}) for kind in (Count, Sum, Mean, Min, Max)),
    (Collect, {"field": "n", "distinct": True, "values_max": 5}),
    (CountDistinct, {"field": "n", "values_max": 5}),
    (ApproxCountDistinct, {"field": "n", "lg_k": 10}),
    (ApproxQuantile, {"field": "n", "q": 0.5, "accuracy": 0.1}),
    *((kind, {"field": "n", "by": "at"}) for kind in (First, Last)),
    *((kind, {"fields": "n", "by": "at", "n": 3}) for kind in (TopN, LastN)),
    *((kind, {"fields": "n", "by": "at", "rows_max": 3}) for kind in (ArgMax, ArgMin)),
    *((kind, {"zone": "UTC"}) for kind in (Days, Hours)),
    (Tumbling, {"size": SECOND}),
    (Sliding, {"size": SECOND, "slide": SECOND}),
    (Sessions, {"gap": SECOND}),
    *(
        (kind, {**WINDOW, "key": N, "lateness": SECOND, "late_rows": N})
        for kind in (WindowCommitter, WindowUpdateCommitter)
    ),
    (Deduplicate, {"state": "s", "clock": "c", "time": "at", "key": "k", "within": SECOND, "fields": TIMED}),
    (
        EventClock,
        {
            "state": "s",
            "time": "t",
            "delay": SECOND,
            "partition": "p",
            "idle_after": SECOND,
            "ahead_max": SECOND,
            "close_at_end": True,
        },
    ),
    (EventClock, {"state": "s", "sources": {"a": EventTime("t", delay=SECOND)}}),
    (
        IntervalJoin,
        {
            "state": "s",
            "clock": "c",
            "left": JoinStream("l", key="k", time="at", fields=TIMED),
            "right": JoinStream("r", key="k", time="at", fields=TIMED, rename={"at": "its"}),
            "lower": SECOND,
            "upper": SECOND,
            "how": "left",
        },
    ),
    (
        StreamJoin,
        {
            "left_state": "l",
            "right_state": "r",
            "left": JoinStream("l", key="k", time="at", fields=TIMED),
            "right": JoinStream("r", key="k", time="at", fields=TIMED, rename={"at": "its", "k": "other"}),
            "how": "inner",
            "ttl": SECOND,
            "clock": "c",
        },
    ),
    (
        JoinStream,
        {"source": "s", "key": "k", "time": "at", "fields": TIMED, "rename": {"at": "a"}, "stream": "default"},
    ),
    (EventTime, {"time": "t", "delay": SECOND, "partition": "p", "idle_after": SECOND}),
    (Timers, {"values": "v", "timers": "t", "clock": "c", "key": N}),
    (DeltaAppendBolt, {"path": "p", "fields": N, **BOUNDS}),
    (DeltaUpsertBolt, {"path": "p", "key": N, "value": V, "version": "v", **BOUNDS}),
    (
        LookupJoin,
        {"key": ["k"], "reference": "r", "fields": N, "values": V, "rename": {}, "how": "left"},
    ),
    (DeltaRows, {"path": "p", "fields": N + V, "partition_by": ["n"], "schema_evolution": "add", **TABLE}),
    (DeltaExpiringRows, {"path": "p", "fields": TIMED, "expires": "at", "key": ["k"], **TABLE}),
    (
        DeltaReference,
        {
            "path": "p",
            "key": ["k"],
            "columns": ["n"],
            "refresh": dt.timedelta(0),
            "bytes_max": 1,
            "storage_options": {},
        },
    ),
    (
        DeltaState,
        {
            "path": "p",
            "key": N,
            "value": V,
            "kind": state.StateKind.OPAQUE,
            "cached_keys_max": 5,
            "schema_evolution": "add",
            "deletion_vectors": True,
            **TABLE,
        },
    ),
    (DeltaState, {"path": "p", "key": N, "value": TIMED, "ttl": SECOND, "clock": "c", "time": "at"}),
    (MemoryState, {"key": N, "value": V, "kind": state.StateKind.OPAQUE}),
    (
        KafkaState,
        {
            "servers": "h:1",
            "topic": "t",
            "fields": Fields("value: string"),
            "properties": {},
            "publish_secs": 1.0,
            "transaction_secs": 1.0,
            "publishes_again": True,
            "marks_topic": "m",
        },
    ),
    (SqlRows, {"url": "sqlite:///p", "table": "t", "fields": N, "schema": "s"}),
    (
        SqlState,
        {"url": "sqlite:///p", "table": "t", "key": N, "value": V, "kind": state.StateKind.OPAQUE, "schema": "s"},
    ),
    (MemoryStore, {"place": None}),
    (TransactionalState, {"store": MemoryStore(), "lead": None, "root": "t/user"}),
    (
        RotatingTransactionalState,
        {
            "state": TransactionalState(MemoryStore(), None, "t/user"),
            "subdir": "meta",
            "strict_order": True,
            "entries_max": 5,
        },
    ),
]

READ = [
    (SqliteStore, {"path": "a/store.sqlite"}),
    (ObjectStore, {"address": "s3://b/c", "options": {}, "lease_secs": 1.0}),
    (read_table, {"path": "p", "txid": 1, "nearest": True, "live": False, "storage_options": None}),
    (read_tables, {"output": "p", "txid": 1, "nearest": True, "states": ["s"], "topology": "t"}),
    (read_points, {"path": "p", "topology": "t", "storage_options": None}),
]
"""What opens or reads something that is not there."""

OTHERS = {
    state: {"ConsistentView", "NonTransactionalValue", "OpaqueValue", "ShownPoint", "ShownPoints"}
    | {"StateKind", "TransactionalValue", "ZooKeeperStore", "RowFormat", "checked_fields"},
    spouts: {"Lag", "SpoutTable"},
    spouts.kafka: {"DeadLetter", "FirstPollOffsetStrategy", "KafkaRecord", "KafkaTuple", "MessageId", "RECORD_FIELDS"}
    | {"NamedTopicFilter", "ProcessingGuarantee", "TopicPartition"},
    committers: set(),
}
"""Values, enumerations, what txtopo itself makes, and what has tests of its own below."""


def named(cases: list[Any]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0].__name__}-{'-'.join(case[1])[:20]}") for case in cases]


def refusals(make: Callable[..., Any], right: dict[str, Any]) -> Iterator[tuple[str, object, TxtopoError | None]]:
    """Try each wrong value of each argument; any other error than ours is raised."""
    for name in right:
        for wrong in WRONG:
            try:
                make(**{**right, name: wrong})
            except TxtopoError as error:
                yield name, wrong, error
            else:
                yield name, wrong, None


@pytest.mark.parametrize(("make", "right"), named(RIGHT))
def test_arguments(make, right, tmp_path, monkeypatch):
    """No argument may be just anything; what is refused is so in one line, and what has another type by its name."""
    monkeypatch.chdir(tmp_path)
    make(**right)
    found = list(refusals(make, right))
    assert [(name, wrong) for name, wrong, error in found if error is not None and "\n" in str(error)] == []
    refused = {name for name, wrong, error in found if type(wrong) is object and name in str(error)}
    assert refused == set(right)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("make", "right"), named(READ))
def test_arguments_of_what_reads(make, right, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = {name for name, wrong, error in refusals(make, right) if type(wrong) is object and name in str(error)}
    assert refused == set(right)


def test_every_public_class_is_tried():
    """One that is added to a package is tried too."""
    tried = {getattr(make, "__name__", "") for make, _ in (*RIGHT, *READ)} | {"TimerCommitter"}
    for package, others in OTHERS.items():
        takes = {
            name
            for name in package.__all__
            if not callable(each := getattr(package, name))
            or (not inspect.isabstract(each) and inspect.signature(each).parameters)
        }
        assert takes - tried - {name for name in takes if "Base" in name} == others & takes


@pytest.mark.parametrize("topics", [None, 5, b"x", object(), [], [None], ["a", None], ["a", "a"], "", {}], ids=repr)
def test_topics(topics):
    for make in (TransactionalKafkaSpout, OpaqueKafkaSpout, KafkaSpout, KafkaSpoutConfig):
        with pytest.raises(ConfigError, match=r"^topics is .*; give "):
            make("h:1", topics, Fields("value: string"))


def test_words():
    """An error says what was given, and what to give; what may be a secret is not shown."""
    cases: dict[str, Callable[[], Any]] = {
        "topics is [None]; give a TopicFilter, a string, a compiled pattern or a list of strings": lambda: (
            TransactionalKafkaSpout("h:1", [None], N)
        ),
        "header is 'no'; give True or False": lambda: FilesTransactionalSpout("a", header="no"),
        "values['a'] is 5; give an Aggregate": lambda: ReduceCommitter("s", "k", values={"a": 5}),
        "within is 5; give a timedelta": lambda: Deduplicate(
            "s", clock="c", time="at", key="k", within=5, fields=TIMED
        ),
        "a name in values is 5; give a string": lambda: ReduceCommitter("s", "k", values={5: Sum("n")}),
        "credentials is …, a bytes; give a string or None": lambda: ZooKeeperStore("h", credentials=b"a:b"),
        "storage_options['aws_secret_access_key'] is …, a bytes; give a string": lambda: DeltaRows(
            "p", N, storage_options={"aws_secret_access_key": b"geheim"}
        ),
        "hosts is ''; give host:port, or several separated by commas": lambda: ZooKeeperStore(""),
    }
    for words, make in cases.items():
        with pytest.raises(ConfigError) as error:
            make()
        assert str(error.value) == words
    with pytest.raises(FieldsError, match=r"^key is 'k', which is no Fields; write key=Fields\('name: string'\)$"):
        DeltaState("x", key="k", value=N)


class Numbers(Spout):
    """As little as there is."""

    output_fields = N

    def next_tuple(self):
        """Emit nothing."""


class Nothing(BasicBolt):
    """As little as there is."""

    output_fields = N

    def execute(self, tuple, collector):
        """Emit nothing."""


class NothingOfBatch(BatchBolt):
    """As little as there is."""

    output_fields = Fields("attempt", "n")

    def execute(self, tuple):
        """Emit nothing."""


def transactional() -> TransactionalTopologyBuilder:
    builder = TransactionalTopologyBuilder("t", "s", MemoryTransactionalSpout([[1]], N, 1))
    builder.set_bolt("first", AppendCommitter("table")).shuffle_grouping("s")
    builder.set_state("table", MemoryState(N, V))
    return builder


def plain() -> TopologyBuilder:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Numbers())
    return builder


def declared(builder: Any, wrong: Any) -> Iterator[Callable[[], Any]]:
    bolt = Nothing() if isinstance(builder, TopologyBuilder) else NothingOfBatch()
    yield lambda: builder.set_bolt(wrong, bolt).shuffle_grouping("s")
    yield lambda: builder.set_bolt("b", wrong).shuffle_grouping("s")
    yield lambda: builder.set_bolt("b", bolt, [wrong]).shuffle_grouping("s")
    yield lambda: builder.set_bolt("b", bolt).shuffle_grouping(wrong)
    yield lambda: builder.set_bolt("b", bolt).shuffle_grouping("s", wrong)
    yield lambda: builder.set_bolt("b", bolt).fields_grouping("s", wrong)
    yield lambda: builder.set_bolt("b", bolt).partial_key_grouping("s", wrong)
    yield lambda: builder.set_bolt("b", bolt).custom_grouping("s", wrong)
    yield lambda: builder.set_bolt("b", bolt).shuffle_grouping("s").set_num_tasks([wrong])
    yield lambda: builder.set_bolt("b", bolt).shuffle_grouping("s").add_configuration(wrong, 1)
    if isinstance(builder, TopologyBuilder):
        yield lambda: builder.set_spout(wrong, Numbers())
        yield lambda: builder.set_spout("x", wrong)
    else:
        yield lambda: builder.set_state(wrong, MemoryState(N, V))
        yield lambda: builder.set_state("x", wrong)


@pytest.mark.parametrize("wrong", [None, 5, b"x", object(), [], [None], {5: 5}, float("nan"), int], ids=repr)
@pytest.mark.parametrize("make", [transactional, plain])
def test_builders(make, wrong):
    """What is wrong in a graph is an error where it is declared, or of ``build()``."""
    for number in range(len(list(declared(make(), wrong)))):
        builder = make()
        with pytest.raises(TxtopoError):
            list(declared(builder, wrong))[number]()
            builder.build()
    for wrong_id in (lambda: TransactionalTopologyBuilder(wrong, "s", None), lambda: TopologyBuilder(wrong)):
        with pytest.raises(TxtopoError):
            wrong_id().build()


@pytest.mark.parametrize("wrong", [5, b"x", object(), [None], float("nan"), int], ids=repr)
def test_runs(wrong):
    """Nothing is started."""
    topology = transactional().build()
    for make in (run, start):
        with pytest.raises(ConfigError, match="topology is "):
            make(wrong)
        with pytest.raises(ConfigError, match="config is "):
            make(topology if make is run else plain().build(), wrong)
    for name in ("control", "observer", "timeline"):
        with pytest.raises(ConfigError, match=f"{name} is "):
            run(topology, **{name: wrong})
    with pytest.raises(ConfigError, match="the configuration is "):
        Config(wrong)


@pytest.mark.parametrize("wrong", ["", [], {}, 0, False, 5, object(), int], ids=repr)
def test_sessions(wrong):
    """What is false is not taken for none, and PySpark is not imported to tell."""
    for make in (lambda: run(transactional().build(), spark=wrong), lambda: start(plain().build(), spark=wrong)):
        with pytest.raises(ConfigError, match=r"^spark is .*; give a SparkSession or None$"):
            make()
