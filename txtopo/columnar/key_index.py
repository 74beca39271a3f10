"""Indexes of the keys of a table by their hashes, which find many keys at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.columnar.hashing import Hashes, hash_columns
from txtopo.columnar.selection import rows_at

Positions = npt.NDArray[np.int64]
"""Positions of rows in a table, from 0; -1 for missing rows."""

Slots = npt.NDArray[np.int32]
"""Slots of keys in a :class:`HashIndex`; -1 for none."""

Mask = npt.NDArray[np.bool_]

_FREE, _GONE = -1, -2
"""In place of the number, in a slot that never had a key since the table was built, and in one whose key is gone."""

_PARTS_MAX = 32
"""Into how many parts of the index the keys are divided before, at most."""

_FEW, _STRIDE = 64, 32
"""From how few keys on a look-up looks at so many slots at a time for each."""

_DIGITS_MAX = 76
"""Of Arrow's largest decimal: room for any two of 38."""

_LOAD_MIN, _LOAD_MAX = 0.55, 0.75
"""The share of slots with keys when the table is built, and from which on there is no room for more."""


@attrs.frozen
class IndexSizes:
    """The bounds of a :class:`HashIndex`."""

    numbers: int = 1 << 31
    """How many numbers it can tell apart."""
    slots: int = 1024
    """How many slots it has at least: some KiB, so that a table of few keys does not grow with each of them."""
    portion: int = 1 << 18
    """How many keys are added at a time."""


@attrs.frozen(eq=False)
class HashedKeys:
    """Keys to look up, each once, maybe in several indexes: a table of the key columns, and their hashes in order."""

    keys: pa.Table
    hashes: Hashes
    order: npt.NDArray[np.int64]
    """The key of each hash."""
    numbers: Positions | None
    """Which of the keys each of those that were given is, if they are others."""

    @staticmethod
    def of(rows: pa.Table) -> HashedKeys:
        """Return keys, which may come several times, with their hashes."""
        keys, numbers, hashes = rows, None, hashes_of(rows)
        order = np.argsort(hashes)  # sorted lookups are 7 times faster, because neighbours are near in memory
        # To tell keys apart that may be the same takes as long as to look them up.
        if bool((hashes[order[1:]] == hashes[order[:-1]]).any()):
            _, first, numbers = np.unique(key_ids(rows, rows.column_names), return_index=True, return_inverse=True)
            keys, hashes = rows_at(rows, first), hashes[first]
            order = np.argsort(hashes)
        return HashedKeys(keys, hashes[order], order, numbers)


class HashIndex:
    """The numbers of keys by the keys' hashes: an open hash table that finds and adds many keys at a time.

    Different keys may have the same hash, so whoever looks keys up says which of the numbers found are theirs. A number
    is at least 0 and below ``sizes.numbers``; no two keys have the same.

    A key stays in its slot until it is removed, so whoever keeps the slots of keys gives them other numbers without a
    look-up. There is room for some more keys; for others, *you* make another index.

    Finding 1,000 keys among 10,000,000 takes 0.5 ms. The index takes 16 to 22 bytes for each key, and 1 s to build for
    10,000,000.

    Args:
        count: for how many keys there must be room.
        step: called for each portion of the keys that are added, which may be millions.
        array: returns an array of so many integers of a type, all bits of which are set; by default in memory.
        sizes: its bounds.
    """

    def __init__(
        self,
        count: int,
        step: Callable[[], object] = lambda: None,
        array: Callable[[int, npt.DTypeLike], npt.NDArray[Any]] | None = None,
        sizes: IndexSizes = IndexSizes(),
    ) -> None:
        self._step = step
        self._sizes = sizes
        self._array = array or ones
        slots = max(sizes.slots, int(count / _LOAD_MIN))
        self._hashes = self._array(slots, np.uint64)
        self._numbers = self._array(slots, np.int32)
        assert _FREE == -1, "all of its bits are set"
        self._used = 0
        """The number of slots that are not free: those of keys, and of keys that were removed."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._hashes.nbytes + self._numbers.nbytes

    @property
    def is_empty(self) -> bool:
        """Whether no key was ever added."""
        return not self._used

    def copy(self) -> HashIndex:
        """Return another index of the same keys, in memory."""
        copied = copy.copy(self)
        vars(copied).update(_hashes=self._hashes.copy(), _numbers=self._numbers.copy())
        return copied

    def with_room(self, count: int) -> HashIndex:
        """Return another index of the same keys, in other slots, with room for at least so many more."""
        slots = np.flatnonzero(self._numbers >= 0)
        larger = HashIndex(2 * (len(slots) + count), self._step, sizes=self._sizes)
        larger.add(self._hashes[slots], self._numbers[slots].astype(np.int64))
        return larger

    def find(self, hashes: Hashes, are_same: Callable[[Positions, Positions], Mask]) -> Positions:
        """Return the number of each key, given the keys' hashes; -1 for keys that are not there.

        ``are_same`` returns, for positions in ``hashes`` and numbers found for them, which numbers are of those keys.
        """
        return self.numbers_at(self.slots_of(hashes, are_same))

    def slots_of(self, hashes: Hashes, are_same: Callable[[Positions, Positions], Mask]) -> Positions:
        """Return the slot of each key, as :meth:`find` finds it; -1 for keys that are not there."""
        slots, open_keys = self._home_of(hashes), np.arange(0 if self.is_empty else len(hashes))
        slots_found = np.full(len(hashes), -1, dtype=np.int64)
        while len(open_keys):
            hits = self._at_hashes(hashes, slots, open_keys)
            is_same = are_same(hits, self._numbers[slots[hits]].astype(np.int64))
            slots_found[hits[is_same]] = slots[hits[is_same]]
            open_keys = hits[~is_same]
            slots[open_keys] = (slots[open_keys] + 1) % len(self._numbers)
        return slots_found

    def numbers_at(self, slots: Positions) -> Positions:
        """Return the number of the key in each slot; -1 for slots of -1."""
        return np.where(slots < 0, -1, self._numbers[slots].astype(np.int64))

    def find_one(self, hashed: int, is_same: Callable[[int], bool]) -> int:
        """Return the number of one key, given its hash; -1 if it is not there."""
        slot, count = ((hashed >> 32) * len(self._numbers)) >> 32, len(self._numbers)
        while (number := int(self._numbers[slot])) != _FREE:
            if number >= 0 and int(self._hashes[slot]) == hashed and is_same(number):
                return number
            slot = (slot + 1) % count
        return -1

    def hashes_at(self, slots: Slots) -> Hashes:
        """Return the hash of the key in each slot."""
        return self._hashes[slots]

    def has_room(self, count: int) -> bool:
        """Whether so many keys may be added: slots of keys that are gone are not used again."""
        return self._used + count <= len(self._numbers) * _LOAD_MAX

    def add(self, hashes: Hashes, numbers: Positions) -> Slots:
        """Add keys that are not there, for which there is room; return the slot of each."""
        assert self.has_room(len(hashes)), "there is room for them"
        assert not len(numbers) or numbers.max() < self._sizes.numbers, "numbers begin anew before they end"
        slots: Slots = self._array(len(hashes), np.int32)
        for portion in _portions(hashes, self._sizes.portion):
            slots[portion] = self._put(hashes[portion], numbers[portion].astype(np.int64))
        return slots

    def _put(self, hashes: Hashes, numbers: Positions) -> Positions:
        self._used += len(hashes)
        slots, open_keys = self._home_of(hashes), np.arange(len(hashes))
        while len(open_keys):
            at = slots[open_keys]
            is_free = self._numbers[at] == _FREE
            free_keys, at = open_keys[is_free], at[is_free]
            self._numbers[at] = numbers[free_keys]
            self._hashes[at] = hashes[free_keys]
            # Of several that find the same slot free, the last one has it.
            open_keys = np.concatenate([open_keys[~is_free], free_keys[self._numbers[at] != numbers[free_keys]]])
            slots[open_keys] = (slots[open_keys] + 1) % len(self._numbers)
        self._step()
        return slots

    def renumber(self, slots: Positions | Slots, news: Positions) -> None:
        """Give the keys in some slots other numbers."""
        is_bounded = not len(news) or 0 <= news.min() <= news.max() < self._sizes.numbers
        assert is_bounded, "numbers begin anew before they end"
        assert not len(slots) or slots.min() >= 0, "the keys are there"
        self._numbers[slots] = news

    def remove(self, slots: Positions | Slots) -> None:
        """Remove the keys in some slots."""
        assert not len(slots) or slots.min() >= 0, "the keys are there"
        self._numbers[slots] = _GONE

    def _at_hashes(self, hashes: Hashes, slots: Positions, open_keys: Positions) -> Positions:
        """Move the slots of some keys on to the next ones with their hashes; return the keys that have such a slot."""
        owns = [open_keys[:0]]
        while len(open_keys) > _FEW:
            at = slots[open_keys]
            occupants = self._numbers[at]
            is_hit = (self._hashes[at] == hashes[open_keys]) & (occupants >= 0)
            owns.append(open_keys[is_hit])
            open_keys = open_keys[(occupants != _FREE) & ~is_hit]
            slots[open_keys] = (slots[open_keys] + 1) % len(self._numbers)
        while len(open_keys):  # the last few of 1,000 keys took two thirds of the time, a slot at a time
            at = (slots[open_keys, None] + np.arange(_STRIDE)) % len(self._numbers)
            occupants = self._numbers[at]
            is_hit = (self._hashes[at] == hashes[open_keys, None]) & (occupants >= 0)
            is_end = is_hit | (occupants == _FREE)
            is_end[:, -1] = True
            ends = np.arange(len(open_keys)), is_end.argmax(axis=1)
            slots[open_keys] = at[ends]
            owns.append(open_keys[is_hit[ends]])
            open_keys = open_keys[(occupants[ends] != _FREE) & ~is_hit[ends]]
            slots[open_keys] = (slots[open_keys] + 1) % len(self._numbers)
        return np.concatenate(owns)

    def _home_of(self, hashes: Hashes) -> Positions:
        return (((hashes >> np.uint64(32)) * np.uint64(len(self._numbers))) >> np.uint64(32)).astype(np.int64)


def _portions(hashes: Hashes, size: int) -> Iterator[Any]:
    """Yield the positions of some keys in portions, those with neighbouring slots one after another.

    So an index that lies in a mapped file is written to from front to back. In any other order each of 190 portions of
    50,000,000 keys changes all of its pages: the system wrote 31 GB.
    """
    if len(hashes) <= size:
        if len(hashes):
            yield slice(None)
        return
    count = min(_PARTS_MAX, -(-len(hashes) // (4 * size)))
    bounds = [(number << 64) // count for number in range(count)]
    for first, end in zip(bounds, [*bounds[1:], None], strict=True):
        is_own = hashes >= np.uint64(first)
        if end is not None:
            is_own &= hashes < np.uint64(end)
        portion = np.flatnonzero(is_own)
        for start in range(0, len(portion), size):
            yield portion[start : start + size]


def ones(count: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array of integers all of whose bits are set."""
    return np.full(count, np.array(-1).astype(kind))


class KeyNumbers:
    """The numbers of some keys, to tell which rows of a table have which of them, a portion at a time.

    Args:
        keys: a table of the key columns, with each key once; its number is its position.
    """

    def __init__(self, keys: pa.Table) -> None:
        self._keys = keys.combine_chunks()
        self._index = HashIndex(keys.num_rows)
        self._index.add(hashes_of(self._keys), np.arange(keys.num_rows))

    def of(self, rows: pa.Table) -> Positions:
        """Return for each row of the key columns the number of its key; -1 if it has none of them."""
        rows = rows.combine_chunks()

        def are_same(positions: Positions, numbers: Positions) -> Mask:
            return are_equal(rows.take(positions), rows_at(self._keys, numbers))

        return self._index.find(hashes_of(rows), are_same)


def as_numbers(column: Any, kind: pa.DataType) -> Any:
    """Return a column of integers or decimals in another type of them; one that this does not hold is null.

    It equals no number of that type. Columns of other types, and decimals for integers, stay as they are.
    """
    theirs = column.type
    if theirs == kind:
        return column
    if pa.types.is_integer(kind) and pa.types.is_integer(theirs):
        bounds = np.iinfo(kind.to_pandas_dtype())
        fits = pc.and_(pc.greater_equal(column, int(bounds.min)), pc.less_equal(column, int(bounds.max)))
    elif pa.types.is_decimal(kind) and (pa.types.is_integer(theirs) or pa.types.is_decimal(theirs)):
        exact = column.cast(pa.decimal256(_DIGITS_MAX, max(kind.scale, getattr(theirs, "scale", 0))))
        column = exact.cast(pa.decimal256(_DIGITS_MAX, kind.scale), safe=False)  # cut off
        end = pa.scalar(10 ** (kind.precision - kind.scale), column.type)
        fits = pc.and_(pc.equal(column.cast(exact.type), exact), pc.less(pc.abs(column), end))
    else:
        return column
    return pc.if_else(fits, column, pa.scalar(None, column.type)).cast(kind)


def key_ids(rows: pa.Table, keys: Sequence[str]) -> Positions:
    """Return a number for each row's key, the same for equal keys; less than the number of rows."""
    ids = np.zeros(rows.num_rows, dtype=np.int64)
    for number, name in enumerate(keys):
        encoded = pc.dictionary_encode(rows[name].combine_chunks(), null_encoding="encode").indices
        codes = encoded.to_numpy(zero_copy_only=False).astype(np.int64)
        ids = np.unique(ids * (rows.num_rows + 1) + codes, return_inverse=True)[1] if number else codes
    return ids.astype(np.int64)


def hashes_of(keys: pa.Table) -> Hashes:
    """Return the hash of each key, of a table of the key columns."""
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


def are_equal(left: pa.Table, right: pa.Table) -> npt.NDArray[np.bool_]:
    """Return for each position whether the rows of two tables are equal."""
    is_same = np.ones(left.num_rows, dtype=bool)
    for name in left.column_names:
        left_column, right_column = left[name], right[name]
        equal = pc.equal(left_column, right_column)
        if equal.null_count:  # two nulls are equal, too
            equal = pc.fill_null(equal, pc.equal(left_column.is_null(), right_column.is_null()))
        is_same &= equal.to_numpy().astype(bool)
    return is_same
