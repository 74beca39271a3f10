"""Reductions: folding values into a state as Arrow rows, with no Python object for a key.

A committer that only ever adds (or takes the smaller, or the larger) need not see what a state holds. Then
the rows of a whole commit group can be folded at once, for these functions do not mind in which order values
come: the result is that of folding them transaction by transaction.
"""

from __future__ import annotations

import enum
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc


class Reduction(enum.Enum):
    """A function of two values that gives one result in whatever order many values are folded."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"

    @property
    def function(self) -> Callable[[Any, Any], Any]:
        """The same as a function of two Python values."""
        return _FUNCTIONS[self]

    @classmethod
    def of(cls, function: Callable[[Any, Any], Any]) -> Reduction | None:
        """Return the reduction that a Python function is, if it is one of them."""
        return next((reduction for reduction, known in _FUNCTIONS.items() if known is function), None)


_FUNCTIONS: Mapping[Reduction, Callable[[Any, Any], Any]] = {
    Reduction.SUM: operator.add,
    Reduction.MIN: min,
    Reduction.MAX: max,
}


@attrs.frozen
class Combiner:
    """What may be done to the rows of one batch before they reach a bolt: those with equal keys may become one.

    Args:
        key: the fields that make up the key.
        value: the field to reduce; all others are left out.
        reduction: how.
    """

    key: tuple[str, ...]
    value: str
    reduction: Reduction

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that are left."""
        return (*self.key, self.value)


_SUM_MAX = (1 << 63) - 1

_THREADS_FROM_ROWS = 500_000
"""Fewer rows are reduced by one thread: it is as quick, and their order does not change from run to run."""


def is_reducible(rows: pa.Table, values: Sequence[str]) -> bool:
    """Whether the order of the rows does not matter: whole numbers, and nothing missing."""
    return all(pa.types.is_integer(rows.schema.field(name).type) for name in values) and not any(
        column.null_count for column in rows.columns
    )


def reduced(rows: pa.Table, keys: Sequence[str], reductions: Mapping[str, Reduction]) -> pa.Table | None:
    """Return the rows with each key once; None if a sum may leave 64 bits, or the type of its column.

    Args:
        rows: the columns named by ``keys`` and ``reductions``; :func:`is_reducible`.
        keys: the names of the key columns.
        reductions: how each other column is reduced.
    """
    if any(how is Reduction.SUM and not _stays_small(rows[name]) for name, how in reductions.items()):
        return None
    grouped = rows.group_by(list(keys), use_threads=rows.num_rows >= _THREADS_FROM_ROWS).aggregate(
        [(name, how.value) for name, how in reductions.items()]
    )
    names = [*keys, *reductions]
    made = grouped.select([*keys, *(f"{name}_{how.value}" for name, how in reductions.items())])
    try:
        return made.rename_columns(names).cast(rows.select(names).schema)
    except pa.ArrowInvalid:  # a sum that does not fit an int, for example
        return None


def _stays_small(column: Any) -> bool:
    """Whether no sum of the values can leave 64 bits."""
    if not len(column):
        return True
    bounds = pc.min_max(column).as_py()
    return bool(max(abs(bounds["min"]), abs(bounds["max"])) * len(column) <= _SUM_MAX)


@attrs.frozen
class RowsFile:
    """Rows that lie in a file, for they are too many to pass through the driver; see :mod:`txtopo.columnar.rows_file`.

    Args:
        path: where it is; executors and driver see it under the same path.
        rows: how many rows.
        offsets: where the rows of each part begin, and where the last one's end.
    """

    path: str
    rows: int
    offsets: tuple[int, ...]


class RowsMode(enum.Enum):
    """A way in which the rows of a transaction go into a table of rows."""

    APPEND = "append"
    """They are added."""
    REPLACE = "replace"
    """They take the place of all that earlier transactions left in the partitions that occur among them."""


Rows = pa.Table | pa.RecordBatch | RowsFile | Sequence[Sequence[Any]]
"""Rows of a table of rows: columns, or a tuple a row in the order of the fields."""


@attrs.frozen(eq=False)
class RowsToWrite:
    """What one task of a transaction puts into a table of rows.

    Args:
        txid: the transaction.
        rows: the table's fields, in their order and with their types.
        mode: how they go in.
    """

    txid: int
    rows: pa.Table | RowsFile
    mode: RowsMode

    @property
    def count(self) -> int:
        """How many rows."""
        return _count(self.rows)


Reducible: TypeAlias = Mapping[Any, Any] | pa.Table | RowsFile
"""Values to fold: one for each key, or rows whose columns are the key fields and then the value fields."""


@attrs.frozen(eq=False)
class TransactionRows:
    """What one transaction folds into a state.

    Args:
        txid: the transaction.
        rows: the state's key fields and value fields, in that order and with those types; a key may stand in
            several rows.
    """

    txid: int
    rows: Reducible

    @property
    def count(self) -> int:
        """How many rows."""
        return _count(self.rows)


def _count(rows: Reducible) -> int:
    return rows.rows if isinstance(rows, RowsFile) else len(rows)


class PreparedWrites(ABC):
    """A write that a state has worked out itself, from rows: it takes it back, and nobody else looks into it."""

    @property
    @abstractmethod
    def rows_put(self) -> int:
        """How many keys, or rows, it puts."""

    @property
    def rows_removed(self) -> int:
        """How many rows it takes out of the table. Rows that are folded remove no key."""
        return 0

    def __len__(self) -> int:
        return self.rows_put


@attrs.define(eq=False)
class RowWrites(PreparedWrites):
    """What is to be kept for each key, as Arrow rows.

    Args:
        rows: key fields, value fields, txid; each key once.
        read: makes a mapping of the rows: None for a key that is removed.
        values: the mapping, where it is made already.
    """

    rows: pa.Table
    _read: Callable[[pa.Table], Mapping[Any, Any]]
    _values: Mapping[Any, Any] | None = None

    @property
    def is_read(self) -> bool:
        """Whether the mapping is made already."""
        return self._values is not None

    @property
    def rows_put(self) -> int:
        """How many keys it puts or removes."""
        return int(self.rows.num_rows)

    def mapping(self) -> Mapping[Any, Any]:
        """Return the rows as a mapping, made when it is first asked for."""
        if self._values is None:
            self._values = self._read(self.rows)
        return self._values
