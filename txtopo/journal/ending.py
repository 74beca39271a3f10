"""The end of a journal, from which a reader learns the last transaction that all tables have.

Only the first and the last line of the newest file are needed: all groups between them were committed before the last
one was entered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import attrs

from txtopo.errors import ConfigError
from txtopo.files.folder import Folder, Item
from txtopo.files.places import joined
from txtopo.files.records import DAMAGE, from_json
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTable
from txtopo.journal.folders import FOLDER, find_journal, topologies_with_journal
from txtopo.journal.journal import first_lines, header_of, journal_files
from txtopo.journal.search import damaged, lines_backwards

T = TypeVar("T")

READS_MAX = 20
"""How often something is read that a coordinator writes meanwhile; a read fails if another one begins, or a file goes.
"""

METADATA_DIR = "_txtopo"
"""The name of the metadata directory, a folder beside the tables."""


@attrs.frozen
class JournalEnd:
    """The first and the last line of the newest file of a journal."""

    header: JournalHeader
    last: JournalEntry | None
    """The last entry; None if there is none yet."""

    def bound(self, txids: Mapping[str, int | None]) -> int:
        """Return the last txid that is certainly committed, given the last txid of each table by state.

        An entry that names no table cannot be verified, so it does not count yet.
        """
        if self.last is None:
            return self.header.committed
        reached = [txids[name] for name in self.last.states if name in txids]
        is_written = bool(reached) and all(txid is not None and txid >= self.last.last for txid in reached)
        return self.last.last if is_written else self.last.first - 1


def read_end(folder: Folder) -> JournalEnd | None:
    """Return the end of a journal; None if there is no journal.

    A file with an incomplete first line is skipped: its coordinator has written nothing yet.

    Raises:
        DivergenceError: the newest file is damaged.
    """
    newest = _newest(folder)
    if newest is None:
        return None
    file, first = newest
    last = next(lines_backwards(folder, file, len(first), file.size), None)
    try:
        header = header_of(first, f"{folder}/{file.path}")
        return JournalEnd(header, None if last is None else from_json(json.loads(last), JournalEntry))
    except DAMAGE as error:
        raise damaged(folder, file, error) from error


def read_consistently(journal: Folder, read: Callable[[JournalEnd | None], T | None]) -> T | None:
    """Return what is read while a coordinator may write; None if that failed ``READS_MAX`` times.

    Another coordinator may undo what the one before has left. So what is read counts only if none has begun meanwhile.

    Args:
        journal: the journal.
        read: given its end, reads; None if that failed, as something went meanwhile. It is called again then.
    """
    for _ in range(READS_MAX):
        end = read_end(journal)
        entry = read(end)
        again = read_end(journal)
        if entry is not None and (again and again.header.epoch) == (end and end.header.epoch):
            return entry
    return None


def last_writes(folder: Folder, epoch: int, names: Collection[str], txid: int) -> dict[str, int | None] | None:
    """Return the txid of each state's last write up to transaction ``txid``; None for a state that was not written.

    Returns None instead of a mapping if the newest file does not go back that far, or has another epoch than ``epoch``.

    Raises:
        DivergenceError: the newest file is damaged.
    """
    newest = _newest(folder)
    if newest is None:
        return None
    file, first = newest
    try:
        header = header_of(first, f"{folder}/{file.path}")
        if header.epoch != epoch or header.committed > txid:
            return None
        txids: dict[str, int | None] = {}
        quoted_names = {name: json.dumps(name).encode() for name in names}
        for line in lines_backwards(folder, file, len(first), file.size):
            # A cheap check before the line is parsed: most lines name other states.
            if not any(text in line for text in quoted_names.values()):
                continue
            entry = from_json(json.loads(line), JournalEntry)
            if entry.last <= txid:
                candidates = quoted_names.keys() & entry.states.keys()
                txids |= dict.fromkeys(candidates, entry.last)
                quoted_names = {name: text for name, text in quoted_names.items() if name not in candidates}
            if not quoted_names:
                break
    except DAMAGE as error:
        raise damaged(folder, file, error) from error
    return {name: txids.get(name, header.states.get(name)) for name in names}


def metadata_dir_below(output: Folder) -> Folder:
    """Return the metadata directory in, or as, an output folder; raise ConfigError if there is no journal."""
    for metadata_dir in (output.below(METADATA_DIR), output):
        if topologies_with_journal(metadata_dir):
            return metadata_dir
    metadata_dir = output if output.name == METADATA_DIR else output.below(METADATA_DIR)
    raise ConfigError(
        f"there is no journal in {metadata_dir.below(FOLDER)}: pass the folder that contains a topology's tables "
        f"and its folder {METADATA_DIR!r}; a topology has a journal unless topology.journal.bytes.max is 0"
    )


def metadata_dir_with_journal(metadata_dir: Folder, topology_id: str) -> Folder:
    """Return the metadata directory if a topology's journal is in it; raise ConfigError if there is none."""
    journal = find_journal(metadata_dir, topology_id)
    if journal_files(journal):
        return metadata_dir
    raise ConfigError(
        f"there is no journal in {journal}: run the topology first, from the same folder and with the same settings; "
        "it has a journal unless topology.journal.bytes.max is 0"
    )


def journal_below(output: Folder, topology_id: str | None) -> tuple[Folder, str]:
    """Return an output folder's metadata directory and the topology that is meant; ConfigError as :func:`chosen`."""
    metadata_dir = metadata_dir_below(output)
    return metadata_dir, chosen(output, topologies_with_journal(metadata_dir), topology_id)


def chosen(output: Folder, topologies: Sequence[str], topology_id: str | None) -> str:
    """Return the topology that is meant of those in a folder; ConfigError if none is, or the named one is not there."""
    listed = ", ".join(repr(topology) for topology in topologies)
    if topology_id is not None and topology_id not in topologies:
        topologies_text = f"; it has records of {listed}" if topologies else ""
        raise ConfigError(f"{output} has no record of a topology {topology_id!r}{topologies_text}")
    if topology_id is None and len(topologies) != 1:
        several = f"records of several topologies: {listed}; choose one with --topology, in Python with topology="
        raise ConfigError(f"{output} has {several if topologies else 'no record of a topology'}")
    return topology_id or topologies[0]


def table_path(metadata_dir: Folder, table: JournalTable) -> str:
    """Return the path of a table that is recorded in the journal."""
    return joined(metadata_dir.parent, table.address)


def _newest(folder: Folder) -> tuple[Item, bytes] | None:
    """Return the newest file with its first line, if that is complete."""
    return next(((file, first) for file, first in first_lines(folder) if first.endswith(b"\n")), None)
