"""``DeltaExpiringRows``: a table of rows that committers append, and take out again when they expire.

The rows that are not taken are held as Arrow, in memory or, if there is no room, in mapped files: a *run* for each data
file, in the order in which its rows expire.
So nothing is read or looked up to append, and a take costs what it takes, whatever else the table holds.

The table has one file more after each commit group, with the rows of the group that are not taken when it ends. Taking
rows rewrites no file: each version has the time up to which rows are taken, as an application transaction
``<topology>/<state>/taken``, and rows up to that time are gone, whatever the files hold. A file goes with the last of
its rows. Upkeep rewrites files that have become many, or most of whose rows are gone.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from state.delta.columns import is_key_type, no_equality
from state.delta.expiring.runs import ReadsRuns, Runs, fitted_with_times
from state.delta.log.data_files import DataFile, Sizes, files_in
from state.delta.log.growth import Growth
from state.delta.log.location import Location
from state.delta.log.put import Change
from state.delta.merging import Ended, Policy
from state.delta.mirror import Mirror
from state.delta.rows.files import with_txid
from state.delta.rows.group import RowsWrites
from state.delta.rows.state import DeltaRows, OpenedDeltaRows, PastDeltaRows
from state.delta.upkeep.schedule import RETENTION_HOURS_MIN, Upkeep
from state.delta.writer import TableWriter
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.api.state import HoldsRows
from txtopo.api.values import StateKind
from txtopo.api.writes import Rows, RowsMode, TransactionRows
from txtopo.columnar.keyed_runs import KeyedRuns
from txtopo.columnar.rows_by_time import BEFORE_ALL, Run, not_over
from txtopo.columnar.rows_file import in_memory
from txtopo.columnar.selection import rows_at
from txtopo.errors import FieldsError

_MERGED_FILES = 4
"""How many files' rows upkeep writes at a time, at most."""

_EXPIRES_TYPE = pa.timestamp("us", tz="UTC")


class DeltaExpiringRows(DeltaRows):
    """A table of rows that expire, in a Delta table, with the columns of the fields and txid.

    Committers put rows with ``append``, and take out those that have expired with ``take_expired``. It is for the open
    windows of a committer, or the keys that it remembers for a while, and not for readers: others may read it, but only
    txtopo leaves out the rows that are taken and whose file is still there.

    *You* must not write to the table with anything else.
    *txtopo* guarantees that the rows of each transaction are taken out exactly once.

    The coordinator holds all rows that are not taken as Arrow columns, and at most as many again that are: in memory up
    to ``topology.state.bytes.max``, and in temporary files beyond it.

    Args:
        path: the table's path, as of a :class:`DeltaRows`.
        fields: the fields, each with a type.
        expires: the field of type ``timestamp`` with the time at which a row expires. It must have a value.
        key: the fields by which rows are looked up with ``holds``; nulls are equal. Several rows may have the
            same. An index of their hashes is in memory, too: 12 bytes for each row.
        storage_options: options for the object store, as delta-rs has them.
        upkeep_every_writes: the number of writes between two checkpoints of the log, at least: the more is kept, the
            rarer they are.
        files_max: small files are combined when that saves at least this many files.
        vacuum_retention_hours: how long unreferenced data files are kept, in hours, at least 168; None (the default):
            as long as ``topology.history.recent.secs`` says, or 168 hours if it is none. The table cannot be rolled
            back further, nor read as of an earlier transaction, except to a point.

    Raises:
        ConfigError: an option is out of range.
        FieldsError: two fields have the same name, a field has no type, ``expires`` is no field of type
            ``timestamp``, or a field of the key has a type that keys cannot have.
    """

    sizes = Sizes(file_rows=250_000)
    """The files of upkeep are ordered in time, so whole ones go."""

    @checked_arguments
    def __init__(  # noqa: PLR0913  each has a default, and is named
        self,
        path: str | os.PathLike[str],
        fields: Fields,
        expires: str,
        key: str | Sequence[str] = (),
        *,
        storage_options: Mapping[str, str] | None = None,
        upkeep_every_writes: int = 50,
        files_max: int = 64,
        vacuum_retention_hours: int | None = None,
    ) -> None:
        super().__init__(
            path,
            fields,
            storage_options=storage_options,
            upkeep_every_writes=upkeep_every_writes,
            files_max=files_max,
            vacuum_retention_hours=vacuum_retention_hours,
        )
        self.upkeep = attrs.evolve(self.upkeep, unbounded_hours=RETENTION_HOURS_MIN)
        kind = fields.types[fields.index(expires)]
        if kind != _EXPIRES_TYPE:
            raise FieldsError(f"field {expires!r} is {ddl_name(kind)}; rows expire at a timestamp")
        self.key = fields.subset((key,) if isinstance(key, str) else tuple(key))
        for name, own in zip(self.key.names, self.key.types, strict=True):
            if own is None or not is_key_type(own):
                raise no_equality(name, own)
        self.expires = expires
        self.kind = StateKind.EXPIRING

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return rows with the table's fields; see :meth:`State.as_rows`."""
        return fitted_with_times(self.form(name), self.expires, rows, RowsMode.APPEND)

    def open_as_of(self, topology_id: str, name: str, txid: int) -> PastDeltaExpiringRows:
        """Open the table as of a transaction; see :class:`KeepsVersions`."""
        return PastDeltaExpiringRows(self, topology_id, self._location(), name, txid)

    def _opened(self, writer: TableWriter) -> OpenedDeltaExpiringRows:
        return OpenedDeltaExpiringRows(self, writer, self.upkeep)

    @property
    def _growth(self) -> Growth:
        """Never: what a committer has left open in its rows would be without a value of a field that is new."""
        return Growth.NEVER

    def __repr__(self) -> str:
        return f"DeltaExpiringRows({self.path!r}, {self.value}, expires={self.expires!r})"


class OpenedDeltaExpiringRows(ReadsRuns, OpenedDeltaRows, HoldsRows):
    """A table of rows that expire, opened by one coordinator; made by :meth:`DeltaExpiringRows.open`."""

    def __init__(self, declared: DeltaExpiringRows, writer: TableWriter, upkeep: Upkeep) -> None:
        policy = Policy(self._to_merge, time=declared.expires, arranged=self._pieces, kept=pa.concat_tables)
        OpenedDeltaRows.__init__(self, declared, writer, upkeep, policy)
        ReadsRuns.__init__(self, self._form, declared)
        sizes = declared.sizes
        self._mirror = Mirror(
            lambda size: Runs(self._schema, self._expires, self._key, size, sizes.small_bytes),
            self._read,
            sizes.held_bytes,
        )

    def hold_rows(self, bytes_max: int) -> None:
        """Hold rows in so much memory, and begin to load them; see :class:`HoldsRows`."""
        self._mirror.load_in_background(self._head, bytes_max)

    def close(self) -> None:
        """Drop the rows, and wait until its log is looked after."""
        super().close()
        self._mirror.clear()

    def taken_until(self) -> int:
        """Return the time up to which rows are taken; see :meth:`ExpiresRows.taken_until`."""
        return self._head.taken

    @property
    def _runs_there(self) -> list[Run]:
        runs = self._held().by_path
        return [runs[path] for path in self._head.files]

    @property
    def _index(self) -> KeyedRuns:
        return self._held().index

    def write_rows(self, parts: Sequence[TransactionRows]) -> RowsWrites:
        """Write the rows of some transactions that are not taken at the end to a file of no version of the table yet.

        A crash between this and prepare() leaves a file that no version names: a vacuum of upkeep removes it.
        """
        last, expired_until = self._head.last_txid, self._head.taken
        parts = [part for part in parts if last is None or part.txid > last]
        until = max([expired_until, *(part.until for part in parts if part.until is not None)])
        rows = [
            with_txid(in_memory(part.rows), part.txid, self._schema) for part in parts if part.mode is RowsMode.APPEND
        ]
        alive = not_over(pa.concat_tables([self._schema.empty_table(), *rows]), self._expires, until)
        with self._writer.failing("its rows cannot be written", parts[-1].txid if parts else None):
            added = self._put_rows(alive, f"rows-{parts[0].txid}-{parts[-1].txid}" if parts else "rows")
            removed = self.count(expired_until) - self.count(until) if until > expired_until else 0
        return RowsWrites(added, [], removed, until, is_taking=until > expired_until)

    def roll_back(self, txid: int | None) -> None:
        """Write a version that equals the one of transaction ``txid``; see :meth:`CanBeRepaired.roll_back`."""
        super().roll_back(txid)
        self._mirror.clear()  # rows may be in it again that were taken, and are not in memory any more

    def _change(self, txid: int, note: Any) -> Change:
        taken, runs = note.get("taken", BEFORE_ALL), self._held().by_path
        if taken <= self._head.taken:
            return Change(files_in(note), txid=txid)
        expired = [file for path, file in self._head.files.items() if runs[path].last <= taken]
        return Change(files_in(note), expired, taken=taken, txid=txid)

    def _landed(self, note: Any) -> None:  # noqa: ARG002 - the head says it all
        head, held_paths = self._head, self._mirror.held.by_path.keys()
        is_all = head.files.keys() <= held_paths  # it is not if a coordinator before this one has written some
        self._mirror.turned(head.version, (lambda runs: runs.keep(head.files.keys(), head.taken)) if is_all else None)

    def _to_merge(self, files: Sequence[DataFile], until: int, _is_over: object) -> list[list[DataFile]]:
        """Return small files, and those of which most is gone, to be few others.

        That happens once it saves ``files_max`` files, or more rows are gone than left, by at least a file's number. So
        a row is not written again for a few others, and what is gone takes no more room than what is left.
        """
        runs, file_rows = self._mirror.held.by_path, self._data.sizes.file_rows
        alive = {file.path: runs[file.path].count(until) if file.path in runs else file.rows for file in files}
        small = [file for file in files if alive[file.path] * 2 < max(file.rows, file_rows)]
        small.sort(key=lambda file: alive[file.path])
        totals = itertools.accumulate(alive[file.path] for file in small)
        chosen = [file for file, total in zip(small, totals, strict=True) if total <= _MERGED_FILES * file_rows]
        rows_left, rows = sum(alive.values()), sum(file.rows for file in files)
        saved = len(chosen) - -(-sum(alive[file.path] for file in chosen) // file_rows)
        return (
            [chosen] if saved >= self._log_upkeep.schedule.files_max or rows - rows_left > rows_left + file_rows else []
        )

    def _moved(self, ended: Ended) -> None:
        """Take note that the head has files that were merged."""
        for put in ended.puts:
            self._hold(put.merged.files, put.merged.rows)
        super()._moved(ended)

    def _put_rows(self, rows: pa.Table, name: str) -> list[DataFile]:
        """Write rows to files; durable on return."""
        parts = self._pieces(rows)
        self._held()  # which may be under way
        added = self._data.put_each(name, ((part, None) for part in parts))
        self._hold(added, parts)
        return added

    def _hold(self, files: Sequence[DataFile], rows: Sequence[pa.Table]) -> None:
        for file, file_rows in zip(files, rows, strict=True):
            self._mirror.held.add(file.path, file_rows)

    def _pieces(self, rows: pa.Table) -> list[pa.Table]:
        """Return rows in the order of their times, those of each file."""
        rows, size = Run.of(rows, self._expires).rows, self._data.sizes.file_rows
        if 0 < rows.num_rows <= size:
            return [rows]
        # Copies, because a slice would keep the memory of the others when their file is gone.
        ends = range(size, rows.num_rows + size, size)
        return [rows_at(rows, np.arange(end - size, min(end, rows.num_rows))) for end in ends]

    def _held(self) -> Runs:
        """Return the rows of the head; those that are not held are read."""
        return self._writer.reading(lambda: self._mirror.of(self._head))

    def _read(self, file: DataFile) -> tuple[Iterator[pa.Table], BitMap64]:
        expired_until = self._head.taken
        portions = self._data.portions(file, self._schema)
        return (not_over(rows, self._expires, expired_until) for rows in portions), BitMap64()


class PastDeltaExpiringRows(ReadsRuns, PastDeltaRows):
    """A table of rows that expire as of the past; made by :meth:`DeltaExpiringRows.open_as_of`."""

    def __init__(self, declared: DeltaExpiringRows, topology_id: str, location: Location, name: str, txid: int) -> None:
        PastDeltaRows.__init__(self, declared, topology_id, location, name, txid)
        ReadsRuns.__init__(self, self._form, declared)

    @functools.cached_property
    def _runs_there(self) -> list[Run]:
        return [Run.of(self.all, self._expires)]

    @functools.cached_property
    def _index(self) -> KeyedRuns:
        return KeyedRuns(self._key, self._expires)
