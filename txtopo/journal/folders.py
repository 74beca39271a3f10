"""Where the journals of topologies lie in a metadata directory: found, begun, renamed and set aside there."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import Sequence

import attrs

from txtopo.files.folder import Folder
from txtopo.journal.journal import (
    counting_parts,
    first_lines,
    journal_files,
    read_journal,
    refuse_other_format,
    renamed,
)
from txtopo.journal.tail import add_tail, whole_journal
from txtopo.journal.turns import Rename
from txtopo.journal.writer import PART_BYTES_MAX, JournalWriter

FOLDER = "journal"
"""The folder in the metadata directory that has a folder for each topology, by its id, with its journal."""

BEFORE_REPAIR = "before-repair-"
"""What the suffix of a journal begins with that a repair sets aside; the repair's number follows."""

ASIDES_MAX = 10
"""Of so many repairs and rewinds, the last ones, what they have replaced in a metadata directory and a store stays."""


def find_journal(metadata_dir: Folder, topology_id: str) -> Folder:
    """Return the folder of a topology's journal, with whole files; it may not exist."""
    return whole_journal(metadata_dir, topology_id, _name_of(topology_id))


def topologies_with_journal(metadata_dir: Folder) -> tuple[str, ...]:
    """Return the ids of the topologies that keep a journal in a metadata directory, sorted."""
    root = metadata_dir.below(FOLDER)
    return tuple(sorted(urllib.parse.unquote(name) for name in root.folders() if journal_files(root.below(name))))


def begin_journal(metadata_dir: Folder, topology_id: str, incarnation: str) -> Folder:
    """Return the folder where a coordinator goes on with its topology's journal.

    Files of an earlier incarnation are moved aside: its tables are gone, and the epochs start again. A coordinator of
    that one may have begun one of them since, or a crash left some of them: so each file is looked at.
    """
    name = _name_of(topology_id)
    add_tail(find_journal(metadata_dir, topology_id))
    folder = metadata_dir.below(name)
    incarnations = {file.path: _incarnation_in(line, f"{folder}/{file.path}") for file, line in first_lines(folder)}
    if {*incarnations.values()} - {incarnation, None}:
        # What can't be read is taken for one of them. A crash leaves some, which the next start moves.
        strays = [path for path, own in sorted(incarnations.items()) if own != incarnation]
        _move(metadata_dir, name, _aside_name(topology_id, f"before-incarnation-{incarnation[:12]}"), strays)
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
    add_tail(find_journal(metadata_dir, rename.former))
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
        tables=renamed(before.tables, rename.since),
        states=renamed(states, rename.since),
        begun_after=renamed(before.begun_after, rename.since),
        renames=(*before.renames, rename),
    )
    if entries:
        last = entries[-1].transactions[-1]
        header = attrs.evolve(header, committed=last.txid, metadata=last.metadata, planned=last.planned)
    JournalWriter(find_journal(metadata_dir, rename.topology), header, PART_BYTES_MAX)


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
    matches = ((name, name.removeprefix(begin)) for name in metadata_dir.folders() if name.startswith(begin))
    return [(name, int(number)) for name, number in matches if number.isdecimal()]


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
    with contextlib.suppress(ValueError):
        header = json.loads(line)
        if isinstance(header, dict) and "topology" in header:
            refuse_other_format(header, path)
            return header.get("incarnation")
    return None
