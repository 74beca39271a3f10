"""The rows of a table that expire, in the order of their times."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from state.delta.log.data_files import DataFile
from state.delta.mirror import Read
from state.delta.rows.format import KeylessRows, RowsFormat, arranged, fitted_rows
from txtopo.api.state import ExpiresRows, State
from txtopo.api.writes import Rows, RowsMode
from txtopo.columnar.keyed_runs import KeyedRuns
from txtopo.columnar.mapped import kept_rows
from txtopo.columnar.rows_by_time import Run
from txtopo.columnar.rows_file import in_memory
from txtopo.errors import FieldsError


def fitted_with_times(form: RowsFormat, expires: str, rows: Rows, mode: RowsMode) -> pa.Table:
    """Return rows with the table's fields, in memory, each with a time in ``expires``; see :func:`fitted_rows`."""
    arrangement = arranged(in_memory(fitted_rows(form, rows, mode)), form.fields.names)
    assert arrangement is not None, "rows of other columns were refused"
    if arrangement[expires].null_count:  # a key may be null: nulls are equal to one another, as in windows
        raise FieldsError(
            f"state {form.state!r}, field {expires!r}: a row has no value, but a row is taken by it; give it one, or "
            "leave the row out; nothing was written"
        )
    return arrangement


class Runs:
    """The rows of a table that are not taken, and at most as many that are: a run for each data file.

    A row expires at its time in ``expires``, and is looked up by ``key``; those beyond ``bytes_max`` are mapped if
    their file has more than ``small_bytes`` of them.
    """

    def __init__(self, schema: pa.Schema, expires: str, key: Sequence[str], bytes_max: int, small_bytes: int) -> None:
        self._schema = schema
        self._expires = expires
        self._key = tuple(key)
        self.index = KeyedRuns(self._key, self._expires, self._together)
        self._bytes_max = bytes_max
        self._small_bytes = small_bytes
        self.by_path: dict[str, Run] = {}
        """The run of each file: of the head's, and of those just written, which the head may come to have."""

    def hold(self, files: Mapping[str, DataFile], read: Read) -> None:
        """Hold the rows of some files; ``read`` returns those of files that are not held yet and not taken."""
        for path, file in files.items():
            if path not in self.by_path:
                self.add(path, pa.concat_tables([self._schema.empty_table(), *read(file)[0]]))

    def add(self, path: str, rows: pa.Table) -> None:
        """Hold the rows of a file; raise StateFailure if neither memory nor a mapped file has room."""
        self.by_path[path] = self._kept(Run.of(rows, self._expires))

    def keep(self, paths: Collection[str], taken: int) -> None:
        """Hold only the rows of some files, and of each file at most as many that are taken as others."""
        # Another one: a thread that merges may look at the former one.
        self.by_path = {path: run for path, run in self.by_path.items() if path in paths}
        for path, run in self.by_path.items():
            remaining = run.without_dead(taken)
            self.by_path[path] = run if remaining is run else self._kept(remaining)

    def prepare(self) -> None:
        """Index the keys of all runs, so that the first look-up need not."""
        if self._key:
            self.index.follow(self.by_path.values())

    def clear(self) -> None:
        """Drop everything."""
        self.by_path = {}
        self.index = KeyedRuns(self._key, self._expires, self._together)

    def _kept(self, run: Run) -> Run:
        # It is in order already; its times lie where its rows do.
        return Run.as_they_are(kept_rows(self._schema, [run.rows], max(self._small_bytes, self._room)), self._expires)

    def _together(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Return rows that are held as one piece, in place of which they are held."""
        room = self._room + sum(part.nbytes for part in parts)
        return kept_rows(self._schema, [pa.concat_tables(parts).combine_chunks()], max(self._small_bytes, room))

    @property
    def _room(self) -> int:
        return self._bytes_max - int(sum(run.rows.nbytes for run in self.by_path.values()))


class ReadsRuns(KeylessRows, ExpiresRows):
    """Reads the runs of rows that its subclasses hold; see :class:`ExpiresRows`."""

    def __init__(self, form: RowsFormat, declared: State) -> None:
        KeylessRows.__init__(self, form)
        self._expires = declared.expires
        self._key = tuple(declared.key)
        self._empty = form.schema().empty_table()

    @property
    @abstractmethod
    def _runs_there(self) -> Sequence[Run]:
        """All rows that are not taken, and maybe some that are."""

    @property
    @abstractmethod
    def _index(self) -> KeyedRuns:
        """The index of the keys of runs that are there."""

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table:
        """Return rows with the table's fields, in memory; see :meth:`TakesRows.rows_to_write`."""
        return fitted_with_times(self._form, self._expires, rows, mode)

    def count(self, after: int) -> int:
        """Return the number of rows that expire after a time."""
        return sum(run.count(after) for run in self._runs_there)

    def expired(self, after: int, until: int) -> pa.Table:
        """Return the rows that expire after one time and up to another."""
        return self._shown([run.between(after, until) for run in self._runs_there])

    def holds(self, keys: pa.Table, after: int) -> pa.BooleanArray:
        """Return for each key whether it has a row that expires after a time."""
        return pa.array(self._index.holds(self._runs_there, keys, after))

    def of_keys(self, keys: pa.Table, after: int) -> pa.Table:
        """Return the rows of some keys that expire after a time."""
        return self._shown(self._index.of_keys(self._runs_there, keys, after))

    def _shown(self, parts: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables([self._empty, *parts]).select(self._form.fields.names)
