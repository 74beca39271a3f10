"""Find the versions in which somebody else changed rows.

Most changes say in the log what they are. A version that says that it has only moved rows to other files, such as an
OPTIMIZE, is believed by what it did, not by its name: the files that are gone must have had the same rows as those that
are new. Not all writers see to that: one of delta-rs that has read the table before another OPTIMIZE puts the
rows into it once more. Versions in a row are compared as one. So a file that was made and removed again, and perhaps
vacuumed, is not needed. If other files are gone, the numbers of rows must do, as the log has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from state.delta.log.data_files import DataFile, DataFolder, files_of
from state.delta.log.entries import LogEntry, log_entries, read_entry
from state.delta.log.location import Location
from state.delta.read.multiset import row_hashes

_LOOK_BACK_VERSIONS = 1_000
"""The number of versions that a reader checks if it knows no version of txtopo's."""


def foreign_change(location: Location, latest: int, since: int | None) -> str | None:
    """Describe a change by somebody else up to the version ``latest``; return None if there is none.

    ``since`` is a version that is known to be txtopo's; it is checked too. If it is None, or the table has not reached
    it, the last version that made a transaction visible is used.
    """
    version = since if since is not None and since <= latest else None
    below = latest
    moves = _Moves(location)
    for entry in log_entries(location, latest, version or 0):
        below = entry.version - 1
        if entry.version == version:
            is_ours = entry.is_own or entry.version == 0
            return moves.change() if is_ours else f"{entry.text}, in place of our own"
        if entry.is_own and version is None and entry.txid is not None:
            return moves.change()
        # Whoever made version 0 made the table, and Owner says whether that is ours.
        if entry.version > 0 and not moves.takes(entry):
            return entry.text
    # If the loop stopped above version 0, the older log is gone, and with it the proof that nobody else wrote.
    return moves.change() if below < 0 else _missing(below)


def change_on_top(location: Location, latest: int) -> str | None:
    """Describe a change by somebody else between the last transaction and the version ``latest``; None if none.

    The search goes back as far as the log, but at most 1,000 versions.
    """
    moves = _Moves(location)
    for entry in log_entries(location, latest, max(0, latest - _LOOK_BACK_VERSIONS)):
        if entry.txid is not None or entry.version == 0:
            break
        if not moves.takes(entry):
            return entry.text
    return moves.change()


def change_since(
    location: Location,
    latest: int,
    version: int,
    files: Mapping[int, Mapping[str, DataFile]] | None = None,
    schema: pa.Schema | None = None,
) -> str | None:
    """Describe a change of rows by somebody else after a version; None if there is none, or it was rolled back.

    ``files`` are those of some versions, by path, and ``schema`` the latest columns, if they are known: neither is read
    then, 10 ms each.
    """
    moves = _Moves(location, files or {}, schema)
    at = latest
    while at > version:
        entry = read_entry(location, at)
        if entry is None:
            return _missing(at)
        if not moves.takes(entry):
            return entry.text
        # A roll-back shows the rows of the version that it restored, whatever came in between: without this jump, a
        # change that a repair has undone would be reported for ever.
        at = at - 1 if entry.restored is None else entry.restored
    return moves.change()


def stale(
    location: Location, latest: int, last_txid: int | None, note: Mapping[str, Any], followed: int | None = None
) -> str | None:
    """Describe why the rows of the version ``latest`` may differ from those that a note was computed from; None if not.

    The text follows "was".

    Args:
        location: the table's location.
        latest: the version.
        last_txid: the last transaction in it.
        note: has the ``version`` of the rows that it was computed from, and their last transaction as ``base``, unless
            an earlier version of txtopo made it.
        followed: a version since which nobody else has changed rows, as the caller has seen; None if it has not looked.
    """
    version, base = note.get("version"), note.get("base")
    if version == latest:
        return None
    if version is None or followed is None or version < followed:
        change = foreign_change(location, latest, None) if version is None else change_since(location, latest, version)
        if change is not None:
            return f"computed before somebody else changed the table ({change})"
    if base is not None and base != (last_txid or 0):
        return f"computed on top of transaction {base}, but the last one in the table is {last_txid}"
    return None


def _missing(version: int) -> str:
    return f"somebody made version {version + 1}, and the log before it is missing"


@attrs.define(eq=False)
class _Moves:
    """The versions of others that say that they have only moved rows, from the newest back."""

    location: Location
    files: Mapping[int, Mapping[str, DataFile]] = attrs.field(factory=dict)
    """Those of some versions, by path."""
    schema: pa.Schema | None = None
    """The columns of a later version, with which every earlier one can be read."""
    _runs: list[list[LogEntry]] = attrs.field(factory=list)
    """Those in a row, the newest first."""

    def takes(self, entry: LogEntry) -> bool:
        """Whether a version changes no row by its own account; if it is of others, what it did is compared later."""
        if not entry.is_harmless:
            return False
        if not entry.is_own:
            if not self._runs or self._runs[-1][-1].version != entry.version + 1:
                self._runs.append([])
            self._runs[-1].append(entry)
        return True

    def change(self) -> str | None:
        """Describe a version that has not only moved rows; None if there is none."""
        for run in self._runs:
            difference = self._difference(run[-1].version - 1, run[0].version)
            if difference is not None:
                return f"{run[0].text}, {difference}"
        return None

    def _difference(self, earlier: int, later: int) -> str | None:
        """Describe how the rows of two versions differ, only one of which has some files; None if they do not."""
        before, after = map(self._files_in, (earlier, later))
        gone, new = (
            [file for file in own.values() if not file.is_in(other)]
            for own, other in ((before, after), (after, before))
        )
        if not gone and not new:
            return None
        self.schema = self.schema or pa.schema(self.location.handle(later).schema())
        return _difference(DataFolder(self.location), gone, new, self.schema)

    def _files_in(self, version: int) -> Mapping[str, DataFile]:
        if version in self.files:
            return self.files[version]
        table = self.location.handle(version)
        return files_of(self.location, table, table.metadata().partition_columns)


def _difference(data: DataFolder, gone: Sequence[DataFile], new: Sequence[DataFile], schema: pa.Schema) -> str | None:
    """Describe how the rows of some files differ from those of others; None if they do not."""
    try:
        return None if _digest(data, gone, schema) == _digest(data, new, schema) else "and has changed rows"
    except FileNotFoundError:
        counts = [sum(file.live for file in files) for files in (gone, new)]
        is_known = all(file.stats for file in (*gone, *new))
        return None if is_known and counts[0] == counts[1] else "and may have changed rows: its files are gone"


def _digest(data: DataFolder, files: Iterable[DataFile], schema: pa.Schema) -> tuple[int, int]:
    """Return the number of rows, and a number that depends on which they are, in any order."""
    count, total = 0, 0
    for file in files:
        for portion in data.portions(file, schema):
            count += portion.num_rows
            total += int(np.sum(row_hashes(portion), dtype=np.uint64))
    return count, total % (1 << 64)
