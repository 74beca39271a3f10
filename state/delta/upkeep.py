"""Upkeep of a Delta table's log and folder: checkpoints and vacuum; :mod:`state.delta.merging` has that of its files.

- *When*: after ``every_writes`` writes, or once the table has grown by many rows and by half. So where rows expire,
  large writes leave no more behind than small ones.
- A *checkpoint* of the log, and the removal of log entries older than the table's ``delta.logRetentionDuration``
  (30 days by default), ``topology.rewind.hours`` and the retention of vacuum. What they cost grows with the log, and no
  write depends on them, so a thread does them while writes go on (:class:`LogUpkeep`).
- *Vacuum*, in the same thread, and only if a retention of at least 7 days is configured, because recovery and snapshots
  read old versions. It is not left to delta-rs, which skips the folder that txtopo writes data files to (see
  :mod:`state.delta.log.data_files`), and takes what the checkpoint no longer knows for nobody's (see
  :func:`_removed_since`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from state.delta.log.data_files import DATA_FOLDER, DataFile
from state.delta.log.entries import actions_of
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.ownership import Fence
from state.delta.log.sync import CHECKPOINT, LAST_CHECKPOINT, sync_log
from state.delta.log.vectors import places_of, vector_in
from txtopo.api.state import History
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder

__all__ = ["RETENTION_HOURS_MIN", "LogUpkeep", "Upkeep", "log_secs"]

RETENTION_HOURS_MIN = 7 * 24
"""The minimum retention of vacuum: Delta's default."""

GROWN_ROWS_MIN = 1_000_000
"""How many rows a table must grow by until upkeep comes before its writes are many: less is not worth a round."""

_LOG_RETENTION = "delta.logRetentionDuration"
_LOG_HOURS = 30 * 24
"""How long Delta keeps log entries of tables without that property."""

_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+([a-z]+?)s?", re.IGNORECASE)
_UNIT_SECS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}

_FILE_RETENTION = "delta.deletedFileRetentionDuration"
_REMOVALS_SECS = 7 * 24 * 3600
"""How long checkpoints of tables without that property know of a removed file."""

_CLOCKS_SECS = 3600
"""How far the clocks of writers and of the folder may be apart."""

_LOOK_SECS = 1
"""How long a deletion trusts its last look at the table."""

_LOG_ENTRY = re.compile(rf"{LOG_FOLDER}/(\d{{20}})\.(?:json|checkpoint\.parquet)")

_CHECKPOINTS_PER_CLEAN_UP = 20
"""Removing what is too old lists all files, so it follows only every 20th checkpoint, including the first."""


@attrs.frozen
class Upkeep:
    """The schedule of upkeep.

    Args:
        every_writes: the number of own writes between two checkpoints.
        files_max: small files are combined when that saves at least this many.
        vacuum_retention_hours: how long unreferenced files are kept, in hours; None: forever.
        history: what a run keeps of the past; None outside of one.
    """

    every_writes: int = attrs.field(default=50)
    files_max: int = attrs.field(default=32)
    vacuum_retention_hours: int | None = attrs.field(default=None)
    history: History | None = None

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

    def is_due(self, writes: int, rows_grown: int, rows_before: int) -> bool:
        """Return whether upkeep is due.

        Args:
            writes: how many writes there were since the last one.
            rows_grown: how many rows the table has more than then.
            rows_before: how many it had then.
        """
        return writes >= self.every_writes or rows_grown > max(GROWN_ROWS_MIN, rows_before // 2)

    @property
    def files_hours(self) -> int | None:
        """How long files are kept that no version needs any more, in hours; None: for ever."""
        hours = self.vacuum_retention_hours
        return hours if hours is None or self.history is None else max(hours, self.history.rewind_hours)

    def clean_log(self, table: DeltaTable, folder: Folder) -> None:
        """Remove log entries that are too old, behind a checkpoint that is durable."""
        # Without the entries of its time, vacuum does not know when a file was removed.
        hours = max(_LOG_HOURS if self.history is None else self.history.rewind_hours, self.files_hours or 0)
        if hours <= _LOG_HOURS or _LOG_RETENTION in table.metadata().configuration:
            table.cleanup_metadata()  # by the table's property, or Delta's default
            return
        oldest_secs = time.time() - hours * 3600
        entries = {item.path: item.modified_secs for item in folder.list(LOG_FOLDER)}
        numbers = {path: int(found[1]) for path in entries if (found := _LOG_ENTRY.fullmatch(path)) is not None}
        # The newest checkpoint that is too old itself: all later versions can be read from it on.
        kept = max((numbers[p] for p in numbers if p.endswith(".parquet") and entries[p] < oldest_secs), default=0)
        for path, number in numbers.items():  # oldest first: a crash leaves a log that begins later, without a gap
            if number < kept:
                folder.delete(path)


def log_secs(configuration: Mapping[str, str | None]) -> int:
    """Return how long the entries of a table's log surely stay, by its properties; 0 if those are not understood."""
    interval = configuration.get(_LOG_RETENTION)
    if interval is None:
        return _LOG_HOURS * 3600
    found = _INTERVAL.fullmatch(interval.strip())
    return 0 if found is None else int(found[1]) * _UNIT_SECS.get(found[2].lower(), 0)


class LogUpkeep:
    """Keeps the log of one table short, and its folder free of what nobody needs, in a thread beside the writes.

    A crash at any moment leaves the rows as they are: no step changes those of a version that is kept. The next round
    begins with the first step again.
    """

    def __init__(self, location: Location, fence: Fence) -> None:
        self._location = location
        self._fence = fence
        self._rounds = 0
        self._thread: ThreadPoolExecutor | None = None
        self._round: Future[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a round is under way."""
        return self._round is not None and not self._round.done()

    def begin(self, schedule: Upkeep, version: int, held: Iterable[DataFile]) -> None:
        """Begin a round; none may be under way.

        Args:
            schedule: how long what is kept is kept.
            version: the version to write a checkpoint of.
            held: the files of that version, and those of a write that is prepared.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "txtopo-upkeep")
        self._round = self._thread.submit(self._run, schedule, version, list(held))

    def end(self) -> None:
        """Wait for the round under way, and raise what the last one failed with, once.

        Raises:
            LostLead: a newer epoch has opened the table; nothing more was removed.
            Exception: one of :data:`WORLD_ERRORS`.
        """
        last, self._round = self._round, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait for the round under way, however it ends, and stop the thread; another round may begin afterwards."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _run(self, schedule: Upkeep, version: int, held: list[DataFile]) -> None:
        location, retention_hours = self._location, schedule.files_hours
        location.handle(version).create_checkpoint()
        made_secs = time.time()
        _check_last(location.folder, version)
        # The entries that it replaces may be removed once it is durable.
        if location.root is not None:
            sync_log(location.root)
        is_clean_up_due = self._rounds % _CHECKPOINTS_PER_CLEAN_UP == 0
        self._rounds += 1
        if not is_clean_up_due:
            return
        deletion = _Deletion(location, self._fence, version, held)
        deletion.look()  # a coordinator that leads may keep the log longer
        schedule.clean_log(deletion.table, location.folder)
        _remove_late(location.folder)
        if retention_hours is None:
            return
        oldest_secs = time.time() - retention_hours * 3600
        old = {item.path for item in location.folder.list(DATA_FOLDER) if item.modified_secs < oldest_secs}
        old.update(_old_outside(deletion.table, retention_hours))
        old -= deletion.needed
        if old:
            old.difference_update(_removed_since(oldest_secs, location, deletion.table, version, made_secs))
        deletion.delete(old)


def _check_last(folder: Folder, version: int) -> None:
    """Remove the name of the last checkpoint if that of a version, just made and named, is not the last one.

    1. A coordinator makes a checkpoint, and is paused before it names it.
    2. Others make later ones, and remove that one.
    3. It names it: readers that look for it there read nothing any more. Without a name, they list the log.
    """
    names = [item.path.removeprefix(f"{LOG_FOLDER}/") for item in folder.list(LOG_FOLDER, f"{version:020d}")]
    checkpoints = [name for name in names if CHECKPOINT in name]
    if not checkpoints or any(not name.startswith(f"{version:020d}.") for name in checkpoints):
        folder.delete(f"{LOG_FOLDER}/{LAST_CHECKPOINT}")


def _remove_late(folder: Folder) -> None:
    """Remove entries of the log that were put after a checkpoint of a later version, and that no version has.

    A writer that was stopped for longer than entries stay may put one of a number that is free again (see
    :meth:`~state.delta.writer.TableWriter.put`), and die before it removes it. An entry that has a protocol and
    metadata, of added columns for example, is a version by itself then, to whoever asks for that number or time.
    """
    items = {item.path.removeprefix(f"{LOG_FOLDER}/"): item for item in folder.list(LOG_FOLDER)}
    checkpoints = {name: item.modified_secs for name, item in items.items() if CHECKPOINT in name}
    first = min(checkpoints, default="")
    is_reached = True
    for number, name in enumerate(sorted(name for name in items if name.endswith(".json") and name < first)):
        # Those from 0 on are versions, and so is what a checkpoint has before it.
        is_reached = is_reached and name == f"{number:020d}.json"
        if not is_reached and items[name].modified_secs > min(checkpoints.values()):
            folder.delete(items[name].path)


class _Deletion:
    """Deletes files that no version of the retention has, while its coordinator leads.

    A file is such if it is older than the retention, is in no version since the one whose checkpoint the round has
    made, is needed by no prepared write, and was removed before the retention began. This includes files of groups
    that were never written to the log.

    A coordinator that has lost its lead may be paused before it deletes, while its successor takes an old file into the
    table again:

    1. Old finds that no version of the retention has the file, and is paused.
    2. New writes the marker, and rolls back to a version that has the file.
    3. Old looks at the table, sees the marker, and stops.

    A window of one file is left, because no store deletes on a condition: old is paused between its last look and the
    deletion that follows within :data:`_LOOK_SECS`, until new has rolled back and found the file in place (see
    :meth:`~state.delta.opened_table.OpenedDeltaTable.roll_back`). Then the newest version lacks that file.
    """

    def __init__(self, location: Location, fence: Fence, version: int, held: Iterable[DataFile]) -> None:
        self.table = location.handle()
        """A handle of the version that was looked at last."""
        self.needed = {place for file in held for place in file.places}
        """The files of that version and of a prepared write, and those of versions in between."""
        self._location = location
        self._fence = fence
        self._seen = version
        """The last version whose files are among them."""

    def look(self) -> None:
        """Check the fence, and take note of the files that later versions have taken in.

        Raises:
            LostLead: a newer epoch has opened the table.
            FileNotFoundError: the log entry of a later version is gone, behind a checkpoint of somebody else.
        """
        self.table.update_incremental()
        self._fence.check(self.table)
        while self._seen < self.table.version():
            for added in actions_of(self._location, self._seen + 1, "add"):
                self.needed.update(places_of(added["path"], vector_in(added)))
            self._seen += 1

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, but none that is needed; see :meth:`look`. A crash leaves some, which the next round finds."""
        folder, looked_secs = self._location.folder, 0.0
        for path in paths:
            # Not by a monotonic clock, which may stand still while the machine sleeps.
            if abs(time.time() - looked_secs) > _LOOK_SECS:
                looked_secs = time.time()
                self.look()
            if path not in self.needed:
                folder.delete(path)


def _old_outside(table: DeltaTable, retention_hours: int) -> list[str]:
    """Return the files beside :data:`DATA_FOLDER` that the table's version does not have and that are old enough."""
    return table.vacuum(retention_hours, dry_run=True, full=True)


def _removed_since(
    oldest_secs: float, location: Location, table: DeltaTable, version: int, made_secs: float
) -> Iterator[str]:
    """Yield the files that versions up to ``version`` have removed since a time.

    Its checkpoint does not know of those that were removed longer ago than the table's
    ``delta.deletedFileRetentionDuration``, 7 days by default: of them, only the log entries of that time tell. Older
    checkpoints may be gone, or made by others at any time.

    Args:
        oldest_secs: the time.
        location: the table's location.
        table: a handle of it.
        version: a version that has a checkpoint.
        made_secs: a time at which that was made already.
    """
    checkpoint = pa.BufferReader(location.folder.get(f"{LOG_FOLDER}/{version:020d}.checkpoint.parquet"))
    columns = ["remove.path", "remove.deletionTimestamp", "remove.deletionVector"]
    rows = pq.ParquetFile(checkpoint).read(columns=columns)
    removals = [row for row in rows["remove"].to_pylist() if row is not None and row["path"] is not None]
    first_secs = oldest_secs - _CLOCKS_SECS
    last_secs = made_secs - _REMOVALS_SECS + _CLOCKS_SECS
    is_default = _FILE_RETENTION not in table.metadata().configuration
    for item in location.folder.list(LOG_FOLDER):
        entry = _LOG_ENTRY.fullmatch(item.path)
        if entry is None or not item.path.endswith(".json") or int(entry[1]) > version:
            continue
        if first_secs <= item.modified_secs and not (is_default and item.modified_secs > last_secs):
            removals += actions_of(location, int(entry[1]), "remove")
    for removal in removals:
        if (removal.get("deletionTimestamp") or 0) >= oldest_secs * 1000:
            yield from places_of(removal["path"], vector_in(removal))
