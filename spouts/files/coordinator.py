"""The coordinators of the files spout: their common base, and the one that lists its files at the start.

Both that one and the one of growing folders (:mod:`spouts.files.watch`) admit files to a log
(:mod:`spouts.files.taken_log`) before they take them, so that a transaction's metadata holds its own ranges and one
place::

    {"format": "text", "root": folder that the names are below,
     "ranges": [[name, start, end, size, mtime_ns], …],
     "numbers": [number of each range's file, …],          only with ``watch``
     "position": [name, offset, mtime_ns],
     "taken": [number of files, digest of their names and sizes],   null with ``watch``
     "next": [number, offset],
     "log": [id of the log, how many records it has had]}           null where there is no store

As long as files are taken in order of their names, ``position`` and ``taken`` hold the same information as ``next``,
without a log. Metadata of earlier versions has neither ``next`` nor ``log``.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs

from spouts.files.file_system import DISK, FileSystem
from spouts.files.formats.format import FileFormat
from spouts.files.listing import InputFile, Listing, describe
from spouts.files.ranges import (
    Cutter,
    Place,
    Plan,
    Position,
    TakenFiles,
    check_taken,
    digest_of,
    path_of,
    taken_by_name,
)
from spouts.files.taken_log import AdmittedFile, FileLog, LogPlace
from txtopo.api.components.spout import Coordinator, Lag, Metadata
from txtopo.api.store import Lead, Put, Store
from txtopo.errors import InputError

START = Place(0, 0)
"""The place where the first transaction begins."""

_NAMED_MAX = 3
"""How many missing files an error names."""


@attrs.frozen
class FilesOptions:
    """The options of a coordinator. Paths are absolute; without a format name, ``guess_format`` goes by suffixes."""

    paths: tuple[str, ...]
    make_format: Callable[[str], FileFormat]
    guess_format: Callable[[Iterable[str]], str]
    format_name: str | None
    batch_bytes: int
    batch_files_max: int
    tasks: int
    files: FileSystem = DISK


class FilesCoordinator(Coordinator):
    """Takes admitted files in their order."""

    def __init__(self, options: FilesOptions) -> None:
        self._options = options
        self._files = options.files
        self._tops = self._files.folders_of(options.paths)
        self._root = self._files.root_of(self._tops)
        self._log_place: LogPlace | None = None
        self._log = FileLog(None)
        self._cutter: Cutter | None = None
        self._format_name = ""
        self._place = START
        self._resumed: tuple[Metadata, Place] | None = None
        self._forgone: list[list[Any]] = []
        """(name, start, end) of each file that ``txtopo forgo`` goes on without; metadata says how many it knows of."""
        self._recorded = 0

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Remember the store and path of the log."""
        self._log_place = LogPlace(store, lead, root)

    def rewind(self, txid: int, metadata: Metadata, undone: Sequence[Metadata]) -> bool:
        """Check that the files that later transactions took are there, and mark them in the log as owed.

        All files from the place in the metadata on count as not taken, and the log keeps their order. The mark makes
        the next run refuse to go on without one of them, or with another file in its place.
        """
        self._log = FileLog(self._log_place)
        if self._log.head is not None:
            self._follow_root()
        read_files = dict.fromkeys(
            (each["root"], name, size, mtime_ns) for each in undone for name, _, _, size, mtime_ns in each["ranges"]
        )
        files = [(path_of(root, name), self._found_again(root, name, *planned)) for root, name, *planned in read_files]
        lost = list(dict.fromkeys(path for path, file in files if file is None))
        if lost:
            raise InputError(
                f"transactions after {txid} took {_list(lost)}, and these files are missing or have changed since; put "
                "them back to have them read again"
            )
        self._check_format(metadata)
        self._place = self._place_in(metadata)
        owed = [file for _, file in files if file is not None]
        self._log.owe(owed, self._log.folder_of(self._folders()))
        return True

    def forgo(self, txid: int, metadata: Metadata, names: Sequence[str]) -> list[str]:
        """Go on without owed files that are lost for good, for ``txtopo forgo``; return a line for each of them.

        They leave the log, so what is in their place now is new. The next transaction with files records them.
        """
        del txid
        self._log = FileLog(self._log_place)
        if self._log_place is None or self._log.head is None:
            return []
        self._follow_root()
        place = START if metadata is None or metadata["position"] is None else Place(*metadata["next"])
        owed = {path_of(self._root, file.name): file for file in self._log.entries_from(place.number) if file.is_owed}
        lost = {path: owed.get(path) for path in map(self._files.absolute, names)}
        wrong = [
            path for path, file in lost.items() if file is None or is_same(file, self._files.look_at(file.name, path))
        ]
        if wrong:
            raise InputError(
                f"{_list(wrong)} is there, or is no file that a rewind has promised to read again; nothing was changed"
            )
        files = {path: file for path, file in lost.items() if file is not None}
        self._log.remove([file.number for file in files.values()])
        starts = {place.number: place.offset}
        shares = [[file.name, starts.get(file.number, 0), file.size] for file in files.values()]
        value = json.dumps({"shares": [*self._read_forgone(), *shares]}, separators=(",", ":")).encode()
        self._log_place.lead.write([Put(self._log_place.forgone, value)])
        return [f"lost: {_described(file, path)}" for path, file in files.items()]

    def _read_forgone(self) -> list[list[Any]]:
        value = None if self._log_place is None else self._log_place.store.read(self._log_place.forgone)
        return [] if value is None else list(json.loads(value)["shares"])

    def _is_skip_due(self) -> bool:
        """Whether the next transaction has to record what was forgone, even if it takes nothing."""
        return len(self._forgone) > self._recorded

    def _found_again(self, root: str, name: str, size: int, mtime_ns: int) -> InputFile | None:
        """Return a file that was taken from below a former root, where it is now; None if it is not there unchanged.

        The paths may lead further up now, or the folder may have been moved as a whole, or both.
        """
        below = os.path.relpath(root, self._root)
        names = [name] if below.startswith(os.pardir) else [os.path.normpath(path_of(below, name)), name]
        names += [known for known in self._log.names() if known.endswith(f"/{name}")]
        for each in names:
            file = self._files.look_at(each, path_of(self._root, each))
            if file is not None and (file.size, file.mtime_ns) == (size, mtime_ns):
                return file
        return None

    def resume(self, txid: int, metadata: Metadata) -> None:
        """Continue after a transaction."""
        self._log = FileLog(self._log_place)
        self._check_format(metadata)
        self._place = self._place_in(metadata)
        self._resumed = metadata, self._place
        self._forgone, self._recorded = self._read_forgone(), (metadata or {}).get("forgone", 0)
        self._begin(txid)

    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        """Take the ranges that follow ``previous_metadata``."""
        self._ensure_resumed(txid - 1, previous_metadata)
        place = self._place_after(previous_metadata)
        plan = None if self._cutter is None else self._cutter.plan(self._files_from(place), place)
        before = previous_metadata or {"position": None, "taken": None}
        metadata = {
            "format": self._format_name,
            "root": self._root,
            "ranges": [list(attrs.astuple(piece)) for piece in plan.ranges] if plan else [],
            "position": list(attrs.astuple(plan.position)) if plan else before["position"],
            "taken": self._taken_with(plan) if plan else before["taken"],
            "next": list(attrs.astuple(plan.place if plan else place)),
            "log": self._log.reference,
            **self._more(plan),
        }
        if self._forgone:
            metadata |= {"skipped": self._forgone[before.get("forgone", 0) :], "forgone": len(self._forgone)}
            self._recorded = len(self._forgone)
        self._place = plan.place if plan else place
        return metadata

    def _ensure_resumed(self, txid: int, metadata: Metadata) -> None:
        if self._resumed is None:
            self.resume(txid, metadata)

    def _use_format(self, name: str) -> None:
        options = self._options
        self._format_name = name
        self._cutter = Cutter(
            self._root, options.make_format(name), options.batch_bytes, options.batch_files_max, options.tasks
        )

    def _check_format(self, metadata: Metadata) -> None:
        if metadata is None or metadata["position"] is None:
            return
        if not self._format_name:
            self._use_format(metadata["format"])
        if metadata["format"] != self._format_name:
            raise InputError(
                f"the files were read as {metadata['format']} before, but are {self._format_name} now; give "
                f"the spout format={metadata['format']!r}, or remove the files that do not belong here",
            )

    def _place_in(self, metadata: Metadata) -> Place:
        """Return the place that metadata refers to, and make the log agree with the files."""
        if self._log.head is None:
            self._log.begin(self._root, self._folders())
        if metadata is None or metadata["position"] is None:
            self._follow_root()
            return START
        if "next" in metadata and self._log.holds(metadata["log"]):
            self._follow_root()
            place = Place(*metadata["next"])
            self._check_taken_files(place, metadata)
            return place
        if metadata["taken"] is None:
            raise InputError(
                f"the log of the files taken from {self._root} is missing, or is not the one that the last "
                "transaction's metadata refers to, so it is unknown which files are new; restore the complete "
                "coordinator state, or give the topology another id and new tables to read all files again"
            )
        position, (count, digest) = Position(*metadata["position"]), metadata["taken"]
        files = taken_by_name(self._files_by_name(), position, TakenFiles(count, int(digest, 16)))
        first = self._log.next_number
        entries = [
            AdmittedFile(number, file.name, file.size, file.mtime_ns) for number, file in enumerate(files, first)
        ]
        self._log.begin(self._root, self._folders(), entries)
        last = attrs.evolve(entries[-1], mtime_ns=position.mtime_ns)
        place = Place(last.number, position.offset)
        self._check_continued(place, last, entries[-1].mtime_ns)
        assert self._cutter is not None, "metadata has a format"
        return self._cutter.place_behind(entries[-1], position.offset)

    def _check_continued(self, place: Place, entry: AdmittedFile, mtime_ns: int) -> None:
        """Refuse a file that is partly taken and has changed since."""
        assert self._cutter is not None, "metadata has a format"
        if mtime_ns != entry.mtime_ns and self._cutter.next_span(attrs.evolve(entry, mtime_ns=mtime_ns), place, 1):
            raise InputError(
                f"{path_of(self._root, entry.name)} is taken up to {place.offset} and has changed since (mtime_ns was "
                f"{entry.mtime_ns}, is {mtime_ns}); put the original file back",
            )

    def _follow_root(self) -> None:
        """Make the log's names relative to the current root, if it contains the former root or is its new place."""
        head = self._log.head
        assert head is not None, "it was begun"
        if head.root == self._root:
            return
        below = os.path.relpath(head.root, self._root)
        is_inside = not below.startswith(os.pardir)
        if is_inside and self._files.is_folder(head.root):
            self._log.rename(self._root, below + "/")
        elif len(self._log) and self._must_be_moved and self._files.is_folder(head.root):
            raise InputError(
                f"files were taken from {head.root}, which still exists, but the paths now lead to {self._root}; "
                "give the former paths, or add the new ones to them"
            )
        else:
            self._log.rename(self._root)

    _must_be_moved = False

    def _place_after(self, metadata: Metadata) -> Place:
        if metadata is None:
            return START
        assert self._resumed is not None, "it was asked for before"
        resumed, place = self._resumed
        return place if metadata == resumed else Place(*metadata["next"])

    def _folders(self) -> dict[str, int]:
        """Return the identities of the listed folders, by path."""
        return {path: self._files.identity_of(path) for path in self._tops}

    def _files_from(self, place: Place) -> Iterator[AdmittedFile]:
        return self._log.entries_from(place.number)

    def _check_passed_over(self, files: Iterable[AdmittedFile]) -> None:
        """Raise InputError for files that wait, are not what they were when admitted, and can't be passed over.

        One that somebody replaced or emptied can: nothing of it is read, and what it holds now makes it a new file.
        """
        waiting = [(file, path_of(self._root, file.name)) for file in files]
        owed = [_described(file, path) for file, path in waiting if file.is_owed]
        if owed:
            raise InputError(
                f"a rewind has promised to read {_list(owed)} again, but these files are missing or have changed "
                "since; put the original files back, or, if they are lost for good, give them to 'txtopo forgo'"
            )
        missing = [_described(file, path) for file, path in waiting if not self._files.is_file(path)]
        if missing:
            raise InputError(
                f"{_list(missing)} was complete and waited to be read, but is missing now; put it back, or put an "
                "empty file in its place to go on without it"
            )

    def _begin(self, txid: int) -> None:
        """Prepare to take files; the place is known."""

    def _more(self, plan: Plan | None) -> dict[str, Any]:
        del plan
        return {}

    @abstractmethod
    def _files_by_name(self) -> Sequence[InputFile]:
        """Return the files as a run without ``watch`` lists them."""

    @abstractmethod
    def _check_taken_files(self, place: Place, metadata: Metadata) -> None:
        """Check for taken files that have changed or are missing."""

    @abstractmethod
    def _taken_with(self, plan: Plan) -> list[Any] | None:
        """Return count and digest of all files taken up to the end of a plan; None if the metadata has none."""


class ListingCoordinator(FilesCoordinator):
    """Takes the files of one listing, and ends."""

    def __init__(self, options: FilesOptions, listing: Listing) -> None:
        super().__init__(options)
        self._listing = listing
        self._use_format(options.format_name or options.guess_format(listing.suffixes))
        self._taken_to: dict[int, TakenFiles] = {}
        self._ends: dict[int, tuple[int, int]] = {}
        self._size, self._count = 0, 0

    def is_ready(self) -> bool:
        """Whether anything is left."""
        return not self.is_exhausted()

    def is_exhausted(self) -> bool:
        """Whether nothing is left."""
        self._ensure_resumed(0, None)
        assert self._cutter is not None, "it has a format from the start"
        files = self._files_from(self._place)
        return not self._is_skip_due() and all(self._cutter.next_span(file, self._place, 1) is None for file in files)

    def remaining(self, metadata: Metadata) -> int:
        """Estimate how many transactions follow one, by the bytes and the files that are left."""
        place = self._place_after(metadata)
        if self.is_exhausted():
            return 0
        size, count = self._ends.get(place.number, (0, 0))  # bytes and files before the next file
        bytes_left, files_left = max(1, self._size - size - place.offset), self._count - count
        return max(-(-bytes_left // self._options.batch_bytes), -(-files_left // self._options.batch_files_max))

    def lag(self) -> Lag:
        """Return what is left of the listed files."""
        first = next(self._log.entries_from(self._place.number), None)
        if first is None:
            return Lag(files=0, bytes=0)
        size, count = self._ends[first.number]
        offset = self._place.offset if first.number == self._place.number else 0
        return Lag(files=self._count - count, bytes=self._size - size - offset)

    def _begin(self, txid: int) -> None:
        del txid
        listed = {file.name: file for file in self._listing.files}
        pending = list(self._files_from(self._place))
        # Before ``new`` is made: a waiting file that has changed leaves the log, and is admitted again as a new one.
        changed = [file for file in pending if not is_same(file, listed.get(file.name))]
        self._check_passed_over(changed)
        self._log.remove([file.number for file in changed])
        new = [file for file in self._listing.files if file.name not in self._log]
        folder = self._log.folder_of(self._folders())
        self._log.admit(new, folder)
        other_folders = {file.folder for file in self._log.others_than(folder)}
        if other_folders:  # every known file is in this folder
            self._log.unite(folder, other_folders)
        count, digest = 0, 0
        for file in self._log.entries_from(0):
            count, digest = count + 1, digest ^ digest_of([file])
            if file.number >= self._place.number:
                self._taken_to[file.number] = TakenFiles(count, digest)
                self._ends[file.number] = self._size, count - 1
            self._size, self._count = self._size + file.size, count

    def _files_by_name(self) -> Sequence[InputFile]:
        return self._listing.files

    def _check_taken_files(self, place: Place, metadata: Metadata) -> None:
        listed = {file.name: file for file in self._listing.files}
        partial = self._log.entry(place.number) if place.offset else None
        taken_files = [file for file in self._log.entries_from(0) if file.number < place.number or file is partial]
        if metadata["taken"] is None:  # written with ``watch``, when taken files may be removed
            self._log.remove([file.number for file in taken_files if file.name not in listed and file is not partial])
            taken_files = [] if partial is None else [partial]
        check_taken(self._root, taken_files, self._listing.files)
        if partial is not None:
            self._check_continued(place, partial, listed[partial.name].mtime_ns)

    def _taken_with(self, plan: Plan) -> list[Any]:
        total = self._taken_to[plan.last.number]
        return [total.count, f"{total.digest:032x}"]


def _described(file: AdmittedFile, path: str) -> str:
    return f"{path} ({describe(InputFile(file.name, path, file.size, file.mtime_ns))})"


def _list(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED_MAX} more" if len(paths) > _NAMED_MAX else ""
    return ", ".join(paths[:_NAMED_MAX]) + more


def is_same(file: AdmittedFile, now: InputFile | None) -> bool:
    """Whether a file is unchanged since it was admitted."""
    return now is not None and (now.size, now.mtime_ns) == (file.size, file.mtime_ns)
