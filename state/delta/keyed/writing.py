"""What a commit group writes into a keyed table: new data files, and the files that they replace.

There are three ways to make it, and one form, :class:`FileWrites`:

- *The whole table* is rewritten, if all of its rows are in the driver's memory.
- *The touched files* are, otherwise: the driver streams those that hold a key of the group, and writes their other rows
  to new files.
- *The touched buckets* are, by the executors; see :mod:`state.delta.keyed.buckets`.

It is computed from the rows of one version. When it is published, others may have written later versions, and
:meth:`FileWrites.change` finds out what that means:

1. A newer coordinator's marker, or a vacuum: the same files are replaced.
2. An OPTIMIZE has moved rows to other files, but every row is as it was. So the new rows stay, and what else the
   table's files hold of the replaced ones is worked out again.
3. Somebody has changed rows: it is refused, see :func:`~state.delta.read.foreign.stale`, even if the change was
   accepted since. If it was rolled back, the rows are those that the write was computed from, so it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.log.data_files import DataFile, DataFolder, files_in
from state.delta.log.put import Change
from state.delta.read.reading import key_mask
from state.delta.schema import TXID_FIELD, FittedRows, RowFormat, without_removed
from txtopo.api.reduction import PreparedWrites
from txtopo.columnar.hashing import PARTS, parts_of

__all__ = ["FileWrites", "RowWrites", "over_files", "whole_table"]


@attrs.frozen(eq=False)
class RowWrites(PreparedWrites):
    """The new value of each key, as Arrow rows with the table's columns.

    Args:
        rows: the rows, each key once; a row without a txid removes its key. Empty: only record the txid.
        fitted: what they were made from, if the values are to be cached.
        until: the time up to which keys have expired; None if they do not expire.
    """

    rows: pa.Table
    fitted: FittedRows | None = None
    until: int | None = None

    @property
    def rows_put(self) -> int:
        """The number of keys that the write puts or removes."""
        return int(self.rows.num_rows)


@attrs.frozen(eq=False)
class FileWrites(PreparedWrites):
    """The new values by key, in data files that are already in the table's folder, and the files that they replace.

    Args:
        added: the files with the group's rows: the whole table, or new rows alone, or buckets.
        removed: the files that they and ``rest`` replace; of the whole table, none: it replaces all.
        rows_put: the number of keys that the group has touched.
        first_txid: the group's first transaction.
        version: the table version that the rows were computed from; None if it is not known.
        base: the last transaction in that version, 0 before the first; None if it is not known.
        rest: the files with the other rows of ``removed``.
        without: the files with the keys that are removed.
        is_whole: whether ``added`` holds the whole table.
        until: the time up to which keys have expired for the group's last transaction that has written; None if keys
            do not expire.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    rows_put: int
    first_txid: int
    version: int | None
    base: int | None = None
    rest: Sequence[DataFile] = ()
    without: Sequence[DataFile] = ()
    is_whole: bool = False
    until: int | None = None

    def note(self) -> dict[str, Any]:
        """Return it as JSON."""
        files = {name: getattr(self, name) for name in ("added", "removed", "rest", "without")}
        return {
            **{name: [attrs.asdict(file) for file in own] for name, own in files.items() if own},
            "touched": self.rows_put,
            "first_txid": self.first_txid,
            "version": self.version,
            "base": self.base,
            "whole": self.is_whole,
            **({} if self.until is None else {"until": self.until}),
        }

    @staticmethod
    def of_note(note: Mapping[str, Any]) -> FileWrites:
        """Return the write that :meth:`note` describes, also that of an earlier version of txtopo."""
        added, removed, rest, without = (files_in(note, name) for name in ("added", "removed", "rest", "without"))
        return FileWrites(
            added,
            removed,
            note["touched"],
            note["first_txid"],
            note.get("version"),
            note.get("base"),
            rest,
            without,
            is_whole=note.get("whole", False),
            until=note.get("until"),
        )

    def change(self, data: DataFolder, rows: RowFormat, held: Mapping[str, DataFile]) -> Change:
        """Return what it changes in a table that holds the rows that it was computed from, in the files ``held``."""
        if self.is_whole:
            return Change(self.added, list(held.values()), taken=self.until)
        removed, rest = self.removed, self.rest
        if any(file.path not in held for file in removed):
            removed, rest = _others(data, rows, held.values(), self._touches(data, rows), self.first_txid)
        return Change([*self.added, *rest], removed, taken=self.until)

    def _touches(self, data: DataFolder, rows: RowFormat) -> Mask:
        """Return what tells the rows that ``added`` replaces, and those that are removed."""
        if self.added and all(file.parts is not None for file in self.added):
            is_new = np.zeros(PARTS, dtype=np.bool_)
            for file in self.added:
                is_new[slice(*(file.parts or ()))] = True
            return lambda keys: pa.array(is_new[parts_of(keys)])
        schema = _keys_of(rows)
        return _has_key_of(pa.concat_tables([data.read(file, schema) for file in (*self.added, *self.without)]))


Mask = Callable[[pa.Table], Any]
"""Returns for each row of a table of the key columns whether a write touches it."""


def whole_table(data: DataFolder, after: pa.Table, writes: RowWrites, written: FileWrites) -> FileWrites:
    """Write all rows of the table after a write, which are in memory; ``written`` says when it is made."""
    return attrs.evolve(written, added=data.put_all(_name(written), after), rows_put=writes.rows_put, is_whole=True)


def over_files(
    data: DataFolder, rows: RowFormat, held: Iterable[DataFile], writes: RowWrites, written: FileWrites
) -> FileWrites:
    """Write the rows of a write, and the other rows of the files that hold keys of it."""
    new = without_removed(writes.rows)
    gone = writes.rows.filter(pc.is_null(writes.rows[TXID_FIELD])).select(list(rows.key))
    is_touched = _has_key_of(writes.rows.select(list(rows.key)))
    removed, rest = _others(data, rows, held, is_touched, written.first_txid)
    return attrs.evolve(
        written,
        added=data.put_all(_name(written), new),
        removed=removed,
        rest=rest,
        without=data.put_all(f"removed-{written.first_txid}", gone),
        rows_put=writes.rows_put,
    )


def _others(
    data: DataFolder, rows: RowFormat, files: Iterable[DataFile], is_touched: Mask, first_txid: int
) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files that hold a touched row, and new files with their other rows."""
    keys = _keys_of(rows)
    touched = [file for file in files if any(pc.any(is_touched(each)).as_py() for each in data.portions(file, keys))]
    others = (
        portion.filter(pc.invert(is_touched(portion.select(keys.names))))
        for file in touched
        for portion in data.portions(file, rows.schema())
    )
    return touched, data.put_portions(f"rest-{first_txid}", others)


def _has_key_of(wanted: pa.Table) -> Mask:
    return lambda keys: key_mask(keys, wanted)


def _keys_of(rows: RowFormat) -> pa.Schema:
    return pa.schema([rows.schema().field(name) for name in rows.key])


def _name(written: FileWrites) -> str:
    return f"keys-{written.first_txid}"
