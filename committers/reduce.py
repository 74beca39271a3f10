"""``ReduceCommitter``: fold a stream into a keyed table by a sum, a minimum or any associative function."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from committers.spill import SpillingCommitter
from txtopo import BatchOutputCollector, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.map_state import pairs_of
from txtopo.api.reduction import Combiner, Reduction
from txtopo.api.tuples import TupleSource
from txtopo.columnar.reducing import is_reducible, reduced

ROWS_WAITING_MAX = 1_000_000
"""How many rows wait, at least, before they are reduced together."""

ROWS_REDUCED_MIN = 10_000
"""A task reduces at least so many rows before they move; fewer are reduced faster with those of their commit group."""


_ALIKE = frozenset({str, int, float, bytes, bool, dt.date})
"""Classes of which either all values fit a type or none, except for numbers that are too large. A number needs no check
here, because only the sum must fit."""


class ReduceCommitter(SpillingCommitter):
    """Folds each key's values into a state, first within the batch, then into what the state holds.

    *You* must group the stream by the key fields, so that one task has all values of a key, and give an associative
    function, because batches are folded on the executors before the state's value is known.
    *txtopo* guarantees that each transaction is folded into each key exactly once.

    Integers are folded by ``operator.add``, ``min`` and ``max`` as Arrow columns all the way into the table, if the
    stream's fields have types or its keys are strings or integers. Keys and values must fit the types that the state
    declares, in whatever form they arrive: numpy numbers are folded as Python numbers, which never overflow, and a
    value that does not fit, such as ``1.0`` for a ``long``, raises a ``FieldsError``.

    Args:
        state: the name of the state in ``builder.set_state``.
        key: the field or fields of the key.
        value: the field to fold.
        function: combines two values into one; the sum by default. It must be defined in a module so that it can be
            pickled.
    """

    _source: TupleSource | None = None
    """The source of the last tuple, whose fields' positions are known."""

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
        """Start with nothing folded."""
        self._state = context.state(self._state_name)
        self._folded: dict[Any, Any] = {}
        self._rows = []
        self._rows_waiting = 0
        self._rows_reduced = 0
        self._files = []

    def combiner(self) -> Combiner | None:
        """Return a combiner of equal keys if it gives the same result; None if a subclass overrides the folding."""
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
        """Fold the rows of a record batch: as columns if their order does not matter, otherwise value by value."""
        rows = pa.Table.from_batches([batch]).select([*self._key, self._value])
        is_alike = not self._rows or rows.schema.equals(self._rows[0].schema)
        is_of_keys = self._value in self._key  # reduced columns need distinct names
        if Reduction.of(self._function) is None or is_of_keys or not is_alike or not is_reducible(rows, [self._value]):
            self._fold_rows(rows)
            return
        self._rows.append(rows)
        self._rows_waiting += rows.num_rows
        # Twice what the last reduction left, or a task with many keys would reduce the same rows again and again.
        if self._rows_waiting >= max(ROWS_WAITING_MAX, 2 * self._rows_reduced):
            self._reduce()

    def finish_batch(self) -> None:
        """Fold the batch into the state."""
        if self._folded:
            self._state.multi_reduce(self._folded, self._function)
        for rows in (*self._rows, *self._files):
            self._state.multi_reduce(rows, self._function)

    def __getstate__(self) -> dict[str, Any]:
        """Reduce waiting rows before the object moves to the commit phase; spill many rows to a file."""
        if self.__dict__.get("_rows"):
            if self._rows_waiting >= ROWS_REDUCED_MIN:
                self._reduce()
            self._spill(self._key)
        state = super().__getstate__()
        for name in ("_source", "_key_of", "_value_at", "_known"):  # only used in the processing phase
            state.pop(name, None)
        return state

    def _look_at(self, source: TupleSource) -> None:
        """Find the positions of the fields, once for the thousands of tuples from one source."""
        self._source = source
        self._key_of = operator.itemgetter(*map(source.fields.index, self._key))
        self._value_at = source.fields.index(self._value)

    def _reduce(self) -> None:
        """Reduce the waiting rows to one row per key."""
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
        """Fold one value; subclasses may call it from their own ``execute``."""
        if (key.__class__, value.__class__) not in self._known:
            key, value = self._fitted(key, value)
        folded = self._folded
        folded[key] = self._function(folded[key], value) if key in folded else value

    def _fitted(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Return key and value as they are folded; raise FieldsError if one does not fit the state's types."""
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
    """Return a numpy number as a Python number, and any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value
