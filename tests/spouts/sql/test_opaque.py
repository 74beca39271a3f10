"""A table whose rows are updated as a source: each row as it was after its last update, or a refusal that says why."""

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from committers import ApplyChanges
from spouts import OpaqueSqlTransactionalSpout
from state import read_table
from tests.postgres import Client, PostgresServer
from tests.waiting import wait_for
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, InputError
from txtopo.testing import OpaquePartitionedTransactionalSpoutConformance, run_inline
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.context import PlainContext

ATTEMPT = TransactionAttempt(1, 1)
FIELDS = Fields("id: long", "what: string", "updated_at: timestamp")
MADE = "CREATE TABLE rows (id bigint PRIMARY KEY, what text, updated_at timestamptz NOT NULL DEFAULT now())"
PUT = "INSERT INTO rows VALUES ({}, '{}') ON CONFLICT (id) DO UPDATE SET what = EXCLUDED.what, updated_at = now()"


@pytest.fixture
def client(postgres: PostgresServer, schema: str) -> Iterator[Client]:
    with Client(postgres.url, schema) as client:
        client.run(MADE)
        yield client


def spout_of(client: Client, settling_secs: int = 1, **options: Any) -> OpaqueSqlTransactionalSpout:
    options = {"schema": client.schema, "watch": True, "poll_secs": 0, **options}
    spout = OpaqueSqlTransactionalSpout(client.url, "rows", FIELDS, **options)
    spout.table = attrs.evolve(spout.table, settling_secs=settling_secs)
    return spout


class Reader:
    """Takes transactions as a run does, and keeps what it got of each row last."""

    def __init__(self, spout: OpaqueSqlTransactionalSpout) -> None:
        self.spout = spout
        self.metadata: dict[str, Any] = {}
        self.taken = 0
        self.rows: list[tuple[Any, ...]] = []
        self.start()

    def start(self) -> None:
        """Start, or start again."""
        self.coordinator = self.spout.coordinator({}, PlainContext())
        self.emitter = self.spout.emitter({}, PlainContext())
        self.coordinator.resume(self.taken, self.metadata)

    def take(self) -> None:
        """Take what is there."""
        while self.coordinator.is_ready():
            ((name,), self.taken) = self.coordinator.partitions(), self.taken + 1
            collector = RecordingCollector(ATTEMPT, self.spout.output_fields)
            metadata = self.emitter.emit_batch(ATTEMPT, collector, name, self.metadata.get("rows"))
            if metadata is not None:
                self.metadata = {"rows": metadata}
            self.rows += [values[1:3] for values in collector.tuples]
            self.coordinator.resume(self.taken, self.metadata)

    def has(self, count: int) -> bool:
        """Take what is there, and return whether that makes so many rows."""
        self.take()
        return len(self.rows) == count

    def close(self) -> None:
        self.coordinator.close()
        self.emitter.close()


class TestOpaqueSqlTransactionalSpout(OpaquePartitionedTransactionalSpoutConformance):
    is_endless = True

    @pytest.fixture
    def spout(self, client: Client) -> OpaqueSqlTransactionalSpout:
        client.run("INSERT INTO rows SELECT n, 'row', timestamptz '2026-01-01 00:00Z' + n / 5 * interval '1 s' "
                   "FROM generate_series(1, 17) AS n")  # fmt: skip
        return spout_of(client, rows_max=3)


def test_a_change_that_is_committed_late(client: Client) -> None:
    """A change is not left out because a later one was committed before it."""
    reader = Reader(spout_of(client))
    with client.other() as slow:
        slow.begin()
        slow.run("SELECT now()")  # its time, before it has written anything
        client.run(PUT.format(2, "quick"))
        wait_for("the quick change is older than a second", lambda: client.rows(OLD)[0][0])
        assert reader.has(0)
        slow.run(PUT.format(1, "slow"))
        slow.commit()
    wait_for("both are read", lambda: reader.has(2))
    reader.close()
    assert reader.rows == [(1, "slow"), (2, "quick")]


OLD = "SELECT max(updated_at) < clock_timestamp() - interval '1100 ms' FROM rows"


@pytest.mark.parametrize("change", [{"table": "others"}, {"key": ["what"]}])
def test_another_table_at_a_restart(client: Client, change: dict[str, Any]) -> None:
    """Places in it are others: it is refused."""
    client.run("INSERT INTO rows VALUES (1, 'row')")
    reader = Reader(spout_of(client))
    wait_for("it is read", lambda: reader.has(1))
    reader.close()
    other = {"table": "rows", "fields": FIELDS, "schema": client.schema, **change}
    reader.spout = OpaqueSqlTransactionalSpout(client.url, **other)
    with pytest.raises(InputError, match=r"and read .*rows by updated_at, id in transactions before"):
        reader.start()
    reader.close()


def test_many_rows_of_one_time(client: Client) -> None:
    """Rows that one statement has updated fit into several transactions."""
    client.run("INSERT INTO rows SELECT n, 'row' FROM generate_series(1, 10) AS n")
    reader = Reader(spout_of(client, rows_max=3))
    wait_for("all are read", lambda: reader.has(10))
    reader.close()
    assert [row for row, _ in reader.rows] == list(range(1, 11))
    assert reader.taken == 4


@pytest.mark.parametrize("is_folded", [False, True])
def test_rows_that_the_key_does_not_tell_apart(client: Client, is_folded: bool) -> None:
    """Those behind the last of a full transaction would be left out: it is refused by name, as the server compares."""
    client.run("CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    client.run(
        f"ALTER TABLE rows ALTER what TYPE text {'COLLATE folded' if is_folded else ''}, ALTER what SET NOT NULL"
    )
    client.run("INSERT INTO rows SELECT n, CASE WHEN n = 3 THEN 'a' ELSE 'A' END FROM generate_series(1, 5) AS n")
    reader = Reader(spout_of(client, rows_max=4, key=("what",)))
    with pytest.raises(InputError, match=r"rows of the table .* have the same updated_at and what"):
        wait_for("an error", lambda: reader.has(5), 20)
    reader.close()


def test_an_end_while_others_write(client: Client) -> None:
    """A run without ``watch`` ends with what was changed before its start, whatever is changed meanwhile."""
    client.run("INSERT INTO rows SELECT n, 'row' FROM generate_series(1, 4) AS n")
    reader = Reader(spout_of(client, settling_secs=0, watch=False, rows_max=3))
    for number in range(5, 20):
        client.run(PUT.format(number, "later"))
        assert reader.coordinator.is_exhausted() == (number > 6)
        if number <= 6:
            assert reader.coordinator.is_ready()
            reader.coordinator.partitions()
            collector = RecordingCollector(ATTEMPT, reader.spout.output_fields)
            metadata = reader.emitter.emit_batch(ATTEMPT, collector, "rows", reader.metadata.get("rows"))
            reader.metadata = {"rows": metadata}
            reader.coordinator.resume(number, reader.metadata)
    reader.close()


def test_a_transaction_that_fails_after_the_end_was_seen(client: Client) -> None:
    """A run without ``watch`` goes on: the rows of what was rolled back are to be taken again."""
    client.run("INSERT INTO rows SELECT n, 'row' FROM generate_series(1, 4) AS n")
    reader = Reader(spout_of(client, settling_secs=0, watch=False))
    reader.take()
    assert reader.coordinator.is_exhausted()
    reader.coordinator.resume(0, {})
    assert not reader.coordinator.is_exhausted()
    assert reader.coordinator.is_ready()
    reader.close()


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "commit", "roll back", "take", "restart"]), st.integers(0, 2)), max_size=30
)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(steps=STEPS)
def test_any_order_of_writers(postgres: PostgresServer, steps: list[tuple[str, int]]) -> None:
    """However three writers change rows of theirs, commit and roll back: what came last of each row is what it is."""
    with Client(postgres.url, "any_change") as client:
        client.run("DROP SCHEMA IF EXISTS any_change CASCADE")
        client.run("CREATE SCHEMA any_change")
        client.run(MADE)
        reader, writers = Reader(spout_of(client, settling_secs=0, rows_max=2)), [client.other() for _ in range(3)]
        for at, (step, number) in enumerate([*steps, *(("commit", each) for each in range(3)), ("take", 0)]):
            writer = writers[number]
            if step == "put":
                writer.begin()
                writer.run(PUT.format(number * 2 + at % 2, f"change {at}"))
            elif step == "commit":
                writer.commit()
            elif step == "roll back":
                writer.roll_back()
            elif step == "take":
                reader.take()
            else:
                reader.close()
                reader.start()
        wait_for("all is read", lambda: dict(present(reader)) == dict(client.rows("SELECT id, what FROM rows")))
        reader.close()
        for writer in writers:
            writer.close()


def present(reader: Reader) -> list[tuple[Any, ...]]:
    reader.take()
    return reader.rows


def test_the_same_table(client: Client, tmp_path: Any) -> None:
    """ApplyChanges makes the table of its rows, over two runs; the time may be a trigger's."""
    client.run(
        "CREATE FUNCTION set_time() RETURNS trigger AS 'BEGIN NEW.updated_at = now(); RETURN NEW; END' LANGUAGE plpgsql"
    )
    client.run("CREATE TRIGGER changed BEFORE INSERT OR UPDATE ON rows FOR EACH ROW EXECUTE FUNCTION set_time()")
    builder = TransactionalTopologyBuilder("copying", "rows", spout_of(client, watch=False, rows_max=2))
    apply = ApplyChanges(
        "copy", "gone", key=Fields("id: long"), values=Fields("what: string"), sequence=Fields("updated_at: timestamp")
    )
    builder.set_bolt("apply", apply).fields_grouping("rows", Fields("id"))
    builder.set_state("copy", apply.state(tmp_path / "copy"))
    builder.set_state("gone", apply.tombstones(tmp_path / "gone"))
    for run in range(2):
        for number in range(3):
            client.run(PUT.replace(", updated_at = now()", "").format(number + run, f"run {run}"))
        run_inline(builder.build())
    copy = {row["id"]: row["what"] for row in read_table(tmp_path / "copy").to_pylist()}
    assert copy == {0: "run 0", 1: "run 1", 2: "run 1", 3: "run 1"}


def test_a_user_who_may_not_see_when_transactions_began(client: Client) -> None:
    """A server that does not tell of all transactions could hide one that is late."""
    client.run("DROP ROLE IF EXISTS reader")
    client.run("CREATE ROLE reader LOGIN")
    client.run(f'GRANT USAGE ON SCHEMA "{client.schema}" TO reader')
    client.run("GRANT SELECT ON rows TO reader")
    spout = OpaqueSqlTransactionalSpout(client.url.replace("tests@", "reader@"), "rows", FIELDS, schema=client.schema)
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(0, {})
    with pytest.raises(InputError, match="GRANT pg_read_all_stats"):
        coordinator.is_ready()
    client.run("GRANT pg_read_all_stats TO reader")
    assert not coordinator.is_ready()
    coordinator.close()
    client.run("DROP OWNED BY reader; DROP ROLE reader")


def test_times_without_a_zone(client: Client) -> None:
    """A time without a zone is none of the server's."""
    client.run("ALTER TABLE rows ALTER updated_at TYPE timestamp")
    fields = Fields("id: long", "updated_at: timestamp_ntz")
    spout = OpaqueSqlTransactionalSpout(client.url, "rows", fields, schema=client.schema)
    coordinator = spout.coordinator({}, PlainContext())
    with pytest.raises(InputError, match="in the order of a timestamp with time zone"):
        coordinator.resume(0, {})
    coordinator.close()


def test_wrong_arguments(tmp_path: Any) -> None:
    """A wrong argument, or another database, is refused."""
    url = "postgresql://a@b/c"
    with pytest.raises(ConfigError, match="'changed', which is none of the fields"):
        OpaqueSqlTransactionalSpout(url, "rows", FIELDS, updated_at="changed")
    with pytest.raises(ConfigError, match="key has no column"):
        OpaqueSqlTransactionalSpout(url, "rows", FIELDS, key=())
    with pytest.raises(ConfigError, match="'x', which is a float or binary"):
        OpaqueSqlTransactionalSpout(url, "rows", Fields("x: double", "updated_at: timestamp"), key=["x"])
    spout = OpaqueSqlTransactionalSpout(f"sqlite:///{tmp_path / 'a.db'}", "rows", FIELDS)
    with pytest.raises(ConfigError, match="is SQLite, which does not tell"):
        spout.coordinator({}, PlainContext()).resume(0, {})
