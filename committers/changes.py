"""The changes of a keyed table as a stream: for each key that a transaction changes, its row before and its row after.

A row comes with ``diff``, -1 if the table had it before the transaction and 1 if it has it after. So a new key is one
row, a removed one another, and a changed one both. The two may differ in whatever the bolts below group by, which one
tuple with both could not be grouped by; and a filter or a projection of rows is one of changes, too. Kafka Streams
takes a change apart in the same way before it repartitions it.

The rows are those of one transaction against the one before it, though a commit group writes several at once: they are
told in the commit phase, where each transaction sees what the ones before it have put. A key expires in the transaction
that finds its time passed by the watermark after the one before: that removes it, so it is told once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from committers.event_time.timed import is_last_task
from txtopo import BatchOutputCollector, Fields, MapState, TopologyContext
from txtopo.api.map_state import Key, RowChanges, split_columns
from txtopo.columnar.conversion import fitted_array
from txtopo.columnar.equality import same_rows

__all__ = ["CHANGES", "DIFF", "TableChanges", "changed_rows", "emit_changes", "emit_expired"]

CHANGES = "changes"
"""The stream of the changes of a committer's table."""

DIFF = "diff"
"""The field of changes that says whether a row was there before, -1, or is there after, 1."""

Results = Callable[[pa.Table], pa.Table]
"""Returns what rows of a table show, row by row."""


class TableChanges:
    """What a task changes in a keyed table within one transaction, key by key.

    Args:
        key: the key fields, each with a type.
        value: the value fields of the table, each with a type.
    """

    def __init__(self, key: Fields, value: Fields) -> None:
        self._key, self._value = key, value
        self._befores: list[tuple[Key, Any]] = []
        self._afters: list[tuple[Key, Any]] = []

    def add(self, key: Key, before: Any, after: Any) -> None:
        """Add a change of a key, whose value was and is None if it has none."""
        if before == after:
            return
        if before is not None:
            self._befores.append((key, before))
        if after is not None:
            self._afters.append((key, after))

    def emit(self, collector: BatchOutputCollector) -> None:
        """Emit the rows before and after, each with its diff."""
        _emit(collector, self._rows(self._befores), self._rows(self._afters))

    def _rows(self, rows: list[tuple[Key, Any]]) -> pa.Table:
        columns: list[Any] = []
        for fields, given in ((self._key, [key for key, _ in rows]), (self._value, [value for _, value in rows])):
            for name, kind, values in zip(fields, fields.types, split_columns(given, len(fields)), strict=True):
                columns.append(fitted_array(name, values, kind, "in a change"))
        return pa.Table.from_arrays(columns, schema=(self._key + self._value).arrow_schema())


def emit_changes(collector: BatchOutputCollector, changes: RowChanges, results: Results) -> None:
    """Emit what rows showed before and what they show after, but for keys that show the same."""
    before, after = changed_rows(changes, results)
    _emit(collector, before, after)


def changed_rows(changes: RowChanges, results: Results) -> tuple[pa.Table, pa.Table]:
    """Return what rows showed before and what they show after, but for keys that show the same."""
    was, is_there = changes.was, changes.is_there
    before, after = results(changes.before.filter(pa.array(was))), results(changes.after.filter(pa.array(is_there)))
    in_both = was & is_there
    if not in_both.any():
        return before, after
    is_old, is_new = in_both[was], in_both[is_there]
    same = same_rows(before.filter(pa.array(is_old)), after.filter(pa.array(is_new)))
    if not same.any():
        return before, after
    for is_common in (is_old, is_new):
        is_common[is_common] = same
    return before.filter(pa.array(~is_old)), after.filter(pa.array(~is_new))


def emit_expired(collector: BatchOutputCollector, context: TopologyContext, state: MapState, results: Results) -> None:
    """Emit the rows of keys that have expired, once in a transaction: the last task does it for all of them."""
    if is_last_task(context):
        rows = results(state.remove_expired())
        _emit(collector, rows, rows.slice(0, 0))


def _emit(collector: BatchOutputCollector, before: pa.Table, after: pa.Table) -> None:
    """Emit rows that were there before, and rows that are there after."""
    diffs = np.repeat([-1, 1], [before.num_rows, after.num_rows])
    if not len(diffs):
        return
    told = pa.concat_tables([before, after]).append_column(DIFF, pa.array(diffs))
    for batch in told.combine_chunks().to_batches():
        collector.emit_batch(batch, CHANGES)
