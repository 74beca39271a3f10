"""The view of a state with mutable values: copies the values that a bolt gets and those that it puts.

States with immutable values, such as numbers and strings, need no such view: see :func:`seen_by_bolts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.api.copying import Copying
from txtopo.api.reduction import Reducible, Rows
from txtopo.api.state import Key, StateValue, Updater
from txtopo.transactional.commit.write_buffer import TransactionView, folded_by_key, of_key_and_old
from txtopo.transactional.tasks.state_handle import StateView


class CopyingView(StateView):
    """One transaction's view of a state, which gives bolts only copies of the values that the state keeps.

    Args:
        view: the transaction's own view, without copying.
        copying: how to copy values.
    """

    def __init__(self, view: TransactionView, copying: Copying) -> None:
        self.lock = view.lock
        self._view = view
        self._taken = copying.taken
        self._handed = copying.handed or _the_same

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the stored value of each key, including this transaction's own writes."""
        with self._view.in_sight(self._view.multi_get(keys)) as in_sight:
            return list(map(self._handed_whole, in_sight))

    def get(self, key: Key) -> StateValue | None:
        """Return the stored value of one key, including this transaction's own write."""
        self._view.step()
        return self._handed_whole(self._view.get(key))

    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key, unless its stored value contains this transaction already."""
        values = values if isinstance(values, Mapping) else dict(zip(values, of_keys or (), strict=True))
        with self._view.in_sight(values.items()) as in_sight:
            taken = {key: self._taken_whole(value) for key, value in in_sight}
        self._view.multi_put(taken)

    def put(self, key: Key, value: Any) -> None:
        """Put a value for one key, unless its stored value contains this transaction already."""
        self._view.step()
        self._view.put(key, self._taken_whole(value))

    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``; return the new values."""
        make_new, taken, handed = of_key_and_old(keys, function), self._taken, self._handed
        results = self._view.multi_update(keys, lambda key, old: taken(make_new(key, handed(old))))
        with self._view.in_sight(results) as in_sight:
            return list(map(handed, in_sight))

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of one key."""
        taken, handed = self._taken, self._handed
        self._view.step()
        return handed(self._view.update(key, lambda old: taken(function(handed(old)))))

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into the stored one: as rows if possible, otherwise key by key."""
        if isinstance(values, Mapping):
            with self._view.in_sight(values.items()) as in_sight:
                values = {key: self._taken(value) for key, value in in_sight}
        if self._view.fold_rows(values, function):
            return
        pairs = values.items() if isinstance(values, Mapping) else self._view.pairs(values)
        self.multi_update(*folded_by_key(pairs, function))

    def append(self, rows: Rows) -> None:
        """Add rows to a rows table."""
        self._view.append(rows)

    def replace_partitions(self, rows: Rows) -> None:
        """Replace the rows of earlier transactions in the partitions of ``rows``."""
        self._view.replace_partitions(rows)

    def as_rows(self, rows: Rows) -> pa.Table:
        """Return ``rows`` with the columns of the rows table."""
        return self._view.as_rows(rows)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key, unless its stored value contains this transaction already."""
        self._view.multi_remove(keys)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows, without those of this commit group."""
        return self._view.snapshot(txid)

    def _handed_whole(self, stored: StateValue | None) -> StateValue | None:
        return None if stored is None else stored.copied(self._handed)

    def _taken_whole(self, value: Any) -> Any:
        """Return a copy of a value to keep; bolts may put the stored value that ``get`` returned."""
        return value.copied(self._taken) if hasattr(value, "value_before") else self._taken(value)


def seen_by_bolts(view: TransactionView) -> StateView:
    """Return the view to pass to bolts: the given one if its values are immutable, otherwise a copying one."""
    copying = view.copying
    return view if copying is None else CopyingView(view, copying)


def _the_same(value: Any) -> Any:
    return value
