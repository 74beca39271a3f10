"""What a table keeps of its past: what upkeep asks of it, and the answers of a Delta table."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Protocol

import attrs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from state.delta.log.checkpoints import Removal, make_checkpoint, places_in, removals_in
from state.delta.log.data_files import DATA_FOLDER, DataFolder
from state.delta.log.entries import actions_of, entry_path, log_entries, read_entry, valid_transactions
from state.delta.log.kept import KeptLog
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.own_entries import RememberedLog
from state.delta.log.ownership import Fence, Numbers
from state.delta.log.sync import CHECKPOINT, sync_log
from state.delta.log.vectors import places_of, vector_in
from state.delta.upkeep.schedule import FILE_RETENTION, REMOVALS_SECS, RETENTION_HOURS_MIN

_CLOCKS_SECS = 3600
"""How far the clocks of writers and of the folder may be apart."""


@attrs.frozen
class Removed:
    """What a version no longer needs: its number, when it was made, in milliseconds since 1970, and the files."""

    version: int
    time_ms: int
    places: tuple[str, ...]


class Present(Sized, Protocol):
    """The files of a table at one moment: how many are kept, and whether one is there, by its path."""

    def __call__(self, place: str) -> bool:
        """Return whether a file is there."""


class TablePast:
    """The past of a table that a coordinator has opened: what its upkeep asks, and what it does.

    Whatever it is asked raises one of :data:`WORLD_ERRORS` if the table can't be reached.
    """

    is_local: bool
    """Whether a look at it takes no request."""

    def __init__(self, location: Location, fence: Fence) -> None:
        self.is_local = location.root is not None
        self._location = location
        self._fence = fence
        self._table: DeltaTable | None = None
        """A handle of the version that was looked at last."""

    def clock_secs(self) -> float:
        """Return the time, in seconds; not of a monotonic clock, which may stand still while the machine sleeps."""
        return time.time()

    def begin(self, version: int) -> None:
        """Begin a round with a version that this coordinator has made or seen; what is there may be another table."""
        self._table = None  # the log of an older handle may be gone
        if isinstance(self._location, RememberedLog):
            self._location.confirm(entry_path(version))

    @property
    def _opened(self) -> DeltaTable:
        self._table = self._table or self._location.handle()
        return self._table

    def configuration(self) -> Mapping[str, str | None]:
        """Return the table's properties."""
        return self._opened.metadata().configuration

    def refresh(self) -> int:
        """Return the newest version, and go to it; raise LostLead if a newer epoch has opened the table."""
        try:
            self._opened.update_incremental()
        except DeltaError:  # its listing lacks an entry that is put meanwhile, or the handle's log is gone
            self._table = None
        self._fence.check(self._opened)
        return self._opened.version()

    def log(self) -> KeptLog:
        """List the log."""
        return KeptLog.of(self._location.folder)

    def transactions(self, version: int) -> Iterator[tuple[int, int]]:
        """Yield, newest first, versions up to one with a transaction that was not rolled back, and that."""
        return valid_transactions(self._location, version)

    def last_transaction(self, version: int) -> int:
        """Return the version that made the last transaction up to one visible; 0 if the log does not say."""
        entries = log_entries(self._location, version)
        return next((entry.version for entry in entries if entry.txid is not None), 0)

    def own_turns(self) -> Collection[int]:
        """Return the versions by which the table was last turned back, or a turn was marked."""
        numbers = Numbers.of(self._opened, self._fence.owner.application)
        return {at for at in (numbers.rolled_back_at, numbers.turned_at) if at is not None}

    def is_turn(self, version: int) -> bool:
        """Return whether a version has turned the table back, or marks a turn."""
        entry = read_entry(self._location, version)
        return entry is not None and not (entry.restored is None and entry.turn is None)

    def added_in(self, version: int) -> Iterable[str]:
        """Yield the paths of files that a version took in; raise FileNotFoundError if its entry is gone."""
        for added in actions_of(self._location, version, "add"):
            yield from places_of(added["path"], vector_in(added))

    def presence(self) -> Present:
        """Return which files are there now."""
        return DataFolder(self._location).presence()

    def make_checkpoint(self, version: int, is_there: Callable[[str], bool], *, is_newest: bool = True) -> None:
        """Make a checkpoint of a version, unless it has one; see :func:`make_checkpoint`."""
        make_checkpoint(self._location, version, is_there, is_newest=is_newest)

    def sync(self) -> None:
        """Make the log durable."""
        if self._location.root is not None:
            sync_log(self._location.root)

    def places_in(self, version: int) -> frozenset[str]:
        """Return the paths that a version needs, by its checkpoint."""
        return places_in(self._location, version)

    def removals_in(self, version: int) -> Sequence[Removal]:
        """Return the removals that the checkpoint of a version has."""
        return removals_in(self._location, version)

    def removed_since(self, oldest_secs: float, version: int, made_secs: float) -> Iterable[str]:
        """Yield the files that versions up to one have removed since a time.

        Its checkpoint does not know of those that were removed longer ago than the table's
        ``delta.deletedFileRetentionDuration``, 7 days by default: of them, only the log entries of that time tell.
        Older checkpoints may be gone, or made by others at any time.

        Args:
            oldest_secs: the time.
            version: a version that has a checkpoint.
            made_secs: a time at which that was made already, or shortly before.
        """
        for removal in self.removals_in(version):
            if removal.time_ms >= oldest_secs * 1000:
                yield from removal.places
        first_secs = oldest_secs - _CLOCKS_SECS
        last_secs = made_secs - REMOVALS_SECS + _CLOCKS_SECS
        is_default = FILE_RETENTION not in self.configuration()
        for number, item in self.log().entries.items():
            if number > version or item.modified_secs < first_secs or (is_default and item.modified_secs > last_secs):
                continue
            for removed in actions_of(self._location, number, "remove"):
                if (removed.get("deletionTimestamp") or 0) >= oldest_secs * 1000:
                    yield from places_of(removed["path"], vector_in(removed))

    def written(self) -> Mapping[str, float]:
        """Return the paths of all data files, and when they were written, in seconds since 1970."""
        return {item.path: item.modified_secs for item in self._location.folder.list(DATA_FOLDER)}

    def old_outside(self, files_secs: int) -> Iterable[str]:
        """Return the files beside :data:`DATA_FOLDER` that its version does not have and that are old enough."""
        return self._opened.vacuum(max(RETENTION_HOURS_MIN, files_secs // 3600), dry_run=True, full=True)

    def remove_late(self) -> None:
        """Remove entries of the log that were put after a checkpoint of a later version, and that no version has.

        A writer that was stopped for longer than entries stay may put one of a number that is free again (see
        :meth:`~state.delta.writer.TableWriter.put`), and die before it removes it. An entry that has a protocol and
        metadata, of added columns for example, is a version by itself then, to whoever asks for that number or time.
        A turn stays, as a clock that was ahead may have dated it.
        """
        items = {item.path.removeprefix(f"{LOG_FOLDER}/"): item for item in self._location.folder.list(LOG_FOLDER)}
        checkpoints = {name: item.modified_secs for name, item in items.items() if CHECKPOINT in name}
        first = min(checkpoints, default="")
        is_reached = True
        for number, name in enumerate(sorted(name for name in items if name.endswith(".json") and name < first)):
            # Those from 0 on are versions, and so is what a checkpoint has before it.
            is_reached = is_reached and name == f"{number:020d}.json"
            is_late = not is_reached and items[name].modified_secs > min(checkpoints.values())
            digits = name.removesuffix(".json")
            if is_late and not (digits.isdecimal() and self.is_turn(int(digits))):
                self.delete(items[name].path)

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        self._location.folder.delete(path)
