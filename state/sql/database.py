"""A database that states are in: its connections, its transactions, and the statements that differ between databases.

Each write is one transaction of the database. What a database answers is believed; an answer that does not come says
nothing, and the next transaction reads what has become of it.
"""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from state.delta.columns import column_values
from state.sql.columns import ColumnType, column_type, python_columns
from txtopo.api.dataset import Dataset
from txtopo.errors import ConfigError, StateFailure
from txtopo.files.places import local_path
from txtopo.text.client_properties import ClientProperties
from txtopo.text.extras import how_to_install
from txtopo.text.printable import escaped
from txtopo.text.secrecy import is_reference

WAIT_SECS = 30
"""How long a lock of somebody else's is waited for, and a server that does not answer."""

IDLE_SECS = 15
"""For how long a coordinator that is stopped in the middle of a transaction keeps its locks. It is less than what its
successor waits for them."""

_PORT = 5432
"""PostgreSQL's own."""

_KEYS_AT_ONCE = 1_000
"""Keys in one statement of SQLite, which takes 32,766 parameters."""

_ROWS_AT_ONCE = 50_000
"""Rows in one statement: about 10 MB of a few columns."""

_EXTRA = "sql"


@attrs.frozen
class Columns:
    """The columns of a table, in order, of which the first are its key."""

    schema: pa.Schema
    keys: int
    shown: tuple[str, ...] = ()
    """Those that readers are shown, if not all: without the previous values of opaque ones."""

    @functools.cached_property
    def types(self) -> dict[str, ColumnType]:
        """The type of each column."""
        return {field.name: column_type(field.name, field.type) for field in self.schema}

    @property
    def of_readers(self) -> Columns:
        """The columns that readers are shown."""
        return Columns(pa.schema([self.schema.field(name) for name in self.shown or self.schema.names]), self.keys)


class Transaction(ABC):
    """One transaction of the database on one table; ``connection`` is SQLAlchemy's."""

    def __init__(self, connection: Any, table: str) -> None:
        self.connection = connection
        self.table = table
        """Its quoted name."""

    def run(self, statement: str, parameters: Any = ()) -> Any:
        """Run a statement in the driver's form."""
        return self.connection.exec_driver_sql(statement, parameters)

    def quoted(self, name: str) -> str:
        """Return a name, quoted."""
        quote: str = self.connection.dialect.identifier_preparer.quote_identifier(name)
        return quote

    def names(self, columns: Columns) -> list[str]:
        """Return the quoted names of columns."""
        return [self.quoted(name) for name in columns.schema.names]

    def create(self, columns: Columns) -> None:
        """Create the table."""
        names = self.names(columns)
        kinds = [self.type_of(columns.types[name]) for name in columns.schema.names]
        is_null = [" NOT NULL" if at < columns.keys else "" for at in range(len(names))]
        parts = [f"{name} {kind}{null}" for name, kind, null in zip(names, kinds, is_null, strict=True)]
        if columns.keys:
            parts.append(f"PRIMARY KEY ({', '.join(names[: columns.keys])})")
        self.run(f"CREATE TABLE {self.table} ({', '.join(parts)})")

    def is_empty(self) -> bool:
        """Return whether the table has no row."""
        return self.run(f"SELECT 1 FROM {self.table} LIMIT 1").first() is None  # noqa: S608 - quoted

    def all(self, columns: Columns, where: str = "", parameters: Sequence[Any] = ()) -> pa.Table:
        """Return the rows of the table for which a condition holds."""
        names = ", ".join(self.names(columns))
        result = self.run(f"SELECT {names} FROM {self.table} {where}", tuple(parameters))  # noqa: S608 - quoted
        return self.arrow(result.fetchall(), columns)

    @abstractmethod
    def type_of(self, column: ColumnType) -> str:
        """Return the name of a type."""

    @abstractmethod
    def arrow(self, rows: Sequence[Any], columns: Columns) -> pa.Table:
        """Return rows of the database in Arrow."""

    @abstractmethod
    def of_keys(self, keys: pa.Table, columns: Columns) -> pa.Table:
        """Return the rows of some keys."""

    @abstractmethod
    def upsert(self, rows: pa.Table, columns: Columns) -> None:
        """Insert the row of each key, or replace it."""

    @abstractmethod
    def append(self, rows: pa.Table, columns: Columns) -> None:
        """Insert rows."""

    @abstractmethod
    def delete(self, keys: pa.Table, columns: Columns) -> None:
        """Delete the row of each key."""


class _PostgreSql(Transaction):
    """Rows go and come as one array for each column: 5x the rows a CPU-second of one statement run for each."""

    def type_of(self, column: ColumnType) -> str:
        return column.postgresql

    def arrow(self, rows: Sequence[Any], columns: Columns) -> pa.Table:
        return _arrow(list(zip(*rows, strict=True)), columns.schema)

    def of_keys(self, keys: pa.Table, columns: Columns) -> pa.Table:
        names = ", ".join(f"t.{name}" for name in self.names(columns))
        key = ", ".join(self.names(columns)[: columns.keys])
        statement = f"SELECT {names} FROM {self._unnested(columns, columns.keys)} AS k({key}) JOIN {self.table} AS t USING ({key})"  # noqa: S608, E501 - quoted
        results = [self.run(statement, tuple(python_columns(part))).fetchall() for part in _portions(keys)]
        return self.arrow([row for rows in results for row in rows], columns)

    def upsert(self, rows: pa.Table, columns: Columns) -> None:
        names = self.names(columns)
        key, value = names[: columns.keys], names[columns.keys :]
        assignments = ", ".join(f"{name} = EXCLUDED.{name}" for name in value)
        statement = (
            f"INSERT INTO {self.table} ({', '.join(names)}) SELECT * FROM {self._unnested(columns, len(names))} "  # noqa: S608 - quoted
            f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {assignments}"
        )
        for part in _portions(rows):
            self.run(statement, tuple(python_columns(part)))

    def append(self, rows: pa.Table, columns: Columns) -> None:
        # COPY, which takes 6x less time than one statement with arrays.
        names = ", ".join(self.names(columns))
        with (
            self.connection.connection.cursor() as cursor,
            cursor.copy(f"COPY {self.table} ({names}) FROM STDIN") as copy,
        ):
            for part in _portions(rows):
                for row in zip(*python_columns(part), strict=True):
                    copy.write_row(row)

    def delete(self, keys: pa.Table, columns: Columns) -> None:
        key = self.names(columns)[: columns.keys]
        condition = " AND ".join(f"t.{name} = k.{name}" for name in key)
        statement = (
            f"DELETE FROM {self.table} AS t USING {self._unnested(columns, columns.keys)} AS k({', '.join(key)}) "  # noqa: S608 - quoted
            f"WHERE {condition}"
        )
        for part in _portions(keys):
            self.run(statement, tuple(python_columns(part)))

    def _unnested(self, columns: Columns, width: int) -> str:
        """Return the rows that arrays of the first columns make, which are the parameters."""
        types = [columns.types[name].postgresql for name in columns.schema.names[:width]]
        return f"unnest({', '.join(f'CAST(%s AS {kind}[])' for kind in types)})"


class _Sqlite(Transaction):
    """A statement is run for each row: SQLite is called, not asked over a network."""

    def type_of(self, column: ColumnType) -> str:
        return column.sqlite

    def arrow(self, rows: Sequence[Any], columns: Columns) -> pa.Table:
        arrays = [
            values if make is None else [None if value is None else make(value) for value in values]
            for values, make in zip(
                zip(*rows, strict=True), (each.of_sqlite for each in columns.types.values()), strict=False
            )
        ]
        return _arrow(arrays, columns.schema)

    def of_keys(self, keys: pa.Table, columns: Columns) -> pa.Table:
        names = self.names(columns)
        key = ", ".join(names[: columns.keys])
        rows: list[Any] = []
        for part in _portions(keys, _KEYS_AT_ONCE // columns.keys):
            marks = ", ".join([f"({', '.join('?' * columns.keys)})"] * part.num_rows)
            statement = f"SELECT {', '.join(names)} FROM {self.table} WHERE ({key}) IN (VALUES {marks})"  # noqa: S608 - quoted
            parameters = tuple(value for row in self._rows(part, columns) for value in row)
            rows += self.run(statement, parameters).fetchall()
        return self.arrow(rows, columns)

    def upsert(self, rows: pa.Table, columns: Columns) -> None:
        names = self.names(columns)
        assignments = ", ".join(f"{name} = excluded.{name}" for name in names[columns.keys :])
        self._insert(rows, columns, f" ON CONFLICT ({', '.join(names[: columns.keys])}) DO UPDATE SET {assignments}")

    def append(self, rows: pa.Table, columns: Columns) -> None:
        self._insert(rows, columns)

    def delete(self, keys: pa.Table, columns: Columns) -> None:
        condition = " AND ".join(f"{name} = ?" for name in self.names(columns)[: columns.keys])
        self._execute_many(f"DELETE FROM {self.table} WHERE {condition}", keys, columns)  # noqa: S608 - quoted

    def _insert(self, rows: pa.Table, columns: Columns, conflict: str = "") -> None:
        names = self.names(columns)
        marks = ", ".join("?" * len(names))
        self._execute_many(f"INSERT INTO {self.table} ({', '.join(names)}) VALUES ({marks}){conflict}", rows, columns)  # noqa: S608 - quoted

    def _execute_many(self, statement: str, rows: pa.Table, columns: Columns) -> None:
        for part in _portions(rows):
            self.run(statement, self._rows(part, columns))

    def _rows(self, rows: pa.Table, columns: Columns) -> list[tuple[Any, ...]]:
        converted = []
        for name in rows.column_names:
            values, make = column_values(rows[name]), columns.types[name].to_sqlite
            converted.append(values if make is None else [None if value is None else make(value) for value in values])
        return list(zip(*converted, strict=True))


@attrs.define(eq=False)
class Database:
    """A database, by its URL; ``engine`` is SQLAlchemy's."""

    engine: Any
    shown: str
    """The URL without its password."""
    password: str

    @property
    def is_postgresql(self) -> bool:
        """Whether it is PostgreSQL; else it is SQLite."""
        return bool(self.engine.dialect.name == "postgresql")

    @property
    def is_there(self) -> bool:
        """Whether there is anything to look at: connecting to a file of SQLite would make it."""
        file = None if self.is_postgresql else self.engine.url.database
        return file is None or Path(file).exists()

    def address_of(self, table: str, schema: str | None) -> str:
        """Return the URL without its password, and the name of a table."""
        return f"{self.shown}#{table if schema is None else f'{schema}.{table}'}"

    def quoted(self, name: str) -> str:
        """Return a name, quoted."""
        quoted: str = self.engine.dialect.identifier_preparer.quote_identifier(name)
        return quoted

    @contextlib.contextmanager
    def transaction(self, problem: str, table: str, schema: str | None, *, is_write: bool) -> Iterator[Transaction]:
        """Begin a transaction, and commit it at the end.

        Args:
            problem: what is done, for an error.
            table: the name of the table that it is about.
            schema: the schema that the table is in; None for the database's default.
            is_write: whether anything may be written.

        Raises:
            StateFailure: the database failed. If it did in the commit, nobody knows whether it has committed.
        """
        import sqlalchemy as sa  # noqa: PLC0415 - an extra of the installation

        name = self.quoted(table) if schema is None else f"{self.quoted(schema)}.{self.quoted(table)}"
        options: dict[str, Any] = {"txtopo_writes": is_write}
        if self.is_postgresql and not is_write:
            options["isolation_level"] = "REPEATABLE READ"  # rows as of the mark that was read before them
        try:
            with self.engine.connect().execution_options(**options) as connection, connection.begin():
                if self.is_postgresql:
                    connection.exec_driver_sql(_SETTINGS)
                    yield _PostgreSql(connection, name)
                else:
                    yield _Sqlite(connection, name)
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            why = getattr(error, "orig", None) or error
            raise StateFailure(f"{problem} in {self.shown}: {self._discreet(why)}") from None
        except Exception as error:
            # COPY speaks with the driver itself.
            if type(error).__module__.partition(".")[0] != "psycopg":
                raise
            raise StateFailure(f"{problem} in {self.shown}: {self._discreet(error)}") from None

    def close(self) -> None:
        """Close its connections."""
        self.engine.dispose()

    def _discreet(self, error: Any) -> str:
        text = " ".join(str(error).split())
        return escaped(text.replace(self.password, "***") if self.password else text)


# A commit that was answered must outlast the server, and nobody who is stopped midway may hold the locks. In other time
# zones than UTC the first and the last hours of what a timestamp can be are of years that Python does not have. With 0
# extra digits, floats and doubles would be rounded where they are read. The driver reads times in ISO's form only, and
# writes bytes for servers that take no backslash for an escape; without array_nulls a null is a text. What is read as a
# text must not depend on the server either.
_SETTINGS = (
    f"SELECT set_config('lock_timeout', '{WAIT_SECS}s', true), "
    f"set_config('idle_in_transaction_session_timeout', '{IDLE_SECS}s', true), "
    "set_config('TimeZone', 'UTC', true), "
    "set_config('extra_float_digits', '3', true), "
    "set_config('DateStyle', 'ISO', true), "
    "set_config('IntervalStyle', 'postgres', true), "
    "set_config('bytea_output', 'hex', true), "
    "set_config('array_nulls', 'on', true), "
    "set_config('standard_conforming_strings', 'on', true), "
    "set_config('quote_all_identifiers', 'off', true), "
    "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)"
)


def checked_url(url: str) -> None:
    """Refuse a URL of another database, unless it is a reference, which only the driver can follow.

    Raises:
        ConfigError: it is no URL of PostgreSQL or SQLite, or SQLAlchemy is not installed.
    """
    if not is_reference(url):
        _parsed(url)


def dataset_of_table(url: str, table: str, schema: str | None) -> Dataset:
    """Return a table as catalogs of lineage name it; see :func:`database_of` for the URL and what it raises."""
    parsed = _parsed(_resolved(url))
    if parsed.get_backend_name() == "sqlite":
        return Dataset(f"sqlite://{local_path(parsed.database)}", table)
    # A URL with several servers has them in its query, each with its port.
    several = parsed.query.get("host", ())
    first = several if isinstance(several, str) else next(iter(several), "")
    host, _, port = first.partition(":")
    server = f"{parsed.host or host or 'localhost'}:{parsed.port or port or _PORT}"
    return Dataset(f"postgres://{server}", f"{parsed.database or parsed.username}.{schema or 'public'}.{table}")


def _resolved(url: str) -> str:
    return str(ClientProperties({"url": url}).resolved()["url"])


def database_of(url: str, *, keeps_connection: bool = False) -> Database:
    """Return a database, which is not connected yet.

    Args:
        url: its URL, or where that is.
        keeps_connection: whether a connection stays open for the next transaction, until :meth:`Database.close`.

    Raises:
        ConfigError: there is no such database, or a package is missing.
    """
    resolved = _resolved(url)
    parsed = _parsed(resolved)
    import sqlalchemy as sa  # noqa: PLC0415 - an extra of the installation

    options: dict[str, Any] = {"connect_args": {"timeout": WAIT_SECS}}
    if parsed.get_backend_name() == "postgresql":
        # Of what the URL does not say itself: a server that is gone without a word is noticed.
        defaults = {
            "connect_timeout": WAIT_SECS,
            "keepalives_idle": WAIT_SECS,
            "tcp_user_timeout": 1000 * WAIT_SECS,
            "application_name": "txtopo",
            "client_encoding": "UTF8",  # PGCLIENTENCODING may name one that lacks characters
        }
        options = {"connect_args": {n: v for n, v in defaults.items() if n not in parsed.query}}
    try:
        # A connection is tried before it is used, since the server may have been started again meanwhile.
        pool = {"pool_pre_ping": True, "pool_size": 1} if keeps_connection else {"poolclass": sa.pool.NullPool}
        engine = sa.create_engine(parsed, **pool, **options)
    except ImportError:
        raise ConfigError(f"an SqlState needs psycopg: {how_to_install(_EXTRA)}") from None
    if parsed.get_backend_name() == "sqlite":
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return Database(engine, parsed.render_as_string(hide_password=True), str(parsed.password or ""))


def _parsed(url: str) -> Any:
    try:
        import sqlalchemy as sa  # noqa: PLC0415 - an extra of the installation
    except ImportError:
        raise ConfigError(f"an SqlState needs SQLAlchemy: {how_to_install(_EXTRA)}") from None
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:  # "from None", and without the URL, which may have a password in it
        raise ConfigError("that is no URL of a database; write postgresql://USER@HOST/DATABASE") from None
    backend, _, driver = parsed.drivername.partition("+")
    if backend == "sqlite" and not driver and parsed.database not in {None, "", ":memory:"}:
        return parsed
    if backend in {"postgresql", "postgres"} and driver in {"", "psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    raise ConfigError(
        f"{parsed.render_as_string(hide_password=True)} is of no database that SqlState writes: use "
        "postgresql://USER@HOST/DATABASE, with the driver psycopg, or sqlite:///FILE"
    )


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # else sqlite3 begins and ends transactions by itself
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Any) -> None:
    # The lock first: a transaction that reads before it asks for it may be refused in between.
    is_write = connection.get_execution_options().get("txtopo_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


def _arrow(values: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    if not values:
        return schema.empty_table()
    arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _portions(rows: pa.Table, size: int = _ROWS_AT_ONCE) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, max(1, size)):
        yield rows.slice(start, max(1, size))
