"""State handles: a bolt's reference to a state, which gives access to it in the commit phase only.

A handle is the one place where values are copied between bolts and a state: what a bolt is given, and what it puts. It
does not copy values of types that cannot be changed, such as numbers and strings. It also brings keys that are moments
to UTC, before anything compares them.
"""

from __future__ import annotations

import functools
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.api.data.copying import Copy, Copying, unchanged
from txtopo.api.data.fields import Fields
from txtopo.api.data.utc import in_utc
from txtopo.api.map_state import MapState, Updater, folded_by_key, of_key_and_old
from txtopo.api.reduction import Reduction
from txtopo.api.state import State
from txtopo.api.values import Key, StateValue, is_stored_value
from txtopo.api.writes import Reducible, Rows
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import RuleError, StateAccessError
from txtopo.transactional.tasks.objects import Local, LocalReference

P = ParamSpec("P")
R = TypeVar("R")

RecordWrite = Callable[[str, str], None]
"""Called with (component, state) for each write."""

RecordLate = Callable[[RuleError], None]
"""Called with the error if a component acts after its batch is over, because its thread may swallow the error."""


class StateView(MapState):
    """One transaction's view of a state, which keeps the very objects that it is given."""

    lock: threading.RLock
    """Callers must hold it if other threads may use the view at the same time."""
    probe: ProgressProbe
    """Reports the progress of the commit phase, since copying may take long."""

    @property
    @abstractmethod
    def copying(self) -> Copying | None:
        """How to copy the state's values; None if they are immutable."""

    @property
    @abstractmethod
    def key_fields(self) -> Fields:
        """The fields of the state's key."""

    @abstractmethod
    def fold_rows(self, values: Reducible, function: Callable[[Any, Any], Any]) -> bool:
        """Fold values into the stored ones as rows; if impossible, prepare for single keys and return False."""

    @abstractmethod
    def pairs(self, rows: Reducible) -> Iterable[tuple[Key, Any]]:
        """Return (key, value) pairs of rows to fold."""


def _of_view(method: Callable[Concatenate[StateView, P], R], *, writes: bool = False) -> Callable[..., R]:
    """Return the method of a handle that is its view's, under the lock; what it takes and returns is not copied."""
    name = method.__name__

    @functools.wraps(method, updated=())  # not that it is abstract
    def call(self: StateHandle, /, *arguments: P.args, **options: P.kwargs) -> R:
        with self._lock:
            view = self._reach_to_write() if writes else self._reach()
            result: R = getattr(view, name)(*arguments, **options)
            return result

    return call


class StateHandle(MapState, Local):
    """A bolt's reference to a state: allows access in the commit phase only, by one thread at a time."""

    def __init__(  # noqa: PLR0913 - what it refers to, and who is told
        self,
        component: str,
        name: str,
        view: StateView | None,
        rows: State | None,
        fitting: State | None = None,
        *,
        record_write: RecordWrite | None = None,
    ) -> None:
        self.local_reference = LocalReference("state", name)
        self._rows = rows
        self._fitting = fitting
        if fitting is not None and rows is None:
            self.key, self.value = fitting.key, fitting.value
        if rows is not None:
            self.fields = rows.value
            self.partition_by = rows.partition_by
        self._component = component
        self._name = name
        self._view = view
        self._record_write = record_write
        self._lock = threading.RLock() if view is None else view.lock
        copying = None if view is None else view.copying
        self._key = None if view is None else _keys_in_utc(view.key_fields)
        self._is_copied = copying is not None or self._key is not None
        self._copied_in = unchanged if copying is None else copying.copied_in
        self._copied_out = unchanged if copying is None else copying.copied_out or unchanged
        self._over: tuple[TransactionAttempt, RecordLate] | None = None

    def end(self, attempt: TransactionAttempt, record_late: RecordLate) -> None:
        """Refuse access from now on, because the batch of ``attempt`` is over."""
        # Under the lock, so that a call of a bolt's own thread is over before the transaction's writes are taken.
        with self._lock:
            if self._view is not None:
                self._view, self._over = None, (attempt, record_late)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the stored value of each key."""
        with self._lock:
            view = self._reach()
            stored = view.multi_get(self._keys(keys))
            return self._each(view, stored, self._handed_whole) if self._is_copied else stored

    def values_before(self, keys: Sequence[Key]) -> Sequence[Any]:
        """Return the value of each key after the transaction before."""
        with self._lock:
            view = self._reach()
            values = view.values_before(self._keys(keys))
            return self._each(view, values, self._copied_out) if self._is_copied else values

    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key."""
        with self._lock:
            view = self._reach_to_write()
            if not isinstance(values, Mapping):
                values = dict(zip(self._keys(values), of_keys or (), strict=True))
            if self._is_copied:
                keys = self._keys(list(values))
                values = dict(zip(keys, self._each(view, values.values(), self._copied_in_whole), strict=True))
            view.multi_put(values)

    def put_rows(self, rows: pa.Table, removed: pa.Table | None = None) -> npt.NDArray[np.bool_]:
        """Put a value for each of some keys, and remove others, in columns."""
        with self._lock:
            return self._reach_to_write().put_rows(rows, removed)

    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``."""
        with self._lock:
            view = self._reach_to_write()
            if not self._is_copied:
                return view.multi_update(keys, function)
            in_utc = self._keys(keys)
            make_new = of_key_and_old(in_utc, function)
            if self._key is None or not callable(function):
                return self._update_copied(view, in_utc, make_new)
            keys_given = dict(zip(in_utc, keys, strict=True))  # a bolt may look its key up in a dict of its own
            return self._update_copied(view, in_utc, lambda key, old: make_new(keys_given[key], old))

    def get(self, key: Key) -> Any:
        """Return the stored value of ``key``."""
        with self._lock:
            view = self._reach()
            if not self._is_copied:
                return view.get(key)
            view.probe.step()
            return self._handed_whole(view.get(self._keys((key,))[0]))

    def put(self, key: Key, value: Any) -> None:
        """Put ``value`` for ``key``."""
        with self._lock:
            view = self._reach_to_write()
            if self._is_copied:
                view.probe.step()
                (key,), value = self._keys((key,)), self._copied_in_whole(value)
            view.put(key, value)

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of ``key`` by ``function(old)``."""
        with self._lock:
            view = self._reach_to_write()
            if not self._is_copied:
                return view.update(key, function)
            view.probe.step()
            copied_in, copied_out = self._copied_in, self._copied_out
            return copied_out(view.update(self._keys((key,))[0], lambda old: copied_in(function(copied_out(old)))))

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into the stored one."""
        with self._lock:
            view = self._reach_to_write()
            if not self._is_copied:
                view.multi_reduce(values, function)
                return
            if isinstance(values, Mapping):
                # What a plain function makes of them is copied below, so they need not be, unless two become one here.
                is_made = self._key is None and Reduction.of(function) is None
                copied = values.values() if is_made else self._each(view, values.values(), self._copied_in)
                pairs = zip(self._keys(list(values)), copied, strict=True)
                if self._key is None:
                    values = dict(pairs)
                else:  # two of its keys may be one moment, of two time zones
                    keys, folded = folded_by_key(pairs, function)
                    values = {key: folded(key, None) for key in keys}
            if not view.fold_rows(values, function):
                keys, folded = folded_by_key(view.pairs(values), function)
                view.multi_update(keys, self._copying(folded))

    reduce_changes = _of_view(StateView.reduce_changes, writes=True)
    remove_expired = _of_view(StateView.remove_expired, writes=True)
    append = _of_view(StateView.append, writes=True)
    replace_partitions = _of_view(StateView.replace_partitions, writes=True)
    take_expired = _of_view(StateView.take_expired, writes=True)
    taken_until = _of_view(StateView.taken_until)
    rows_held = _of_view(StateView.rows_held)
    holds = _of_view(StateView.holds)
    rows_of = _of_view(StateView.rows_of)
    rows_before = _of_view(StateView.rows_before)
    snapshot = _of_view(StateView.snapshot)

    def as_rows(self, rows: Rows) -> pa.Table:
        """Return ``rows`` with the columns of the rows table; allowed in both phases."""
        return super().as_rows(rows) if self._rows is None else self._rows.as_rows(self._name, rows)

    def fitted(self, keys: Sequence[Key], values: Sequence[Any]) -> Sequence[Key]:
        """Return keys in the form in which the state stores them; allowed in both phases."""
        return keys if self._fitting is None else self._fitting.fitted(self._name, keys, values)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key."""
        with self._lock:
            self._reach_to_write().multi_remove(self._keys(keys))

    def _keys(self, keys: Sequence[Key]) -> Sequence[Key]:
        return keys if self._key is None else list(map(self._key, keys))

    def _update_copied(self, view: StateView, keys: Sequence[Key], make_new: Callable[[Any, Any], Any]) -> list[Any]:
        return self._each(view, view.multi_update(keys, self._copying(make_new)), self._copied_out)

    def _copying(self, make_new: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Return an updater that gets copies, and copies of whose values are kept: no change reaches the other."""
        copied_in, copied_out = self._copied_in, self._copied_out
        return lambda key, old: copied_in(make_new(key, copied_out(old)))

    @staticmethod
    def _each(view: StateView, values: Collection[Any], copy: Copy) -> list[Any]:
        with view.probe.in_sight(values) as in_sight:
            return list(map(copy, in_sight))

    def _handed_whole(self, stored: StateValue | None) -> StateValue | None:
        return None if stored is None else stored.copied(self._copied_out)

    def _copied_in_whole(self, value: Any) -> Any:
        """Return a copy of a value to keep; bolts may put the stored value that ``get`` returned."""
        return value.copied(self._copied_in) if is_stored_value(value) else self._copied_in(value)

    def _reach_to_write(self) -> StateView:
        if self._record_write is not None:
            self._record_write(self._component, self._name)
        return self._reach()

    def _reach(self) -> StateView:
        if self._view is None:
            if self._over is not None:
                raise self._late(*self._over)
            raise StateAccessError(
                f"state {self._name!r} can be read and written in the commit phase only, because earlier "
                "transactions may not be committed before; use it in finish_batch()",
                component=self._component,
            )
        return self._view

    def _late(self, attempt: TransactionAttempt, record_late: RecordLate) -> StateAccessError:
        error = StateAccessError(
            f"state {self._name!r} was used after the commit phase of transaction {attempt.txid}; call "
            "context.state() in each prepare(), and wait in finish_batch() for your own threads",
            **attempt_origin(self._component, attempt),
        )
        record_late(error)
        return error


@functools.lru_cache
def _keys_in_utc(fields: Fields) -> Callable[[Key], Key] | None:
    """Return how to bring a key's moments to UTC; None if it has none."""
    moments = [kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None for kind in fields.types]
    if not any(moments):
        return None
    if len(moments) == 1:
        return in_utc

    def whole(key: Key) -> Key:
        if not isinstance(key, tuple) or len(key) != len(moments):
            return key  # the state refuses it
        return tuple(in_utc(part) if is_moment else part for part, is_moment in zip(key, moments, strict=True))

    return whole


def attempt_origin(component: str, attempt: TransactionAttempt) -> dict[str, Any]:
    """Return the origin that errors carry, as keyword arguments."""
    return {"component": component, "txid": attempt.txid, "attempt": attempt.attempt}
