"""``SqlRows``: rows without keys, in a table of a database."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from state.delta.rows.format import DeclaredRows, checked_rows_fields
from state.delta.schema import TXID_FIELD
from state.marks import Mark, Owner
from state.noted_rows import AppendsNotedRows
from state.sql.database import Columns, Transaction
from state.sql.declared import DeclaredSqlTable, OpenedSqlTable
from state.sql.table import SqlTable
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.fields import Fields
from txtopo.api.values import StateKind
from txtopo.api.writes import Rows, RowsMode
from txtopo.columnar.rows_file import in_memory


class SqlRows(DeclaredRows, DeclaredSqlTable):
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

    def _opened(self, table: SqlTable, owner: Owner, mark: Mark) -> OpenedSqlRows:
        return OpenedSqlRows(self, table, owner, mark)

    def __repr__(self) -> str:
        return f"SqlRows({self.table_name!r}, {self.value})"


class OpenedSqlRows(AppendsNotedRows, OpenedSqlTable):
    """An SqlRows opened by one coordinator; made by :meth:`SqlRows.open`."""

    def __init__(self, declared: SqlRows, table: SqlTable, owner: Owner, mark: Mark) -> None:
        OpenedSqlTable.__init__(self, declared, table, owner, mark)
        AppendsNotedRows.__init__(self, declared.form(owner.state))

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table:
        """Return rows with the table's fields, in memory; see :meth:`TakesRows.rows_to_write`."""
        fitted = in_memory(super().rows_to_write(rows, mode))
        self._refuse(fitted, lambda at: f"row {at}")
        return fitted

    def _put(self, table: Transaction, rows: pa.Table, last: int) -> None:
        table.append(rows.filter(pc.greater(rows[TXID_FIELD], last)), self._columns)
