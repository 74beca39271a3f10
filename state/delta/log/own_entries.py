"""The log entries that a coordinator has put in an object store itself: its upkeep need not ask for them.

An entry never changes, so what was put by its name is what is there, as long as the table is the same one.
"""

from __future__ import annotations

import contextlib

import attrs

from state.delta.log.location import Location
from txtopo.files.folder import Folder
from txtopo.files.objects import ObjectFolder

_ENTRIES_MAX, _BYTES_MAX = 2_000, 16 * 1024 * 1024
"""How many entries are in memory at most, and their bytes; upkeep asks the store for older ones."""


class OwnEntries(dict[str, bytes]):
    """The last entries that were put, by path; safe for several threads."""

    def keep(self, path: str, content: bytes) -> None:
        """Remember an entry that was just put; the oldest ones are forgotten."""
        self.pop(path, None)
        self[path] = content
        for oldest in [*self]:  # another thread may remove some meanwhile
            if len(self) <= _ENTRIES_MAX and sum(map(len, [*self.values()])) <= _BYTES_MAX:
                break
            self.pop(oldest, None)


@attrs.frozen
class _RememberingFolder(ObjectFolder):
    entries: OwnEntries = attrs.field(kw_only=True, eq=False, repr=False)

    def get(self, path: str) -> bytes:
        remembered = self.entries.get(path)
        return super().get(path) if remembered is None else remembered

    def delete(self, path: str, *, is_durable: bool = False) -> None:
        self.entries.pop(path, None)
        super().delete(path, is_durable=is_durable)


@attrs.frozen
class RememberedLog(Location):
    """The location of a table in an object store, for the upkeep of the coordinator that has put its newest entries."""

    entries: OwnEntries = attrs.field(kw_only=True, eq=False, repr=False)

    @staticmethod
    def of(location: Location, entries: OwnEntries) -> Location:
        """Return a location with the entries remembered; a local one as it is."""
        if location.root is not None:
            return location
        return RememberedLog(location.address, location.options, None, entries=entries)

    @property
    def folder(self) -> Folder:
        """The table's files."""
        return _RememberingFolder(self.address, tuple((self.options or {}).items()), entries=self.entries)

    def confirm(self, path: str) -> None:
        """Forget all unless an entry is as it was put: what is in the table's place may be another one."""
        remembered, stored = self.entries.get(path), None
        if remembered is not None:
            with contextlib.suppress(FileNotFoundError):
                stored = super().folder.get(path)
        if remembered != stored:
            self.entries.clear()
