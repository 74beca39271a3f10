"""A version of a reference table in memory: its rows as Arrow columns, and an index of their keys.

A later version shares with the one before what both have. It reads the files that came, copies the index (a memory
copy, 20x faster than to index anew), and takes out and puts in the keys of rows that went and came. So a step costs
what its version has touched, and a version that somebody holds never changes.

Rows have numbers from 0 on. A file's rows have consecutive ones, dead rows included, so a row's number is that of its
file plus its position in vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.log.data_files import DataFile, DataFolder
from state.delta.log.vectors import positions_in
from txtopo.api.reference import ReferenceTable
from txtopo.columnar.conversion import cast_rows, python_rows
from txtopo.columnar.hashing import Hashes
from txtopo.columnar.key_index import HashIndex, Positions, are_equal, as_numbers, hashes_of
from txtopo.columnar.progress_probe import current_probe
from txtopo.columnar.selection import rows_at
from txtopo.errors import FieldsError, InputError
from txtopo.text.suggestions import did_you_mean
from txtopo.text.words import count_of

BLOCKS_MAX = 8
"""How many tables the rows may be in: each costs a look-up some microseconds. More are joined to one."""

_NUMBER = np.int64


@attrs.frozen(eq=False)
class TableVersion:
    """A version of a table to load."""

    what: str
    """The version in words, for errors."""
    version: int
    schema: pa.Schema
    """The columns to load."""
    key: Sequence[str]
    files: Mapping[str, DataFile]
    """Its files, by path."""
    read: Callable[[DataFile], pa.Table]
    """Returns all rows of a file, those that are dead included."""
    data: DataFolder
    check_bytes: Callable[[int], None]
    """Raises if so many bytes are too many."""

    def dead(self, file: DataFile) -> Positions:
        """Return the positions of a file's dead rows."""
        return positions_in(self.data.dead(file))


@attrs.frozen(eq=False)
class _Part:
    """The rows of a file: their numbers begin with ``first``."""

    file: DataFile
    first: int
    count: int

    @property
    def numbers(self) -> slice:
        return slice(self.first, self.first + self.count)


@attrs.frozen(eq=False)
class LoadedVersion(ReferenceTable):
    """A version in memory; it never changes. See the module."""

    _source: TableVersion
    _parts: Mapping[str, _Part]
    _blocks: Sequence[pa.Table]
    """The rows, by number."""
    _is_live: npt.NDArray[np.bool_]
    """Of each number, whether the version has the row."""
    _index: HashIndex
    _starts: Positions = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        counts = [block.num_rows for block in self._blocks]
        object.__setattr__(self, "_starts", np.concatenate([[0], np.cumsum(counts)]).astype(_NUMBER))

    @staticmethod
    def load(source: TableVersion, before: LoadedVersion | None) -> LoadedVersion:
        """Load a version, with what another one of the table has of it; raise InputError if a key occurs twice."""
        before = before if before is not None and before.has_columns_of(source) else None
        loaded = None if before is None else before.stepped(source)
        if loaded is not None:
            return loaded
        parts, blocks = _gathered(source, before)
        is_live = np.ones(sum(part.count for part in parts.values()), dtype=np.bool_)
        for part in parts.values():
            if part.file.vector is not None:
                is_live[part.first + source.dead(part.file)] = False
        loaded = LoadedVersion(source, parts, blocks, is_live, HashIndex(0))
        live = np.flatnonzero(is_live)
        return loaded.indexed(live)

    @property
    def version(self) -> int:
        """The version of the Delta table."""
        return self._source.version

    @property
    def files(self) -> Mapping[str, DataFile]:
        """Its files, by path."""
        return self._source.files

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return int(sum(block.nbytes for block in self._blocks) + self._index.nbytes + self._is_live.nbytes)

    @functools.cached_property
    def rows(self) -> pa.Table:
        """All rows."""
        rows = pa.concat_tables(self._blocks)
        return rows if self._is_live.all() else rows.filter(pa.array(self._is_live))

    def rows_in(self, path: str) -> pa.Table | None:
        """Return the rows of a file, those that are dead included; None if the version does not have the file."""
        part = self._parts.get(path)
        if part is None:
            return None
        return self._at(np.arange(part.first, part.first + part.count), self._source.schema.names)

    def find(self, keys: pa.Table) -> pa.Array:
        """Return the number of the row with each key."""
        numbers = self._found(self._fitted(keys), self._index)
        return pa.array(numbers, mask=numbers < 0)

    def take(self, numbers: pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows with some numbers."""
        names = self._source.schema.names if columns is None else list(columns)
        for name in names:
            if name not in self._source.schema.names:
                raise no_column(self._source.what, name, self._source.schema.names)
        if not numbers.null_count:
            return self._at(numbers.to_numpy(), names)
        if len(self._blocks) == 1:
            return rows_at(self._blocks[0].select(names), numbers)
        is_there = numbers.is_valid().to_numpy(zero_copy_only=False)
        rows = self._at(numbers.drop_null().to_numpy(), names)
        return rows.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))

    def _fitted(self, keys: pa.Table) -> pa.Table:
        kinds = [self._source.schema.field(name).type for name in self._source.key]
        if keys.num_columns != len(kinds):
            raise FieldsError(
                f"a key of {self._source.what} is {', '.join(self._source.key)}: look it up with {len(kinds)} columns, "
                f"not {keys.num_columns}"
            )
        columns = [as_numbers(column, kind) for column, kind in zip(keys.columns, kinds, strict=True)]
        schema = pa.schema(list(zip(self._source.key, kinds, strict=True)))
        return cast_rows(pa.Table.from_arrays(columns, names=schema.names), schema, f"a key of {self._source.what}")

    def _found(self, keys: pa.Table, index: HashIndex) -> Positions:
        keys = keys.combine_chunks()

        def are_same(positions: Positions, numbers: Positions) -> npt.NDArray[np.bool_]:
            return are_equal(keys.take(positions), self._keys_at(numbers))

        return index.find(hashes_of(keys), are_same)

    def _keys_at(self, numbers: Positions) -> pa.Table:
        return self._at(numbers, self._source.key)

    def _at(self, numbers: Positions, columns: Sequence[str]) -> pa.Table:
        """Return the rows with some numbers, in their order."""
        names = list(columns)
        if len(self._blocks) == 1:
            return rows_at(self._blocks[0].select(names), numbers)
        of_block = np.searchsorted(self._starts, numbers, side="right") - 1
        order = np.argsort(of_block, kind="stable")
        ends = np.searchsorted(of_block[order], np.arange(len(self._blocks) + 1))
        found = [
            rows_at(block.select(names), numbers[order[ends[at] : ends[at + 1]]] - self._starts[at])
            for at, block in enumerate(self._blocks)
        ]
        inverse = np.empty(len(order), dtype=_NUMBER)
        inverse[order] = np.arange(len(order))
        return rows_at(pa.concat_tables(found).combine_chunks(), inverse)

    def has_columns_of(self, source: TableVersion) -> bool:
        """Whether it has the columns of another version."""
        return bool(self._source.schema.equals(source.schema))

    def stepped(self, source: TableVersion) -> LoadedVersion | None:
        """Return another version made from this one; None if little stays, or the rows are in many blocks already."""
        removed = [part for path, part in self._parts.items() if path not in source.files]
        come = [file for path, file in source.files.items() if path not in self._parts]
        parts = {path: part for path, part in self._parts.items() if path in source.files}
        moved = sum(part.count for part in removed) + sum(file.rows for file in come)
        if 2 * moved > len(self._is_live) or len(self._blocks) + bool(come) > BLOCKS_MAX:
            return None
        new = [source.read(file) for file in come]
        is_live = np.concatenate([self._is_live, np.ones(sum(rows.num_rows for rows in new), dtype=np.bool_)])
        for part in removed:
            is_live[part.numbers] = False
        at = len(self._is_live)
        for file, rows in zip(come, new, strict=True):
            parts[file.path] = _Part(file, at, rows.num_rows)
            at += rows.num_rows
        for path, part in parts.items():
            file = source.files[path]
            if file.vector != part.file.vector or (file.vector is not None and part.first >= len(self._is_live)):
                is_live[part.numbers] = True
                is_live[part.first + source.dead(file)] = False
                parts[path] = attrs.evolve(part, file=file)
        if 2 * np.count_nonzero(is_live) < len(is_live):
            return None
        blocks = [*self._blocks, pa.concat_tables(new).combine_chunks()] if new else self._blocks
        version = LoadedVersion(source, parts, blocks, is_live, self._index)
        was_live = np.zeros(len(is_live), dtype=np.bool_)
        was_live[: len(self._is_live)] = self._is_live
        went, came = np.flatnonzero(was_live & ~is_live), np.flatnonzero(is_live & ~was_live)
        if not self._index.has_room(len(came)):
            return version.indexed(np.flatnonzero(is_live))
        index = self._index.copy()
        version.take_out(index, went)
        version.put_in(index, came)
        return version.checked(index)

    def indexed(self, numbers: Positions) -> LoadedVersion:
        """Return it with a new index of some rows, by their numbers."""
        index = HashIndex(len(numbers), lambda: current_probe().step())
        self.put_in(index, numbers)
        return self.checked(index)

    def checked(self, index: HashIndex) -> LoadedVersion:
        """Return it with an index, unless it takes too much memory."""
        version = attrs.evolve(self, index=index)
        version._source.check_bytes(version.nbytes)  # noqa: SLF001 - of this class
        return version

    def take_out(self, index: HashIndex, numbers: Positions) -> None:
        """Remove the keys of some rows from an index."""
        numbers, hashes = self._hashed(numbers)

        def are_same(own: Positions, found: Positions) -> npt.NDArray[np.bool_]:
            return np.equal(found, numbers[own])

        index.remove(index.slots_of(hashes, are_same))

    def put_in(self, index: HashIndex, numbers: Positions) -> None:
        """Add keys to an index; refuse one that it has already, or that is among them more than once."""
        numbers, hashes = self._hashed(numbers)
        order = np.argsort(hashes)
        again = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        self._refuse_twice(numbers[np.unique(order[np.concatenate([again, again + 1])])])
        if index.is_empty:
            index.add(hashes, numbers)
            return
        slots = self._found(self._keys_at(numbers), index)
        if (slots >= 0).any():
            self._refuse_twice(np.concatenate([numbers[slots >= 0], slots[slots >= 0]]))
        index.add(hashes, numbers)

    def _hashed(self, numbers: Positions) -> tuple[Positions, Hashes]:
        """Return those of some rows whose keys have no nulls, and the hashes of these keys."""
        keys = self._keys_at(numbers)
        if any(column.null_count for column in keys.columns):
            is_whole = functools.reduce(pc.and_, (column.is_valid() for column in keys.columns))
            numbers, keys = numbers[is_whole.to_numpy()], keys.filter(is_whole)
        return numbers, hashes_of(keys.combine_chunks())

    def _refuse_twice(self, numbers: Positions) -> None:
        """Raise if two of some rows have the same key."""
        if not len(numbers):
            return
        counts = self._keys_at(numbers).group_by(list(self._source.key)).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1)).select(list(self._source.key))
        if twice.num_rows:
            key = python_rows(twice.slice(0, 1))[0]
            raise InputError(
                f"{self._source.what} has {count_of(twice.num_rows, 'key')} more than once, such as {key}: a look-up "
                "finds one row. Name more key columns; or remove the others from the table and run 'txtopo replan "
                "MODULE', for what is planned with this version sees it until then"
            )


def _gathered(source: TableVersion, before: LoadedVersion | None) -> tuple[dict[str, _Part], list[pa.Table]]:
    """Return the rows of all files of a version in one table, and where each file's are; read what is not there."""
    parts: dict[str, _Part] = {}
    tables: list[pa.Table] = []
    at = size = 0
    for path, file in source.files.items():
        rows = None if before is None else before.rows_in(path)
        rows = source.read(file) if rows is None else rows
        parts[path] = _Part(file, at, rows.num_rows)
        tables.append(rows)
        at += rows.num_rows
        size += rows.nbytes
        source.check_bytes(size)
    return parts, [pa.concat_tables([source.schema.empty_table(), *tables]).combine_chunks()]


def no_column(where: str, name: str, names: Sequence[str]) -> FieldsError:
    """Return the error for a column that a version does not have."""
    near = did_you_mean(name, names) or f"; it has {', '.join(names)}"
    return FieldsError(f"{where}: the table has no column {name!r}{near}")
