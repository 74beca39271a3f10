"""The log of the files that a spout has come to know: which were admitted, in which order, under which number.

Each file that is found complete is *admitted*: it gets the next number. Transactions take files in the order of
their numbers, so a transaction's metadata tells by one place, *number and offset*, what is taken so far: all
files below it. A file that was admitted and is not taken yet (because a crash came before the metadata was saved,
or because it is not its turn) is simply at or above the place. The rules:

1. An admission is durable before the file can be part of a transaction, and removed entries are durably removed
   before a place moves past them. So whatever metadata survives, the log says what it means.
2. Entries are removed when the name is gone from the folder, or when the file changed before it was taken. Numbers
   are never used again.
3. The log lies in the store of the coordinator state and is written by the topology's lead: a coordinator that has
   lost the lead can neither add to it nor compact it.

Below the root that the spout is given::

    files/head                        {"log": id, "generation": g, "root": …, "folders": [{path: inode}, …]}
    files/<generation>/<index>        a record: changes, as a compressed JSON array

Compaction writes all entries to a new generation, then the head, then removes the old generation, in this
order: a store may cut a long write into steps. What a crash leaves of an unfinished generation is removed when
the log is opened. Indices rise over all generations; metadata holds the id of the log and the next index, so
that a log that is another one, or was restored from earlier, is found out.
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
"""A record is not longer than this, one change aside, before it is compressed, whatever characters names have."""

_CHANGE_BYTES_MAX = 128
"""How long a change is at most, without its name."""

_CHARACTER_BYTES_MAX = 12
"""How long a character of a name may become in JSON."""

_BARE_LENGTH = 2

RECORDS_MIN = 256
"""The log is compacted when it has so many records, and three times as many as it would need."""

_ADMIT, _REMOVE, _FLAG = "+", "-", "!"


@attrs.frozen
class Admitted:
    """A file with its number."""

    number: int
    name: str
    """Its path below the root, with slashes."""
    size: int
    mtime_ns: int
    folder: int = 0
    """Which of the folders that the log knows it was found in."""
    is_flagged: bool = False
    """Whether it was told that the file has changed since it was taken."""


@attrs.frozen
class LogHead:
    """What the log says of itself."""

    log: str
    generation: int
    root: str
    """The folder that the names are below."""
    folders: Sequence[Mapping[str, int]]
    """The inodes, by path, of the folders that were looked at: what is missing in one may be there in another."""


@attrs.frozen
class LogPlace:
    """Where a log lies: a path of a store, and the right to write there."""

    store: Store
    lead: Lead
    root: str

    @property
    def head(self) -> str:
        """The path of the head."""
        return f"{self.root}/files/head"

    def generation(self, number: int) -> str:
        """Return the path of a generation."""
        return f"{self.root}/files/{number:06d}"

    def record(self, generation: int, index: int) -> str:
        """Return the path of a record."""
        return f"{self.generation(generation)}/{index:012d}"


class FileLog:
    """The admitted files, in memory and in a store.

    Args:
        place: where it is kept; None: in memory only.
    """

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
        """What the log says of itself; None if it was never begun."""
        return self._head

    @property
    def mark(self) -> list[Any] | None:
        """What metadata says of the log: its id, and how many records it has had; None if it is kept nowhere."""
        return None if self._place is None or self._head is None else [self._head.log, self._next_index]

    @property
    def next_number(self) -> int:
        """The number that the next file gets."""
        return self._next_number

    def holds(self, mark: Any) -> bool:
        """Whether this is the log that metadata speaks of, with all that it held then."""
        here = self.mark
        return here is not None and mark is not None and mark[0] == here[0] and mark[1] <= here[1]

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        """Whether a name has an entry."""
        return name in self._numbers_of

    def names(self) -> Iterable[str]:
        """Return the names of all entries."""
        return self._numbers_of.keys()

    def of_name(self, name: str) -> Admitted:
        """Return the entry of a name."""
        return self._entries[self._numbers_of[name]]

    def entry(self, number: int) -> Admitted | None:
        """Return the entry of a number, if there is one."""
        return self._entries.get(number)

    def entries_from(self, number: int) -> Iterator[Admitted]:
        """Yield the entries from a number on, in order."""
        numbers = self._numbers  # entries may be removed meanwhile
        for index in range(bisect_left(numbers, number), len(numbers)):
            entry = self._entries.get(numbers[index])
            if entry is not None:
                yield entry

    def begin(self, root: str, folders: Mapping[str, int], files: Sequence[Admitted] = ()) -> None:
        """Begin a new log, in place of one that may be there.

        Args:
            root: the folder that the names are below.
            folders: the inodes of the folders that are looked at.
            files: the entries that it begins with, in order.
        """
        generation = 0 if self._head is None else self._head.generation + 1
        self._rewrite(LogHead(uuid.uuid4().hex, generation, root, [folders]), files)

    def rename(self, root: str, prefix: str = "") -> None:
        """Say that the names are below another folder, and what stands before each of them there."""
        entries = [attrs.evolve(entry, name=prefix + entry.name) for entry in self.entries_from(0)]
        self._rewrite(attrs.evolve(self._next_head(), root=root), entries)

    def folder_of(self, folders: Mapping[str, int]) -> int:
        """Return which of the folders that the log knows these are; they are known from now on."""
        assert self._head is not None, "it was begun"
        if folders not in self._head.folders:
            head = attrs.evolve(self._next_head(), folders=[*self._head.folders, folders])
            self._rewrite(head, list(self.entries_from(0)))
        return self._head.folders.index(folders)

    def others_than(self, folder: int) -> list[Admitted]:
        """Return the entries that were found in other folders."""
        if self._folder_counts.get(folder, 0) == len(self._entries):
            return []
        return [entry for entry in self.entries_from(0) if entry.folder != folder]

    def unite(self, folder: int, others: Collection[int]) -> None:
        """Say that what was found in other folders is this one's: they were copied, or mounted elsewhere."""
        entries = (
            attrs.evolve(each, folder=folder) if each.folder in others else each for each in self.entries_from(0)
        )
        self._rewrite(self._next_head(), list(entries))

    def admit(self, files: Iterable[InputFile], folder: int) -> None:
        """Give files the next numbers, durable on return."""
        numbered = enumerate(files, self._next_number)
        self._append([[_ADMIT, number, file.name, file.size, file.mtime_ns, folder] for number, file in numbered])

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove entries, durable on return."""
        self._append([[_REMOVE, number] for number in numbers])

    def flag(self, numbers: Sequence[int]) -> None:
        """Note of entries that it was told that the file has changed."""
        self._append([[_FLAG, number] for number in numbers])

    def _clear(self) -> None:
        self._entries: dict[int, Admitted] = {}
        self._numbers: list[int] = []
        self._numbers_of: dict[str, int] = {}
        self._folder_counts: dict[int, int] = {}
        self._next_number = 0

    def _append(self, operations: Sequence[Sequence[Any]]) -> None:
        if not operations:
            return
        assert self._head is not None, "it was begun"
        self._write(self._head.generation, operations, [])
        for operation in operations:
            self._apply(operation)
        if self._records > max(RECORDS_MIN, 3 * self._records_needed):
            self._rewrite(self._next_head(), list(self.entries_from(0)))

    def _next_head(self) -> LogHead:
        assert self._head is not None, "it was begun"
        return attrs.evolve(self._head, generation=self._head.generation + 1)

    def _rewrite(self, head: LogHead, entries: Sequence[Admitted]) -> None:
        operations = [[_ADMIT, self._next_number], *map(_admission, entries)]
        after: list[Change] = []
        if self._place is not None:
            after.append(Put(self._place.head, json.dumps(attrs.asdict(head), separators=(",", ":")).encode()))
            if self._head is not None:
                after.append(Delete(self._place.generation(self._head.generation)))
        self._records = 0
        self._write(head.generation, operations, after)
        self._records_needed = self._records
        self._head = head
        self._clear()
        for operation in operations:
            self._apply(operation)

    def _write(self, generation: int, operations: Sequence[Sequence[Any]], after: Sequence[Change]) -> None:
        records = list(_records(operations))
        if self._place is not None:
            paths = (self._place.record(generation, self._next_index + each) for each in range(len(records)))
            self._place.lead.write([*itertools.starmap(Put, zip(paths, records, strict=True)), *after])
        self._next_index += len(records)
        self._records += len(records)

    def _apply(self, operation: Sequence[Any]) -> None:
        kind, number, *file = operation
        if kind == _ADMIT:
            self._next_number = max(self._next_number, number + bool(file))
            if file:
                self._add(Admitted(number, *file))
            return
        entry = self._entries[number]
        if kind == _FLAG:
            self._entries[number] = attrs.evolve(entry, is_flagged=True)
            return
        del self._entries[number]
        self._folder_counts[entry.folder] -= 1
        if self._numbers_of.get(entry.name) == number:
            del self._numbers_of[entry.name]
        if len(self._numbers) > 2 * len(self._entries) + RECORDS_MIN:
            self._numbers = sorted(self._entries)

    def _add(self, entry: Admitted) -> None:
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
        left = [f"{place.root}/files/{name}" for name in place.store.children(f"{place.root}/files")]
        orphans = [path for path in left if path not in {place.head, generation}]
        if orphans:
            place.lead.write([Delete(path) for path in orphans])


def _admission(file: Admitted) -> list[Any]:
    return [_ADMIT, file.number, file.name, file.size, file.mtime_ns, file.folder, file.is_flagged]


def _records(operations: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield records that hold all changes, in order."""
    held: list[Sequence[Any]] = []
    size = 0
    for operation in operations:
        held.append(operation)
        size += _CHANGE_BYTES_MAX + (_CHARACTER_BYTES_MAX * len(operation[2]) if len(operation) > _BARE_LENGTH else 0)
        if size >= RECORD_BYTES_MAX:
            yield _record(held)
            held, size = [], 0
    if held:
        yield _record(held)


def _record(operations: Sequence[Sequence[Any]]) -> bytes:
    return zlib.compress(json.dumps(operations, separators=(",", ":")).encode(), 1)
