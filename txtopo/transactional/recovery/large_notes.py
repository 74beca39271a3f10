"""The notes of commit groups that are too large for a value of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from txtopo.api.store import VALUE_BYTES_MAX, Put
from txtopo.errors import StopError
from txtopo.files.durable import remedy
from txtopo.files.folder import Folder
from txtopo.transactional.recovery.values import NOTE, Values

_FILE = "note-"
"""Begins the name of a note's file, so that it can be told from a table's files."""


@attrs.frozen
class NotePlace:
    """Where a large note lies: in a file beside a table, or in parts in the store."""

    file: str | None = None
    """The name of the file."""
    beside: str = ""
    """The state beside whose table it is."""
    parts: int = 0
    """The number of values of the store, if no file does."""


class LargeNotes:
    """Keeps large notes: beside the first table of ``rooms`` that one concerns, or else cut into several values."""

    def __init__(self, values: Values, rooms: Mapping[str, Folder]) -> None:
        self._values = values
        self._rooms = rooms

    def where(self, place: NotePlace) -> str:
        """Return in words where a note lies."""
        if place.file is None:
            return f"in {place.parts} values of the store"
        return f"{self._rooms.get(place.beside, f'the table of state {place.beside!r}')}/{place.file}"

    def get(self, last: int, place: NotePlace) -> bytes:
        """Return the note of the group that ends with transaction ``last``.

        Raises:
            OSError: it is gone.
            KeyError: the table beside which it lies is not known.
        """
        if place.file is not None:
            return self._rooms[place.beside].get(place.file)
        parts = [self._values.raw(_part(last, at)) for at in range(place.parts)]
        contents = [part for part in parts if part is not None]
        if len(contents) < len(parts):
            raise FileNotFoundError(f"{len(parts) - len(contents)} are missing")
        return b"".join(contents)

    def put(self, first: int, last: int, states: Sequence[str], content: bytes) -> NotePlace:
        """Make a group's note durable, given its states, and return where it lies; StopError if it can't be."""
        beside = next((name for name in states if name in self._rooms), None)
        if beside is None:
            starts = range(0, len(content), VALUE_BYTES_MAX)
            for at, start in enumerate(starts):
                part = content[start : start + VALUE_BYTES_MAX]
                self._values.write([Put(self._values.path(_part(last, at)), part)])
            return NotePlace(parts=len(starts))
        name, room = f"{_FILE}{self._values.lead.epoch:010d}-{last:020d}.json", self._rooms[beside]
        try:
            room.put(name, content)
        except OSError as error:
            raise StopError(
                f"the note of the group can't be written to {room}/{name}: {error}; the group is not decided, and the "
                f"next start drops it. {remedy(error)} and start again",
                txid=first,
            ) from error
        return NotePlace(name, beside)

    def parts_of(self, last: int, place: NotePlace) -> list[str]:
        """Return the names of what lies in the store of a note."""
        return [_of_group(last)] if place.parts else []

    def remove_file(self, place: NotePlace) -> None:
        """Remove what lies beside a table of a note."""
        if place.file is not None:
            self._rooms[place.beside].delete(place.file)

    def remove_all(self) -> None:
        """Remove the notes of this epoch and of earlier ones; no group may be decided and uncommitted."""
        for room in self._rooms.values():
            for item in list(room.list(after=_FILE)):
                if _FILE <= item.path <= f"{_FILE}{self._values.lead.epoch:010d}~":
                    room.delete(item.path)
        if self._values.children(NOTE):
            self._values.write([self._values.delete(NOTE)])


def _of_group(last: int) -> str:
    return f"{NOTE}/{last:020d}"


def _part(last: int, at: int) -> str:
    return f"{_of_group(last)}/{at:06d}"
