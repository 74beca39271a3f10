"""Sync what txtopo has not written itself, because delta-rs renames its files into place without syncing them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from state.delta.log.damage import LOG_FOLDER
from txtopo.files.durable import sync_path

CHECKPOINT = ".checkpoint"
"""What the names of checkpoints have in them, after the version."""

LAST_CHECKPOINT = "_last_checkpoint"
"""The file that names a log's newest checkpoint to readers, who then need not look for it."""

_VERSION_DIGITS = 20


def sync_files(files: Iterable[Path]) -> None:
    """Sync data files and their folders."""
    files = list(files)
    for path in (*files, *{path.parent for path in files}):
        sync_path(path)


def sync_log(root: Path) -> None:
    """Sync a table's entries since its checkpoint, also others', the checkpoint, and the table's folders."""
    log = root / LOG_FOLDER
    names = [path.name for path in log.iterdir()]
    checkpoint = max((name[:_VERSION_DIGITS] for name in names if CHECKPOINT in name), default="")
    for name in names:
        version = name[:_VERSION_DIGITS]
        if name == LAST_CHECKPOINT or (version.isdecimal() and version >= checkpoint):
            with contextlib.suppress(FileNotFoundError):  # another writer's draft
                sync_path(log / name)
    for parent in (log, root, root.parent):
        sync_path(parent)
