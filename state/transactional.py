"""Storm's state for coordinators and emitters of spouts: a tree of JSON values, and one that rotates by txid.

Source: Storm's ``TransactionalState.java`` and ``RotatingTransactionalState.java``. The rules of the latter are kept
exactly; ``tests/storm/test_rotating_state.py`` is Storm's test of it. There are two differences. A value is durable
before it is cached here, so that a failed write has no effect. And every returned value equals the value that a restart
would read: values are kept as JSON, so a tuple is returned as a list from the first call on, and a change of a returned
value does not change the state.

Not thread-safe; a coordinator is one thread.
"""

from __future__ import annotations

import builtins
import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from txtopo.api.arguments import checked_arguments
from txtopo.api.store import Delete, Lead, Put, Store
from txtopo.attempts import FIRST_TXID
from txtopo.errors import StateAccessError

ENTRIES_MAX = 10_000
"""The default maximum number of entries of a rotating state."""

Initializer = Callable[[int, Any], Any]
"""Returns the state of a transaction, given its txid and the previous state (None if there is none)."""


class TransactionalState:
    """A tree of JSON values below one path of a store.

    It works over every :class:`~txtopo.api.store.Store`. Reads go to the store, writes go through the
    lead, which fences them. It owns neither of them: closing it leaves both open.

    Args:
        store: the store that holds the values.
        lead: the lead of the topology that ``root`` belongs to; None for reading only.
        root: the path above all values, ``"<topology id>/user/<component>"`` by convention.
    """

    @checked_arguments
    def __init__(self, store: Store, lead: Lead | None, root: str) -> None:
        self.root = root
        self._store = store
        self._lead = lead
        self._closed = False

    def set_data(self, path: str, value: Any) -> None:
        """Set the value at ``path`` below the root (``"meta/17"``); durable on return. The parents need not exist.

        Raises:
            StateAccessError: JSON cannot represent the value, it is too long, or the state is closed or read-only.
            LostLead: another process leads the topology; nothing was written.
        """
        encoded = self._encoded(path, value)
        self._writer().write([Put(self._full(path), encoded)])

    def get_data(self, path: str) -> Any:
        """Return the value at ``path``, or None."""
        data = self._open().read(self._full(path))
        return None if data is None else json.loads(data)

    def delete(self, path: str) -> None:
        """Remove the value at ``path`` and all values below it; do nothing if there are none."""
        self.delete_all([path])

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove several paths, as :meth:`delete` does, in one step."""
        self._writer().write([Delete(self._full(path)) for path in paths])

    def list(self, path: str) -> builtins.list[str]:
        """Return the sorted names directly below ``path``; empty if there are none."""
        return self._open().children(self._full(path))

    def close(self) -> None:
        """Close this state; the store and the lead stay open."""
        self._closed = True

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _open(self) -> Store:
        if self._closed:
            raise StateAccessError(f"the state {self.root!r} is closed: use it only before close()")
        return self._store

    def _writer(self) -> Lead:
        self._open()
        if self._lead is None:
            raise StateAccessError(
                f"the state {self.root!r} is read-only, because it was opened without a lead: "
                "write it in the coordinator, which has a lead"
            )
        return self._lead

    def _encoded(self, path: str, value: Any) -> bytes:
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise StateAccessError(
                f"the value for {self._full(path)!r} cannot be kept as JSON: {error}; "
                "use dicts with string keys, lists, strings, numbers, booleans and None"
            ) from error


class RotatingTransactionalState:
    """A map from txid to a value; old txids are removed once they are committed.

    *You* must call :meth:`cleanup_before` as transactions are committed.
    *txtopo* guarantees that every entry is durable before a method returns it.

    Args:
        state: the state that holds the entries; those of an earlier run are read here.
        subdir: the path of the entries in ``state``; must not be used for anything else.
        strict_order: whether each txid may only be created directly after the one before it, starting at 1.
        entries_max: the maximum number of entries; a bound for the case that :meth:`cleanup_before` is not called.

    Raises:
        StateAccessError: names below ``subdir`` are not txids, or there are too many entries.
    """

    @checked_arguments
    def __init__(
        self,
        state: TransactionalState,
        subdir: str,
        strict_order: bool = False,  # noqa: FBT001, FBT002  # Storm's signature
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self.entries_max = entries_max
        self._state = state
        self._subdir = subdir
        self._strict_order = strict_order
        self._entries: dict[int, str] = {}
        self._read_back()

    def get_last_state(self) -> Any:
        """Return the value of the highest txid, or None if there are no entries."""
        return self._value(max(self._entries)) if self._entries else None

    def override_state(self, txid: int, value: Any) -> None:
        """Set the value of ``txid``, in any order."""
        self._set(txid, value)

    def remove_state(self, txid: int) -> None:
        """Remove the entry of ``txid``, if there is one."""
        if txid in self._entries:
            self._state.delete(self._path(txid))
            del self._entries[txid]

    def get_state(self, txid: int, initializer: Initializer) -> Any:
        """Return the value of ``txid``, or create it with ``initializer(txid, previous)``.

        If a higher txid already has an entry, ``txid`` is *skipped*: its value is None, and the initializer is not
        called.

        Raises:
            StateAccessError: with ``strict_order``, the last entry is not that of ``txid - 1``; or there are too many
                entries.
        """
        if txid not in self._entries:
            txids = sorted(self._entries)
            position = bisect_left(txids, txid)
            previous_txid = txids[position - 1] if position else None
            next_txid = txids[position] if position < len(txids) else None
            if self._strict_order:
                self._check_order(txid, previous_txid, next_txid)
            # Before the initializer: the user's code runs only for an entry that can be kept.
            self._check_room(txid)
            if next_txid is not None:
                value = None
            else:
                value = initializer(txid, None if previous_txid is None else self._value(previous_txid))
            self._set(txid, value)
        return self._value(txid)

    def get_state_or_create(self, txid: int, initializer: Initializer) -> Any:
        """Return the value of ``txid``; None if this call created or skipped it."""
        if txid in self._entries:
            return self._value(txid)
        self.get_state(txid, initializer)
        return None

    def has_cache(self, txid: int) -> bool:
        """Whether ``txid`` has an entry."""
        return txid in self._entries

    def cleanup_before(self, txid: int) -> None:
        """Remove all entries below ``txid``."""
        old = [txid_before for txid_before in sorted(self._entries) if txid_before < txid]
        if old:
            self._state.delete_all([self._path(txid_before) for txid_before in old])
            for txid_before in old:
                del self._entries[txid_before]

    def _check_order(self, txid: int, previous_txid: int | None, next_txid: int | None) -> None:
        if previous_txid is None and txid != FIRST_TXID:
            problem = f"there is no state of transaction {txid - 1}"
        elif previous_txid is not None and previous_txid != txid - 1:
            problem = f"the previous state is that of transaction {previous_txid}, not of {txid - 1}"
        elif next_txid is not None:
            problem = f"the later transaction {next_txid} already has a state"
        else:
            return
        raise StateAccessError(
            f"the state {self._name()} is strictly ordered, so that of transaction {txid} cannot "
            f"be created: {problem}; create them one after another, starting at {FIRST_TXID}",
            txid=txid,
        )

    def _check_room(self, txid: int) -> None:
        if len(self._entries) >= self.entries_max:
            raise StateAccessError(
                f"the state {self._name()} holds {len(self._entries):,} transactions, from "
                f"{min(self._entries)} on; its limit is {self.entries_max:,}: "
                "call cleanup_before(txid) as transactions are committed, or raise entries_max",
                txid=txid,
            )

    def _set(self, txid: int, value: Any) -> None:
        if txid not in self._entries:
            self._check_room(txid)
        # The store first, here and in each removal: if its write fails, the entries still equal what a restart reads.
        self._state.set_data(self._path(txid), value)
        self._entries[txid] = json.dumps(value)

    def _value(self, txid: int) -> Any:
        return json.loads(self._entries[txid])

    def _name(self) -> str:
        return f"{self._state.root}/{self._subdir}"

    def _path(self, txid: int) -> str:
        return f"{self._subdir}/{txid}"

    def _read_back(self) -> None:
        names = self._state.list(self._subdir)
        if len(names) > self.entries_max:
            raise StateAccessError(
                f"the state {self._name()} holds {len(names):,} transactions, more than entries_max "
                f"({self.entries_max:,}): raise it"
            )
        for name in names:
            if not name.isdecimal():
                raise StateAccessError(
                    f"{name!r} below {self._name()} is not a txid: give each rotating state a path of its own"
                )
            self._entries[int(name)] = json.dumps(self._state.get_data(self._path(int(name))))
