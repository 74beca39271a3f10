"""States as the transactions of a commit group see them: what is durable, below what the group has put.

A group's writes are gathered in memory and made durable together. Each transaction writes into a layer of
its own, which is merged into the group's when its commit phase is over, and thrown away if it fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.contracts.state import Key, MapState, OpenedState, StateValue, Updater
from txtopo.errors import StateAccessError


class GroupState:
    """One state during one commit group."""

    def __init__(self, opened: OpenedState) -> None:
        self.opened = opened
        self.written: dict[Key, StateValue | None] = {}
        """What the finished transactions of the group have put; None for what they have removed."""

    def begin(self, txid: int) -> TransactionView:
        """Return the state as transaction ``txid`` sees it."""
        return TransactionView(self, txid)


class TransactionView(MapState):
    """One state as one transaction of a group sees it."""

    def __init__(self, group: GroupState, txid: int) -> None:
        self._group = group
        self._txid = txid
        self._own: dict[Key, StateValue | None] = {}
        self._unchecked: set[Key] = set()
        self._is_over = False

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return what is kept for each key, this transaction's own writes included."""
        self._check_running()
        own, before = self._own, self._before(keys)
        return [own[key] if key in own else before[key] for key in keys]

    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key; a key that has this transaction in it already stays as it is."""
        self._check_running()
        values = values if isinstance(values, Mapping) else dict(zip(values, of_keys or (), strict=True))
        before = self._before(values)
        for key, value in values.items():
            self._write(key, before.get(key), self._bare(value))

    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``; return the new values."""
        self._check_running()
        make_new = of_key_and_old(keys, function)
        own, before, txid = self._own, self._before(keys), self._txid
        make_value = self._group.opened.make_value
        self._unchecked.update(keys)
        results = []
        for key in keys:
            is_own = key in own
            stored = own[key] if is_own else before[key]
            if not is_own and stored is not None and stored.is_applied(txid):
                results.append(stored.value)
                continue
            old = None if stored is None else stored.value if is_own else stored.value_before(txid)
            new = make_new(key, old)
            own[key] = make_value(txid, new) if stored is None else stored.written(txid, new)
            results.append(new)
        return results

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key; one that has this transaction in it already stays as it is."""
        self._check_running()
        before = self._before(keys)
        for key in keys:
            stored = before.get(key)
            if stored is None or not stored.is_applied(self._txid):
                self._own[key] = None
                self._unchecked.add(key)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows: those of this commit group are not among them."""
        self._check_running()
        return self._group.opened.snapshot(txid)

    def check(self) -> None:
        """Refuse what does not fit the state's fields, while it is known whose it is.

        Raises:
            FieldsError: a key or value that was put since the last check does not fit.
        """
        if len(self._unchecked):
            own = self._own
            self._group.opened.check(self._txid, {key: own[key] for key in self._unchecked if key in own})
            self._unchecked = set()

    def finish(self) -> None:
        """Merge this transaction's writes into the group's."""
        self._group.written.update(self._own)
        self._is_over = True

    def discard(self) -> None:
        """Throw this transaction's writes away."""
        self._own.clear()
        self._is_over = True

    def _bare(self, value: Any) -> Any:
        """Return the value of what ``get`` returned, which some put back whole, as in Storm."""
        if not hasattr(value, "value_before"):
            return value
        txid = getattr(value, "txid", self._txid)
        if txid != self._txid:
            raise StateAccessError(
                f"a value of transaction {txid} was put in transaction {self._txid}; put the bare value"
            )
        return value.value

    def _write(self, key: Key, stored: StateValue | None, value: Any) -> None:
        """Put one value into this transaction's own layer."""
        mine = self._own.get(key)
        if mine is None and stored is not None and stored.is_applied(self._txid):
            return
        base = mine if mine is not None else stored
        make = self._group.opened.make_value
        self._own[key] = make(self._txid, value) if base is None else base.written(self._txid, value)
        self._unchecked.add(key)

    def _before(self, keys: Sequence[Key] | Mapping[Key, Any]) -> dict[Key, StateValue | None]:
        """Return what was kept before this transaction, for the keys it has not written yet."""
        own, written = self._own, self._group.written
        found: dict[Key, StateValue | None] = {}
        missing = []
        for key in keys:
            if key not in own:
                if key in written:
                    found[key] = written[key]
                else:
                    missing.append(key)
        if missing:
            found.update(zip(missing, self._group.opened.multi_get(missing), strict=True))
        return found

    def _check_running(self) -> None:
        if self._is_over:
            raise StateAccessError(
                f"a state was kept beyond the commit phase of transaction {self._txid}; "
                "ask context.state() for it anew in prepare()"
            )


def of_key_and_old(keys: Sequence[Key], function: Updater) -> Callable[[Any, Any], Any]:
    """Return an updater of several keys as a function of key and old value."""
    if not callable(function):
        by_key = dict(zip(keys, function, strict=True))
        return lambda key, old: by_key[key](old)
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        of_old: Any = function
        return lambda _, old: of_old(old)
    except ValueError:  # a builtin without a signature
        pass
    of_both: Any = function
    return of_both  # type: ignore[no-any-return]
