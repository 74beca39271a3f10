"""What differs from one database to the next: names, encodings, time zones."""

import datetime as dt

import pytest
import sqlalchemy as sa

from state import SqlRows, SqlState
from state.sql import declared
from tests.postgres import SHOWN, with_setting
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.api.writes import RowsMode, TransactionRows
from txtopo.errors import ConfigError, DivergenceError, StateFailure

WORD, N = Fields("word: string"), Fields("n: long")


@pytest.fixture
def server(postgres):
    """What runs statements, each alone."""
    engine = sa.create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection.exec_driver_sql
    engine.dispose()


def written(state, values):
    """Write values as transaction 1, and return what is read of each key."""
    opened = state.open("t", "s", "life", 1)
    opened.write(1, {key: TransactionalValue(1, value) for key, value in values.items()})
    found = [value.value for value in opened.multi_get(list(values))]
    opened.close()
    return found


def test_names_are_quoted(place):
    """Reserved words, quotes, spaces and capital letters are names as others are."""
    url, schema = place
    fields = Fields("from: string", 'Order\'s "by": long')
    state = SqlState(url, 'Select "all" from', Fields("select: string"), fields, schema=schema)
    assert written(state, {"a\"'": ("it's", 1)}) == [("it's", 1)]
    assert state.snapshot().column_names == ["select", "from", 'Order\'s "by"', "txid"]
    assert state.table().describe().misfit is None


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_times_do_not_depend_on_the_time_zone_of_the_server(postgres, schema, server, zone):
    """The first and the last moments that a timestamp can be are read as they were written."""
    first, last = dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, tzinfo=dt.UTC)
    state = SqlState(postgres.url, "times", Fields("at: timestamp"), Fields("of: timestamp"), schema=schema)
    server(f"ALTER ROLE tests SET timezone = '{zone}'")
    try:
        assert written(state, {first: last, last: first}) == [last, first]
        assert sorted(state.snapshot()["at"].to_pylist()) == [first, last]
    finally:
        server("ALTER ROLE tests RESET timezone")


def test_texts_do_not_depend_on_the_client_s_encoding(postgres, schema, monkeypatch):
    """PGCLIENTENCODING is for other programs: what a text can be is kept."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert written(SqlState(postgres.url, "texts", WORD, Fields("text: string"), schema=schema), {"žlutý": "キー"}) == [
        "キー"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_lacks_characters(postgres, server, encoding):
    """It is refused before anything is written: after a decision nobody could write them."""
    name = f"in_{encoding.lower()}"
    server(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(ConfigError, match=f"keeps texts in {encoding}.*use one with the encoding UTF8"):
        SqlState(postgres.url.replace("/postgres", f"/{name}"), "texts", WORD, N).open("t", "s", "life", 1)


def test_tables_of_sqlite_whose_names_differ_in_capital_letters_only(tmp_path):
    """SQLite takes them for one, so the second is refused by name."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    SqlState(url, "counts", WORD, N).open("t", "s", "life", 1).close()
    with pytest.raises(DivergenceError, match="differs in capital letters only"):
        SqlState(url, "Counts", WORD, N).open("t", "other", "life", 1)


@pytest.mark.parametrize(
    "columns",
    [
        "word TEXT COLLATE NOCASE NOT NULL PRIMARY KEY, n BIGINT, txid BIGINT",
        "word TEXT NOT NULL, n BIGINT, txid BIGINT, PRIMARY KEY (word COLLATE RTRIM)",
    ],
)
def test_a_table_of_sqlite_that_takes_different_keys_for_one(tmp_path, columns):
    """One that was made before is refused: "a" and "A" would be one row, and a total would be lost."""
    file = f"sqlite:///{tmp_path / 'rows.db'}"
    with sa.create_engine(file).begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE words ({columns})")
    with pytest.raises(DivergenceError, match=r"its primary key is compared by (NOCASE|RTRIM), .* different texts"):
        SqlState(file, "words", WORD, N).open("t", "s", "life", 1)


def test_a_schema_that_is_not_there(postgres):
    """The server's words say so, once."""
    with pytest.raises(StateFailure, match=r'schema "nowhere" does not exist') as found:
        SqlState(postgres.url, "t", WORD, N, schema="nowhere").open("t", "s", "life", 1)
    assert str(found.value).count("does not exist") == 1


def test_columns_that_are_renamed_and_a_table_that_is_dropped(postgres, schema, server):
    """A write fails and may be tried again; the next start says how the table differs, and goes on once it is as it was."""
    state = SqlState(postgres.url, "changed", WORD, N, schema=schema)
    opened = state.open("t", "s", "life", 1)
    opened.write(1, {"a": TransactionalValue(1, 1)})
    server(f'ALTER TABLE "{schema}".changed RENAME COLUMN n TO m')
    with pytest.raises(StateFailure, match='column "n"'):
        opened.write(2, {"a": TransactionalValue(2, 2)})
    with pytest.raises(DivergenceError, match="n is missing, not BIGINT, m BIGINT, which is not declared"):
        state.open("t", "s", "life", 2)
    server(f'ALTER TABLE "{schema}".changed RENAME COLUMN m TO n')
    opened.write(2, {"a": TransactionalValue(2, 2)})
    server(f'DROP TABLE "{schema}".changed')
    with pytest.raises(StateFailure, match="does not exist"):
        opened.write(3, {"a": TransactionalValue(3, 3)})
    opened.close()
    with pytest.raises(DivergenceError, match="is gone; it was at 2: restore it"):
        state.open("t", "s", "life", 2)


def test_a_table_that_was_dropped_and_is_set_aside(place):
    """Its mark goes with it: to start anew after that is not refused for the sake of a table that is gone."""
    url, schema = place
    state = SqlState(url, "gone", WORD, N, schema=schema)
    assert written(state, {"a": 1}) == [1]
    with state.table().transaction("can't be dropped") as (rows, _):
        rows.run(f"DROP TABLE {rows.table}")
    state.table().set_aside(1)
    assert state.table().asides() == [1]
    opened = state.open("t", "s", "another life", 2)
    assert opened.last_txid is None
    opened.close()


@pytest.mark.parametrize("setting", SHOWN)
def test_values_do_not_depend_on_how_the_server_shows_them(postgres, schema, setting):
    """Each digit, byte and null is as it was written, whatever the server's defaults are."""
    fields = Fields("x: double", "at: timestamp", "day: date", "raw: binary", "text: string")
    state = SqlState(with_setting(postgres.url, setting), "shown", WORD, fields, schema=schema)
    values = {
        "a": (0.1 + 0.2, dt.datetime(2026, 2, 3, 4, tzinfo=dt.UTC), dt.date(2026, 2, 3), b"\x00\\x", "NULL"),
        "b": (None, None, None, b"", None),
    }
    assert written(state, values) == list(values.values())
    state.open("t", "s", "life", 2).close()
    rows = SqlRows(with_setting(postgres.url, setting), "shown rows", fields, schema=schema).open("t", "r", "life", 1)
    fitted = rows.rows_to_write(list(values.values()), RowsMode.APPEND)
    rows.write(1, rows.write_rows([TransactionRows(1, fitted, RowsMode.APPEND)]))
    assert [tuple(row.values())[:-1] for row in rows.snapshot().to_pylist()] == list(values.values())
    rows.close()


@pytest.mark.parametrize("txid", [None, 1])
def test_a_snapshot_while_the_next_transaction_is_written(postgres, schema, monkeypatch, txid):
    """The rows are those of the transaction that the mark told of, not of the one that came between the two reads."""
    state = SqlState(postgres.url, "read", WORD, N, schema=schema)
    opened = state.open("t", "s", "life", 1)
    opened.write(1, {"a": TransactionalValue(1, 1)})
    read_mark, later = declared.read_mark, [2]

    def read_and_write(marks, name, **options):
        mark = read_mark(marks, name, **options)
        if later:
            opened.write(later.pop(), {"a": TransactionalValue(2, 2)})
        return mark

    monkeypatch.setattr(declared, "read_mark", read_and_write)
    assert state.snapshot(txid).to_pylist() == [{"word": "a", "n": 1, "txid": 1}]
    opened.close()
