"""Where the keys of a table's rows are: an index of their hashes, in order, for who looks up some keys of millions.

Looking 10,000 keys up among 5,000,000 rows takes 4 ms by it, and a mask over all rows 110 ms. It takes 12 bytes a
row, and 1.5 s to make for 5,000,000 rows; a row that keeps its place stays where it is, so it is made once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.fields import Fields
from txtopo.api.state import Key
from txtopo.columnar.column_hashing import Hashes, hash_columns

__all__ = ["KeyIndex", "PlainKeys", "Positions"]

Positions = npt.NDArray[np.int64]
"""Where rows are in a table, from 0; -1 for one that is not there."""

_INSERTED_SHARE = 8
"""New keys are put between the others if these are so many times more; else all are sorted again."""


class KeyIndex:
    """The places of keys in a table that has each key once; made by :meth:`of`."""

    def __init__(self, hashes: Hashes, positions: npt.NDArray[np.uint32]) -> None:
        self._hashes = hashes
        self._positions = positions

    @classmethod
    def of(cls, keys: pa.Table) -> KeyIndex | None:
        """Return the index of a table of the key columns; None if two of its keys have the same hash."""
        return cls._sorted(_hashes_of(keys), np.arange(keys.num_rows, dtype=np.uint32))

    def positions(self, rows: pa.Table, keys: pa.Table) -> Positions:
        """Return where keys are.

        Args:
            rows: the table of this index.
            keys: the wanted keys: a table of the key columns.
        """
        positions = np.full(keys.num_rows, -1, dtype=np.int64)
        if not len(self._hashes) or not keys.num_rows:
            return positions
        hashes = _hashes_of(keys)
        order = np.argsort(hashes)  # neighbours are looked up one after another, which is seven times faster
        hashes = hashes[order]
        found = np.searchsorted(self._hashes, hashes)
        found[found == len(self._hashes)] = 0
        is_there = self._hashes[found] == hashes
        wanted, at = order[is_there], self._positions[found[is_there]].astype(np.int64)
        is_same = _are_equal(keys.take(wanted), rows.select(keys.column_names).take(at))
        positions[wanted[is_same]] = at[is_same]
        return positions

    def position_of(self, hashed: int) -> int:
        """Return where the row lies whose key has this hash, which is that of ``hash_columns``; -1 if none has."""
        at = int(self._hashes.searchsorted(np.uint64(hashed)))
        return int(self._positions[at]) if at < len(self._hashes) and int(self._hashes[at]) == hashed else -1

    def extended(self, keys: pa.Table) -> KeyIndex | None:
        """Return the index of the same rows and, behind them, new ones; None if two keys have the same hash.

        Args:
            keys: the keys of the new rows: a table of the key columns.
        """
        size = len(self._hashes)
        hashes = _hashes_of(keys)
        positions = np.arange(size, size + keys.num_rows, dtype=np.uint32)
        if len(hashes) * _INSERTED_SHARE > size:
            return self._sorted(np.concatenate([self._hashes, hashes]), np.concatenate([self._positions, positions]))
        order = np.argsort(hashes)
        hashes, positions = hashes[order], positions[order]
        before = np.searchsorted(self._hashes, hashes)
        return self._without_duplicates(
            np.insert(self._hashes, before, hashes), np.insert(self._positions, before, positions)
        )

    @classmethod
    def _sorted(cls, hashes: Hashes, positions: npt.NDArray[np.uint32]) -> KeyIndex | None:
        order = np.argsort(hashes)
        return cls._without_duplicates(hashes[order], positions[order])

    @classmethod
    def _without_duplicates(cls, hashes: Hashes, positions: npt.NDArray[np.uint32]) -> KeyIndex | None:
        return None if bool((hashes[1:] == hashes[:-1]).any()) else cls(hashes, positions)


class PlainKeys:
    """Keys that are made of texts and integers, and fit: they are kept, and hashed, as they are.

    Args:
        fields: the key fields.
    """

    def __init__(self, fields: Fields) -> None:
        self._bits = [_bits(kind) for kind in fields.types]

    def takes(self, key: Key) -> bool:
        """Whether a key is such a one."""
        if len(self._bits) == 1:
            return _is_plain(key, self._bits[0])
        return type(key) is tuple and len(key) == len(self._bits) and all(map(_is_plain, key, self._bits))


def _bits(kind: pa.DataType | None) -> int | None:
    """Return the width of an integer type, 0 for texts, None for all else."""
    if kind is None or not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return None
    return 0 if pa.types.is_string(kind) else int(kind.bit_width)


def _is_plain(part: Any, bits: int | None) -> bool:
    if bits is None:
        return False
    if bits == 0:
        return type(part) is str and part.isascii()
    return type(part) is int and -(1 << bits - 1) <= part < 1 << bits - 1


def _hashes_of(keys: pa.Table) -> Hashes:
    hashes = [hash_columns([_plain(column) for column in batch.columns]) for batch in keys.to_batches()]
    return np.concatenate([np.empty(0, np.uint64), *hashes])


def _plain(column: Any) -> Any:
    """Return a column that is equal where this one is, of a type that is hashed as a whole."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.view(pa.int32())
    if pa.types.is_temporal(kind):
        return column.view(pa.int64())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    return column.cast(pa.string()) if pa.types.is_decimal(kind) else column


def _are_equal(some: pa.Table, others: pa.Table) -> npt.NDArray[np.bool_]:
    """Return for each row of two tables whether it is the same."""
    same = np.ones(some.num_rows, dtype=bool)
    for name in some.column_names:
        same &= pc.equal(some[name], others[name]).to_numpy().astype(bool)
    return same
