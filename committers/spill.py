"""Rows on their way from a committer's processing phase to its commit phase: large ones stay behind in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from txtopo import BatchBolt, ICommitter
from txtopo.api.reduction import RowsFile
from txtopo.columnar.rows_file import rows_of_bytes, rows_to_bytes, write_rows_file

FILE_ROWS_MIN = 250_000
"""Rows of one task from which on they travel in a file."""


class SpillingCommitter(BatchBolt, ICommitter):
    """A committer that holds Arrow rows: begun in ``prepare`` as ``_rows`` and ``_files``."""

    _rows: list[pa.Table]
    _files: list[RowsFile]

    def _spill(self, keys: Sequence[str]) -> None:
        """Leave the rows in a file if they are many.

        Args:
            keys: the columns that the file is sorted into parts by.
        """
        if sum(rows.num_rows for rows in self._rows) >= FILE_ROWS_MIN and self.context.staging_dir:
            name = f"{self.attempt.txid}-{self.attempt.attempt}-{self.context.this_task_index}"
            self._files.append(write_rows_file(self.context.staging_dir, name, pa.concat_tables(self._rows), keys))
            self._rows = []

    def __getstate__(self) -> dict[str, Any]:
        """Travel with the rows as Arrow's own bytes."""
        state = dict(self.__dict__)
        if "_rows" in state:
            state["_rows"] = [rows_to_bytes(rows) for rows in state["_rows"]]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on with what has travelled."""
        self.__dict__.update(state)
        if "_rows" in state:
            self._rows = [rows_of_bytes(encoded) for encoded in state["_rows"]]
