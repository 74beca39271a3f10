"""The folders of backfills in a topology's metadata directory, each with the journal of its run."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from txtopo.files.folder import Folder
from txtopo.journal.entries import JournalPart
from txtopo.journal.folders import BEFORE_REPAIR, drop_asides, enter_rename, find_journal
from txtopo.journal.journal import read_journal
from txtopo.journal.turns import Rename

_FOLDER = "backfill"


def backfills_in(metadata_dir: Folder, topology_id: str) -> Folder:
    """Return the folder of a topology's backfills, each of which has a folder in it, with a journal of its own."""
    return metadata_dir.below(f"{_FOLDER}/{urllib.parse.quote(topology_id, safe='')}")


def backfills_of(metadata_dir: Folder, parts: Sequence[JournalPart]) -> dict[str, list[JournalPart]]:
    """Return the journals of the backfills of a topology's states, by state, without what a rewind has undone since.

    Args:
        metadata_dir: the topology's metadata directory.
        parts: its journal, which must have a part.

    Raises:
        DivergenceError: one of them is damaged.
    """
    known = identities_in(parts)
    found: dict[str, list[JournalPart]] = {}
    topology_id = parts[-1].header.topology
    folders = backfills_in(metadata_dir, topology_id)
    for folder in folders.folders():
        own = read_journal(find_journal(folders.below(folder), topology_id))
        for name, table in own[-1].header.tables.items() if own else ():
            if known.get(name) == table.identity:  # that of a scratch table is another one
                found[name] = _counting(own, parts, name)
    return found


def identities_in(parts: Sequence[JournalPart]) -> dict[str, str]:
    """Return the identities of all tables that a journal names, the newest of each state."""
    return {name: table.identity for part in parts for name, table in part.header.tables.items()}


def unfinished_backfills(metadata_dir: Folder, topology_id: str, joined: Mapping[str, str]) -> dict[str, int]:
    """Return the states of backfills that have not joined the topology, each with its last transaction.

    Args:
        metadata_dir: the topology's metadata directory.
        topology_id: its id.
        joined: the identities of the tables of the states that it has or has had.

    Raises:
        DivergenceError: the journal of one of them is damaged.
    """
    found: dict[str, int] = {}
    folders = backfills_in(metadata_dir, topology_id)
    for folder in folders.folders():
        for part in read_journal(find_journal(folders.below(folder), topology_id)):
            last = max([part.header.committed, *(entry.last for entry in part.entries)])
            tables = part.header.tables
            found |= {n: last for n in _states_of(folder) if n in tables and joined.get(n) != tables[n].identity}
    return found


def folder_name(states: Iterable[str]) -> str:
    """Return the name of the folder of the backfill that gives states their history."""
    return urllib.parse.quote(",".join(sorted(states)), safe=",")


def _states_of(folder: str) -> list[str]:
    """Return the states that a backfill gives their history, by the name of its folder."""
    return [urllib.parse.unquote(name) for name in folder.split(",")]


def _counting(own: Sequence[JournalPart], parts: Sequence[JournalPart], name: str) -> list[JournalPart]:
    """Return the parts of a backfill with only the entries up to which its topology has gone back since it joined.

    The topology may go back to before that: to where an earlier call of the backfill has died before it joined, because
    the table has that moment.
    """
    end = max((entry.last for part in own for entry in part.entries), default=0)
    identity = own[-1].header.tables[name].identity
    headers = [part.header for part in parts]
    joined = (
        at
        for at, header in enumerate(headers, 1)
        if header.committed == end and name in header.tables and header.tables[name].identity == identity
    )
    bound = min((header.committed for header in headers[next(joined, len(headers)) :]), default=end)
    return [attrs.evolve(part, entries=tuple(e for e in part.entries if e.last <= bound)) for part in own]


def rename_in_backfills(metadata_dir: Folder, rename: Rename) -> None:
    """Let the journals of a topology's backfills, which have all joined it, go on under its new names."""
    folders = backfills_in(metadata_dir, rename.topology)
    if rename.is_of_id:
        metadata_dir.move(f"{_FOLDER}/{backfills_in(metadata_dir, rename.former).name}", f"{_FOLDER}/{folders.name}")
    for own in folders.folders():
        enter_rename(folders.below(own), rename)
        name = folder_name(rename.since.get(each, each) for each in _states_of(own))
        if name != own:
            folders.move(own, name)


def set_backfills_aside(metadata_dir: Folder, topology_id: str, states: Collection[str] | None, number: int) -> None:
    """Move the folders of the backfills of some states, or of all, aside, to where nobody takes them for evidence.

    See :func:`~txtopo.journal.folders.drop_asides`.
    """
    folders = backfills_in(metadata_dir, topology_id)
    aside = f"{_FOLDER}.{BEFORE_REPAIR}{number}/{folders.name}"
    for folder in folders.folders():
        if states is None or not set(states).isdisjoint(_states_of(folder)):
            metadata_dir.move(f"{_FOLDER}/{folders.name}/{folder}", f"{aside}/{folder}")
    drop_asides(metadata_dir, _FOLDER, folders.name, number)
