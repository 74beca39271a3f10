"""Upkeep of a Delta table's log and folder: checkpoints and vacuum; :mod:`state.delta.merging` has that of its files.

- *When*: after ``every_writes`` writes, or once the table has grown by many rows and by half. So where rows expire,
  large writes leave no more behind than small ones. The more files are kept, the rarer are checkpoints, which have all
  of them.
- *Files* that the coordinator itself has removed from the table go as soon as nobody needs them, a few at a time
  (:class:`Removed`): so little more is there than is to be.
- A *checkpoint* of the log, and the removal of versions that nobody needs: their log entries, and their files. What it
  costs grows with the log, and no write depends on it, so a thread does it while writes go on (:class:`LogUpkeep`). It
  is not left to delta-rs, whose vacuum skips the folder that txtopo writes data files to (see
  :mod:`state.delta.log.data_files`), and takes what the checkpoint no longer knows for nobody's (see
  :func:`_removed_since`).

Which versions are needed, a run says (:class:`~txtopo.api.state.History`):

- with ``topology.history.recent.secs``, those of that time, or of ``vacuum_retention_hours`` if that is longer, and
  the newest version up to each point. A version that was the newest at some moment of that time is one of it, so
  whoever opened it then can read it to its end;
- without, log entries stay as long as the table's ``delta.logRetentionDuration`` (30 days by default),
  ``topology.rewind.hours`` and ``vacuum_retention_hours``, and files as long as the latter two, or for ever.

Beside them stay the newest version, the last one that made a transaction visible with all later ones, which a start
compares; the entries that turned the table back, which tell that later txids were undone; and for some minutes
all entries, which make a late put fail (see :mod:`state.delta.writer`).
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Protocol

import attrs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from state.delta.log.checkpoints import Removal, checkpoint_path, make_checkpoint, places_in, removals_in
from state.delta.log.data_files import DATA_FOLDER, DataFolder, Presence
from state.delta.log.entries import actions_of, entry_path, log_entries, read_entry, valid_transactions
from state.delta.log.kept import KeptLog
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.ownership import Fence, rolled_back_application, turned_application
from state.delta.log.sync import CHECKPOINT, sync_log
from state.delta.log.vectors import places_of, vector_in
from txtopo.api.arguments import check_positive
from txtopo.api.state import History
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder

__all__ = [
    "ENTRIES_SECS",
    "RETENTION_HOURS_MIN",
    "DeltaPast",
    "LogUpkeep",
    "Removed",
    "TablePast",
    "Upkeep",
    "log_secs",
]

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

_POLL_SECS = 1
"""How long a deletion trusts its last look at the table."""

ENTRIES_SECS = 240
"""How long log entries stay at least, so that a put that comes late finds its number taken."""

_REMOVE_SECS = 10
"""How often files that were removed just now are deleted in an object store, where each look is a request."""

_UNNAMED_SECS = 24 * 3600
"""How long files stay that no version names: of writes that are being prepared, in any process, and of dead ones."""

_KEPT_PER_VERSION, _VERSIONS_MAX = 20, 1_000
"""A checkpoint has every file that is kept. So it is made once there is a version more for so many of them, or so many
versions more: one every 50 writes took 7 % of a core after a minute of 50 a second, and what a second costs grew with
the square of its writes. A reader of the log reads a twentieth more, at most."""

_CHECKPOINTS_PER_CLEAN_UP = 20
"""Removing what is too old lists all files, so it follows only every 20th checkpoint, including the first."""

_CLEAN_UP_SECS = 60
"""How often it follows at least, where only what is recent is kept."""


@attrs.frozen
class Upkeep:
    """The schedule of upkeep.

    Args:
        every_writes: the number of own writes between two rounds; a round makes a checkpoint if that is worth it.
        files_max: small files are combined when that saves at least this many.
        vacuum_retention_hours: how long unreferenced files are kept, in hours; None: as long as the run says.
        unbounded_hours: how long they are then if the run does not say; None: forever.
        history: what a run keeps of the past; None outside of one.
    """

    every_writes: int = attrs.field(default=50)
    files_max: int = attrs.field(default=32)
    vacuum_retention_hours: int | None = attrs.field(default=None)
    unbounded_hours: int | None = None
    history: History | None = None

    @every_writes.validator
    @files_max.validator
    def _check_positive(self, attribute: attrs.Attribute[int], value: int) -> None:
        check_positive(attribute.name, value)

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
    def is_recent_kept(self) -> bool:
        """Whether of versions that are not recent those of points alone are kept."""
        return self.history is not None and self.history.recent_secs is not None

    @property
    def points(self) -> tuple[int, ...]:
        """The transactions whose versions stay."""
        return self.history.points if self.history is not None and self.is_recent_kept else ()

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
        """Return how long log entries are kept, points aside; None: for ever.

        ``configuration`` are the table's properties.
        """
        if self.is_recent_kept:
            return max(ENTRIES_SECS, self.files_secs or 0)
        # Without the entries of its time, nobody knows when a file was removed.
        hours = max(_LOG_HOURS if self.history is None else self.history.rewind_hours, (self.files_secs or 0) // 3600)
        if hours <= _LOG_HOURS or _LOG_RETENTION in configuration:
            return log_secs(configuration) or None
        return hours * 3600

    def retentions(self, configuration: Mapping[str, str | None]) -> dict[str, str]:
        """Return the properties that a table lacks so that what others do at its properties leaves all versions whole.

        ``configuration`` are its properties.
        """
        if self.history is None or not self.is_recent_kept:
            return {}
        hours = max(self.history.rewind_hours, (self.files_secs or 0) // 3600)
        known = {_LOG_RETENTION: _LOG_HOURS * 3600, _FILE_RETENTION: _REMOVALS_SECS}
        return {
            name: f"interval {hours} hours"
            for name, default_secs in known.items()
            if _secs_of(configuration.get(name), default_secs) < hours * 3600
        }


def log_secs(configuration: Mapping[str, str | None]) -> int:
    """Return how long the entries of a table's log surely stay, by its properties; 0 if those are not understood."""
    return _secs_of(configuration.get(_LOG_RETENTION), _LOG_HOURS * 3600)


def _secs_of(interval: str | None, default_secs: int) -> int:
    """Return how long an interval is, as properties have it; 0 if it is not understood."""
    if interval is None:
        return default_secs
    found = _INTERVAL.fullmatch(interval.strip())
    return 0 if found is None else int(found[1]) * _UNIT_SECS.get(found[2].lower(), 0)


@attrs.frozen
class Removed:
    """What a version no longer needs: when it was made, in milliseconds since 1970, and the files."""

    time_ms: int
    places: tuple[str, ...]


class Present(Sized, Protocol):
    """The files of a table at one moment: how many are kept, and whether one is there, by its path."""

    def __call__(self, place: str) -> bool:
        """Return whether a file is there."""


class TablePast(Protocol):
    """A table's past: what its upkeep asks, and what it does.

    An implementation raises one of :data:`WORLD_ERRORS` if the table can't be reached.
    """

    is_local: bool
    """Whether a look at it takes no request."""

    def clock_secs(self) -> float:
        """Return the time, in seconds; not of a monotonic clock, which may stand still while the machine sleeps."""

    def open(self) -> None:
        """Open the newest version, for what is asked of it."""

    def configuration(self) -> Mapping[str, str | None]:
        """Return its properties."""

    def look(self) -> int:
        """Return the newest version, and go to it.

        Raises:
            LostLead: a newer epoch has opened the table.
        """

    def log(self) -> KeptLog:
        """List the log."""

    def transactions(self, version: int) -> Iterator[tuple[int, int]]:
        """Yield the versions up to one that have made a transaction visible and were not rolled back, newest first.

        Each comes with that transaction.
        """

    def last_transaction(self, version: int) -> int:
        """Return the version that made the last transaction up to one visible; 0 if the log does not say."""

    def own_turns(self) -> Collection[int]:
        """Return the versions by which the table was last turned back, or a turn was marked."""

    def is_turn(self, version: int) -> bool:
        """Return whether a version has turned the table back, or marks a turn."""

    def added_in(self, version: int) -> Iterable[str]:
        """Yield the paths of the files that a version has taken in.

        Raises:
            FileNotFoundError: its log entry is gone.
        """

    def presence(self) -> Present:
        """Return which files are there now."""

    def make_checkpoint(self, version: int, is_there: Callable[[str], bool], *, is_newest: bool = True) -> None:
        """Make a checkpoint of a version, unless it has one; see :func:`make_checkpoint`."""

    def sync(self) -> None:
        """Make the log durable."""

    def places_in(self, version: int) -> frozenset[str]:
        """Return the paths that a version needs, by its checkpoint."""

    def removals_in(self, version: int) -> Sequence[Removal]:
        """Return the removals that the checkpoint of a version has."""

    def removed_since(self, oldest_secs: float, version: int, made_secs: float) -> Iterable[str]:
        """Yield the files that versions up to one have removed since a time; see :func:`_removed_since`."""

    def written(self) -> Mapping[str, float]:
        """Return the paths of all data files, and when they were written, in seconds since 1970."""

    def old_outside(self, files_secs: int) -> Iterable[str]:
        """Return the files elsewhere that its version does not have and that are old enough."""

    def remove_late(self) -> None:
        """Remove what was put too late; see :func:`_remove_late`."""

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""


class DeltaPast(TablePast):
    """The past of a Delta table that a coordinator has opened."""

    def __init__(self, location: Location, fence: Fence) -> None:
        self.is_local = location.root is not None
        self._location = location
        self._fence = fence
        self._table: DeltaTable | None = None
        """A handle of the version that was looked at last."""

    def clock_secs(self) -> float:
        """Return the time of this machine."""
        return time.time()

    def open(self) -> None:
        """Open the newest version; an older handle's log may be gone."""
        self._table = self._location.handle()

    @property
    def _opened(self) -> DeltaTable:
        assert self._table is not None, "it is opened"
        return self._table

    def configuration(self) -> Mapping[str, str | None]:
        """Return its properties."""
        return self._opened.metadata().configuration

    def look(self) -> int:
        """Look at the newest version, and check the fence."""
        try:
            self._opened.update_incremental()
        except DeltaError:  # its listing lacks an entry that is put meanwhile, or the handle's log is gone
            self.open()
        self._fence.check(self._opened)
        return self._opened.version()

    def log(self) -> KeptLog:
        """List the log."""
        return KeptLog.of(self._location)

    def transactions(self, version: int) -> Iterator[tuple[int, int]]:
        """Yield the versions of transactions, by the log's entries."""
        return valid_transactions(self._location, version)

    def last_transaction(self, version: int) -> int:
        """Return the version of the last transaction, by the log's entries."""
        entries = log_entries(self._location, version)
        return next((entry.version for entry in entries if entry.txid is not None), 0)

    def own_turns(self) -> Collection[int]:
        """Return the versions of the last turns, which the table has as transactions of applications."""
        application = self._fence.application
        names = (rolled_back_application(application), turned_application(application))
        return {at for name in names if (at := self._opened.transaction_version(name)) is not None}

    def is_turn(self, version: int) -> bool:
        """Return whether a version is of a turn, by its entry."""
        entry = read_entry(self._location, version)
        return entry is not None and not (entry.restored is None and entry.turn is None)

    def added_in(self, version: int) -> Iterable[str]:
        """Yield what a version has added, by its entry."""
        for added in actions_of(self._location, version, "add"):
            yield from places_of(added["path"], vector_in(added))

    def presence(self) -> Presence:
        """List the folder of data files."""
        return DataFolder(self._location).presence()

    def make_checkpoint(self, version: int, is_there: Callable[[str], bool], *, is_newest: bool = True) -> None:
        """Make a checkpoint."""
        make_checkpoint(self._location, version, is_there, is_newest=is_newest)

    def sync(self) -> None:
        """Sync the log's folder, where there is one."""
        if self._location.root is not None:
            sync_log(self._location.root)

    def places_in(self, version: int) -> frozenset[str]:
        """Return what a checkpoint has as live."""
        return places_in(self._location, version)

    def removals_in(self, version: int) -> Sequence[Removal]:
        """Return what a checkpoint has as removed."""
        return removals_in(self._location, version)

    def removed_since(self, oldest_secs: float, version: int, made_secs: float) -> Iterable[str]:
        """Yield what was removed since, by the checkpoint and the entries."""
        return _removed_since(oldest_secs, self._location, self._opened, version, made_secs)

    def written(self) -> Mapping[str, float]:
        """List the folder of data files."""
        return {item.path: item.modified_secs for item in self._location.folder.list(DATA_FOLDER)}

    def old_outside(self, files_secs: int) -> Iterable[str]:
        """Return what a vacuum would delete."""
        return _old_outside(self._opened, max(RETENTION_HOURS_MIN, files_secs // 3600))

    def remove_late(self) -> None:
        """Remove late entries."""
        _remove_late(self._location.folder)

    def delete(self, path: str) -> None:
        """Delete a file of the table's folder."""
        self._location.folder.delete(path)


class LogUpkeep:
    """Keeps the log of one table short, and its folder free of what nobody needs, in a thread beside the writes.

    A crash at any moment leaves the rows as they are: no step changes those of a version that is kept. The next round
    begins with the first step again.
    """

    def __init__(self, past: TablePast, make_thread: Callable[[], Executor] | None = None) -> None:
        self._past = past
        self._make_thread = make_thread or _make_thread
        self._held = _Held(past)
        self._rounds = 0
        self._made: int | None = None
        """The version of the last checkpoint that it has made; None: it has made none."""
        self._kept = 0
        """How many files there were then."""
        self._cleaned_secs: float | None = None
        """When the last clean-up began."""
        self._kept_secs: float | None = None
        """When the one began that knows the files of points; None: none has yet."""
        self._points: tuple[int, ...] = ()
        """The points that it has kept."""
        self._deleted_secs = 0.0
        """When files were last deleted that this coordinator has removed."""
        self._is_aging = True
        """Whether it has left what time alone makes removable."""
        self._thread: Executor | None = None
        self._round: Future[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a round is under way."""
        return self._round is not None and not self._round.done()

    def is_due(self, schedule: Upkeep, *, is_written: bool) -> bool:
        """Return whether a clean-up is due by the time that has passed, although little or nothing was written."""
        if self._cleaned_secs is None:  # a run that ends soon has nothing to remove
            self._cleaned_secs = schedule.now_secs
        is_needed = is_written or self._is_aging or schedule.points != self._points
        return schedule.is_recent_kept and is_needed and self._is_time(schedule)

    def _is_time(self, schedule: Upkeep) -> bool:
        return self._cleaned_secs is None or abs(schedule.now_secs - self._cleaned_secs) >= _CLEAN_UP_SECS

    def begin(self, schedule: Upkeep, version: int, held: Collection[str]) -> None:
        """Begin a round, unless so little was written that a checkpoint is not worth it; none may be under way.

        Args:
            schedule: how long what is kept is kept.
            version: the version to write a checkpoint of.
            held: the files of that version, and those of a write that is prepared.
        """
        is_by_time = schedule.is_recent_kept and self._is_time(schedule)
        versions = min(-(-self._kept // _KEPT_PER_VERSION), _VERSIONS_MAX)
        if is_by_time or self._made is None or version - self._made >= versions:
            self._submit(self._run, schedule, version, set(held))
        else:
            self._is_aging = True  # what was written may be the last

    def delete_removed(
        self, schedule: Upkeep, removed: deque[Removed], held: Callable[[], set[str]], is_head: Callable[[], bool]
    ) -> None:
        """Begin to delete what this coordinator has removed and nobody needs any more, if there is any.

        It was removed before the last clean-up began, which knows the files of all points up to then, and longer ago
        than versions stay; so no version that stays has it, unless somebody else takes it into the table again. He
        would have put the version after the head: the window that is left is that of :class:`_Deletion`.

        Args:
            schedule: how long what is kept is kept.
            removed: what was removed, oldest first; what is deleted goes.
            held: returns the files of the head, and those of a write that is prepared.
            is_head: says whether nobody has written since the head.
        """
        now_secs = schedule.now_secs
        if schedule.files_secs is None or self._kept_secs is None or not schedule.is_recent_kept:
            return
        until_ms = 1000 * min(self._kept_secs, now_secs - schedule.files_secs)
        is_time = self._past.is_local or abs(now_secs - self._deleted_secs) >= _REMOVE_SECS
        if removed and removed[0].time_ms < until_ms and is_time and not self.is_running:
            self._deleted_secs = now_secs
            self._submit(self._delete_removed, removed, until_ms, held(), is_head)

    def _delete_removed(
        self, removed: deque[Removed], until_ms: float, needed: set[str], is_head: Callable[[], bool]
    ) -> None:
        looked_secs = 0.0
        while removed and removed[0].time_ms < until_ms:
            if abs(self._past.clock_secs() - looked_secs) > _POLL_SECS:
                looked_secs = self._past.clock_secs()
                if not is_head():
                    return
            # A crash leaves the rest to a clean-up.
            for place in removed.popleft().places:
                if place not in needed and not self._held.needs(place):
                    self._past.delete(place)

    def _submit(self, do: Callable[..., None], *args: Any) -> None:
        if self._thread is None:
            self._thread = self._make_thread()
        self._round = self._thread.submit(do, *args)

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

    def _run(self, schedule: Upkeep, version: int, needed: set[str]) -> None:
        past = self._past
        is_by_time = schedule.is_recent_kept and self._is_time(schedule)
        is_clean_up_due = is_by_time or self._rounds % _CHECKPOINTS_PER_CLEAN_UP == 0
        present = past.presence()
        of_points: Collection[int] = ()
        if is_clean_up_due:
            of_points = self._held.versions_of(schedule.points, version)
            needed |= self._held.hold(of_points, present)
            self._kept_secs = schedule.now_secs
        past.make_checkpoint(version, present)
        # The entries that it replaces may be removed once it is durable.
        past.sync()
        self._rounds += 1
        self._made, self._kept = version, len(present)
        if not is_clean_up_due:
            return
        now_secs = schedule.now_secs
        deletion = _Deletion(past, version, needed)
        deletion.look()  # a coordinator that leads may keep the log longer
        is_log_aging = self._clean_log(schedule, deletion, version, of_points, present)
        past.remove_late()
        is_aging = schedule.files_secs is not None and self._clean_files(schedule, deletion, version, present)
        self._cleaned_secs, self._points, self._is_aging = now_secs, schedule.points, is_log_aging or is_aging

    def _clean_log(
        self,
        schedule: Upkeep,
        deletion: _Deletion,
        version: int,
        of_points: Collection[int],
        is_there: Callable[[str], bool],
    ) -> bool:
        """Remove the log of versions that nobody needs; return whether time alone will leave more of them.

        What stays can be opened from a checkpoint on. The oldest goes first: a crash leaves entries before a gap, by
        which no version can be opened.
        """
        secs = schedule.entries_secs(self._past.configuration())
        if secs is None:
            return False
        log = self._past.log()
        oldest_secs = schedule.now_secs - secs
        # The newest that is too old itself was the newest version when the time began.
        old = [each for each, item in log.entries.items() if each <= version and item.modified_secs < oldest_secs]
        first = self._past.last_transaction(max(old, default=0))
        is_aging = first < self._past.last_transaction(version)
        if not is_aging and first not in log.checkpoints and first in log.versions():
            # Versions without a transaction have followed, so no round has made one of it, and none would.
            self._past.make_checkpoint(first, is_there, is_newest=False)
            self._past.sync()
            log = self._past.log()
        base = max((each for each in log.checkpoints if each <= first), default=0)
        past_ones = [each for each in log.files if each < base]
        own_turns = self._past.own_turns() if past_ones else ()  # once: delta-rs reads the log for it
        for each in past_ones:
            kept: tuple[str, ...] = ()
            if each in of_points:
                kept = (entry_path(each), checkpoint_path(each))
            elif self._held.is_turn(each, own_turns):
                kept = (entry_path(each),)
            deletion.delete(path for path in log.files[each] if path not in kept)
        return is_aging

    def _clean_files(
        self, schedule: Upkeep, deletion: _Deletion, version: int, is_there: Callable[[str], bool]
    ) -> bool:
        """Remove the files that nobody needs; return whether time alone will leave more of them."""
        assert schedule.files_secs is not None, "files are removed"
        past, now_secs = self._past, schedule.now_secs
        oldest_secs = now_secs - schedule.files_secs
        removals = past.removals_in(version)
        gone = {
            place
            for removal in removals
            if removal.time_ms < oldest_secs * 1000
            for place in removal.places
            if is_there(place)
        }
        unnamed_secs, written = min(oldest_secs, now_secs - _UNNAMED_SECS), past.written()
        gone.update(path for path, written_secs in written.items() if written_secs < unnamed_secs)
        gone.update(past.old_outside(schedule.files_secs))
        gone -= deletion.needed
        if gone:
            gone.difference_update(past.removed_since(oldest_secs, version, now_secs))
        deletion.delete(gone)
        # Those of a dead group are in no version and in no removal.
        named = deletion.needed.union(*(removal.places for removal in removals))
        is_unnamed = any(path not in named for path in written if path not in gone)
        return is_unnamed or any(removal.time_ms >= oldest_secs * 1000 for removal in removals)


def _make_thread() -> Executor:
    return ThreadPoolExecutor(1, "txtopo-upkeep")


class _Held:
    """The versions of a table that stay for what they are, however old: those of points, and those that turned back."""

    def __init__(self, past: TablePast) -> None:
        self._past = past
        self._versions: dict[int, int | None] = {}
        """By point, the version that the table's last write up to it has made; None if there is none."""
        self._places: dict[int, frozenset[str]] = {}
        """By version, what it needs."""
        self._turns: dict[int, bool] = {}
        """By version, of those that were there before this coordinator: whether it turned back."""
        self._first: int | None = None
        """The version from which on this coordinator has made them."""

    def versions_of(self, points: Collection[int], version: int) -> set[int]:
        """Return the versions of points, as of a version that this coordinator has made."""
        self._first = version if self._first is None else self._first
        self._versions = {point: at for point, at in self._versions.items() if point in points}
        wanted = sorted(point for point in points if point not in self._versions)
        if wanted:
            for at, txid in self._past.transactions(version):
                while wanted and wanted[-1] >= txid:
                    self._versions[wanted.pop()] = at
                if not wanted:
                    break
        self._versions |= dict.fromkeys(wanted)
        return {at for at in self._versions.values() if at is not None}

    def hold(self, versions: Collection[int], is_there: Callable[[str], bool]) -> set[str]:
        """See to it that versions can be opened whatever becomes of the others; return what they need."""
        log = self._past.log()
        openable = log.versions()
        self._places = {version: places for version, places in self._places.items() if version in versions}
        for version in sorted(versions):
            if version in self._places or version not in openable:
                continue
            if checkpoint_path(version) not in log.files[version]:
                self._past.make_checkpoint(version, is_there, is_newest=False)
            self._places[version] = self._past.places_in(version)
        return {place for places in self._places.values() for place in places}

    def needs(self, place: str) -> bool:
        """Whether a version that :meth:`hold` was called with needs a file."""
        return any(place in places for places in self._places.values())

    def is_turn(self, version: int, own_turns: Collection[int]) -> bool:
        """Return whether a version has turned the table back, or marks a turn.

        ``own_turns`` are the last ones of :meth:`TablePast.own_turns`.
        """
        if self._first is None or version > self._first:
            return version in own_turns
        if version not in self._turns:
            self._turns[version] = self._past.is_turn(version)
        return self._turns[version]


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
    deletion that follows within :data:`_POLL_SECS`, until new has rolled back and found the file in place (see
    :meth:`~state.delta.opened_table.OpenedDeltaTable.roll_back`). Then the newest version lacks that file.
    """

    def __init__(self, past: TablePast, version: int, needed: set[str]) -> None:
        past.open()
        self.needed = needed
        """The files of the version that was looked at last, of points and of a prepared write, and those of versions in
        between."""
        self._past = past
        self._seen = version
        """The last version whose files are among them."""
        self._looked_secs = 0.0

    def look(self) -> None:
        """Check the fence, and take note of the files that later versions have taken in.

        Raises:
            LostLead: a newer epoch has opened the table.
            FileNotFoundError: the log entry of a later version is gone, behind a checkpoint of somebody else.
        """
        newest = self._past.look()
        while self._seen < newest:
            self.needed.update(self._past.added_in(self._seen + 1))
            self._seen += 1

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, but none that is needed; see :meth:`look`. A crash leaves some, which the next round finds."""
        for path in paths:
            if abs(self._past.clock_secs() - self._looked_secs) > _POLL_SECS:
                self._looked_secs = self._past.clock_secs()
                self.look()
            if path not in self.needed:
                self._past.delete(path)


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
        made_secs: a time at which that was made already, or shortly before.
    """
    for removal in removals_in(location, version):
        if removal.time_ms >= oldest_secs * 1000:
            yield from removal.places
    first_secs = oldest_secs - _CLOCKS_SECS
    last_secs = made_secs - _REMOVALS_SECS + _CLOCKS_SECS
    is_default = _FILE_RETENTION not in table.metadata().configuration
    for number, item in KeptLog.of(location).entries.items():
        if number > version or item.modified_secs < first_secs or (is_default and item.modified_secs > last_secs):
            continue
        for removed in actions_of(location, number, "remove"):
            if (removed.get("deletionTimestamp") or 0) >= oldest_secs * 1000:
                yield from places_of(removed["path"], vector_in(removed))
