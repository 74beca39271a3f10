"""The journal: a record of the transactions that each coordinator has committed, with their input and tables.

It is a folder of JSON-lines files, ``<epoch>-<part>.jsonl``, in ``_txtopo/journal`` by the topology's id. Each file is
written by one coordinator, so a coordinator that has lost the lead cannot damage another's files. The first line of a
file is its header, each further line a commit group:

1. A group is entered before its first table is written, so an entry alone does not prove that it was committed.
2. A new coordinator finishes or drops the group that the last one left, and begins a file whose header says what is
   committed. So an entry of an earlier epoch counts if no later header has a lower committed txid.
3. An entry of the last epoch counts if every table that it names has reached its last txid.
4. What was entered before a topology or a state was renamed is read by the names since; the files stay as they are.
5. The oldest files go once no point needs them (:meth:`JournalWriter.keep_after`), so the journal may begin anywhere:
   the header of its first file says all of what came before.

``txtopo audit``, ``replay``, ``repair`` and consistent reads use the journal. Recovery never needs it.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from txtopo.api.components.planned import NEVER, Planned
from txtopo.errors import DivergenceError, StopError
from txtopo.failpoints import durable_step
from txtopo.files.durable import remedy
from txtopo.files.folder import Folder, Growing, Item
from txtopo.files.formats import FIRST, JOURNAL as JOURNAL_FORMAT, Format, refuse_other
from txtopo.files.records import DAMAGE, from_json, to_json
from txtopo.journal.turns import Rename, Turn

FOLDER = "journal"
"""The folder in the metadata directory that has a folder for each topology, by its id, with its journal."""

DEAD_LETTERS = "dead-letters"
"""The name of the state for dead letters."""

PART_BYTES_MAX = 64 * 1024 * 1024
"""Once a file is larger, the next entry begins a new one."""

BEFORE_REPAIR = "before-repair-"
"""What the suffix of a journal begins with that a repair sets aside; the repair's number follows."""

ASIDES_MAX = 10
"""Of so many repairs and rewinds, the last ones, what they have replaced in a metadata directory and a store stays."""

BLOCK_BYTES = 64 * 1024
"""How much of a file is read at a time where its ends suffice."""

_NAME = re.compile(r"^(\d{10})-(\d{6})\.jsonl$")

T = TypeVar("T")


@attrs.frozen
class JournalTable:
    """A state's table, as recorded in the journal."""

    address: str
    """Its path: absolute, or relative to the parent folder of the metadata directory."""
    identity: str


@attrs.frozen
class JournalHeader:
    """The state of the topology when a file was begun."""

    topology: str
    incarnation: str
    epoch: int
    spouts: Mapping[str, str]
    """The kind of each spout by its id: ``repeatable`` or ``opaque``."""
    committed: int
    """The last committed txid."""
    metadata: Any
    """That transaction's metadata, by spout."""
    tables: Mapping[str, JournalTable]
    states: Mapping[str, int | None]
    """All states of the topology, each with the last txid written to it."""
    begun_after: Mapping[str, int] = attrs.field(factory=dict)
    """The states that were begun empty while transactions were committed, each with the last of those."""
    planned: Planned = NEVER
    """When the last committed transaction was planned."""
    undone_until: int = 0
    """The last transaction that was committed before a repair or a rewind went back to ``committed``; 0: none did."""
    store: str = ""
    """Where the run keeps its coordinator state, in words."""
    turns: tuple[Turn, ...] = ()
    """The turns that the topology has gone through."""
    renames: tuple[Rename, ...] = ()
    """The renames up to here."""
    format: Format = FIRST
    """The format of the file; :class:`JournalWriter` sets it."""


Ranges = Mapping[str, Mapping[str, tuple[Any, Any]] | None]
"""Input, (start, end) by spout and partition; None for a spout that does not report it."""


def by_partition(by_spout: Mapping[str, Mapping[str, T] | None]) -> dict[str, T]:
    """Return what is by spout and partition, as people read it: the spout is named if there are several."""
    return {
        f"{spout} {partition}" if len(by_spout) > 1 else partition: each
        for spout, own in by_spout.items()
        for partition, each in (own or {}).items()
    }


@attrs.frozen
class JournalTransaction:
    """One transaction of a group."""

    txid: int
    attempt: int
    metadata: Any
    fingerprints: Mapping[str, tuple[int, int | None]]
    """(number of tuples, checksum or None) of the tuples that each component emitted."""
    ranges: Ranges = attrs.field(factory=dict)
    """The input that it took of each spout, (start, end) by partition; None if the spout does not report it."""
    is_dead_letter: bool = False
    skipped: Mapping[str, Mapping[str, tuple[tuple[Any, Any], ...]]] = attrs.field(factory=dict)
    """The gaps in that input, by spout and partition: the spout went on without input that was gone."""
    planned: Planned = NEVER
    """When and why it began."""
    failure: str = ""
    """Why the attempt before the one that was committed failed, in a line; empty if it did not, or in another run."""

    @property
    def input(self) -> dict[str, tuple[Any, Any]]:
        """The input that it took, by partition, as people read it."""
        return by_partition(self.ranges)

    @property
    def gaps(self) -> dict[str, tuple[tuple[Any, Any], ...]]:
        """The gaps in that input, by partition, as people read it."""
        return by_partition({**dict.fromkeys(self.ranges), **self.skipped})


@attrs.frozen
class JournalEntry:
    """One commit group."""

    states: Mapping[str, tuple[int, int]]
    """(rows put, rows removed) by the states that it wrote."""
    transactions: tuple[JournalTransaction, ...]

    @property
    def first(self) -> int:
        """The txid of its first transaction."""
        return self.transactions[0].txid

    @property
    def last(self) -> int:
        """The txid of its last transaction, with which its tables are written."""
        return self.transactions[-1].txid


@attrs.frozen
class JournalPart:
    """The header and the entries of one coordinator."""

    header: JournalHeader
    entries: tuple[JournalEntry, ...]
    skips: bool = False
    """Whether entries of this coordinator come before, which were left out."""


class JournalWriter:
    """Writes the entries of one coordinator.

    Args:
        folder: the journal's folder.
        header: the header of the first file; later files get one that includes the entries so far.
        bytes_max: maximum total size of all files; the oldest are removed first, but none that is held.
        held_after: returns the transaction after which somebody needs the journal at the moment; None: nobody does.
        part_bytes_max: after so many bytes an entry goes to a new file.
    """

    def __init__(
        self,
        folder: Folder,
        header: JournalHeader,
        bytes_max: int,
        held_after: Callable[[], int | None] = lambda: None,
        *,
        part_bytes_max: int = PART_BYTES_MAX,
    ) -> None:
        self._folder = folder
        self._header = attrs.evolve(header, format=JOURNAL_FORMAT)
        self._bytes_max = bytes_max
        self._part_bytes_max = part_bytes_max
        self._held_after = held_after
        self._part = 0
        self._has_entries = self._is_part_over = False
        self._headers: dict[str, JournalHeader | None] = {}
        """By file, its header; None if that can't be read."""
        self._begin_part()

    def end_part(self) -> None:
        """Let the next entry begin a new file, so that what came before can go without it."""
        self._is_part_over = self._has_entries

    def keep_after(self, txid: int, before_ms: int, before_any: Callable[[], None]) -> None:
        """Remove the files whose transactions are all up to ``txid`` and were planned before a time, in ms since 1970.

        The one that is written stays. ``before_any`` is called before the first one is removed, if any is, and raises
        if this coordinator leads no more. The oldest go first, each durably: a crash, also of the machine, leaves a
        journal without a gap, and the next call goes on.

        Raises:
            OSError: a file can't be read or removed.
        """
        unneeded = self._before(self._own_past(), txid, before_ms)
        if unneeded:
            before_any()
        for file in unneeded:
            with durable_step("journal.cut"):
                self._folder.delete(file.path, is_durable=True)

    def _before(self, files: Sequence[Item], txid: int, before_ms: float = math.inf) -> Sequence[Item]:
        """Return the files before the last one that begins up to a transaction, which was planned before a time."""
        return files[: first_needed(files, self._header_of, txid, before_ms)]

    def _header_of(self, file: Item) -> JournalHeader | None:
        if file.path not in self._headers:
            self._headers[file.path] = None
            # An audit says so; or another coordinator, which led before this one, has just removed it.
            with contextlib.suppress(*DAMAGE, FileNotFoundError):
                self._headers[file.path] = header_of(first_line(self._folder, file), file.path)
        return self._headers[file.path]

    def enter(self, entry: JournalEntry) -> None:
        """Append an entry; durable on return.

        Raises:
            StopError: the file can't be written, or was removed.
        """
        if self._file.size > min(self._part_bytes_max, self._file.bytes_max) or self._is_part_over:
            self._next_part()
        line = _line(entry)
        # A crash within this leaves an incomplete line, which readers skip: no table was written yet. A crash after it
        # leaves an entry whose group may be dropped: then the header of the next coordinator has a lower txid.
        try:
            is_in_place = self._file.append(line)
        except OSError as error:
            raise self._not_written(error) from error
        if not is_in_place:
            raise self._gone()
        self._has_entries = True
        last = entry.transactions[-1]
        states = {**self._header.states, **dict.fromkeys(entry.states, entry.last)}
        self._header = attrs.evolve(
            self._header, committed=last.txid, metadata=last.metadata, planned=last.planned, states=states
        )

    def _begin_part(self) -> None:
        """Begin a file; it has its header from the first moment on, which says what is committed."""
        self._path = f"{self._header.epoch:010d}-{self._part:06d}.jsonl"
        line = _line(self._header)
        try:
            begun = self._folder.begin(self._path, line)
        except OSError as error:
            raise self._not_written(error) from error
        if begun is None:
            raise StopError(
                f"the journal's file {self._folder}/{self._path} exists already: another coordinator has epoch "
                f"{self._header.epoch}, of another store or before this one's was restored; nothing was written. Start "
                "again with the store that belongs to the journal; each start has a higher epoch"
            )
        self._file: Growing = begun
        self._has_entries = self._is_part_over = False
        self._headers[self._path] = self._header

    def _next_part(self) -> None:
        # Somebody may have begun a journal anew meanwhile, whose own epochs are lower: a file of this one would be the
        # newest there.
        if not self._file.is_in_place():
            raise self._gone()
        self._part += 1
        self._begin_part()
        # Old files are removed only now, so that there is always one with a header. A crash in between leaves the
        # journal too large until the next part.
        files = self._own_past()
        total, held_after = sum(file.size for file in files), self._held_after()
        for file in files[:-1] if held_after is None else self._before(files, held_after):
            if total <= self._bytes_max:
                return
            self._folder.delete(file.path, is_durable=True)
            total -= file.size

    def _own_past(self) -> list[Item]:
        """Return the files up to the one that is written, oldest first: never a successor's."""
        return [file for file in journal_files(self._folder) if file.path <= self._path]

    def _gone(self) -> StopError:
        return StopError(
            f"the journal's file {self._folder}/{self._path} was removed or replaced while the topology runs; nothing "
            "of this group was committed. Restore the folder, with the coordinator state if that is in it, and start "
            "again"
        )

    def _not_written(self, error: OSError) -> StopError:
        return StopError(
            f"the journal's file {self._folder}/{self._path} can't be written: {error}; nothing of this group was "
            f"committed. {remedy(error)} and start again, or turn the journal off with topology.journal.bytes.max=0"
        )


def first_needed(
    parts: Sequence[T], header_of: Callable[[T], JournalHeader | None], txid: int, before_ms: float = math.inf
) -> int:
    """Return the index of the first part of a journal that is needed to go back to a transaction or to a time.

    1. A rewind may have gone back, so that the transactions of a part come after those of a later one.
    2. So not the first part that begins up to ``txid`` is needed with all after it, but the last one.

    Args:
        parts: the parts, oldest first.
        header_of: returns the header of one; None if that can't be read.
        txid: the transaction.
        before_ms: the time, in ms since 1970.
    """
    for index in range(len(parts) - 1, 0, -1):
        header = header_of(parts[index])
        if header is not None and header.committed <= txid and header.planned.at_ms < before_ms:
            return index
    return 0


def _line(record: JournalHeader | JournalEntry) -> bytes:
    return json.dumps(to_json(record), separators=(",", ":")).encode() + b"\n"


def find_journal(metadata_dir: Folder, topology_id: str) -> Folder:
    """Return the folder of a topology's journal; it may not exist."""
    return metadata_dir.below(_name_of(topology_id))


def topologies_with_journal(metadata_dir: Folder) -> tuple[str, ...]:
    """Return the ids of the topologies that keep a journal in a metadata directory, sorted."""
    kept = metadata_dir.below(FOLDER)
    return tuple(sorted(urllib.parse.unquote(name) for name in kept.folders() if journal_files(kept.below(name))))


def begin_journal(metadata_dir: Folder, topology_id: str, incarnation: str) -> Folder:
    """Return the folder where a coordinator goes on with its topology's journal.

    Files of an earlier incarnation are moved aside: its tables are gone, and the epochs start again. A coordinator of
    that one may have begun one of them since, or a crash left some of them: so each file is looked at.
    """
    name = _name_of(topology_id)
    folder = metadata_dir.below(name)
    known = {file.path: _incarnation_in(line, f"{folder}/{file.path}") for file, line in first_lines(folder)}
    if {*known.values()} - {incarnation, None}:
        # What can't be read is taken for one of them. A crash leaves some, which the next start moves.
        others = [path for path, own in sorted(known.items()) if own != incarnation]
        _move(metadata_dir, name, _aside_name(topology_id, f"before-incarnation-{incarnation[:12]}"), others)
    return folder


def enter_rename(metadata_dir: Folder, rename: Rename, epoch: int = 0) -> None:
    """Let the journal of a topology that is renamed, if there is one, go on under its new id and with the new names.

    Its files move, and one is added, with a header. What an interrupted call has done is left as it is.

    Args:
        metadata_dir: the metadata directory.
        rename: the former names and the new ones, and the last transaction that is committed.
        epoch: that of whoever renames it; 0: the next one, where no coordinator is.
    """
    former, own = _name_of(rename.former), _name_of(rename.topology)
    if former != own:
        _move(metadata_dir, former, own)
    parts = counting_parts(read_journal(metadata_dir.below(own)), lambda entry: entry.last <= rename.txid)
    if not parts or parts[-1].header.renames[-1:] == (rename,):
        return
    before, entries = parts[-1].header, parts[-1].entries
    states = {**before.states, **{name: entry.last for entry in entries for name in entry.states}}
    header = attrs.evolve(
        before,
        topology=rename.topology,
        epoch=epoch or before.epoch + 1,
        undone_until=0,
        tables=_renamed(before.tables, rename.since),
        states=_renamed(states, rename.since),
        begun_after=_renamed(before.begun_after, rename.since),
        renames=(*before.renames, rename),
    )
    if entries:
        last = entries[-1].transactions[-1]
        header = attrs.evolve(header, committed=last.txid, metadata=last.metadata, planned=last.planned)
    JournalWriter(metadata_dir.below(own), header, PART_BYTES_MAX)


def set_aside(metadata_dir: Folder, topology_id: str, number: int) -> None:
    """Move a topology's journal aside if there is one, for the repair of that number; see :func:`drop_asides`."""
    _move(metadata_dir, _name_of(topology_id), _aside_name(topology_id, f"{BEFORE_REPAIR}{number}"))
    drop_asides(metadata_dir, FOLDER, _quoted(topology_id), number)


def drop_asides(metadata_dir: Folder, kind: str, name: str, number: int) -> None:
    """Remove what old repairs have set aside of a kind and under a name, once that of a number is.

    A crash within it leaves a part, which the next repair removes.
    """
    for folder, old in _asides(metadata_dir, kind):
        if old <= number - ASIDES_MAX:
            metadata_dir.delete_all(f"{folder}/{name}")
            if metadata_dir.is_empty(folder):  # else that of another topology is in it
                metadata_dir.delete_all(folder)


def asides(metadata_dir: Folder, topology_id: str) -> list[int]:
    """Return the numbers of the repairs that have set a topology's journal aside."""
    name = _quoted(topology_id)
    return [number for folder, number in _asides(metadata_dir, FOLDER) if not metadata_dir.is_empty(f"{folder}/{name}")]


def _asides(metadata_dir: Folder, kind: str) -> list[tuple[str, int]]:
    """Return the names of the folders with what repairs have set aside of a kind, each with its repair's number."""
    begin = f"{kind}.{BEFORE_REPAIR}"
    found = ((name, name.removeprefix(begin)) for name in metadata_dir.folders() if name.startswith(begin))
    return [(name, int(number)) for name, number in found if number.isdecimal()]


def check_format(folder: Folder) -> None:
    """Raise a StopError if another version of txtopo wrote a journal, in a format that this one does not read."""
    for file, line in first_lines(folder):
        if _incarnation_in(line, f"{folder}/{file.path}") is not None:
            return


def _name_of(topology_id: str) -> str:
    return f"{FOLDER}/{_quoted(topology_id)}"


def _aside_name(topology_id: str, suffix: str) -> str:
    return f"{FOLDER}.{suffix}/{_quoted(topology_id)}"


def _quoted(topology_id: str) -> str:
    return urllib.parse.quote(topology_id, safe="")


def _move(metadata_dir: Folder, name: str, to: str, paths: Sequence[str] | None = None) -> None:
    """Move the files of a journal, or some, oldest first: what a crash leaves reads as a journal that was shortened."""
    for path in [file.path for file in journal_files(metadata_dir.below(name))] if paths is None else paths:
        metadata_dir.move(f"{name}/{path}", f"{to}/{path}")
    if metadata_dir.is_empty(name):
        metadata_dir.delete_all(name)


def _incarnation_in(line: bytes, path: str) -> str | None:
    """Return the incarnation in the first line of a journal's file; None if it can't be read."""
    with contextlib.suppress(ValueError):
        header = json.loads(line)
        if isinstance(header, dict) and "topology" in header:
            _refuse_other(header, path)
            return header.get("incarnation")
    return None


def header_of(line: bytes, path: str) -> JournalHeader:
    """Return the header that the first line of a journal's file holds.

    Raises:
        StopError: another version of txtopo has written the file, in a format that this one does not read.
        ValueError: the line is damaged; or any other of :data:`txtopo.files.records.DAMAGE`.
    """
    value = json.loads(line)
    _refuse_other(value, path)
    return from_json(value, JournalHeader)


def _refuse_other(header: Mapping[str, Any], path: str) -> None:
    if "format" in header:
        refuse_other(f"the journal's file {path}", from_json(header["format"], Format), JOURNAL_FORMAT)


def journal_files(folder: Folder) -> list[Item]:
    """Return a journal's files, oldest first; an empty list if the folder does not exist."""
    return [file for file in folder.list() if _NAME.match(file.path)]


def first_line(folder: Folder, file: Item) -> bytes:
    """Return a file's first line; without its end if it is incomplete."""
    line = b""
    for start in range(0, file.size, BLOCK_BYTES):
        line += folder.get_range(file.path, start, min(BLOCK_BYTES, file.size - start))
        if b"\n" in line:
            break
    return b"".join(line.partition(b"\n")[:2])


def first_lines(folder: Folder) -> Iterator[tuple[Item, bytes]]:
    """Yield a journal's files with their first lines, see :func:`first_line`, newest first, but none that has gone."""
    for file in reversed(journal_files(folder)):
        try:
            line = first_line(folder, file)
        except FileNotFoundError:  # a coordinator has just removed it
            continue
        yield file, line


def read_journal(folder: Folder) -> list[JournalPart]:
    """Return the parts of a journal, one for each epoch, oldest first; an empty list if there is no journal.

    All have the names that topology and states have in the newest.

    Raises:
        DivergenceError: a file is damaged; the message names file and line. An incomplete last line is not damage:
            the writes of its group had not begun.
        StopError: a newer version of txtopo has written a file, in a format that this one does not know.
    """
    parts: dict[int, JournalPart] = {}
    for file in journal_files(folder):
        try:
            header, entries = _read_file(folder, file.path)
        except FileNotFoundError:  # a coordinator has just removed it: the oldest go first
            parts.clear()
            continue
        if header is None:
            continue
        known = parts.get(header.epoch)
        before = known.entries if known is not None else ()
        parts[header.epoch] = JournalPart(known.header if known is not None else header, (*before, *entries))
    found = [parts[epoch] for epoch in sorted(parts)]
    newest = found[-1].header if found else None
    return found if newest is None or not newest.renames else [by_names_in(newest, part) for part in found]


def by_names_in(newest: JournalHeader, part: JournalPart) -> JournalPart:
    """Return a part with the names that topology and states have in the newest header."""
    if newest.renames == part.header.renames:
        return part
    header, entries = part.header, part.entries
    for rename in newest.renames[len(header.renames) :]:
        since = rename.since
        entries = tuple(attrs.evolve(entry, states=_renamed(entry.states, since)) for entry in entries)
        header = attrs.evolve(
            header,
            tables=_renamed(header.tables, since),
            states=_renamed(header.states, since),
            begun_after=_renamed(header.begun_after, since),
        )
    return attrs.evolve(part, header=attrs.evolve(header, topology=newest.topology), entries=entries)


def _renamed(by_state: Mapping[str, T], since: Mapping[str, str]) -> dict[str, T]:
    return {since.get(name, name): value for name, value in by_state.items()}


def counting_entries(parts: Sequence[JournalPart], is_written: Callable[[JournalEntry], bool]) -> list[JournalEntry]:
    """Return the entries whose groups were committed, in order.

    ``is_written``, called for the last epoch's last entry, returns whether all tables that the entry names have it.
    """
    return [entry for part in counting_parts(parts, is_written) for entry in part.entries]


def counting_parts(parts: Sequence[JournalPart], is_written: Callable[[JournalEntry], bool]) -> list[JournalPart]:
    """Return the parts with only the entries whose groups were committed; see :func:`counting_entries`.

    A later header may have a lower committed txid than an earlier one, if ``txtopo repair`` has rolled back.
    """
    counting: list[JournalPart] = []
    bound: int | None = None
    turns = parts[-1].header.turns if parts else ()
    # Backwards, because an entry counts if no later header has a lower committed txid.
    for part in reversed(parts):
        # The header of a turn may be lost, where a journal was restored from a backup; its successors name the turn.
        undone_to = min((turn.txid for turn in turns if turn.epoch > part.header.epoch), default=None)
        if undone_to is not None and bound is not None:
            bound = min(bound, undone_to)
        entries = part.entries
        if bound is not None:
            entries = tuple(entry for entry in entries if entry.last <= bound)
        # In the newest part, only the last group can be in flight: a coordinator commits one after another.
        elif entries and not is_written(entries[-1]):
            entries = entries[:-1]
        counting.append(attrs.evolve(part, entries=entries))
        bound = part.header.committed if bound is None else min(bound, part.header.committed)
    return counting[::-1]


def _read_file(folder: Folder, path: str) -> tuple[JournalHeader | None, list[JournalEntry]]:
    header: JournalHeader | None = None
    entries: list[JournalEntry] = []
    lines = folder.get(path).split(b"\n")
    lines.pop()  # empty, or incomplete after a crash
    for number, line in enumerate(lines, 1):
        try:
            if header is None:
                header = header_of(line, f"{folder}/{path}")
            else:
                entries.append(from_json(json.loads(line), JournalEntry))
        except DAMAGE as error:
            raise DivergenceError(
                f"line {number} of the journal's file {folder}/{path} can't be read ({error}); the file is damaged: "
                "restore it, or move the journal's folder away to begin a new one"
            ) from error
    return header, entries
