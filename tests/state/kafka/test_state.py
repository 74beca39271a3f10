"""KafkaState on a real broker: a reader of committed records gets each transaction's once, in order."""

import contextlib
import datetime as dt
import itertools
from collections import Counter

import attrs
import pytest

from committers import AppendCommitter, ReduceCommitter
from spouts import MemoryTransactionalSpout
from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from state import DeltaState, KafkaState, read_table
from tests.crashes import Crash, run_with_crash
from tests.variants import variants
from tests.waiting import wait_for
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.api.writes import RowsMode, TransactionRows
from txtopo.errors import (
    ConfigError,
    DivergenceError,
    FieldsError,
    InternalError,
    LostLead,
    StateAccessError,
    StateFailure,
    StopError,
)
from txtopo.testing.inline import run_inline

FIELDS = Fields("key: string", "value: string")
ROWS = [[f"k{number % 3}", str(number)] for number in range(12)]
CONFIG = Config(max_spout_pending=6, group_transactions_max=2)
_TOPICS = itertools.count(1)
NOW = dt.datetime.now(dt.UTC)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def topic(kafka):
    name = f"out-{next(_TOPICS)}"
    kafka.create_topic(name, 2)
    return name


def read(servers, topic, partitions=2, isolation="read_committed"):
    """Return the records of each partition as a reader of committed ones gets them."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": isolation}
    ends = {"enable.partition.eof": True, "fetch.wait.max.ms": 20}
    consumer = Consumer({**settings, **ends, "enable.auto.commit": False})
    # The first offset by its number: librdkafka takes half a second to look it up.
    consumer.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
    found, ended = [[] for _ in range(partitions)], set()
    while len(ended) < partitions:
        message = consumer.poll(10)
        assert message is not None, "the reader is held back"
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found[message.partition()].append(message)
    consumer.close()
    return found


def values(servers, topic, partitions=2):
    return [[message.value().decode() for message in each] for each in read(servers, topic, partitions)]


@attrs.frozen
class Pipeline:
    servers: str
    topic: str
    opaque: bool = False

    @property
    def state(self):
        return KafkaState(self.servers, self.topic, FIELDS)

    def __call__(self):
        spout = (OpaqueMemoryTransactionalSpout if self.opaque else MemoryTransactionalSpout)(ROWS, FIELDS, 2)
        builder = TransactionalTopologyBuilder("out", "rows", spout)
        builder.set_committer_bolt("into-topic", AppendCommitter("topic")).global_grouping("rows")
        builder.set_state("topic", self.state)
        count = ReduceCommitter("table", "key", "value", max)
        builder.set_committer_bolt("into-table", count).fields_grouping("rows", Fields("key"))
        builder.set_state("table", DeltaState("table", Fields("key: string"), Fields("value: string")))
        return builder.build()

    def check(self):
        """Each record once, and in each partition in the order of the transactions."""
        found = values(self.servers, self.topic)
        assert sorted(int(each) for own in found for each in own) == list(range(12))
        assert all(own == sorted(own, key=int) for own in found)
        assert read_table("table").num_rows == 3


@pytest.fixture
def pipeline(kafka, topic):
    return Pipeline(kafka.servers, topic)


def test_a_run(pipeline):
    """Each record is there once, equal keys in one partition, and a further run finds nothing to do."""
    for _ in range(2):
        run_inline(pipeline(), CONFIG)
        pipeline.check()
    keys = [{message.key() for message in own} for own in read(pipeline.servers, pipeline.topic)]
    assert not keys[0] & keys[1]


@pytest.mark.parametrize("opaque", variants(False, long=[True]), ids=["repeatable", "opaque"])
@pytest.mark.slow
def test_a_crash_at_every_step(pipeline, opaque):
    """A run that dies anywhere, and whoever comes next dies there, too, ends with each record once."""
    pipeline = attrs.evolve(pipeline, opaque=opaque)
    for at in itertools.count(1, 4):
        if run_with_crash(pipeline, Crash(at=at), CONFIG):
            break
    assert at > 10
    pipeline.check()


class _DeadError(Exception):
    """The process dies."""


@pytest.mark.slow
@pytest.mark.parametrize("at", variants(1, 4, 7, long=[2, 3, 5, 6]))
def test_a_crash_between_two_calls_of_the_client(pipeline, monkeypatch, at):
    """A coordinator that dies before or after any call of a transaction leaves all of it or nothing."""
    from state.kafka.client import KafkaWriter

    run_inline(pipeline(), CONFIG, until=2)
    real, calls, kept = KafkaWriter.__init__, [], []

    class Dying:
        def __init__(self, producer):
            self._producer = producer

        def __getattr__(self, name):
            call = getattr(self._producer, name)
            if name not in {"begin_transaction", "produce", "commit_transaction"}:
                return call

            def called(*arguments, **options):
                calls.append(name)
                if len(calls) == at + 3:
                    raise _DeadError(name)
                result = call(*arguments, **options)
                if name == "commit_transaction" and at == 7 and len(calls) > 3:
                    raise _DeadError("its answer is lost")
                return result

            return called

    def made(self, *arguments):
        real(self, *arguments)
        kept.append(self._producer)  # a process that is gone does not tell Kafka
        self._producer = Dying(self._producer)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaWriter, "__init__", made)
        patch.setattr(KafkaWriter, "abandon", lambda self: None)
        with pytest.raises((_DeadError, InternalError)):
            run_inline(pipeline(), CONFIG)
    assert len(calls) > 3
    run_inline(pipeline(), CONFIG)
    pipeline.check()


def test_two_coordinators(pipeline):
    """The later one fences the earlier one, which writes nothing more and fences nobody."""
    state = pipeline.state
    old = state.open("out", "topic", "life", 1)
    old.publish(1, old.prepare(1, old.write_rows([])))
    new = state.open("out", "topic", "life", 2)
    for _ in range(2):
        with pytest.raises(LostLead):
            old.publish(2, old.prepare(2, old.write_rows([])))
    with pytest.raises(LostLead):
        state.open("out", "topic", "life", 1)
    new.publish(2, new.prepare(2, new.write_rows([])))
    assert (new.last_txid, state.table().describe().epoch) == (2, 2)
    with pytest.raises(DivergenceError, match="belongs to state 'topic'"):
        state.open("other", "topic", "life", 3)
    with pytest.raises(DivergenceError, match="incarnation"):
        state.open("out", "topic", "other", 3)
    for each in (old, new):
        each.close()


def test_aborted_and_open_transactions_of_others_beside(pipeline, kafka):
    """What others abort, or leave open, in the same topic changes nothing of what this state publishes."""
    from confluent_kafka import Producer

    producers = []
    for number in range(2):
        producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": f"{pipeline.topic}-{number}"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(pipeline.topic, "of others", "k0")
        producer.flush()
        producers.append(producer)
    producers[0].abort_transaction()
    run_inline(pipeline(), CONFIG)  # the other one is open, and holds back readers of the topic, but not this state
    producers[1].abort_transaction()
    pipeline.check()


def test_the_parts_of_a_record(kafka, topic):
    """Key, value, partition, time and headers come from fields; a null value is a tombstone."""
    fields = Fields(
        "key: binary", "value: string", "partition: int", "timestamp: timestamp", "headers: map<string, binary>"
    )
    opened = KafkaState(kafka.servers, topic, fields).open("out", "records", "life", 1)
    time = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    rows = [(b"k", "v", 1, time, {"a": b"1", "b": None}), (b"k", None, 1, None, None), (None, "", 0, None, {})]
    fitted = opened.rows_to_write(rows, RowsMode.APPEND)
    opened.publish(1, opened.prepare(1, opened.write_rows([TransactionRows(1, fitted, RowsMode.APPEND)])))
    found = read(kafka.servers, topic)
    first, tombstone = found[1]
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", b"v", int(time.timestamp() * 1000))
    assert first.headers() == [("a", b"1"), ("b", None)]
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (b"k", None, None)
    assert [(each.key(), each.value()) for each in found[0]] == [(None, b"")]
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
    for bad, why in (
        ((b"k", "v", 2, time, {}), "none of the topic"),
        ((b"k", "v", -1, time, {}), "none of the topic"),
        ((b"k", "x" * 1_000_000, 0, time, {}), "the topic takes"),
        ((b"k", "v", 0, dt.datetime(1969, 1, 1, tzinfo=dt.UTC), {}), "not after the beginning of 1970"),
        ((b"k", "v", 0, dt.datetime(1970, 1, 1, tzinfo=dt.UTC), {}), "not after the beginning of 1970"),
        ((b"k", "v", 0, ahead, {}), "more than 3600000 ms ahead"),
    ):
        with pytest.raises(FieldsError, match=why):
            opened.rows_to_write([rows[0], bad], RowsMode.APPEND)
    opened.close()


def publish(opened, txid, rows):
    """Publish rows as a transaction."""
    fitted = opened.rows_to_write(rows, RowsMode.APPEND)
    opened.publish(txid, opened.prepare(txid, opened.write_rows([TransactionRows(txid, fitted, RowsMode.APPEND)])))


@pytest.mark.parametrize(
    ("settings", "rows", "why"),
    [
        ({"cleanup.policy": "compact"}, [["k", "v"], [None, "v"]], "row 1: the topic is compacted, .* need keys"),
        ({"message.timestamp.before.max.ms": "60000"}, [["v", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]], "older than"),
        ({"max.message.bytes": "20000"}, [["k", "v" * 19_900]], "the topic takes 20000"),
    ],
    ids=["compacted", "old", "large"],
)
def test_what_a_topic_would_refuse_is_refused_before(kafka, topic, settings, rows, why):
    """Such a record is an error of its transaction, for after the decision nobody could write it."""
    kafka.create_topic(f"{topic}-strict", 1, settings)
    fields = FIELDS if isinstance(rows[0][1], str) else Fields("value: string", "timestamp: timestamp")
    opened = KafkaState(kafka.servers, f"{topic}-strict", fields).open("out", "records", "life", 1)
    with pytest.raises(FieldsError, match=why):
        opened.rows_to_write(rows, RowsMode.APPEND)
    opened.close()


STRICT = {
    "compacted": ({"cleanup.policy": "compact"}, [None, "v", 0, NOW], "need keys"),
    "old": ({"message.timestamp.before.max.ms": "60000"}, ["k", "v", 0, NOW - dt.timedelta(hours=1)], "is older than"),
    "large": ({"max.message.bytes": "20000"}, ["k", "v" * 20_000, 0, NOW], "the topic takes 20000"),
    "partitions": ({}, ["k", "v", 1, NOW], "partition 1 is none of the topic, which has 1"),
}


@pytest.mark.parametrize("kind", STRICT)
def test_a_decided_group_that_the_topic_takes_no_more(kafka, topic, kind):
    """After an outage, or if somebody changes the topic: each try says why and what to do, and the next one looks."""
    settings, row, why = STRICT[kind]
    fields = Fields("key: string", "value: string", "partition: int", "timestamp: timestamp")
    lenient = KafkaState(kafka.servers, topic, fields).open("out", "lenient", "life", 1)
    fitted = lenient.rows_to_write([row], RowsMode.APPEND)
    note = lenient.prepare(3, lenient.write_rows([TransactionRows(3, fitted, RowsMode.APPEND)]))
    lenient.close()
    kafka.create_topic(f"{topic}-strict", 1, settings)
    opened = KafkaState(kafka.servers, f"{topic}-strict", fields).open("out", "records", "life", 1)
    for _ in range(2):
        with pytest.raises(StateFailure, match=rf"takes .* of transaction 3 no more.*{why}.*kafka-configs\.sh"):
            opened.publish(3, note)
    if kind == "partitions":
        kafka.add_partitions(f"{topic}-strict", 2)
    else:
        set_topic(kafka, f"{topic}-strict", dict.fromkeys(settings, "delete" if kind == "compacted" else "90000000"))

    def is_published():
        with contextlib.suppress(StateFailure):
            opened.publish(3, note)
        return opened.last_txid == 3

    wait_for("a topic that takes it", is_published)
    opened.close()
    assert sum(map(len, read(kafka.servers, f"{topic}-strict", row[2] + 1))) == 1


def set_topic(kafka, topic, settings):
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in settings.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    kafka.admin().incremental_alter_configs([resource])[resource].result(10)


def test_batches_are_as_small_as_the_topic_needs_them(kafka, topic):
    """Many records go to a topic that takes less at once than the client would send."""
    kafka.create_topic(f"{topic}-small", 1, {"max.message.bytes": "20000"})
    opened = KafkaState(kafka.servers, f"{topic}-small", FIELDS).open("out", "records", "life", 1)
    sizes = [1, 19_400, 700, 19_400, 10_000, *range(300)]
    publish(opened, 1, [["k", "v" * size] for size in sizes])
    opened.close()
    assert [len(message.value()) for message in read(kafka.servers, f"{topic}-small", 1)[0]] == sizes


def test_a_topic_that_is_deleted(kafka, topic):
    """Nobody makes another one, whose partitions may be fewer; once the user has, what follows is published."""
    state = KafkaState(kafka.servers, topic, FIELDS)
    opened = state.open("out", "records", "life", 1)
    publish(opened, 1, [["k", "1"]])
    kafka.delete_topic(topic)
    state.transaction_secs = 1  # what is there may take longer on a busy machine
    with pytest.raises(StateFailure):
        publish(opened, 2, [["k", "2"]])
    with pytest.raises(StateFailure, match="is gone: create it again, with as many partitions"):
        publish(opened, 2, [["k", "2"]])
    with pytest.raises(DivergenceError, match=r"is gone: .*; the state is at transaction 1"):
        state.open("out", "records", "life", 2)
    kafka.create_topic(topic, 2)
    state.transaction_secs = 60
    publish(opened, 2, [["k", "2"]])
    opened.close()
    assert sorted(values(kafka.servers, topic)) == [[], ["2"]]


@pytest.mark.parametrize(("partitions", "settings"), [(1, {}), (2, {"cleanup.policy": "compact"})])
def test_marks_in_a_topic_that_would_forget_them(kafka, topic, partitions, settings):
    """Where records are deleted after a week, an idle topology would begin anew: such a topic is refused."""
    kafka.create_topic(f"{topic}.txtopo", partitions, settings)
    with pytest.raises(ConfigError, match="must have 1 partition"):
        KafkaState(kafka.servers, topic, FIELDS).open("out", "records", "life", 1)


def test_a_transaction_that_may_take_longer_than_brokers_allow(kafka, topic):
    """It is refused at once, with both settings' names."""
    state = KafkaState(kafka.servers, topic, FIELDS, transaction_secs=3600)
    with pytest.raises(ConfigError, match=r"transaction_secs is 3600.*transaction\.max\.timeout\.ms"):
        state.open("out", "records", "life", 1)


def test_two_states_of_one_topic(kafka, topic):
    """Each has a topic of marks of its own; with the same one, the second is refused by name."""
    fields = Fields("value: string")
    one = KafkaState(kafka.servers, topic, fields).open("out", "one", "life", 1)
    two = KafkaState(kafka.servers, topic, fields, marks_topic=f"{topic}.two").open("out", "two", "life", 1)
    for txid in (1, 2):
        publish(one, txid, [[f"one {txid}"]])
        publish(two, txid, [[f"two {txid}"], [None]] if txid == 2 else [])
    found = [message.value() for part in read(kafka.servers, topic) for message in part]
    assert sorted(map(str, found)) == ["None", "b'one 1'", "b'one 2'", "b'two 2'"]
    with pytest.raises(DivergenceError, match=r"belongs to state 'one'.*give the state a place of its own"):
        KafkaState(kafka.servers, topic, fields).open("out", "three", "life", 1)
    for each in (one, two):
        each.close()


@pytest.mark.parametrize(
    "fields",
    [Fields("value"), Fields("key: string"), Fields("value: long"), Fields("value: string", "other: string")],
    ids=repr,
)
def test_fields_that_are_no_parts_of_a_record(fields):
    """They are refused when the state is declared."""
    with pytest.raises(FieldsError):
        KafkaState("127.0.0.1:9092", "out", fields)


def test_settings_that_are_refused():
    """What exactness rests on can't be set otherwise."""
    for properties in ({"acks": 1}, {"transactional.id": "x"}, {"bootstrap.servers": "x"}):
        with pytest.raises(ConfigError):
            KafkaState("127.0.0.1:9092", "out", FIELDS, properties=properties)
    with pytest.raises(ConfigError, match="no name of a topic"):
        KafkaState("127.0.0.1:9092", "no topic", FIELDS)
    with pytest.raises(ConfigError, match="the topic itself"):
        KafkaState("127.0.0.1:9092", "out", FIELDS, marks_topic="out")


def test_going_back(kafka, topic):
    """What is published stays: going back is refused, unless the user lets records be published again."""
    state = KafkaState(kafka.servers, topic, FIELDS)
    opened = state.open("out", "topic", "life", 1)
    for txid in (1, 2, 3):
        opened.publish(txid, opened.prepare(txid, opened.write_rows([])))
    assert [state.table().is_kept(txid) for txid in (None, 2, 3)] == [False, False, True]
    opened.roll_back(3)
    with pytest.raises(StateAccessError, match="stay"):
        opened.roll_back(2)
    opened.close()
    again = KafkaState(kafka.servers, topic, FIELDS, publishes_again=True)
    opened = again.open("out", "topic", "life", 2)
    opened.roll_back(1)
    opened.record_turn(1)
    assert (opened.last_txid, again.table().undone_to(1), again.table().turned_to(1)) == (1, 1, 1)
    opened.publish(2, opened.prepare(2, opened.write_rows([])))
    assert opened.last_txid == 2
    opened.close()


def test_a_rename(kafka, topic):
    """The marks get the new names, what was published stays, and whoever had it under the former ones is fenced."""
    state = KafkaState(kafka.servers, topic, FIELDS)
    opened = state.open("out", "topic", "life", 1)
    for txid in (1, 2):
        opened.publish(txid, opened.prepare(txid, opened.write_rows([])))
    before = state.table().describe()
    for _ in range(2):
        state.table().rename("other", "renamed", 2)
    assert state.table().describe() == attrs.evolve(before, topology_id="other", state="renamed", epoch=2)
    with pytest.raises(LostLead):
        opened.publish(3, opened.prepare(3, opened.write_rows([])))
    opened.close()
    with pytest.raises(DivergenceError):
        state.open("out", "topic", "life", 3)
    with pytest.raises(LostLead):
        state.table().rename("late", "renamed", 1)
    opened = state.open("other", "renamed", "life", 3)
    assert opened.last_txid == 2
    opened.publish(3, opened.prepare(3, opened.write_rows([])))
    opened.close()


class Impatient(Pipeline):
    """The same, whose state does not wait for long."""

    @property
    def state(self):
        return KafkaState(self.servers, self.topic, FIELDS, publish_secs=0.2)


def test_a_transaction_that_hangs(pipeline):
    """A start that meets one on its marks says how to end it, and writes nothing; once it is ended, all goes on."""
    from confluent_kafka import Producer

    run_inline(pipeline(), CONFIG, until=2)
    other = Producer({"bootstrap.servers": pipeline.servers, "transactional.id": "hanging"})
    other.init_transactions()
    other.begin_transaction()
    other.produce(pipeline.state.marks_topic, "hanging", "of nobody")
    other.flush()
    with pytest.raises(StopError, match=r"kafka-transactions\.sh .* find-hanging.*'abort' ends it"):
        run_inline(Impatient(pipeline.servers, pipeline.topic)(), CONFIG)
    assert len([value for part in values(pipeline.servers, pipeline.topic) for value in part]) == 4
    other.abort_transaction()
    run_inline(pipeline(), CONFIG)
    pipeline.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("table.open.after", "table.write.before"), id="two"),
        pytest.param(("table.", "group."), marks=pytest.mark.long, id="each"),
    ],
)
def test_a_broker_that_is_killed_and_started_again(tmp_path, steps):
    """A start and a group that meet a broker that is away go on once it is there again, without a restart of the run."""
    from txtopo.failpoints import armed
    from txtopo.servers.kafka import KafkaBroker

    with KafkaBroker(tmp_path / "broker") as broker:
        broker.create_topic("out", 2)
        pipeline, met = Pipeline(broker.servers, "out"), Counter()

        def restart(name):
            met[name] += 1
            if met[name] == 2 and name.startswith(steps):
                broker.kill()
                broker.start()

        with armed(restart):
            run_inline(pipeline(), CONFIG)
        assert met["table.open.after"] == 2
        assert met["table.write.before"] >= 5
        pipeline.check()


@pytest.mark.long
def test_leaders_that_are_elected(tmp_path):
    """A group that meets partitions without a leader, of the topic or of the marks, is published once there is one."""
    from txtopo.failpoints import armed
    from txtopo.servers.kafka import KafkaCluster

    with KafkaCluster(tmp_path / "brokers") as cluster:
        cluster.create_topic("out", 2)
        met, killed = [], []

        def kill(name):
            if name == "table.write.before":
                met.append(name)
                if len(met) in {2, 5}:
                    for broker in killed:
                        broker.start()
                    broker = cluster.leader("out" if len(met) == 2 else "out.txtopo", 0)
                    broker.kill()
                    killed[:] = [broker]

        pipeline = Pipeline(cluster.servers, "out")
        with armed(kill):
            run_inline(pipeline(), CONFIG)
        assert len(met) >= 5
        pipeline.check()
