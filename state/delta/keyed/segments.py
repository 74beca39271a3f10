"""The rows of a keyed table in the driver's memory, a *segment* for each data file, and where each key is.

Rows need 10x less memory as Arrow columns than as Python objects. An index finds the number of a row from its
key. A segment has a range of numbers, some of them spare: where a write replaces its file, every row keeps its
place, and so its number, and unchanged columns are not copied. In a table with deletion vectors the file stays, and
rows that are replaced are *dead*: no key finds them.

Memory is bounded. Rows for which there is no room lie in files that are mapped, and so does an index that is too large;
all else is as in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from state.delta.log.data_files import BUCKET_ROWS, DataFile
from state.delta.log.vectors import bitmap_of, live_positions, positions_in
from state.delta.merging import Put
from state.delta.schema import TXID_FIELD
from txtopo.columnar import mapped
from txtopo.columnar.hashing import Hashes, stable_hash
from txtopo.columnar.key_index import NUMBERS, HashIndex, Mask, Positions, are_equal, hashes_of, ones
from txtopo.columnar.mapped import kept_rows, mapped_array
from txtopo.columnar.progress_probe import current_probe
from txtopo.columnar.taking import taken

__all__ = ["IsOver", "Marks", "Rewrite", "Segments"]

_PORTION_ROWS = 1 << 18
"""How many keys are hashed or looked up at a time: each time is progress."""

_SPARE_MIN = 4096
"""The least number of spare numbers of a segment."""

_NONE = np.empty(0, np.int64)


@attrs.frozen(eq=False)
class _Segment:
    """The rows of one data file.

    Args:
        file: the file.
        rows: its rows, in the order of the file, also those that are dead.
        first: the number of the first one.
        end: the end of its numbers, exclusive.
        dead: the positions of the dead ones.
        chunks: the rows in portions that Arrow takes rows from, each with the position of its first one.
    """

    file: DataFile
    rows: pa.Table
    first: int
    end: int
    dead: BitMap64 = attrs.field(factory=BitMap64)
    chunks: Sequence[tuple[int, pa.Table]] = attrs.field(
        default=attrs.Factory(lambda self: chunks_of(self.rows), takes_self=True)
    )

    @property
    def live(self) -> Positions:
        """The positions of the rows that are not dead."""
        return live_positions(self.rows.num_rows, self.dead)

    @property
    def live_rows(self) -> pa.Table:
        """The rows that are not dead."""
        if not self.dead:
            return self.rows
        is_live = np.zeros(self.rows.num_rows, dtype=np.bool_)
        is_live[self.live] = True
        return self.rows.filter(pa.array(is_live))


IsOver = Callable[[pa.Table], Any]
"""Returns for each of some rows whether it is over."""


@attrs.frozen(eq=False)
class Rewrite:
    """What a write makes of a segment, or of none: rows that go to new files.

    Args:
        path: the file of the segment that is replaced; None if there is none.
        rows: the rows of the new files: first those of the segment that stay, each in its place unless others go, then
            new ones.
        kept: for each row of the segment its place among them, -1 if it goes; None if all stay.
        added: how many new ones there are.
        has_expired: whether rows of the segment go because they have expired.
    """

    path: str | None
    rows: pa.Table
    kept: Positions | None
    added: int
    has_expired: bool = False


@attrs.frozen(eq=False)
class Marks:
    """What a write makes of segments whose files stay.

    Args:
        rows: the rows of a new file.
        hashes: the hash of the key of each.
        slots: the slot of the key of each in the index, -1 if it is new.
        gone: the slots of the keys that are removed.
        dead: the positions of all dead rows of each segment that has more of them now, by path.
    """

    rows: pa.Table
    hashes: Hashes
    slots: Positions
    gone: Positions
    dead: Mapping[str, BitMap64]


@attrs.frozen(eq=False)
class _Found:
    """Keys that were looked up, and for each its hash, its slot in the index, and its row's number; -1 if not there."""

    keys: pa.Table
    hashes: Hashes
    slots: Positions
    numbers: Positions


def chunks_of(rows: pa.Table) -> list[tuple[int, pa.Table]]:
    """Return rows in portions of at most ``mapped.CHUNK_BYTES``, each with the position of its first row.

    Arrow takes rows of a column only up to 2 GiB of text.
    """
    chunks: list[tuple[int, pa.Table]] = []
    at = 0
    for batch in rows.to_batches():
        size = max(1, batch.num_rows // max(1, -(-batch.nbytes // mapped.CHUNK_BYTES)))
        starts = range(0, batch.num_rows, size)
        chunks += [(at + start, pa.Table.from_batches([batch.slice(start, size)])) for start in starts]
        at += batch.num_rows
    return chunks


class Segments:
    """All rows of one version of a keyed table.

    Args:
        schema: the table's columns.
        keys: the names of the key columns.
        bytes_max: the most bytes to hold in memory: a quarter for rows, which do not change and so cost little in a
            file, and three for the index. Small segments may be more.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._schema = schema
        self._keys = list(keys)
        self._by_path: dict[str, _Segment] = {}
        self._index: HashIndex | None = None
        """The rows by their keys' hashes; made when somebody looks for a key."""
        self._next = 0
        """The first number that no segment has had."""
        self._found: _Found | None = None
        """The last look-up: a group folds keys and then writes the same keys."""

    @property
    def nbytes(self) -> int:
        """The bytes of the rows."""
        return sum(segment.rows.nbytes for segment in list(self._by_path.values()))

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return sum(segment.rows.num_rows - len(segment.dead) for segment in self._by_path.values())

    @property
    def rows(self) -> pa.Table:
        """All rows."""
        return pa.concat_tables([self._schema.empty_table(), *(each.live_rows for each in self._by_path.values())])

    def dead(self, path: str) -> BitMap64 | None:
        """Return the positions of the dead rows of a segment; None if it is not held."""
        segment = self._by_path.get(path)
        return None if segment is None else segment.dead

    def hold(
        self, files: Mapping[str, DataFile], read: Callable[[DataFile], tuple[Iterable[pa.Table], BitMap64]]
    ) -> None:
        """Hold the rows of some files, and no others; those that are not held yet are read.

        ``read`` returns all rows of a file in portions, which need not be taken, and the positions of those that are
        dead. *You* must clear all if it fails.
        """
        self._found = None
        gone = self._by_path.keys() - files.keys()
        new = [file for path, file in files.items() if path not in self._by_path]
        if len(gone) == len(self._by_path):
            self.clear()
        for path in gone:
            segment = self._by_path.pop(path, None)
            if segment is not None and self._index is not None:
                self._index.remap(segment.first, np.full(segment.rows.num_rows, -1))
        turned = [file for file in files.values() if file.path in self._by_path]
        self._turn(
            {file.path: (file, read(file)[1]) for file in turned if not self._by_path[file.path].file.is_in(files)}
        )
        for file in new:
            portions, dead = read(file)
            rows = self.kept(portions)
            first, end = self._numbers_for(rows.num_rows)
            segment = self._by_path[file.path] = _Segment(file, rows, first, end, dead)
            if self._index is not None:
                self._index.add(self._live_hashes(segment), first + segment.live)

    def _turn(self, dead: Mapping[str, tuple[DataFile, BitMap64]]) -> None:
        """Have other rows of files be dead: more of them, or fewer in a table that has gone back."""
        died, back = [_NONE], [_NONE]
        for path, (file, now) in dead.items():
            segment = self._by_path[path]
            died.append(segment.first + positions_in(now - segment.dead))
            back.append(segment.first + positions_in(segment.dead - now))
            self._by_path[path] = attrs.evolve(segment, file=file, dead=now)
        if self._index is not None:
            gone, there = np.concatenate(died), np.concatenate(back)
            self._index.remove(_hashes(self.take(gone, self._keys)), gone)
            self._index.add(_hashes(self.take(there, self._keys)), there)

    def kept(self, portions: Iterable[pa.Table]) -> pa.Table:
        """Return rows as they are to be held: in memory if they are few or there is room, otherwise in a mapped file.

        It may be called in any thread.

        Raises:
            StateFailure: the file cannot be written.
        """
        return kept_rows(self._schema, portions, self.bytes_max // 4 - self.nbytes)

    def _array(self, count: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        size = count * np.dtype(kind).itemsize  # the larger one of an index has two thirds of its bytes
        return (ones if size <= max(mapped.SMALL_BYTES, self.bytes_max // 2) else mapped_array)(count, kind)

    def clear(self) -> None:
        """Drop everything."""
        self._by_path.clear()
        self._index = self._found = None
        self._next = 0

    def found_among(self, keys: pa.Table) -> tuple[Positions, pa.Table]:
        """Return the rows of those of some keys that are there, and the position of each one's key among them."""
        self._found, own, rows = self._look_up(keys, self._schema.names)
        return own, rows

    def _found_again(self, keys: pa.Table) -> _Found:
        if self._found is None or not self._found.keys.equals(keys):
            self._found, *_ = self._look_up(keys, self._keys)
        return self._found

    def _look_up(self, keys: pa.Table, names: Sequence[str]) -> tuple[_Found, Positions, pa.Table]:
        """Return some keys as found, and the columns ``names`` as :meth:`found_among` returns the rows."""
        index, hashes, at = self._key_index(), _hashes(keys), 0
        slots, owns, found = [_NONE], [_NONE], [self._schema.empty_table().select(names)]

        def are_same(own: Positions, numbers: Positions) -> Mask:
            order = np.argsort(numbers)
            own, rows = own[order], self._in_order(numbers[order], names)
            are_same_in_order = are_equal(portion.take(own), rows.select(portion.column_names))
            owns.append(at + own[are_same_in_order])
            found.append(rows if are_same_in_order.all() else rows.filter(pa.array(are_same_in_order)))
            is_same = np.empty_like(are_same_in_order)
            is_same[order] = are_same_in_order
            return is_same

        for portion in _portions(keys):
            slots.append(index.slots_of(hashes[at : at + portion.num_rows], are_same))
            at += portion.num_rows
        looked_up = _Found(keys, hashes, np.concatenate(slots), index.numbers_at(np.concatenate(slots)))
        return looked_up, np.concatenate(owns), pa.concat_tables(found)

    def find_one(self, key: Any) -> Sequence[Any] | None:
        """Return the row of one key of strings and integers that fit their columns; None if there is none."""
        width = len(self._keys)
        row: list[Any] = []

        def is_same(number: int) -> bool:
            segment = next(each for each in self._by_path.values() if each.first <= number < each.end)
            at = number - segment.first
            row[:] = [column[at].as_py(maps_as_pydicts="strict") for column in segment.rows.columns]
            return bool((row[0] if width == 1 else (*row[:width],)) == key)

        return row if self._key_index().find_one(stable_hash(key), is_same) >= 0 else None

    def take(self, numbers: Positions, names: Sequence[str] | None = None) -> pa.Table:
        """Return rows by number, in the order of the numbers, or the columns ``names`` of them."""
        order = np.argsort(numbers)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        rows = self._in_order(numbers[order], self._schema.names if names is None else names)
        return taken(rows.combine_chunks(), back)

    def _in_order(self, numbers: Positions, names: Sequence[str]) -> pa.Table:
        """Return the columns ``names`` of rows by number, given in rising order."""
        segments = sorted(self._by_path.values(), key=lambda each: each.first)
        chunks = [(each.first + at, rows) for each in segments for at, rows in each.chunks]
        bounds = numbers.searchsorted([*(first for first, _ in chunks), self._next])
        parts = [
            taken(rows.select(names), numbers[start:end] - first)
            for (first, rows), start, end in zip(chunks, bounds, bounds[1:], strict=False)
            if start < end
        ]
        return pa.concat_tables([self._schema.empty_table().select(names), *parts])

    def rewritten(self, new: pa.Table, is_over: IsOver | None = None) -> list[Rewrite]:
        """Return what a write of some rows makes of the segments that it touches.

        ``new`` has each key once; a row without a txid removes its key. New keys go to the smallest segment, unless
        that is full. Rows of a segment that are over go, if they are most of it.
        """
        numbers, is_put = self._found_again(new.select(self._keys)).numbers, pc.is_valid(new[TXID_FIELD]).to_numpy()
        is_new = (numbers < 0) & is_put
        smallest = min(self._by_path, key=lambda path: self._by_path[path].rows.num_rows, default=None)
        if smallest is not None and self._by_path[smallest].rows.num_rows + is_new.sum() > BUCKET_ROWS:
            smallest = None
        made, is_placed = [], not is_new.any()
        for path, segment in self._by_path.items():
            takes_new = path == smallest and not is_placed
            own = np.flatnonzero((numbers >= segment.first) & (numbers < segment.end))
            if len(own) or takes_new:
                of_new = is_new if takes_new else None
                made.append(self._rewrite(path, segment, new, numbers, own, is_put, of_new, is_over))
                is_placed = is_placed or takes_new
        if not is_placed:
            made.append(Rewrite(None, new.filter(pa.array(is_new)), None, int(is_new.sum())))
        return made

    def _rewrite(  # noqa: PLR0913, PLR0917 - a segment, and what a write has for it
        self,
        path: str,
        segment: _Segment,
        new: pa.Table,
        numbers: Positions,
        own: Positions,
        is_put: Mask,
        is_new: Mask | None,
        is_over: IsOver | None,
    ) -> Rewrite:
        rows, count = segment.rows, segment.rows.num_rows
        at, is_replaced = numbers[own] - segment.first, is_put[own]
        stays = np.ones(count, dtype=np.bool_) if is_over is None else ~is_over(rows).to_numpy()
        has_expired = int(stays.sum()) * 2 < count
        sources = np.arange(count)
        sources[at[is_replaced]] = count + own[is_replaced]
        both = pa.concat_tables([rows, new])
        if is_replaced.any():
            columns = {
                name: rows[name] if name in self._keys else taken(both.select([name]), sources)[name]
                for name in rows.column_names
            }
            rows = pa.table(columns, schema=rows.schema)
        kept: Positions | None = None
        stays |= not has_expired
        stays[at] = is_replaced
        if not stays.all():
            kept = np.where(stays, np.cumsum(stays) - 1, -1)
            rows = rows.filter(pa.array(stays))
        if is_new is not None:
            rows = pa.concat_tables([rows, new.filter(pa.array(is_new))])
        return Rewrite(path, rows.combine_chunks(), kept, 0 if is_new is None else int(is_new.sum()), has_expired)

    def replace(self, rewrites: Iterable[tuple[Rewrite, Sequence[DataFile]]]) -> None:
        """Hold what a write has made of segments, in the files that it was written to."""
        self._found = None
        for rewrite, files in rewrites:
            old = None if rewrite.path is None else self._by_path.pop(rewrite.path)
            first, end = self._numbers_of(rewrite, old)
            self._place(rewrite.rows, files, first, end)
            if self._index is not None and rewrite.added:
                at = rewrite.rows.num_rows - rewrite.added
                added = _hashes(rewrite.rows.slice(at).select(self._keys))
                self._index.add(added, np.arange(first + at, first + at + rewrite.added))
        if self._next > NUMBERS // 2:
            self._begin_numbers_again()

    def marked(self, new: pa.Table) -> Marks:
        """Return what a write of some rows makes of the segments if their files stay; as :meth:`rewritten`."""
        found, is_put = self._found_again(new.select(self._keys)), pc.is_valid(new[TXID_FIELD]).to_numpy()
        numbers, dead = found.numbers, {}
        for path, segment in self._by_path.items():
            own = numbers[(numbers >= segment.first) & (numbers < segment.end)]
            if len(own):
                dead[path] = segment.dead | bitmap_of(own - segment.first)
        return Marks(
            new if is_put.all() else new.filter(pa.array(is_put)),
            found.hashes[is_put],
            found.slots[is_put],
            found.slots[(numbers >= 0) & ~is_put],
            dead,
        )

    def mark(self, marks: Marks, files: Sequence[DataFile], marked: Iterable[DataFile]) -> None:
        """Hold what a write has made of segments: its rows are in ``files``, and the ``marked`` ones have dead rows."""
        self._found = None
        still_there = {file.path: file for file in marked}
        for path, dead in marks.dead.items():
            segment = self._by_path.pop(path)
            if path in still_there:
                self._by_path[path] = attrs.evolve(segment, file=still_there[path], dead=dead)
        count = marks.rows.num_rows
        first, self._next = self._next, self._next + count
        self._place(marks.rows, files, first, self._next)
        if self._index is not None:
            numbers, is_new = np.arange(first, first + count), marks.slots < 0
            self._index.renumber(marks.slots[~is_new], numbers[~is_new])
            self._index.renumber(marks.gone, np.full(len(marks.gone), -1))
            self._index.add(marks.hashes[is_new], numbers[is_new])
        if self._next > NUMBERS // 2:
            self._begin_numbers_again()

    def merge(self, put: Put) -> None:
        """Hold the rows of merged segments in their new file, if any is live; some may have died meanwhile."""
        self._found, at = None, 0
        rows = put.merged.rows[0] if put.merged.rows else self._schema.empty_table()
        first, self._next = self._next, self._next + rows.num_rows
        olds = np.full(rows.num_rows, -1, dtype=np.int64)
        for source in put.merged.sources:
            live, segment = source.live, self._by_path.pop(source.path, None)
            if segment is not None:
                olds[at : at + len(live)] = segment.first + live
                if source.expired and self._index is not None:
                    expired = np.setdiff1d(segment.live, live)
                    self._index.remove(_hashes(segment.rows.select(self._keys))[expired], segment.first + expired)
            at += len(live)
        for file in put.added:
            self._by_path[file.path] = made = _Segment(file, rows, first, self._next, put.dead)
            if self._index is not None:
                hashes = self._live_hashes(made)
                self._index.move(hashes, olds[made.live], first + made.live)

    def _numbers_of(self, rewrite: Rewrite, old: _Segment | None) -> tuple[int, int]:
        """Return the first number of the rows of a rewrite and the end of its range; those that stay have theirs."""
        count = rewrite.rows.num_rows
        if old is not None and rewrite.kept is None and old.first + count <= old.end:
            return old.first, old.end
        first, end = self._numbers_for(count)
        if old is not None and self._index is not None:
            places = np.arange(old.rows.num_rows) if rewrite.kept is None else rewrite.kept
            self._index.remap(old.first, np.where(places < 0, -1, places + first))
        return first, end

    def _numbers_for(self, count: int) -> tuple[int, int]:
        """Return a new range of numbers for some rows, with as many to spare."""
        first, self._next = self._next, self._next + count + max(count, _SPARE_MIN)
        return first, self._next

    def _place(self, rows: pa.Table, files: Sequence[DataFile], first: int, end: int) -> None:
        """Hold rows, in the order of some files, with the numbers from ``first`` on."""
        at = 0
        for file in files:
            until = end if file is files[-1] else first + at + file.rows
            own = self.kept([rows.slice(at, file.rows)])
            self._by_path[file.path] = _Segment(file, own, first + at, until)
            at += file.rows

    def _begin_numbers_again(self) -> None:
        """Give all rows other numbers: few are left."""
        self._index, self._next = None, 0
        for path, segment in self._by_path.items():
            first, end = self._numbers_for(segment.rows.num_rows)
            self._by_path[path] = attrs.evolve(segment, first=first, end=end)

    def prepare(self) -> None:
        """Make the index, so that the first look-up need not."""
        self._key_index()

    def _key_index(self) -> HashIndex:
        if self._index is None:
            index, count, at = HashIndex(lambda: current_probe().step(), self._array), self.num_rows, 0
            hashes, numbers = self._array(count, np.uint64), self._array(count, np.int32)
            for segment in self._by_path.values():
                live = segment.live
                hashes[at : at + len(live)] = self._live_hashes(segment)
                numbers[at : at + len(live)] = segment.first + live
                at += len(live)
            index.add(hashes, numbers)
            self._index = index
        return self._index

    def _live_hashes(self, segment: _Segment) -> Hashes:
        hashes = _hashes(segment.rows.select(self._keys))
        return hashes[segment.live] if segment.dead else hashes


def _hashes(keys: pa.Table) -> Hashes:
    return np.concatenate([np.empty(0, np.uint64), *map(hashes_of, _portions(keys))])


def _portions(keys: pa.Table) -> Iterator[pa.Table]:
    """Yield keys in portions, each of which is progress."""
    probe = current_probe()
    for start in range(0, keys.num_rows, _PORTION_ROWS):
        yield keys.slice(start, _PORTION_ROWS)
        probe.step()
