"""Find the damaged file of a Delta table that can't be read: one that is missing, truncated or not Delta's.

delta-rs' errors often do not name the file and add a page of native stack frames. So if delta-rs fails, the files are
checked here. Only tables in local folders can be checked.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from txtopo.errors import StateFailure
from txtopo.files.durable import has_descriptor
from txtopo.files.folder import Folder
from txtopo.text.native import native_text

LOG_FOLDER = "_delta_log"
"""The folder of a table's log; its presence makes a folder a Delta table."""

_VERSION = re.compile(r"^(\d{20})\.json$")
_LAST_CHECKPOINT = "_last_checkpoint"
_CHECKPOINT = re.compile(r"^\d{20}\.checkpoint(\..*)?\.parquet$")


def damage_of_log(folder: Path) -> str | None:
    """Describe the newest damaged file of a table's log; None if no file is damaged.

    The table may be written meanwhile, and a listing of a folder lacks some of the files that come and go during it. So
    only what two looks find is damage.
    """
    damage = _damage_of_log(folder)
    return damage if damage is None or _damage_of_log(folder) == damage else None


def _damage_of_log(folder: Path) -> str | None:
    log = folder / LOG_FOLDER
    if not log.is_dir():
        return None
    names = sorted((path.name for path in log.iterdir()), reverse=True)
    for name in names:
        if _CHECKPOINT.match(name) and not _is_parquet(str(log / name)):
            return f"{log / name} is damaged: it is not a complete Parquet file"
    versions = [name for name in names if _VERSION.match(name)]
    for name in versions:
        reason = _damage_of_version(log / name)
        if reason is not None:
            return f"{log / name} is damaged: {reason}"
    numbers = [int(name[:20]) for name in versions]
    newest = max((int(name[:20]) for name in names if _CHECKPOINT.match(name)), default=-1)
    for later, earlier in itertools.pairwise(numbers):
        if later != earlier + 1 and later - 1 > newest:  # before a checkpoint, entries go
            return f"{log / f'{later - 1:020d}.json'} is missing"
    if numbers and numbers[-1] > 0 and not any(_CHECKPOINT.match(name) for name in names):
        return f"the checkpoint of {log} is missing, and so is all that came before {log / versions[-1]}"
    return None


def set_checkpoints_aside(folder: Folder) -> bool:
    """Set aside what keeps a log from being read although it has all entries; return whether there was any.

    A power failure may leave ``_last_checkpoint`` without the checkpoint that it names, or a checkpoint that is not
    complete. The one only saves readers a look at the log's folder. The other is set aside if the log's entries and an
    older checkpoint are enough without it. Whoever reads may do it, at any moment: nothing is lost by it.
    """
    names = sorted(item.path.removeprefix(f"{LOG_FOLDER}/") for item in folder.list(LOG_FOLDER))
    checkpoints = [name for name in names if _CHECKPOINT.match(name)]
    damaged = [name for name in checkpoints if not _is_parquet(pa.BufferReader(folder.get(f"{LOG_FOLDER}/{name}")))]
    sound = {int(name[:20]) for name in checkpoints} - {int(name[:20]) for name in damaged}
    aside = damaged if _is_complete([int(name[:20]) for name in names if _VERSION.match(name)], sound) else []
    if _LAST_CHECKPOINT in names and not _names_one_of(folder.get(f"{LOG_FOLDER}/{_LAST_CHECKPOINT}"), sound):
        aside = [*aside, _LAST_CHECKPOINT]
    for name in aside:
        # A crash after this leaves both, and the next reader begins again.
        folder.put(f"{LOG_FOLDER}/{name.replace('checkpoint', 'aside')}", folder.get(f"{LOG_FOLDER}/{name}"))
        folder.delete(f"{LOG_FOLDER}/{name}")
    return bool(aside)


def _is_complete(entries: Sequence[int], checkpoints: Collection[int]) -> bool:
    """Whether the newest version can be read from a log's entries and some checkpoints."""
    if not entries:
        return False
    newest = max(checkpoints, default=None)
    needed = range(0 if newest is None else newest + 1, max(entries) + 1)
    return set(needed) <= set(entries)


def _names_one_of(hint: bytes, checkpoints: Collection[int]) -> bool:
    try:
        return json.loads(hint)["version"] in checkpoints
    except (ValueError, TypeError, KeyError):
        return False


def empty_version(folder: Path, version: int) -> str | None:
    """Describe the damage if the log file of a version is empty; delta-rs reads it as a version without changes."""
    path = folder / LOG_FOLDER / f"{version:020d}.json"
    is_empty = path.is_file() and path.stat().st_size == 0
    return f"{path} is damaged: it is empty, and the change of that version is lost" if is_empty else None


def damage_of_data(folder: Path, table: DeltaTable) -> str | None:
    """Describe the first missing or truncated data file of a handle's version; None if there is none."""
    try:
        for path, size in _data_files(table):
            place = folder / path
            if not place.is_file():
                return f"its data file {place} is missing"
            if place.stat().st_size != size:
                return f"its data file {place} has {place.stat().st_size} bytes, but had {size} when it was written"
    except (DeltaError, OSError, pa.ArrowException):  # the data is not the cause
        return None
    return None


def state_failure(
    message: str, error: Exception, folder: Path | None, table: DeltaTable | None = None, *, txid: int | None = None
) -> StateFailure:
    """Return the error for a failed operation on a table, with the damaged file if ``folder``, a local one, has it."""
    found = None
    if folder is not None and has_descriptor():  # without one, nothing can be read, damaged or not
        with contextlib.suppress(OSError):
            found = damage_of_log(folder) or (None if table is None else damage_of_data(folder, table))
    text = message if found is None else f"{message}: {found}; restore it, for example from a backup"
    return StateFailure(text, txid=txid, cause=f"{type(error).__name__}: {native_text(error)}")


def unsupported(error: BaseException) -> str | None:
    """Say what to do with a table that delta-rs can't read because of what somebody has turned on; None if it can."""
    _, is_found, reason = native_text(error).partition("Unsupported: ")
    if not is_found:
        return None
    return (
        f"somebody has given it a feature that neither txtopo nor delta-rs knows ({reason.splitlines()[0]}), so txtopo "
        "has no way back from there. Drop the feature with what has set it, or restore the table from a backup"
    )


def _damage_of_version(path: Path) -> str | None:
    lines = path.read_bytes().splitlines()
    if not lines:
        return "it is empty"
    for number, line in enumerate(lines, 1):
        try:
            action: Any = json.loads(line) if line.strip() else {}
        except ValueError:
            return f"line {number} of {len(lines)} is not JSON: it was truncated or overwritten"
        if not isinstance(action, dict):
            return f"line {number} of {len(lines)} is not an action of Delta"
    return None


def _is_parquet(source: str | pa.BufferReader) -> bool:
    """Whether all of a file can be read."""
    try:
        with pq.ParquetFile(source) as file:
            for _ in file.iter_batches():
                pass
    except (OSError, pa.ArrowException):
        return False
    return True


def _data_files(table: DeltaTable) -> Iterator[tuple[str, int]]:
    added = pa.table(table.get_add_actions(flatten=True))
    for path, size in zip(added["path"].to_pylist(), added["size_bytes"].to_pylist(), strict=True):
        yield unquote(path), size
