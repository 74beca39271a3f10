"""States in databases, written by topologies: each transaction once, whatever fails in the coordinator or the database."""

import contextlib
import itertools
from collections.abc import Iterator

import attrs
import pytest
import sqlalchemy as sa

from committers import AppendCommitter, ReduceCommitter
from spouts import MemoryTransactionalSpout
from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from state import DeltaState, SqlRows, SqlState, read_table
from tests.crashes import Crash, run_with_crash
from tests.variants import variants
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.api.values import StateKind
from txtopo.errors import DivergenceError, FieldsError, StateFailure, StopError
from txtopo.failpoints import armed
from txtopo.testing.inline import run_inline

ROWS = [[f"w{number % 3}", number] for number in range(12)]
FIELDS = Fields("word: string", "n: long")
WORD, N = Fields("word: string"), Fields("n: long")
TOTALS = {f"w{at}": sum(n for word, n in ROWS if word == f"w{at}") for at in range(3)}
CONFIG_THERE = Config(max_spout_pending=6, group_transactions_max=2, state_dir="coordinator")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@attrs.frozen
class Pipeline:
    """A topology with a keyed state and a rows table in a database, and a Delta table beside them."""

    url: str
    schema: str | None
    kind: StateKind = StateKind.TRANSACTIONAL
    rows: list = ROWS

    def __call__(self):
        opaque = self.kind is StateKind.OPAQUE
        spout = (OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout)(self.rows, FIELDS, 2)
        builder = TransactionalTopologyBuilder("shop", "rows", spout)
        self.set_states(builder)
        for name in ("totals", "beside"):
            reduce = ReduceCommitter(name, "word", "n")
            builder.set_committer_bolt(f"into-{name}", reduce).fields_grouping("rows", WORD)
        builder.set_committer_bolt("into-log", AppendCommitter("log"), 2).shuffle_grouping("rows")
        return builder.build()

    def set_states(self, builder):
        builder.set_state("totals", self.totals)
        builder.set_state("log", self.log)
        builder.set_state("beside", DeltaState("beside", WORD, N, kind=self.kind))

    @property
    def totals(self):
        return SqlState(self.url, "totals", WORD, N, self.kind, schema=self.schema)

    @property
    def log(self):
        return SqlRows(self.url, "log", FIELDS, schema=self.schema)

    def check(self, totals=TOTALS, rows=ROWS):
        for table in (self.totals.snapshot(), read_table("beside")):
            assert dict(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True)) == totals
        log = self.log.snapshot()
        assert sorted(log.select(["word", "n"]).to_pylist(), key=lambda row: row["n"]) == [
            {"word": word, "n": n} for word, n in sorted(rows, key=lambda row: row[1])
        ]
        assert log["txid"].to_pylist() == sorted(log["txid"].to_pylist())


@pytest.fixture
def pipeline(place):
    return Pipeline(*place)


KINDS = pytest.mark.parametrize("kind", [StateKind.TRANSACTIONAL, StateKind.OPAQUE], ids=lambda kind: kind.value)


def test_a_run(pipeline):
    """Each transaction is in every table once, and a further run finds nothing to do."""
    for _ in range(2):
        run_inline(pipeline(), CONFIG_THERE)
        pipeline.check()


@pytest.mark.covering(1)
@KINDS
@pytest.mark.slow
def test_a_crash_at_every_step(place, kind):
    """A run that dies anywhere, and whoever comes next dies there, too, ends with each transaction once."""
    pipeline = Pipeline(*place, kind)
    for at in itertools.count(1, 3):
        with contextlib.suppress(StopError):
            if run_with_crash(pipeline, Crash(at=at), CONFIG_THERE):
                break
    assert at > 10
    pipeline.check()


@pytest.mark.slow
def test_a_crash_before_and_after_each_write(on_postgres):
    """Between any two of the tables, and on either side of the decision, nothing is lost or doubled."""
    names = ("table.write", "group.decide", "recovery.write", "recovery.commit", "table.prepare", "table.open")
    # Those that a run meets at once come first, while there are transactions left: a run that dies commits one at most.
    points = [(f"{name}.{side}", times) for times in (1, 4) for name in names for side in ("before", "after")]
    pipeline, config = on_postgres, Config({**CONFIG_THERE.given, "topology.group.transactions.max": 1})
    died = sum(not run_with_crash(pipeline, Crash(at=times, only=name), config) for name, times in points)
    run_inline(pipeline(), config)
    assert died >= 6
    pipeline.check()


@contextlib.contextmanager
def before_statements(part: str, act, times: int = 1) -> Iterator[list[str]]:
    """Do something before the first statements that have some text in them; yield those."""
    met: list[str] = []

    def look(_connection, _cursor, statement, *_rest):
        if part in statement and len(met) < times:
            met.append(statement)
            act()

    sa.event.listen(sa.engine.Engine, "before_cursor_execute", look)
    try:
        yield met
    finally:
        sa.event.remove(sa.engine.Engine, "before_cursor_execute", look)


@pytest.fixture
def server(postgres, schema):
    """What runs statements as another client of PostgreSQL."""
    engine = sa.create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:"))

    def run(statement):
        with engine.begin() as connection:
            connection.exec_driver_sql(statement.replace("SCHEMA", f'"{schema}"'))

    yield run
    engine.dispose()


@pytest.fixture
def on_postgres(postgres, schema):
    return Pipeline(postgres.url, schema)


@pytest.mark.parametrize("times", variants(1, slow=[3]))
def test_a_lost_answer_of_commit(on_postgres, monkeypatch, times):
    """If the database commits and its answer is lost, the next try reads the mark and writes nothing twice."""
    import psycopg

    real, lost = psycopg.Connection.commit, []

    def commit(self):
        real(self)
        if len(lost) < times and self.info.transaction_status == 0 and armed_now:
            lost.append(1)
            self.close()
            raise psycopg.OperationalError("the connection was lost")

    armed_now: list[int] = []
    run_inline(on_postgres(), CONFIG_THERE, until=2)
    monkeypatch.setattr(psycopg.Connection, "commit", commit)
    armed_now.append(1)
    for _ in range(times):
        with contextlib.suppress(StateFailure):  # the opening of a state is not tried again
            run_inline(on_postgres(), CONFIG_THERE)
    run_inline(on_postgres(), CONFIG_THERE)
    assert len(lost) == times
    on_postgres.check()


@pytest.mark.slow
def test_connections_that_are_cut(on_postgres, server):
    """A server that ends all connections, in the middle of a transaction too, is only an error to be tried again."""
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'txtopo'"
    for part in ("INSERT INTO", "FOR UPDATE", "unnest"):
        run_inline(on_postgres(), CONFIG_THERE, until=1)
        with before_statements(part, lambda: server(end)) as met, contextlib.suppress(Exception):
            run_inline(on_postgres(), CONFIG_THERE)
        assert met
    run_inline(on_postgres(), CONFIG_THERE)
    on_postgres.check()


def test_a_serialization_failure(on_postgres, server):
    """Where transactions are serializable, one that another has come before is done again."""
    server("ALTER ROLE tests SET default_transaction_isolation = 'serializable'")
    writes: list[str] = []
    touched: list[str] = []

    def come_before():
        if writes and len(touched) < 3:
            touched.append("")
            server("UPDATE SCHEMA.txtopo_states SET kind = kind")

    try:
        note = lambda name: writes.append(name) if name == "table.write.before" else None
        with armed(note), before_statements("FOR UPDATE", come_before, 1000):
            run_inline(on_postgres(), CONFIG_THERE)
        assert len(touched) == 3
        on_postgres.check()
    finally:
        server("ALTER ROLE tests RESET default_transaction_isolation")


@pytest.mark.slow
def test_a_deadlock(on_postgres, postgres, schema):
    """Whoever loses a deadlock tries again; here that is txtopo, or the other one."""
    run_inline(on_postgres(), CONFIG_THERE, until=2)
    other = sa.create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:"))
    table = f'"{schema}".totals'
    with other.connect() as connection:
        connection.begin()
        connection.exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
        connection.exec_driver_sql(f"SELECT * FROM {table} WHERE word = 'w1' FOR UPDATE")

        def close_the_circle():
            with contextlib.suppress(sa.exc.OperationalError):
                connection.exec_driver_sql(f'SELECT * FROM "{schema}".txtopo_states FOR UPDATE')
            connection.rollback()

        with before_statements('INTO "' + schema + '"."totals"', close_the_circle) as met:
            run_inline(on_postgres(), CONFIG_THERE)
    other.dispose()
    assert met
    on_postgres.check()


@pytest.mark.slow
def test_a_server_that_has_lost_what_it_acknowledged(on_postgres, server):
    """A replica that takes over without the last transaction is found at the next write, before a gap is left."""
    run_inline(on_postgres(), CONFIG_THERE, until=2)
    met: list[str] = []

    def lose(name):
        if name == "table.write.before" and len(met) < 4:
            met.append(name)
            if len(met) == 4:
                server("UPDATE SCHEMA.txtopo_states SET txid = 2 WHERE name = 'totals'")

    with armed(lose), pytest.raises(DivergenceError, match="had acknowledged"):
        run_inline(on_postgres(), CONFIG_THERE)
    with pytest.raises(DivergenceError, match="behind the coordinator state"):
        run_inline(on_postgres(), CONFIG_THERE)


@pytest.mark.slow
def test_a_table_of_somebody_else_s(on_postgres, server):
    """A table that has rows already, or other columns, is refused before anything is written; an empty one is taken."""
    server("CREATE TABLE SCHEMA.totals (word TEXT PRIMARY KEY, n BIGINT, txid BIGINT)")
    server("INSERT INTO SCHEMA.totals VALUES ('a', 1, 1)")
    with pytest.raises(DivergenceError, match="has rows that no state of txtopo has written"):
        run_inline(on_postgres(), CONFIG_THERE)
    server("DELETE FROM SCHEMA.totals")
    server("CREATE TABLE SCHEMA.log (word TEXT, n INTEGER, txid BIGINT, more TEXT)")
    with pytest.raises(DivergenceError, match="n INTEGER, not BIGINT, more TEXT, which is not declared"):
        run_inline(on_postgres(), CONFIG_THERE)
    server("DROP TABLE SCHEMA.log")
    run_inline(on_postgres(), CONFIG_THERE)
    on_postgres.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "where"),
    [("zero\x00", "a text with a zero character"), ("long" * 600, "more than 2,000 bytes")],
    ids=["zero", "long"],
)
def test_what_the_database_would_refuse_is_refused_before(on_postgres, value, where):
    """Such a record is an error of its transaction, for after the decision nobody could write it."""
    with pytest.raises(FieldsError, match=where):
        run_inline(attrs.evolve(on_postgres, rows=[["fine", 1], ["fine", 2], [value, 3]])(), CONFIG_THERE)
    run_inline(attrs.evolve(on_postgres, rows=[["fine", 1], ["fine", 2], ["good", 3]])(), CONFIG_THERE)
    on_postgres.check({"fine": 3, "good": 3}, [["fine", 1], ["fine", 2], ["good", 3]])


def test_nan_in_sqlite(tmp_path):
    """SQLite would make null of it, so it is refused there."""
    state = SqlState(f"sqlite:///{tmp_path / 'x.db'}", "x", WORD, Fields("x: double"))
    opened = state.open("t", "x", "life", 1)
    from txtopo.api.values import TransactionalValue

    with pytest.raises(FieldsError, match="NaN"):
        opened.prepare(1, {"a": TransactionalValue(1, float("nan"))})
    opened.close()


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again():
    """The connections of the pool are made anew, and the group that it met is written once."""
    from tests.postgres import PostgresServer

    with PostgresServer() as own:
        pipeline = Pipeline(own.url, None)
        met: list[str] = []

        def restart(name):
            if name == "table.write.before":
                met.append(name)
                if len(met) in {2, 5, 8}:
                    own.kill()
                    own.start()

        with armed(restart):
            run_inline(pipeline(), CONFIG_THERE)
        assert len(met) >= 8
        pipeline.check()


def test_a_server_that_is_away(on_postgres):
    """It is said in one sentence, without the password, and nothing is lost."""
    away = attrs.evolve(on_postgres, url="postgresql://tests:secret@127.0.0.1:1/postgres")
    with pytest.raises(Exception, match=r"127\.0\.0\.1") as error:
        run_inline(away(), CONFIG_THERE)
    assert "secret" not in str(error.value)
    run_inline(on_postgres(), CONFIG_THERE)
    on_postgres.check()
