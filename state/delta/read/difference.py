"""The difference between two tables, row by row and in columns: a second or two for a million rows.

Rows with equal keys belong together, and are equal or differ in a value. The rows of a table without keys are a
multiset: equal rows belong together one by one.

Versions of one table, and of its forks, have files in common, and what both have of a file is equal: it is not read.
What is left may be more than memory holds. Then the rows of both sides are dealt to files by a hash of what belongs
together, and compared share by share; of the differences no more are held than are wanted.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from state.delta.columns import column_values
from state.delta.log.data_files import DataFile, DataFolder
from state.delta.read.multiset import missing_from, row_hashes
from state.delta.read.reading import FilePart, StoredRows
from state.delta.read.row_search import FirstRows
from state.delta.schema import TXID_FIELD

_IN_A, _IN_B = "position in a", "position in b"

_SHARE_BYTES = 1 << 26
"""How many bytes of the files of both sides are compared at a time."""

_SHARES_MAX = 256
"""As each share is written to two files that are open at once."""

Mask = npt.NDArray[np.bool_]


@attrs.frozen(eq=False)
class CountedRows:
    """Rows of which no more are held than are wanted."""

    count: int
    """How many there are."""
    rows: pa.Table
    """The first of them, in the order of their columns."""


@attrs.frozen(eq=False)
class TableDifference:
    """The difference between the tables A and B; its rows have the compared columns, and are sorted by key."""

    keys: tuple[str, ...]
    """The key columns; empty for a table without keys."""
    values: tuple[str, ...]
    """The other columns that were compared."""
    unlike: tuple[str, ...]
    """The columns that only one of the tables has, which were not compared."""
    equal: int
    """The number of rows of A that have an equal row in B."""
    only_in_a: CountedRows
    only_in_b: CountedRows
    differing_a: CountedRows
    """The rows of A that have the key of a row in B, but other values; in the order of ``differing_b``."""
    differing_b: CountedRows

    @property
    def count(self) -> int:
        """The number of differences."""
        return sum(each.count for each in (self.only_in_a, self.only_in_b, self.differing_a))


def stored_difference(  # noqa: PLR0913 - what is compared, and how
    a: StoredRows,
    b: StoredRows,
    *,
    since: int | None = None,
    with_txids: bool = False,
    limit: int | None = None,
    share_rows: int = 2_000_000,
) -> TableDifference:
    """Return the difference between two versions of tables, of the same one or of two; see :func:`difference`.

    About ``share_rows`` rows of both sides are compared at a time.

    Raises:
        OSError: a file is gone; or any other of :data:`~state.delta.log.ownership.WORLD_ERRORS`.
    """
    changes = _Difference(_Columns.of(a.schema, b.schema, with_txids=with_txids), since, limit)
    sides = _Sides.of(changes.columns.needed(a), changes.columns.needed(b), changes.columns, since, share_rows)
    changes.equal += sides.equal
    for rows_a, rows_b in sides.shares(changes.columns):
        changes.add(rows_a, rows_b)
    return changes.end()


def difference(
    a: pa.Table, b: pa.Table, *, since: int | None = None, with_txids: bool = False, limit: int | None = None
) -> TableDifference:
    """Return the difference between two tables.

    The columns that are not null are the keys, if they are the same in both tables, with the same types; otherwise
    neither has keys.

    Args:
        a: key columns, value columns and, in the table of a state, the column ``txid``.
        b: likewise.
        since: only rows that this transaction or a later one wrote; a key counts in both tables if it was written in
            one of them. None: all.
        with_txids: whether rows with other txids differ.
        limit: how many rows of each kind to return at most; None: all.
    """
    changes = _Difference(_Columns.of(a.schema, b.schema, with_txids=with_txids), since, limit)
    changes.add(a, b)
    return changes.end()


@attrs.frozen
class _Columns:
    """What is compared of two tables."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    unlike: tuple[str, ...]
    shown: tuple[pa.Schema, pa.Schema]
    """Keys and values of each table."""
    is_alike: bool
    """Whether all of them have the same types in both."""

    @classmethod
    def of(cls, a: pa.Schema, b: pa.Schema, *, with_txids: bool) -> _Columns:
        of_a, of_b = ([field for field in each if not field.nullable] for each in (a, b))
        keys = tuple(field.name for field in of_a) if of_a == of_b else ()
        common = [name for name in a.names if name in b.names]
        values = tuple(name for name in common if name not in keys and (with_txids or name != TXID_FIELD))
        unlike = tuple(name for name in (*a.names, *b.names) if name not in common)
        shown_a, shown_b = (pa.schema([each.field(name) for name in (*keys, *values)]) for each in (a, b))
        return cls(keys, values, unlike, (shown_a, shown_b), shown_a.types == shown_b.types)

    def needed(self, rows: StoredRows) -> StoredRows:
        """Return rows with the columns that are read to compare them."""
        names = {*self.keys, *self.values, TXID_FIELD}
        present = pa.schema([field for field in rows.schema if field.name in names])
        return attrs.evolve(rows, schema=present if len(present) else rows.schema)

    @property
    def paired(self) -> tuple[str, ...]:
        """The columns in which rows that belong together are equal."""
        return self.keys or self.values


class _Difference:
    """The difference between two tables whose rows come in shares, each with all rows that belong together."""

    def __init__(self, columns: _Columns, since: int | None, limit: int | None) -> None:
        self.columns = columns
        self.equal = 0
        self._since = since
        self._found = [FirstRows(shown, limit) for shown in (*columns.shown, *columns.shown)]

    def add(self, a: pa.Table, b: pa.Table) -> None:
        """Compare a share of both tables."""
        shares = self._paired(a, b) if self.columns.keys else self._alone(a, b)
        for rows_found, rows in zip(self._found, shares, strict=True):
            rows_found.add(rows)

    def end(self) -> TableDifference:
        """Return the difference."""
        columns = self.columns
        found = [CountedRows(each.seen, each.rows()) for each in self._found]
        return TableDifference(columns.keys, columns.values, columns.unlike, self.equal, *found)

    def _alone(self, a: pa.Table, b: pa.Table) -> Sequence[pa.Table]:
        rows_a, rows_b = (each.filter(pa.array(_written(each, self._since))) for each in (a, b))
        rows_a, rows_b = (each.select(self.columns.values) for each in (rows_a, rows_b))
        only_in_a, only_in_b = missing_from(rows_b, rows_a), missing_from(rows_a, rows_b)
        self.equal += rows_a.num_rows - only_in_a.num_rows
        none = only_in_a.slice(0, 0)
        return only_in_a, only_in_b, none, none

    def _paired(self, a: pa.Table, b: pa.Table) -> Sequence[pa.Table]:
        keys, values = self.columns.keys, self.columns.values
        in_a, in_b = _positions(a, b, keys)
        # A row that is missing in one table, at position -1, was not written there.
        is_written = np.append(_written(a, self._since), False)[in_a] | np.append(_written(b, self._since), False)[in_b]
        in_a, in_b = in_a[is_written], in_b[is_written]
        a, b = a.select([*keys, *values]), b.select([*keys, *values])
        is_in_both = (in_a >= 0) & (in_b >= 0)
        both_a, both_b = a.take(in_a[is_in_both]), b.take(in_b[is_in_both])
        differs = np.zeros(both_a.num_rows, dtype=bool)
        for name in values:
            differs |= _differs(both_a[name], both_b[name])
        differing = np.flatnonzero(differs)
        self.equal += both_a.num_rows - len(differing)
        return a.take(in_a[in_b < 0]), b.take(in_b[in_a < 0]), both_a.take(differing), both_b.take(differing)


@attrs.frozen
class _Sides:
    """What two versions do not have in common."""

    a: StoredRows
    b: StoredRows
    parts: tuple[Sequence[FilePart] | None, Sequence[FilePart] | None]
    """The parts of files to read of each; None: all, where the files can't be read one by one."""
    equal: int
    """The number of rows that both have, of those that count."""
    shares_count: int

    @classmethod
    def of(cls, a: StoredRows, b: StoredRows, columns: _Columns, since: int | None, share_rows: int) -> _Sides:
        files_a, files_b = a.files(), b.files()
        # Of what both have, the same rows must be seen.
        is_alike = columns.is_alike and (a.expires, a.taken, a.until) == (b.expires, b.taken, b.until)
        if files_a is None or files_b is None or not is_alike:
            return cls(a, b, (None, None), 0, _shares([a.size(), b.size()], share_rows))
        parts_a, parts_b, both = list[FilePart](), list[FilePart](), list[FilePart]()
        for path in {**files_a, **files_b}:
            file_a, file_b = files_a.get(path), files_b.get(path)
            if file_a is None or file_b is None or not file_a.stats or file_a.size != file_b.size:
                parts_a += [FilePart(file_a)] if file_a is not None else []
                parts_b += [FilePart(file_b)] if file_b is not None else []
            elif file_a.vector == file_b.vector:
                both.append(FilePart(file_a))
            else:
                dead_a, dead_b = DataFolder(a.location).dead(file_a), DataFolder(b.location).dead(file_b)
                both.append(FilePart(file_a, dead_a | dead_b))
                parts_a += _only(file_a, dead_b - dead_a)
                parts_b += _only(file_b, dead_a - dead_b)
        equal = sum(_counted(a, part, since) for part in both)
        sizes = [(part.file.rows, part.file.size) for part in (*parts_a, *parts_b)]
        return cls(a, b, (parts_a, parts_b), equal, _shares(sizes, share_rows))

    def shares(self, columns: _Columns) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the rows of both, share by share."""
        read = [side.batches(parts) for side, parts in zip((self.a, self.b), self.parts, strict=True)]
        if self.shares_count == 1:
            rows_a, rows_b = (
                pa.concat_tables([side.schema.empty_table(), *batches])
                for side, batches in zip((self.a, self.b), read, strict=True)
            )
            yield rows_a, rows_b
            return
        with tempfile.TemporaryDirectory(prefix="txtopo-diff-") as folder:
            dealt_a, dealt_b = (
                _dealt(batches, side.schema, columns.paired, self.shares_count, Path(folder) / name)
                for side, batches, name in zip((self.a, self.b), read, "ab", strict=True)
            )
            for share_a, share_b in zip(dealt_a, dealt_b, strict=True):
                yield _share(share_a), _share(share_b)


def _shares(sizes: Sequence[tuple[int, int]], share_rows: int) -> int:
    """Return in how many shares to compare what has some numbers of rows and bytes."""
    rows, size = map(sum, zip((0, 0), *sizes, strict=True))
    return min(1 + max(rows // share_rows, size // _SHARE_BYTES), _SHARES_MAX)


def _only(file: DataFile, positions: BitMap64) -> list[FilePart]:
    """Return the part of a file with the rows at some positions, if there are any."""
    return [FilePart(file, BitMap64(range(file.rows)) - positions)] if positions else []


def _counted(rows: StoredRows, part: FilePart, since: int | None) -> int:
    """Return how many rows of a part of a file count; without reading it where the log says that."""
    if since is None and not rows.expires and rows.until is None:
        return part.file.live if part.dead is None else part.file.rows - len(part.dead)
    # Of what both have, only when rows were written and expire is read.
    txids = attrs.evolve(rows, schema=pa.schema([rows.schema.field(TXID_FIELD)]))
    return sum(int(_written(batch, since).sum()) for batch in txids.batches([part]))


def _dealt(
    batches: Iterable[pa.Table], schema: pa.Schema, columns: Sequence[str], count: int, folder: Path
) -> Sequence[Path]:
    """Write rows to as many files as there are shares; those that are equal in some columns to the same."""
    folder.mkdir()
    paths = [folder / f"{share}.arrow" for share in range(count)]
    with contextlib.ExitStack() as files:
        writers = [files.enter_context(pa.ipc.new_stream(str(path), schema)) for path in paths]
        for rows in batches:
            shares = row_hashes(rows.select(columns)) % np.uint64(count)
            order = np.argsort(shares, kind="stable")
            ends = np.searchsorted(shares[order], np.arange(count + 1))
            dealt = rows.take(order)
            for writer, (begin, end) in zip(writers, pairwise(ends), strict=True):
                if end > begin:
                    writer.write_table(dealt.slice(begin, end - begin))
    return paths


def _share(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


def _written(rows: pa.Table, since: int | None) -> Mask:
    """Return which rows a transaction or a later one wrote; None: all."""
    if since is None:
        return np.ones(rows.num_rows, dtype=bool)
    return np.asarray(pc.fill_null(rows[TXID_FIELD], 0).to_numpy() >= since)


def _positions(a: pa.Table, b: pa.Table, keys: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each key its position in either table, -1 where it is missing."""
    sides = [
        rows.select(keys).append_column(name, pa.array(np.arange(rows.num_rows)))
        for rows, name in ((a, _IN_A), (b, _IN_B))
    ]
    joined = sides[0].join(sides[1], list(keys), join_type="full outer")
    in_a, in_b = (pc.fill_null(joined[name], -1).to_numpy() for name in (_IN_A, _IN_B))
    return in_a, in_b


def _differs(a: pa.ChunkedArray, b: pa.ChunkedArray) -> Mask:
    """Return in which rows two columns differ; a null equals a null only, and NaN equals NaN."""
    if pa.types.is_nested(a.type) or a.type != b.type:
        pairs = zip(column_values(a), column_values(b), strict=True)
        return np.fromiter((repr(one) != repr(other) for one, other in pairs), dtype=bool, count=len(a))
    is_same = pc.fill_null(pc.equal(a, b), False)
    is_same = pc.or_(is_same, pc.and_(pc.is_null(a, nan_is_null=True), pc.is_null(b, nan_is_null=True)))
    # One of the two may be a null and the other NaN.
    is_same = pc.and_(is_same, pc.equal(pc.is_null(a), pc.is_null(b)))
    return np.asarray(pc.invert(is_same).to_numpy())
