"""Read a Delta table into Arrow.

``DeltaTable.to_pyarrow_table`` sometimes aborts the interpreter at exit; ``scan`` never did. ``scan`` yields string
views, which many Arrow functions do not accept, so each batch is cast to the declared types. It takes times before 1677
and after 2262 for others, where Spark has written them as INT96, which it does when it compacts a table; so files of
others with times are read by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyroaring import BitMap64

from state.delta.log.data_files import DATA_FOLDER, DataFile, DataFolder, add_actions, files_of, fitted
from state.delta.log.location import Location
from state.delta.log.ownership import Numbers, Owner
from state.delta.log.put import KNOWN_READER_FEATURES
from state.delta.schema import TXID_FIELD
from txtopo.api.values import ROWS_KINDS
from txtopo.columnar.progress_probe import current_probe
from txtopo.columnar.rows_by_time import not_over

_READ_FEATURES = KNOWN_READER_FEATURES | {"deletionVectors"}
"""The features by which txtopo can read data files itself."""

_MAPPING_VERSION = 2
"""The version of the reader's protocol by which columns may have other names in the files."""


@attrs.frozen
class FilePart:
    """A file of a table, without the rows at the positions ``dead``; None: without those that its vector has."""

    file: DataFile
    dead: BitMap64 | None = None


@attrs.frozen
class StoredRows:
    """The rows of a version of a table, which are not read yet.

    A column that the version does not have, because it was added to the table later, is null. Rows that expired and
    were taken out are left out, even if their file is still there.

    Args:
        location: the table's location.
        table: a handle of the version.
        schema: the columns to return, and their types.
        live: whether to leave out rows of keys that have expired.
        until: the last transaction whose rows are seen; None: each is.
        is_empty: whether the table is meant as it was before its first write, of which no version is left.
    """

    location: Location
    table: DeltaTable
    schema: pa.Schema
    live: bool = False
    until: int | None = None
    is_empty: bool = False

    @property
    def last_txid(self) -> int | None:
        """The last transaction of the version; None if there is none, or it is of no state."""
        owner = None if self.is_empty else Owner.of(self.table)
        return None if owner is None else self.table.transaction_version(owner.application)

    def read(self) -> pa.Table:
        """Return all of them."""
        return pa.concat_tables([self.schema.empty_table(), *self.batches()])

    def batches(self, parts: Iterable[FilePart] | None = None) -> Iterator[pa.Table]:
        """Yield them in batches; of the version's files only some parts, if these are given: see :meth:`files`."""
        if self.is_empty:
            return
        expires, columns, expired_until = self.expires, self.schema, self.taken
        if expires and expires not in columns.names:
            columns = columns.append(pa.schema(self.table.schema()).field(expires))
        data = DataFolder(self.location)
        for rows in (
            _batches(self.location, self.table, columns)
            if parts is None
            else (rows for part in parts for rows in data.portions(part.file, columns, dead=part.dead))
        ):
            alive = not_over(rows, expires, expired_until).select(self.schema.names) if expires else rows
            # Rows of no transaction are somebody else's, and were accepted before.
            is_seen = self.until is None or pc.fill_null(pc.less_equal(alive[TXID_FIELD], self.until), True)
            yield alive if is_seen is True else alive.filter(is_seen)

    def files(self) -> dict[str, DataFile] | None:
        """Return the files that they are in, by path; None if only a reader of all files knows them."""
        if self.is_empty:
            return {}
        if Owner.of(self.table) is None or not can_read_files(self.table):
            return None
        return files_of(self.location, self.table, self.table.metadata().partition_columns)

    def size(self) -> tuple[int, int]:
        """Return how many rows and bytes the version's files have, as far as the log says."""
        if self.is_empty:
            return 0, 0
        added = add_actions(self.table)
        rows, size = (pc.sum(added[name]).as_py() or 0 for name in ("num_records", "size_bytes"))
        return rows, size

    def reach(self, txid: int) -> bool:
        """Whether one of them is of a transaction after another, be its key live or not."""
        txids = attrs.evolve(self, live=False, schema=pa.schema([self.schema.field(TXID_FIELD)]))
        return any(pc.any(pc.greater(rows[TXID_FIELD], txid)).as_py() for rows in txids.batches())

    @property
    def expires(self) -> str:
        """The column by which rows are left out whose time is over; empty if none is."""
        owner = Owner.of(self.table)
        return owner.expires or "" if owner is not None and (owner.kind in ROWS_KINDS or self.live) else ""

    @property
    def taken(self) -> int:
        """The time up to which they are left out then, in µs since 1970; 0 if none is."""
        owner = Owner.of(self.table)
        return Numbers.of(self.table, owner.application).taken_until if owner is not None and self.expires else 0


def read_rows(location: Location, table: DeltaTable, schema: pa.Schema) -> pa.Table:
    """Return all rows of the handle's version, with the columns and types of ``schema``; see :class:`StoredRows`."""
    return StoredRows(location, table, schema).read()


def key_mask(rows: pa.Table, keys: pa.Table) -> Any:
    """Return for each row whether its key is in ``keys``.

    Several key columns are encoded one after another: a row's code so far and its next column form a pair, and the pair
    gets its code among the wanted pairs, or null.

    Args:
        rows: a table with the columns of ``keys``, and others.
        keys: the wanted keys, one column per key field, without nulls.
    """
    first, *more_names = keys.column_names
    if not more_names:
        return pc.is_in(rows[first], value_set=keys[first].combine_chunks())
    row_codes, key_codes, _ = _codes(rows[first], keys[first])
    for name in more_names:
        next_rows, next_keys, size = _codes(rows[name], keys[name])
        row_pairs = pc.add(pc.multiply(row_codes, size), next_rows)
        key_pairs = pc.add(pc.multiply(key_codes, size), next_keys)
        row_codes, key_codes, _ = _codes(row_pairs, key_pairs)
    return pc.is_valid(row_codes)


def _codes(rows: Any, keys: Any) -> tuple[Any, Any, int]:
    values: Sequence[Any] = pc.unique(keys)
    row_codes = pc.index_in(rows, value_set=values).cast(pa.int64())
    key_codes = pc.index_in(keys, value_set=values).cast(pa.int64())
    return row_codes, key_codes, len(values)


def _batches(location: Location, table: DeltaTable, schema: pa.Schema) -> Iterator[pa.Table]:
    if _may_have_int96(location, table, schema):
        data = DataFolder(location)
        for file in files_of(location, table, table.metadata().partition_columns).values():
            yield from data.portions(file, schema)
        return
    columns = {field.name for field in table.schema().fields}
    present = [name for name in schema.names if name in columns]
    probe = current_probe()
    for batch in pa.RecordBatchReader.from_stream(table.scan(columns=present)):
        yield fitted(pa.Table.from_batches([batch]), schema)
        probe.step()


def _may_have_int96(location: Location, table: DeltaTable, schema: pa.Schema) -> bool:
    """Whether a file of a state's table may have times as INT96, and the table nothing that only delta-rs knows."""
    if Owner.of(table) is None or not any(map(_has_times, schema.types)):
        return False
    return can_read_files(table) and any(not path.startswith(f"{DATA_FOLDER}/") for path in files_of(location, table))


def can_read_files(table: DeltaTable) -> bool:
    """Whether txtopo can read the data files of a table itself, which needs nothing that only delta-rs knows."""
    protocol = table.protocol()
    is_known = _READ_FEATURES.issuperset(protocol.reader_features or ())
    return is_known and protocol.min_reader_version != _MAPPING_VERSION


def _has_times(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or any(_has_times(kind.field(n).type) for n in range(kind.num_fields))
