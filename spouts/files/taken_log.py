"""The log of the files that a spout knows: the number and state of each admitted file.

Each complete file is *admitted*: it gets the next number. Transactions take files in the order of their numbers, so one
place in a transaction's metadata, *number and offset*, describes everything that is taken: all files below it. A file
that was admitted but not taken yet (it is not its turn, or a crash came before the metadata was saved) is at or above
the place. The rules:

1. An admission is durable before the file can be part of a transaction, and an entry is durably removed before a place
   moves past it. So the log can interpret any metadata that survives a crash.
2. Entries are removed when the name disappears from the folder after the file's transaction was committed, or when
   the file changes before it is taken. Numbers are never reused.
3. The log is kept in the store of the coordinator state and written under the topology's lead: a coordinator that has
   lost the lead can neither extend nor compact it.

Layout, below the root that txtopo passes to the spout::

    files/head                        {"log": id, "generation": g, "root": …, "folders": [{path: inode}, …]}
    files/<generation>/<index>        a record: changes, as a compressed JSON array

Compaction writes all entries to a new generation, then the head, and then removes the old generation. The order
matters, because a store may divide a long write into steps. If a crash leaves an unfinished generation, it is removed
when the log is opened. Indices rise over all generations. Metadata holds the id of the log and the next index, so
that a foreign log, or one restored from an older backup, is detected.
"""

from __future__ import annotations

import itertools
import json
import uuid
import zlib
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from spouts.files.listing import InputFile
from txtopo.api.store import Change, Delete, Lead, Put, Store

RECORD_BYTES_MAX = 384 * 1024
"""The limit for the bytes of a record before compression, whatever characters names have; the last change may exceed
it."""

_CHANGE_BYTES_MAX = 128
"""The maximum length of a change without its name."""

_CHARACTER_BYTES_MAX = 12
"""The maximum length of a name's character in JSON."""

_BARE_LENGTH = 2

RECORDS_MIN = 256
"""The log is compacted when it has more records than this, and more than 3 times as many as it needs."""

_ADMIT, _REMOVE, _FLAG, _OWE = "+", "-", "!", "="


@attrs.frozen
class AdmittedFile:
    """A file with its number."""

    number: int
    name: str
    """Its path below the root, with slashes."""
    size: int
    mtime_ns: int
    folder: int = 0
    """The index of the folder it was found in, in :attr:`LogHead.folders`."""
    is_flagged: bool = False
    """Whether a warning was logged that the file has changed since it was taken."""
    is_owed: bool = False
    """Whether a rewind has undone a transaction that took it, so this very file must be read again."""


@attrs.frozen
class LogHead:
    """The head of the log."""

    log: str
    generation: int
    root: str
    """The folder that the names are below."""
    folders: Sequence[Mapping[str, int]]
    """For each set of folders ever listed, their inodes by path. A file that is missing in one may be in another."""


@attrs.frozen
class LogPlace:
    """The place of a log: a path in a store, and the lead that may write there."""

    store: Store
    lead: Lead
    root: str

    @property
    def head(self) -> str:
        """The path of the head."""
        return f"{self.root}/files/head"

    @property
    def forgone(self) -> str:
        """The path of what is forgone: (name, start, end) of each share."""
        return f"{self.root}/forgone"

    def generation(self, number: int) -> str:
        """Return the path of a generation."""
        return f"{self.root}/files/{number:06d}"

    def record(self, generation: int, index: int) -> str:
        """Return the path of a record."""
        return f"{self.generation(generation)}/{index:012d}"


class FileLog:
    """The admitted files, in memory and, if there is a place for them, in a store."""

    def __init__(self, place: LogPlace | None) -> None:
        self._place = place
        self._head: LogHead | None = None
        self._next_index = 0
        self._records = 0
        self._records_needed = 1
        self._clear()
        if place is not None:
            self._read_back(place)

    @property
    def head(self) -> LogHead | None:
        """The head of the log; None if it was never begun."""
        return self._head

    @property
    def reference(self) -> list[Any] | None:
        """The reference to the log for metadata: its id, and the next index; None if it is not in a store."""
        return None if self._place is None or self._head is None else [self._head.log, self._next_index]

    @property
    def next_number(self) -> int:
        """The number that the next file gets."""
        return self._next_number

    def holds(self, reference: Any) -> bool:
        """Whether this is the log that metadata refers to, and at least as recent."""
        mine = self.reference
        return mine is not None and reference is not None and reference[0] == mine[0] and reference[1] <= mine[1]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._numbers_of

    def names(self) -> Iterable[str]:
        """Return the names of all entries."""
        return self._numbers_of.keys()

    def of_name(self, name: str) -> AdmittedFile:
        """Return the entry of a name."""
        return self._entries[self._numbers_of[name]]

    def entry(self, number: int) -> AdmittedFile | None:
        """Return the entry of a number, if there is one."""
        return self._entries.get(number)

    def entries_from(self, number: int) -> Iterator[AdmittedFile]:
        """Yield the entries from a number on, in order."""
        numbers = self._numbers  # entries may be removed meanwhile
        for index in range(bisect_left(numbers, number), len(numbers)):
            entry = self._entries.get(numbers[index])
            if entry is not None:
                yield entry

    def begin(self, root: str, folders: Mapping[str, int], files: Sequence[AdmittedFile] = ()) -> None:
        """Begin a new log in place of any former one: its root, inodes of the listed folders by path, and entries."""
        generation = 0 if self._head is None else self._head.generation + 1
        self._rewrite(LogHead(uuid.uuid4().hex, generation, root, [folders]), files)

    def rename(self, root: str, prefix: str = "") -> None:
        """Make the names relative to another folder, by adding a prefix to each."""
        entries = [attrs.evolve(entry, name=prefix + entry.name) for entry in self.entries_from(0)]
        self._rewrite(attrs.evolve(self._next_head(), root=root), entries)

    def folder_of(self, folders: Mapping[str, int]) -> int:
        """Return the index of these folders in the head; add them if they are new."""
        assert self._head is not None, "it was begun"
        if folders not in self._head.folders:
            head = attrs.evolve(self._next_head(), folders=[*self._head.folders, folders])
            self._rewrite(head, list(self.entries_from(0)))
        return self._head.folders.index(folders)

    def others_than(self, folder: int) -> list[AdmittedFile]:
        """Return the entries that were found in other folders."""
        if self._folder_counts.get(folder, 0) == len(self._entries):
            return []
        return [entry for entry in self.entries_from(0) if entry.folder != folder]

    def unite(self, folder: int, folders: Collection[int]) -> None:
        """Assign the entries of other folders to this one, because they were copied or mounted elsewhere."""
        entries = (
            attrs.evolve(each, folder=folder) if each.folder in folders else each for each in self.entries_from(0)
        )
        self._rewrite(self._next_head(), list(entries))

    def admit(self, files: Iterable[InputFile], folder: int) -> None:
        """Give files the next numbers; durable on return."""
        numbered = enumerate(files, self._next_number)
        self._append([[_ADMIT, number, file.name, file.size, file.mtime_ns, folder] for number, file in numbered])

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove entries; durable on return."""
        self._append([[_REMOVE, number] for number in numbers])

    def flag(self, numbers: Sequence[int]) -> None:
        """Mark entries whose change a warning has reported; durable on return."""
        self._append([[_FLAG, number] for number in numbers])

    def owe(self, files: Sequence[InputFile], folder: int) -> None:
        """Mark files as owed, and admit those that were forgotten; durable on return."""
        new = {file.name: file for file in files if file.name not in self}
        self.admit(new.values(), folder)
        numbers = sorted({self._numbers_of[file.name] for file in files})
        self._append([[_OWE, number] for number in numbers if not self._entries[number].is_owed])

    def _clear(self) -> None:
        self._entries: dict[int, AdmittedFile] = {}
        self._numbers: list[int] = []
        self._numbers_of: dict[str, int] = {}
        self._folder_counts: dict[int, int] = {}
        self._next_number = 0

    def _append(self, operations: Sequence[Sequence[Any]]) -> None:
        if not operations:
            return
        assert self._head is not None, "it was begun"
        # Durable first: if the lead is lost, the write raises, and memory must not know more than the store.
        self._write(self._head.generation, operations, [])
        for operation in operations:
            self._apply(operation)
        if self._records > max(RECORDS_MIN, 3 * self._records_needed):
            self._rewrite(self._next_head(), list(self.entries_from(0)))

    def _next_head(self) -> LogHead:
        assert self._head is not None, "it was begun"
        return attrs.evolve(self._head, generation=self._head.generation + 1)

    def _rewrite(self, head: LogHead, entries: Sequence[AdmittedFile]) -> None:
        operations = [[_ADMIT, self._next_number], *map(_admission, entries)]
        after: list[Change] = []
        if self._place is not None:
            after.append(Put(self._place.head, json.dumps(attrs.asdict(head), separators=(",", ":")).encode()))
            if self._head is not None:
                after.append(Delete(self._place.generation(self._head.generation)))
        self._records = 0
        # A crash before the head is written leaves the former log and a generation that no head names; one after it
        # leaves the former generation. _read_back removes either.
        self._write(head.generation, operations, after)
        self._records_needed = self._records
        self._head = head
        self._clear()
        for operation in operations:
            self._apply(operation)

    def _write(self, generation: int, operations: Sequence[Sequence[Any]], after: Sequence[Change]) -> None:
        records = list(_records(operations))
        if self._place is not None:
            paths = (self._place.record(generation, self._next_index + number) for number in range(len(records)))
            self._place.lead.write([*itertools.starmap(Put, zip(paths, records, strict=True)), *after])
        self._next_index += len(records)
        self._records += len(records)

    def _apply(self, operation: Sequence[Any]) -> None:
        kind, number, *file = operation
        if kind == _ADMIT:
            self._next_number = max(self._next_number, number + bool(file))
            if file:
                self._add(AdmittedFile(number, *file))
            return
        entry = self._entries[number]
        if kind == _FLAG:
            self._entries[number] = attrs.evolve(entry, is_flagged=True)
            return
        if kind == _OWE:
            self._entries[number] = attrs.evolve(entry, is_owed=True)
            return
        del self._entries[number]
        self._folder_counts[entry.folder] -= 1
        if self._numbers_of.get(entry.name) == number:
            del self._numbers_of[entry.name]
        if len(self._numbers) > 2 * len(self._entries) + RECORDS_MIN:
            self._numbers = sorted(self._entries)

    def _add(self, entry: AdmittedFile) -> None:
        self._entries[entry.number] = entry
        self._numbers.append(entry.number)
        self._folder_counts[entry.folder] = self._folder_counts.get(entry.folder, 0) + 1
        self._numbers_of[entry.name] = entry.number

    def _read_back(self, place: LogPlace) -> None:
        encoded = place.store.read(place.head)
        generation = None
        if encoded is not None:
            self._head = LogHead(**json.loads(encoded))
            generation = place.generation(self._head.generation)
            for name in place.store.children(generation):
                record = place.store.read(f"{generation}/{name}")
                assert record is not None, "its lead alone writes there"
                for operation in json.loads(zlib.decompress(record)):
                    self._apply(operation)
                self._next_index = int(name) + 1
                self._records += 1
            self._records_needed = max(1, sum(1 for _ in _records([*map(_admission, self._entries.values())])))
        paths = [f"{place.root}/files/{name}" for name in place.store.children(f"{place.root}/files")]
        orphans = [path for path in paths if path not in {place.head, generation}]
        if orphans:
            place.lead.write([Delete(path) for path in orphans])


def _admission(file: AdmittedFile) -> list[Any]:
    return [_ADMIT, file.number, file.name, file.size, file.mtime_ns, file.folder, file.is_flagged, file.is_owed]


def _records(operations: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield records that hold all changes, in order."""
    waiting: list[Sequence[Any]] = []
    size = 0
    for operation in operations:
        waiting.append(operation)
        size += _CHANGE_BYTES_MAX + (_CHARACTER_BYTES_MAX * len(operation[2]) if len(operation) > _BARE_LENGTH else 0)
        if size >= RECORD_BYTES_MAX:
            yield _record(waiting)
            waiting, size = [], 0
    if waiting:
        yield _record(waiting)


def _record(operations: Sequence[Sequence[Any]]) -> bytes:
    return zlib.compress(json.dumps(operations, separators=(",", ":")).encode(), 1)
