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

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from committers.event_time.timed import is_last_task
from txtopo import BatchOutputCollector, MapState, TopologyContext
from txtopo.api.map_state import RowChanges
from txtopo.columnar.equality import same_rows

CHANGES = "changes"
"""The stream of the changes of a committer's table."""

DIFF = "diff"
"""The field of changes that says whether a row was there before, -1, or is there after, 1."""

Results = Callable[[pa.Table], pa.Table]
"""Returns what rows of a table show, row by row."""


def emit_changes(collector: BatchOutputCollector, changes: RowChanges, results: Results) -> None:
    """Emit what rows showed before and what they show after, but for keys that show the same."""
    was, is_there = changes.was, changes.is_there
    every = pa.concat_tables([changes.before, changes.after]).combine_chunks()
    # Rows of both in one piece: of 1,000 keys the calls cost more than the rows do.
    rows = results(_of(every, np.concatenate([was, is_there])))
    before = int(was.sum())
    diffs = np.repeat([-1, 1], [before, rows.num_rows - before])
    in_both = was & is_there
    if in_both.any():
        is_old, is_new = in_both[was], in_both[is_there]
        is_unchanged = same_rows(_of(rows.slice(0, before), is_old), _of(rows.slice(before), is_new))
        for is_common in (is_old, is_new):
            is_common[is_common] = is_unchanged
        is_told = ~np.concatenate([is_old, is_new])
        rows, diffs = _of(rows, is_told), diffs[is_told]
    _emit(collector, rows, diffs)


def emit_expired(collector: BatchOutputCollector, context: TopologyContext, state: MapState, results: Results) -> None:
    """Emit the rows of keys that have expired, once in a transaction: the last task does it for all of them."""
    if is_last_task(context):
        rows = state.remove_expired()
        if rows.num_rows:
            _emit(collector, results(rows), np.full(rows.num_rows, -1))


def _of(rows: pa.Table, is_in: npt.NDArray[np.bool_]) -> pa.Table:
    return rows if is_in.all() else rows.filter(pa.array(is_in))


def _emit(collector: BatchOutputCollector, rows: pa.Table, diffs: npt.NDArray[np.int64]) -> None:
    """Emit rows with what each counts: those that were there before come first."""
    for batch in rows.append_column(DIFF, pa.array(diffs)).combine_chunks().to_batches():
        collector.emit_batch(batch, CHANGES)
