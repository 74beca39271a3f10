"""``SqlState``: a value for each key, in a table of a database."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from state.delta.schema import TXID_FIELD, DeclaredKeys, checked_fields
from state.marks import Mark, Owner
from state.sql.database import Columns, Transaction
from state.sql.declared import DeclaredSqlTable, OpenedSqlTable
from state.sql.table import SqlTable
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.fields import Fields
from txtopo.api.values import Key, StateKind, StateValue
from txtopo.api.writes import KeyedWrites, Writes, by_key


class SqlState(DeclaredKeys, DeclaredSqlTable):
    """A value for each key, in a table of a PostgreSQL or SQLite database, with the columns of the fields and txid.

    *You* must not write to the table; anybody may read it, with a key's txid beside its value.
    *txtopo* guarantees that the table has each transaction once, whatever fails: a commit group is one transaction of
    the database, which also moves the state's row in the table ``txtopo_states`` of the same schema.

    It needs the extra ``sql``. The rows of a commit group pass through the coordinator's store. Only the newest values
    are kept: a rewind to where the table has other ones is refused, but to transaction 0. A table of a server that has
    lost what it acknowledged is refused, too, so a replica that may take over must be synchronous.

    Args:
        url: ``postgresql://USER@HOST/DATABASE``, or ``sqlite:///FILE``; or ``env:NAME`` or ``file:PATH`` for where it
            is, if it has a password in it. psycopg also finds one in ``PGPASSWORD`` or ``~/.pgpass``.
        table: the table's name. It is created when the state is first opened, or it is there, has the columns of the
            declaration, and is empty.
        key: the key fields, each with a type: they are the table's primary key.
        value: the value fields, each with a type.
        kind: what is kept beside each value.
        schema: the schema of the table; by default the database's.

    Raises:
        ConfigError: the URL is of no such database, or SQLAlchemy is missing.
        FieldsError: a field has no type, or one that no column has, such as an array.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - each of them is of the table
        self,
        url: str,
        table: str,
        key: Fields,
        value: Fields,
        kind: StateKind = StateKind.TRANSACTIONAL,
        *,
        schema: str | None = None,
    ) -> None:
        checked_fields(key, value, kind, typed=True)
        self.key = key
        self.value = value
        self.kind = StateKind(kind)
        super().__init__(url, table, schema)

    @property
    def columns(self) -> Columns:
        """The columns of the table."""
        form = self.format("")
        return Columns(form.schema(), len(self.key), tuple(form.schema(with_previous=False).names))

    def _opened(self, table: SqlTable, owner: Owner, mark: Mark) -> OpenedSqlState:
        return OpenedSqlState(self, table, owner, mark)

    def __repr__(self) -> str:
        return f"SqlState({self.table_name!r}, key={self.key}, value={self.value}, kind={self.kind})"


class OpenedSqlState(OpenedSqlTable):
    """An SqlState opened by one coordinator; made by :meth:`SqlState.open`."""

    def __init__(self, declared: SqlState, table: SqlTable, owner: Owner, mark: Mark) -> None:
        super().__init__(declared, table, owner, mark)
        self._format = declared.format(owner.state)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key, by one statement for all; see :meth:`OpenedState.multi_get`."""
        refusal = self._format.unhashable(keys)
        if refusal is not None:
            raise refusal
        fitted = self._format.fit_keys(keys)
        self._refuse_misfits(fitted.table)
        if not keys:
            return []
        key_rows = fitted.table.group_by(fitted.table.column_names).aggregate([])
        with self._table.transaction("can't be read", is_write=False) as (table, _):
            stored = self._format.read(table.of_keys(key_rows, self._columns))
        return [stored.get(key) for key in fitted.keys]

    def check(self, values: KeyedWrites) -> None:
        """Raise a ``FieldsError`` if a key or value does not fit, or the database would not take it."""
        self._refuse_misfits(self._format.fit(0, values, with_previous=bool(values.previous)).table)

    def _rows(self, txid: int, values: Writes) -> pa.Table:
        rows = self._format.fit(txid, by_key(values)).table
        self._refuse_misfits(rows)
        return rows

    def _put(self, table: Transaction, rows: pa.Table, last: int) -> None:  # noqa: ARG002 - a value replaces the one before
        is_put = pc.is_valid(rows[TXID_FIELD])
        removed = rows.filter(pc.invert(is_put)).select(list(self.declared.key))
        if removed.num_rows:
            table.delete(removed, self._columns)
        table.upsert(rows.filter(is_put), self._columns)

    def _refuse_misfits(self, rows: pa.Table) -> None:
        self._refuse(
            rows, lambda at: f"key {tuple(rows.select(list(self.declared.key)).slice(at, 1).to_pylist()[0].values())!r}"
        )
