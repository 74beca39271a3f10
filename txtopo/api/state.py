"""State: keyed values that transactions read and write in the commit phase.

Three roles meet here. A *bolt* sees a :class:`MapState`. A *topology* declares a :class:`State` by
``builder.set_state``. The *commit phase* opens it as an :class:`OpenedState`, buffers what the bolts of a
commit group write, and hands it over as one write.
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
"""A key: one value, or a tuple of them where the state has several key fields."""


class StateKind(enum.Enum):
    """What is kept beside each value, as in Trident."""

    TRANSACTIONAL = "transactional"
    """(txid, value): exact when a replay carries the same tuples."""
    OPAQUE = "opaque"
    """(txid, value, previous): exact even when a replay carries other tuples."""
    NON_TRANSACTIONAL = "non-transactional"
    """(value): as in Storm, nothing to recognise a replay by."""
    ROWS = "rows"
    """No keys: rows, each with the txid of the transaction that put it. Of a table of rows only."""


KEYED_KINDS = (StateKind.TRANSACTIONAL, StateKind.OPAQUE, StateKind.NON_TRANSACTIONAL)
"""The kinds of keyed states."""


class StateValue(Protocol):
    """A value as it is kept, with what its kind keeps beside it. Immutable and pure."""

    @property
    def value(self) -> Any:
        """The value after the last transaction that touched it."""

    def is_applied(self, txid: int) -> bool:
        """Whether transaction ``txid``, or a later one, is in this value already and must not be added again."""

    def value_before(self, txid: int) -> Any:
        """Return the value that transaction ``txid`` starts from."""

    def written(self, txid: int, value: Any) -> Self:
        """Return what is kept after transaction ``txid`` has put ``value``."""

    def copied(self, copy: Copy) -> Self:
        """Return the same with a copy of each value in it."""


class Executors(Protocol):
    """Work on several items at once, in other processes or in this one."""

    slots: int
    """How many items are worked on at the same time."""

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return ``function`` of each item, in their order; function and items pickle.

        Raises:
            FailedException: some of the work was lost; it may be tried again.
        """


class BulkRules(Protocol):
    """The rules of a kind of value for many keys at once, where they need not be asked one by one."""

    def befores(self, txid: int, stored: Sequence[Any]) -> Sequence[Any] | None:
        """Return the value that transaction ``txid`` starts from, for each stored value or None.

        Returns None if the transaction is in one of them already.
        """


Updater = Callable[[Any, Any], Any] | Callable[[Any], Any] | Sequence[Callable[[Any], Any]]
"""What ``multi_update`` makes new values by."""


class MapState(ABC):
    """What a bolt sees of a state in the commit phase.

    *You* compute a new value from the old one and the batch alone. *txtopo* guarantees that each
    transaction counts once, that a later transaction sees what an earlier one has put, and that nothing
    of an attempt that fails stays.

    Threads of a bolt's own may use it, if ``finish_batch()`` waits for them: each call, with the function it is
    given, is done before the next begins, so that of :meth:`update` none is lost. Between a :meth:`get` and a
    :meth:`put` others may come.

    With several key fields a key is a tuple of them; with several value fields a value is a tuple.

    What it hands out is yours: a list may be changed, and that alone changes nothing in the state. What you put counts
    as it was then.

    A table of rows has no keys. It takes rows, by :meth:`append` and :meth:`replace_partitions`, and nothing else.
    """

    fields: Fields = Fields()
    """The fields of a table of rows; none where values are kept by key."""
    partition_by: Sequence[str] = ()
    """Those of them that it is partitioned by."""

    @abstractmethod
    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return what is kept for each key, None where there is nothing."""

    @abstractmethod
    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key, as of the running transaction.

        Args:
            values: a value for each key; or the keys, with their values in ``of_keys``.
            of_keys: the values of the keys, where ``values`` is a sequence of keys.
        """

    @abstractmethod
    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``, old being None at first; return the new ones.

        ``function`` may take ``old`` alone, and may be a sequence of such functions, one for each key.
        """

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into what is kept: ``function(old, value)``, or the value where nothing is kept.

        It is fastest for ``operator.add``, ``min`` and ``max`` on whole numbers: those are folded as Arrow
        columns, for all transactions of a commit group at once.

        Args:
            values: a value for each key; or a table whose columns are the key fields and then the value fields, by
                whatever names, in which a key may stand several times.
            function: makes one value of two; must not mind their order.
        """
        for key, value in pairs_of(values):
            self.update(key, lambda old, value=value: value if old is None else function(old, value))  # type: ignore[misc]

    @abstractmethod
    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key and what is kept for it; a key that is not there stays so."""

    @abstractmethod
    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows (key fields, value fields, txid), as of transaction ``txid`` or the latest."""

    def append(self, rows: Rows) -> None:
        """Add rows to a table of rows.

        Args:
            rows: an Arrow table whose columns are the table's fields, by name or in their order; tuples in that
                order; or a file of such rows.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key.
        """
        raise takes_no_rows(self)

    def replace_partitions(self, rows: Rows) -> None:
        """Put rows in the place of all that earlier transactions left in the partitions that occur among them.

        Several calls in one transaction, by several tasks too, are one: all of their rows stay.

        Args:
            rows: as for :meth:`append`.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key, or is not partitioned.
        """
        raise takes_no_rows(self)

    def as_rows(self, rows: Rows) -> pa.Table:
        """Return rows with the columns of this table of rows; may be called in the processing phase, too.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key.
        """
        raise takes_no_rows(self)

    def fitted(self, key: Key, value: Any) -> Key:
        """Return a key as it is kept; may be called in the processing phase, too.

        Args:
            key: the key.
            value: a value for it, which is only looked at.

        Raises:
            FieldsError: the key or the value does not fit its field.
        """
        del value
        return key

    def get(self, key: Key) -> Any:
        """Return what is kept for ``key`` (a ``TransactionalValue`` or its like), or None."""
        return self.multi_get([key])[0]

    def put(self, key: Key, value: Any) -> None:
        """Put ``value`` for ``key``, as of the running transaction."""
        self.multi_put({key: value})

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of ``key`` by ``function(old)``, old being None at first; return the new one."""
        return self.multi_update([key], [function])[0]

    def remove(self, key: Key) -> None:
        """Remove ``key`` and what is kept for it."""
        self.multi_remove([key])


KeyedWrites = Mapping[Key, StateValue | None]
"""What is to be kept for each key; None for a key that is removed. What every keyed state is given to write."""

Writes = KeyedWrites | PreparedWrites
"""What a commit group puts into a state: values by key, or what the state itself has made of rows."""


def by_key(writes: Writes) -> KeyedWrites:
    """Return the values by key of a write; for a state that prepares none itself."""
    match writes:
        case Mapping():
            return writes
        case PreparedWrites():
            raise InternalError(f"a {type(writes).__name__} was handed to a state that has not made it")
        case _:
            assert_never(writes)


@attrs.frozen
class StagedWrite:
    """A write that is durable but not yet visible: what a crash between two tables is finished from."""

    state: str
    txid: int
    location: str
    """Where it lies; means something to the state that made it only."""


class OpenedState(ABC):
    """A state in the hands of the one coordinator that leads. Not for bolts.

    *An implementation* must make :meth:`write` one atomic, durable step that carries ``(txid, epoch)``, and
    must refuse it once a newer epoch is known. It raises :class:`~txtopo.errors.StateFailure` where the world keeps it
    from being read: that is tried again some times, and then stops the run. Any other FailedException of its own counts
    as one; another exception stops the run at once, as a bug. *txtopo* calls it from one thread at a
    time, with txids that only rise, and never writes a txid twice without asking :attr:`last_txid` first.

    This is all that a state needs. What it may do besides is in :mod:`txtopo.api.capabilities`.
    """

    @property
    @abstractmethod
    def identity(self) -> str:
        """An id that no other table made at the same place has, for example Delta's table id."""

    @property
    @abstractmethod
    def last_txid(self) -> int | None:
        """The txid of the last write, read afresh; None before the first."""

    @property
    def version(self) -> int | None:
        """The table's version that this coordinator has made last; None where tables have no versions."""
        return None

    @abstractmethod
    def make_value(self, txid: int, value: Any) -> StateValue:
        """Return what is kept when transaction ``txid`` is the first to put ``value`` for a key."""

    @property
    def copying(self) -> Copying | None:
        """How its values are kept apart from those that bolts hold; None: they can't be changed.

        An implementation that knows the types of its value fields says so by
        :func:`~txtopo.api.copying.copying_of_value`; by default every value is copied.
        """
        return Copying(copied, copied)

    @property
    def bulk(self) -> BulkRules | None:
        """The rules of its values for many keys at once; None: ask each value."""
        return None

    def befores(self, txid: int, keys: Sequence[Key]) -> Sequence[Any] | None:
        """Return the bare value that transaction ``txid`` starts from, for each key; None: ask each value.

        Raises:
            FieldsError: a key does not fit the key fields.
        """
        rules = self.bulk
        return None if rules is None else rules.befores(txid, self.multi_get(keys))

    def pairs(self, rows: Reducible) -> Iterable[tuple[Key, Any]]:
        """Return key and value of each of the rows that :meth:`MapState.multi_reduce` takes."""
        return pairs_of(rows)

    @abstractmethod
    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the durable value of each key, None where there is none.

        Raises:
            FieldsError: a key does not fit the key fields.
            StateFailure: the table cannot be read just now. As any FailedException of a state it is tried again, and
                stops the run if that does not help; the message says what cannot be read.
        """

    def check(self, txid: int, values: KeyedWrites, new_keys: Sequence[Key] | None = None) -> None:
        """Refuse what :meth:`write` would refuse; called while it is known who has put it.

        Args:
            txid: the transaction.
            values: what it puts.
            new_keys: those of the keys that were not checked in this commit group yet; None: all.

        Raises:
            FieldsError: a key or value does not fit the fields.
        """

    @abstractmethod
    def write(self, txid: int, values: Writes) -> None:
        """Insert or replace the row of each key, or remove it, atomically, as of transaction ``txid``.

        Raises:
            FieldsError: a key or value does not fit the fields; nothing was written.
            LostLead: a newer epoch has fenced this one; nothing was written.
        """

    @abstractmethod
    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest."""

    def make_durable(self) -> None:
        """Make sure that what is visible outlives a loss of power. Does nothing by default.

        *txtopo* calls it before it counts a group as committed whose writes another coordinator made.

        Raises:
            FailedException: that can't be made sure.
        """

    def maintain(self) -> None:
        """Do what keeps the table healthy; called between writes. Does nothing by default."""

    def close(self) -> None:
        """Let go of what is held. Does nothing by default."""


class State(ABC):
    """A state as declared by ``builder.set_state``: picklable, opened by the coordinator that leads."""

    key: Fields
    value: Fields
    kind: StateKind
    partition_by: Sequence[str] = ()
    """The fields that a table of rows is partitioned by."""

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return rows with the columns of this table of rows.

        Args:
            name: the state's name, for errors.
            rows: as for :meth:`MapState.append`.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key.
        """
        raise takes_no_rows(self)

    def fitted(self, name: str, key: Key, value: Any) -> Key:
        """Return a key as it is kept; by default as it is.

        Args:
            name: the state's name, for errors.
            key: the key.
            value: a value for it, which is only looked at.

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
            incarnation: drawn when the topology's coordinator state was first made; the state remembers it when
                it is made, and a different one later means that the two do not belong together.
            epoch: the epoch of the coordinator that opens it.

        Raises:
            DivergenceError: the state belongs to another topology, another state name or another incarnation.
            LostLead: a newer epoch has opened it.
        """

    @abstractmethod
    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        For reading from outside, without a topology.
        """

    def table(self) -> StateTable | None:
        """Return the state's table, to be looked at without opening it; None where that cannot be done."""
        return None

    @property
    def is_durable(self) -> bool:
        """Whether the state outlives the process."""
        return True

    @property
    def address(self) -> str | None:
        """Where its table lies, for those who read it without a topology; None if nobody can."""
        return None

    @property
    def home(self) -> str | None:
        """The folder that holds the metadata directory, if ``topology.state.dir`` is not set; None: no preference."""
        return None


def takes_no_rows(state: object) -> StateAccessError:
    """Return the error for who wants to put rows into a state that keeps values by key."""
    return StateAccessError(
        f"a {type(state).__name__} keeps values by key and takes no rows; set the state to a table of rows, "
        "such as DeltaRows(path, fields)"
    )


def pairs_of(values: Reducible, keys: int = 1) -> Iterable[tuple[Key, Any]]:
    """Return keys and values of what :meth:`MapState.multi_reduce` takes.

    Args:
        values: a mapping, or a table whose first columns are the key fields.
        keys: the number of key fields.
    """
    if isinstance(values, Mapping):
        return values.items()
    assert not isinstance(values, RowsFile), "a file of rows is read first"
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in values.columns]
    return zip(joined_columns(columns[:keys]), joined_columns(columns[keys:]), strict=True)


def joined_columns(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return one value a row: of one column as it is, of several a tuple."""
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
