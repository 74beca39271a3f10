"""A keyed state during a commit group.

A layer holds *bare* values: a key's value alone, without the txid and the previous value that the state stores beside
it. A :data:`~txtopo.api.values.StateValue` is made only where somebody reads one: that takes half the time of a commit
phase that touches thousands of keys.

What a transaction gives is rows, in parts: either all of them are put, or all are still to be folded by one reduction,
and so it is with those of the group, which the state folds at once. While single keys are accessed, what is put is
values by key, which become rows when they are checked; a state that does not fold rows gets each key's last value.

Rows wait to be folded as long as transactions only fold values into keys. They are folded, and so become rows or values
that are put, when somebody asks what a key has, or what a transaction changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NoReturn

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.data.fields import Fields
from txtopo.api.data.types import python_values
from txtopo.api.map_state import (
    Key,
    RowChanges,
    Updater,
    folded_by_key,
    joined_columns,
    of_key_and_old,
    pairs_of,
    split_columns,
)
from txtopo.api.reduction import Folding, Reducible, Reduction, Reductions, TransactionRows
from txtopo.api.state import ExpiresKeys, FindsRows, FoldsRows, KeyedWrites, OpenedState, Writes
from txtopo.api.time_to_live import CLOCK_FIELD, CLOCK_KEY
from txtopo.api.values import (
    StateKind,
    StateValue,
    TransactionalValue,
    is_stored_value,
    stored_value,
    values_before,
)
from txtopo.columnar.conversion import cast_rows, fitted_array
from txtopo.columnar.folding import folded_in, places
from txtopo.columnar.key_index import KeyNumbers
from txtopo.columnar.latest_rows import LatestRows, SoughtKeys
from txtopo.columnar.reducing import ordered, reduced
from txtopo.columnar.rows_by_time import are_over
from txtopo.columnar.rows_file import in_memory
from txtopo.columnar.selection import rows_at
from txtopo.errors import FailedException, RuleError, StateAccessError, TxtopoError
from txtopo.transactional.commit.views import GroupState, TransactionView, raise_as_of_state

_REMOVED: Any = object()
"""In place of the value of a removed key."""

_MISSING: Any = object()
"""In place of the value of a key that no transaction of the group has put."""


_TXID = "txid"
"""The column of rows that are put with the transaction; null if the key is removed."""

Mask = npt.NDArray[np.bool_]


@attrs.define(eq=False)
class _Part:
    """Rows that a transaction has put, or is to fold.

    Args:
        rows: the rows.
        reduction: what they are folded by; None: they are put.
        keys: their keys, if they were looked up among those that the group has put.
        component: the component that gave them, once it has finished, if they are to be folded.
    """

    rows: TransactionRows
    reduction: Folding | None = None
    keys: SoughtKeys | None = None
    component: str | None = None


def _wait(parts: Sequence[_Part]) -> bool:
    """Whether parts are still to be folded: all of them are, or none."""
    return bool(parts) and parts[0].reduction is not None


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
        self.parts: list[_Part] = []
        """What the finished transactions have given as rows, if the state folds rows."""
        self._txids: dict[Key, int] = {}
        self._before: dict[Key, Any] = {}
        """What was put before the last transaction that has put a key, by one of the group, if the state is opaque."""
        self.folds = opened if isinstance(opened, FoldsRows) else None
        """The state if it folds rows."""
        self.finds = opened if isinstance(opened, FindsRows) else None
        """The state if it looks keys up in columns."""
        self._read = 0
        """How many parts that are put are in ``values``."""
        self._latest: LatestRows | None = None
        """The last row that they have put of each key, once somebody looks for rows."""

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

    def take(self, view: KeyedView) -> None:
        """Merge the writes of a transaction that has finished."""
        if self._latest is not None and not _wait(view.parts):
            for part in view.parts:
                self._latest.add(part.rows.rows, part.keys)
        if len(view.parts) > 1 and not _wait(view.parts):  # one for each transaction: each then has a key once
            rows = pa.concat_tables([part.rows.rows for part in view.parts])
            self.parts.append(_Part(attrs.evolve(view.parts[0].rows, rows=rows)))
        else:
            self.parts += view.parts
        if view.own:
            assert self._read >= len(self.parts) - 1, "they were read before a key was put"
            self._take_values(view.txid, view.own)
            self._read = len(self.parts)
        if view.own or view.parts:
            self._until = view.until

    def _take_values(self, txid: int, values: dict[Key, Any]) -> None:
        if self.kind is StateKind.OPAQUE:
            self._before.update((key, self.values[key]) for key in values if key in self.values)
        if self.values:
            self.values.update(values)
        else:
            self.values = values
        self._txids.update(dict.fromkeys(values, txid))

    def read_put(self) -> None:
        """Make values of what finished transactions have put as rows."""
        for part in self.parts[self._read :]:
            self._take_values(part.rows.txid, self.values_of(part.rows.rows))
        self._read = len(self.parts)

    def values_of(self, rows: pa.Table) -> dict[Key, Any]:
        """Return the bare values of rows that are put."""
        columns = list(map(python_values, rows.columns[:-1]))
        keys = joined_columns(columns[: len(self.opened.declared.key)])
        values = joined_columns(columns[len(self.opened.declared.key) :])
        if rows[_TXID].null_count:
            self.has_removed = True
            is_removed = rows[_TXID].is_null().to_pylist()
            values = [_REMOVED if gone else value for value, gone in zip(values, is_removed, strict=True)]
        return dict(zip(keys, values, strict=True))

    @property
    def takes_changes(self) -> bool:
        """Whether a transaction may fold rows and learn what they change: nothing waits to be folded."""
        return self.finds is not None and not _wait(self.parts)

    def rows_among(self, keys: pa.Table, sought: SoughtKeys) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the rows of those of some keys that the state has, or that the group has put or removed.

        Returns:
            The position of each row's key, and the rows: key fields, value fields, and txid.
        """
        assert self.finds is not None, "it is asked only then"
        own, put = self.latest.rows_of(sought)
        parts = [pa.Table.from_batches(put)] if put else []
        is_left = np.ones(keys.num_rows, dtype=bool)
        is_left[own] = False
        left = np.flatnonzero(is_left)
        if len(left) or not parts:  # the state knows what no rows look like
            try:
                others, durable = self.finds.rows_among(keys.take(left) if len(left) < len(is_left) else keys)
            except FailedException as error:
                raise_as_of_state(error)
            own = np.concatenate([own, left[others]])
            parts.append(durable.select(self._names))
        return own, pa.concat_tables(parts)

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The columns of rows: the key's, then the values'."""
        declared = self.opened.declared
        return (declared.key + declared.value).arrow_schema()

    @functools.cached_property
    def _names(self) -> list[str]:
        return [*self.schema.names, _TXID]

    def expired_rows(self, until: int) -> pa.Table:
        """Return the rows whose time has passed, of the state and of what finished transactions have put."""
        opened, latest = self.opened, self.latest
        assert isinstance(opened, ExpiresKeys), "the keys of other states do not expire"
        try:
            durable = opened.expired_rows(until).select(self._names)
        except FailedException as error:
            raise_as_of_state(error)
        if durable.num_rows:
            durable = durable.filter(pa.array(latest.look_up(durable.select(list(opened.declared.key))).slots < 0))
        put = [rows.filter(rows[_TXID].is_valid()) for rows in latest.over(opened.declared.expires, until)]
        return pa.concat_tables([durable, *put])  # those without a txid are removed

    @property
    def latest(self) -> LatestRows:
        """The last row that finished transactions have put of each key."""
        assert not _wait(self.parts), "rows that wait are put when they are folded"
        if self._latest is None:
            self._latest = LatestRows(list(self.opened.declared.key))
            for part in self.parts:
                self._latest.add(part.rows.rows)
        return self._latest

    @property
    def has_put(self) -> bool:
        """Whether a finished transaction has put a key."""
        return bool(self.values or self.parts) and not _wait(self.parts)

    def fold_at_once(self) -> None:
        """Fold the rows of finished transactions, each as the transaction and component that gave them.

        Raises:
            RuleError: a value does not fit; its origin is the transaction that folded it, which has long finished.
        """
        # The rows are gone after the first try, so a second one would find nothing wrong.
        if self.failure is not None:
            raise self.failure
        if not _wait(self.parts):
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

    def check(self, values: Mapping[Key, Any], txid: int) -> Any:
        """Return what a transaction has put as rows, if the state folds rows; raise if it does not fit."""
        writes = self._columns(values, [txid] * len(values))
        rows = None if self.folds is None else self.folds.rows_to_put(txid, writes)
        if rows is None:
            self.opened.check(writes)
        return rows

    def writes(self) -> Writes:
        """Return the group's writes, which may be empty; raise as :meth:`fold_at_once` does."""
        if self.folds is None:
            return self.written
        try:
            if _wait(self.parts) and self.failure is None:
                # None: the state cannot fold these rows, so they are folded here, key by key.
                made = self.folds.fold([part.rows for part in self.parts], self.parts[0].reduction)
                if made is not None:
                    return made
            self.fold_at_once()
            made = self.folds.fold([part.rows for part in self.parts], None) if self.parts else None
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
        self.parts: list[_Part] = []
        """What it has given as rows, instead of values."""
        self._group: KeyedGroup = group
        self._checked: Reducible | None = None
        """The values as rows, once they are checked, if the state folds rows."""
        self._is_by_key = False
        """Whether nothing is left to fold, so that keys may be accessed."""
        self._is_unchecked = False

    def get(self, key: Key) -> StateValue | None:
        """Return the stored value of one key, including this transaction's own write."""
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

    def rows_before(self, keys: pa.Table, values: Fields) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the values that those of some keys had after the transaction before, in columns if possible."""
        self._check_running()
        self.probe.step()
        declared, group = self._group.opened.declared, self._group
        if not keys.num_rows:
            return np.empty(0, np.int64), values.arrow_schema().empty_table()
        if None not in declared.key.types:
            keys = cast_rows(keys.rename_columns(declared.key.names), declared.key.arrow_schema(), "a key")
        if group.finds is None:
            return self._before_by_key(keys, values)
        group.fold_at_once()
        own, stored = group.rows_among(keys, group.latest.look_up(keys))
        if _reaches(stored, self.txid):
            return self._before_by_key(keys, values)
        is_there = stored[_TXID].is_valid()
        if len(declared.value) == 1:
            is_there = pc.and_(is_there, stored[declared.value[0]].is_valid())
        if self._expiry is not None:
            is_there = pc.and_(is_there, pc.invert(are_over(stored, declared.expires, self.until or 0)))
        if not pc.all(is_there).as_py():
            own, stored = own[is_there.to_numpy()], stored.filter(is_there)
        return own, cast_rows(stored.select(values.names), values.arrow_schema(), "a value of a state")

    def _before_by_key(self, keys: pa.Table, values: Fields) -> tuple[npt.NDArray[np.int64], pa.Table]:
        found = self.values_before(joined_columns([python_values(column) for column in keys.columns]))
        own = np.flatnonzero([value is not None for value in found])
        declared = self._group.opened.declared.value
        columns = split_columns([value for value in found if value is not None], len(declared))
        by_name, schema = dict(zip(declared, columns, strict=True)), values.arrow_schema()
        arrays = [fitted_array(each.name, by_name[each.name], each.type, "a value of a state") for each in schema]
        return own, pa.Table.from_arrays(arrays, schema=schema)

    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key, unless its stored value contains this transaction already."""
        values = values if isinstance(values, Mapping) else dict(zip(values, of_keys or (), strict=True))
        self._put(list(values), list(map(self._bare, values.values())))

    def put_rows(self, rows: pa.Table, removed: pa.Table | None = None) -> Mask:
        """Put a value for each of some keys, and remove others: in columns if possible."""
        self._check_running()
        self.probe.step()
        declared = self._group.opened.declared
        is_there = self._are_there(rows.rename_columns([*declared.key, *declared.value]))
        if not is_there.all():
            gone = rows.filter(pa.array(~is_there)).select(range(len(declared.key)))
            removed = gone if removed is None else pa.concat_tables([removed.rename_columns(gone.column_names), gone])
            rows = rows.filter(pa.array(is_there))
        removed = None if removed is None or not removed.num_rows else removed
        if (rows.num_rows or removed is not None) and not self._put_in_columns(rows, removed):
            self.multi_put(dict(self.pairs(rows)))
            if removed is not None:
                self.multi_remove(joined_columns(list(map(python_values, removed.columns))))
        return is_there

    def _put_in_columns(self, rows: pa.Table, removed: pa.Table | None) -> bool:
        """Put and remove keys in columns if possible, and return whether it was."""
        group = self._group
        # Some stored value may include this transaction already.
        if not self._is_in_columns or group.reached >= self.txid:
            return False
        assert group.finds is not None, "it looks keys up in columns"
        kept = group.finds.rows_as_kept(rows)
        if kept is None:
            return False
        names, count = list(group.opened.declared.key), kept.num_rows
        if removed is not None:
            schema = pa.schema([kept.schema.field(name) for name in names])
            gone = cast_rows(removed.rename_columns(names), schema, "a key")
            kept = pa.concat_tables([kept, gone], promote_options="default")
        sought = group.latest.look_up(kept.select(names))
        if self._has_put(sought).any():
            return False  # an earlier task or committer of this transaction has put one of the keys
        is_there = np.arange(kept.num_rows) < count
        self._put_rows(kept, sought, is_there, ~is_there)
        return True

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

    def reduce_changes(self, rows: pa.Table, function: Callable[[Any, Any], Any], counted: str = "") -> RowChanges:
        """Fold rows into the stored values, and return what that changes: in columns if possible."""
        self._check_running()
        self.probe.step()
        reduction = Reduction.of(function)
        if isinstance(reduction, Reductions) and self._is_in_columns:
            made = self._changed_in_columns(rows, reduction, counted)
            if made is not None:
                return made
        return self._changed_by_key(rows, function, counted)

    @property
    def _is_in_columns(self) -> bool:
        return self._group.takes_changes and not (self.own or _wait(self.parts))

    def _changed_in_columns(self, rows: pa.Table, reduction: Folding, counted: str) -> RowChanges | None:
        group = self._group
        assert group.finds is not None, "it looks keys up in columns"
        kept = group.finds.rows_as_kept(rows)
        if kept is None:
            return None
        declared = group.opened.declared
        keys = kept.select(list(declared.key))
        sought = group.latest.look_up(keys)
        if self._has_put(sought).any():
            return None  # an earlier task or committer of this transaction has put one of the keys
        own, stored = group.rows_among(keys, sought)
        if _reaches(stored, self.txid):
            return None  # a stored value includes this transaction already
        was_put = np.zeros(kept.num_rows, dtype=bool)
        was_put[own] = True
        is_gone = stored[_TXID].is_null()
        if self._expiry is not None:
            is_gone = pc.or_(is_gone, are_over(stored, declared.expires, self.until or 0))
        if pc.any(is_gone).as_py():
            own, stored = own[~is_gone.to_numpy()], stored.filter(pc.invert(is_gone))
        stored = stored.drop_columns([_TXID]).combine_chunks()  # rows of several chunks are looked for in each
        after = folded_in(own, stored, kept, reduction.by_column(list(declared.value)))
        if after is None:
            return None
        was = np.zeros(kept.num_rows, dtype=bool)
        was[own] = True
        values = stored.select(list(declared.value)).take(places(own, kept.num_rows))
        before = pa.Table.from_arrays([*keys.columns, *values.columns], schema=kept.schema)
        is_there = self._are_there(after, counted)
        self._put_rows(after, sought, is_there, was_put)
        return RowChanges(before, after, was, is_there)

    def _are_there(self, rows: pa.Table, counted: str = "") -> Mask:
        """Return which rows are of keys that have rows, and whose time has not passed."""
        is_there = np.ones(rows.num_rows, dtype=bool)
        if counted:
            is_there &= pc.fill_null(rows[counted], 0).to_numpy() != 0
        if self._expiry is not None:
            is_there &= ~are_over(rows, self._group.opened.declared.expires, self.until or 0).to_numpy()
        return is_there

    def _has_put(self, sought: SoughtKeys) -> Mask:
        """Return which keys this transaction may have put as rows: those whose hash one of its rows has."""
        hashes = [part.keys.hashes for part in self.parts if part.keys is not None]
        if not hashes:
            return np.zeros(len(sought.hashes), dtype=bool)
        return np.isin(sought.hashes, np.concatenate(hashes))

    def _put_rows(self, rows: pa.Table, sought: SoughtKeys, is_there: Mask, was_put: Mask) -> None:
        """Put the rows that are there, and remove the others' keys, if they were put before."""
        txids = pa.array(np.full(rows.num_rows, self.txid), mask=~is_there)
        rows = rows.append_column(pa.field(_TXID, pa.int64()), txids)
        if not is_there.all():
            rows, sought = rows.filter(pa.array(is_there | was_put)), sought.of(is_there | was_put)
        if rows.num_rows:
            self._give(_Part(TransactionRows(self.txid, rows, until=self.until), keys=sought))

    def _give(self, part: _Part) -> None:
        self.parts.append(part)
        self._is_by_key = False

    def _changed_by_key(self, rows: pa.Table, function: Callable[[Any, Any], Any], counted: str) -> RowChanges:
        declared = self._group.opened.declared
        keys, fold = folded_by_key(pairs_of(rows, len(declared.key)), function)
        befores: dict[Key, Any] = {}

        def noted(key: Key, old: Any) -> Any:
            befores[key] = old
            return fold(key, old)

        afters = dict(zip(keys, self.multi_update(keys, noted), strict=True))
        # If the table has this transaction already, so have those below it, and nothing is told of the key.
        changed = list(befores)
        before, after = (self._table_of(changed, [each[key] for key in changed]) for each in (befores, afters))
        is_there = self._are_there(after, counted)
        gone = [key for key, there in zip(changed, is_there.tolist(), strict=True) if not there]
        if gone:
            self.multi_remove(gone)
        was = np.array([befores[key] is not None for key in changed], dtype=bool)
        return RowChanges(before, after, was, is_there)

    def _table_of(self, keys: Sequence[Key], values: Sequence[Any]) -> pa.Table:
        """Return rows of keys and bare values; the values of one that is None are null."""
        declared = self._group.opened.declared
        nothing = (None,) * len(declared.value) if len(declared.value) > 1 else None
        given = split_columns([nothing if value is None else value for value in values], len(declared.value))
        every = zip(declared.key + declared.value, [*split_columns(keys, len(declared.key)), *given], strict=True)
        columns = [
            fitted_array(name, column, kind, "in a change")
            for (name, column), kind in zip(every, (declared.key + declared.value).types, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._group.schema)

    def remove_expired(self) -> pa.Table:
        """Remove the keys that have expired, and return them with their values, in the order of the keys."""
        self._check_running()
        self.probe.step()
        schema, keys = self._group.schema, list(self._group.opened.declared.key)
        if self._expiry is None or self.until is None:
            return schema.empty_table()
        rows = self._group.expired_rows(self.until) if self._is_in_columns else self._expired_by_key()
        # Not of a replay of a transaction that the table has already; rows of states without txids have none.
        rows = rows.filter(pc.fill_null(pc.less(rows[_TXID], self.txid), True))
        rows = rows.drop_columns([_TXID]).cast(schema)
        rows = rows_at(rows, ordered(rows.select(keys)).to_numpy())
        if rows.num_rows:
            self._remove_rows(rows)
        return rows

    def _remove_rows(self, rows: pa.Table) -> None:
        """Remove the keys of rows, but for those that this transaction has put itself."""
        keys = rows.select(list(self._group.opened.declared.key))
        if not self._is_in_columns:
            every = joined_columns(list(map(python_values, keys.columns)))
            self.multi_remove([key for key in every if key not in self.own])
            return
        sought = self._group.latest.look_up(keys)
        is_left = ~self._has_put(sought)
        if not is_left.all():  # a key that this transaction has put, or one with the same hash
            some = keys.filter(pa.array(~is_left))
            of_parts = (KeyNumbers(in_memory(part.rows.rows).select(keys.column_names)).of(some) for part in self.parts)
            is_left[~is_left] = np.max(np.stack(list(of_parts)), axis=0) < 0
        values = [pa.nulls(len(keys), field.type) for field in list(rows.schema)[keys.num_columns :]]
        assert self._group.finds is not None, "it looks keys up in columns"
        gone = self._group.finds.rows_as_kept(pa.Table.from_arrays([*keys.columns, *values], schema=rows.schema))
        assert gone is not None, "they were kept"
        is_there = np.zeros(is_left.sum(), dtype=bool)
        self._put_rows(gone.filter(pa.array(is_left)), sought.of(is_left), is_there, is_left[is_left])

    def _expired_by_key(self) -> pa.Table:
        """Return the rows whose time has passed, of the state and of finished transactions, with their txids."""
        self._begin_by_key()
        group, opened, expiry = self._group, self._group.opened, self._expiry
        assert isinstance(opened, ExpiresKeys), "the keys of other states do not expire"
        assert expiry is not None, "some have expired"
        try:
            durable = opened.expired_rows(self.until or 0)
        except FailedException as error:
            raise_as_of_state(error)
        declared = opened.declared
        durable = durable.select([*declared.key, *declared.value, _TXID])
        keys = joined_columns([python_values(durable[name]) for name in declared.key])
        durable = durable.filter(pa.array([key not in group.values for key in keys], pa.bool_()))
        put = {key: value for key, value in group.values.items() if value is not _REMOVED and expiry.has(value)}
        txids = pa.array([group.txid_of(key) for key in put], pa.int64())
        rows = self._table_of(list(put), list(put.values())).append_column(pa.field(_TXID, pa.int64()), txids)
        return pa.concat_tables([durable.cast(rows.schema), rows])

    def fold_rows(self, values: Reducible, function: Callable[[Any, Any], Any]) -> bool:
        """Fold values into the stored ones as rows; if impossible, prepare for single keys and return False."""
        self._check_running()
        reduction, folds = Reduction.of(function), self._group.folds
        if reduction is not None and folds is not None:
            may_wait = self._may_wait(reduction)
            rows = folds.reducible_rows(values, reduction) if may_wait or self._is_in_columns else None
            if rows is not None and may_wait:
                self._give(_Part(TransactionRows(self.txid, rows, until=self.until), reduction))
                return True
            if rows is not None and self._folded_in_columns(rows, reduction):
                return True
        self._begin_by_key()
        return False

    def _may_wait(self, reduction: Folding) -> bool:
        """Whether rows may wait with those of the group and of this transaction: there are none of another sort."""
        every = (*self._group.parts[:1], *self.parts[:1])
        return not (self.own or self._group.values) and all(part.reduction == reduction for part in every)

    def _folded_in_columns(self, rows: Reducible, reduction: Folding) -> bool:
        """Fold rows into those of the group's transactions, in columns if possible; return whether it was."""
        # A key that has expired when it comes is put by multi_reduce, and not by reduce_changes.
        if not self._is_in_columns or self._expiry is not None:
            return False
        declared, given = self._group.opened.declared, in_memory(rows)
        table = given.rename_columns([*declared.key, *declared.value])
        once = reduced(table, list(declared.key), reduction.by_column(list(declared.value)))
        return once is not None and self._changed_in_columns(once, reduction, "") is not None

    def fold_at_once(self, parts: Sequence[_Part]) -> None:
        """Fold rows into what transactions before have put, in columns or key by key."""
        for part in parts:
            assert part.reduction is not None, "they wait to be folded"
            if not self._folded_in_columns(part.rows.rows, part.reduction):
                self._fold_by_key(part.rows.rows, part.reduction)

    def _fold_by_key(self, rows: Reducible, reduction: Folding) -> None:
        self.multi_update(*folded_by_key(self.pairs(rows), reduction.function))

    def check(self, component: str | None = None) -> None:
        """Check the values put since the last check, and note that ``component`` has folded the rows since."""
        with self.lock:
            for part in self.parts:
                part.component = part.component or component
            if self._is_unchecked:
                self._checked = self._group.check(self.own, self.txid) if self.own else None
                self._is_unchecked = False

    def finish(self) -> None:
        """Merge this transaction's writes into the group's."""
        with self.lock:
            # What the state folds either waits or is put, all of it.
            if _wait(self.parts) and self._group.has_put:
                parts, self.parts = self.parts, []
                self.fold_at_once(parts)
            self.check()
            if self._checked is not None:
                self.parts.append(_Part(TransactionRows(self.txid, self._checked, until=self.until)))
            self._group.take(self)
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
            self._group.fold_at_once()
            self._group.read_put()
            self._is_by_key = True
            parts, self.parts = self.parts, []
            for part in parts:
                if part.reduction is None:
                    self.own.update(self._group.values_of(part.rows.rows))
                    self._is_unchecked = True
                else:
                    self._fold_by_key(part.rows.rows, part.reduction)


def _reaches(rows: pa.Table, txid: int) -> bool:
    """Return whether some rows include a transaction or a later one."""
    return bool(rows.num_rows) and (pc.max(rows[_TXID]).as_py() or 0) >= txid


def _field(value: Any, fields: Fields, name: str) -> Any:
    """Return one field of a bare value."""
    return value if len(fields) == 1 else value[fields.index(name)]
