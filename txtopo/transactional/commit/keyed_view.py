"""A keyed state during a commit group.

A layer holds *bare* values: a key's value alone, without the txid and the previous value that the state stores beside
it. A :data:`~txtopo.api.values.StateValue` is made only where somebody reads one: that takes half the time of a commit
phase that touches thousands of keys.

What a transaction puts becomes rows when it is checked, and the state folds the rows of all transactions at once; one
that does not fold gets each key's last value. As long as transactions only fold values into keys, these are rows from
the start. The first access to a single key ends that: the rows are then folded key by key, here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NoReturn

import attrs

from txtopo.api.data.fields import Fields
from txtopo.api.map_state import Key, Updater, folded_by_key, of_key_and_old
from txtopo.api.reduction import Folding, Reducible, Reduction, TransactionRows
from txtopo.api.state import ExpiresKeys, FoldsRows, KeyedWrites, OpenedState, Writes
from txtopo.api.time_to_live import CLOCK_FIELD, CLOCK_KEY
from txtopo.api.values import (
    StateKind,
    StateValue,
    TransactionalValue,
    is_stored_value,
    stored_value,
    values_before,
)
from txtopo.errors import FailedException, RuleError, StateAccessError, TxtopoError
from txtopo.transactional.commit.views import GroupState, TransactionView, raise_as_of_state

_REMOVED: Any = object()
"""In place of the value of a removed key."""

_MISSING: Any = object()
"""In place of the value of a key that no transaction of the group has put."""


@attrs.define(eq=False)
class _Fold:
    """Rows that a component has folded; the component is known once it has finished."""

    rows: TransactionRows
    component: str | None = None


class KeyedGroup(GroupState):
    """A keyed state during one commit group."""

    def __init__(self, opened: OpenedState) -> None:
        super().__init__(opened)
        self.clock: GroupState | None = None
        """The state with the watermark, if keys expire."""
        self._until: int | None = None
        """The time up to which keys had expired for the last transaction that has written."""
        self.kind = opened.declared.kind
        self.values: dict[Key, Any] = {}
        """The bare values that the group's finished transactions have put."""
        self.has_removed = False
        """Whether a key may be removed."""
        self.reduction: Folding | None = None
        self._txids: dict[Key, int] = {}
        self._before: dict[Key, Any] = {}
        """What was put before the last transaction that has put a key, by one of the group, if the state is opaque."""
        self._folds = opened if isinstance(opened, FoldsRows) else None
        self._folded: list[_Fold] = []
        self._put: list[TransactionRows] = []
        """What the finished transactions have put, as rows, if the state folds rows."""
        self._is_by_key = False

    def begin(self, txid: int) -> KeyedView:
        """Return the view of transaction ``txid``, which begins now: those before it have finished."""
        return KeyedView(self, txid, self._expired_until(txid))

    def _expired_until(self, txid: int) -> int | None:
        """Return the time up to which keys have expired as of now; None if they do not expire."""
        ttl, opened = self.opened.declared.time_to_live, self.opened
        if ttl is None or self.clock is None:
            return None
        assert isinstance(opened, ExpiresKeys), "the keys of other states do not expire"
        row: Any = self.clock.begin(txid).get(CLOCK_KEY)
        watermark = None if row is None else _field(row.value, self.clock.opened.declared.value, CLOCK_FIELD)
        durable = opened.expired_until(watermark)
        return durable if watermark is None else max(durable, ttl.until(watermark))

    @functools.cached_property
    def reached(self) -> int:
        """The last transaction that a durable value may include."""
        try:
            return self.opened.last_txid or 0
        except FailedException as error:
            raise_as_of_state(error)

    def txid_of(self, key: Key) -> int:
        """Return the last transaction of the group that has put a key."""
        return self._txids[key]

    def take(self, view: KeyedView, folded: Sequence[_Fold]) -> None:
        """Merge the writes of a transaction that has finished."""
        if self.kind is StateKind.OPAQUE:
            self._before.update((key, self.values[key]) for key in view.own if key in self.values)
        if self.values:
            self.values.update(view.own)
        else:
            self.values = view.own
        self._txids.update(dict.fromkeys(view.own, view.txid))
        if view.rows is not None:
            self._put.append(TransactionRows(view.txid, view.rows, until=view.until))
        self._folded += folded
        if view.own or folded:
            self._until = view.until

    def rows_to_fold(self, values: Reducible, function: Callable[[Any, Any], Any]) -> Reducible | None:
        """Return ``values`` as rows to fold; None if this group must fold them key by key."""
        reduction = Reduction.of(function)
        is_by_key = self._is_by_key or self.values or self.reduction not in {None, reduction}
        if self._folds is None or is_by_key or reduction is None:
            return None
        rows = self._folds.reducible_rows(values, reduction)
        if rows is not None:
            self.reduction = reduction
        return rows

    def fold_by_key(self) -> None:
        """Fold the rows of finished transactions key by key, each as the transaction and component that gave them.

        Raises:
            RuleError: a value does not fit; its origin is the transaction that folded it, which has long finished.
        """
        # The rows are gone after the first try, so a second one would find nothing wrong.
        if self.failure is not None:
            raise self.failure
        folded, self._folded = self._folded, []
        self._is_by_key = self._is_by_key or bool(folded)
        for part in folded:
            view = KeyedView(self, part.rows.txid, part.rows.until)
            try:
                view.reduce_by_key(part.rows.rows)
                view.check()
            except TxtopoError as error:
                if isinstance(error, RuleError):
                    error.txid, error.component = part.rows.txid, part.component
                self.failure = error
                raise
            view.finish()

    def check(self, values: Mapping[Key, Any], txid: int) -> Any:
        """Return what a transaction has put as rows, if the state folds rows; raise if it does not fit."""
        writes = self._columns(values, [txid] * len(values))
        rows = None if self._folds is None else self._folds.rows_to_put(txid, writes)
        if rows is None:
            self.opened.check(writes)
        return rows

    def writes(self) -> Writes:
        """Return the group's writes, which may be empty; raise as :meth:`fold_by_key` does."""
        if self._folds is None:
            return self.written
        try:
            if self._folded and self.failure is None:
                assert self.reduction is not None, "folded rows have a reduction"
                # None: the state cannot fold these rows, so they are folded here, key by key.
                made = self._folds.fold([part.rows for part in self._folded], self.reduction)
                if made is not None:
                    return made
            self.fold_by_key()
            made = self._folds.fold(self._put, None) if self._put else None
        except FailedException as error:
            raise_as_of_state(error)
        return self.written if made is None else made

    @property
    def written(self) -> KeyedWrites:
        """The values that the group's finished transactions have put by key, in columns."""
        made = self._columns(self.values, list(map(self._txids.__getitem__, self.values)))
        if self.kind is StateKind.OPAQUE:
            made = attrs.evolve(made, previous=self.previous(made.keys_put, made.txids, self._before))
        return made if self._until is None else attrs.evolve(made, until=self._until)

    def previous(self, keys: Sequence[Key], txids: Sequence[int], put: Mapping[Key, Any]) -> list[Any]:
        """Return the bare value that each key had before a transaction: the one ``put``, or else the durable one."""
        missing = [key for key in keys if key not in put]
        durable = dict(zip(missing, self.multi_get(missing), strict=True)) if missing else {}
        befores = []
        for key, txid in zip(keys, txids, strict=True):
            stored = durable.get(key)
            befores.append(put.get(key) if stored is None else stored.value_before(txid))
        return [None if before is _REMOVED else before for before in befores]

    def _columns(self, values: Mapping[Key, Any], txids: Sequence[int]) -> KeyedWrites:
        """Return bare values, some of which may be removed, as columns, without previous values."""
        removed: list[Key] = []
        if self.has_removed:
            removed = [key for key, value in values.items() if value is _REMOVED]
            txids = [txid for txid, value in zip(txids, values.values(), strict=True) if value is not _REMOVED]
            values = {key: value for key, value in values.items() if value is not _REMOVED}
        return KeyedWrites(self.kind, list(values), list(values.values()), txids, removed=removed)

    def stored(self, key: Key) -> StateValue | None:
        """Return what the state will store for a key that the group has put; None if it is removed."""
        return self.to_store(key, self._txids[key], self.values[key], self._before)

    def to_store(self, key: Key, txid: int, value: Any, put: Mapping[Key, Any]) -> StateValue | None:
        """Return what the state will store for a bare value; ``put`` are the values before; None if it is removed."""
        if value is _REMOVED:
            return None
        previous = self.previous((key,), (txid,), put)[0] if self.kind is StateKind.OPAQUE else None
        return stored_value(self.kind, txid, value, previous)


class KeyedView(TransactionView):
    """One transaction's view of a keyed state in its commit group."""

    def __init__(self, group: KeyedGroup, txid: int, until: int | None) -> None:
        super().__init__(group, txid)
        self.until = until
        """The time up to which keys have expired for this transaction; None if they do not expire."""
        declared = group.opened.declared
        ttl = declared.time_to_live
        self._expiry = None if until is None or ttl is None else ttl.expiry(until, declared.value)
        self.own: dict[Key, Any] = {}
        """The bare values that this transaction has put."""
        self.rows: Reducible | None = None
        """The same as rows, once they are checked, if the state folds rows."""
        self._group: KeyedGroup = group
        self._folded: list[_Fold] = []
        self._is_by_key = False
        """Whether nothing is left to fold, so that keys may be accessed."""
        self._is_unchecked = False

    def get(self, key: Key) -> StateValue | None:
        """Return the stored value of one key, including this transaction's own write."""
        if not self._is_by_key:
            self._begin_by_key()
        try:
            is_own, is_of_group = key in self.own, key in self._group.values
        except TypeError as error:
            self._refuse((key,), error)
        # This transaction's values lie above the group's, and those above the durable ones.
        if is_own:
            return self._stored(key)
        if is_of_group:
            return self._group.stored(key) if self._expiry is None else self._of_group(key)
        return self._durable((key,))[0]

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the stored value of each key, including this transaction's own writes."""
        self._begin_by_key()
        missing = [key for key, value in zip(keys, self._at_hand(keys), strict=True) if value is _MISSING]
        found = dict(zip(missing, self._durable(missing), strict=True)) if missing else {}
        own, stored = self.own, self._stored
        of_group = self._group.stored if self._expiry is None else self._of_group
        return [found[key] if key in found else stored(key) if key in own else of_group(key) for key in keys]

    def put(self, key: Key, value: Any) -> None:
        """Put a value for one key, unless its stored value contains this transaction already."""
        self._put((key,), (self._bare(value),))

    def values_before(self, keys: Sequence[Key]) -> Sequence[Any]:
        """Return the bare value of each key after the transaction before."""
        self._begin_by_key()
        own, self.own = self.own, {}
        try:
            return self._befores(keys)[0]
        finally:
            self.own = own

    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key, unless its stored value contains this transaction already."""
        values = values if isinstance(values, Mapping) else dict(zip(values, of_keys or (), strict=True))
        self._put(list(values), list(map(self._bare, values.values())))

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of one key; return the stored one if it contains this transaction already."""
        if not self._is_by_key:
            self._begin_by_key()
        own = self.own
        try:
            old = own.get(key, _MISSING)
            if old is _MISSING:
                old = self._unless_expired(key, self._group.values.get(key, _MISSING))
        except TypeError as error:
            self._refuse((key,), error)
        if old is _MISSING:
            stored = self._durable((key,))[0]
            if stored is None:
                old = None
            elif stored.is_applied(self.txid):
                return stored.value
            else:
                old = stored.value_before(self.txid)
        if old is _REMOVED:
            old = None
        new = own[key] = function(old)
        self._is_unchecked = True
        return new

    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``; return the new values."""
        self._begin_by_key()
        make_new = of_key_and_old(keys, function)
        befores, applied = self._befores(keys)
        own = self.own
        self._is_unchecked = True
        if not applied and len(set(keys)) == len(keys):
            with self.probe.in_sight(befores) as in_sight:
                results = list(map(make_new, keys, in_sight))
            own.update(zip(keys, results, strict=True))
            return results
        # Some key occurs twice, or its stored value contains this transaction already.
        seen: set[Key] = set()
        results = []
        with self.probe.in_sight(keys) as keys_in_sight:
            for key, before in zip(keys_in_sight, befores, strict=True):
                if key in applied:
                    results.append(applied[key])
                    continue
                own[key] = make_new(key, own[key] if key in seen else before)
                seen.add(key)
                results.append(own[key])
        return results

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key, unless its stored value contains this transaction already."""
        self._put(keys, [_REMOVED] * len(keys))
        self._group.has_removed = True

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into the stored one: as rows if possible, otherwise key by key."""
        if not self.fold_rows(values, function):
            self.multi_update(*folded_by_key(self.pairs(values), function))

    def fold_rows(self, values: Reducible, function: Callable[[Any, Any], Any]) -> bool:
        """Fold values into the stored ones as rows; if impossible, prepare for single keys and return False."""
        self._check_running()
        rows = None if self.own else self._group.rows_to_fold(values, function)
        if rows is None:
            self._begin_by_key()
            return False
        self._folded.append(_Fold(TransactionRows(self.txid, rows, until=self.until)))
        self._is_by_key = False
        return True

    def reduce_by_key(self, rows: Reducible) -> None:
        """Fold rows into the stored values key by key, by the group's reduction."""
        assert self._group.reduction is not None, "folded rows have a reduction"
        self.multi_update(*folded_by_key(self.pairs(rows), self._group.reduction.function))

    def check(self, component: str | None = None) -> None:
        """Check the values put since the last check, and note that ``component`` has folded the rows since."""
        with self.lock:
            for part in self._folded:
                part.component = part.component or component
            if self._is_unchecked:
                self.rows = self._group.check(self.own, self.txid) if self.own else None
                self._is_unchecked = False

    def finish(self) -> None:
        """Merge this transaction's writes into the group's."""
        with self.lock:
            # writes() takes either a group's rows or its values by key, never both.
            if self._folded and (self.own or self._group.values):
                self._begin_by_key()
            self.check()
            self._group.take(self, self._folded)
            self.discard()

    def discard(self) -> None:
        """End without a trace."""
        with self.lock:
            super().discard()
            self._is_by_key = False

    def _put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Put bare values; a key whose stored value contains this transaction already stays as it is."""
        self._begin_by_key()
        try:
            put = dict(zip(keys, values, strict=True))
        except TypeError as error:
            self._refuse(keys, error)
        if self._group.reached >= self.txid:
            applied = self._befores(keys)[1]
            put = {key: value for key, value in put.items() if key not in applied}
        self.own.update(put)
        self._is_unchecked = self._is_unchecked or bool(put)

    def _bare(self, value: Any) -> Any:
        """Return the bare value; bolts may put the stored value that ``get`` returned, as in Storm."""
        if not is_stored_value(value):
            return value
        txid = getattr(value, "txid", self.txid)
        if txid != self.txid:
            raise StateAccessError(
                f"a value of transaction {txid} was put in transaction {self.txid}; put the bare value"
            )
        return value.value

    def _stored(self, key: Key) -> StateValue | None:
        """Return what the state will store for a key that this transaction has put; None if it is removed."""
        return self._group.to_store(key, self.txid, self.own[key], self._group.values)

    def _befores(self, keys: Sequence[Key]) -> tuple[Sequence[Any], Mapping[Key, Any]]:
        """Return the bare value that each key starts from, and the values of keys that contain this transaction."""
        # Of a group's first transaction nothing is at hand: then no look at it is a fifth of an update.
        befores: Sequence[Any] = self._at_hand(keys) if self.own or self._group.values else ()
        missing = [key for key, each in zip(keys, befores, strict=True) if each is _MISSING] if befores else keys
        applied: dict[Key, Any] = {}
        if missing:
            stored = self._durable(missing)
            durable = values_before(self.txid, stored)  # in bulk; None: some value contains this transaction already
            if durable is None:
                known = [(key, each) for key, each in zip(missing, stored, strict=True) if each is not None]
                applied = {key: each.value for key, each in known if each.is_applied(self.txid)}
                durable = [None if each is None else each.value_before(self.txid) for each in stored]
            others = iter(durable)
            befores = [next(others) if each is _MISSING else each for each in befores] if befores else durable
        if self._group.has_removed or self._expiry is not None:
            befores = [None if each is _REMOVED else each for each in befores]
        return befores, applied

    def _at_hand(self, keys: Sequence[Key]) -> list[Any]:
        """Return the bare value of each key that this transaction or an earlier one of the group has put."""
        try:
            found: Iterable[Any] = map(self._group.values.get, keys, repeat(_MISSING))
            if self._expiry is not None:
                found = map(self._unless_expired, keys, found)
            return list(map(self.own.get, keys, found) if self.own else found)
        except TypeError as error:
            self._refuse(keys, error)

    def _durable(self, keys: Sequence[Key]) -> Sequence[StateValue | None]:
        self.probe.step()
        found = self._group.multi_get(keys)
        return found if self._expiry is None else list(map(self._alive, found))

    def _refuse(self, keys: Sequence[Key], error: TypeError) -> NoReturn:
        """Raise what the state says of an unhashable key, which is clearer, or else the error itself."""
        self._durable(keys)
        raise error

    def _of_group(self, key: Key) -> StateValue | None:
        """Return the stored value of a key that the group has put; None if it is removed or has expired."""
        return self._alive(self._group.stored(key))

    def _alive(self, stored: StateValue | None) -> StateValue | None:
        """Return a stored value unless it has expired; one that this transaction or a later one has put has not."""
        is_over = (
            self._expiry is not None
            and isinstance(stored, TransactionalValue)
            and not stored.is_applied(self.txid)
            and self._expiry.has(stored.value)
        )
        return None if is_over else stored

    def _unless_expired(self, key: Key, value: Any) -> Any:
        """Return a bare value of the group, which is in the place of a removed one if it has expired."""
        if self._expiry is None or value is _MISSING or value is _REMOVED or self._group.txid_of(key) == self.txid:
            return value
        return _REMOVED if self._expiry.has(value) else value

    def _begin_by_key(self) -> None:
        """Prepare for access to single keys: fold all rows key by key."""
        self._check_running()
        if not self._is_by_key:
            # First the rows of earlier transactions, then this one's: each key is folded in txid order.
            self._group.fold_by_key()
            self._is_by_key = True
            folded, self._folded = self._folded, []
            for part in folded:
                self.reduce_by_key(part.rows.rows)


def _field(value: Any, fields: Fields, name: str) -> Any:
    """Return one field of a bare value."""
    return value if len(fields) == 1 else value[fields.index(name)]
