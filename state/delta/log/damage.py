"""What is wrong with the files of a Delta table that can't be read: which one is gone, cut off or not Delta's.

delta-rs says what it stumbled over but often not in which file, and adds a page of native stack frames. So where it
fails, the files are looked at here. Only a table in a local folder can be looked at.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from txtopo.errors import StateFailure

__all__ = ["LOG_FOLDER", "damage_of_data", "damage_of_log", "empty_version", "plain_text", "state_failure"]

LOG_FOLDER = "_delta_log"
"""The folder of a table that makes it a Delta table."""

_VERSION = re.compile(r"^(\d{20})\.json$")
_CHECKPOINT = re.compile(r"^\d{20}\.checkpoint(\..*)?\.parquet$")
_FRAME = re.compile(r"^\s*\d+: \S")
"""A line of a native backtrace."""


def plain_text(error: BaseException) -> str:
    """Return what an error of delta-rs says, without the native stack frames."""
    lines: list[str] = []
    for line in str(error).splitlines():
        if _FRAME.match(line) or line.strip().startswith("stack backtrace"):
            break
        lines.append(line)
    return "\n".join(lines).strip() or type(error).__name__


def damage_of_log(folder: Path) -> str | None:
    """Return in words what is wrong with the newest file of a table's log that is not as it must be; None if all are.

    Args:
        folder: the table's folder.
    """
    log = folder / LOG_FOLDER
    if not log.is_dir():
        return None
    names = sorted((path.name for path in log.iterdir()), reverse=True)
    for name in names:
        if _CHECKPOINT.match(name) and not _is_parquet(log / name):
            return f"{log / name} is damaged: it is no whole Parquet file"
    versions = [name for name in names if _VERSION.match(name)]
    for name in versions:
        reason = _damage_of_version(log / name)
        if reason is not None:
            return f"{log / name} is damaged: {reason}"
    numbers = [int(name[:20]) for name in versions]
    for later, earlier in itertools.pairwise(numbers):
        if later != earlier + 1:
            return f"{log / f'{later - 1:020d}.json'} is gone"
    return None


def empty_version(folder: Path, version: int) -> str | None:
    """Return in words that the log file of a version is empty, which delta-rs takes for a version that did nothing."""
    path = folder / LOG_FOLDER / f"{version:020d}.json"
    is_empty = path.is_file() and path.stat().st_size == 0
    return f"{path} is damaged: it is empty, whatever made that version is lost" if is_empty else None


def damage_of_data(folder: Path, table: DeltaTable) -> str | None:
    """Return in words which data file of a handle's version is gone or cut off; None if none is.

    Args:
        folder: the table's folder.
        table: the handle.
    """
    try:
        for path, size in _data_files(table):
            place = folder / path
            if not place.is_file():
                return f"its data file {place} is gone"
            if place.stat().st_size != size:
                return f"its data file {place} has {place.stat().st_size} bytes, and {size} when it was written"
    except (DeltaError, OSError, pa.ArrowException):  # then it is not the data that is to blame
        return None
    return None


def state_failure(
    message: str, error: Exception, folder: Path | None, table: DeltaTable | None = None, *, txid: int | None = None
) -> StateFailure:
    """Return the failure of a table, with the file that is to blame where one is found.

    Args:
        message: what failed, and where.
        error: what was raised.
        folder: the table's folder; None in an object store.
        table: a handle of it, if there is one.
        txid: the transaction it failed for.
    """
    found = None
    if folder is not None:
        found = damage_of_log(folder) or (None if table is None else damage_of_data(folder, table))
    text = message if found is None else f"{message}: {found}; bring it back, for example from a backup"
    return StateFailure(text, txid=txid, cause=f"{type(error).__name__}: {plain_text(error)}")


def _damage_of_version(path: Path) -> str | None:
    lines = path.read_bytes().splitlines()
    if not lines:
        return "it is empty"
    for number, line in enumerate(lines, 1):
        try:
            action: Any = json.loads(line) if line.strip() else {}
        except ValueError:
            return f"line {number} of {len(lines)} is no JSON: it was cut off or overwritten"
        if not isinstance(action, dict):
            return f"line {number} of {len(lines)} is no action of Delta's"
    return None


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            pq.ParquetFile(file)
    except (OSError, pa.ArrowException):
        return False
    return True


def _data_files(table: DeltaTable) -> Iterator[tuple[str, int]]:
    added = pa.table(table.get_add_actions(flatten=True))
    for path, size in zip(added["path"].to_pylist(), added["size_bytes"].to_pylist(), strict=True):
        yield unquote(path), size
