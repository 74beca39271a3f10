"""Keeping a Delta table healthy: checkpoints, compaction, vacuum. Between writes, and fenced as they are.

- A *checkpoint* of the log, and removal of log entries older than the table's ``delta.logRetentionDuration``
  (30 days by default).
- *Compaction* once there are more than ``files_max`` data files: the table is streamed from its version
  into the next one. ``optimize.compact`` would rewrite less, but it lets a coordinator through that has lost
  its lead.
- *Vacuum*, only where a retention is configured, of at least seven days: recovery and snapshots read
  old versions.
"""

from __future__ import annotations

import attrs
from deltalake import DeltaTable, write_deltalake

from state.delta_fence import NO_HOOKS, Fence
from txtopo.errors import ConfigError

__all__ = ["RETENTION_HOURS_MIN", "Upkeep", "compact", "vacuum"]

RETENTION_HOURS_MIN = 7 * 24
"""The least retention of vacuum: Delta's own default."""

_CHECKPOINTS_PER_VACUUM = 20
"""Vacuum lists all files, so it runs at every 20th checkpoint only, the first included."""


@attrs.frozen
class Upkeep:
    """When to do what.

    Args:
        every_writes: own writes between two checkpoints.
        files_max: the most data files before they are compacted.
        vacuum_retention_hours: how long files that are no longer referenced stay; None: for ever.
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
    """Stream the handle's version into the next one, in as few files as it takes."""
    write_deltalake(
        table,
        table.scan(),
        mode="overwrite",
        commit_properties=fence.properties(),
        post_commithook_properties=NO_HOOKS,
    )


def vacuum(table: DeltaTable, retention_hours: int) -> None:
    """Remove files that no version of the last ``retention_hours`` refers to; bring the handle up to date."""
    table.vacuum(retention_hours, dry_run=False, full=True, post_commithook_properties=NO_HOOKS)
    table.update_incremental()
