"""The end of a journal: what a reader needs who asks how far all tables have got together.

Only the newest file counts, and of it the first line and the last: whatever stands between was committed
before the last line was entered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import attrs

from txtopo.errors import ConfigError, DivergenceError
from txtopo.journal.journal import (
    FOLDER,
    JournalEntry,
    JournalHeader,
    JournalTable,
    journal_files,
)
from txtopo.records import DAMAGE, from_json

METADATA_DIR = "_txtopo"
"""The folder beside the tables where a topology keeps its own files."""

_BLOCK_BYTES = 64 * 1024


@attrs.frozen
class JournalEnd:
    """The newest file of a journal: how it begins and how it ends."""

    header: JournalHeader
    last: JournalEntry | None
    """Its last entry; None if there is none yet."""

    def bound(self, txids: Mapping[str, int | None]) -> int:
        """Return the last txid that is committed for certain.

        An entry without a table cannot be asked whether it counts, so it does not count yet.

        Args:
            txids: the last txid that each table has got to, by state; states without a table are left out.
        """
        if self.last is None:
            return self.header.committed
        reached = [txids[name] for name in self.last.states if name in txids]
        is_written = bool(reached) and all(txid is not None and txid >= self.last.last for txid in reached)
        return self.last.last if is_written else self.last.first - 1


def read_end(folder: Path) -> JournalEnd | None:
    """Return the end of a journal; None if there is no journal.

    A file whose first line was not written whole is passed over: its coordinator has written nothing yet.

    Args:
        folder: the journal's folder.

    Raises:
        DivergenceError: the newest file is damaged.
    """
    for path in reversed(journal_files(folder)):
        with path.open("rb") as file:
            first = file.readline()
            if not first.endswith(b"\n"):
                continue
            last = _last_line(file, len(first))
        try:
            return JournalEnd(
                from_json(json.loads(first), JournalHeader),
                None if last is None else from_json(json.loads(last), JournalEntry),
            )
        except DAMAGE as error:
            raise _damaged(path, error) from error
    return None


def last_writes(folder: Path, epoch: int, names: Collection[str], txid: int) -> dict[str, int | None] | None:
    """Return the last transaction up to ``txid`` that each of some states was written as of.

    Args:
        folder: the journal's folder.
        epoch: the epoch of its newest file.
        names: the states.
        txid: the last transaction to look at.

    Raises:
        DivergenceError: the newest file is damaged.

    Returns:
        The txids, None where nothing was written; None for all if the newest file does not go back so far, or is no
        longer of that epoch.
    """
    for path in reversed(journal_files(folder)):
        with path.open("rb") as file:
            first = file.readline()
            if not first.endswith(b"\n"):
                continue
            try:
                header = from_json(json.loads(first), JournalHeader)
                if header.epoch != epoch or header.committed > txid:
                    return None
                found: dict[str, int | None] = {}
                wanted = {name: json.dumps(name).encode() for name in names}
                for line in _lines_backwards(file, len(first)):
                    if not any(text in line for text in wanted.values()):  # most of a table that rests for long
                        continue
                    entry = from_json(json.loads(line), JournalEntry)
                    if entry.last <= txid:
                        own = wanted.keys() & entry.states.keys()
                        found |= dict.fromkeys(own, entry.last)
                        wanted = {name: text for name, text in wanted.items() if name not in own}
                    if not wanted:
                        break
            except DAMAGE as error:
                raise _damaged(path, error) from error
            return {name: found.get(name, header.states.get(name)) for name in names}
    return None


def metadata_dir_below(output: str | os.PathLike[str]) -> Path:
    """Return the folder that a topology keeps its own files in.

    Args:
        output: that folder, or the one that holds it and the tables.

    Raises:
        ConfigError: there is no journal.
    """
    folder = Path(output)
    for metadata_dir in (folder / METADATA_DIR, folder):
        if journal_files(metadata_dir / FOLDER):
            return metadata_dir
    metadata_dir = folder if folder.name == METADATA_DIR else folder / METADATA_DIR
    raise ConfigError(
        f"there is no journal in {metadata_dir / FOLDER}: give the folder that holds a topology's tables and its "
        f"folder {METADATA_DIR!r}; a topology has a journal unless topology.journal.bytes.max is 0"
    )


def metadata_dir_with_journal(metadata_dir: Path) -> Path:
    """Return the folder that a topology keeps its own files in, if there is a journal in it.

    Raises:
        ConfigError: there is none.
    """
    if journal_files(metadata_dir / FOLDER):
        return metadata_dir
    raise ConfigError(
        f"there is no journal in {metadata_dir / FOLDER}: run the topology first, from the same folder and with the "
        "same settings; it has a journal unless topology.journal.bytes.max is 0"
    )


def table_path(metadata_dir: Path, table: JournalTable) -> str:
    """Return where a table of the journal lies.

    Args:
        metadata_dir: the folder that the journal's folder lies in.
        table: the table, as a header has it.
    """
    return table.address if "://" in table.address else str(metadata_dir.parent / table.address)


def _damaged(path: Path, error: Exception) -> DivergenceError:
    return DivergenceError(
        f"the journal's file {path} can't be read ({error}): it is damaged; restore it, or move the "
        "journal's folder away to begin a new one"
    )


def _last_line(file: BinaryIO, start: int) -> bytes | None:
    """Return the last whole line from an offset on, None if there is none; what follows it was cut off."""
    return next(_lines_backwards(file, start), None)


def _lines_backwards(file: BinaryIO, start: int) -> Iterator[bytes]:
    """Yield the whole lines from an offset on, the last one first; what follows it was cut off."""
    position = file.seek(0, os.SEEK_END)
    blocks: list[bytes] = []  # of a line whose begin is not read yet, the last one first
    is_cut_off = True
    while position > start:
        size = min(_BLOCK_BYTES, position - start)
        position -= size
        file.seek(position)
        *before, end = file.read(size).split(b"\n")
        blocks.append(end)
        for own in reversed(before):
            if not is_cut_off:
                yield b"".join(reversed(blocks))
            is_cut_off = False
            blocks = [own]
    if not is_cut_off:
        yield b"".join(reversed(blocks))
