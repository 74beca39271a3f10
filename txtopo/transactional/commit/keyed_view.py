"""A keyed state during a commit group, and one transaction's view of it.

A view goes to the state by key, or in columns where that is open: see :mod:`.keyed_columns`. Rows wait to be folded as
long as transactions only fold values into keys. They are folded, and so become rows or values that are put, when
somebody asks what a key has, or what a transaction changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.data.copying import unchanged
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import python_values
from txtopo.api.map_state import (
    RowChanges,
    Updater,
    folded_by_key,
    joined_columns,
    of_key_and_old,
    pairs_of,
    split_columns,
)
from txtopo.api.reduction import Folding, Reduction, Reductions
from txtopo.api.state import ExpiresKeys
from txtopo.api.time_to_live import CLOCK_FIELD, CLOCK_KEY
from txtopo.api.values import Key, StateValue, TransactionalValue, is_stored_value, values_before
from txtopo.api.writes import Reducible, TransactionRows, Writes
from txtopo.columnar.conversion import cast_rows, fitted_array, may_be_unreadable, why_unreadable
from txtopo.columnar.key_index import key_ids
from txtopo.columnar.reducing import ordered
from txtopo.columnar.rows_file import in_memory
from txtopo.columnar.selection import rows_at
from txtopo.errors import FailedException, FieldsError, RuleError, StateAccessError, TxtopoError
from txtopo.transactional.commit.keyed_columns import KeyedColumns
from txtopo.transactional.commit.keyed_layer import REMOVED, TXID, KeyedLayer, Mask, Part, wait
from txtopo.transactional.commit.views import GroupState, TransactionView, raise_as_of_state

_MISSING: Any = object()
"""In place of the value of a key that no transaction of the group has put."""


class KeyedGroup(KeyedLayer):
    """A keyed state during one commit group."""

    clock: GroupState | None = None
    """The state with the watermark, if keys expire."""

    def begin(self, txid: int) -> KeyedView:
        """Return the view of transaction ``txid``, which begins now: those before it have finished."""
        return KeyedView(self, txid, self._expired_until(txid))

    def _expired_until(self, txid: int) -> int | None:
        """Return the time up to which keys have expired as of now; None if they do not expire."""
        ttl = self.declared.time_to_live
        if ttl is None or self.clock is None:
            return None
        opened = self.opened
        assert isinstance(opened, ExpiresKeys), "the keys of other states do not expire"
        row: Any = self.clock.begin(txid).get(CLOCK_KEY)
        watermark = None if row is None else _field(row.value, self.clock.declared.value, CLOCK_FIELD)
        durable = opened.expired_until(watermark)
        return durable if watermark is None else max(durable, ttl.until(watermark))

    def fold_at_once(self) -> None:
        """Fold the rows of finished transactions, each as the transaction and component that gave them.

        Raises:
            RuleError: a value does not fit; its origin is the transaction that folded it, which has long finished.
        """
        # The rows are gone after the first try, so a second one would find nothing wrong.
        if self.failure is not None:
            raise self.failure
        if not wait(self.parts):
            return
        parts, self.parts = self.parts, []
        for part in parts:
            view = KeyedView(self, part.rows.txid, part.rows.until)
            try:
                view.fold_at_once([part])
                view.check()
            except TxtopoError as error:
                if isinstance(error, RuleError):
                    error.txid, error.component = part.rows.txid, part.component
                self.failure = error
                raise
            view.finish()

    def writes(self) -> Writes:
        """Return the group's writes, which may be empty; raise as :meth:`fold_at_once` does."""
        self._writing.wait()
        if self.folds is None:
            return self.written
        try:
            if wait(self.parts) and self.failure is None:
                # None: the state cannot fold these rows, so they are folded here, key by key.
                folded = self.folds.fold([part.rows for part in self.parts], self.parts[0].reduction)
                if folded is not None:
                    return folded
            self.fold_at_once()
            folded = self.folds.fold([part.rows for part in self.parts], None) if self.parts else None
        except FailedException as error:
            raise_as_of_state(error)
        return self.written if folded is None else folded


class KeyedView(TransactionView):
    """One transaction's view of a keyed state in its commit group."""

    def __init__(self, group: KeyedLayer, txid: int, until: int | None) -> None:
        super().__init__(group, txid)
        self.until = until
        """The time up to which keys have expired for this transaction; None if they do not expire."""
        declared = group.declared
        ttl = declared.time_to_live
        self._expiry = None if until is None or ttl is None else ttl.expiry(until, declared.value)
        self.own: dict[Key, Any] = {}
        """The bare values that this transaction has put."""
        self.parts: list[Part] = []
        """What it has given as rows, instead of values."""
        self._group: KeyedLayer = group
        self._columns = None if group.finds is None else KeyedColumns(group, group.finds, txid, until, self.parts)
        self._checked: Reducible | None = None
        """The values as rows, once they are checked, if the state folds rows."""
        self._is_by_key = False
        """Whether nothing is left to fold, so that keys may be accessed."""
        self._is_unchecked = False
        self._has_removed_expired = False

    def get(self, key: Key) -> StateValue | None:
        """Return the stored value of one key, including this transaction's write."""
        # A way of its own: of a key that the group has put it takes 1.6 µs, and by multi_get 3.2.
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
        """Return the stored value of each key, including this transaction's writes."""
        self._begin_by_key()
        missing = [key for key, value in zip(keys, self._at_hand(keys), strict=True) if value is _MISSING]
        durable = dict(zip(missing, self._durable(missing), strict=True)) if missing else {}
        written, stored = self.own, self._stored
        of_group = self._group.stored if self._expiry is None else self._of_group
        return [durable[key] if key in durable else stored(key) if key in written else of_group(key) for key in keys]

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

    def rows_before(self, keys: pa.Table, values: Fields) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the values that those of some keys had after the transaction before, in columns if possible."""
        self._check_running()
        self.probe.step()
        declared, group = self._group.declared, self._group
        if not keys.num_rows:
            return np.empty(0, np.int64), values.arrow_schema().empty_table()
        if None not in declared.key.types:
            keys = cast_rows(keys.rename_columns(declared.key.names), declared.key.arrow_schema(), "a key")
        if self._columns is not None:
            group.fold_at_once()
            rows_found = self._columns.rows_before(keys, values)
            if rows_found is not None:
                return rows_found
        return self._before_by_key(keys, values)

    def _before_by_key(self, keys: pa.Table, values: Fields) -> tuple[npt.NDArray[np.int64], pa.Table]:
        befores = self.values_before(joined_columns([python_values(column) for column in keys.columns]))
        positions = np.flatnonzero([value is not None for value in befores])
        declared = self._group.declared.value
        columns = split_columns([value for value in befores if value is not None], len(declared))
        by_name, schema = dict(zip(declared, columns, strict=True)), values.arrow_schema()
        arrays = [fitted_array(field.name, by_name[field.name], field.type, "a value of a state") for field in schema]
        return positions, pa.Table.from_arrays(arrays, schema=schema)

    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key, unless its stored value contains this transaction already."""
        values = values if isinstance(values, Mapping) else dict(zip(values, of_keys or (), strict=True))
        self._put(list(values), list(map(self._bare, values.values())))

    def put_rows(self, rows: pa.Table, removed: pa.Table | None = None) -> Mask:
        """Put a value for each of some keys, and remove others: in columns if possible."""
        self._check_running()
        self.probe.step()
        declared = self._group.declared
        self._refuse_unreadable(rows)
        named = rows.rename_columns([*declared.key, *declared.value])
        is_there = self._group.are_there(named, self.until)
        if not is_there.all():
            ids, lasts = key_ids(named, declared.key.names), np.zeros(rows.num_rows, np.int64)
            np.maximum.at(lasts, ids, np.arange(rows.num_rows))
            is_put = is_there[lasts[ids]]  # of a key that comes again the last row counts
            dead = rows.filter(pa.array(~is_put)).select(range(len(declared.key)))
            removed = dead if removed is None else pa.concat_tables([removed.rename_columns(dead.column_names), dead])
            rows = rows.filter(pa.array(is_put))
        removed = None if removed is None or not removed.num_rows else removed
        if not rows.num_rows and removed is None:
            return is_there
        columns = self._in_columns()
        if columns is None or not columns.put(rows, removed):
            as_kept = self._as_kept
            self.multi_put({key: as_kept(value) for key, value in self.pairs(rows)})
            if removed is not None:
                self.multi_remove(joined_columns(list(map(python_values, removed.columns))))
        return is_there

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of one key; return the stored one if it contains this transaction already."""
        if not self._is_by_key:
            self._begin_by_key()
        written = self.own
        try:
            old = written.get(key, _MISSING)
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
        if old is REMOVED:
            old = None
        new = written[key] = function(old)
        self._is_unchecked = True
        return new

    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``; return the new values."""
        self._begin_by_key()
        make_new = of_key_and_old(keys, function)
        befores, applied = self._befores(keys)
        written = self.own
        self._is_unchecked = True
        if not applied and len(set(keys)) == len(keys):
            with self.probe.in_sight(befores) as in_sight:
                results = list(map(make_new, keys, in_sight))
            written.update(zip(keys, results, strict=True))
            return results
        # Some key occurs twice, or its stored value contains this transaction already.
        seen_keys: set[Key] = set()
        results = []
        with self.probe.in_sight(keys) as keys_in_sight:
            for key, before in zip(keys_in_sight, befores, strict=True):
                if key in applied:
                    results.append(applied[key])
                    continue
                written[key] = make_new(key, written[key] if key in seen_keys else before)
                seen_keys.add(key)
                results.append(written[key])
        return results

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key, unless its stored value contains this transaction already."""
        self._put(keys, [REMOVED] * len(keys))
        self._group.has_removed = True

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into the stored one: as rows if possible, otherwise key by key."""
        if not self.fold_rows(values, function):
            self.multi_update(*folded_by_key(self.pairs(values), function))

    def reduce_changes(self, rows: pa.Table, function: Callable[[Any, Any], Any], counted: str = "") -> RowChanges:
        """Fold rows into the stored values, and return what that changes: in columns if possible."""
        self._check_running()
        self.probe.step()
        self._refuse_unreadable(rows)
        columns, reduction = self._in_columns(), Reduction.of(function)
        if columns is not None and isinstance(reduction, Reductions):
            changes = columns.changed(rows, reduction, counted)
            if changes is not None:
                return changes
        return self._changed_by_key(rows, function, counted)

    def _refuse_unreadable(self, rows: pa.Table) -> None:
        """Refuse a value that Python can't read: whoever gets it from the state could not go on from then on."""
        declared = self._group.declared
        for at, name in _to_look_at(declared.key, declared.value):
            why = why_unreadable(rows.column(at))
            if why is not None:
                raise FieldsError(f"field {name!r}, put into a state: {why}, so it could not be read; filter such rows")

    @property
    def _as_kept(self) -> Callable[[Any], Any]:
        """What makes of a value of columns the one that the state keeps, for the next transaction of the group."""
        copying = self.copying
        return unchanged if copying is None else copying.copied_in

    def _in_columns(self) -> KeyedColumns | None:
        """Return the way in columns if it is open: nothing waits to be folded, and this transaction has put no key."""
        if self._columns is None or self.own or wait(self._group.parts) or wait(self.parts):
            return None
        self._is_by_key = False
        return self._columns

    def _changed_by_key(self, rows: pa.Table, function: Callable[[Any, Any], Any], counted: str) -> RowChanges:
        keys, fold = folded_by_key(pairs_of(rows, len(self._group.declared.key)), function)
        self._begin_by_key()
        at_hand, txid, as_kept = dict(zip(keys, self._at_hand(keys), strict=True)), self.txid, self._as_kept
        missing = [key for key, value in at_hand.items() if value is _MISSING]
        durable = dict(zip(missing, self._durable(missing), strict=True)) if missing else {}
        befores, was = {}, []
        for key, value in at_hand.items():
            stored = durable.get(key)
            # If the table has this transaction already, so have those below it, and nothing is told of the key.
            if stored is None:
                was.append(value is not _MISSING and value is not REMOVED)
                befores[key] = value if was[-1] else None
            elif not stored.is_applied(txid):
                before = befores[key] = stored.value_before(txid)
                # A value may be null; but what an opaque state has of this transaction itself is put anew.
                was.append(before is not None or getattr(stored, "txid", None) != txid)
        changed = list(befores)
        with self.probe.in_sight(befores.items()) as in_sight:
            afters = {key: as_kept(fold(key, before)) for key, before in in_sight}
        self.own.update(afters)
        self._is_unchecked = True
        before, after = (self._group.table_of(changed, list(each.values())) for each in (befores, afters))
        is_there = self._group.are_there(after, self.until, counted)
        removed = [key for key, there in zip(changed, is_there.tolist(), strict=True) if not there]
        if removed:
            self.multi_remove(removed)
        return RowChanges(before, after, np.array(was, dtype=bool), is_there)

    def remove_expired(self) -> pa.Table:
        """Remove the keys that have expired, and return them with their values, in the order of the keys."""
        self._check_running()
        self.probe.step()
        schema, keys = self._group.schema, list(self._group.declared.key)
        if self._expiry is None or self.until is None or self._has_removed_expired:
            return schema.empty_table()
        self._has_removed_expired = True  # whatever component asks: each key is told once
        columns = self._in_columns()
        if columns is None:
            self._begin_by_key()
        rows = self._group.expired_rows(self.until)
        # Not of a replay of a transaction that the table has already; rows of states without txids have none.
        rows = rows.filter(pc.fill_null(pc.less(rows[TXID], self.txid), True))
        rows = rows.drop_columns([TXID]).cast(schema)
        rows = rows_at(rows, ordered(rows.select(keys)).to_numpy())
        if rows.num_rows and columns is not None:
            columns.remove(rows)
        elif rows.num_rows:
            dead = joined_columns([python_values(rows[name]) for name in keys])
            self.multi_remove([key for key in dead if key not in self.own])  # unless this transaction has put it
        return rows

    def fold_rows(self, values: Reducible, function: Callable[[Any, Any], Any]) -> bool:
        """Fold values into the stored ones as rows; if impossible, prepare for single keys and return False."""
        self._check_running()
        rows = in_memory(values)  # of a file it is mapped: a check of 1,000,000 short texts takes some ms
        if isinstance(rows, pa.Table):
            self._refuse_unreadable(rows)
        reduction, folds = Reduction.of(function), self._group.folds
        if reduction is not None and folds is not None:
            may_wait, columns = self._may_wait(reduction), self._in_columns()
            rows = folds.reducible_rows(values, reduction) if may_wait or columns is not None else None
            if rows is not None and may_wait:
                self.parts.append(Part(TransactionRows(self.txid, rows, until=self.until), reduction))
                self._is_by_key = False
                return True
            if rows is not None and columns is not None and columns.fold(rows, reduction):
                return True
        self._begin_by_key()
        return False

    def _may_wait(self, reduction: Folding) -> bool:
        """Whether rows may wait with those of the group and of this transaction: there are none of another sort."""
        every = (*self._group.parts[:1], *self.parts[:1])
        return not (self.own or self._group.values) and all(part.reduction == reduction for part in every)

    def fold_at_once(self, parts: Sequence[Part]) -> None:
        """Fold rows into what transactions before have put, in columns or key by key."""
        for part in parts:
            assert part.reduction is not None, "they wait to be folded"
            columns = self._in_columns()
            if columns is None or not columns.fold(part.rows.rows, part.reduction):
                self.multi_update(*folded_by_key(self.pairs(part.rows.rows), part.reduction.function))

    def check(self, component: str | None = None) -> None:
        """Check the values put since the last check, and note that ``component`` has folded the rows since."""
        with self.lock:
            # What the state folds either waits or is put, all of it. Not in finish(), which must not fail.
            if wait(self.parts) and self._group.has_put:
                self.fold_at_once(self._given())
            for part in self.parts:
                part.component = part.component or component
            if self._is_unchecked:
                self._checked = self._group.check(self.own, self.txid) if self.own else None
                self.own.update(self._group.read_back(self.own))
                self._is_unchecked = False

    def finish(self) -> None:
        """Merge this transaction's writes into the group's."""
        with self.lock:
            self.check()
            if self._checked is not None:
                self.parts.append(Part(TransactionRows(self.txid, self._checked, until=self.until)))
            self._group.take(self.txid, self.own, self.parts, self.until)
            self.discard()

    def discard(self) -> None:
        """End without a trace."""
        with self.lock:
            super().discard()
            self._is_by_key = False

    def _put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        self._begin_by_key()
        try:
            values_by_key = dict(zip(keys, values, strict=True))
        except TypeError as error:
            self._refuse(keys, error)
        if self._group.reached >= self.txid:
            applied = self._befores(keys)[1]
            values_by_key = {key: value for key, value in values_by_key.items() if key not in applied}
        self.own.update(values_by_key)
        self._is_unchecked = self._is_unchecked or bool(values_by_key)

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
                known_pairs = [(key, each) for key, each in zip(missing, stored, strict=True) if each is not None]
                applied = {key: each.value for key, each in known_pairs if each.is_applied(self.txid)}
                durable = [None if each is None else each.value_before(self.txid) for each in stored]
            durable_values = iter(durable)
            befores = [next(durable_values) if each is _MISSING else each for each in befores] if befores else durable
        if self._group.has_removed or self._expiry is not None:
            befores = [None if each is REMOVED else each for each in befores]
        return befores, applied

    def _at_hand(self, keys: Sequence[Key]) -> list[Any]:
        """Return the bare value of each key that this transaction or an earlier one of the group has put."""
        try:
            values_found: Iterable[Any] = map(self._group.values.get, keys, repeat(_MISSING))
            if self._expiry is not None:
                values_found = map(self._unless_expired, keys, values_found)
            return list(map(self.own.get, keys, values_found) if self.own else values_found)
        except TypeError as error:
            self._refuse(keys, error)

    def _durable(self, keys: Sequence[Key]) -> Sequence[StateValue | None]:
        self.probe.step()
        values_found = self._group.multi_get(keys)
        return values_found if self._expiry is None else list(map(self._alive, values_found))

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
        if self._expiry is None or value is _MISSING or value is REMOVED or self._group.txid_of(key) == self.txid:
            return value
        return REMOVED if self._expiry.has(value) else value

    def _begin_by_key(self) -> None:
        """Prepare for access to single keys: fold all rows key by key."""
        self._check_running()
        if not self._is_by_key:
            # First the rows of earlier transactions, then this one's: each key is folded in txid order.
            self._group.fold_at_once()
            self._group.read_put()
            self._is_by_key = True
            for part in self._given():
                if part.reduction is None:
                    self.own.update(self._group.values_of(part.rows.rows))
                    self._is_unchecked = True
                else:
                    self.multi_update(*folded_by_key(self.pairs(part.rows.rows), part.reduction.function))

    def _given(self) -> Sequence[Part]:
        """Return what this transaction has given as rows, which it gives in another form."""
        parts = list(self.parts)
        self.parts.clear()
        return parts


def _field(value: Any, fields: Fields, name: str) -> Any:
    return value if len(fields) == 1 else value[fields.index(name)]


@functools.lru_cache
def _to_look_at(key: Fields, value: Fields) -> Sequence[tuple[int, str]]:
    """Return the positions and names of the columns that may have values that Python can't read."""
    fields = zip((*key.names, *value.names), (*key.types, *value.types), strict=True)
    return [(at, name) for at, (name, kind) in enumerate(fields) if may_be_unreadable(kind)]
