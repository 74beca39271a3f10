"""A rows table during a commit group: rows that are appended, that replace others, and that expire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from txtopo.api.map_state import expires_nothing
from txtopo.api.state import ExpiresRows, OpenedState, TakesRows
from txtopo.api.writes import Rows, RowsFile, RowsMode, TransactionRows, Writes
from txtopo.columnar.rows_by_time import BEFORE_ALL
from txtopo.columnar.rows_file import in_memory
from txtopo.errors import FailedException
from txtopo.transactional.commit.pending_rows import PendingRows
from txtopo.transactional.commit.views import GroupState, TransactionView, Writing, raise_as_of_state


class RowsGroup(GroupState):
    """A rows table during one commit group."""

    def __init__(self, opened: OpenedState, takes_rows: TakesRows, writing: Writing | None = None) -> None:
        super().__init__(opened, writing)
        self._takes_rows = takes_rows
        # The field first: to look for the methods takes 10 µs, for each state of each group.
        self._expires = opened if opened.declared.expires and isinstance(opened, ExpiresRows) else None
        self._rows_to_write: list[TransactionRows] = []
        self._pending: PendingRows | None = None
        """The group's rows on top of the durable ones, if they expire and somebody has used them."""

    def begin(self, txid: int) -> RowsView:
        """Return the view of transaction ``txid``."""
        return RowsView(self, txid)

    def pending(self) -> PendingRows | None:
        """Return a layer of expiring rows for a transaction; None if the rows of this state do not expire."""
        if self._expires is None:
            return None
        self._writing.wait()
        try:
            self._pending = self._pending or PendingRows(self.declared, self._expires)
            return PendingRows(self.declared, self._pending)
        except FailedException as error:
            raise_as_of_state(error)

    def take(self, pending: PendingRows | None, rows: Sequence[TransactionRows]) -> None:
        """Merge the writes of a transaction that has finished."""
        if pending is not None and self._pending is not None:
            self._pending.adopt(pending)
        self._rows_to_write += rows

    def fitted_rows(self, rows: Rows, mode: RowsMode) -> pa.Table | RowsFile:
        """Return rows in the form that the table takes."""
        return self._takes_rows.rows_to_write(rows, mode)

    def writes(self) -> Writes:
        """Return the group's writes, which may be empty."""
        if not self._rows_to_write:
            return {}
        self._writing.wait()
        try:
            return self._takes_rows.write_rows(self._rows_to_write)
        except FailedException as error:
            raise_as_of_state(error)


class RowsView(TransactionView):
    """One transaction's view of a rows table; the table itself refuses access by key, as it knows what it is called."""

    def __init__(self, group: RowsGroup, txid: int) -> None:
        super().__init__(group, txid)
        self._group: RowsGroup = group
        self._rows_to_write: list[TransactionRows] = []
        self._pending: PendingRows | None = None
        """This transaction's rows on top of the group's, if they expire."""

    def _refuse_keys(self, *_arguments: Any, **_options: Any) -> Any:
        self._check_running()
        return self._group.multi_get(())

    multi_get = multi_put = multi_update = multi_remove = multi_reduce = fold_rows = _refuse_keys
    reduce_changes = remove_expired = _refuse_keys

    def append(self, rows: Rows) -> None:
        """Add rows to a rows table."""
        self._write_rows(rows, RowsMode.APPEND)

    def replace_partitions(self, rows: Rows) -> None:
        """Replace the rows of earlier transactions in the partitions of ``rows``."""
        self._write_rows(rows, RowsMode.REPLACE)

    def take_expired(self, until: int) -> pa.Table:
        """Take out all rows that expire up to a time, and return them."""
        expired_rows = self._of_expiring(lambda pending: pending.take(until))
        self._rows_to_write.append(TransactionRows(self.txid, expired_rows.slice(0, 0), RowsMode.TAKE, until))
        return expired_rows

    def taken_until(self) -> int | None:
        """Return the time up to which rows are taken; None if none are."""
        until: int = self._of_expiring(lambda pending: pending.taken_until())
        return None if until == BEFORE_ALL else until

    def rows_held(self) -> int:
        """Return the number of rows that are not taken."""
        count: int = self._of_expiring(lambda pending: pending.count(pending.taken_until()))
        return count

    def holds(self, keys: pa.Table) -> pa.BooleanArray:
        """Return for each key whether it has a row that is not taken."""
        return self._of_expiring(lambda pending: pending.holds_now(keys))

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """Return the rows of some keys that are not taken."""
        return self._of_expiring(lambda pending: pending.rows_now(keys))

    def as_rows(self, rows: Rows) -> pa.Table:
        """Return ``rows`` with the columns of the rows table."""
        return in_memory(self._group.fitted_rows(rows, RowsMode.APPEND))

    def check(self, component: str | None = None) -> None:
        """Check nothing: rows are fitted where they are appended."""

    def finish(self) -> None:
        """Merge this transaction's rows into the group's."""
        with self.lock:
            self._group.take(self._pending, self._rows_to_write)
            self.discard()

    def _write_rows(self, rows: Rows, mode: RowsMode) -> None:
        self._check_running()
        part = TransactionRows(self.txid, self._group.fitted_rows(rows, mode), mode)
        if part.count:
            pending = self._expiring()
            if pending is not None:
                pending.append(in_memory(part.rows))
            self._rows_to_write.append(part)

    def _of_expiring(self, ask: Callable[[PendingRows], Any]) -> Any:
        self._check_running()
        pending = self._expiring()
        if pending is None:
            raise expires_nothing(self._group.declared)
        try:
            return ask(pending)
        except FailedException as error:
            raise_as_of_state(error)

    def _expiring(self) -> PendingRows | None:
        self._pending = self._pending or self._group.pending()
        return self._pending
