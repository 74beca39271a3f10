"""``SqlRows``: rows without keys, in a table of a database."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.rows.format import KeylessRows, RowsFormat, checked_rows_fields, fitted_rows, no_keys
from state.delta.schema import TXID_FIELD
from state.marks import Mark, Owner
from state.sql.database import Columns, Transaction
from state.sql.declared import DeclaredSqlTable, OpenedSqlTable
from state.sql.table import SqlTable
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.fields import Fields
from txtopo.api.reduction import PreparedWrites, Rows, RowsMode, TransactionRows
from txtopo.api.state import StateKind, Writes
from txtopo.columnar.rows_file import in_memory

__all__ = ["OpenedSqlRows", "SqlRows"]


class SqlRows(DeclaredSqlTable):
    """Rows without keys, in a table of a PostgreSQL or SQLite database, with the columns of the fields and txid.

    ``AppendCommitter`` fills it, or your committer by ``state.append(rows)``. A rewind removes the rows of the
    transactions that begin anew. All else is as for :class:`SqlState`.

    Args:
        url: the database's URL, or where it is; see :class:`SqlState`.
        table: the table's name.
        fields: the fields, each with a type.
        schema: the schema of the table; by default the database's.

    Raises:
        ConfigError: the URL is of no such database, or SQLAlchemy is missing.
        FieldsError: a field has no type, or one that no column has, such as an array.
    """

    @checked_arguments
    def __init__(self, url: str, table: str, fields: Fields, *, schema: str | None = None) -> None:
        checked_rows_fields(fields, ())
        self.key = Fields()
        self.value = fields
        self.kind = StateKind.ROWS
        super().__init__(url, table, schema)

    @property
    def columns(self) -> Columns:
        """The columns of the table."""
        return Columns(self.form("").schema(), 0)

    def form(self, name: str) -> RowsFormat:
        """Return the format of the rows of the state with this name."""
        return RowsFormat(name, self.value)

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return rows with the table's fields; see :meth:`State.as_rows`."""
        return in_memory(fitted_rows(self.form(name), rows, RowsMode.APPEND))

    def _opened(self, table: SqlTable, owner: Owner, mark: Mark) -> OpenedSqlRows:
        return OpenedSqlRows(self, table, owner, mark)

    def __repr__(self) -> str:
        return f"SqlRows({self.table_name!r}, {self.value})"


@attrs.frozen(eq=False)
class _Appended(PreparedWrites):
    """The rows of some transactions, with their txids."""

    rows: pa.Table

    @property
    def rows_put(self) -> int:
        return int(self.rows.num_rows)


class OpenedSqlRows(KeylessRows, OpenedSqlTable):
    """An SqlRows opened by one coordinator; made by :meth:`SqlRows.open`."""

    def __init__(self, declared: SqlRows, table: SqlTable, owner: Owner, mark: Mark) -> None:
        OpenedSqlTable.__init__(self, declared, table, owner, mark)
        KeylessRows.__init__(self, declared.form(owner.state))

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table:
        """Return rows with the table's fields, in memory; see :meth:`TakesRows.rows_to_write`."""
        fitted = in_memory(super().rows_to_write(rows, mode))
        self._refuse(fitted, lambda at: f"row {at}")
        return fitted

    def write_rows(self, parts: Sequence[TransactionRows]) -> PreparedWrites:
        """Return the rows with the txid of each; see :meth:`TakesRows.write_rows`."""
        schema = self._columns.schema
        rows = [
            in_memory(part.rows).append_column(schema.field(TXID_FIELD), pa.array([part.txid] * part.count, pa.int64()))
            for part in parts
        ]
        return _Appended(pa.concat_tables([schema.empty_table(), *rows]))

    def _rows(self, txid: int, values: Writes) -> pa.Table:  # noqa: ARG002 - each row has its own
        if isinstance(values, _Appended):
            return values.rows
        if len(values):
            raise no_keys(self._form.state)
        return self._columns.schema.empty_table()

    def _put(self, own: Transaction, rows: pa.Table, last: int) -> None:
        own.append(rows.filter(pc.greater(rows[TXID_FIELD], last)), self._columns)
