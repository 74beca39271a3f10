"""Sync files to disk, because delta-rs renames its files into place without syncing them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from state.delta.log.location import LOG_FOLDER
from txtopo.durable import sync_path
from txtopo.failpoints import reach

__all__ = ["sync_files", "sync_log", "sync_version", "write_durably"]

_VERSION_DIGITS = 20
_IS_CHECKPOINT = ".checkpoint"
_LAST_CHECKPOINT = "_last_checkpoint"


def write_durably(path: Path, content: bytes) -> None:
    """Write a file atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    reach("delta.stage.drafted")
    # A crash before this leaves a draft, which the next Staging.discard() removes. A power failure before the sync of
    # the folder may bring the draft's name back.
    draft.replace(path)
    sync_path(path.parent)


def sync_version(folder: Path, version: int, files: Collection[str]) -> None:
    """Sync a Delta write: its new data files, given by absolute path, its log entry, and their folders."""
    log = folder / LOG_FOLDER
    sync_files(files)
    sync_path(log / f"{version:020d}.json")
    sync_path(folder)
    sync_path(log)


def sync_files(files: Collection[str]) -> None:
    """Sync data files, given by absolute path, and their folders."""
    for path in (*files, *{os.path.dirname(path) for path in files}):  # noqa: PTH120 - strings, and many
        sync_path(path)


def sync_log(folder: Path) -> None:
    """Sync a table's log entries since its last checkpoint, the checkpoint itself, and the table's folders.

    This includes entries of others, for example of a coordinator that died before it had synced them.
    """
    log = folder / LOG_FOLDER
    names = [path.name for path in log.iterdir()]
    checkpoint = max((name[:_VERSION_DIGITS] for name in names if _IS_CHECKPOINT in name), default="")
    for name in names:
        version = name[:_VERSION_DIGITS]
        if name == _LAST_CHECKPOINT or (version.isdecimal() and version >= checkpoint):
            with contextlib.suppress(FileNotFoundError):  # another writer's draft
                sync_path(log / name)
    for parent in (log, folder, folder.parent):
        sync_path(parent)
