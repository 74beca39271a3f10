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
import pyarrow as pa

from committers.event_time.timed import is_last_task
from txtopo import BatchOutputCollector, MapState, TopologyContext
from txtopo.api.map_state import RowChanges
from txtopo.columnar.equality import same_rows

__all__ = ["CHANGES", "DIFF", "changed_rows", "emit_changes", "emit_expired"]

CHANGES = "changes"
"""The stream of the changes of a committer's table."""

DIFF = "diff"
"""The field of changes that says whether a row was there before, -1, or is there after, 1."""

Results = Callable[[pa.Table], pa.Table]
"""Returns what rows of a table show, row by row."""


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
