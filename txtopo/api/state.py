"""State: keyed values that transactions read and write in the commit phase.

It has three interfaces. A *bolt* uses a :class:`MapState`. A *topology* declares a :class:`State` with
``builder.set_state``. The *commit phase* opens it as an :class:`OpenedState`, buffers the writes of a commit group's
bolts, and makes them as one write.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, assert_never

import attrs
import pyarrow as pa

from txtopo.api.copying import Copy, Copying, copied
from txtopo.api.fields import Fields
from txtopo.api.reduction import (
    PreparedWrites,
    Reducible,
    Rows,
    RowsFile,
)
from txtopo.backend.table import StateTable
from txtopo.errors import InternalError, StateAccessError

Key = Hashable
"""A key: one value, or a tuple of values if the state has several key fields."""


class StateKind(enum.Enum):
    """What a state stores with each value, as in Trident."""

    TRANSACTIONAL = "transactional"
    """(txid, value): exact if a replay carries the same tuples."""
    OPAQUE = "opaque"
    """(txid, value, previous): exact even if a replay carries different tuples."""
    NON_TRANSACTIONAL = "non-transactional"
    """(value): as in Storm, a replay cannot be detected."""
    ROWS = "rows"
    """Rows without keys, each with the txid of its transaction. Only rows tables have this kind."""


KEYED_KINDS = (StateKind.TRANSACTIONAL, StateKind.OPAQUE, StateKind.NON_TRANSACTIONAL)
"""The kinds of keyed states."""


class StateValue(Protocol):
    """A stored value with the extra data of its kind. Immutable and pure."""

    @property
    def value(self) -> Any:
        """The value after the last transaction that wrote it."""

    def is_applied(self, txid: int) -> bool:
        """Return whether the value contains transaction ``txid`` or a later one, so it must not be applied again."""

    def value_before(self, txid: int) -> Any:
        """Return the value that transaction ``txid`` starts from."""

    def written(self, txid: int, value: Any) -> Self:
        """Return the stored value after transaction ``txid`` puts ``value``."""

    def copied(self, copy: Copy) -> Self:
        """Return an equal stored value with a copy of each value in it."""


class Executors(Protocol):
    """Runs a function on several items at once, in other processes or in this one."""

    slots: int
    """The number of items that run at the same time."""

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return ``function(item)`` for each item, in order; function and items must pickle.

        Raises:
            FailedException: some of the work was lost; the caller may try again.
        """


class BulkRules(Protocol):
    """A kind's rules for many stored values at once, so that they need not be called one by one."""

    def befores(self, txid: int, stored: Sequence[Any]) -> Sequence[Any] | None:
        """Return the value that transaction ``txid`` starts from, for each stored value (or None).

        Returns None if one of the values contains the transaction already.
        """


Updater = Callable[[Any, Any], Any] | Callable[[Any], Any] | Sequence[Callable[[Any], Any]]
"""What ``multi_update`` computes new values with."""


class MapState(ABC):
    """A bolt's view of a state in the commit phase.

    *You* compute a new value from the old one and the batch alone.

    *txtopo* guarantees that each transaction counts once, that a later transaction sees the values that an earlier one
    put, and that nothing of a failed attempt remains. Values that you get are copies: changing a list does not change
    the state. Values that you put are copied too.

    A bolt's own threads may use the state if ``finish_batch()`` waits for them. Each call, including the function that
    it is given, completes before the next begins, so no :meth:`update` is lost; but between a :meth:`get` and a
    :meth:`put`, another thread may write.

    With several key fields a key is a tuple; with several value fields a value is a tuple.

    A rows table has no keys. It takes rows with :meth:`append` and :meth:`replace_partitions`, and nothing else.
    """

    fields: Fields = Fields()
    """The fields of a rows table; empty for a keyed state."""
    partition_by: Sequence[str] = ()
    """The fields that a rows table is partitioned by."""

    @abstractmethod
    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the stored value of each key, or None."""

    @abstractmethod
    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key, as of the running transaction.

        Args:
            values: a value for each key; or the keys, with their values in ``of_keys``.
            of_keys: the values of the keys, if ``values`` is a sequence of keys.
        """

    @abstractmethod
    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``, ``old`` being None for a new key; return the new values.

        ``function`` may take ``old`` alone, or be a sequence of such functions, one for each key.
        """

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into the stored one: ``function(old, value)``, or ``value`` if none is stored.

        It is fastest for ``operator.add``, ``min`` and ``max`` on integers: these are folded as Arrow columns, for all
        transactions of a commit group at once.

        Args:
            values: a value for each key; or a table whose columns are the key fields and then the value fields, with
                any names, in which a key may appear several times.
            function: combines two values; must be commutative and associative.
        """
        for key, value in pairs_of(values):
            self.update(key, lambda old, value=value: value if old is None else function(old, value))  # type: ignore[misc]

    @abstractmethod
    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key with its value; a missing key is ignored."""

    @abstractmethod
    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows (key fields, value fields, txid), as of transaction ``txid`` or the latest."""

    def append(self, rows: Rows) -> None:
        """Add rows to a rows table.

        Args:
            rows: an Arrow table whose columns are the table's fields, by name or in their order; tuples in that
                order; or a file of such rows.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key.
        """
        raise takes_no_rows(self)

    def replace_partitions(self, rows: Rows) -> None:
        """Replace all rows of earlier transactions in the partitions that ``rows`` belong to.

        Several calls in one transaction, also by several tasks, add up: all of their rows are kept.

        Args:
            rows: as for :meth:`append`.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key, or is not partitioned.
        """
        raise takes_no_rows(self)

    def as_rows(self, rows: Rows) -> pa.Table:
        """Return ``rows`` as an Arrow table with the columns of this rows table.

        May be called in the processing phase, too.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key.
        """
        raise takes_no_rows(self)

    def fitted(self, key: Key, value: Any) -> Key:
        """Return a key in the form in which the state stores it; may be called in the processing phase, too.

        Args:
            key: the key.
            value: a value for it, which is checked but not stored.

        Raises:
            FieldsError: the key or the value does not fit its field.
        """
        del value
        return key

    def get(self, key: Key) -> Any:
        """Return the stored value of ``key`` (for example, a ``TransactionalValue``), or None."""
        return self.multi_get([key])[0]

    def put(self, key: Key, value: Any) -> None:
        """Put ``value`` for ``key``, as of the running transaction."""
        self.multi_put({key: value})

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of ``key`` by ``function(old)``, where ``old`` may be None; return the new value."""
        return self.multi_update([key], [function])[0]

    def remove(self, key: Key) -> None:
        """Remove ``key`` with its value."""
        self.multi_remove([key])


KeyedWrites = Mapping[Key, StateValue | None]
"""The new stored value of each key; None removes the key. Every keyed state can write these."""

Writes = KeyedWrites | PreparedWrites
"""What a commit group writes into a state: values by key, or a write that the state itself prepared from rows."""


def by_key(writes: Writes) -> KeyedWrites:
    """Return the values by key of a write, for a state that never prepares writes from rows."""
    match writes:
        case Mapping():
            return writes
        case PreparedWrites():
            raise InternalError(f"a state was passed a {type(writes).__name__} that it did not prepare")
        case _:
            assert_never(writes)


@attrs.frozen
class StagedWrite:
    """A write that is durable but not yet visible; recovery finishes a commit group of several tables from these."""

    state: str
    txid: int
    location: str
    """Where the write is stored; only the state that made it interprets this."""


class OpenedState(ABC):
    """A state opened by the coordinator that leads the topology. Not for bolts.

    *An implementation* must make :meth:`write` one atomic, durable step that carries ``(txid, epoch)``. ``write`` must
    refuse to write once a newer epoch is known, and do nothing if the table has the transaction already, because txtopo
    repeats a failed write whose outcome is unknown. The implementation raises :class:`~txtopo.errors.StateFailure` if
    the table cannot be read or written for external reasons; txtopo tries again a few times and then stops the run. Any
    other FailedException counts as a StateFailure; any other exception is a bug and stops the run at once.

    *txtopo* guarantees to call it from one thread at a time, with rising txids.

    This is all that a state needs; :mod:`txtopo.api.capabilities` lists optional capabilities.
    """

    @property
    @abstractmethod
    def identity(self) -> str:
        """An id that differs from that of any other table ever created at the same place: Delta's table id, say."""

    @property
    @abstractmethod
    def last_txid(self) -> int | None:
        """The txid of the last write, read anew at each access; None before the first write."""

    @property
    def version(self) -> int | None:
        """The last table version that this coordinator wrote; None if tables have no versions."""
        return None

    @abstractmethod
    def make_value(self, txid: int, value: Any) -> StateValue:
        """Return the stored value after transaction ``txid`` puts ``value`` for a new key."""

    @property
    def copying(self) -> Copying | None:
        """How to copy values between the state and bolts; None if they are immutable.

        By default every value is copied. An implementation that knows the types of its value fields returns
        :func:`~txtopo.api.copying.copying_of_value` of them instead.
        """
        return Copying(copied, copied)

    @property
    def bulk(self) -> BulkRules | None:
        """The rules for many values at once; None to call each value's own methods."""
        return None

    def befores(self, txid: int, keys: Sequence[Key]) -> Sequence[Any] | None:
        """Return the bare value that transaction ``txid`` starts from, for each key; None to ask each stored value.

        Raises:
            FieldsError: a key does not fit the key fields.
        """
        rules = self.bulk
        return None if rules is None else rules.befores(txid, self.multi_get(keys))

    def pairs(self, rows: Reducible) -> Iterable[tuple[Key, Any]]:
        """Return (key, value) for each row of an argument of :meth:`MapState.multi_reduce`."""
        return pairs_of(rows)

    @abstractmethod
    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the durable value of each key, or None.

        Raises:
            FieldsError: a key does not fit the key fields.
            StateFailure: the table cannot be read at the moment; the message names what cannot be read. txtopo
                retries, and stops the run if that does not help.
        """

    def check(self, txid: int, values: KeyedWrites, new_keys: Sequence[Key] | None = None) -> None:
        """Raise for values that :meth:`write` would refuse; called while the component that put them is known.

        Args:
            txid: the transaction.
            values: the values that it puts.
            new_keys: the keys among them that this commit group has not checked yet; None for all.

        Raises:
            FieldsError: a key or value does not fit the fields.
        """

    @abstractmethod
    def write(self, txid: int, values: Writes) -> None:
        """Insert, replace or remove the row of each key, as of transaction ``txid``, in one atomic step.

        Raises:
            FieldsError: a key or value does not fit the fields; nothing was written.
            LostLead: a newer epoch has fenced this one; nothing was written.
        """

    @abstractmethod
    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest."""

    def make_durable(self) -> None:
        """Sync everything visible to disk, so that it survives a power failure. Does nothing by default.

        *txtopo* calls this before it counts a group as committed whose writes another coordinator made.

        Raises:
            FailedException: the sync failed.
        """

    def maintain(self) -> None:
        """Run table maintenance; called between writes, after the last one is committed. Does nothing by default.

        Raises:
            FailedException: it failed and the rows are unchanged. txtopo logs a warning and calls it again after a
                later write; any other error stops the run.
            LostLead: a newer epoch has fenced this one; nothing was done.
        """

    def close(self) -> None:
        """Release resources. Does nothing by default."""


class State(ABC):
    """A state as declared with ``builder.set_state``: picklable, opened by the coordinator that leads."""

    key: Fields
    value: Fields
    kind: StateKind
    partition_by: Sequence[str] = ()
    """The fields that a rows table is partitioned by."""

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return ``rows`` as an Arrow table with the columns of this rows table.

        Args:
            name: the state's name, for errors.
            rows: as for :meth:`MapState.append`.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key.
        """
        raise takes_no_rows(self)

    def fitted(self, name: str, key: Key, value: Any) -> Key:
        """Return a key in the form in which the state stores it; unchanged by default.

        Args:
            name: the state's name, for errors.
            key: the key.
            value: a value for it, which is checked but not stored.

        Raises:
            FieldsError: the key or the value does not fit its field.
        """
        del name, value
        return key

    @abstractmethod
    def open(self, topology_id: str, name: str, incarnation: str, epoch: int) -> OpenedState:
        """Open the state for writing, and fence every coordinator of an earlier epoch.

        Args:
            topology_id: the topology that the state belongs to.
            name: the state's name in that topology.
            incarnation: a random id, drawn when the topology's coordinator state was created. The state stores it
                when it is created itself; a different one later means that the two do not belong together.
            epoch: the epoch of the coordinator that opens the state.

        Raises:
            DivergenceError: the state belongs to another topology, another state name or another incarnation.
            LostLead: a newer epoch has opened the state.
        """

    @abstractmethod
    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        For readers outside a topology.
        """

    def table(self) -> StateTable | None:
        """Return the state's table for inspection without opening the state; None if that is not supported."""
        return None

    @property
    def is_durable(self) -> bool:
        """Whether the state outlives the process."""
        return True

    @property
    def address(self) -> str | None:
        """The table's path, for readers outside a topology; None if it cannot be read from outside."""
        return None

    @property
    def home(self) -> str | None:
        """The parent folder of the metadata directory if ``topology.state.dir`` is not set; None for no preference."""
        return None


def takes_no_rows(state: object) -> StateAccessError:
    """Return the error for putting rows into a state that keeps values by key."""
    return StateAccessError(
        f"a {type(state).__name__} keeps values by key and takes no rows; declare the state as a rows table, "
        "such as DeltaRows(path, fields)"
    )


def pairs_of(values: Reducible, keys: int = 1) -> Iterable[tuple[Key, Any]]:
    """Return (key, value) pairs of an argument of :meth:`MapState.multi_reduce`.

    Args:
        values: a mapping, or a table whose first columns are the key fields.
        keys: the number of key fields.
    """
    if isinstance(values, Mapping):
        return values.items()
    assert not isinstance(values, RowsFile), "the caller reads a file of rows first"
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in values.columns]
    return zip(joined_columns(columns[:keys]), joined_columns(columns[keys:]), strict=True)


def joined_columns(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return one value per row: the value itself for one column, a tuple for several."""
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
