"""Move a committer's rows from the processing phase to the commit phase; many rows are spilled to a file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa

from committers.waiting import TUPLES_WAITING_MAX
from txtopo import BatchBolt, ICommitter
from txtopo.api.writes import RowsFile
from txtopo.columnar.rows_file import rows_of_bytes, rows_to_bytes, write_rows_file


@attrs.frozen
class SpillLimits:
    """How much of a task waits, and in what form it moves to the commit phase."""

    tuples_waiting: int = TUPLES_WAITING_MAX
    """The maximum number of tuples that wait to be converted to columns."""
    rows_waiting: int = 1_000_000
    """How many rows wait, at least, before they are reduced together."""
    rows_reduced: int = 10_000
    """A task reduces at least so many rows before they move; fewer are reduced faster in the commit phase, with
    others."""
    file_rows: int = 250_000
    """A task spills at least so many rows to a file."""


class SpillingCommitter(BatchBolt, ICommitter):
    """A committer that holds Arrow rows; subclasses set ``_rows`` and ``_files`` to empty lists in ``prepare``."""

    spill_limits = SpillLimits()
    _rows: list[pa.Table]
    _files: list[RowsFile]

    def _spill(self, keys: Sequence[str]) -> None:
        """Write rows, if they are many, to a file, divided into parts by the columns ``keys``."""
        if sum(rows.num_rows for rows in self._rows) < self.spill_limits.file_rows:
            return
        staging = self.context.staging
        if staging is not None:
            name = f"{self.attempt.txid}-{self.attempt.attempt}-{self.context.this_task_index}"
            self._files += [write_rows_file(staging, name, rows, keys) for rows in _of_each_type(self._rows)]
            self._rows = []

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if "_rows" in state:
            state["_rows"] = [rows_to_bytes(rows) for rows in state["_rows"]]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_rows" in state:
            self._rows = [rows_of_bytes(encoded) for encoded in state["_rows"]]


class ReducingCommitter(SpillingCommitter):
    """A committer whose rows wait to be reduced together: once they are many, and before they move."""

    def _begin(self) -> None:
        self._rows = []
        self._files = []
        self._rows_waiting = self._rows_reduced = 0

    @abstractmethod
    def _merged(self, rows: pa.Table) -> pa.Table | None:
        """Return waiting rows as fewer ones that say the same; None if none has to wait any more."""

    def _wait_for(self, rows: pa.Table) -> None:
        """Keep rows until there are enough to reduce."""
        self._rows.append(rows)
        self._rows_waiting += rows.num_rows
        # Twice what the last reduction left, or a task with many keys would reduce the same rows again and again.
        if self._rows_waiting >= max(self.spill_limits.rows_waiting, 2 * self._rows_reduced):
            self._reduce()

    def _reduce(self) -> None:
        merged = map(self._merged, _of_each_type(self._rows))
        self._rows = [rows for rows in merged if rows is not None]
        self._rows_waiting = self._rows_reduced = sum(rows.num_rows for rows in self._rows)

    def _reduce_to_move(self, keys: Sequence[str]) -> None:
        """Reduce waiting rows that are worth it, and spill many of them to a file."""
        if self._rows:
            if self._rows_waiting >= self.spill_limits.rows_reduced:
                self._reduce()
            self._spill(keys)


def _of_each_type(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return rows in one table, or several: where a state has no types, they have those of the streams."""
    alike: list[list[pa.Table]] = []
    for table in tables:
        same = next((parts for parts in alike if parts[0].schema.equals(table.schema)), None)
        if same is None:
            alike.append([table])
        else:
            same.append(table)
    return [pa.concat_tables(parts) for parts in alike]
