"""The end of a journal in a bucket, which rides in the writes that decide groups: an entry costs no request of its own.

An object can't be made longer: each entry would put all of the newest file again, and a store that takes a name once a
second would hold each group up. So the last lines are in the coordinator state, in the same write as the group's note,
and go to the file in the background, many at a time:

1. A group's note and the lines that its file lacks, this group's among them, are one write. So a group that was never
   decided has no entry, and one whose tables are written has.
2. The lines that were decided are added to the file. A crash leaves them in the coordinator state. Whoever adds them
   adds the same bytes at the same offset, and only in place of the object that was read: so it does not matter who,
   when, or how often. Who begins, moves or renames a journal does it first.
3. A reader lists the files, and then asks for the last write with lines. What the listed file has not is its end. If
   it begins beyond that, or in a file that was not listed, it was added or begun meanwhile, and the reader looks again.

So all that :func:`~txtopo.journal.folders.find_journal` returns shows whole files, and nobody but this module knows.
Where the coordinator state is not beside the journal, the lines go to the file at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs

from txtopo.files.folder import Folder, Item
from txtopo.files.objects import ObjectFolder
from txtopo.files.places import file_name
from txtopo.files.records import DAMAGE, packed, unpacked

STORE_FOLDER = "coordinator"
"""The folder of coordinator state in a metadata directory that is in an object store."""

TAIL = "journal"
"""The name of the lines in the coordinator state."""

_READS_MAX = 20
"""How often a reader looks again, because lines were added to a file meanwhile."""


@attrs.frozen
class Tail:
    """The lines that a file of a journal may lack."""

    path: str
    """The file."""
    offset: int
    """Where they begin in it."""
    lines: bytes

    @property
    def end(self) -> int:
        """The size of the file with them."""
        return self.offset + len(self.lines)

    def to_bytes(self) -> bytes:
        """Return the value that says so."""
        return packed({"file": self.path, "offset": self.offset}, [self.lines])

    @staticmethod
    def from_bytes(value: bytes) -> Tail:
        """Return what :meth:`to_bytes` wrote."""
        head, lines = unpacked(value)
        return Tail(head["file"], head["offset"], lines)

    def after(self, size: int) -> bytes:
        """Return what a file of a size, which is not below the offset, lacks."""
        return self.lines[size - self.offset :]


def whole_journal(metadata_dir: Folder, topology_id: str, name: str) -> Folder:
    """Return the folder of a journal, by its name in the metadata directory, with whole files."""
    folder = metadata_dir.below(name)
    if not isinstance(metadata_dir, ObjectFolder) or not isinstance(folder, ObjectFolder):
        return folder
    log = metadata_dir.below(f"{STORE_FOLDER}/{file_name(topology_id)}")
    return _WholeFiles(folder.address, folder.options, log=log, value=f"{topology_id}/{TAIL}")


def add_tail(journal: Folder) -> None:
    """Add to a file what it lacks, if it lacks any of the lines that were decided."""
    if isinstance(journal, _WholeFiles):
        journal.add_tail()


def names_file(journal: Folder, path: str) -> bool:
    """Whether the last lines are for a file of a name, also one that is gone: then no other may get the name.

    1. A topology runs with the coordinator state beside its journal, and ends.
    2. Its tables are removed, and it runs with another store, where epochs begin again. The former files are set aside.
    3. A new file of the former name would seem to lack the lines in the former coordinator state.
    """
    if not isinstance(journal, _WholeFiles):
        return False
    tail = _last_tail(journal.log, journal.value)
    return tail is not None and tail.path == path


@attrs.frozen
class _WholeFiles(ObjectFolder):
    """A journal's folder whose files have the lines that are in the coordinator state, as of the last listing."""

    log: ObjectFolder = attrs.field(kw_only=True)
    """That of the coordinator state."""
    value: str = attrs.field(kw_only=True)
    """The path of the lines there."""
    _tails: dict[str, tuple[int, Tail]] = attrs.field(factory=dict, init=False, repr=False, eq=False)
    """The lines by file, with the size that it had without them."""

    def list(self, below: str = "", after: str = "") -> Iterator[Item]:
        tail_before: Tail | None = None
        lacking: set[str] = set()
        for _ in range(_READS_MAX):
            items = {item.path: item for item in super().list(below, after)}
            tail = _last_tail(self.log, self.value)
            tail_item = None if tail is None else items.get(tail.path)
            if tail is None or tail_item is None or tail_item.size < tail.offset:
                if tail == tail_before:  # not meanwhile: the file is gone, or was restored from a backup
                    break
                tail_before = tail
                continue
            if tail_item.size < tail.end:
                self._tails[tail.path] = tail_item.size, tail
                lacking.add(tail.path)
                items[tail.path] = attrs.evolve(tail_item, size=tail.end)
            break
        for path in self._tails.keys() - lacking:  # the file has them now
            self._tails.pop(path, None)
        yield from items.values()

    def get(self, path: str) -> bytes:
        _, tail = self._tails.get(path, (0, None))  # before the file, which may get its lines meanwhile
        content = super().get(path)
        return content if tail is None else content + tail.after(len(content))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        size, tail = self._tails.get(path, (0, None))
        if tail is None or start + length <= size:
            return super().get_range(path, start, length)
        content = super().get_range(path, start, size - start) if start < size else b""
        return content + tail.lines[max(start, size) - tail.offset : start + length - tail.offset]

    def add_tail(self) -> None:
        """See :func:`add_tail`."""
        tail = _last_tail(self.log, self.value)
        if tail is None:
            return
        for _ in range(_READS_MAX):
            content_before = self.read(tail.path)
            if content_before is None or not tail.offset <= len(content_before[0]) < tail.end:
                return  # it has them, or is gone, or was restored from a backup
            content, version = content_before
            if self.replace(tail.path, content + tail.after(len(content)), version) is not None:
                return
            # A part of them may have come meanwhile: a former coordinator's request that it has given up.
        raise OSError(f"{self.address}/{tail.path} was changed while its last lines were added")


def _last_tail(log: ObjectFolder, value: str) -> Tail | None:
    """Return the lines that were written last, as of some moment of this call; None if none were.

    Args:
        log: the folder of the log of the coordinator state, see :mod:`state.stores.objects`. Each of its entries says
            which one has set the lines last, so that three objects are read, however long it is.
        value: the path of the lines in the coordinator state.
    """
    newest = 0
    for _ in range(_READS_MAX):
        newest = max([newest, *map(int, log.names("log"))])
        while log.size(_entry(newest + 1)) is not None:  # a listing may be late
            newest += 1
        base = log.read("base")
        with contextlib.suppress(*DAMAGE):  # who takes the lead says so
            number = 0 if base is None else unpacked(base[0])[0]["number"]
            if newest < number:
                newest = number  # and what follows it is asked for
                continue
            try:
                entry = log.get(_entry(newest)) if newest > number else None
                setter = 0 if entry is None else unpacked(entry)[0].get("tail", 0)
                holder = base[0] if base is not None else None
                if setter > number:
                    holder = entry if setter == newest else log.get(_entry(setter))
            except FileNotFoundError:  # a later base has it
                continue
            content = None if holder is None else _value_in(holder, value)
            return None if content is None else Tail.from_bytes(content)
        return None
    return None


def _entry(number: int) -> str:
    return f"log/{number:020d}"


def _value_in(data: bytes, path: str) -> bytes | None:
    """Return the value that a write, or a base, has for a path; None if it has none."""
    head, content = unpacked(data)
    puts = head["values"] if "values" in head else [value for kind, *value in head["changes"] if kind == "put"]
    value_found, at = None, 0
    for name, length in puts:
        value_found = content[at : at + length] if name == path else value_found
        at += length
    return value_found
