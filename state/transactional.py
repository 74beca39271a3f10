"""Storm's state for coordinators and emitters of spouts: a tree of JSON values, and one rotating by txid.

Source: Storm's ``TransactionalState.java`` and ``RotatingTransactionalState.java``; the rules of the latter
are kept to the letter, and ``tests/storm/test_rotating_state.py`` is its own test. Two things differ. A value
is durable before it is remembered here, so that a failed write leaves nothing behind. And what is returned
is always what a restart would read back: values are kept as JSON, so a tuple comes back as a list from the
first call on, and changing what was returned changes nothing in the state.

Not for several threads at once; a coordinator is one thread.
"""

from __future__ import annotations

import builtins
import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from txtopo.api.store import Delete, Lead, Put, Store
from txtopo.attempts import FIRST_TXID
from txtopo.errors import StateAccessError

__all__ = ["ENTRIES_MAX", "Initializer", "RotatingTransactionalState", "TransactionalState"]

ENTRIES_MAX = 10_000
"""How many transactions a rotating state remembers, unless it is told otherwise."""

Initializer = Callable[[int, Any], Any]
"""Makes the state of a transaction from its txid and the state before it (None if there is none)."""


class TransactionalState:
    """A tree of JSON values below one path of a store.

    It works over every :class:`~txtopo.api.store.Store`. Reads go to the store, writes through the
    lead, which fences them. It owns neither: closing it leaves both open.

    Args:
        store: where the values lie.
        lead: the right to write, of the topology that ``root`` belongs to; None for reading only.
        root: the path that all others are below, ``"<topology id>/user/<component>"`` by custom.
    """

    def __init__(self, store: Store, lead: Lead | None, root: str) -> None:
        self.root = root
        self._store = store
        self._lead = lead
        self._closed = False

    def set_data(self, path: str, value: Any) -> None:
        """Set the value at ``path``, whose parents need not exist; durable on return.

        Args:
            path: relative to the root, for example ``"meta/17"``.
            value: anything JSON can hold.

        Raises:
            StateAccessError: the value is not JSON-able or too long, or the state is closed, or for reading
                only.
            LostLead: another process leads the topology; nothing was written.
        """
        encoded = self._encoded(path, value)
        self._writer().write([Put(self._full(path), encoded)])

    def get_data(self, path: str) -> Any:
        """Return the value at ``path``; None where there is none."""
        data = self._open().read(self._full(path))
        return None if data is None else json.loads(data)

    def delete(self, path: str) -> None:
        """Remove the value at ``path`` and all below it; it is no error if there is nothing."""
        self.delete_all([path])

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove several paths, as :meth:`delete` does, in one step."""
        self._writer().write([Delete(self._full(path)) for path in paths])

    def list(self, path: str) -> builtins.list[str]:
        """Return the sorted names directly below ``path``; empty where there are none."""
        return self._open().children(self._full(path))

    def close(self) -> None:
        """End the use of this state; the store and the lead stay open."""
        self._closed = True

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _open(self) -> Store:
        if self._closed:
            raise StateAccessError(f"the state {self.root!r} was closed: use it before close() only")
        return self._store

    def _writer(self) -> Lead:
        self._open()
        if self._lead is None:
            raise StateAccessError(
                f"the state {self.root!r} was opened for reading only, without a lead: "
                "write it in the coordinator, which has one"
            )
        return self._lead

    def _encoded(self, path: str, value: Any) -> bytes:
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise StateAccessError(
                f"the value for {self._full(path)!r} cannot be kept as JSON: {error}; "
                "use dicts with text keys, lists, text, numbers, booleans and None"
            ) from error


class RotatingTransactionalState:
    """A map from txid to a value, from which old txids are removed once they are committed.

    Args:
        state: where the entries are kept; those of an earlier run are read back here.
        subdir: the path in ``state`` that they lie below, used for nothing else.
        strict_order: whether each txid may only be created right after the one before it, from 1 on.
        entries_max: how many entries there may be; more means that nobody calls :meth:`cleanup_before`.

    Raises:
        StateAccessError: what lies below ``subdir`` are not txids, or there are too many.
    """

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
        """Return the value of the highest txid; None if there are no entries."""
        return self._value(max(self._entries)) if self._entries else None

    def override_state(self, txid: int, value: Any) -> None:
        """Set the value of ``txid``, whatever the order."""
        self._set(txid, value)

    def remove_state(self, txid: int) -> None:
        """Remove the entry of ``txid``, if there is one."""
        if txid in self._entries:
            self._state.delete(self._path(txid))
            del self._entries[txid]

    def get_state(self, txid: int, initializer: Initializer) -> Any:
        """Return the value of ``txid``, made by ``initializer(txid, previous)`` if there is none.

        A txid below one that has an entry already is *skipped*: it gets None, without the initializer.

        Raises:
            StateAccessError: strict order is asked for, and the txid before is not the last entry; or there
                are too many entries.
        """
        if txid not in self._entries:
            txids = sorted(self._entries)
            position = bisect_left(txids, txid)
            previous_txid = txids[position - 1] if position else None
            next_txid = txids[position] if position < len(txids) else None
            if self._strict_order:
                self._check_order(txid, previous_txid, next_txid)
            self._check_room(txid)
            if next_txid is not None:
                value = None
            else:
                value = initializer(txid, None if previous_txid is None else self._value(previous_txid))
            self._set(txid, value)
        return self._value(txid)

    def get_state_or_create(self, txid: int, initializer: Initializer) -> Any:
        """Return the value of ``txid``; None if it was created, or skipped, by this call."""
        if txid in self._entries:
            return self._value(txid)
        self.get_state(txid, initializer)
        return None

    def has_cache(self, txid: int) -> bool:
        """Whether ``txid`` has an entry."""
        return txid in self._entries

    def cleanup_before(self, txid: int) -> None:
        """Remove all entries below ``txid``."""
        old = [other for other in sorted(self._entries) if other < txid]
        if old:
            self._state.delete_all([self._path(other) for other in old])
            for other in old:
                del self._entries[other]

    def _check_order(self, txid: int, previous_txid: int | None, next_txid: int | None) -> None:
        if previous_txid is None and txid != FIRST_TXID:
            problem = f"there is no state of transaction {txid - 1}"
        elif previous_txid is not None and previous_txid != txid - 1:
            problem = f"the state before it is that of transaction {previous_txid}, not of {txid - 1}"
        elif next_txid is not None:
            problem = f"the later transaction {next_txid} has a state already"
        else:
            return
        raise StateAccessError(
            f"the state {self._name()} is strictly ordered, and that of transaction {txid} cannot "
            f"be made: {problem}; ask for them one after another, from {FIRST_TXID} on",
            txid=txid,
        )

    def _check_room(self, txid: int) -> None:
        if len(self._entries) >= self.entries_max:
            raise StateAccessError(
                f"the state {self._name()} holds {len(self._entries):,} transactions, from "
                f"{min(self._entries)} on, and takes no more than {self.entries_max:,}: "
                "call cleanup_before(txid) as transactions are committed, or raise entries_max",
                txid=txid,
            )

    def _set(self, txid: int, value: Any) -> None:
        if txid not in self._entries:
            self._check_room(txid)
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
