"""The write buffer of a commit group: the group's writes in memory, on top of the durable values of its states.

A group's writes are collected in memory and made durable together. Each transaction writes into its own layer, which
is merged into the group's layer when its commit phase ends, and discarded if it fails.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from txtopo.api.capabilities import folds_rows, takes_rows
from txtopo.api.copying import Copying
from txtopo.api.reduction import Reducible, Reduction, Rows, RowsFile, RowsMode, RowsToWrite, TransactionRows
from txtopo.api.state import Key, KeyedWrites, OpenedState, StateValue, Updater, Writes, takes_no_rows
from txtopo.backend.layer import Layer
from txtopo.columnar.rows_file import in_memory
from txtopo.errors import FailedException, StateAccessError, StateFailure
from txtopo.transactional.tasks.progress_probe import current_probe
from txtopo.transactional.tasks.state_handle import StateView

T = TypeVar("T")

_UNKNOWN: Any = object()
"""A marker for a value that cannot be handled bare: its StateValue must be looked at."""


class GroupState:
    """One state during one commit group.

    Args:
        opened: the state.
        by_key: whether to fold rows key by key.
    """

    def __init__(self, opened: OpenedState, *, by_key: bool = False) -> None:
        self.opened = opened
        self._folds = opened if folds_rows(opened) else None
        self._takes_rows = opened if takes_rows(opened) else None
        self.written = Layer(opened.make_value)
        """The writes of the group's finished transactions; None for a removed key."""
        self.folded: list[TransactionRows] = []
        """The rows that they have folded. The first access to a single key ends this mode: see :meth:`settle`."""
        self.reduction: Reduction | None = None
        self.rows_to_write: list[RowsToWrite] = []
        """The rows that they have put into a rows table, in txid order."""
        self.probe = current_probe()
        """Reports the progress of the commit phases, since a call with many keys may take long."""
        self._by_key = by_key

    def begin(self, txid: int) -> TransactionView:
        """Return the view of transaction ``txid``."""
        return TransactionView(self, txid)

    def rows_to_fold(self, values: Reducible, function: Callable[[Any, Any], Any]) -> Reducible | None:
        """Return ``values`` as rows to fold; None if this group must fold them key by key."""
        reduction = Reduction.of(function)
        is_by_key = self._by_key or self.written or reduction is None or self.reduction not in {None, reduction}
        if self._folds is None or is_by_key or reduction is None:
            return None
        rows = self._folds.reducible_rows(values, reduction)
        if rows is not None:
            self.reduction = reduction
        return rows

    def fitted_rows(self, rows: Rows, mode: RowsMode) -> pa.Table | RowsFile:
        """Return rows in the form that a rows table takes.

        Raises:
            StateAccessError: the state is not a rows table.
        """
        if self._takes_rows is None:
            raise takes_no_rows(self.opened)
        return self._takes_rows.rows_to_write(rows, mode)

    def settle(self) -> None:
        """Apply the folded rows key by key, because a transaction is about to access single keys."""
        self._by_key = True
        folded, self.folded = self.folded, []
        assert self.reduction is not None, "folded rows have a reduction"
        for part in folded:
            view = self.begin(part.txid)
            view.reduce_by_key(self.opened.pairs(part.rows), self.reduction.function)
            view.finish()

    def writes(self) -> Writes | None:
        """Return the group's writes, which may be empty; None if its rows cannot be folded at once."""
        if not self.rows_to_write and not self.folded:
            return self.written
        try:
            if self.rows_to_write:
                assert not self.written, "a rows table has no keys"
                assert self._takes_rows is not None, "only a rows table has rows to write"
                return self._takes_rows.write_rows(self.rows_to_write)
            assert self.reduction is not None, "folded rows have a reduction"
            assert self._folds is not None, "only a state that folds rows has folded rows"
            return self._folds.fold(self.folded, self.reduction)
        except FailedException as error:
            raise_as_of_state(error)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the durable value of each key."""
        try:
            return self.opened.multi_get(keys)
        except FailedException as error:
            raise_as_of_state(error)

    def befores(self, txid: int, keys: Sequence[Key]) -> Sequence[Any] | None:
        """Return the durable bare values that a transaction starts from; None to ask each stored value."""
        try:
            return self.opened.befores(txid, keys)
        except FailedException as error:
            raise_as_of_state(error)

    def snapshot(self, txid: int | None) -> pa.Table:
        """Return all durable rows, now or as of a transaction."""
        try:
            return self.opened.snapshot(txid)
        except FailedException as error:
            raise_as_of_state(error)


class TransactionView(StateView):
    """One transaction's view of a state in its commit group, for one thread at a time.

    A value is *bare* in a layer if only the value itself is stored, not its StateValue.

    Attributes:
        lock: callers must hold it if other threads may use the view at the same time.
    """

    def __init__(self, group: GroupState, txid: int) -> None:
        self.lock = threading.RLock()
        self._group = group
        self._txid = txid
        self._own = Layer(group.opened.make_value, txid)
        self._own_rows: list[TransactionRows] = []
        self._own_rows_to_write: list[RowsToWrite] = []
        self._allows_bare = group.opened.bulk is not None
        self._unchecked: list[tuple[KeyedWrites, Sequence[Key] | None]] = []
        """Bulk writes since the last check, with the keys that were not checked before; None for all keys."""
        self._singles: dict[Key, StateValue | None] = {}
        self._has_unchecked_singles = False
        """Whether keys were put bare one by one since the last check."""
        self._at_hand: tuple[dict[Key, Any], dict[Key, Any]] | None = None
        """The bare values of this transaction and of the group, while only single keys are accessed."""
        self._is_over = False

    @property
    def copying(self) -> Copying | None:
        """How to copy the state's values; None if they are immutable. This view itself does not copy."""
        return self._group.opened.copying

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the stored value of each key, including this transaction's own writes."""
        self._begin_by_key()
        own, before = self._own, self._before(keys)
        return [own[key] if key in own else before[key] for key in keys]

    def get(self, key: Key) -> StateValue | None:
        """Return the stored value of one key, including this transaction's own write."""
        own, written = self._at_hand or self._take_at_hand()
        try:
            if key in own:
                return self._group.opened.make_value(self._txid, own[key])
            if written:
                value: StateValue | None = self._group.written[key]
                return value
        except (KeyError, TypeError):  # TypeError: the state itself raises a clear error for an unhashable key
            pass
        return self.multi_get((key,))[0]

    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key, unless its stored value contains this transaction already."""
        self._begin_by_key()
        values = values if isinstance(values, Mapping) else dict(zip(values, of_keys or (), strict=True))
        bare = {key: self._bare(value) for key, value in values.items()}
        if self._update_in_bulk(list(bare), lambda key, _: bare[key]) is None:
            before = self._before(bare)
            for key, value in bare.items():
                self._update(key, before, lambda _, value=value: value)  # type: ignore[misc]

    def put(self, key: Key, value: Any) -> None:
        """Put a value for one key, unless its stored value contains this transaction already."""
        value = self._bare(value)
        own, written = self._at_hand or self._take_at_hand()
        try:
            if key in written or key in own:  # the old value does not matter
                own[key] = value
                self._has_unchecked_singles = True
                return
        except TypeError:  # as in get()
            pass
        self.update(key, lambda _: value)

    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``; return the new values."""
        self._begin_by_key()
        make_new = of_key_and_old(keys, function)
        results = self._update_in_bulk(keys, make_new)
        if results is not None:
            return results
        before = self._before(keys)
        with self.in_sight(keys) as in_sight:
            return [self._update(key, before, functools.partial(make_new, key)) for key in in_sight]

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of one key."""
        own, written = self._at_hand or self._take_at_hand()
        try:
            old = own[key] if key in own else written[key]
        except (KeyError, TypeError):
            old = self._bare_before(key)
            if old is _UNKNOWN:
                return self._update(key, self._before((key,)), function)
        new = own[key] = function(old)
        self._has_unchecked_singles = True
        return new

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into the stored one: as rows if possible, otherwise key by key."""
        if not self.fold_rows(values, function):
            self.reduce_by_key(values.items() if isinstance(values, Mapping) else self.pairs(values), function)

    def fold_rows(self, values: Reducible, function: Callable[[Any, Any], Any]) -> bool:
        """Fold values into the stored ones as rows; if impossible, prepare for single keys and return False."""
        self._check_running()
        rows = None if self._own else self._group.rows_to_fold(values, function)
        if rows is None:
            self._begin_by_key()
            return False
        self._own_rows.append(TransactionRows(self._txid, rows))
        return True

    def pairs(self, rows: Reducible) -> Iterable[tuple[Key, Any]]:
        """Return (key, value) pairs of rows to fold."""
        return self._group.opened.pairs(rows)

    def append(self, rows: Rows) -> None:
        """Add rows to a rows table."""
        self._write_rows(rows, RowsMode.APPEND)

    def replace_partitions(self, rows: Rows) -> None:
        """Replace the rows of earlier transactions in the partitions of ``rows``."""
        self._write_rows(rows, RowsMode.REPLACE)

    def as_rows(self, rows: Rows) -> pa.Table:
        """Return ``rows`` with the columns of the rows table."""
        return in_memory(self._group.fitted_rows(rows, RowsMode.APPEND))

    def _write_rows(self, rows: Rows, mode: RowsMode) -> None:
        self._check_running()
        part = RowsToWrite(self._txid, self._group.fitted_rows(rows, mode), mode)
        if part.count:
            self._own_rows_to_write.append(part)

    def reduce_by_key(self, pairs: Iterable[tuple[Key, Any]], function: Callable[[Any, Any], Any]) -> None:
        """Fold values into the stored ones, key by key."""
        self.multi_update(*folded_by_key(pairs, function))

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key, unless its stored value contains this transaction already."""
        self._begin_by_key()
        before = self._before(keys)
        for key in keys:
            stored = before.get(key)
            if stored is None or not stored.is_applied(self._txid):
                self._put(key, None)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows, without those of this commit group."""
        self._check_running()
        return self._group.snapshot(txid)

    def check(self) -> None:
        """Check the values put since the last check; call this while their component is known.

        Raises:
            FieldsError: a key or value that was put since the last check does not fit.
        """
        with self.lock:
            opened = self._group.opened
            unchecked, self._unchecked = self._unchecked, []
            if self._singles:
                unchecked.append((self._singles, None))
                self._singles = {}
            if self._has_unchecked_singles:
                singles = Layer(opened.make_value, self._txid)
                singles.put_bare(self._txid, *self._own.columns())
                known = self._group.written.bare
                unchecked.append((singles, [key for key in self._own.bare if key not in known]))
                self._has_unchecked_singles = False
            for values, new_keys in unchecked:
                opened.check(self._txid, values, new_keys)

    def in_sight(self, items: Iterable[T]) -> AbstractContextManager[Iterator[T]]:
        """Return a context with an iterator over items that reports progress of the commit phase."""
        return self._group.probe.in_sight(items)

    def step(self) -> None:
        """Record progress of the commit phase."""
        self._group.probe.step()

    def finish(self) -> None:
        """Merge this transaction's writes into the group's."""
        with self.lock:
            if self._own_rows and self._group.written:
                self._begin_by_key()
            self._group.written.merge(self._txid, self._own)
            self._group.folded += self._own_rows
            self._group.rows_to_write += self._own_rows_to_write
            self._is_over, self._at_hand = True, None

    def discard(self) -> None:
        """End without a trace: only :meth:`finish` hands this transaction's writes to the group."""
        with self.lock:
            self._is_over, self._at_hand = True, None

    def _bare(self, value: Any) -> Any:
        """Return the bare value; bolts may put the stored value that ``get`` returned, as in Storm."""
        if not hasattr(value, "value_before"):
            return value
        txid = getattr(value, "txid", self._txid)
        if txid != self._txid:
            raise StateAccessError(
                f"a value of transaction {txid} was put in transaction {self._txid}; put the bare value"
            )
        return value.value

    def _update_in_bulk(self, keys: Sequence[Key], make_new: Callable[[Any, Any], Any]) -> list[Any] | None:
        """Update many keys with bare values; return None if some key's StateValue must be looked at."""
        own, written = self._own, self._group.written
        if not self._allows_bare or own.kept:
            return None
        try:
            distinct = set(keys)
        except TypeError:  # the state itself raises a clear error for an unhashable key
            return None
        if len(distinct) != len(keys) or not own.holds_none_of(distinct):
            return None
        new_keys: Sequence[Key] = ()  # keys that the group has put were checked then
        bare = written.bare
        try:
            befores: Sequence[Any] | None = list(map(bare.__getitem__, keys))
        except KeyError:
            new_keys = [key for key in keys if key not in bare]
            befores = self._befores(keys, new_keys)
        if befores is None:
            return None
        with self.in_sight(befores) as in_sight:
            results = list(map(make_new, keys, in_sight))
        keys = list(keys)
        own.put_bare(self._txid, keys, results)
        put = Layer(self._group.opened.make_value, self._txid)
        put.put_bare(self._txid, keys, results)
        self._unchecked.append((put, new_keys))
        return results.copy()

    def _befores(self, keys: Sequence[Key], new_keys: Sequence[Key]) -> list[Any] | None:
        """Return the bare value that each key starts from; None if some key's StateValue must be looked at.

        Args:
            keys: all keys.
            new_keys: the keys that the group has not put bare.
        """
        written = self._group.written
        if written.kept and not written.kept.keys().isdisjoint(new_keys):
            return None
        befores = self._group.befores(self._txid, new_keys)
        if befores is None or len(new_keys) == len(keys):
            return befores if befores is None else list(befores)
        found = dict(zip(new_keys, befores, strict=True))
        return list(map(found.get, keys, map(written.bare.get, keys)))

    def _take_at_hand(self) -> tuple[dict[Key, Any], dict[Key, Any]]:
        """Return the bare values of this transaction and of the group; empty if some StateValue must be looked at."""
        self._begin_by_key()
        if not self._allows_bare or self._own.kept or self._group.written.kept:
            return {}, {}
        self._at_hand = self._own.bare, self._group.written.bare
        return self._at_hand

    def _bare_before(self, key: Key) -> Any:
        """Return the durable bare value that a key starts from; _UNKNOWN if its StateValue must be looked at.

        The key must have no bare value in the group.
        """
        if self._at_hand is None:
            return _UNKNOWN
        befores = self._group.befores(self._txid, (key,))
        return _UNKNOWN if befores is None else befores[0]

    def _update(self, key: Key, before: Mapping[Key, StateValue | None], make_new: Callable[[Any], Any]) -> Any:
        """Replace one key's value and return it; return the stored value if it contains this transaction already."""
        own, txid = self._own, self._txid
        is_own = key in own
        stored = own[key] if is_own else before[key]
        if not is_own and stored is not None and stored.is_applied(txid):
            return stored.value
        old = None if stored is None else stored.value if is_own else stored.value_before(txid)
        new = make_new(old)
        make = self._group.opened.make_value
        self._put(key, make(txid, new) if stored is None else stored.written(txid, new))
        return new

    def _put(self, key: Key, value: StateValue | None) -> None:
        """Put one value into this transaction's own layer."""
        self._own.put(key, value)
        self._singles[key] = value

    def _begin_by_key(self) -> None:
        """Prepare for access to single keys: apply all folded rows key by key."""
        self._check_running()
        if self._group.folded:
            self._group.settle()
        if self._own_rows:
            rows, self._own_rows = self._own_rows, []
            assert self._group.reduction is not None, "folded rows have a reduction"
            for part in rows:
                self.reduce_by_key(self._group.opened.pairs(part.rows), self._group.reduction.function)

    def _before(self, keys: Sequence[Key] | Mapping[Key, Any]) -> dict[Key, StateValue | None]:
        """Return the values before this transaction, for the keys that it has not written yet."""
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
            self.step()
            found.update(zip(missing, self._group.multi_get(missing), strict=True))
        return found

    def _check_running(self) -> None:
        self._at_hand = None
        if self._is_over:
            raise StateAccessError(
                f"a state was used after the commit phase of transaction {self._txid}; "
                "call context.state() in each prepare()"
            )


def raise_as_of_state(error: FailedException) -> NoReturn:
    """Raise a state's FailedException as StateFailure, which is retried a few times and then stops the run.

    As a failure of the transaction it would replay that transaction without end.
    """
    if isinstance(error, StateFailure):
        raise error
    raise StateFailure(error.message, cause=error.cause) from error


def folded_by_key(
    pairs: Iterable[tuple[Key, Any]], function: Callable[[Any, Any], Any]
) -> tuple[list[Key], Callable[[Any, Any], Any]]:
    """Return the distinct keys, and a function of key and old value that folds in the key's values."""
    folded: dict[Key, Any] = {}
    for key, value in pairs:
        folded[key] = function(folded[key], value) if key in folded else value
    return list(folded), lambda key, old: folded[key] if old is None else function(old, folded[key])


def of_key_and_old(keys: Sequence[Key], function: Updater) -> Callable[[Any, Any], Any]:
    """Return an updater of several keys as a function of key and old value."""
    if not callable(function):
        by_key = dict(zip(keys, function, strict=True))
        return lambda key, old: by_key[key](old)
    if _takes_two(function):
        return function  # type: ignore[return-value] # it takes key and old value
    of_old: Any = function
    return lambda _, old: of_old(old)


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return whether a function can be called with two arguments."""
    if isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__"):
        code = function.__code__  # 0.3 µs; inspect.signature() would take 10 µs in each multi_update
        if not (code.co_kwonlyargcount or code.co_flags & inspect.CO_VARARGS):
            return code.co_argcount - len(function.__defaults__ or ()) <= 2 <= code.co_argcount  # noqa: PLR2004
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        pass
    return True
