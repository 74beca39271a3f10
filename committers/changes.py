"""The changes of a keyed table as a stream: for each key that a transaction changes, its row before and its row after.

A row comes with ``diff``, -1 if the table had it before the transaction and 1 if it has it after. So a new key is one
row, a removed one another, and a changed one both. The two may differ in whatever the bolts below group by, which one
tuple with both could not be grouped by; and a filter or a projection of rows is one of changes, too. Kafka Streams
takes a change apart in the same way before it repartitions it.

The rows are those of one transaction against the one before it, though a commit group writes several at once: they are
told in the commit phase, where each transaction sees what the ones before it have put.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo import BatchOutputCollector, Fields, MapState
from txtopo.api.map_state import Key, folded_by_key, pairs_of, split_columns
from txtopo.api.reduction import Reducible, RowsFile
from txtopo.api.state import State
from txtopo.columnar.conversion import fitted_array
from txtopo.columnar.rows_file import in_memory

__all__ = ["CHANGES", "DIFF", "TableChanges", "folded", "silent_changes"]

CHANGES = "changes"
"""The stream of the changes of a committer's table."""

DIFF = "diff"
"""The field of changes that says whether a row was there before, -1, or is there after, 1."""


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

    def emit(self, collector: BatchOutputCollector, results: Callable[[pa.Table], pa.Table] | None = None) -> None:
        """Emit the rows before and after, or what ``results`` makes of them, each with its diff."""
        rows, diffs = self.rows()
        told = (rows if results is None else results(rows)).append_column(DIFF, diffs)
        for batch in told.combine_chunks().to_batches():
            collector.emit_batch(batch, CHANGES)

    def rows(self) -> tuple[pa.Table, pa.Array]:
        """Return the rows before and after, with the fields of key and value, and the diff of each."""
        rows = [*self._befores, *self._afters]
        columns: list[Any] = []
        for fields, given in ((self._key, [key for key, _ in rows]), (self._value, [value for _, value in rows])):
            for name, kind, values in zip(fields, fields.types, split_columns(given, len(fields)), strict=True):
                columns.append(fitted_array(name, values, kind, "in a change"))
        diffs = np.repeat([-1, 1], [len(self._befores), len(self._afters)])
        return pa.Table.from_arrays(columns, schema=(self._key + self._value).arrow_schema()), pa.array(diffs)


def silent_changes(name: str, streams: Collection[str], states: Mapping[str, State]) -> Iterator[str]:
    """Yield why the changes of a state can't be read, if somebody reads them."""
    state = states.get(name)
    if CHANGES in streams and state is not None and state.time_to_live is not None:
        yield (
            f"has the stream {CHANGES!r}, but the keys of state {name!r} expire, which it would not tell; leave out "
            "the ttl, or do not subscribe to it"
        )


def folded(
    state: MapState,
    rows: Reducible,
    function: Callable[[Any, Any], Any],
    is_gone: Callable[[Any], bool],
    changes: TableChanges | None,
) -> None:
    """Fold values into a state key by key, as :meth:`MapState.multi_reduce` does, and note what changes.

    Args:
        state: the state.
        rows: a value for each key, or rows.
        function: combines two values.
        is_gone: whether a value is none, so that its key is removed.
        changes: takes the changes; None: nobody reads them.
    """
    rows = in_memory(rows) if isinstance(rows, RowsFile) else rows
    keys, fold = folded_by_key(pairs_of(rows, len(state.key)), function)
    befores: dict[Key, Any] = {}

    def noted(key: Key, old: Any) -> Any:
        befores[key] = old
        return fold(key, old)

    afters = state.multi_update(keys, noted)
    gone = [key for key, after in zip(keys, afters, strict=True) if is_gone(after)]
    if gone:
        state.multi_remove(gone)
    if changes is not None:
        for key, after in zip(keys, afters, strict=True):
            if key in befores:  # or the table has this transaction already, and so have those below it
                changes.add(key, befores[key], None if is_gone(after) else after)
