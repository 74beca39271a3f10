"""The journal: a record of the transactions that each coordinator has committed, with their input and tables.

It is a folder of JSON-lines files, ``<epoch>-<part>.jsonl``, in ``_txtopo/journal`` by the topology's id. Each file is
written by one coordinator, so a coordinator that has lost the lead cannot damage another's files. The first line of a
file is its header, each further line a commit group:

1. A group is entered before its first table is written, so an entry alone does not prove that it was committed.
2. A new coordinator finishes or drops the group that the last one left, and begins a file whose header says what is
   committed. So an entry of an earlier epoch counts if no later header has a lower committed txid.
3. An entry of the last epoch counts if every table that it names has reached its last txid.
4. What was entered before a topology or a state was renamed is read by the names since; the files stay as they are.
5. The oldest files go once no point needs them (:meth:`~txtopo.journal.writer.JournalWriter.keep_after`), so the
   journal may begin anywhere: the header of its first file says all of what came before.

``txtopo audit``, ``replay``, ``repair`` and consistent reads use the journal. Recovery never needs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from txtopo.errors import DivergenceError
from txtopo.files.folder import Folder, Item
from txtopo.files.formats import JOURNAL as JOURNAL_FORMAT, Format, refuse_other
from txtopo.files.records import DAMAGE, from_json
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart

T = TypeVar("T")

BLOCK_BYTES = 64 * 1024
"""How much of a file is read at a time where its ends suffice."""

_NAME = re.compile(r"^(\d{10})-(\d{6})\.jsonl$")


def header_of(line: bytes, path: str) -> JournalHeader:
    """Return the header that the first line of a journal's file holds.

    Raises:
        StopError: another version of txtopo has written the file, in a format that this one does not read.
        ValueError: the line is damaged; or any other of :data:`txtopo.files.records.DAMAGE`.
    """
    value = json.loads(line)
    refuse_other_format(value, path)
    return from_json(value, JournalHeader)


def refuse_other_format(header: Mapping[str, Any], path: str) -> None:
    """Raise a StopError if a header, as JSON has it, is of a format that this version does not read."""
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
        former = parts.get(header.epoch)
        before = former.entries if former is not None else ()
        parts[header.epoch] = JournalPart(former.header if former is not None else header, (*before, *entries))
    every = [parts[epoch] for epoch in sorted(parts)]
    newest = every[-1].header if every else None
    return every if newest is None or not newest.renames else [by_names_in(newest, part) for part in every]


def by_names_in(newest: JournalHeader, part: JournalPart) -> JournalPart:
    """Return a part with the names that topology and states have in the newest header."""
    if newest.renames == part.header.renames:
        return part
    header, entries = part.header, part.entries
    for rename in newest.renames[len(header.renames) :]:
        since = rename.since
        entries = tuple(attrs.evolve(entry, states=renamed(entry.states, since)) for entry in entries)
        header = attrs.evolve(
            header,
            tables=renamed(header.tables, since),
            states=renamed(header.states, since),
            begun_after=renamed(header.begun_after, since),
        )
    return attrs.evolve(part, header=attrs.evolve(header, topology=newest.topology), entries=entries)


def renamed(by_state: Mapping[str, T], since: Mapping[str, str]) -> dict[str, T]:
    """Return what is by state under the names that these have since."""
    return {since.get(name, name): value for name, value in by_state.items()}


def counting_entries(parts: Sequence[JournalPart], is_written: Callable[[JournalEntry], bool]) -> list[JournalEntry]:
    """Return the entries whose groups were committed, in order; ``is_written`` says whether tables have the last."""
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
