"""The journal: which transactions each coordinator has committed, from what input, into which tables.

A folder of JSON-lines files, ``<epoch>-<part>.jsonl``, written by one coordinator each, so that one that has
lost its lead spoils nobody else's. The first line of a file is its header, each further line a commit group:

1. A group is entered before its first table is written; so an entry alone does not say that it was committed.
2. A new coordinator settles what the one before it left, and begins a file that says what is committed. So an
   entry of an earlier epoch counts if its transactions are not above that of any later epoch's header.
3. An entry of the last epoch counts if every table that it names has got so far.

The journal is evidence, for ``txtopo audit``, ``replay`` and ``repair``, and what consistent reading asks.
Recovery never needs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from txtopo.durable import sync_path
from txtopo.errors import DivergenceError, StopError
from txtopo.records import DAMAGE, WRITTEN_AS_LIFE, from_json, to_json

FOLDER = "journal"
"""Its place in the folder that a topology keeps its own files in."""

PART_BYTES_MAX = 64 * 1024 * 1024
"""A file that is longer is followed by another."""

_NAME = re.compile(r"^(\d{10})-(\d{6})\.jsonl$")


@attrs.frozen
class JournalTable:
    """A state's table, as the journal knows it."""

    address: str
    """Where it lies: absolute, or relative to the folder that holds the topology's own one."""
    identity: str


@attrs.frozen
class JournalHeader:
    """What stood fast when a file was begun."""

    topology: str
    incarnation: str = attrs.field(metadata=WRITTEN_AS_LIFE)
    epoch: int
    spout: str
    """``repeatable`` or ``opaque``."""
    committed: int
    """The last committed txid."""
    metadata: Any
    """That transaction's metadata."""
    tables: Mapping[str, JournalTable]
    states: Mapping[str, int | None]
    """The last txid written to each state, by name."""


@attrs.frozen
class JournalTransaction:
    """One transaction of a group."""

    txid: int
    attempt: int
    metadata: Any
    fingerprints: Mapping[str, tuple[int, int | None]]
    """What each component emitted: tuples, and a checksum of them or None."""
    ranges: Mapping[str, tuple[Any, Any]] | None = None
    """The input it took, start and end by partition, where the spout reports it."""
    is_dead_letter: bool = False


@attrs.frozen
class JournalEntry:
    """One commit group."""

    states: Mapping[str, tuple[int, int]]
    """Rows put and rows removed, by the states that it wrote."""
    transactions: tuple[JournalTransaction, ...]

    @property
    def first(self) -> int:
        """The txid of its first transaction."""
        return self.transactions[0].txid

    @property
    def last(self) -> int:
        """The txid of its last transaction, which its tables are written as of."""
        return self.transactions[-1].txid


@attrs.frozen
class JournalPart:
    """What one coordinator has entered, from its header on."""

    header: JournalHeader
    entries: tuple[JournalEntry, ...]


class JournalWriter:
    """Enters the groups of one coordinator.

    Args:
        folder: the journal's folder, made if need be.
        header: what stands fast; parts after the first take it on with what was entered meanwhile.
        bytes_max: how long all files together may be; the oldest go first.
    """

    def __init__(self, folder: Path, header: JournalHeader, bytes_max: int) -> None:
        self._folder = folder
        self._header = header
        self._bytes_max = bytes_max
        self._part = 0
        folder.mkdir(parents=True, exist_ok=True)
        sync_path(folder.parent)
        self._file = self._begin_part()

    def enter(self, entry: JournalEntry) -> None:
        """Append an entry; durable on return.

        Raises:
            StopError: it can't be written.
        """
        if not self._is_in_place():
            raise StopError(
                f"the journal's file {self._path} was removed or replaced while the topology runs; nothing of "
                "this group was committed. Bring the folder back, with the coordinator state if that lies there, and "
                "start again"
            )
        if self._file.tell() > PART_BYTES_MAX:
            self._next_part()
        self._append(entry)
        last = entry.transactions[-1]
        states = {**self._header.states, **dict.fromkeys(entry.states, entry.last)}
        self._header = attrs.evolve(self._header, committed=last.txid, metadata=last.metadata, states=states)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _begin_part(self) -> Any:
        path = self._folder / f"{self._header.epoch:010d}-{self._part:06d}.jsonl"
        draft = path.with_suffix(".draft")  # a reader never sees a file without its header
        self._file = draft.open("wb")
        self._append(self._header)
        draft.rename(path)
        sync_path(self._folder)
        self._path = path
        return self._file

    def _is_in_place(self) -> bool:
        """Whether what is written is still found under its name, and not in a file that was unlinked."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        return False

    def _next_part(self) -> None:
        self._file.close()
        self._part += 1
        self._file = self._begin_part()
        own = f"{self._header.epoch:010d}-999999.jsonl"
        files = [path for path in journal_files(self._folder) if path.name <= own]  # never a successor's
        sizes = [path.stat().st_size for path in files]
        for path, size in zip(files[:-1], sizes[:-1], strict=True):
            if sum(sizes) <= self._bytes_max:
                return
            path.unlink(missing_ok=True)
            sizes.remove(size)

    def _append(self, record: JournalHeader | JournalEntry) -> None:
        line = json.dumps(to_json(record), separators=(",", ":")).encode()
        try:
            self._file.write(line + b"\n")
            self._file.flush()
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise StopError(
                f"the journal's file {self._file.name} can't be written: {error}; nothing of this group was committed. "
                "Make room for it and start again, or turn the journal off with topology.journal.bytes.max=0"
            ) from error


def find_journal(metadata_dir: Path, topology_id: str | None = None) -> Path:
    """Return the folder of a topology's journal, whether there is one or not.

    The first topology in an output folder has the plain name; another one's id is in the name of its own.

    Args:
        metadata_dir: the folder that topologies keep their own files in.
        topology_id: the topology; None for the first.
    """
    if topology_id is None or _owner_of(metadata_dir / FOLDER) in {None, topology_id}:
        return metadata_dir / FOLDER
    return metadata_dir / f"{FOLDER}.of-{urllib.parse.quote(topology_id, safe='')}"


def set_aside_former_incarnation(folder: Path, incarnation: str) -> None:
    """Move the journal of an earlier incarnation away: its tables are gone, and its epochs would come again."""
    header = _newest_header(folder)
    if header is not None and header["life"] != incarnation:
        folder.rename(folder.with_name(f"{folder.name}.before-life-{incarnation[:12]}"))


def _owner_of(folder: Path) -> str | None:
    header = _newest_header(folder)
    return None if header is None else str(header["topology"])


def _newest_header(folder: Path) -> dict[str, Any] | None:
    for path in reversed(journal_files(folder)):
        with path.open("rb") as file, contextlib.suppress(ValueError):
            header = json.loads(file.readline())
            if isinstance(header, dict) and {"topology", "life"} <= header.keys():
                return header
    return None


def journal_files(folder: Path) -> list[Path]:
    """Return a journal's files, oldest first; none if there is no such folder."""
    return sorted(path for path in folder.iterdir() if _NAME.match(path.name)) if folder.is_dir() else []


def read_journal(folder: Path) -> list[JournalPart]:
    """Return what is in a journal, one part an epoch, oldest first; empty if there is none.

    Args:
        folder: its folder.

    Raises:
        DivergenceError: a file is damaged; the message names file and line. A last line that was not
            written whole is no damage: its group was not begun.
    """
    parts: dict[int, JournalPart] = {}
    for path in journal_files(folder):
        header, entries = _read_file(path)
        if header is None:
            continue
        known = parts.get(header.epoch)
        before = known.entries if known is not None else ()
        parts[header.epoch] = JournalPart(known.header if known is not None else header, (*before, *entries))
    return [parts[epoch] for epoch in sorted(parts)]


def counting_entries(parts: Sequence[JournalPart], is_written: Callable[[JournalEntry], bool]) -> list[JournalEntry]:
    """Return the entries whose groups were committed, in order.

    Args:
        parts: the journal.
        is_written: whether all tables that an entry names have got so far; asked for the last epoch's last one.
    """
    return [entry for part in counting_parts(parts, is_written) for entry in part.entries]


def counting_parts(parts: Sequence[JournalPart], is_written: Callable[[JournalEntry], bool]) -> list[JournalPart]:
    """Return the parts with those of their entries whose groups were committed; see :func:`counting_entries`.

    A later header may say that less is committed than an earlier one: ``txtopo repair`` has rolled back to it.
    """
    counting: list[JournalPart] = []
    bound: int | None = None
    for part in reversed(parts):
        entries = part.entries
        if bound is not None:
            entries = tuple(entry for entry in entries if entry.last <= bound)
        elif entries and not is_written(entries[-1]):
            entries = entries[:-1]
        counting.append(JournalPart(part.header, entries))
        bound = part.header.committed if bound is None else min(bound, part.header.committed)
    return counting[::-1]


def _read_file(path: Path) -> tuple[JournalHeader | None, list[JournalEntry]]:
    header: JournalHeader | None = None
    entries: list[JournalEntry] = []
    lines = path.read_bytes().split(b"\n")
    lines.pop()  # empty, or a line that a crash cut off
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
            if header is None:
                header = from_json(value, JournalHeader)
            else:
                entries.append(from_json(value, JournalEntry))
        except DAMAGE as error:
            raise DivergenceError(
                f"line {number} of the journal's file {path} can't be read ({error}); the file is damaged: "
                "restore it, or move the journal's folder away to begin a new one"
            ) from error
    return header, entries
