"""An index of the keys of a table: their sorted hashes, which find many keys at once."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.columnar.hashing import Hashes, hash_columns

__all__ = ["HashedKeys", "KeyIndex", "Positions", "RowIndex"]

Positions = npt.NDArray[np.int64]
"""Positions of rows in a table, from 0; -1 for missing rows."""

_INSERTED_SHARE = 8
"""New keys are inserted between the others if there are this many times fewer; otherwise all keys are sorted again."""


@attrs.frozen(eq=False)
class HashedKeys:
    """Keys to look up, maybe in several indexes: a table of the key columns, and their hashes in rising order."""

    keys: pa.Table
    hashes: Hashes
    order: npt.NDArray[np.int64]

    @staticmethod
    def of(keys: pa.Table) -> HashedKeys:
        """Return keys with their hashes."""
        hashes = _hashes_of(keys)
        order = np.argsort(hashes)  # sorted lookups are 7 times faster, because neighbours are near in memory
        return HashedKeys(keys, hashes[order], order)


class KeyIndex:
    """The positions of keys in a table that has each key once: their sorted hashes; made by :meth:`of`.

    Looking up 10,000 keys among 5,000,000 rows takes 4 ms with the index, and 110 ms with a mask over all rows. The
    index takes 12 bytes per row, and 1.5 s to build for 5,000,000 rows.
    """

    def __init__(self, hashes: Hashes, positions: npt.NDArray[np.uint32]) -> None:
        self._hashes = hashes
        self._positions = positions

    @classmethod
    def of(cls, keys: pa.Table) -> KeyIndex | None:
        """Return the index of a table of the key columns; None if two of its keys have the same hash."""
        return cls._sorted(_hashes_of(keys), np.arange(keys.num_rows, dtype=np.uint32))

    def positions(self, rows: pa.Table, wanted: pa.Table | HashedKeys) -> Positions:
        """Return the positions of keys, a table of the key columns, in ``rows``, the table of this index."""
        looked_up = wanted if isinstance(wanted, HashedKeys) else HashedKeys.of(wanted)
        keys, hashes, order = looked_up.keys, looked_up.hashes, looked_up.order
        positions = np.full(keys.num_rows, -1, dtype=np.int64)
        if not len(self._hashes) or not keys.num_rows:
            return positions
        found = np.searchsorted(self._hashes, hashes)
        found[found == len(self._hashes)] = 0
        is_there = self._hashes[found] == hashes
        own, at = order[is_there], self._positions[found[is_there]].astype(np.int64)
        # A missing key may have the hash of another one.
        is_same = _are_equal(keys.take(own), rows.select(keys.column_names).take(at))
        positions[own[is_same]] = at[is_same]
        return positions

    def position_of(self, hashed: int) -> int:
        """Return the position of the row whose key has this hash (of ``hash_columns``); -1 if there is none."""
        at = int(self._hashes.searchsorted(np.uint64(hashed)))
        return int(self._positions[at]) if at < len(self._hashes) and int(self._hashes[at]) == hashed else -1

    def extended(self, keys: pa.Table) -> KeyIndex | None:
        """Return the index of the same rows followed by new ones; None if two keys have the same hash."""
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


class RowIndex:
    """The rows of each key in a table that may have several, by their sorted hashes.

    Args:
        keys: the table's key columns.
    """

    def __init__(self, keys: pa.Table) -> None:
        hashes = _hashes_of(keys)
        self._keys = keys
        self._order = np.argsort(hashes, kind="stable")
        hashes = hashes[self._order]
        is_first = np.ones(len(hashes), dtype=bool)
        is_first[1:] = hashes[1:] != hashes[:-1]
        self._hashes = hashes[is_first]
        self._starts = np.append(np.flatnonzero(is_first), len(hashes))

    def found(self, wanted: HashedKeys) -> tuple[Positions, Positions]:
        """Return the positions of the rows that have one of some keys, and for each that of its key among them.

        *You* look up each key once: a key that comes twice gets each of its rows twice, and 16,000 times those of a
        key with 16,000 rows take 7 GB.
        """
        if not len(self._hashes):
            return self._order, self._order
        at_hash = self._hashes.searchsorted(wanted.hashes)
        at_hash[at_hash == len(self._hashes)] = 0
        is_there = self._hashes[at_hash] == wanted.hashes
        at_hash = at_hash[is_there]
        first = self._starts[at_hash]
        counts = self._starts[at_hash + 1] - first
        own = np.repeat(wanted.order[is_there], counts)
        at = self._order[np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(len(own))]
        # Other keys may have the same hash.
        is_same = _are_equal(wanted.keys.take(own), self._keys.take(at).select(wanted.keys.column_names))
        return at[is_same], own[is_same]


def _hashes_of(keys: pa.Table) -> Hashes:
    hashes = [hash_columns([_plain(column) for column in batch.columns]) for batch in keys.to_batches()]
    return np.concatenate([np.empty(0, np.uint64), *hashes])


def _plain(column: Any) -> Any:
    """Return a column with the same equality, of a type that can be hashed in bulk."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.view(pa.int32())
    if pa.types.is_temporal(kind):
        return column.view(pa.int64())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    return column.cast(pa.string()) if pa.types.is_decimal(kind) else column


def _are_equal(some: pa.Table, others: pa.Table) -> npt.NDArray[np.bool_]:
    """Return for each position whether the rows of two tables are equal."""
    same = np.ones(some.num_rows, dtype=bool)
    for name in some.column_names:
        one, other = some[name], others[name]
        equal = pc.equal(one, other)
        if equal.null_count:  # two nulls are equal, too
            equal = pc.fill_null(equal, pc.equal(one.is_null(), other.is_null()))
        same &= equal.to_numpy().astype(bool)
    return same
