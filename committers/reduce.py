"""Reduces a stream into a keyed table: a running sum, count, minimum or whatever a function makes of two values."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from committers.spill import SpillingCommitter
from txtopo import BatchOutputCollector, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.reduction import Combiner, Reduction, is_reducible, reduced
from txtopo.api.state import pairs_of
from txtopo.api.tuples import TupleSource

ROWS_WAITING_MAX = 1_000_000
"""Rows that wait to be reduced together, at least."""

ROWS_REDUCED_MIN = 10_000
"""Rows of a task from which on they are reduced before they travel; fewer are sooner reduced with their whole group."""


_ALIKE = frozenset({str, int, float, bytes, bool, dt.date})
"""Classes whose values fit a type all or none, but for numbers that are too large; what counts there is the sum."""


class ReduceCommitter(SpillingCommitter):
    """Folds each key's values into a state, first within the batch, then into what the state holds.

    *You* group the stream by the key fields, so that a key is one task's business, and give a function that
    is associative: batches are folded on the executors before the state's value is known. Whole numbers are folded
    by ``operator.add``, ``min`` and ``max`` as Arrow columns the whole way into the table, if the stream's fields
    have types, or else if its keys are texts or whole numbers.

    Keys and values obey the types that the state declares, whichever way they come: numpy's numbers are folded as
    Python's, which never wrap round, and one that does not fit, ``1.0`` for a ``long``, is refused.

    Args:
        state: the name of the state, set by ``builder.set_state``.
        key: the fields that make up the key.
        value: the field to fold.
        function: makes one value of two; the sum unless given. A function of a module, so that it pickles.
    """

    _source: TupleSource | None = None
    """Where the last tuple came from, whose fields are found."""

    _known: frozenset[tuple[type, type]] = frozenset()
    """Classes of keys and values that fit."""

    def __init__(
        self,
        state: str,
        key: str | Sequence[str],
        value: str,
        function: Callable[[Any, Any], Any] = operator.add,
    ) -> None:
        self._state_name = state
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._value = value
        self._function = function

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Begin with nothing folded."""
        self._state = context.state(self._state_name)
        self._folded: dict[Any, Any] = {}
        self._rows = []
        self._rows_waiting = 0
        self._rows_reduced = 0
        self._files = []

    def combiner(self) -> Combiner | None:
        """Let equal keys be made one row where that comes to the same; not where a subclass folds in its own way."""
        own = ("execute", "execute_batch", "fold")
        is_plain = all(getattr(type(self), name) is getattr(ReduceCommitter, name) for name in own)
        reduction = None if self._value in self._key else Reduction.of(self._function)
        return Combiner(self._key, self._value, reduction) if is_plain and reduction is not None else None

    def execute(self, tuple: Tuple) -> None:
        """Fold one value."""
        if tuple.source is not self._source:
            self._look_at(tuple.source)
        values = tuple.values
        self.fold(self._key_of(values), values[self._value_at])

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Fold the rows of a batch: as columns where their order does not matter, else value by value."""
        rows = pa.Table.from_batches([batch]).select([*self._key, self._value])
        is_alike = not self._rows or rows.schema.equals(self._rows[0].schema)
        is_of_keys = self._value in self._key  # columns that are reduced need names of their own
        if Reduction.of(self._function) is None or is_of_keys or not is_alike or not is_reducible(rows, [self._value]):
            self._fold_rows(rows)
            return
        self._rows.append(rows)
        self._rows_waiting += rows.num_rows
        if self._rows_waiting >= max(ROWS_WAITING_MAX, 2 * self._rows_reduced):
            self._reduce()

    def finish_batch(self) -> None:
        """Fold the batch into the state."""
        if self._folded:
            self._state.multi_reduce(self._folded, self._function)
        for rows in (*self._rows, *self._files):
            self._state.multi_reduce(rows, self._function)

    def __getstate__(self) -> dict[str, Any]:
        """Reduce what waits before it travels to the commit phase; what is large stays behind, in a file."""
        if self.__dict__.get("_rows"):
            if self._rows_waiting >= ROWS_REDUCED_MIN:
                self._reduce()
            self._spill(self._key)
        state = super().__getstate__()
        for name in ("_source", "_key_of", "_value_at", "_known"):  # how tuples of the processing phase are read
            state.pop(name, None)
        return state

    def _look_at(self, source: TupleSource) -> None:
        """Find the fields where they stand in the tuples of a source: tuples come by the thousand from one."""
        self._source = source
        self._key_of = operator.itemgetter(*map(source.fields.index, self._key))
        self._value_at = source.fields.index(self._value)

    def _reduce(self) -> None:
        """Make one row a key of all that waits."""
        reduction = Reduction.of(self._function)
        assert reduction is not None, "only what can be reduced waits"
        rows = pa.concat_tables(self._rows)
        made = reduced(rows, self._key, {self._value: reduction})
        self._rows, self._rows_waiting, self._rows_reduced = [], 0, 0
        if made is None:
            self._fold_rows(rows)
        else:
            self._rows.append(made)
            self._rows_waiting = self._rows_reduced = made.num_rows

    def _fold_rows(self, rows: pa.Table) -> None:
        for key, value in pairs_of(rows, len(self._key)):
            self.fold(key, value)

    def fold(self, key: Any, value: Any) -> None:
        """Fold one value; for subclasses whose ``execute`` makes key and value another way."""
        if (key.__class__, value.__class__) not in self._known:
            key, value = self._fitted(key, value)
        folded = self._folded
        folded[key] = self._function(folded[key], value) if key in folded else value

    def _fitted(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Return key and value as they are folded; refuse what does not fit the state's types."""
        key = tuple(map(_plain, key)) if type(key) is tuple else _plain(key)
        value = _plain(value)
        kinds = type(key), type(value)
        if kinds in self._known:
            return key, value
        own = self._state.fitted(key, value)
        if own is key and _ALIKE.issuperset(kinds):
            self._known |= {kinds}
        return own, value


def _plain(value: Any) -> Any:
    """Return a number of numpy's as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
