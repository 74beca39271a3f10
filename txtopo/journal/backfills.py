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
    """Return the folder of a topology's backfills, each of which has a folder in it, with a separate journal."""
    return metadata_dir.below(f"{_FOLDER}/{urllib.parse.quote(topology_id, safe='')}")


def backfills_of(metadata_dir: Folder, parts: Sequence[JournalPart]) -> dict[str, list[JournalPart]]:
    """Return the journals of the backfills of a topology's states, by state, without what a rewind has undone since.

    Args:
        metadata_dir: the topology's metadata directory.
        parts: its journal, which must have a part.

    Raises:
        DivergenceError: one of them is damaged.
    """
    identities = identities_in(parts)
    by_topology: dict[str, list[JournalPart]] = {}
    topology_id = parts[-1].header.topology
    folders = backfills_in(metadata_dir, topology_id)
    for folder in folders.folders():
        mine = read_journal(find_journal(folders.below(folder), topology_id))
        for name, table in mine[-1].header.tables.items() if mine else ():
            if identities.get(name) == table.identity:  # that of a scratch table is another one
                by_topology[name] = _counting(mine, parts, name)
        # A state in another system has no table in the journal, and none is a scratch one.
        elsewhere = [name for name in _states_of(folder) if mine and name not in mine[-1].header.tables]
        by_topology |= {
            name: _counting(mine, parts, name) for name in elsewhere if _joined(mine, parts, name) is not None
        }
    return by_topology


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
    epochs: dict[str, int] = {}
    folders = backfills_in(metadata_dir, topology_id)
    for folder in folders.folders():
        for part in read_journal(find_journal(folders.below(folder), topology_id)):
            last = max([part.header.committed, *(entry.last for entry in part.entries)])
            tables = part.header.tables
            epochs |= {n: last for n in _states_of(folder) if n in tables and joined.get(n) != tables[n].identity}
    return epochs


def folder_name(states: Iterable[str]) -> str:
    """Return the name of the folder of the backfill that gives states their history."""
    return urllib.parse.quote(",".join(sorted(states)), safe=",")


def _states_of(folder: str) -> list[str]:
    """Return the states that a backfill gives their history, by the name of its folder."""
    return [urllib.parse.unquote(name) for name in folder.split(",")]


def _counting(mine: Sequence[JournalPart], parts: Sequence[JournalPart], name: str) -> list[JournalPart]:
    """Return the parts of a backfill with only the entries up to which its topology has gone back since it joined.

    The topology may go back to before that: to where an earlier call of the backfill has died before it joined, because
    the table has that moment.
    """
    joined = _joined(mine, parts, name)
    since = () if joined is None else parts[joined + 1 :]
    bound = min((part.header.committed for part in since), default=_end_of(mine))
    return [attrs.evolve(part, entries=tuple(e for e in part.entries if e.last <= bound)) for part in mine]


def _joined(mine: Sequence[JournalPart], parts: Sequence[JournalPart], name: str) -> int | None:
    """Return the part of a topology's journal with which a backfill's state has joined it; None if it has not."""
    end, table = _end_of(mine), _identity_in(mine[-1], name)
    # Where no identity tells two lives of a state apart, it is the one that it has now.
    left_at = [at for at, part in enumerate(parts) if table is None and name not in part.header.states]
    for at, part in list(enumerate(parts))[max(left_at, default=-1) + 1 :]:
        if part.header.committed == end and name in part.header.states and _identity_in(part, name) == table:
            return at
    return None


def _identity_in(part: JournalPart, name: str) -> str | None:
    """Return the identity of a state's table; None if it has none in Delta."""
    table = part.header.tables.get(name)
    return None if table is None else table.identity


def _end_of(parts: Sequence[JournalPart]) -> int:
    return max((entry.last for part in parts for entry in part.entries), default=0)


def rename_in_backfills(metadata_dir: Folder, rename: Rename) -> None:
    """Let the journals of a topology's backfills, which have all joined it, go on under its new names."""
    folders = backfills_in(metadata_dir, rename.topology)
    if rename.is_of_id:
        metadata_dir.move(f"{_FOLDER}/{backfills_in(metadata_dir, rename.former).name}", f"{_FOLDER}/{folders.name}")
    for backfill in folders.folders():
        enter_rename(folders.below(backfill), rename)
        name = folder_name(rename.since.get(each, each) for each in _states_of(backfill))
        if name != backfill:
            folders.move(backfill, name)


def set_backfills_aside(metadata_dir: Folder, topology_id: str, states: Collection[str] | None, number: int) -> None:
    """Move the folders of backfills of some states, or all, aside; see :func:`~txtopo.journal.folders.drop_asides`."""
    folders = backfills_in(metadata_dir, topology_id)
    aside = f"{_FOLDER}.{BEFORE_REPAIR}{number}/{folders.name}"
    for folder in folders.folders():
        if states is None or not set(states).isdisjoint(_states_of(folder)):
            metadata_dir.move(f"{_FOLDER}/{folders.name}/{folder}", f"{aside}/{folder}")
    drop_asides(metadata_dir, _FOLDER, folders.name, number)
