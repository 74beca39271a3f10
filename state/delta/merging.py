"""Merges the data files of a table, beside its writes.

Each write adds files, small ones among them, and leaves rows in others that are *over*: dead by a deletion vector, or
expired. So files are merged, and those most of whose rows are over are written again without them. Which ones is a rule
of each kind of table:

- :func:`in_tiers`, for tables with deletion vectors: once several files are of about the same size, they become one.
  That way a row is written once for each tier, and a write has few files to mark rows in.
- :func:`in_bins`, for others: small files of one partition become large ones, once that saves enough of them.
- Rows that expire are merged in the order of their times, so that whole files go; see
  :mod:`state.delta.expiring.state`.

A merge outlasts writes, which change what it reads. When it has ended, and is to be put:

1. Rows that writes have marked as dead meanwhile are marked in the new file, at their places there: were it tried again
   instead, it might never end.
2. An old file that is gone, and whose rows have all expired by now, is as good as there: nobody sees its rows in the
   new file.
3. An old file that is gone otherwise was replaced: by a write to a table without vectors or to a partition, or by
   somebody else's OPTIMIZE. With vectors its rows are dead in the new file. Without, the old files that are left are
   merged again. They are fewer each time, so that ends, and in the end those are merged that nobody has touched for a
   while.
4. If an old file has rows that were over, the table has gone back, and the merge is in vain.

Where others move rows all the time, one merge after the other is in vain, so each time twice as many occasions to begin
pass by, up to a bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from state.delta.log.data_files import DataFile, DataFolder, Sizes, without
from state.delta.log.ownership import WORLD_ERRORS
from state.delta.log.put import Change
from state.delta.log.vectors import bitmap_of, portions_in, positions_in
from txtopo.columnar.progress_probe import current_probe
from txtopo.columnar.rows_by_time import AFTER_ALL, BEFORE_ALL, are_over, times_of

SEGMENT_ROWS, SEGMENT_BYTES = 5_000_000, 1 << 30
"""The most rows of a file in tiers, and the most bytes: with few large ones, a write has few vectors to write."""

_SMALL_ROWS, _TIER_BITS = 1 << 10, 3
"""Files of fewer rows are all of one tier; each further one has 8 times as many rows."""

_REWRITTEN_BYTES = SEGMENT_BYTES >> 3
"""A file of fewer bytes is not written again for the rows that are over alone, see :attr:`Sizes.rewritten_rows`."""

_LEFT_OUT_MAX = 64
"""How many occasions to begin a round pass by at most after one that was in vain."""

FILE_BYTES = 64 * 1024 * 1024
"""The approximate size of files that were merged in bins; those of at least half this size are left alone."""

Files = Sequence[DataFile]

IsOver = Callable[[DataFile], bool]
"""Returns whether most rows of a file are over."""


def in_tiers(files: Files, is_over: IsOver, sizes: Sizes) -> list[Files]:
    """Return the files of the smallest tier that is full, and of the others large ones most of whose rows are over."""
    tiers: dict[int, list[DataFile]] = {}
    for file in sorted(files, key=lambda file: file.live):
        tiers.setdefault(max(0, (file.live // _SMALL_ROWS).bit_length() - 1) // _TIER_BITS, []).append(file)
    full: Files = ()
    for tier in sorted(tiers):
        tier_files = _for_one(tiers[tier])
        if len(tier_files) >= sizes.tier_files:
            full = tiers.pop(tier)[: len(tier_files)]
            break
    large = (
        file
        for tier_files in tiers.values()
        for file in tier_files
        if file.rows >= sizes.rewritten_rows or file.size >= _REWRITTEN_BYTES
    )
    return [each for each in (full, _for_one([file for file in large if is_over(file)])) if each]


def _for_one(files: Files) -> Files:
    """Return the first files, as many as their live rows fit into one file; at least one, which others have made."""
    rows = size = 0
    for count, file in enumerate(files):
        rows += file.live
        size += file.size * file.live // max(file.rows, 1)
        if count and (rows > SEGMENT_ROWS or size > SEGMENT_BYTES):
            return files[:count]
    return files


def in_bins(files: Files, is_over: IsOver, files_max: int) -> list[Files]:
    """Return small files in bins of one partition, if that saves ``files_max`` of them, and those mostly over alone."""
    oversized = {file.path: file for file in files if is_over(file)}
    by_partition: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        if file.size < FILE_BYTES // 2 and file.path not in oversized:
            by_partition.setdefault(tuple(file.partition.values()), []).append(file)
    bins: list[list[DataFile]] = []
    for partition_files in by_partition.values():
        size = FILE_BYTES  # as if a bin were full, so that each partition begins one of its own
        for file in sorted(partition_files, key=lambda file: file.size):
            if size + file.size > FILE_BYTES:
                bins.append([])
                size = 0
            bins[-1].append(file)
            size += file.size
    saved = sum(len(each) - 1 for each in bins)
    return [*([file] for file in oversized.values()), *(each for each in bins if len(each) > 1 and saved >= files_max)]


@attrs.frozen(eq=False)
class Policy:
    """How the files of one table are merged.

    Args:
        choose: returns the files to merge, those of one partition each time, given all, the time up to which rows have
            expired, and what tells the files that are mostly over. It is called in the thread of merges.
        is_due: whether to begin after a write, and not only when upkeep is due.
        has_vectors: whether rows of the new file may be marked as dead.
        time: the column by which rows expire; empty if they do not.
        arranged: returns the rows of each new file, given those of the old ones.
        kept: returns rows, given in portions, as they are to be held beside the table; None if they are not.
        held: returns all rows of a file that are held so; None if they are not. It is called in the thread of merges.
    """

    choose: Callable[[Files, int, IsOver], Sequence[Files]]
    is_due: Callable[[Files], bool] = lambda _: False
    has_vectors: bool = False
    time: str = ""
    arranged: Callable[[pa.Table], Sequence[pa.Table]] = lambda rows: [rows] if rows.num_rows else []
    kept: Callable[[Iterable[pa.Table]], pa.Table] | None = None
    held: Callable[[DataFile], pa.Table | None] = lambda _: None

    @staticmethod
    def of_tiers(sizes: Sizes, **options: Any) -> Policy:
        """Return that of a table with deletion vectors."""
        return Policy(
            lambda files, _, is_over: in_tiers(files, is_over, sizes),
            lambda files: bool(in_tiers(files, is_mostly_dead, sizes)),
            has_vectors=True,
            **options,
        )

    @staticmethod
    def of_bins(files_max: int, **options: Any) -> Policy:
        """Return that of a table without, whose small files are merged if that saves ``files_max`` of them."""
        return Policy(lambda files, _, is_over: in_bins(files, is_over, files_max), **options)


def is_mostly_dead(file: DataFile) -> bool:
    """Whether most rows of a file are dead."""
    return file.live * 2 < file.rows


@attrs.frozen(eq=False)
class OldFile:
    """A file that was merged.

    Args:
        path: its path.
        live: the positions of the rows in it that were merged.
        dead: its dead rows then.
        expired: how many rows were left out because they had expired.
        last: the last time of the merged ones; after all others if they do not expire.
    """

    path: str
    live: BitMap64
    dead: BitMap64
    expired: int
    last: int


@attrs.frozen(eq=False)
class Merged:
    """Files that were merged.

    Args:
        files: the new ones.
        rows: the rows of each, if they are kept: those of the old ones, one after another unless they are arranged.
        old: those that they replace.
    """

    files: Files
    rows: Sequence[pa.Table]
    old: Sequence[OldFile]


@attrs.frozen(eq=False)
class Put:
    """What is put of a merge: its files as they are in the table, and the old ones that are still there.

    ``dead`` are the positions of merged rows that are dead in the new file.
    """

    merged: Merged
    added: Files
    removed: Files
    dead: BitMap64


@attrs.frozen(eq=False)
class Ended:
    """Merges that have ended, and are to be put in one version."""

    puts: Sequence[Put]

    @property
    def change(self) -> Change:
        """What that changes."""
        added: list[DataFile] = []
        removed: list[DataFile] = []
        for put in self.puts:
            added += put.added
            removed += put.removed
        return Change(added, removed, is_of_rows=self.has_expired)

    @property
    def has_expired(self) -> bool:
        """Whether rows are left out that have expired."""
        return any(file.expired for put in self.puts for file in put.merged.old)


class Merging:
    """The merges of one table, by a policy, in a thread; one round at a time."""

    def __init__(self, data: DataFolder, schema: pa.Schema, policy: Policy) -> None:
        self._data = data
        self._schema = schema
        self._policy = policy
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[list[Merged]] | None = None
        self._until = BEFORE_ALL
        """Up to when rows had expired for the round under way."""
        self._reads: list[str] = []
        """The paths of the files that the round under way reads."""
        self._in_vain = 0
        """How many rounds one after another were in vain."""
        self._left_out = 0
        """How many occasions to begin a round are still to pass by."""
        self._half_over: dict[str, int] = {}
        """For each file the time from which on most of its rows have expired."""

    def is_due(self, files: Mapping[str, DataFile]) -> bool:
        """Whether a round has ended, or should begin whatever upkeep there is."""
        return self._policy.is_due([*files.values()]) if self._under_way is None else self._under_way.done()

    def begin(self, files: Mapping[str, DataFile], until: int, *, is_upkeep_due: bool) -> None:
        """Begin to merge some of a version's files, unless a round is under way or none is due.

        ``until`` is the time up to which rows have expired in that version.
        """
        all_files = [*files.values()]
        if self._under_way is None and (is_upkeep_due or self._policy.is_due(all_files)):
            if self._left_out:
                self._left_out -= 1
                return
            self._submit(lambda: self._chosen(all_files, until), until)

    def ended(
        self, files: Mapping[str, DataFile], until: int, dead_now: Callable[[DataFile], BitMap64]
    ) -> Ended | None:
        """Return what is to be put of the round that has ended; None if there is nothing.

        Args:
            files: those of the version on top of which it is put.
            until: up to when rows have expired in that version.
            dead_now: returns the positions of the dead rows of one of its files.

        Raises:
            Exception: one of :data:`~state.delta.log.ownership.WORLD_ERRORS`, for which it was in vain, although the
                version has all that it was to read.
        """
        under_way = self._under_way
        if under_way is None or not under_way.done():
            return None
        self._under_way = None
        puts, again = [], []
        try:
            ended = under_way.result()
        except WORLD_ERRORS:
            if all(path in files for path in self._reads):
                raise
            self._back_off()
            return None  # somebody has moved rows that it was to read, and removed the files
        for merged in ended:
            put = self._put(merged, files, until, dead_now) if until >= self._until else None
            if put is not None and put.removed and (self._policy.has_vectors or not put.dead):
                puts.append(put)
                continue
            self._drop(merged)
            if put is not None and len(put.removed) > 1:
                again.append(put.removed)
        if again:
            self._submit(lambda: again, until)
        elif ended and not puts:
            self._back_off()
        if puts:
            self._in_vain = 0
        return Ended(puts) if puts else None

    def _back_off(self) -> None:
        self._in_vain += 1
        self._left_out = min(_LEFT_OUT_MAX, 1 << self._in_vain)

    def close(self) -> None:
        """Wait for the round under way, which is in vain."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        if self._under_way is not None and self._under_way.exception() is None:
            for merged in self._under_way.result():
                self._drop(merged)
        self._under_way = None

    def _put(
        self, merged: Merged, files: Mapping[str, DataFile], until: int, dead_now: Callable[[DataFile], BitMap64]
    ) -> Put | None:
        """Return what there is to put of some merged files; None if the table has gone back."""
        removed, dead, at = [], BitMap64(), 0
        for old in merged.old:
            file = files.get(old.path)
            if file is not None:
                removed.append(file)
                now = dead_now(file)
                if old.dead - now:
                    return None
                dead |= _places_among(old.live, now - old.dead, at, self._data.sizes.portion_rows)
            elif old.last > until:
                dead |= BitMap64(range(at, at + len(old.live)))
            at += len(old.live)
        added = merged.files
        if dead and removed and self._policy.has_vectors:
            added = self._data.with_dead(added, {file.path: dead for file in added})
        return Put(merged, added, removed, dead)

    def _drop(self, merged: Merged) -> None:
        for file in merged.files:
            self._data.location.folder.delete(file.place)

    def _submit(self, chosen: Callable[[], Sequence[Files]], until: int) -> None:
        self._thread, self._until = self._thread or ThreadPoolExecutor(1, "txtopo-merge"), until
        self._under_way = self._thread.submit(self._round, chosen, until)

    def _chosen(self, files: Files, until: int) -> Sequence[Files]:
        paths = {file.path for file in files}
        self._half_over = {path: time for path, time in self._half_over.items() if path in paths}
        return self._policy.choose(files, until, lambda file: self._is_over(file, until))

    def _round(self, chosen: Callable[[], Sequence[Files]], until: int) -> list[Merged]:
        groups = chosen()
        self._reads = [file.path for files in groups for file in files]
        return [self._merge(files, until) for files in groups]

    def _merge(self, files: Files, until: int) -> Merged:
        old: list[OldFile] = []
        policy, parts = self._policy, [iter([self._schema.empty_table()])]
        parts += [self._left(file, until, old) for file in files]
        pieces = policy.arranged((policy.kept or pa.concat_tables)(itertools.chain.from_iterable(parts)))
        files_made = [self._data.put("merged", piece, files[0].partition) for piece in pieces]
        return Merged(files_made, pieces if policy.kept else (), old)

    def _left(self, file: DataFile, until: int, old: list[OldFile]) -> Iterator[pa.Table]:
        policy, dead, live = self._policy, self._data.dead(file), BitMap64()
        time, at, last, expired = policy.time, 0, BEFORE_ALL, 0
        # Those in memory need not be read: of a merge of 8 files that takes a third.
        held = policy.held(file)
        portions = self._data.portions(file, self._schema, with_dead=True) if held is None else self._portions(held)
        for rows in portions:
            first, at = at, at + rows.num_rows
            all_own = BitMap64(range(first, at))
            positions = all_own - dead
            if time:
                over = positions & bitmap_of(first + np.flatnonzero(are_over(rows, time, until).to_numpy()))
                expired += len(over)
                positions -= over
            live |= positions
            alive = without(all_own - positions, rows, first)
            last = max(last, int(times_of(alive, time).max(initial=BEFORE_ALL)) if time else AFTER_ALL)
            yield alive
            # Arrow's allocator keeps what is freed: in a merge of 5,000,000 rows of 30 bytes 78 MB, and so 33.
            del rows, alive
            pa.default_memory_pool().release_unused()
        old.append(OldFile(file.path, live, dead, expired, last))

    def _portions(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield rows in portions, as they are read of a file."""
        size = self._data.sizes.portion_rows
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size)
            current_probe().step()

    def _is_over(self, file: DataFile, until: int) -> bool:
        """Whether most rows of a file are dead, or have expired; its times are read once."""
        if not self._policy.time or not file.live or is_mostly_dead(file):
            return is_mostly_dead(file)
        if file.path not in self._half_over:
            schema = pa.schema([self._schema.field(self._policy.time)])
            times = times_of(self._data.read(file, schema), self._policy.time)
            self._half_over[file.path] = int(np.partition(times, len(times) // 2)[len(times) // 2])
        return self._half_over[file.path] <= until


def _places_among(live: BitMap64, died: BitMap64, first: int, portion_rows: int) -> BitMap64:
    """Return the places among the rows of ``live``, of which the first one has ``first``, of those that have died."""
    places, died = BitMap64(), died & live
    for part in portions_in(live, portion_rows) if died else ():
        places |= bitmap_of(first + part.searchsorted(positions_in(died & BitMap64(range(part[0], part[-1] + 1)))))
        first += len(part)
    return places
