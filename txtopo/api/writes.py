"""What transactions write into a state: values by key, or rows, and what a commit group writes of them."""

from __future__ import annotations

import enum
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

import attrs
import pyarrow as pa

from txtopo.api.values import Key, StateKind, StateValue, stored_values
from txtopo.errors import InternalError
from txtopo.files.folder import Folder


@attrs.frozen
class RowsFile:
    """Rows in a file, because they are too many to pass through the driver; see :mod:`txtopo.columnar.rows_file`.

    Args:
        folder: where the file is, the same place for executors and driver.
        path: the file's path in it.
        rows: the number of rows.
        offsets: the first row of each part, then the end of the last part.
    """

    folder: Folder
    path: str
    rows: int
    offsets: tuple[int, ...]


class RowsMode(enum.Enum):
    """How the rows of a transaction are written into a rows table."""

    APPEND = "append"
    """Add the rows."""
    REPLACE = "replace"
    """Replace all rows of earlier transactions in the partitions that the new rows belong to."""
    TAKE = "take"
    """Take out the rows that have expired; there are no new rows."""


Rows = pa.Table | pa.RecordBatch | RowsFile | Sequence[Sequence[Any]]
"""Rows for a rows table: Arrow columns, or one tuple per row in the order of the fields."""

Reducible: TypeAlias = Mapping[Any, Any] | pa.Table | RowsFile
"""Values to fold: one for each key, or rows whose columns are the key fields and then the value fields."""


@attrs.frozen(eq=False)
class TransactionRows:
    """The rows that one task of a transaction folds into a keyed state, or writes into a rows table.

    Args:
        txid: the transaction.
        rows: as the state returned them: for a keyed state its key fields, then its value fields, where several rows
            may have the same key; for a rows table its fields.
        mode: how a rows table writes them; None for a keyed state.
        until: the time up to which rows are taken out, or keys of a keyed state have expired for the transaction, in
            µs since 1970 UTC; None for neither.
    """

    txid: int
    rows: Reducible
    mode: RowsMode | None = None
    until: int | None = None

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.rows.rows if isinstance(self.rows, RowsFile) else len(self.rows)


class PreparedWrites(ABC):
    """A write that a state prepared from rows; opaque to everyone but that state."""

    @property
    @abstractmethod
    def rows_put(self) -> int:
        """The number of keys or rows that the write puts."""

    @property
    def rows_removed(self) -> int:
        """The number of keys or rows that the write removes. Folding rows never removes a key."""
        return 0

    def __len__(self) -> int:
        return self.rows_put


@attrs.frozen(eq=False)
class KeyedWrites(Mapping[Key, StateValue | None]):
    """The new stored value of each key that a commit group writes; None removes the key.

    A simple state reads it as a mapping. A state that writes thousands of keys reads the columns, because making a
    StateValue for each key would take half the time of the commit phase.

    Args:
        kind: the state's kind.
        keys_put: the keys that are put, each once.
        values_put: their values, in the same order.
        txids: the last transaction that has put each.
        previous: the value before that transaction, if the kind is opaque; otherwise empty.
        removed: the keys that are removed.
        until: the time up to which keys have expired for the last transaction, in µs since 1970 UTC; None if keys do
            not expire.
    """

    kind: StateKind
    keys_put: Sequence[Key]
    values_put: Sequence[Any]
    txids: Sequence[int]
    previous: Sequence[Any] = ()
    removed: Sequence[Key] = ()
    until: int | None = None

    @staticmethod
    def of(kind: StateKind, txid: int, values: Mapping[Key, StateValue | None]) -> KeyedWrites:
        """Return a mapping of stored values as columns; ``txid`` is the transaction of values that store none."""
        if isinstance(values, KeyedWrites):
            return values
        put = {key: value for key, value in values.items() if value is not None}
        return KeyedWrites(
            kind,
            list(put),
            [each.value for each in put.values()],
            [getattr(each, "txid", txid) for each in put.values()],
            [getattr(each, "previous", None) for each in put.values()] if kind is StateKind.OPAQUE else (),
            [key for key, value in values.items() if value is None],
        )

    @functools.cached_property
    def _by_key(self) -> dict[Key, StateValue | None]:
        stored = stored_values(self.kind, self.txids, self.values_put, self.previous)
        return {**dict(zip(self.keys_put, stored, strict=True)), **dict.fromkeys(self.removed)}

    def __getitem__(self, key: Key) -> StateValue | None:
        return self._by_key[key]

    def __iter__(self) -> Iterator[Key]:
        yield from self.keys_put
        yield from self.removed

    def __len__(self) -> int:
        return len(self.keys_put) + len(self.removed)


Writes = Mapping[Key, StateValue | None] | PreparedWrites
"""What a commit group writes into a state: values by key, or a write that the state itself prepared from rows."""


def by_key(writes: Writes) -> Mapping[Key, StateValue | None]:
    """Return the values by key of a write, for a state that never prepares writes from rows."""
    match writes:
        case Mapping():
            return writes
        case PreparedWrites():
            raise InternalError(f"a state was passed a {type(writes).__name__} that it did not prepare")
        case _:
            assert_never(writes)


def put_and_removed(writes: Writes) -> tuple[int, int]:
    """Return the number of keys or rows that a write puts, and the number that it removes."""
    match writes:
        case PreparedWrites():
            return writes.rows_put, writes.rows_removed
        case KeyedWrites():
            return len(writes.keys_put), len(writes.removed)
        case Mapping():
            removed = sum(value is None for value in writes.values())
            return len(writes) - removed, removed
        case _:
            assert_never(writes)
