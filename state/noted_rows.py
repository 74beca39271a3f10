"""Opened states of other systems, which have a group's rows in its note.

Such a system shows others nothing before a transaction commits, and keeps nothing of one that has not. So what makes a
group visible is one transaction of that system, which also moves the mark of the state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa

from state.delta.rows.files import with_txid
from state.delta.rows.format import KeylessRows, no_keys
from txtopo.api.state import OpenedState
from txtopo.api.writes import PreparedWrites, TransactionRows, Writes
from txtopo.columnar.rows_file import in_memory, rows_of_note, rows_to_note


class HasNotedRows(OpenedState):
    """A state whose notes have the rows."""

    @abstractmethod
    def _rows(self, txid: int, values: Writes) -> pa.Table:
        """Return what a transaction writes as rows; raise for what the system would refuse."""

    @abstractmethod
    def _write(self, txid: int, rows: pa.Table) -> None:
        """Write rows in one transaction of the system, unless it has the transaction already."""

    def prepare(self, txid: int, values: Writes) -> Any:
        """Return a note with the rows; see :meth:`OpenedState.prepare`."""
        return {"rows": rows_to_note(self._rows(txid, values))}

    def publish(self, txid: int, note: Any) -> None:
        """Write the rows of a note; see :meth:`OpenedState.publish`."""
        self._write(txid, rows_of_note(note["rows"]))

    def write(self, txid: int, values: Writes) -> None:
        """Write rows; see :meth:`OpenedState.write`."""
        self._write(txid, self._rows(txid, values))


@attrs.frozen(eq=False)
class _Appended(PreparedWrites):
    """The rows of some transactions, with their txids."""

    rows: pa.Table

    @property
    def rows_put(self) -> int:
        return int(self.rows.num_rows)


class AppendsNotedRows(KeylessRows, HasNotedRows):
    """A table of rows whose notes have them."""

    def write_rows(self, parts: Sequence[TransactionRows]) -> PreparedWrites:
        """Return the rows with the txid of each; see :meth:`TakesRows.write_rows`."""
        schema = self._form.schema()
        rows = [with_txid(in_memory(part.rows), part.txid, schema) for part in parts]
        return _Appended(pa.concat_tables([schema.empty_table(), *rows]))

    def _rows(self, txid: int, values: Writes) -> pa.Table:  # noqa: ARG002 - each row has its own
        if isinstance(values, _Appended):
            return values.rows
        if len(values):
            raise no_keys(self._form.state)
        return self._form.schema().empty_table()
