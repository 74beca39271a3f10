"""What a commit group writes into a keyed table: new data files, and the files that they replace.

It is made by the driver, from the rows in its memory, or by executors; see :mod:`state.delta.keyed.ranges`. Either way
the result is a :class:`FileWrites`.

It is computed from the rows of one version. When it is published, others may have written later versions, and
:meth:`FileWrites.change` finds out what that means:

1. A newer coordinator's marker, or a vacuum: the same files are replaced.
2. An OPTIMIZE has moved rows to other files, but every row is as it was. So the new files stay, and what else the
   table's files hold of the replaced rows is worked out again.
3. Somebody has changed rows: it is refused, see :func:`~state.delta.read.foreign.stale`, even if the change was
   accepted since. If it was rolled back, the rows are those that the write was computed from, so it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from state.delta.log.data_files import DataFile, DataFolder, files_in
from state.delta.log.put import Change
from state.delta.log.vectors import bitmap_of, positions_in
from state.delta.schema import TXID_FIELD, RowFormat
from txtopo.api.writes import PreparedWrites
from txtopo.columnar.key_index import KeyNumbers, Positions


@attrs.frozen(eq=False)
class RowWrites(PreparedWrites):
    """The new value of each key, as Arrow rows with the table's columns.

    Args:
        rows: the rows, each key once; a row without a txid removes its key. Empty: only record the txid.
        is_by_key: whether keys were put one by one, and are likely to be looked up again.
        until: the time up to which keys have expired; None if they do not expire.
    """

    rows: pa.Table
    is_by_key: bool = False
    until: int | None = None

    @property
    def rows_put(self) -> int:
        """The number of keys that the write puts."""
        return int(self.rows.num_rows) - self.rows_removed

    @property
    def rows_removed(self) -> int:
        """The number of keys that the write removes."""
        return int(self.rows[TXID_FIELD].null_count)

    def __len__(self) -> int:
        return int(self.rows.num_rows)


@attrs.frozen(eq=False)
class FileWrites(PreparedWrites):
    """The new values by key, in data files that are already in the table's folder, and the files that they replace.

    Args:
        added: the files with the group's rows, and the other rows of ``removed``: in new files, or in the same files
            with other deletion vectors.
        removed: the files that they replace.
        rows_put: the number of keys that the group has touched.
        first_txid: the group's first transaction.
        version: the table version that the rows were computed from; None if it is not known.
        base: the last transaction in that version, 0 before the first; None if it is not known.
        without: the files with the keys that are removed, which are part of no version.
        until: the time up to which keys have expired for the group's last transaction that has written; None if keys
            do not expire.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    rows_put: int
    first_txid: int
    version: int | None
    base: int | None = None
    without: Sequence[DataFile] = ()
    until: int | None = None

    def note(self) -> dict[str, Any]:
        """Return it as JSON."""
        files = {name: getattr(self, name) for name in ("added", "removed", "without")}
        return {
            **{name: [file.note for file in group] for name, group in files.items() if group},
            "touched": self.rows_put,
            "first_txid": self.first_txid,
            "version": self.version,
            "base": self.base,
            **({} if self.until is None else {"until": self.until}),
        }

    @staticmethod
    def of_note(note: Mapping[str, Any]) -> FileWrites:
        """Return the write that :meth:`note` describes."""
        added, removed, without = (files_in(note, name) for name in ("added", "removed", "without"))
        return FileWrites(
            added,
            removed,
            note["touched"],
            note["first_txid"],
            note.get("version"),
            note.get("base"),
            without,
            until=note.get("until"),
        )

    def change(self, txid: int, data: DataFolder, rows: RowFormat, files: Mapping[str, DataFile]) -> Change:
        """Return what it changes in a table that holds the rows that it was computed from, in some files."""
        if all(file.is_in(files) for file in self.removed):
            return Change(self.added, self.removed, taken=self.until, txid=txid)
        dead = self._replaced(data, rows, files.values())
        removed = [files[path] for path in dead]
        if any(file.vector is not None for file in self.added):
            remaining = data.with_dead(removed, dead)
        else:
            remaining = data.put_rest(f"rest-{self.first_txid}", removed, dead, rows.schema())
        return Change([*self._new, *remaining], removed, taken=self.until, txid=txid)

    @property
    def rewritten_bytes(self) -> int:
        """About how many bytes of rows that the group has not touched are written again, in other files."""
        still_there = {file.path for file in self.added}
        replaced = [file for file in self.removed if file.path not in still_there]
        rows = sum(file.live for file in replaced)
        return sum(file.size for file in replaced) * max(0, rows - self.rows_put) // max(1, rows)

    @property
    def _new(self) -> list[DataFile]:
        former = {file.path for file in self.removed}
        return [file for file in self.added if file.path not in former]

    def _replaced(self, data: DataFolder, rows: RowFormat, files: Collection[DataFile]) -> dict[str, BitMap64]:
        """Return the positions of all dead rows of the files, by path, in which it replaces or removes one."""
        schema = pa.schema([rows.schema().field(name) for name in rows.key])
        dead: dict[str, BitMap64] = {}
        befores = {file.path: data.dead(file) for file in files}
        for new in (*self._new, *self.without):  # one at a time: executors may have written any number of keys
            sought = KeyNumbers(data.read(new, schema))
            for file in files:
                before = befores[file.path]
                at = np.flatnonzero(numbers_in(data, file, before, sought, schema) >= 0)
                if len(at):
                    dead[file.path] = dead.get(file.path, before) | bitmap_of(at)
        return dead


def numbers_in(data: DataFolder, file: DataFile, dead: BitMap64, sought: KeyNumbers, keys: pa.Schema) -> Positions:
    """Return each row's number of its key among those sought; -1 if it is ``dead`` or has another key."""
    portions = data.portions(file, keys, with_dead=True)
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *map(sought.of, portions)])
    numbers[positions_in(dead)] = -1
    return numbers
