"""Data files of a table, and writes that put files into its log."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from state.delta.schema import TXID_FIELD
from txtopo.api.reduction import PreparedWrites

_NAME = re.compile(r"bucket-(\d{3})-(\d{3})-[^/]*\.parquet")
BUCKET_ROWS = 500_000
"""Rows that a bucket should hold, about."""

_TEXT_MAX = 32

_LAST_CHARACTER = "\U0010ffff"
_BOUNDED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date)
"""Types whose lowest and highest value the log is told."""


@attrs.frozen
class DataFile:
    """A data file of a table, new or old.

    Args:
        path: relative to the table's folder.
        size: its bytes.
        rows: its rows.
        stats: what the log says of its columns, as JSON; empty for an old file.
        partition: the values of the table's partition columns, as the log has them.
    """

    path: str
    size: int
    rows: int
    stats: str = ""
    partition: Mapping[str, str | None] = attrs.field(factory=dict)

    @property
    def parts(self) -> tuple[int, int] | None:
        """The range of parts that it holds rows of; None if it is no bucket."""
        found = _NAME.fullmatch(Path(self.path).name)
        return None if found is None else (int(found[1]), int(found[2]))


@attrs.frozen(eq=False)
class FileWrites(PreparedWrites):
    """What is to be kept for each key, in data files that are in the table's folder already.

    Args:
        folder: the table's folder.
        added: the new files.
        removed: the files that they replace.
        rows_put: the keys that the group has touched.
        first_txid: the group's first transaction.
        version: the table's version that was folded into; None if it is not known.
        read: makes the mapping of rows.
    """

    folder: str
    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    rows_put: int
    first_txid: int
    version: int | None
    _read: Callable[[pa.Table], Mapping[Any, Any]]

    def mapping(self) -> Mapping[Any, Any]:
        """Read what is to be kept for each key."""
        rows = pa.concat_tables(pq.read_table(os.path.join(self.folder, file.path)) for file in self.added)  # noqa: PTH118
        return self._read(rows.filter(pc.greater_equal(rows[TXID_FIELD], self.first_txid)))


def stats_of(rows: pa.Table) -> dict[str, Any]:
    """Return what the log is to say of a file's columns, so that readers can skip it."""
    stats: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in rows.column_names:
        column = rows[name]
        if pa.types.is_nested(column.type):  # whose counts the log has in another form
            continue
        stats["nullCount"][name] = column.null_count
        if not any(is_kind(column.type) for is_kind in _BOUNDED) or column.null_count == len(column):
            continue
        bounds = pc.min_max(column).as_py()
        low, high = bounds["min"], bounds["max"]
        if isinstance(low, str):
            low, high = low[:_TEXT_MAX], _upper_bound(high)
        elif isinstance(low, dt.date):
            low, high = low.isoformat(), high.isoformat()
        stats["minValues"][name], stats["maxValues"][name] = low, high
    return stats


def _upper_bound(text: str) -> str:
    """Return a text that is no smaller, and seldom longer than a bound may be."""
    end = _TEXT_MAX
    while text[end : end + 1] == _LAST_CHARACTER:  # than which no character behind is larger
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER


def partition_text(value: Any) -> str:
    """Return a value of a partition column as Delta's log has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.date):
        return value.isoformat()
    return str(value)
