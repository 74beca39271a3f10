"""The rows of a keyed table in the driver's memory, a *segment* for each data file, and where each key is.

Rows need 10x less memory as Arrow columns than as Python objects. An index finds the number of a row from its
key. Rows that a write replaces are *dead*: no key finds them. In a table with deletion vectors their file stays.
Without, it goes, and its other rows are written once more, with those of the write.

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

from state.delta.log.data_files import DataFile, Sizes
from state.delta.log.vectors import bitmap_of, portions_in, positions_in
from state.delta.merging import Put
from state.delta.mirror import Read
from state.delta.schema import TXID_FIELD
from txtopo.columnar import mapped
from txtopo.columnar.hashing import Hashes, stable_hash
from txtopo.columnar.key_index import HashIndex, Mask, Positions, Slots, are_equal, hashes_of, ones
from txtopo.columnar.mapped import kept_rows, mapped_array
from txtopo.columnar.progress_probe import current_probe
from txtopo.columnar.rows_by_time import are_over
from txtopo.columnar.selection import rows_at

_NONE = np.empty(0, np.int64)


@attrs.frozen(eq=False)
class _Segment:
    """The rows of one data file.

    Args:
        file: the file.
        rows: its rows, in the order of the file, also those that are dead.
        first: the number of the first one.
        dead: the positions of the dead ones.
        slots: the slot of each row's key in the index, if there is one: so rows that move to another segment need not
            be looked up. Those of dead rows mean nothing.
        chunks: the rows in portions that Arrow takes rows from, each with the position of its first one. Of a table, it
            takes those of 20 segments in half as long again.
        nbytes: the bytes of the rows, which each write adds up and which Arrow counts buffer by buffer.
    """

    file: DataFile
    rows: pa.Table
    first: int
    dead: BitMap64 = attrs.field(factory=BitMap64)
    slots: Slots = attrs.field(factory=lambda: ones(0, np.int32))
    chunks: Sequence[tuple[int, pa.RecordBatch]] = attrs.field(
        default=attrs.Factory(lambda self: chunks_of(self.rows), takes_self=True)
    )
    nbytes: int = attrs.field(default=attrs.Factory(lambda self: int(self.rows.nbytes), takes_self=True))

    @property
    def end(self) -> int:
        """The end of its numbers, exclusive."""
        return self.first + int(self.rows.num_rows)

    @property
    def live(self) -> BitMap64:
        """The positions of the rows that are not dead."""
        return BitMap64(range(self.rows.num_rows)) - self.dead

    @property
    def live_rows(self) -> pa.Table:
        """The rows that are not dead."""
        return self.rows.filter(pa.array(self.are_live)) if self.dead else self.rows

    @property
    def are_live(self) -> Mask:
        """Whether each row is not dead."""
        are_live = np.ones(self.rows.num_rows, dtype=np.bool_)
        are_live[positions_in(self.dead)] = False
        return are_live


@attrs.frozen(eq=False)
class Replacement:
    """What a write makes of segments.

    Args:
        rows: the rows of new files: those that stay of the segments whose files go, then the write's own.
        stay: which rows stay of each segment whose file goes, by path.
        hashes: the hash of the key of each of the write's rows.
        slots: the slot of the key of each in the index, -1 if it is new; there is room for the new ones.
        gone: the slots of the keys that are removed.
        dead: the positions of all dead rows of each segment that has more of them now, or whose file goes, by path.
    """

    rows: pa.Table
    stay: Mapping[str, Mask]
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


def chunks_of(rows: pa.Table) -> list[tuple[int, pa.RecordBatch]]:
    """Return rows in portions of at most ``mapped.CHUNK_BYTES``, each with the position of its first row.

    Arrow takes rows of a column only up to 2 GiB of text.
    """
    chunks: list[tuple[int, pa.RecordBatch]] = []
    at = 0
    for batch in rows.to_batches():
        size = max(1, batch.num_rows // max(1, -(-batch.nbytes // mapped.CHUNK_BYTES)))
        starts = range(0, batch.num_rows, size)
        chunks += [(at + start, batch.slice(start, size)) for start in starts]
        at += batch.num_rows
    return chunks


class Segments:
    """All rows of one version of a keyed table.

    Args:
        schema: the table's columns.
        keys: the names of the key columns.
        bytes_max: the most bytes to hold in memory: a quarter for rows, which do not change and so cost little in a
            file, and three for the index. Small segments may be more.
        sizes: those of the table.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], bytes_max: int, sizes: Sizes) -> None:
        self.bytes_max = bytes_max
        self._sizes = sizes
        self._schema = schema
        self._empty = schema.empty_table()  # to make one asks the environment, for each column
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
        return sum(segment.nbytes for segment in list(self._by_path.values()))

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return sum(segment.rows.num_rows - len(segment.dead) for segment in self._by_path.values())

    @property
    def rows(self) -> pa.Table:
        """All rows."""
        return pa.concat_tables(
            [self._schema.empty_table(), *(segment.live_rows for segment in self._by_path.values())]
        )

    def rows_of(self, path: str) -> pa.Table | None:
        """Return all rows of a segment; None if it is not held. It may be called in any thread."""
        segment = self._by_path.get(path)
        return None if segment is None else segment.rows

    def dead(self, path: str) -> BitMap64 | None:
        """Return the positions of the dead rows of a segment; None if it is not held."""
        segment = self._by_path.get(path)
        return None if segment is None else segment.dead

    def hold(self, files: Mapping[str, DataFile], read: Read) -> None:
        """Hold the rows of some files, and no others; ``read`` returns all rows of those that are not held yet.

        *You* must clear all if it fails.
        """
        self._found = None
        removed = self._by_path.keys() - files.keys()
        new = [file for path, file in files.items() if path not in self._by_path]
        if len(removed) == len(self._by_path):
            self.clear()
        for path in removed:
            segment = self._by_path.pop(path, None)
            if segment is not None and self._index is not None:
                self._index.remove(segment.slots[positions_in(segment.live)])
        for path, file in files.items():
            segment = self._by_path.get(path)
            if segment is not None and not segment.file.is_in(files):
                # Other rows of it are dead: more of them, or fewer in a table that has gone back.
                dead = read(file)[1]
                self._by_path[path] = attrs.evolve(segment, file=file, dead=dead)
                if self._index is not None:
                    self._index.remove(segment.slots[positions_in(dead - segment.dead)])
                self._add(path, positions_in(segment.dead - dead))
        for file in new:
            portions, dead = read(file)
            rows = self.kept(portions)
            slots = self._array(0 if self._index is None else rows.num_rows, np.int32)
            segment = _Segment(file, rows, self._numbers_for(rows.num_rows), dead, slots)
            self._by_path[file.path] = segment
            self._add(file.path, positions_in(segment.live))

    def _add(self, path: str, at: Positions) -> None:
        """Have the index find rows of a segment; if it has no room for them, it is made anew when it is needed."""
        if self._index is None or not len(at):
            return
        if not self._index.has_room(len(at)):
            self._index = None
            return
        segment = self._by_path[path]
        segment.slots[at] = self._index.add(self._hashes_at(segment, at), segment.first + at)

    def kept(self, portions: Iterable[pa.Table]) -> pa.Table:
        """Return rows as they are to be held: in memory if they are few or there is room, otherwise in a mapped file.

        It may be called in any thread.

        Raises:
            StateFailure: the file cannot be written.
        """
        room = max(self._sizes.small_bytes, self.bytes_max // 4 - self.nbytes)
        return kept_rows(self._schema, portions, room)

    def _array(self, count: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        size = count * np.dtype(kind).itemsize  # the larger one of an index has two thirds of its bytes
        return (ones if size <= max(self._sizes.small_bytes, self.bytes_max // 2) else mapped_array)(count, kind)

    def clear(self) -> None:
        """Drop everything."""
        self._by_path.clear()
        self._index = self._found = None
        self._next = 0

    def found_among(self, keys: pa.Table) -> tuple[Positions, pa.Table]:
        """Return the rows of those of some keys that are there, and the position of each one's key among them."""
        lookup = self._found
        if lookup is not None and lookup.keys.equals(keys):  # those of an update, whose old values were just read
            positions = np.flatnonzero(lookup.numbers >= 0)
            positions = positions[np.argsort(lookup.numbers[positions])]
            return positions, self._in_order(lookup.numbers[positions], self._schema.names)
        self._found, positions, rows = self._look_up(keys, self._schema.names)
        return positions, rows

    def _found_again(self, keys: pa.Table) -> _Found:
        if self._found is None or not self._found.keys.equals(keys):
            self._found, *_ = self._look_up(keys, self._keys)
        return self._found

    def _look_up(self, keys: pa.Table, names: Sequence[str]) -> tuple[_Found, Positions, pa.Table]:
        """Return some keys as found, and the columns ``names`` as :meth:`found_among` returns the rows."""
        index, hashes, at = self._key_index(), self._hashes(keys), 0
        slots, owns, portions = [_NONE], [_NONE], [self._empty.select(names)]

        def are_same(positions: Positions, numbers: Positions) -> Mask:
            order = np.argsort(numbers)
            positions, rows = positions[order], self._in_order(numbers[order], names)
            are_same_in_order = are_equal(portion.take(positions), rows.select(portion.column_names))
            owns.append(at + positions[are_same_in_order])
            portions.append(rows if are_same_in_order.all() else rows.filter(pa.array(are_same_in_order)))
            is_same = np.empty_like(are_same_in_order)
            is_same[order] = are_same_in_order
            return is_same

        for portion in self._portions(keys):
            slots.append(index.slots_of(hashes[at : at + portion.num_rows], are_same))
            at += portion.num_rows
        looked_up = _Found(keys, hashes, np.concatenate(slots), index.numbers_at(np.concatenate(slots)))
        return looked_up, np.concatenate(owns), pa.concat_tables(portions)

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

    def _in_order(self, numbers: Positions, names: Sequence[str]) -> pa.Table:
        """Return the columns ``names`` of rows by number, given in rising order."""
        segments = sorted(self._by_path.values(), key=lambda segment: segment.first)
        chunks = [(segment.first + at, rows) for segment in segments for at, rows in segment.chunks]
        bounds = numbers.searchsorted([*(first for first, _ in chunks), self._next])
        parts = [
            rows.select(names).take(pa.array(numbers[start:end] - first))  # a portion is small enough for that
            for (first, rows), start, end in zip(chunks, bounds, bounds[1:], strict=False)
            if start < end
        ]
        return pa.Table.from_batches(parts, self._empty.select(names).schema)

    def over(self, column: str, until: int) -> pa.Table:
        """Return the rows whose time in a column is at or before a time in µs since 1970 UTC."""
        portions = [self._empty]
        for segment in self._by_path.values():
            at = np.flatnonzero(are_over(segment.rows, column, until).to_numpy())
            if len(at):
                portions.append(rows_at(segment.rows, at[segment.are_live[at]]))
        return pa.concat_tables(portions)

    def replaced(self, new: pa.Table, *, with_vectors: bool) -> Replacement:
        """Return what a write of some rows makes of the segments.

        ``new`` has each key once; a row without a txid removes its key. Unless the files of the segments that it
        touches stay, ``with_vectors``, the smallest segment goes for new keys as well, if they have room in its file:
        so no write adds a file of a few rows.
        """
        keys, txids = new.select(self._keys), new[TXID_FIELD]
        is_put = pc.is_valid(txids).to_numpy() if txids.null_count else np.ones(len(txids), dtype=bool)
        lookup = self._found_again(keys)
        if self._has_made_room(int(((lookup.slots < 0) & is_put).sum())):
            lookup = self._found_again(keys)
        numbers, slots, dead = lookup.numbers, lookup.slots, {}
        in_order = np.sort(numbers)
        for path, segment in self._by_path.items():
            own = in_order[slice(*in_order.searchsorted((segment.first, segment.end)))]
            if len(own):
                dead[path] = segment.dead | bitmap_of(own - segment.first)
        rows = new if is_put.all() else new.filter(pa.array(is_put))
        stay = {} if with_vectors else self._stay(dead, int(((numbers < 0) & is_put).sum()))
        if stay:
            rest = [self._by_path[path].rows.filter(pa.array(own)) for path, own in stay.items()]
            rows = pa.concat_tables([*rest, rows])
        return Replacement(rows, stay, lookup.hashes[is_put], slots[is_put], slots[(numbers >= 0) & ~is_put], dead)

    def _stay(self, dead: dict[str, BitMap64], added: int) -> dict[str, Mask]:
        """Return which rows stay of each segment whose file goes; new rows may let one more go."""
        segments = self._by_path
        smallest = min(segments, key=lambda path: segments[path].rows.num_rows, default=None)
        if smallest is not None and added and segments[smallest].rows.num_rows + added <= self._sizes.full_rows:
            dead.setdefault(smallest, segments[smallest].dead)
        return {path: attrs.evolve(segments[path], dead=own).are_live for path, own in dead.items()}

    def replace(self, replacement: Replacement, files: Sequence[DataFile], still_there: Iterable[DataFile]) -> None:
        """Hold what a write has made of segments: its rows in ``files``, and those ``still_there``, with dead rows."""
        self._found = None
        by_path = {file.path: file for file in still_there}
        count, at = replacement.rows.num_rows, 0
        first, slots = self._numbers_for(count), self._array(count, np.int32)
        for path, dead in replacement.dead.items():
            segment = self._by_path.pop(path)
            if path in by_path:
                self._by_path[path] = attrs.evolve(segment, file=by_path[path], dead=dead)
            if path in replacement.stay and self._index is not None:
                stay = segment.slots[replacement.stay[path]]
                slots[at : at + len(stay)] = stay
                at += len(stay)
        if self._index is not None:
            slots[at:] = replacement.slots
            new = at + np.flatnonzero(replacement.slots < 0)
            slots[new] = self._index.add(replacement.hashes[new - at], first + new)
            self._index.renumber(slots, np.arange(first, first + len(slots)))
            self._index.remove(replacement.gone)
        self._place(replacement.rows, files, first, slots)
        if self._next > self._sizes.index.numbers // 2:
            self._begin_numbers_again()

    def merge_all(self, puts: Iterable[Put]) -> None:
        """Hold the rows of several merges; see :meth:`merge`."""
        for put in puts:
            self.merge(put)

    def merge(self, put: Put) -> None:
        """Hold the rows of merged segments in their new file, if any is live; some may have died meanwhile."""
        self._found, at = None, 0
        rows = put.merged.rows[0] if put.merged.rows else self._schema.empty_table()
        first, slots = self._numbers_for(rows.num_rows), self._array(rows.num_rows, np.int32)
        for old in put.merged.old:
            segment, first_at, at = self._by_path.pop(old.path, None), at, at + len(old.live)
            if segment is None or self._index is None:
                continue
            for live in portions_in(old.live, self._sizes.portion_rows):
                slots[first_at : first_at + len(live)] = segment.slots[live]
                first_at += len(live)
            self._index.remove(segment.slots[positions_in(segment.live - old.live)])
        for file in put.added:
            self._by_path[file.path] = made = _Segment(file, rows, first, put.dead, slots)
            for live in portions_in(made.live, self._sizes.portion_rows):
                if self._index is not None:
                    is_found = slots[live] >= 0  # not a row of a file that is gone, since all of its rows have expired
                    self._index.renumber(slots[live[is_found]], first + live[is_found])
                    self._add(file.path, live[~is_found])

    def _numbers_for(self, count: int) -> int:
        """Return the first one of new numbers for some rows."""
        first, self._next = self._next, self._next + count
        return first

    def _place(self, rows: pa.Table, files: Sequence[DataFile], first: int, slots: Slots) -> None:
        """Hold rows, in the order of some files, with the numbers from ``first`` on and their keys' slots."""
        at = 0
        for file in files:
            held_rows, own_slots = self.kept([rows.slice(at, file.rows)]), slots[at : at + file.rows]
            self._by_path[file.path] = _Segment(file, held_rows, first + at, slots=own_slots)
            at += file.rows

    def _begin_numbers_again(self) -> None:
        """Give all rows other numbers: few are left."""
        self._index, self._next = None, 0
        for path, segment in self._by_path.items():
            self._by_path[path] = attrs.evolve(segment, first=self._numbers_for(segment.rows.num_rows))

    def prepare(self) -> None:
        """Make the index, so that the first look-up need not."""
        self._key_index()

    def _key_index(self) -> HashIndex:
        if self._index is None:
            self._index = self._made_index(0, self._hashes_at)
        return self._index

    def _has_made_room(self, count: int) -> bool:
        """Have room in the index for more keys; return whether it was made anew, without those that are gone."""
        index = self._key_index()
        if index.has_room(count):
            return False
        self._index = self._made_index(count, lambda segment, at: index.hashes_at(segment.slots[at]))
        self._found = None
        return True

    def _made_index(self, more: int, hashes_at: Callable[[_Segment, Positions], Hashes]) -> HashIndex:
        """Return an index of all rows with room for more, given the hashes of a segment's rows by their positions."""
        count, at = self.num_rows, 0
        index = HashIndex(count + more, lambda: current_probe().step(), self._array, self._sizes.index)
        hashes, numbers = self._array(count, np.uint64), self._array(count, np.int32)
        for segment in self._by_path.values():
            for live in portions_in(segment.live, self._sizes.portion_rows):
                hashes[at : at + len(live)] = hashes_at(segment, live)
                numbers[at : at + len(live)] = segment.first + live
                at += len(live)
        slots, at, segments = index.add(hashes, numbers), 0, {}
        for path, segment in self._by_path.items():
            segment_slots = self._array(segment.rows.num_rows, np.int32)
            for live in portions_in(segment.live, self._sizes.portion_rows):
                segment_slots[live] = slots[at : at + len(live)]
                at += len(live)
            segments[path] = attrs.evolve(segment, slots=segment_slots)
        self._by_path.update(segments)  # those of the former index, until there is disk for all of it
        return index

    def _hashes_at(self, segment: _Segment, at: Positions) -> Hashes:
        """Return the hashes of the keys of rows of a segment, by their positions."""
        keys = segment.rows.select(self._keys)
        # Most lie side by side, and need not be copied.
        is_slice = len(at) and at[-1] - at[0] == len(at) - 1
        return self._hashes(keys.slice(at[0], len(at)) if is_slice else rows_at(keys, at))

    def _hashes(self, keys: pa.Table) -> Hashes:
        return np.concatenate([np.empty(0, np.uint64), *map(hashes_of, self._portions(keys))])

    def _portions(self, keys: pa.Table) -> Iterator[pa.Table]:
        """Yield keys in portions, each of which is progress."""
        probe, size = current_probe(), self._sizes.portion_rows
        for start in range(0, keys.num_rows, size):
            yield keys.slice(start, size)
            probe.step()
