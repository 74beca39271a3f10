"""Rounds of upkeep beside the writes: a checkpoint, then the removal of what nobody needs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import attrs

from state.delta.log.checkpoints import checkpoint_path
from state.delta.log.entries import entry_path
from state.delta.upkeep.past import Removed, TablePast
from state.delta.upkeep.schedule import Upkeep
from txtopo.api.state import History

_REMOVE_SECS = 10
"""How often files that were removed just now are deleted in an object store, where each look is a request."""

_UNNAMED_SECS = 24 * 3600
"""How long files stay that no version names: of writes that are being prepared, in any process, and of dead ones."""


_VERSIONS_MAX = 1_000
"""Of how many versions, at most, there is no checkpoint."""

_REMOVED_MAX = 10_000
"""How many removals are in memory at most; clean-ups find older ones in the log."""


@attrs.frozen
class _CleanedUp:
    """What the last clean-up was, in seconds since 1970, and what it has left."""

    began_secs: float = math.inf
    version: int = -1
    """The version as of which it knows the files of points."""
    points: tuple[int, ...] = ()
    """Those that it has kept."""
    is_aging: bool = True
    """Whether it has left what time alone makes removable."""


class LogUpkeep:
    """Keeps the log of one table short, and its folder free of what nobody needs, in a thread beside the writes.

    It owns what is to be removed, and what was written since its last round; it never changes the rows of a version
    that is kept. So a crash at any moment leaves them as they are, and the next round begins with the first step again.

    Args:
        past: what it looks at, and removes from.
        schedule: how often it does, and how long what is kept is kept.
        make_thread: makes the thread.
    """

    def __init__(
        self,
        past: TablePast,
        schedule: Upkeep,
        make_thread: Callable[[], Executor] = lambda: ThreadPoolExecutor(1, "txtopo-upkeep"),
    ) -> None:
        self.schedule = schedule
        self._past = past
        self._make_thread = make_thread
        self._versions = _KeptVersions(past)
        self._removed: deque[Removed] = deque(maxlen=_REMOVED_MAX)
        """What this coordinator's versions have removed, oldest first."""
        self._writes = self._rows_grown = 0
        """How many transactions were written since the last round began, and how many rows more there are by them."""
        self._checkpoints = 0
        self._made = (-1, 0)
        """The version of the last checkpoint, and how many files there were then."""
        self._cleaned_up = _CleanedUp()
        self._deleted_secs = 0.0
        """When files were last deleted that this coordinator has removed."""
        self._thread: Executor | None = None
        self._round: Future[None] | None = None

    def keep(self, history: History) -> None:
        """Keep what a history names from now on."""
        self.schedule = attrs.evolve(self.schedule, history=history)

    def written(self, removed: Removed, rows_grown: int | None) -> None:
        """Take note of a version that this coordinator has made, and of what it has removed.

        ``rows_grown`` is how many rows more there are by a transaction; None if it has made none visible.
        """
        if rows_grown is not None:
            self._writes += 1
            self._rows_grown += rows_grown
        if removed.places:
            self._removed.append(removed)

    @property
    def is_running(self) -> bool:
        """Whether a round is under way."""
        return self._round is not None and not self._round.done()

    def is_due(self, rows: int) -> bool:
        """Return whether a round should begin, for what was written to a table that has some rows, or for the time."""
        schedule, cleaned = self.schedule, self._cleaned_up
        if cleaned.began_secs == math.inf:  # a run that ends soon has nothing to remove
            self._cleaned_up = _CleanedUp(schedule.now_secs)
        is_needed = self._writes > 0 or cleaned.is_aging or schedule.points != cleaned.points
        is_due = schedule.is_due(self._writes, self._rows_grown, rows - self._rows_grown)
        return (is_due or (is_needed and self._is_time)) and not self.is_running

    @property
    def _is_time(self) -> bool:
        """Whether a clean-up is due by the time that has passed since the last one."""
        schedule = self.schedule
        every_secs = schedule.clean_up_secs if self._past.is_local else schedule.clean_up_secs_remote
        return schedule.is_recent_kept and abs(schedule.now_secs - self._cleaned_up.began_secs) >= every_secs

    def begin(self, version: int, files: Collection[str]) -> None:
        """Begin a round, unless so little was written that a checkpoint is not worth it; none may be under way.

        ``version`` is to get the checkpoint; ``files`` are its files, and those of a write that is prepared.
        """
        round_made, points_kept = self._made
        versions = min(-(-points_kept // self.schedule.kept_per_version), _VERSIONS_MAX)
        if self._is_time or round_made < 0 or version - round_made >= versions:
            self._submit(self._run, self.schedule, version, set(files))
        else:  # what was written may be the last
            self._cleaned_up = attrs.evolve(self._cleaned_up, is_aging=True)
        self._writes = self._rows_grown = 0

    def delete_removed(self, files: Callable[[], set[str]], is_head: Callable[[], bool]) -> None:
        """Begin to delete what this coordinator has removed and nobody needs any more, if there is any.

        It was removed before the last clean-up, which knows the files of all that can be a point until then, and longer
        ago than versions stay; so no version that stays has it, unless somebody else takes it into the table again. He
        would have put the version after the head: the window that is left is that of :class:`_CleanUp`.

        Args:
            files: returns the files of the head, and those of a write that is prepared.
            is_head: says whether nobody has written since the head.
        """
        schedule, now_secs = self.schedule, self.schedule.now_secs
        if schedule.files_secs is None or not schedule.is_recent_kept or self.is_running:
            return
        until_ms = 1000 * (now_secs - schedule.files_secs)
        is_time = self._past.is_local or abs(now_secs - self._deleted_secs) >= _REMOVE_SECS
        if is_time and self._first_gone(until_ms) is not None:
            self._deleted_secs = now_secs
            self._submit(self._delete_removed, until_ms, files(), is_head)

    def _first_gone(self, until_ms: float) -> Removed | None:
        """Return the first of what was removed if it is nobody's any more."""
        first = self._removed[0] if self._removed else None
        is_gone = first is not None and first.version <= self._cleaned_up.version and first.time_ms < until_ms
        return first if is_gone else None

    def _delete_removed(self, until_ms: float, needed: set[str], is_head: Callable[[], bool]) -> None:
        looked_secs = 0.0
        while (first := self._first_gone(until_ms)) is not None:
            if abs(self._past.clock_secs() - looked_secs) > self.schedule.trust_secs:
                looked_secs = self._past.clock_secs()
                if not is_head():
                    return
            # A crash leaves the rest to a clean-up; so does a write that has forgotten the first meanwhile.
            if self._removed.popleft() is not first:
                return
            for place in first.places:
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
        past, is_clean_up_due = self._past, self._is_time or self._checkpoints % schedule.clean_up_checkpoints == 0
        past.begin(version)
        present = past.presence()
        past.make_checkpoint(version, present)
        of_points: Collection[int] = ()
        if is_clean_up_due:
            of_points = self._versions.versions_of(schedule.kept, version)
            needed |= self._versions.keep(of_points, present)
        # The entries that it replaces may be removed once it is durable.
        past.sync()
        self._checkpoints += 1
        self._made = (version, len(present))
        if is_clean_up_due:
            clean_up = _CleanUp(past, schedule, self._versions, version, of_points, present, needed)
            is_aging = clean_up.run()
            self._cleaned_up = _CleanedUp(schedule.now_secs, version, schedule.points, is_aging)


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
        missing = sorted(point for point in points if point not in self._versions)
        if missing:
            for at, txid in self._past.transactions(version):
                while missing and missing[-1] >= txid:
                    self._versions[missing.pop()] = at
                if not missing:
                    break
        self._versions |= dict.fromkeys(missing)
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


@attrs.define(eq=False)
class _CleanUp:
    """Deletes what no version of the retention has, while its coordinator leads: its log entries, and its files.

    A file is such if it is older than the retention, is in no version since the one whose checkpoint the round has
    made, is needed by no prepared write, and was removed before the retention began. This includes files of groups
    that were never written to the log.

    A coordinator that has lost its lead may be paused before it deletes, while its successor takes an old file into the
    table again:

    1. Old finds that no version of the retention has the file, and is paused.
    2. New writes the marker, and rolls back to a version that has the file.
    3. Old looks at the table, sees the marker, and stops.

    A window of one file is left, because no store deletes on a condition: old is paused between its last look and the
    deletion that follows within ``trust_secs``, until new has rolled back and found the file in place (see
    :meth:`~state.delta.opened_table.OpenedDeltaTable.roll_back`). Then the newest version lacks that file.

    Args:
        past: what it deletes from.
        schedule: how long what is kept is kept.
        kept: knows which versions stay for what they are.
        version: the version whose checkpoint was made.
        of_points: the versions of points.
        is_there: says of a path whether a file was there when the round began.
        needed: the files of the version, of points and of a prepared write; those of later versions are added.
    """

    _past: TablePast
    _schedule: Upkeep
    _kept: _KeptVersions
    _version: int
    _of_points: Collection[int]
    _is_there: Callable[[str], bool]
    needed: set[str]
    _looked_secs: float = attrs.field(default=0.0, init=False)
    _seen: int = attrs.field(default=attrs.Factory(lambda self: self._version, takes_self=True), init=False)
    """The last version whose files are among those needed."""

    def run(self) -> bool:
        """Delete it; return whether time alone will leave more of it.

        Raises:
            LostLead: a newer epoch has opened the table.
            FileNotFoundError: the log entry of a later version is gone, behind a checkpoint of somebody else.
        """
        self.refresh()  # a coordinator that leads may keep the log longer
        is_log_aging = self._clean_log()
        self._past.remove_late()
        return (self._schedule.files_secs is not None and self._clean_files()) or is_log_aging

    def _clean_log(self) -> bool:
        """Remove the log of versions that nobody needs; return whether time alone will leave more of them.

        What stays can be opened from a checkpoint on. The oldest goes first: a crash leaves entries before a gap, by
        which no version can be opened.
        """
        past, version = self._past, self._version
        secs = self._schedule.entries_secs(past.configuration())
        if secs is None:
            return False
        log = past.log()
        oldest_secs = self._schedule.now_secs - secs
        # The newest that is too old itself was the newest version when the time began.
        old = [entry for entry, item in log.entries.items() if entry <= version and item.modified_secs < oldest_secs]
        first = self._past.last_transaction(max(old, default=0))
        is_aging = first < past.last_transaction(version)
        if not is_aging and first not in log.checkpoints and first in log.versions():
            # Versions without a transaction have followed, so no round has made one of it, and none would.
            past.make_checkpoint(first, self._is_there, is_newest=False)
            self._past.sync()
            log = past.log()
        base = max((checkpoint for checkpoint in log.checkpoints if checkpoint <= first), default=0)
        past_ones = [number for number in log.files if number < base]
        own_turns = past.own_turns() if past_ones else ()  # once: delta-rs reads the log for it
        for number in past_ones:
            stays: tuple[str, ...] = ()
            if number in self._of_points:
                stays = (entry_path(number), checkpoint_path(number))
            elif self._kept.is_turn(number, own_turns):
                stays = (entry_path(number),)
            self._delete(path for path in log.files[number] if path not in stays)
        return is_aging

    def _clean_files(self) -> bool:
        """Remove the files that nobody needs; return whether time alone will leave more of them."""
        past, schedule, now_secs = self._past, self._schedule, self._schedule.now_secs
        assert schedule.files_secs is not None, "files are removed"
        oldest_secs = now_secs - schedule.files_secs
        removals = past.removals_in(self._version)
        removable = {
            place
            for removal in removals
            if removal.time_ms < oldest_secs * 1000
            for place in removal.places
            if self._is_there(place)
        }
        unnamed_secs, written = min(oldest_secs, now_secs - _UNNAMED_SECS), past.written()
        removable.update(path for path, written_secs in written.items() if written_secs < unnamed_secs)
        removable.update(past.old_outside(schedule.files_secs))
        removable -= self.needed
        if removable:
            removable.difference_update(past.removed_since(oldest_secs, self._version, now_secs))
        self._delete(removable)
        # Those of a dead group are in no version and in no removal.
        named = self.needed.union(*(removal.places for removal in removals))
        is_unnamed = any(path not in named for path in written if path not in removable)
        return is_unnamed or any(removal.time_ms >= oldest_secs * 1000 for removal in removals)

    def refresh(self) -> None:
        """Check the fence, and take note of the files that later versions have taken in."""
        newest = self._past.refresh()
        while self._seen < newest:
            self.needed.update(self._past.added_in(self._seen + 1))
            self._seen += 1

    def _delete(self, paths: Iterable[str]) -> None:
        """Delete files, but none that is needed; see :meth:`refresh`. A crash leaves some to the next round."""
        for path in paths:
            if abs(self._past.clock_secs() - self._looked_secs) > self._schedule.trust_secs:
                self._looked_secs = self._past.clock_secs()
                self.refresh()
            if path not in self.needed:
                self._past.delete(path)
