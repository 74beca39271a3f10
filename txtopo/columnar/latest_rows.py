"""Rows that come in portions, of which the last one of each key counts."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa

from txtopo.columnar.hashing import Hashes
from txtopo.columnar.key_index import HashIndex, Mask, Positions, are_equal, hashes_of
from txtopo.columnar.rows_by_time import are_over
from txtopo.columnar.selection import BYTES_MAX


@attrs.frozen(eq=False)
class SoughtKeys:
    """Keys that were looked up: the hash of each, and its slot in ``index``; -1 if it is not there."""

    hashes: Hashes
    slots: Positions
    index: HashIndex

    def of(self, is_in: Mask) -> SoughtKeys:
        """Return some of them."""
        return self if is_in.all() else SoughtKeys(self.hashes[is_in], self.slots[is_in], self.index)


class LatestRows:
    """The last row of each key.

    Args:
        keys: the names of the key columns.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._parts: list[tuple[int, pa.RecordBatch]] = []
        """All rows, in a few batches, each with the number of its first row: less is to do for them than for tables."""
        self._end = 0
        self._index = HashIndex(0)
        """The number of the last row of each key."""

    def look_up(self, keys: pa.Table) -> SoughtKeys:
        """Look for keys; those whose rows are added then come once."""
        hashes = hashes_of(keys)
        return SoughtKeys(hashes, self._slots_of(keys, hashes), self._index)

    def rows_of(self, sought: SoughtKeys) -> tuple[Positions, list[pa.RecordBatch]]:
        """Return the last rows of those keys that are there, in parts, and the position of each one's key."""
        numbers = self._index.numbers_at(sought.slots)
        positions = np.flatnonzero(numbers >= 0)
        positions = positions[np.argsort(numbers[positions])]
        return positions, self._in_order(numbers[positions])

    def add(self, rows: pa.Table, sought: SoughtKeys | None = None) -> None:
        """Add rows, each key once; ``sought`` are their keys, if looked up; none of them was added since."""
        if not rows.num_rows:
            return
        if sought is None or sought.index is not self._index:
            sought = self.look_up(rows.select(self._keys))
        numbers = self._end + np.arange(rows.num_rows)
        is_known = sought.slots >= 0
        self._index.renumber(sought.slots[is_known], numbers[is_known])
        new = numbers[~is_known]
        if not self._index.has_room(len(new)):
            self._index = self._index.with_room(len(new))
        self._index.add(sought.hashes[~is_known], new)
        for batch in rows.combine_chunks().to_batches():
            self._parts.append((self._end, batch))
            self._end += batch.num_rows
        # Tables double in length from the last to the first: there are few, and each row is copied few times.
        while len(self._parts) > 1 and self._parts[-1][1].num_rows >= self._parts[-2][1].num_rows:
            (first, before), (_, last) = self._parts[-2:]
            if before.nbytes + last.nbytes > BYTES_MAX:
                break
            self._parts[-2:] = [(first, pa.concat_batches([before, last]))]

    def over(self, column: str, until: int) -> list[pa.Table]:
        """Return the last rows of keys whose time in a column is at or before a time in µs since 1970 UTC, in parts."""
        batches = []
        for first, batch in self._parts:
            rows = pa.Table.from_batches([batch])
            at = np.flatnonzero(are_over(rows, column, until).to_numpy())
            if len(at):
                taken_rows = rows.take(at)
                is_last = self._index.numbers_at(self.look_up(taken_rows.select(self._keys)).slots) == first + at
                batches.append(taken_rows.filter(pa.array(is_last)))
        return batches

    def _slots_of(self, keys: pa.Table, hashes: Hashes) -> Positions:
        def are_same(positions: Positions, numbers: Positions) -> Mask:
            order = np.argsort(numbers)
            is_same = np.empty(len(positions), dtype=bool)
            if len(positions):
                stored = pa.Table.from_batches(self._in_order(numbers[order], self._keys))
                is_same[order] = are_equal(keys.take(positions[order]), stored)
            return is_same

        return self._index.slots_of(hashes, are_same)

    def _in_order(self, numbers: Positions, names: Sequence[str] | None = None) -> list[pa.RecordBatch]:
        bounds = numbers.searchsorted([*(first for first, _ in self._parts), self._end])
        return [
            (rows if names is None else rows.select(names)).take(pa.array(numbers[start:end] - first))
            for (first, rows), start, end in zip(self._parts, bounds, bounds[1:], strict=False)
            if start < end
        ]
