"""Making files outlive a loss of power: delta-rs renames its files into place, and does not sync them."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from state.delta_location import LOG_FOLDER
from txtopo.failpoints import reach

__all__ = ["sync_folder", "sync_version", "write_durably"]


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, and stays there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    reach("delta.stage.drafted")
    draft.replace(path)
    sync_folder(path.parent)


def sync_version(folder: Path, version: int, files: Collection[str]) -> None:
    """Sync what a Delta write made: its data files, its log entry, and the folders they are in.

    Args:
        folder: the table.
        version: the version that was written.
        files: the absolute paths of its new data files.
    """
    log = folder / LOG_FOLDER
    for path in (*files, str(log / f"{version:020d}.json")):
        _sync(path)
    sync_folder(folder)
    sync_folder(log)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder."""
    _sync(str(folder))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
