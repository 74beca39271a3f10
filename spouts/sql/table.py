"""A table of a database that a spout reads: what it must be like, and up to where no row can come any more.

Transactions of PostgreSQL commit in another order than they draw ids and times. Two questions to the server answer how
far one may read without a guess:

- *Ids*: an insert locks the table before it draws its id. So once the largest id was read, every transaction that may
  still bring a smaller one has that lock, or has ended. The spout waits until those that had it then have ended.
- *Times*: ``now()`` is when the transaction began. So all rows before the beginning of the oldest one that runs are
  there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from state.sql.columns import checked_names, column_type
from state.sql.database import Columns, Database, Transaction, checked_url, database_of
from txtopo.api.components.spout import Metadata
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.errors import ConfigError, FieldsError, InputError, SourceFailure, StateFailure

_NO_TEXT = "Could not decode to UTF-8"
"""What Python's SQLite says of a value, as of a server that does not answer."""

INTEGERS = ("smallint", "integer", "bigint")
TIMES = ("timestamp with time zone",)

PREPARED = "-1/"
"""What names begin with of transactions of two phases that a server has found when it started, among its writers."""

_READ_AS = {
    pa.bool_(): ("boolean",),
    pa.int8(): INTEGERS[:1],
    pa.int16(): INTEGERS[:1],
    pa.int32(): INTEGERS[:2],
    pa.int64(): INTEGERS,
    pa.float32(): ("real",),
    pa.float64(): ("real", "double precision"),
    pa.binary(): ("bytea",),
    pa.date32(): ("date",),
    pa.timestamp("us", tz="UTC"): TIMES,
    pa.timestamp("us"): ("timestamp without time zone",),
}
"""The types of PostgreSQL's columns that each type of field reads without a loss. Any is read as a text."""

# Partitions, and the children of the old way to inherit, are locked by themselves. Who writes the whole locks one of
# its partitions only once there is a row for it, with its id.
_WRITERS = """
WITH RECURSIVE own AS (
    SELECT CAST(CAST(%s AS REGCLASS) AS OID) AS oid
), below AS (
    SELECT oid FROM own UNION SELECT inhrelid FROM pg_inherits JOIN below ON inhparent = below.oid
), above AS (
    SELECT oid FROM own UNION SELECT inhparent FROM pg_inherits JOIN above ON inhrelid = above.oid
)
SELECT DISTINCT virtualtransaction
FROM pg_locks JOIN (SELECT oid FROM below UNION SELECT oid FROM above) AS tree ON relation = tree.oid
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

# Neither an autovacuum nor a sender of the log writes rows.
_OLDEST = """
SELECT min(xact_start), count(*) FILTER (WHERE backend_type IS NULL OR state = 'disabled')
FROM pg_stat_activity
WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
AND backend_type IS DISTINCT FROM 'autovacuum worker' AND backend_type IS DISTINCT FROM 'walsender'
"""

_COLUMNS = """
SELECT attname, format_type(atttypid, NULL), format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
WHERE attrelid = CAST(%s AS REGCLASS) AND attnum > 0 AND NOT attisdropped
"""

# A column that is another name of the row's number. It alone is never null by itself, and SQLite gives the numbers of
# deleted rows again.
_IS_NUMBER_OF_ROW = "upper(type) = 'INTEGER' AND pk AND (SELECT max(pk) FROM pragma_table_xinfo(?)) = 1"

# A name that is no column would be a text. The plain table_info leaves out columns that are made of others.
_COLUMNS_OF_SQLITE = f"""
SELECT name, type, type, "notnull" OR ({_IS_NUMBER_OF_ROW}) FROM pragma_table_xinfo(?)
"""  # noqa: S608 - a constant

_NUMBER_OF_ROW = f"SELECT 1 FROM pragma_table_xinfo(?) WHERE lower(name) = lower(?) AND {_IS_NUMBER_OF_ROW}"  # noqa: S608

_SEQUENCE = """
SELECT s.seqcache, s.seqincrement, s.seqcycle, p.last_value,
    CASE WHEN has_sequence_privilege(s.seqrelid, 'SELECT') THEN CAST(CAST(s.seqrelid AS REGCLASS) AS TEXT) END
FROM pg_sequence AS s JOIN pg_class AS c ON c.oid = s.seqrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_sequences AS p ON p.schemaname = n.nspname AND p.sequencename = c.relname
WHERE s.seqrelid = CAST(pg_get_serial_sequence(%s, %s) AS REGCLASS)
"""


@attrs.frozen
class InputTable:
    """A table by its name in a database, with the fields that are read of it."""

    url: str
    name: str
    schema: str | None
    fields: Fields
    settling_secs: int = 1
    """Before its transaction is known to run, a server's process may be held up for so long after the statement came,
    which is the transaction's time."""

    def __attrs_post_init__(self) -> None:
        checked_url(self.url)
        untyped = [name for name, kind in zip(self.fields.names, self.fields.types, strict=True) if kind is None]
        if untyped:
            raise FieldsError(f"field {untyped[0]!r} has no type; give it that of the table's column")
        columns = self.columns
        checked_names([self.name, *([] if self.schema is None else [self.schema]), *columns.schema.names])
        for field in columns.schema:
            column_type(field.name, field.type)

    @property
    def columns(self) -> Columns:
        """The columns that are read."""
        return Columns(self.fields.arrow_schema(), 0)

    def opened(self) -> OpenedTable:
        """Return the table with a connection of this process, which is not made yet."""
        return OpenedTable(self, database_of(self.url, keeps_connection=True), self.columns)

    def order(self, ordering: Sequence[str]) -> str:
        """Return what metadata says that it is of: the table, and the columns by which it is read."""
        return f"{'' if self.schema is None else f'{self.schema}.'}{self.name} by {', '.join(ordering)}"

    def check_order(self, order: str, metadata: Metadata) -> None:
        """Raise an InputError for metadata of another table or other columns; that of former versions says nothing."""
        was = metadata.get("of", order) if metadata else order
        if was != order:
            raise InputError(
                f"the spout reads {order}, and read {was} in transactions before: their places mean nothing here, and "
                "rows would be left out. Read on as before, or read this by a spout with another id"
            )

    def check_fields(self, owner: str, names: Sequence[str]) -> None:
        """Raise a ConfigError for a name that is none of the fields."""
        wrong = [name for name in names if name not in self.fields.names]
        if wrong:
            raise ConfigError(f"{owner} is {wrong[0]!r}, which is none of the fields {', '.join(self.fields.names)}")


@attrs.frozen(eq=False)
class OpenedTable:
    """An :class:`InputTable` in a process."""

    table: InputTable
    database: Database
    columns: Columns

    @property
    def is_postgresql(self) -> bool:
        """Whether the database is PostgreSQL; else it is SQLite."""
        return self.database.is_postgresql

    @property
    def address(self) -> str:
        """The database's URL without its password, and the table's name."""
        return self.database.address_of(self.table.name, self.table.schema)

    @property
    def placeholder(self) -> str:
        """What stands for a parameter in a statement."""
        return "%s" if self.is_postgresql else "?"

    def quoted(self, name: str) -> str:
        """Return the name of a column, quoted."""
        return self.database.quoted(name)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begin a transaction that only reads.

        Raises:
            InputError: the server is a replica, as a URL with several servers may lead to after the primary has failed.
            SourceFailure: the database does not answer now, or not as it should.
        """
        text = f"the table {self.table.name!r} can't be read"
        try:
            with self.database.transaction(text, self.table.name, self.table.schema, is_write=False) as transaction:
                if self.is_postgresql and transaction.run("SELECT pg_is_in_recovery()").scalar():
                    raise InputError(
                        f"{self.database.shown} is a replica, which does not know which transactions run: read the "
                        "primary, which target_session_attrs=read-write in the URL waits for"
                    )
                yield transaction
        except StateFailure as error:
            raise SourceFailure(error.message) from error

    def read(self, where: str, parameters: Sequence[Any]) -> pa.Table:
        """Return rows by what follows WHERE in a statement; raise InputError if a value does not fit its field."""
        with self.transaction() as transaction:
            names = zip(self.columns.schema, transaction.names(self.columns), strict=True)
            read = ", ".join(
                f"CAST({name} AS TEXT)" if pa.types.is_string(field.type) else name for field, name in names
            )
            try:
                result = transaction.run(f"SELECT {read} FROM {transaction.table} WHERE {where}", tuple(parameters))  # noqa: S608 - quoted
                return transaction.arrow(result.fetchall(), self.columns)
            except Exception as error:
                # A driver has a DataError of its own for a value that Python has not, such as a time before year 1.
                is_misfit = isinstance(error, pa.ArrowException | ArithmeticError | TypeError | ValueError)
                if is_misfit or type(error).__name__ == "DataError" or _NO_TEXT in str(error):
                    raise InputError(f"a row of the table {self.address} does not fit the fields: {error}") from error
                raise

    def check(self, ordering: Sequence[str], types: Sequence[str]) -> None:
        """Refuse a table that can't be read by some columns, of which the first has one of some types.

        Raises:
            InputError: it can't.
            SourceFailure: the database does not answer.
        """
        if not self.database.is_there:
            raise InputError(f"there is no database {self.database.shown}")
        with self.transaction() as transaction:
            name = self.table.name
            if self.is_postgresql:
                find, parameter = "SELECT relkind FROM pg_class WHERE oid = to_regclass(%s)", transaction.table
            else:
                find, parameter = "SELECT type FROM sqlite_master WHERE name = ?", name
            kind = transaction.run(find, (parameter,)).scalar()
            if kind is None:
                raise InputError(f"there is no table {self.address}")
            if kind not in {"r", "p", "table"}:
                raise InputError(f"{self.address} is no table; a view can't be read, since its tables are written")
            if self.is_postgresql:
                by_name = {row[0]: row[1:] for row in transaction.run(_COLUMNS, (transaction.table,))}
            else:  # in which names have no case
                fields = {each.lower(): each for each in self.columns.schema.names}
                columns = transaction.run(_COLUMNS_OF_SQLITE, (name, name))
                by_name = {fields.get(row[0].lower(), row[0]): row[1:] for row in columns}
            self._check_columns(by_name, ordering, types)

    def ask(self, what: str, where: str = "", parameters: Sequence[Any] = ()) -> Any:
        """Return the first value of what is asked of the rows for which a condition holds; None if there is no row."""
        with self.transaction() as transaction:
            condition = f" WHERE {where}" if where else ""
            return transaction.run(f"SELECT {what} FROM {transaction.table}{condition}", tuple(parameters)).scalar()  # noqa: S608 - quoted

    def now(self) -> Any:
        """Return the time of the server's clock."""
        with self.transaction() as transaction:
            return transaction.run("SELECT clock_timestamp()").scalar()

    def writers(self) -> frozenset[str]:
        """Return the transactions that write the table, asked *after* the largest id was; SQLite has one at a time."""
        if not self.is_postgresql:
            return frozenset()
        with self.transaction() as transaction:
            return frozenset(row[0] for row in transaction.run(_WRITERS, (transaction.table,)))

    def finished_before(self) -> Any:
        """Return the time before which no row can come any more; None while nobody knows.

        Rows are to be read in a transaction after this.

        Raises:
            InputError: the server does not tell this user of all transactions.
            SourceFailure: the database does not answer.
        """
        with self.transaction() as transaction:
            now = transaction.run(f"SELECT clock_timestamp() - interval '{self.table.settling_secs} second'").scalar()
            if transaction.run("SELECT 1 FROM pg_prepared_xacts WHERE database = current_database()").first():
                return None  # when it began is not told
            oldest, unseen = transaction.run(_OLDEST).one()
        if unseen:
            raise InputError(
                f"the server of {self.address} does not tell this user when others' transactions began, so one could "
                "commit rows that would be left out: GRANT pg_read_all_stats TO the user, with track_activities on"
            )
        return now if oldest is None else min(now, oldest)

    def check_sequence(self, column: str, last: int | None) -> None:
        """Refuse ids that are not drawn in rising order, or that begin again below the last one read.

        Raises:
            InputError: they are.
            SourceFailure: the database does not answer.
        """
        with self.transaction() as transaction:
            if not self.is_postgresql:
                has_any = transaction.run("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'").first()
                find = "SELECT 1, 1, 0, seq, name FROM sqlite_sequence WHERE name = ?"
                sequence = transaction.run(find, (self.table.name,)).first() if has_any else None
            else:
                sequence = transaction.run(_SEQUENCE, (transaction.table, column)).first()
            if sequence is None:
                if last is not None and not self.is_postgresql:
                    self._check_numbers(transaction, column, last)
                return
            cache, step, is_cyclic, drawn, name = sequence
            if drawn is None and name is not None:  # nothing was drawn since it was made, or set to begin anew
                drawn = transaction.run(f"SELECT last_value FROM {name}").scalar() - step  # noqa: S608 - the server's
        if cache != 1 or step < 1 or is_cyclic:
            raise InputError(
                f"ids of the table {self.address} do not rise: the sequence of {column!r} has CACHE {cache}, INCREMENT "
                f"{step}{' and CYCLE' if is_cyclic else ''}. Sessions with a cache draw ids below those that were "
                "read; ALTER SEQUENCE … CACHE 1 NO CYCLE"
            )
        if last is not None and drawn is not None and drawn < last:
            raise InputError(
                f"rows of the table {self.address} up to id {last} were read, and its sequence is at {drawn}: it "
                "was restored or emptied, and new rows would be left out; set the sequence past that id"
            )

    def _check_numbers(self, transaction: Transaction, column: str, last: int) -> None:
        """Refuse a file of SQLite that will give ids again, or has, that were read."""
        name = self.table.name
        if transaction.run(_NUMBER_OF_ROW, (name, column, name)).first() is None:
            return
        largest = transaction.run(f"SELECT max({self.quoted(column)}) FROM {transaction.table}").scalar()  # noqa: S608 - quoted
        if largest is None or largest < last:
            raise InputError(
                f"rows of the table {self.address} up to id {last} were read, and the largest is {largest}: SQLite "
                f"gives ids of deleted rows again, and new rows would be left out; declare {column!r} INTEGER PRIMARY "
                "KEY AUTOINCREMENT, or keep the last row"
            )

    def _check_columns(self, found: Mapping[str, Sequence[Any]], ordering: Sequence[str], types: Sequence[str]) -> None:
        for field in self.columns.schema:
            if field.name not in found:
                raise InputError(f"the table {self.address} has no column {field.name!r}; it has {', '.join(found)}")
            if pa.types.is_string(field.type) or not self.is_postgresql:  # SQLite keeps any value in any column
                continue
            expected = ("numeric",) if pa.types.is_decimal(field.type) else _READ_AS[field.type]
            if found[field.name][0] not in expected:
                raise InputError(
                    f"column {field.name!r} of {self.address} is {found[field.name][1]}, and the field is "
                    f"{ddl_name(field.type)}, which reads {' or '.join(expected)}"
                )
        first = found[ordering[0]]
        if self.is_postgresql and first[0] not in types:
            raise InputError(
                f"column {ordering[0]!r} of {self.address} is {first[1]}; rows are read in the order of a "
                f"{' or '.join(types)}"
            )
        nullable = [name for name in ordering if not found[name][2]]
        if nullable:
            raise InputError(
                f"column {nullable[0]!r} of {self.address} may be null, and rows without it would never be read: "
                "declare it NOT NULL"
            )
