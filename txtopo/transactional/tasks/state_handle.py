"""State handles: a bolt's reference to a state, which gives access to it in the commit phase only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.api.reduction import Reducible, Rows
from txtopo.api.state import Key, MapState, State, StateValue, Updater
from txtopo.attempts import TransactionAttempt
from txtopo.errors import RuleError, StateAccessError
from txtopo.transactional.tasks.objects import Local, LocalReference

NoteWrite = Callable[[str, str], None]
"""Called with (component, state) for each write."""

_note_write: NoteWrite | None = None


@contextlib.contextmanager
def writes_noted(note: NoteWrite) -> Iterator[None]:
    """Call ``note`` for each write of a component to a state, in this process within the context."""
    global _note_write  # noqa: PLW0603 - a process has one observer
    before, _note_write = _note_write, note
    try:
        yield
    finally:
        _note_write = before


NoteLate = Callable[[RuleError], None]
"""Called with the error if a component acts after its batch is over, because its thread may swallow the error."""


class StateView(MapState):
    """One transaction's view of a state.

    Attributes:
        lock: callers must hold it if other threads may use the view at the same time.
    """

    lock: threading.RLock


class StateHandle(MapState, Local):
    """A bolt's reference to a state: allows access in the commit phase only, by one thread at a time."""

    def __init__(
        self,
        component: str,
        name: str,
        view: StateView | None,
        rows: State | None,
        fitting: State | None = None,
    ) -> None:
        self.local_reference = LocalReference("state", name)
        self._rows = rows
        self._fitting = fitting
        if rows is not None:
            self.fields = rows.value
            self.partition_by = rows.partition_by
        self._component = component
        self._name = name
        self._view = view
        self._lock = threading.RLock() if view is None else view.lock
        self._over: tuple[TransactionAttempt, NoteLate] | None = None

    def end(self, attempt: TransactionAttempt, note_late: NoteLate) -> None:
        """Refuse access from now on, because the batch of ``attempt`` is over."""
        with self._lock:
            if self._view is not None:
                self._view, self._over = None, (attempt, note_late)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the stored value of each key."""
        with self._lock:
            return self._reach().multi_get(keys)

    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key."""
        with self._lock:
            self._reach_to_write().multi_put(values, of_keys)

    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``."""
        with self._lock:
            return self._reach_to_write().multi_update(keys, function)

    def get(self, key: Key) -> Any:
        """Return the stored value of ``key``."""
        with self._lock:
            return self._reach().get(key)

    def put(self, key: Key, value: Any) -> None:
        """Put ``value`` for ``key``."""
        with self._lock:
            self._reach_to_write().put(key, value)

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of ``key`` by ``function(old)``."""
        with self._lock:
            return self._reach_to_write().update(key, function)

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into the stored one."""
        with self._lock:
            self._reach_to_write().multi_reduce(values, function)

    def append(self, rows: Rows) -> None:
        """Add rows to a rows table."""
        with self._lock:
            self._reach_to_write().append(rows)

    def replace_partitions(self, rows: Rows) -> None:
        """Replace the rows of earlier transactions in the partitions of ``rows``."""
        with self._lock:
            self._reach_to_write().replace_partitions(rows)

    def as_rows(self, rows: Rows) -> pa.Table:
        """Return ``rows`` with the columns of the rows table; allowed in both phases."""
        return super().as_rows(rows) if self._rows is None else self._rows.as_rows(self._name, rows)

    def fitted(self, key: Key, value: Any) -> Key:
        """Return a key in the form in which the state stores it; allowed in both phases."""
        return key if self._fitting is None else self._fitting.fitted(self._name, key, value)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key."""
        with self._lock:
            self._reach_to_write().multi_remove(keys)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows."""
        with self._lock:
            return self._reach().snapshot(txid)

    def _reach_to_write(self) -> StateView:
        if _note_write is not None:
            _note_write(self._component, self._name)
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

    def _late(self, attempt: TransactionAttempt, note_late: NoteLate) -> StateAccessError:
        error = StateAccessError(
            f"state {self._name!r} was used after the commit phase of transaction {attempt.txid}; call "
            "context.state() in each prepare(), and wait in finish_batch() for your own threads",
            **attempt_origin(self._component, attempt),
        )
        note_late(error)
        return error


def attempt_origin(component: str, attempt: TransactionAttempt) -> dict[str, Any]:
    """Return the origin that errors carry, as keyword arguments."""
    return {"component": component, "txid": attempt.txid, "attempt": attempt.attempt}
