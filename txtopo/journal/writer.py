"""Writes a journal: the files of one coordinator, and which of the oldest may go."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs

from txtopo.errors import StopError
from txtopo.failpoints import durable_step
from txtopo.files.durable import in_background, remedy
from txtopo.files.folder import Folder, Growing, Item
from txtopo.files.formats import JOURNAL as JOURNAL_FORMAT
from txtopo.files.records import DAMAGE, to_json
from txtopo.journal.entries import JournalEntry, JournalHeader
from txtopo.journal.journal import first_line, header_of, journal_files
from txtopo.journal.tail import Tail, names_file

T = TypeVar("T")

PART_BYTES_MAX = 64 * 1024 * 1024
"""Once a file is larger, the next entry begins a new one."""

TAIL_BYTES = 16 * 1024
"""So many bytes ride with the decisions of groups before they go to the file: half of it, on average, with each."""

logger = logging.getLogger("txtopo")


class KeptJournal(ABC):
    """A journal whose oldest files go."""

    @abstractmethod
    def end_part(self) -> None:
        """Let the next entry begin a new file, so that what came before can go without it."""

    @abstractmethod
    def keep_after(self, txid: int, before_ms: int, before_any: Callable[[], None]) -> None:
        """Remove the files whose transactions are all up to ``txid`` and were planned before a time, in ms since 1970.

        ``before_any`` is called before the first one is removed, if any is, and raises if this coordinator leads no
        more.

        Raises:
            OSError: a file can't be read or removed.
        """


class JournalWriter(KeptJournal):
    """Writes the entries of one coordinator.

    Args:
        folder: the journal's folder.
        header: the header of the first file; later files get one that includes the entries so far.
        bytes_max: maximum total size of all files; the oldest are removed first, but none that somebody needs.
        needed_after: returns the transaction after which somebody needs the journal at the moment; None: nobody does.
        part_bytes_max: after so many bytes an entry goes to a new file.
        rides: whether entries ride in the decisions of groups, see :mod:`txtopo.journal.tail`.

    Attributes:
        tail_bytes: so many ride before they go to the file.
        tail_bytes_max: more never ride: the file takes them first.
    """

    def __init__(  # noqa: PLR0913 - the last two differ by place
        self,
        folder: Folder,
        header: JournalHeader,
        bytes_max: int,
        needed_after: Callable[[], int | None] = lambda: None,
        *,
        part_bytes_max: int = PART_BYTES_MAX,
        rides: bool = False,
    ) -> None:
        self._folder = folder
        self._header = attrs.evolve(header, format=JOURNAL_FORMAT)
        self._bytes_max = bytes_max
        self._part_bytes_max = part_bytes_max
        self._needed_after = needed_after
        self._part = 0
        self._has_entries = self._is_part_over = False
        self._headers: dict[str, JournalHeader | None] = {}
        """By file, its header; None if that can't be read."""
        self._rides = rides
        self.tail_bytes, self.tail_bytes_max = TAIL_BYTES, 4 * TAIL_BYTES
        self._lines = b""
        """Those that are decided and that the file lacks."""
        self._entered: tuple[JournalEntry, bytes] | None = None
        """An entry that rides in a decision which is not made yet, and its line."""
        self._lock = threading.Lock()
        """Of the file and of what it lacks."""
        self._begin_part()

    def end_part(self) -> None:
        """See :meth:`KeptJournal.end_part`."""
        self._is_part_over = self._has_entries

    def keep_after(self, txid: int, before_ms: int, before_any: Callable[[], None]) -> None:
        """Remove the oldest files; see :meth:`KeptJournal.keep_after`.

        The one that is written stays. The oldest go first, each durably: a crash, also of the machine, leaves a journal
        without a gap, and the next call goes on.
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

    def enter(self, entry: JournalEntry) -> bytes | None:
        """Append an entry; durable on return, or together with what is returned, once that is decided.

        Raises:
            StopError: the file can't be written, or was removed.
        """
        line = _line(entry)
        with self._lock:
            size = self._file.size + len(self._lines)
            if size > min(self._part_bytes_max, self._file.bytes_max) or self._is_part_over:
                self._add_lines()
                self._next_part()
            if self._rides and len(self._lines) + len(line) <= self.tail_bytes_max:
                self._entered = entry, line
                return Tail(self._path, self._file.size, self._lines + line).to_bytes()
            # A crash within this leaves an incomplete line, which readers skip: no table was written yet. A crash after
            # it leaves an entry whose group may be dropped: then the header of the next coordinator has a lower txid.
            self._lines += line
            self._add_lines()
        self._counts(entry)
        return None

    def decided(self) -> None:
        """Count an entry whose group is decided now, with what :meth:`enter` returned."""
        if self._entered is None:
            return
        entry, line = self._entered
        self._entered = None
        with self._lock:
            self._lines += line
            is_long = len(self._lines) > self.tail_bytes
        self._counts(entry)
        if is_long:
            in_background(self.add_lines)

    def add_lines(self) -> None:
        """Add to the file what it lacks; if that fails, whoever comes next does."""
        try:
            with self._lock:
                self._add_lines()
        except StopError as error:
            logger.warning(
                "the journal's last lines stay in the coordinator state for now: %s", error.__cause__ or error
            )

    def _add_lines(self) -> None:
        if not self._lines:
            return
        try:
            is_in_place = self._file.append(self._lines)
        except OSError as error:
            raise self._not_written(error) from error
        if not is_in_place:
            raise self._journal_gone()
        self._lines = b""

    def _counts(self, entry: JournalEntry) -> None:
        self._has_entries = True
        last = entry.transactions[-1]
        states = {**self._header.states, **dict.fromkeys(entry.states, entry.last)}
        self._header = attrs.evolve(
            self._header, committed=last.txid, metadata=last.metadata, planned=last.planned, states=states
        )

    def _begin_part(self) -> None:
        """Begin a file; it has its header from the first moment on, which says what is committed."""
        self._path = self._name()
        if not self._rides and names_file(self._folder, self._path):
            self._part += 1
            self._path = self._name()
        line = _line(self._header)
        try:
            part = self._folder.begin(self._path, line)
        except OSError as error:
            raise self._not_written(error) from error
        if part is None:
            raise StopError(
                f"the journal's file {self._folder}/{self._path} exists already: another coordinator has epoch "
                f"{self._header.epoch}, of another store or before this one's was restored; nothing was written. Start "
                "again with the store that belongs to the journal; each start has a higher epoch"
            )
        self._file: Growing = part
        self._has_entries = self._is_part_over = False
        self._headers[self._path] = self._header

    def _name(self) -> str:
        return f"{self._header.epoch:010d}-{self._part:06d}.jsonl"

    def _next_part(self) -> None:
        # Somebody may have begun a journal anew meanwhile, whose own epochs are lower: a file of this one would be the
        # newest there.
        if not self._file.is_in_place():
            raise self._journal_gone()
        self._part += 1
        self._begin_part()
        # Old files are removed only now, so that there is always one with a header. A crash in between leaves the
        # journal too large until the next part.
        files = self._own_past()
        total, needed_after = sum(file.size for file in files), self._needed_after()
        for file in files[:-1] if needed_after is None else self._before(files, needed_after):
            if total <= self._bytes_max:
                return
            self._folder.delete(file.path, is_durable=True)
            total -= file.size

    def _own_past(self) -> list[Item]:
        return [file for file in journal_files(self._folder) if file.path <= self._path]

    def _journal_gone(self) -> StopError:
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
