"""Syncs files and folders to disk, so that they survive a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: str | Path) -> None:
    """Sync the content of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and sync the names of the new ones."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_path(folder.parent)
