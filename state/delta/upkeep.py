"""Upkeep of a Delta table: checkpoints, compaction and vacuum, between writes and with the same fence.

- A *checkpoint* of the log, and the removal of log entries older than the table's ``delta.logRetentionDuration``
  (30 days by default).
- *Compaction*, if there are more than ``files_max`` data files: the current version is streamed into the next one.
  ``optimize.compact`` would rewrite less, but does not stop a coordinator that has lost its lead.
- *Vacuum*, only if a retention of at least 7 days is configured, because recovery and snapshots read old versions.
  Delta's vacuum skips the folder that txtopo writes data files to (see :mod:`state.delta.log.data_files`), so that
  folder is cleaned here, by the same rule.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import unquote

import attrs
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from state.delta.log.data_files import DATA_FOLDER, files_of
from state.delta.log.location import LOG_FOLDER
from state.delta.log.ownership import NO_HOOKS, Fence
from txtopo.errors import ConfigError

__all__ = ["RETENTION_HOURS_MIN", "Upkeep", "compact", "vacuum", "vacuum_data_folder"]

RETENTION_HOURS_MIN = 7 * 24
"""The minimum retention of vacuum: Delta's default."""

_CHECKPOINTS_PER_VACUUM = 20
"""Vacuum lists all files, so it runs only at every 20th checkpoint, including the first."""


@attrs.frozen
class Upkeep:
    """The schedule of upkeep.

    Args:
        every_writes: the number of own writes between two checkpoints.
        files_max: the maximum number of data files before they are compacted.
        vacuum_retention_hours: how long unreferenced files are kept, in hours; None: forever.
    """

    every_writes: int = attrs.field(default=50)
    files_max: int = attrs.field(default=32)
    vacuum_retention_hours: int | None = attrs.field(default=None)

    @every_writes.validator
    @files_max.validator
    def _check_positive(self, attribute: attrs.Attribute[int], value: int) -> None:
        if value < 1:
            raise ConfigError(f"{attribute.name} of a table is {value}; it must be at least 1")

    @vacuum_retention_hours.validator
    def _check_retention(self, _attribute: object, value: int | None) -> None:
        if value is not None and value < RETENTION_HOURS_MIN:
            raise ConfigError(
                f"vacuum_retention_hours of a table is {value}; it must be at least "
                f"{RETENTION_HOURS_MIN}, or recovery could miss files that it needs",
            )

    def is_vacuum_due(self, checkpoints: int) -> bool:
        """Whether vacuum follows the checkpoint of this number, counted from 0."""
        return self.vacuum_retention_hours is not None and checkpoints % _CHECKPOINTS_PER_VACUUM == 0


def compact(table: DeltaTable, fence: Fence) -> None:
    """Stream the handle's version into the next one, in as few files as possible."""
    write_deltalake(
        table,
        table.scan(),
        mode="overwrite",
        commit_properties=fence.properties(),
        post_commithook_properties=NO_HOOKS,
    )


def vacuum(table: DeltaTable, retention_hours: int) -> None:
    """Remove files that no version of the last ``retention_hours`` refers to, and update the handle."""
    table.vacuum(retention_hours, dry_run=False, full=True, post_commithook_properties=NO_HOOKS)
    table.update_incremental()


def vacuum_data_folder(table: DeltaTable, folder: Path, retention_hours: int, staged: Collection[str]) -> None:
    """Remove files that txtopo wrote and that no version of the last ``retention_hours`` refers to.

    This includes files of folds and groups that were never written to the log. A file is kept if it is younger than the
    retention, is part of the handle's version, was removed from the table within the retention, or is among ``staged``,
    the files that staged writes will add. The log must have a checkpoint.
    """
    if not (folder / DATA_FOLDER).is_dir():
        return
    oldest_secs = time.time() - retention_hours * 3600
    old = {
        f"{DATA_FOLDER}/{path.name}" for path in (folder / DATA_FOLDER).iterdir() if path.stat().st_mtime < oldest_secs
    }
    old -= set(staged)
    if not old:
        return
    old -= {file.path for file in files_of(table)}
    old -= {path for path, removed_ms in _removals(folder, table.version()) if removed_ms >= oldest_secs * 1000}
    for path in old:
        (folder / path).unlink(missing_ok=True)


def _removals(folder: Path, version: int) -> Iterator[tuple[str, int]]:
    """Yield each file removed up to a version and the time in ms, from the last checkpoint and the log after it."""
    log = folder / LOG_FOLDER
    try:
        checkpoint = int(json.loads((log / "_last_checkpoint").read_bytes())["version"])
    except (ValueError, KeyError) as error:
        raise OSError(f"{log / '_last_checkpoint'} names no version") from error
    names = list(log.glob(f"{checkpoint:020d}.checkpoint*.parquet"))
    if not names:
        raise FileNotFoundError(f"{log} has no checkpoint of version {checkpoint}, which is its last one")
    for name in names:
        rows = pq.ParquetFile(name).read(columns=["remove.path", "remove.deletionTimestamp"])
        for row in rows["remove"].to_pylist():
            if row is not None and row["path"] is not None:
                yield unquote(row["path"]), row["deletionTimestamp"] or 0
    for later in range(checkpoint + 1, version + 1):
        for line in (log / f"{later:020d}.json").read_text(encoding="utf-8").splitlines():
            action = json.loads(line).get("remove") if '"remove"' in line else None
            if action is not None:
                yield unquote(action["path"]), action.get("deletionTimestamp") or 0
