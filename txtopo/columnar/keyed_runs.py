"""An index of the keys of rows in several runs: a look-up costs about the same in many runs as in one.

The rows of some runs lie together in *tiers*, each with the hashes of its keys in rising order, as in a log-structured
tree: a tier is longer than the next one, up to a bound. So there are few, and each row is copied few times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.columnar.hashing import Hashes
from txtopo.columnar.key_index import HashedKeys, Mask, Positions, are_equal, hashes_of
from txtopo.columnar.rows_by_time import Run
from txtopo.columnar.selection import rows_at

ROWS_MAX = 1 << 20
"""The most rows of a tier of several runs: to merge them takes 0.1 s, in which a transaction waits."""

BYTES_MAX = 1 << 28
"""The most bytes of them."""

Numbers = npt.NDArray[np.uint32]
"""Positions of rows in a tier, in half the room."""

Place = Callable[[Sequence[pa.Table]], pa.Table]
"""Returns rows of several tables in one piece."""


def _in_memory(parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts).combine_chunks()


class KeyedRuns:
    """The rows of each key in some runs.

    It takes 12 bytes for each row, and lets runs be slices of common rows.

    Args:
        key: the columns of the key.
        column: the column with the time of a row.
        place: where rows that are put together lie; by default in memory.
    """

    def __init__(self, key: Sequence[str], column: str, place: Place = _in_memory) -> None:
        self._key = list(key)
        self._together = lambda parts: Run.as_they_are(place(parts), column)
        self._indexed: tuple[frozenset[Run], Sequence[_Tier]] = frozenset(), ()
        """Some runs, and their tiers: in one piece, for threads that look keys up at once."""

    def follow(self, runs: Collection[Run]) -> Sequence[_Tier]:
        """Have the keys of some runs and of no others, so that the first look-up in them need not; return the tiers."""
        current, tiers = self._indexed
        if len(current) == len(runs) and current.issuperset(runs):
            return tiers
        current = frozenset(runs)
        tiers_left = [tier for each in tiers if (tier := each.of_those(current)) is not None]
        indexed = {run for tier in tiers_left for run in tier.runs}
        tiers_left += [_Tier.of(run, self._key) for run in runs if run not in indexed and len(run.times)]
        stack: list[list[_Tier]] = []
        for tier in sorted(tiers_left, key=lambda tier: tier.left, reverse=True):
            stack.append([tier])
            while len(stack) > 1 and _are_to_merge(stack[-2], stack[-1]):
                stack[-2:] = [stack[-2] + stack[-1]]
        tiers = [
            # Rows that are gone stay while they are fewer than the others.
            each[0] if len(each) == 1 and each[0].left * 2 > len(each[0]) else _Tier.merged(each, self._together)
            for each in stack
        ]
        self._indexed = current, tiers
        return tiers

    def holds(self, runs: Collection[Run], keys: pa.Table, after: int) -> Mask:
        """Return for each key, a row of the key columns, whether one of some runs has a row of it after a time."""
        if not (runs and keys.num_rows):
            return np.zeros(keys.num_rows, dtype=bool)
        hashed = HashedKeys.of(keys)
        has_row = np.zeros(hashed.keys.num_rows, dtype=bool)
        _, positions, is_same = self._matches(runs, hashed, after, keys.column_names)
        has_row[positions[is_same]] = True
        return has_row if hashed.numbers is None else has_row[hashed.numbers]

    def of_keys(self, runs: Collection[Run], keys: pa.Table, after: int) -> list[pa.Table]:
        """Return the rows of some keys, a table of the key columns, that some runs have after a time, in parts."""
        if not runs:
            return []
        rows, _, is_same = self._matches(runs, HashedKeys.of(keys), after)
        if is_same.all():
            return rows
        return [pa.concat_tables(rows).filter(pa.array(is_same))]

    def _matches(
        self, runs: Collection[Run], keys: HashedKeys, after: int, names: Sequence[str] | None = None
    ) -> tuple[list[pa.Table], Positions, Mask]:
        """Return the rows after a time whose keys have the hashes of some, the key of each, and whether that is its."""
        parts = [tier.at_hashes(keys, after, names) for tier in self.follow(runs)]
        if not parts:
            return [], np.zeros(0, np.int64), np.zeros(0, dtype=bool)
        rows, positions = [part for part, _ in parts], np.concatenate([positions for _, positions in parts])
        # Of all runs at once: in each of ten, the keys of a few rows took as long as those of all.
        is_same = are_equal(keys.keys.take(positions), pa.concat_tables(rows).select(keys.keys.column_names))
        return rows, positions, is_same


class RowsByTime:
    """Rows to which others are added; ordered by ``column`` once somebody asks for some by time."""

    def __init__(self, column: str, key: Sequence[str] = ()) -> None:
        self._column = column
        self._added: list[pa.Table] = []
        self._runs: list[Run] = []
        self._index = KeyedRuns(key, column)

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        self._added.append(rows)

    @property
    def runs(self) -> list[Run]:
        """All rows, in a few runs."""
        if self._added:
            self._runs.append(Run.of(pa.concat_tables(self._added), self._column))
            self._added = []
            # Runs double in length from the last to the first: there are few, and each row is copied few times.
            while len(self._runs) > 1 and len(self._runs[-1].times) >= len(self._runs[-2].times):
                last = self._runs.pop()
                self._runs[-1] = Run.of(pa.concat_tables([self._runs[-1].rows, last.rows]), self._column)
        return self._runs

    def count(self, after: int) -> int:
        """Return the number of rows after a time."""
        return sum(run.count(after) for run in self.runs)

    def between(self, after: int, until: int) -> list[pa.Table]:
        """Return the rows after one time and up to another, in parts."""
        return [run.between(after, until) for run in self.runs]

    def holds(self, keys: pa.Table, after: int) -> Mask:
        """Return for each key, a row of the key columns, whether it has a row after a time."""
        return self._index.holds(self.runs, keys, after)

    def of_keys(self, keys: pa.Table, after: int) -> list[pa.Table]:
        """Return the rows of some keys after a time, in parts."""
        return self._index.of_keys(self.runs, keys, after)

    def drop(self, until: int) -> None:
        """Forget the rows up to a time, or most of them."""
        self._runs = [run.without_dead(until) for run in self.runs if run.last > until]


@attrs.frozen(eq=False)
class _Tier:
    """The rows of some runs, and the hashes of their keys."""

    runs: Sequence[Run | None]
    """None in the place of one that is gone."""
    firsts: Positions
    """The position of the first row of each run, and the number of rows."""
    whole: Run
    """The rows, not in the order of their times."""
    hashes: Hashes
    """The hashes of the rows in rising order."""
    numbers: Numbers
    """The row of each hash."""

    def __len__(self) -> int:
        return len(self.numbers)

    @staticmethod
    def of(run: Run, key: Sequence[str]) -> _Tier:
        """Return the tier of one run."""
        count, hashes = len(run.times), hashes_of(run.rows.select(key))
        return _in_order(_Tier([run], np.array([0, count]), run, hashes, np.arange(count, dtype=np.uint32)))

    @staticmethod
    def merged(tiers: Iterable[_Tier], together: Callable[[Sequence[pa.Table]], Run]) -> _Tier:
        """Return one tier of the runs of several that are there, which become slices of its rows."""
        hashes, numbers = [], []
        runs: list[Run] = []
        firsts = [0]
        for tier in tiers:
            moves = np.zeros(len(tier.runs), np.int64)
            for at, run in enumerate(tier.runs):
                if run is not None:
                    moves[at] = firsts[-1] - tier.firsts[at]
                    runs.append(run)
                    firsts.append(firsts[-1] + len(run.times))
            is_there = tier.are_there(tier.numbers)
            hashes.append(tier.hashes[is_there])
            numbers.append((tier.numbers + np.repeat(moves, np.diff(tier.firsts))[tier.numbers])[is_there])
        joined_run = together([run.rows for run in runs])
        for run, first, end in zip(runs, firsts, firsts[1:], strict=False):
            run.rows, run.times = joined_run.rows.slice(first, end - first), joined_run.times[first:end]
        merged = np.concatenate(numbers).astype(np.uint32)
        return _in_order(_Tier(runs, np.array(firsts), joined_run, np.concatenate(hashes), merged))

    def of_those(self, current: Collection[Run]) -> _Tier | None:
        """Return the tier without the runs that are not there, whose rows stay; None if no run is there."""
        if all(run is None or run in current for run in self.runs):
            return self
        runs = [run if run in current else None for run in self.runs]
        return attrs.evolve(self, runs=runs) if any(runs) else None

    @property
    def left(self) -> int:
        """The number of rows of runs that are there."""
        return sum(len(run.times) for run in self.runs if run is not None)

    def are_there(self, numbers: Numbers) -> Mask:
        """Return which rows are of runs that are there."""
        return np.repeat([run is not None for run in self.runs], np.diff(self.firsts))[numbers]

    def at_hashes(self, keys: HashedKeys, after: int, names: Sequence[str] | None) -> tuple[pa.Table, Positions]:
        """Return the rows after a time whose keys have the hashes of some, with some columns, and the key of each."""
        first = self.hashes.searchsorted(keys.hashes)
        first[first == len(self)] = 0
        hits = np.flatnonzero(self.hashes[first] == keys.hashes)
        first = first[hits]
        counts = self.hashes.searchsorted(keys.hashes[hits], side="right") - first
        positions = np.repeat(keys.order[hits], counts)
        numbers = self.numbers[np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(len(positions))]
        is_left = self.whole.times[numbers] > after
        if None in self.runs:
            is_left &= self.are_there(numbers)
        rows = self.whole.rows if names is None else self.whole.rows.select(names)
        return rows_at(rows, numbers[is_left]), positions[is_left]


def _are_to_merge(earlier: Sequence[_Tier], later: Sequence[_Tier]) -> bool:
    earlier_rows, later_rows = (sum(tier.left for tier in tiers) for tiers in (earlier, later))
    if earlier_rows > later_rows or earlier_rows + later_rows > ROWS_MAX:
        return False
    return int(sum(tier.whole.rows.nbytes for tier in (*earlier, *later))) <= BYTES_MAX


def _in_order(tier: _Tier) -> _Tier:
    assert tier.firsts[-1] < 1 << 32, "its rows have numbers of 32 bits"
    order = np.argsort(tier.hashes, kind="stable")
    return attrs.evolve(tier, hashes=tier.hashes[order], numbers=tier.numbers[order])
