"""The data files of a table, as the log has them, and the folder that txtopo writes them to.

They are written before the log names them, possibly long before, because a coordinator that prepared them may be down.
So they are written to a folder whose name begins with an underscore, which vacuum skips. They stay there when the log
names them, so that no file is ever moved. Only :mod:`state.delta.upkeep` removes those that are no longer needed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyroaring import BitMap64

from state.delta.log.live_vectors import live_vectors
from state.delta.log.location import Location
from state.delta.log.statistics import ColumnContent, row_count_of, stats_from, stats_of
from state.delta.log.vectors import Vector, dead_rows, places_of, positions_in, vector_file
from txtopo.api.writes import RowsFile, TransactionRows
from txtopo.columnar.key_index import IndexSizes
from txtopo.columnar.progress_probe import ProgressProbe, current_probe
from txtopo.columnar.rows_file import write_rows_file
from txtopo.errors import StateFailure
from txtopo.files.durable import paths_in
from txtopo.files.folder import Folder, LocalFolder

DATA_FOLDER = "_data"
"""The folder in a table's folder that txtopo writes data files to."""

WAITING_FOLDER = "_txtopo"
"""The folder for waiting rows in the table's folder; readers and vacuum ignore it."""

ROWS_SUFFIX = "-rows"
"""In the names of files that pass a group's rows to the executors, in the waiting folder."""

PUTS_MAX, PUTS_MAX_REMOTE, PUT_BYTES = 16, 64, 1 << 28
"""How many files are written side by side, in an object store more, where they mostly wait, and the bytes of their
rows; more only if there are as many processors."""

_OF_GROUP = re.compile(r"(?:rows|keys|rest|removed)-(\d+)-[^/]*\.parquet")
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
"""The beginning of the path of a file that is not in the table's folder."""

_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
_SAMPLE_ROWS = 1_000
"""From the first rows follows whether a dictionary is worth it, at a hundredth of the time of all."""

_DICTIONARY_ROWS_MIN = 100
"""With fewer rows, a dictionary takes more bytes than it saves: of 10 rows of three columns 1,030 and not 973."""


@attrs.frozen
class Sizes:
    """How large the parts are in which a table is written, read, merged and held."""

    file_rows: int = 500_000
    """The maximum number of rows in a file that the driver writes."""
    full_rows: int = 500_000
    """From so many rows on, a file is not written anew to take in new keys."""
    range_rows: int = 2_000_000
    """The approximate number of a group's rows in a range that an executor folds. For each range, the keys of the whole
    table are read: for 10,000,000 rows of as many keys that takes 21 CPU seconds, where ranges of 500,000 take 50."""
    portion_rows: int = 1 << 17
    """The number of rows to read, to look up or to hash at a time: an eighth of a row group of most files."""
    tier_files: int = 8
    """How many files of a tier become one of the next tier."""
    rewritten_rows: int = 1 << 16
    """A file in tiers with fewer rows, and of few bytes, is not written again for the rows that are over alone: its
    tier is merged soon."""
    held_bytes: int = 2 << 30
    """The bytes of the table's rows in memory where no run says otherwise."""
    small_bytes: int = 1 << 20
    """The bytes of rows, or of an array of an index, that lie in memory whether or not there is room."""
    index: IndexSizes = attrs.field(factory=IndexSizes)
    """Those of the index of a keyed table's rows."""


@attrs.frozen
class DataFile:
    """A data file of a table, new or old; the size is in bytes.

    ``path`` is relative to the table's folder, and percent-encoded, as in the log. ``stats`` are the log's statistics
    of its columns, as JSON; of an old file only the number of its rows, and nothing if that is not known. ``partition``
    holds the values of the partition columns, as in the log. ``rows`` counts all rows, also those that are dead by its
    ``vector``, and ``live`` the others: a version of the table has only these.
    """

    path: str
    size: int
    rows: int
    stats: str = ""
    partition: Mapping[str, str | None] = attrs.field(factory=dict)
    vector: Vector | None = None

    @property
    def live(self) -> int:
        """The number of its rows that are not dead."""
        return self.rows - (0 if self.vector is None else self.vector.cardinality)

    @property
    def place(self) -> str:
        """Its path in the table's folder."""
        return unquote(self.path)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is another table's, as those of a shallow clone are."""
        return _ABSOLUTE.match(self.path) is not None

    @property
    def places(self) -> tuple[str, ...]:
        """The paths in the table's folder of all that it needs."""
        return places_of(self.path, self.vector)

    @property
    def note(self) -> dict[str, Any]:
        """What a note has of it; :func:`files_in` reads it."""
        # By attrs.asdict, which looks for what may be within, a write of few rows to many files takes 3 % more.
        vector = None if self.vector is None else {name: getattr(self.vector, name) for name in _VECTOR_NAMES}
        return {**{name: getattr(self, name) for name in _FILE_NAMES}, "vector": vector}

    def is_in(self, files: Mapping[str, DataFile]) -> bool:
        """Return whether the version with some files, by path, has this one, with the same dead rows."""
        same_path = files.get(self.path)
        return same_path is not None and same_path.vector == self.vector

    def without_bounds(self) -> DataFile:
        """Return the file as one whose bounds are not known: readers find the rows, and skip nothing."""
        stats = self.stats and row_count_of(self.rows)
        return self if stats == self.stats else attrs.evolve(self, stats=stats)


class _Columns(NamedTuple):
    floats: frozenset[str]
    """Those that may have such a number as Parquet's readers compare otherwise, also in structs."""
    nested: frozenset[str]


@functools.lru_cache(maxsize=256)
def _columns_of(schema: pa.Schema) -> _Columns:
    """Return the names of some columns; to ask each file's types takes a tenth of the time of its encoding."""

    def has_floats(kind: pa.DataType) -> bool:
        return pa.types.is_floating(kind) or (
            pa.types.is_struct(kind) and any(has_floats(kind.field(n).type) for n in range(kind.num_fields))
        )

    return _Columns(
        frozenset(field.name for field in schema if has_floats(field.type)),
        frozenset(field.name for field in schema if pa.types.is_nested(field.type)),
    )


def _repetitive(rows: pa.Table, columns: _Columns, sampled: dict[Any, set[str]]) -> list[str] | bool:
    """Return the columns to encode by a dictionary, which doubles the time: those whose first values repeat.

    ``sampled`` has what was found in earlier files of the table, by columns and size: to look takes a third of the time
    in which a small file is encoded.

    Zero stands for both of its signs, but Spark looks for its bits in a dictionary, and skips rows that have the other
    zero. So a column with a zero has none, nor have nested columns beside it, whose parts can't be chosen by name.
    """
    if rows.num_rows < _DICTIONARY_ROWS_MIN:
        return False
    zeros, nested = _with(rows, columns, lambda column: pc.equal(column, 0.0)), columns.nested
    if nested and not zeros:
        return True
    sort = *rows.column_names, rows.num_rows.bit_length()
    if sort not in sampled:
        first, plain = rows.slice(0, _SAMPLE_ROWS), [name for name in rows.column_names if name not in nested]
        sampled[sort] = {name for name in plain if pc.count_distinct(first[name]).as_py() * 2 <= first.num_rows}
    return [name for name in rows.column_names if name in sampled[sort] - zeros]


def _bounded(rows: pa.Table, columns: _Columns) -> list[str] | bool:
    """Return the columns of which the file itself has bounds: those without NaN.

    Arrow leaves NaN out of them. By such bounds Spark, DuckDB and delta-rs skip NaN, to them the largest value.
    Nested columns beside it have none either.
    """
    nans = _with(rows, columns, pc.is_nan)
    return [name for name in rows.column_names if name not in nans | columns.nested] if nans else True


def _with(rows: pa.Table, columns: _Columns, is_meant: Callable[[pa.ChunkedArray], Any]) -> set[str]:
    """Return the columns with such a number, also those of structs, whose parts readers look for, too."""

    def has_any(column: pa.ChunkedArray) -> bool:
        if pa.types.is_struct(column.type):
            return any(has_any(pc.struct_field(column, n)) for n in range(column.type.num_fields))
        return pa.types.is_floating(column.type) and pc.any(is_meant(column)).as_py() is True

    return {name for name in columns.floats if has_any(rows[name])}


def partition_text(value: Any) -> str | None:
    """Return a value of a partition column in the format of Delta's log."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


_FILE_NAMES, _VECTOR_NAMES = ([field.name for field in attrs.fields(kind)] for kind in (DataFile, Vector))


@attrs.frozen(eq=False)
class Presence:
    """Which files of a table are there, by their paths in its folder.

    ``names`` are those in the folder that txtopo writes to, as it was listed; the table's folder is asked for others.
    """

    folder: Folder
    names: frozenset[str]
    _others: dict[str, bool] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.names)

    def __call__(self, place: str) -> bool:
        """Return whether a file is there."""
        folder, _, name = place.rpartition("/")
        if folder == DATA_FOLDER:
            return name in self.names
        if place not in self._others:
            self._others[place] = self.folder.size(place) is not None
        return self._others[place]


@attrs.frozen
class DataFolder:
    """The data files of a table. Picklable."""

    location: Location
    sizes: Sizes = Sizes()
    _sampled: dict[Any, set[str]] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    def put(
        self,
        name: str,
        rows: pa.Table,
        partition: Mapping[str, str | None] | None = None,
        probe: ProgressProbe | None = None,
        meanwhile: Callable[[DataFile], None] = lambda _file: None,
    ) -> DataFile:
        """Write rows to a new file whose name begins with ``name``.

        The file has the partition columns, too: polars knows their values from nowhere else. It is durable on return. A
        crash before a version names it leaves a file that upkeep removes. ``probe`` is by default that of this thread.
        ``meanwhile`` is called with the file while it becomes durable.
        """
        path = f"{DATA_FOLDER}/{name}-{uuid.uuid4().hex}.parquet"
        columns = _columns_of(rows.schema)
        options: dict[str, Any] = {
            "compression": "snappy",
            "use_dictionary": _repetitive(rows, columns, self._sampled),
            "write_statistics": _bounded(rows, columns),
        }
        partition = partition or {}
        files: list[DataFile] = []

        def write(file: IO[bytes]) -> None:
            pq.write_table(rows, file, **options)

        def describe(size: int) -> None:
            stats = stats_of(rows.drop_columns(list(partition)))
            files.append(DataFile(path, size, rows.num_rows, stats, partition))
            meanwhile(files[0])

        self.location.folder.put_new(path, write, meanwhile=describe)
        (probe or current_probe()).step()
        return files[0]

    def put_each(
        self,
        name: str,
        parts: Iterable[tuple[pa.Table, Mapping[str, str | None] | None]],
        meanwhile: Callable[[list[DataFile]], None] = lambda _files: None,
    ) -> list[DataFile]:
        """Write parts, each with its partition, as :meth:`put` does; return the files in their order.

        A part has a file, or several if it has too many rows.
        They are written side by side: in an object store where a put takes 40 ms, 280 partitions take 0.4 s and not 11;
        to a local disk, where it waits for the disk, they take two thirds of the time. If one fails, no others begin,
        and those that are there stay for upkeep. ``meanwhile`` is called with the files, while they become durable if
        they are one.
        """
        size = self.sizes.file_rows
        waiting = [
            (rows.slice(first, size), partition) for rows, partition in parts for first in range(0, rows.num_rows, size)
        ]
        probe = current_probe()
        if len(waiting) == 1:
            return [self.put(name, *waiting[0], meanwhile=lambda file: meanwhile([file]))]
        files: list[DataFile] = []
        if waiting:
            largest = max(1, *(rows.nbytes for rows, _ in waiting))
            puts_max = PUTS_MAX_REMOTE if self.location.root is None else PUTS_MAX
            count = max(os.cpu_count() or 1, min(puts_max, PUT_BYTES // largest))
            with ThreadPoolExecutor(min(len(waiting), count), "txtopo-put") as threads:
                puts = [threads.submit(self.put, name, *each, probe) for each in waiting]
                try:
                    files = [put.result() for put in puts]
                except BaseException:
                    threads.shutdown(cancel_futures=True)
                    raise
        meanwhile(files)
        return files

    def put_portions(self, name: str, portions: Iterable[pa.Table]) -> list[DataFile]:
        """Write the rows of portions as :meth:`put_each` does; no more than a file and a portion is held in memory."""
        files: list[DataFile] = []
        waiting: list[pa.Table] = []
        for portion in portions:
            waiting.append(portion)
            while sum(each.num_rows for each in waiting) >= self.sizes.file_rows:
                rows = pa.concat_tables(waiting)
                files.append(self.put(name, rows.slice(0, self.sizes.file_rows)))
                waiting = [rows.slice(self.sizes.file_rows)]
        return [*files, *self.put_each(name, [(pa.concat_tables(waiting), None)])] if waiting else files

    def without_vectors(
        self, files: Iterable[DataFile], schema: pa.Schema, to: DataFolder | None = None
    ) -> list[DataFile]:
        """Return files with the same live rows and no vectors, of which those that had some are written anew.

        ``schema`` are all columns of the table; ``to`` is the folder for the new files, if it is another one.
        """
        files = list(files)
        marked = [file for file in files if file.vector is not None]
        dead = {file.path: self.dead(file) for file in marked}
        return [*(file for file in files if file.vector is None), *self.put_rest("live", marked, dead, schema, to)]

    def put_rest(
        self,
        name: str,
        files: Iterable[DataFile],
        dead: Mapping[str, BitMap64],
        schema: pa.Schema,
        to: DataFolder | None = None,
    ) -> list[DataFile]:
        """Write the rows that are not ``dead``, by path, of some files as :meth:`put_portions` does."""
        portions = (rows for file in files for rows in self.portions(file, schema, dead=dead[file.path]))
        return (to or self).put_portions(name, portions)

    def put_vectors(self, bitmaps: Sequence[BitMap64]) -> list[Vector]:
        """Write bitmaps of dead rows to one new file, and return a vector for each; durable on return, as :meth:`put`.

        They are positions in data files: with all rows that were dead before, as a file has one vector at a time.
        """
        place, content, vectors = vector_file(DATA_FOLDER, bitmaps)
        if vectors:
            self.location.folder.put_new(place, content)
            current_probe().step()
        return vectors

    def with_dead(self, files: Iterable[DataFile], dead: Mapping[str, BitMap64]) -> list[DataFile]:
        """Return those of some files that have live rows, with vectors of all their dead rows, which are written."""
        remaining = [file for file in files if len(dead[file.path]) < file.rows]
        vectors = self.put_vectors([dead[file.path] for file in remaining])
        return [attrs.evolve(file, vector=vector) for file, vector in zip(remaining, vectors, strict=True)]

    def counted(self, files: Iterable[DataFile], known: Mapping[str, DataFile] | None = None) -> dict[str, DataFile]:
        """Return files by path, each with the number of its rows, which the log need not have of somebody else's.

        ``known`` has that of some. A file that can't be read is left as it is: nothing can be written of its rows.
        """
        by_path = {file.path: file for file in files}
        for path, file in by_path.items():
            before = (known or {}).get(path)
            if file.stats:
                continue
            with contextlib.suppress(OSError, pa.ArrowException):
                rows = before.rows if before is not None and before.stats else self._open(file).metadata.num_rows
                by_path[path] = attrs.evolve(file, rows=rows, stats=row_count_of(rows))
        return by_path

    def dead(self, file: DataFile) -> BitMap64:
        """Return the positions of a file's dead rows; raise OSError if their file is missing or damaged."""
        return BitMap64() if file.vector is None else dead_rows(self.location, file.vector)

    def portions(
        self, file: DataFile, schema: pa.Schema, *, with_dead: bool = False, dead: BitMap64 | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of a file in portions, each as :meth:`read` returns them.

        ``dead`` are the positions of all dead rows, if more have died than the file's vector has.
        """
        probe, first = current_probe(), 0
        if dead is None:
            dead = BitMap64() if with_dead else self.dead(file)
        # Who reads in portions has a separate thread, or an executor's core. Arrow's threads would each keep memory.
        batches = self._open(file).iter_batches(self.sizes.portion_rows, columns=schema.names, use_threads=False)
        for batch in batches:
            rows = _of_table(file, pa.Table.from_batches([batch]), schema)
            yield without(dead, rows, first)
            first += rows.num_rows
            probe.step()

    def read(self, file: DataFile, schema: pa.Schema, *, with_dead: bool = False) -> pa.Table:
        """Return the columns of ``schema`` from a file, with the schema's types.

        The values of partition columns that the file lacks, as those of other writers do, are the log's. The rows are
        in the file's order; with those that are dead, a row's place is its position in vectors.
        """
        rows = _of_table(file, self._open(file).read(columns=schema.names), schema)
        current_probe().step()
        return rows if with_dead else without(self.dead(file), rows, 0)

    def missing(self, files: Iterable[DataFile]) -> str | None:
        """Describe the first file that some files need and that is not whole, after "it needs"; None if all are."""
        for file in files:
            size = self.location.folder.size(file.place)
            if size != file.size:
                problem = "is gone" if size is None else f"has {size} bytes and not {file.size}"
                return f"the file {file.place}, but that {problem}"
            place = None if file.vector is None else file.vector.place
            if file.vector is None or place is None:
                continue
            size, least = self.location.folder.size(place), file.vector.end
            if size is None or size < least:
                problem = "is gone" if size is None else f"has {size} bytes, and not the {least} of a vector in it"
                return f"the file {place}, but that {problem}"
        return None

    def presence(self) -> Presence:
        """Return which files are there: the folder is listed once."""
        return Presence(self.location.folder, frozenset(self.location.folder.names(DATA_FOLDER)))

    def left_by_groups(self, txid: int, since_secs: float) -> list[str]:
        """Return the files of data that groups after a transaction may have left, written after a time.

        Not at that time: stores tell whole seconds, so such a file may be of a version before, which readers have.
        They say in their names with which transaction their group begins. Those of vectors do not: what of them a group
        has left is what no version names, and goes once that is old.
        """
        items = ((_OF_GROUP.fullmatch(Path(item.path).name), item) for item in self.location.folder.list(DATA_FOLDER))
        return [item.path for name, item in items if name and int(name[1]) > txid and item.modified_secs > since_secs]

    def check_there(self, files: Iterable[DataFile]) -> None:
        """Raise a StateFailure unless files that executors have written are there."""
        missing = self.missing(files)
        if missing is not None:
            raise StateFailure(
                f"the table at {self.location.address} needs {missing}, although an executor has written it"
            )

    @contextlib.contextmanager
    def rows_in_files(self, parts: Sequence[TransactionRows], keys: Sequence[str]) -> Iterator[list[RowsFile]]:
        """Yield a file of rows for each part; rows in memory are written to the table's folder within the context.

        ``keys`` are the columns to sort them by, see :func:`~txtopo.columnar.rows_file.write_rows_file`.
        """
        files: list[RowsFile] = []
        row_files: list[RowsFile] = []
        try:
            for part in parts:
                file = part.rows
                if not isinstance(file, RowsFile):
                    file = write_rows_file(
                        LocalFolder(self._root() / WAITING_FOLDER), f"{part.txid}{ROWS_SUFFIX}", file, keys
                    )
                    row_files.append(file)
                files.append(file)
            yield files
        finally:
            for file in row_files:
                file.folder.delete(file.path)

    def remove_waiting(self) -> None:
        """Remove the files of rows that a killed driver has given to executors."""
        if self.location.root is not None:
            for path in paths_in(self.location.root / WAITING_FOLDER, f"*{ROWS_SUFFIX}*.arrow"):
                path.unlink(missing_ok=True)

    def _open(self, file: DataFile) -> pq.ParquetFile:
        root = self.location.root
        source = pa.BufferReader(self.location.folder.get(file.place)) if root is None else root / file.place
        # Spark writes times as INT96 when it compacts a table; in nanoseconds, those of year 1 or 9999 are others.
        # Neither all columns of the file nor one of a row group are in memory at once: portions of 250,000 of 5,000,000
        # rows of three numbers took 93 MB, and then 17.
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=False, buffer_size=1 << 16)

    def _root(self) -> Path:
        assert self.location.root is not None, "the table is in a local folder"
        return self.location.root


def _of_table(file: DataFile, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    for name, text in file.partition.items():
        if name not in rows.column_names and name in schema.names:
            kind = schema.field(name).type
            # A time without a zone is in UTC, as delta-rs reads it.
            has_no_zone = text and pa.types.is_timestamp(kind) and kind.tz and not _ZONE.search(text)
            value = pa.scalar(f"{text}Z" if has_no_zone else text, pa.string())
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows).cast(kind))
    return fitted(rows, schema)


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns and types of ``schema``; a column that was added to the table later is null."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def without(dead: BitMap64, rows: pa.Table, first: int) -> pa.Table:
    """Return rows of a file, whose first one is at a position in it, without those that are dead."""
    end = first + rows.num_rows
    if not dead.range_cardinality(first, end):
        return rows
    is_live = np.ones(rows.num_rows, dtype=np.bool_)
    is_live[positions_in(dead & BitMap64(range(first, end))) - first] = False
    return rows.filter(pa.array(is_live))


def add_actions(table: DeltaTable) -> pa.Table:
    """Return what the log has of the files of the handle's version: a row for each, a column for each statistic."""
    # pa.table() would do, but it imports pandas, which takes longer than all else at the start of a run.
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()


def files_of(
    location: Location,
    table: DeltaTable,
    partition_by: Sequence[str] = (),
    known: tuple[int, Mapping[str, DataFile]] | None = None,
) -> dict[str, DataFile]:
    """Return the files of the handle's version by path, each with its values of the columns in ``partition_by``.

    Args:
        location: the table's location.
        table: the handle.
        partition_by: the columns.
        known: an earlier version, or this one, and its files: of a table with deletion vectors, only later entries of
            the log are read then.
    """
    added = add_actions(table)
    if not added.num_rows:
        return {}
    paths, sizes, counts = (added[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    columns = [map(partition_text, added[f"partition.{name}"].to_pylist()) for name in partition_by]
    partitions = zip(*columns, strict=True) if columns else [()] * len(paths)
    vectors = live_vectors(
        location, table, known and (known[0], {path: file.vector for path, file in known[1].items() if file.vector})
    )
    if not vectors.keys() <= {*paths}:
        raise OSError(f"the log of {location.address} has a deletion vector of a file that delta-rs does not have")
    return {
        path: DataFile(
            path,
            size,
            rows or 0,
            "" if rows is None else row_count_of(rows),
            dict(zip(partition_by, values, strict=True)),
            vectors.get(path),
        )
        for path, size, rows, values in zip(paths, sizes, counts, partitions, strict=True)
    }


def with_stats(table: DeltaTable, files: Mapping[str, DataFile], to: DeltaTable | None = None) -> Iterator[DataFile]:
    """Yield files of the handle's version, each with what the log has of its columns.

    ``to`` is a handle of a version with the columns of the table that gets them, if these are others.
    """
    partition_by = {*table.metadata().partition_columns}
    schema = pa.schema([field for field in pa.schema((to or table).schema()) if field.name not in partition_by])
    for row in add_actions(table).to_pylist():
        rows = row["num_records"]
        if row["path"] not in files:
            continue
        if rows is None:
            yield files[row["path"]]
            continue
        contents = {
            name: ColumnContent(*(row.get(f"{what}.{name}") for what in ("null_count", "min", "max")))
            for name in schema.names
        }
        yield attrs.evolve(files[row["path"]], stats=stats_from(rows, schema, contents))


def files_in(note: Mapping[str, Any], *names: str) -> list[DataFile]:
    """Return the files that a note has under names, by default those that must be there; see :attr:`DataFile.note`."""
    names = names or ("added", "rest", "without", "files")
    return [_file_of(noted) for name in names for noted in note.get(name, ())]


def needed_in(note: Mapping[str, Any], files: Mapping[str, DataFile]) -> list[DataFile]:
    """Return the files that a note needs on top of a version that has some files, by path.

    A file whose dead rows it changes is not among them if somebody else has moved its rows: then it may be gone, and
    which rows are dead is worked out again.
    """
    moved = {file.path for file in files_in(note, "removed") if not file.is_in(files)}
    return [file for file in files_in(note) if file.path not in moved]


def _file_of(noted: Mapping[str, Any]) -> DataFile:
    vector = noted.get("vector")
    return DataFile(**{**noted, "vector": None if vector is None else Vector(**vector)})
