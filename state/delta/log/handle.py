"""A handle of a table that knows its application transactions by one pass over its log.

delta-rs 1.6 reads all entries since the last checkpoint anew for each application transaction that it is asked for. A
start asks for a dozen of them: of a table in a bucket that was 24 of 30 requests for each entry.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from state.delta.log.damage import LOG_FOLDER
from state.delta.log.kept import checkpoint_until
from txtopo.files.durable import in_background
from txtopo.files.folder import Folder

_CHECKPOINT = ".checkpoint.parquet"
"""The end of the name of a checkpoint that is all in one file."""

_RETENTION = "delta.setTransactionRetentionDuration"
"""The property by which application transactions are forgotten."""


class Handle(DeltaTable):
    """A handle of a version of a table, whose log is in a folder; otherwise as delta-rs' own."""

    def __init__(self, folder: Folder, address: str, version: int | None, options: dict[str, str] | None) -> None:
        super().__init__(address, version=version, storage_options=options)
        self._folder = folder
        self._known: tuple[int, Mapping[str, int] | None] = (-1, {})
        """A version and its application transactions; None where only delta-rs can tell."""

    def transaction_version(self, app_id: str) -> int | None:
        """Return an application transaction's number, None without one; raise DeltaError if the log can't be read."""
        version = self.version()
        if self._known[0] != version:
            self._known = version, self._transactions(version)
        txids = self._known[1]
        return super().transaction_version(app_id) if txids is None else txids.get(app_id)

    def _transactions(self, version: int) -> Mapping[str, int] | None:
        if _RETENTION in self.metadata().configuration:
            return None
        since, txids = self._known
        try:
            if txids is None or not 0 <= since < version:
                since, txids = self._of_checkpoint(version)
            paths = [f"{LOG_FOLDER}/{number:020d}.json" for number in range(since + 1, version + 1)]
            # In a bucket many at a time: each waits for its answer.
            entries = [in_background(functools.partial(self._folder.get, path)) for path in paths]
            return {**txids, **{name: number for entry in entries for name, number in _in_entry(entry()).items()}}
        # What is missing or damaged, or is no log of this protocol, delta-rs reads or says what it is.
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
            return None

    def _of_checkpoint(self, version: int) -> tuple[int, Mapping[str, int]]:
        """Return the number of the newest checkpoint up to a version, and what it has; -1 and nothing without one."""
        newest, files = checkpoint_until(self._folder, version)
        if not files:
            return -1, {}
        (file,) = files  # a ValueError if it is in parts
        if not file.endswith(_CHECKPOINT):
            raise ValueError(file)
        content = pq.ParquetFile(pa.BufferReader(self._folder.get(file)))
        rows = content.read(columns=["txn.appId", "txn.version"])["txn"].drop_null().to_pylist()
        return newest, {row["appId"]: row["version"] for row in rows if row["appId"] is not None}


def _in_entry(content: bytes) -> dict[str, int]:
    actions: list[dict[str, Any]] = [json.loads(line) for line in content.splitlines() if b'"txn"' in line]
    transactions = [action["txn"] for action in actions if action.get("txn") is not None]
    return {str(each["appId"]): int(each["version"]) for each in transactions}
