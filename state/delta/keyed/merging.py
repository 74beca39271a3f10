"""Merges segments of a keyed table with deletion vectors, beside its writes.

Each write adds a small segment, and marks rows of others as dead. So segments are merged in tiers: once several are of
about the same size, they become one. A large one is written again when most of its rows are dead. That way a row is
written once for each tier, and a write has few segments to mark rows in.

A large merge outlasts writes, which mark rows in the segments that it reads. When it has ended, those rows are marked
in the new one, at their places there: were it tried again instead, it might never end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import attrs
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from state.delta.keyed.segments import Merged, Segments, live_positions
from state.delta.keyed.writing import with_dead
from state.delta.log.data_files import DataFile, DataFolder
from state.delta.log.put import Change

__all__ = ["Merging", "to_merge"]

SEGMENT_ROWS = 5_000_000
"""The maximum number of rows of a segment: with few large ones, a write has few vectors to write."""

_TIER = 8
"""How many segments of a tier become one of the next tier."""

_SMALL_ROWS, _TIER_BITS = 1 << 10, 3
"""Segments of fewer rows are all of one tier; each further one has 8 times as many rows."""

_REWRITTEN_ROWS_MIN = 1 << 16
"""A smaller segment is not written again for its dead rows alone: its tier is merged soon."""


def to_merge(files: Iterable[DataFile]) -> list[DataFile]:
    """Return the segments to merge next, those of the smallest tier that is full; none if no merge pays."""
    tiers: dict[int, list[DataFile]] = {}
    for file in sorted(files, key=lambda each: each.live):
        tiers.setdefault(max(0, (file.live // _SMALL_ROWS).bit_length() - 1) // _TIER_BITS, []).append(file)
    for tier in sorted(tiers):
        own = _up_to(SEGMENT_ROWS, tiers[tier])
        if len(own) >= _TIER:
            return own
    mostly_dead = [
        file for own in tiers.values() for file in own if file.rows >= _REWRITTEN_ROWS_MIN and file.live * 2 < file.rows
    ]
    return _up_to(SEGMENT_ROWS, mostly_dead)


def _up_to(rows: int, files: Sequence[DataFile]) -> list[DataFile]:
    """Return the first files, whose live rows are at most ``rows`` together."""
    totals = np.cumsum([file.live for file in files])
    return list(files[: int(np.searchsorted(totals, rows, side="right"))])


@attrs.frozen(eq=False)
class Ended:
    """A merge that has ended: the change to put, and what holds its rows in memory."""

    change: Change
    hold: Callable[[Segments], None]


@attrs.frozen(eq=False)
class _Made:
    """What a merge has made.

    Args:
        file: its file; None if no row was live.
        merged: the sources and the rows.
        dead: the dead rows of each source when it was read.
    """

    file: DataFile | None
    merged: Merged
    dead: Sequence[BitMap64]


class Merging:
    """The merge of some segments of one table, in a thread; one at a time.

    Args:
        data: the table's data files.
        schema: its columns.
        kept: returns rows, given in portions, as they are held in memory, or in a mapped file.
    """

    def __init__(self, data: DataFolder, schema: pa.Schema, kept: Callable[[Iterable[pa.Table]], pa.Table]) -> None:
        self._data = data
        self._schema = schema
        self._kept = kept
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[_Made] | None = None

    def is_due(self, files: Mapping[str, DataFile]) -> bool:
        """Whether a merge has ended, or should begin."""
        return bool(to_merge(files.values())) if self._under_way is None else self._under_way.done()

    def begin(self, files: Mapping[str, DataFile]) -> None:
        """Begin to merge some of a version's files, unless a merge is under way or none pays."""
        chosen = to_merge(files.values()) if self._under_way is None else ()
        if chosen:
            self._thread = self._thread or ThreadPoolExecutor(1, "txtopo-merge")
            self._under_way = self._thread.submit(self._merge, chosen)

    def ended(self, files: Mapping[str, DataFile], dead_now: Callable[[DataFile], BitMap64]) -> Ended | None:
        """Return the merge that has ended, for a version with some files; None if there is none.

        A source that the version does not have is dead whole, or somebody has moved its rows to other files: either
        way none of its rows is live in it. If one has rows that were dead, the table has gone back: the merge is in
        vain.

        Raises:
            Exception: one of :data:`~state.delta.log.ownership.WORLD_ERRORS`, for which it was in vain, too.
        """
        under_way = self._under_way
        if under_way is None or not under_way.done():
            return None
        self._under_way = None
        made = under_way.result()
        removed, dead, at = [], BitMap64(), 0
        for (path, live), then in zip(made.merged.sources, made.dead, strict=True):
            file = files.get(path)
            if file is None:
                dead |= BitMap64(range(at, at + len(live)))
            else:
                removed.append(file)
                now = dead_now(file)
                if then - now:
                    self._drop(made)
                    return None
                died = np.array((now - then).to_array(), dtype=np.int64)
                dead |= BitMap64((at + live.searchsorted(died)).astype(np.uint64))
            at += len(live)
        if not removed:
            self._drop(made)
            return None
        merged = [] if made.file is None else [made.file]
        added = with_dead(self._data, merged, {made.file.path: dead}) if made.file is not None and dead else merged
        return Ended(
            Change(added, removed, is_of_rows=False), lambda segments: segments.merge(made.merged, added, dead)
        )

    def _drop(self, made: _Made) -> None:
        if made.file is not None:
            self._data.location.folder.delete(made.file.place)

    def close(self) -> None:
        """Wait for the merge under way, which is in vain."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        if self._under_way is not None and self._under_way.exception() is None:
            self._drop(self._under_way.result())
        self._under_way = None

    def _merge(self, files: Sequence[DataFile]) -> _Made:
        deads = [self._data.dead(file) for file in files]
        sources = [(file.path, live_positions(file.rows, dead)) for file, dead in zip(files, deads, strict=True)]
        rows = self._kept(portion for file in files for portion in self._data.portions(file, self._schema))
        made = self._data.put("merged", rows) if rows.num_rows else None
        return _Made(made, Merged(sources, rows), deads)
