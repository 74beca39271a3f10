"""Upkeep of a Delta table: compaction, checkpoints and vacuum.

- *Compaction* replaces the small files of a partition with one file, and leaves the others unchanged, if that saves at
  least ``files_max`` files. So its cost depends on the rows written since the last compaction, not on the table. It is
  a write, so it goes between writes and with the same fence; ``optimize.compact`` does not stop a coordinator that has
  lost its lead.
- *When*: after ``every_writes`` writes, or once the table has grown by many rows and by half. So where rows expire,
  large writes leave no more behind than small ones.
- A *checkpoint* of the log, and the removal of log entries older than the table's ``delta.logRetentionDuration``
  (30 days by default), and older than ``topology.rewind.hours``. What they cost grows with the log, and no write
  depends on them, so a thread does them while writes go on (:class:`LogUpkeep`).
- *Vacuum*, in the same thread, and only if a retention of at least 7 days is configured, because recovery and snapshots
  read old versions.
  Delta's vacuum skips the folder that txtopo writes data files to (see :mod:`state.delta.log.data_files`), so that
  folder is cleaned here, by the same rule.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, PostCommitHookProperties

from state.delta.log.data_files import DATA_FOLDER, DataFile, DataFolder
from state.delta.log.entries import entry_path
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.put import Change
from state.delta.log.sync import sync_log
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder

__all__ = ["RETENTION_HOURS_MIN", "LogUpkeep", "Upkeep", "compacted"]

RETENTION_HOURS_MIN = 7 * 24
"""The minimum retention of vacuum: Delta's default."""

GROWN_ROWS_MIN = 1_000_000
"""How many rows a table must grow by until upkeep comes before its writes are many: less is not worth a round."""

_LOG_RETENTION = "delta.logRetentionDuration"
_LOG_HOURS = 30 * 24
"""How long Delta keeps log entries of tables without that property."""

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
        log_hours: how long log entries are kept at least, in hours, unless a property of the table says how long.
    """

    every_writes: int = attrs.field(default=50)
    files_max: int = attrs.field(default=32)
    vacuum_retention_hours: int | None = attrs.field(default=None)
    log_hours: int = _LOG_HOURS

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

    def reaching(self, hours: int) -> Upkeep:
        """Return a schedule that keeps all that versions of the last ``hours`` need."""
        vacuum_hours = self.vacuum_retention_hours
        longer = None if vacuum_hours is None else max(vacuum_hours, hours)
        return attrs.evolve(self, vacuum_retention_hours=longer, log_hours=hours)

    def clean_log(self, table: DeltaTable, folder: Folder) -> None:
        """Remove log entries that are too old, behind a checkpoint that is durable."""
        if self.log_hours <= _LOG_HOURS or _LOG_RETENTION in table.metadata().configuration:
            table.cleanup_metadata()  # by the table's property, or Delta's default
            return
        oldest_secs = time.time() - self.log_hours * 3600
        entries = {item.path: item.modified_secs for item in folder.list(LOG_FOLDER)}
        numbers = {path: int(found[1]) for path in entries if (found := _LOG_ENTRY.fullmatch(path)) is not None}
        # The newest checkpoint that is too old itself: all later versions can be read from it on.
        kept = max((numbers[p] for p in numbers if p.endswith(".parquet") and entries[p] < oldest_secs), default=0)
        for path, number in numbers.items():
            if number < kept:
                folder.delete(path)


class LogUpkeep:
    """Keeps the log of one table short, and its folder free of what nobody needs, in a thread beside the writes.

    A crash at any moment leaves the rows as they are: no step changes those of a version that is kept. The next round
    begins with the first step again.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
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
        location, retention_hours = self._location, schedule.vacuum_retention_hours
        location.handle(version).create_checkpoint()
        # The entries that it replaces may be removed once it is durable.
        if location.root is not None:
            sync_log(location.root)
        is_clean_up_due = self._rounds % _CHECKPOINTS_PER_CLEAN_UP == 0
        self._rounds += 1
        if not is_clean_up_due:
            return
        table = location.handle()
        schedule.clean_log(table, location.folder)
        if retention_hours is not None:
            _vacuum(table, retention_hours)
            _vacuum_data_folder(location.folder, table.version(), held, retention_hours)


FILE_BYTES = 64 * 1024 * 1024
"""The approximate size of compacted files; files of at least half this size are not compacted."""


def compacted(files: Iterable[DataFile], data: DataFolder, schema: pa.Schema, files_max: int) -> Change | None:
    """Combine small files, of one partition each, if that saves at least ``files_max`` files; None if it doesn't."""
    bins = _bins(files)
    if sum(len(each) - 1 for each in bins) < files_max:
        return None
    added = []
    for own in bins:
        columns = pa.schema([field for field in schema if field.name not in own[0].partition])
        rows = pa.concat_tables([data.read(file, columns) for file in own])
        added.append(data.put("compacted", rows, own[0].partition))
    return Change(added, [file for own in bins for file in own], is_of_rows=False)


def _bins(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Return groups of small files to combine, at least two in each."""
    by_partition: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        if file.size < FILE_BYTES // 2 and file.parts is None:
            by_partition.setdefault(tuple(file.partition.values()), []).append(file)
    bins: list[list[DataFile]] = []
    for own in by_partition.values():
        size = FILE_BYTES  # as if a bin were full, so that each partition begins one of its own
        for file in sorted(own, key=lambda each: each.size):
            if size + file.size > FILE_BYTES:
                bins.append([])
                size = 0
            bins[-1].append(file)
            size += file.size
    return [each for each in bins if len(each) > 1]


def _vacuum(table: DeltaTable, retention_hours: int) -> None:
    """Remove files beside :data:`DATA_FOLDER` that no version of the last ``retention_hours`` refers to."""
    hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    table.vacuum(retention_hours, dry_run=False, full=True, post_commithook_properties=hooks)


def _vacuum_data_folder(folder: Folder, version: int, held: Iterable[DataFile], retention_hours: int) -> None:
    """Remove files that txtopo wrote and that no version of the last ``retention_hours`` refers to.

    This includes files of groups that were never written to the log. A file is kept if it is younger than the
    retention, so also if it was written since the round began; if it is among ``held``; or if it was removed from the
    table within the retention. The log must have a checkpoint.
    """
    oldest_secs = time.time() - retention_hours * 3600
    old = {item.path for item in folder.list(DATA_FOLDER) if item.modified_secs < oldest_secs}
    if not old:
        return
    old -= {file.place for file in held}
    old -= {path for path, removed_ms in _removals(folder, version) if removed_ms >= oldest_secs * 1000}
    for path in old:
        folder.delete(path)


def _removals(folder: Folder, version: int) -> Iterator[tuple[str, int]]:
    """Yield each file removed up to a version and the time in ms, from the last checkpoint and the log after it."""
    last = f"{LOG_FOLDER}/_last_checkpoint"
    try:
        checkpoint = int(json.loads(folder.get(last))["version"])
    except (ValueError, KeyError) as error:
        raise OSError(f"{last} names no version") from error
    prefix = f"{LOG_FOLDER}/{checkpoint:020d}.checkpoint"
    names = [
        item.path for item in folder.list(LOG_FOLDER) if item.path.startswith(prefix) and item.path.endswith(".parquet")
    ]
    if not names:
        raise FileNotFoundError(f"{LOG_FOLDER} has no checkpoint of version {checkpoint}, which is its last one")
    for name in names:
        rows = pq.ParquetFile(pa.BufferReader(folder.get(name))).read(
            columns=["remove.path", "remove.deletionTimestamp"]
        )
        for row in rows["remove"].to_pylist():
            if row is not None and row["path"] is not None:
                yield unquote(row["path"]), row["deletionTimestamp"] or 0
    for later in range(checkpoint + 1, version + 1):
        for line in folder.get(entry_path(later)).splitlines():
            action = json.loads(line).get("remove") if b'"remove"' in line else None
            if action is not None:
                yield unquote(action["path"]), action.get("deletionTimestamp") or 0
