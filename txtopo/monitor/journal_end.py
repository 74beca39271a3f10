"""The end of a journal: what a reader needs who asks how far all tables have got together.

Only the newest file counts, and of it the first line and the last: whatever stands between was committed
before the last line was entered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import attrs

from txtopo.errors import ConfigError, DivergenceError
from txtopo.monitor.journal import (
    FOLDER,
    JournalEntry,
    JournalHeader,
    JournalTable,
    decode_entry,
    decode_header,
    journal_files,
)

HOME = "_txtopo"
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
                decode_header(json.loads(first)), None if last is None else decode_entry(json.loads(last))
            )
        except (ValueError, TypeError, KeyError) as error:
            raise DivergenceError(
                f"the journal's file {path} can't be read ({error}): it is damaged; restore it, or move the "
                "journal's folder away to begin a new one"
            ) from error
    return None


def home_below(output: str | os.PathLike[str]) -> Path:
    """Return the folder that a topology keeps its own files in.

    Args:
        output: that folder, or the one that holds it and the tables.

    Raises:
        ConfigError: there is no journal.
    """
    folder = Path(output)
    for home in (folder / HOME, folder):
        if journal_files(home / FOLDER):
            return home
    raise ConfigError(
        f"there is no journal in {folder / HOME / FOLDER}: give the folder that holds a topology's tables and its "
        f"folder {HOME!r}; a topology has a journal unless topology.journal.bytes.max is 0"
    )


def table_path(home: Path, table: JournalTable) -> str:
    """Return where a table of the journal lies.

    Args:
        home: the folder that the journal's folder lies in.
        table: the table, as a header has it.
    """
    return table.address if "://" in table.address else str(home.parent / table.address)


def _last_line(file: BinaryIO, start: int) -> bytes | None:
    """Return the last whole line from an offset on, None if there is none; what follows it was cut off."""
    position = file.seek(0, os.SEEK_END)
    tail = b""
    while position > start and tail.count(b"\n") < 2:  # noqa: PLR2004 - the line's end, and that of the line before
        size = min(_BLOCK_BYTES, position - start)
        position -= size
        file.seek(position)
        tail = file.read(size) + tail
    lines = tail.split(b"\n")
    return lines[-2] if len(lines) > 1 else None
