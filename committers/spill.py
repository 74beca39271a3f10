"""Move a committer's rows from the processing phase to the commit phase; many rows are spilled to a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from txtopo import BatchBolt, ICommitter
from txtopo.api.reduction import RowsFile
from txtopo.columnar.rows_file import rows_of_bytes, rows_to_bytes, write_rows_file

FILE_ROWS_MIN = 250_000
"""A task spills at least so many rows to a file."""


class SpillingCommitter(BatchBolt, ICommitter):
    """A committer that holds Arrow rows; subclasses set ``_rows`` and ``_files`` to empty lists in ``prepare``."""

    _rows: list[pa.Table]
    _files: list[RowsFile]

    def _spill(self, keys: Sequence[str]) -> None:
        """Write at least ``FILE_ROWS_MIN`` rows to a file, divided into parts by the columns ``keys``."""
        if sum(rows.num_rows for rows in self._rows) >= FILE_ROWS_MIN and self.context.staging_dir:
            name = f"{self.attempt.txid}-{self.attempt.attempt}-{self.context.this_task_index}"
            self._files.append(write_rows_file(self.context.staging_dir, name, pa.concat_tables(self._rows), keys))
            self._rows = []

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the rows as Arrow IPC bytes."""
        state = dict(self.__dict__)
        if "_rows" in state:
            state["_rows"] = [rows_to_bytes(rows) for rows in state["_rows"]]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the rows from Arrow IPC bytes."""
        self.__dict__.update(state)
        if "_rows" in state:
            self._rows = [rows_of_bytes(encoded) for encoded in state["_rows"]]
