"""Reductions: fold values into a state as Arrow rows, without a Python object for each key.

A committer that only computes sums, minima or maxima need not read the state's values. The rows of a whole commit
group can then be folded at once: these functions are commutative and associative, so the result equals that of folding
transaction by transaction.
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
    """A commutative and associative function of two values: the order of folding does not change the result."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"

    @property
    def function(self) -> Callable[[Any, Any], Any]:
        """The reduction as a function of two Python values."""
        return _FUNCTIONS[self]

    @classmethod
    def of(cls, function: Callable[[Any, Any], Any]) -> Reduction | None:
        """Return the reduction for ``operator.add``, ``min`` or ``max``; None for any other function."""
        return next((reduction for reduction, known in _FUNCTIONS.items() if known is function), None)


_FUNCTIONS: Mapping[Reduction, Callable[[Any, Any], Any]] = {
    Reduction.SUM: operator.add,
    Reduction.MIN: min,
    Reduction.MAX: max,
}


@attrs.frozen
class Combiner:
    """How rows of one batch with equal keys may be combined into one row before they reach a bolt.

    Args:
        key: the fields that make up the key.
        value: the field to reduce; all other fields are dropped.
        reduction: the function that combines two values.
    """

    key: tuple[str, ...]
    value: str
    reduction: Reduction

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the combined rows."""
        return (*self.key, self.value)


_SUM_MAX = (1 << 63) - 1

_THREADS_FROM_ROWS = 500_000
"""Fewer rows are reduced by one thread: that is as fast, and the order of the result is the same in every run."""


def is_reducible(rows: pa.Table, values: Sequence[str]) -> bool:
    """Return whether the rows can be reduced in any order: all values are integers and no column has nulls."""
    return all(pa.types.is_integer(rows.schema.field(name).type) for name in values) and not any(
        column.null_count for column in rows.columns
    )


def reduced(rows: pa.Table, keys: Sequence[str], reductions: Mapping[str, Reduction]) -> pa.Table | None:
    """Return one row for each key; None if a sum might overflow 64 bits or does not fit its column's type.

    ``rows`` has the columns of ``keys`` and ``reductions``, and satisfies :func:`is_reducible`.
    """
    # Arrow's sum of a group wraps round without an error, so it is ruled out beforehand.
    if any(how is Reduction.SUM and not _stays_small(rows[name]) for name, how in reductions.items()):
        return None
    grouped = rows.group_by(list(keys), use_threads=rows.num_rows >= _THREADS_FROM_ROWS).aggregate(
        [(name, how.value) for name, how in reductions.items()]
    )
    names = [*keys, *reductions]
    made = grouped.select([*keys, *(f"{name}_{how.value}" for name, how in reductions.items())])
    try:
        return made.rename_columns(names).cast(rows.select(names).schema)
    except pa.ArrowInvalid:  # for example, a sum that does not fit int32
        return None


def _stays_small(column: Any) -> bool:
    """Return whether no sum of the values can overflow 64 bits."""
    if not len(column):
        return True
    bounds = pc.min_max(column).as_py()
    return bool(max(abs(bounds["min"]), abs(bounds["max"])) * len(column) <= _SUM_MAX)


@attrs.frozen
class RowsFile:
    """Rows in a file, because they are too many to pass through the driver; see :mod:`txtopo.columnar.rows_file`.

    Args:
        path: the file's path, the same for executors and driver.
        rows: the number of rows.
        offsets: the first row of each part, then the end of the last part.
    """

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
        until: the time up to which rows are taken out, in µs since 1970 UTC.
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
        """The number of rows that the write removes from the table. Folding rows never removes a key."""
        return 0

    def __len__(self) -> int:
        return self.rows_put
