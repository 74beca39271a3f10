"""Rounds of upkeep beside the writes: a checkpoint, then the removal of what nobody needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from state.delta.log.checkpoints import checkpoint_path
from state.delta.log.entries import entry_path
from state.delta.upkeep.past import Removed, TablePast
from state.delta.upkeep.schedule import Upkeep

_POLL_SECS = 1
"""How long a deletion trusts its last look at the table."""

_REMOVE_SECS = 10
"""How often files that were removed just now are deleted in an object store, where each look is a request."""

_UNNAMED_SECS = 24 * 3600
"""How long files stay that no version names: of writes that are being prepared, in any process, and of dead ones."""


_VERSIONS_MAX = 1_000
"""Of how many versions, at most, there is no checkpoint."""


class LogUpkeep:
    """Keeps the log of one table short, and its folder free of what nobody needs, in a thread beside the writes.

    A crash at any moment leaves the rows as they are: no step changes those of a version that is kept. The next round
    begins with the first step again.
    """

    def __init__(self, past: TablePast, make_thread: Callable[[], Executor] | None = None) -> None:
        self._past = past
        self._make_thread = make_thread or _make_thread
        self._versions = _KeptVersions(past)
        self._rounds = 0
        self._made: int | None = None
        """The version of the last checkpoint that it has made; None: it has made none."""
        self._kept = 0
        """How many files there were then."""
        self._cleaned_secs: float | None = None
        """When the last clean-up began."""
        self._kept_until = -1
        """The version as of which the last clean-up knows the files of points; -1: none has been yet."""
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
        every_secs = schedule.clean_up_secs if self._past.is_local else schedule.clean_up_secs_remote
        return self._cleaned_secs is None or abs(schedule.now_secs - self._cleaned_secs) >= every_secs

    def begin(self, schedule: Upkeep, version: int, files: Collection[str]) -> None:
        """Begin a round, unless so little was written that a checkpoint is not worth it; none may be under way.

        ``version`` is to get the checkpoint; ``files`` are its files, and those of a write that is prepared.
        """
        is_by_time = schedule.is_recent_kept and self._is_time(schedule)
        versions = min(-(-self._kept // schedule.kept_per_version), _VERSIONS_MAX)
        if is_by_time or self._made is None or version - self._made >= versions:
            self._submit(self._run, schedule, version, set(files))
        else:
            self._is_aging = True  # what was written may be the last

    def delete_removed(
        self, schedule: Upkeep, removed: deque[Removed], files: Callable[[], set[str]], is_head: Callable[[], bool]
    ) -> None:
        """Begin to delete what this coordinator has removed and nobody needs any more, if there is any.

        It was removed before the last clean-up, which knows the files of all that can be a point until then, and longer
        ago than versions stay; so no version that stays has it, unless somebody else takes it into the table again. He
        would have put the version after the head: the window that is left is that of :class:`_Deletion`.

        Args:
            schedule: how long what is kept is kept.
            removed: what was removed, oldest first; what is deleted goes.
            files: returns the files of the head, and those of a write that is prepared.
            is_head: says whether nobody has written since the head.
        """
        now_secs = schedule.now_secs
        if schedule.files_secs is None or not schedule.is_recent_kept or self.is_running:
            return
        until_ms = 1000 * (now_secs - schedule.files_secs)
        is_time = self._past.is_local or abs(now_secs - self._deleted_secs) >= _REMOVE_SECS
        if is_time and self._is_gone(removed, until_ms):
            self._deleted_secs = now_secs
            self._submit(self._delete_removed, removed, until_ms, files(), is_head)

    def _is_gone(self, removed: deque[Removed], until_ms: float) -> bool:
        """Whether the first of what was removed is nobody's any more."""
        return bool(removed) and removed[0].version <= self._kept_until and removed[0].time_ms < until_ms

    def _delete_removed(
        self, removed: deque[Removed], until_ms: float, needed: set[str], is_head: Callable[[], bool]
    ) -> None:
        looked_secs = 0.0
        while self._is_gone(removed, until_ms):
            if abs(self._past.clock_secs() - looked_secs) > _POLL_SECS:
                looked_secs = self._past.clock_secs()
                if not is_head():
                    return
            # A crash leaves the rest to a clean-up.
            for place in removed.popleft().places:
                if place not in needed and not self._versions.needs(place):
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
        is_clean_up_due = is_by_time or self._rounds % schedule.clean_up_checkpoints == 0
        past.begin(version)
        present = past.presence()
        past.make_checkpoint(version, present)
        of_points: Collection[int] = ()
        if is_clean_up_due:
            of_points = self._versions.versions_of(schedule.kept, version)
            needed |= self._versions.keep(of_points, present)
            self._kept_until = version
        # The entries that it replaces may be removed once it is durable.
        past.sync()
        self._rounds += 1
        self._made, self._kept = version, len(present)
        if not is_clean_up_due:
            return
        now_secs = schedule.now_secs
        deletion = _Deletion(past, version, needed)
        deletion.refresh()  # a coordinator that leads may keep the log longer
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
        old = [entry for entry, item in log.entries.items() if entry <= version and item.modified_secs < oldest_secs]
        first = self._past.last_transaction(max(old, default=0))
        is_aging = first < self._past.last_transaction(version)
        if not is_aging and first not in log.checkpoints and first in log.versions():
            # Versions without a transaction have followed, so no round has made one of it, and none would.
            self._past.make_checkpoint(first, is_there, is_newest=False)
            self._past.sync()
            log = self._past.log()
        base = max((checkpoint for checkpoint in log.checkpoints if checkpoint <= first), default=0)
        past_ones = [file for file in log.files if file < base]
        own_turns = self._past.own_turns() if past_ones else ()  # once: delta-rs reads the log for it
        for number in past_ones:
            kept: tuple[str, ...] = ()
            if number in of_points:
                kept = (entry_path(number), checkpoint_path(number))
            elif self._versions.is_turn(number, own_turns):
                kept = (entry_path(number),)
            deletion.delete(path for path in log.files[number] if path not in kept)
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


class _KeptVersions:
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

    def keep(self, versions: Collection[int], is_there: Callable[[str], bool]) -> set[str]:
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
        """Whether a version that :meth:`keep` was called with needs a file."""
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
        """The files of the version of the last refresh, of points and of a prepared write, and those of versions in
        between."""
        self._past = past
        self._seen = version
        """The last version whose files are among them."""
        self._looked_secs = 0.0

    def refresh(self) -> None:
        """Check the fence, and take note of the files that later versions have taken in.

        Raises:
            LostLead: a newer epoch has opened the table.
            FileNotFoundError: the log entry of a later version is gone, behind a checkpoint of somebody else.
        """
        newest = self._past.refresh()
        while self._seen < newest:
            self.needed.update(self._past.added_in(self._seen + 1))
            self._seen += 1

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, but none that is needed; see :meth:`refresh`. A crash leaves some to the next round."""
        for path in paths:
            if abs(self._past.clock_secs() - self._looked_secs) > _POLL_SECS:
                self._looked_secs = self._past.clock_secs()
                self.refresh()
            if path not in self.needed:
                self._past.delete(path)
