"""When upkeep is due, and how long what is kept is kept."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import attrs

from txtopo.api.arguments import check_positive
from txtopo.api.state import History
from txtopo.errors import ConfigError

RETENTION_HOURS_MIN = 7 * 24
"""The minimum retention of vacuum: Delta's default."""

_LOG_RETENTION = "delta.logRetentionDuration"

_LOG_HOURS = 30 * 24
"""How long Delta keeps log entries of tables without that property."""

_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+([a-z]+?)s?", re.IGNORECASE)

_UNIT_SECS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}

FILE_RETENTION = "delta.deletedFileRetentionDuration"

REMOVALS_SECS = 7 * 24 * 3600
"""How long checkpoints of tables without that property know of a removed file."""

ENTRIES_SECS = 240
"""How long log entries stay at least, so that a put that comes late finds its number taken."""


@attrs.frozen
class Upkeep:
    """The schedule of upkeep.

    Args:
        every_writes: the number of own writes between two rounds; a round makes a checkpoint if that is worth it.
        files_max: small files are combined when that saves at least this many.
        vacuum_retention_hours: how long unreferenced files are kept, in hours; None: as long as the run says.
        unbounded_hours: how long they are then if the run does not say; None: forever.
        history: what a run keeps of the past; None outside of one.
        grown_rows: how many rows a table must grow by until upkeep comes before its writes are many: less is not worth
            a round.
        kept_per_version: a checkpoint has every file that is kept. So it is made once there is a version more for so
            many of them, or many versions more: one every 50 writes took 7 % of a core after a minute of 50 a second,
            and what a second costs grew with the square of its writes. A reader of the log reads a twentieth more.
        clean_up_checkpoints: removing what is too old lists all files, so it follows only every so-many-th checkpoint,
            including the first.
        clean_up_secs: how often it follows at least, where only what is recent is kept.
        clean_up_secs_remote: the same in an object store, where each file of a log that it reads is a request.
        trust_secs: how long a deletion trusts its last look at the table.
    """

    every_writes: int = attrs.field(default=50)
    files_max: int = attrs.field(default=32)
    vacuum_retention_hours: int | None = attrs.field(default=None)
    unbounded_hours: int | None = None
    history: History | None = None
    grown_rows: int = 1_000_000
    kept_per_version: int = 20
    clean_up_checkpoints: int = 20
    clean_up_secs: float = 60
    clean_up_secs_remote: float = 300
    trust_secs: float = 1

    @every_writes.validator
    @files_max.validator
    def _check_positive(self, attribute: attrs.Attribute[int], value: int) -> None:
        check_positive(attribute.name, value)

    @vacuum_retention_hours.validator
    def _check_retention(self, _attribute: object, value: int | None) -> None:
        if value is not None and value < RETENTION_HOURS_MIN:
            raise ConfigError(
                f"vacuum_retention_hours of a table is {value}; it must be at least "
                f"{RETENTION_HOURS_MIN}, or recovery could miss files that it needs"
            )

    def is_due(self, writes: int, rows_grown: int, rows_before: int) -> bool:
        """Return whether upkeep is due, by the writes and the rows more since the last one, and the rows before."""
        return writes >= self.every_writes or rows_grown > max(self.grown_rows, rows_before // 2)

    @property
    def is_recent_kept(self) -> bool:
        """Whether of versions that are not recent those of points alone are kept."""
        return self.history is not None and self.history.recent_secs is not None

    @property
    def points(self) -> tuple[int, ...]:
        """The transactions whose versions stay."""
        return self.history.points if self.history is not None and self.is_recent_kept else ()

    @property
    def kept(self) -> set[int]:
        """The points, and the last committed transaction, which may become one."""
        standing = self.history.committed if self.history is not None and self.is_recent_kept else 0
        return {*self.points, standing} - {0}

    @property
    def now_secs(self) -> float:
        """The time that ages are of."""
        return self.history.now_secs if self.history is not None and self.is_recent_kept else time.time()

    @property
    def files_secs(self) -> int | None:
        """How long files are kept that no version needs any more, points aside; None: for ever."""
        history, hours = self.history, self.vacuum_retention_hours
        if history is not None and history.recent_secs is not None:
            return max(history.recent_secs, (hours or 0) * 3600)
        hours = self.unbounded_hours if hours is None else hours
        if hours is None:
            return None
        return max(hours, 0 if history is None else history.rewind_hours) * 3600

    def entries_secs(self, configuration: Mapping[str, str | None]) -> int | None:
        """Return how long log entries are kept, points aside, by the table's properties; None: for ever."""
        if self.is_recent_kept:
            return max(ENTRIES_SECS, self.files_secs or 0)
        # Without the entries of its time, nobody knows when a file was removed.
        hours = max(_LOG_HOURS if self.history is None else self.history.rewind_hours, (self.files_secs or 0) // 3600)
        if hours <= _LOG_HOURS or _LOG_RETENTION in configuration:
            return log_secs(configuration) or None
        return hours * 3600

    def retentions(self, configuration: Mapping[str, str | None]) -> dict[str, str]:
        """Return the properties that a table with these lacks so that others leave all versions whole."""
        if self.history is None or not self.is_recent_kept:
            return {}
        hours = max(self.history.rewind_hours, (self.files_secs or 0) // 3600)
        retentions = {_LOG_RETENTION: _LOG_HOURS * 3600, FILE_RETENTION: REMOVALS_SECS}
        return {
            name: f"interval {hours} hours"
            for name, default_secs in retentions.items()
            if _secs_of(configuration.get(name), default_secs) < hours * 3600
        }


def log_secs(configuration: Mapping[str, str | None]) -> int:
    """Return how long the entries of a table's log surely stay, by its properties; 0 if those are not understood."""
    return _secs_of(configuration.get(_LOG_RETENTION), _LOG_HOURS * 3600)


def _secs_of(interval: str | None, default_secs: int) -> int:
    """Return how long an interval is, as properties have it; 0 if it is not understood."""
    if interval is None:
        return default_secs
    match = _INTERVAL.fullmatch(interval.strip())
    return 0 if match is None else int(match[1]) * _UNIT_SECS.get(match[2].lower(), 0)
