"""Put rows into a Delta table with one Delta write, in one of two ways.

- *Rewrite*: rows that the write does not touch are read from the handle's version and written, with the new rows,
  to the next version, which replaces all files.
- *Merge*: Delta's upsert.

Measured on two busy cores, interleaved, one file, medians in ms, merge / rewrite:

=========  ============  ============  ===========
keys       1 % touched   10 % touched  all touched
=========  ============  ============  ===========
10,000     12 / 9        13 / 7        16 / 8
100,000    39 / 24       35 / 21       74 / 28
1,000,000  387 / 117     613 / 133     1,342 / 762
=========  ============  ============  ===========

Rewrite holds the table in memory once, in Arrow. So it is used if the driver already has all rows in memory, for tables
of up to 1,000,000 rows, and if 10 % of the keys or more are touched. Merge is used otherwise, because it need not touch
every file. Both are equally safe: they start from the rows of the handle's version, read or cached for that version,
and write the version after it or fail (see :mod:`state.delta.log.ownership`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from state.delta.log.ownership import NO_HOOKS, Fence
from state.delta.read.reading import row_count, rows_without
from state.delta.schema import TXID_FIELD, without_removed
from txtopo.api.map_state import Key
from txtopo.api.reduction import PreparedWrites
from txtopo.api.values import StateValue

__all__ = ["RowWrites", "merge", "put_rows"]

REWRITE_ROWS_MAX = 1_000_000
"""Tables of up to this many rows are always rewritten."""

REWRITE_SHARE = 10
"""Larger tables are rewritten if at least one row in this many is touched."""


@attrs.frozen(eq=False)
class RowWrites(PreparedWrites):
    """The new value of each key, as Arrow rows with the table's columns.

    Args:
        rows: the rows, each key once; a row without a txid removes its key. Empty: only record the txid.
        values: the same as stored values, if they exist already and are to be cached.
    """

    rows: pa.Table
    values: Mapping[Key, StateValue | None] | None = None

    @property
    def rows_put(self) -> int:
        """The number of keys that the write puts or removes."""
        return int(self.rows.num_rows)


def put_rows(  # noqa: PLR0913, PLR0917 - the table, who writes, and what
    table: DeltaTable, fence: Fence, txid: int, rows: pa.Table, keys: Sequence[str], after: pa.Table | None
) -> pa.Table | None:
    """Insert or replace rows, as in :class:`RowWrites`, in the version after the handle's.

    ``after`` holds all rows of the version to write, if they are in memory; the result is the same.

    Raises:
        deltalake.exceptions.CommitFailedError: another writer took that version.
    """
    if rows.num_rows == 0:
        fence.mark(table, txid)
        return after
    if after is None and row_count(table) > max(REWRITE_ROWS_MAX, rows.num_rows * REWRITE_SHARE):
        merge(table, fence, txid, rows, keys)
        return None
    if after is None:
        after = without_removed(rows)
        if table.file_uris():
            after = pa.concat_tables([rows_without(table, rows.schema, rows.select(keys)), after])
    write_deltalake(
        table,
        after,
        mode="overwrite",
        commit_properties=fence.properties(txid),
        post_commithook_properties=NO_HOOKS,
    )
    return after


def merge(table: DeltaTable, fence: Fence, txid: int, rows: pa.Table, keys: Sequence[str]) -> None:
    """Merge the rows into the table by their keys; a row without a txid removes its key."""
    merger = table.merge(
        rows,
        " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in keys),
        source_alias="source",
        target_alias="target",
        commit_properties=fence.properties(txid),
        post_commithook_properties=NO_HOOKS,
    )
    if rows[TXID_FIELD].null_count:
        is_kept = f"source.{_quoted(TXID_FIELD)} IS NOT NULL"
        merger = merger.when_matched_delete(f"source.{_quoted(TXID_FIELD)} IS NULL")
        merger.when_matched_update_all(is_kept).when_not_matched_insert_all(is_kept).execute()
    else:
        merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
