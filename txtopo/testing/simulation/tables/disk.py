"""The past of a simulated table: what of it is on disk, as of Delta's, and what was ever made.

A disk has data files, log entries and checkpoints. Production code says what is deleted of them, when, and in which
order (:mod:`state.delta.upkeep`); what each version consists of is known beside them, so what is lost can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from state.delta.log.checkpoints import Removal, checkpoint_path
from state.delta.log.entries import entry_path
from state.delta.log.kept import KeptLog
from state.delta.upkeep.past import Present, TablePast
from state.delta.upkeep.schedule import Upkeep
from txtopo.errors import FailedException
from txtopo.files.folder import Item
from txtopo.testing.checkers import Rows, Version

FILES_MAX = 3
"""A write that would leave more files than that in a version merges them: some are shared by versions, some are not."""

_DATA = "data-"

LOOKED_SECS = 10
"""How much time passes from one look to the next; no look is trusted for as long."""

SCHEDULE = Upkeep(every_writes=3)


@attrs.frozen(eq=False)
class MadeVersion:
    """A version as it was made."""

    version: Version
    made_secs: float
    live: frozenset[str]
    """The paths of its data files."""
    before: frozenset[str]
    """Those of the version before."""
    is_write: bool
    """Whether it made a transaction visible, or went back to one."""
    turn: int | None = None
    """The transaction that the topology has gone back to, if it says so."""

    @property
    def is_turn(self) -> bool:
        """Whether the topology has gone back by it."""
        return self.turn is not None or self.version.restored is not None


@attrs.frozen
class _Checkpoint:
    removed_ms: Mapping[str, int]
    """When the files were removed that were still there."""


@attrs.define(eq=False)
class Disk:
    """What outlives the coordinators of a table.

    Args:
        wall_secs: returns the time.
        step: called before each step of an upkeep, where its coordinator may die or be paused.
        on_deleted: called when something was deleted.
    """

    wall_secs: Callable[[], float]
    step: Callable[[], None]
    on_deleted: Callable[[Disk], None]
    made: list[MadeVersion] = attrs.field(factory=list)
    """By number; those that are gone, too."""
    data: dict[str, float] = attrs.field(factory=dict)
    """The data files, each with the time at which it was written."""
    entries: dict[int, float] = attrs.field(factory=dict)
    checkpoints: dict[int, _Checkpoint] = attrs.field(factory=dict)
    _written: int = 0

    def __attrs_post_init__(self) -> None:
        self.add(Version(0, None, 0, {}))

    def write(self) -> str:
        """Write a data file that no version has yet, and return its path."""
        self._written += 1
        path = f"{_DATA}{self._written}"
        self.data[path] = self.wall_secs()
        return path

    def add(
        self, version: Version, path: str | None = None, *, turn: int | None = None, is_merge: bool = False
    ) -> None:
        """Put a version; ``path`` is the file that it adds, which has the rows of all others if they are merged."""
        before = self.made[-1].live if self.made else frozenset()
        live = before
        if version.restored is not None:
            live = self.made[version.restored].live if version.restored else frozenset()
        elif path is not None:
            live = frozenset({path}) if is_merge or len(before) >= FILES_MAX else before | {path}
        is_write = (path is not None and not is_merge) or version.restored is not None
        self._append(MadeVersion(version, self.wall_secs(), live, before, is_write, turn))

    def link_from(self, origin: Disk, number: int, version: Version) -> None:
        """Put a version with the files of one of another disk, by links: they are as old as they are there."""
        live = origin.made[number].live
        self.data.update({path: origin.data[path] for path in live})
        self._written = origin._written  # so that no name is used twice
        self._append(MadeVersion(version, self.wall_secs(), live, frozenset(), is_write=True))

    def _append(self, made: MadeVersion) -> None:
        self.made.append(made)
        self.entries[made.version.number] = made.made_secs

    def log(self) -> KeptLog:
        """List the log."""
        files = {
            number: [
                *([entry_path(number)] if number in self.entries else []),
                *([checkpoint_path(number)] if number in self.checkpoints else []),
            ]
            for number in sorted({*self.entries, *self.checkpoints})
        }
        return KeptLog(
            {number: Item(entry_path(number), 0, self.entries[number]) for number in sorted(self.entries)},
            {number: (checkpoint_path(number),) for number in sorted(self.checkpoints)},
            files,
        )

    def transactions(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the versions up to one whose transactions are visible, by the entries, newest first; and these."""
        return self._visible(reversed([entry for entry in sorted(self.entries) if entry <= number]))

    def _visible(self, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
        lowest: int | None = None
        for number in numbers:
            made = self.made[number]
            txid = made.version.txid or 0
            if made.is_write and (lowest is None or txid < lowest):
                lowest = txid
                yield number, txid

    def rows_as_of(self, txid: int) -> Rows:
        """Return the rows as of a transaction, whatever of the table is gone."""
        visible = self._visible(reversed(range(len(self.made))))
        return next((self.made[number].version.rows for number, written in visible if written <= txid), {})

    def version_of(self, txid: int) -> int | None:
        """Return the version of the last write up to a transaction, 0 if there was none; None if it can't be read."""
        readable = set(self.readable())
        for number, written in self.transactions(len(self.made) - 1):
            if written <= txid:
                return number if number in readable else None
        return 0

    def readable(self) -> list[int]:
        """Return the versions that can be read, oldest first."""
        return [number for number in self.log().versions() if self.made[number].live <= self.data.keys()]

    def recent(self, secs: float) -> Iterator[int]:
        """Yield the versions that were the newest one at some moment of the last seconds."""
        since_secs = self.wall_secs() - secs
        for made in reversed(self.made):
            yield made.version.number
            if made.made_secs < since_secs:
                return

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        if path.startswith(_DATA):
            self.data.pop(path, None)
        else:
            number = int(path.rpartition("/")[2].partition(".")[0])
            if path == entry_path(number):
                self.entries.pop(number, None)
            else:
                self.checkpoints.pop(number, None)
        self.on_deleted(self)


@attrs.frozen
class _Present(Present):
    """The data files at one moment."""

    paths: frozenset[str]

    def __len__(self) -> int:
        return len(self.paths)

    def __call__(self, place: str) -> bool:
        return place in self.paths


class SimulatedPast(TablePast):
    """The past of a simulated table that a coordinator has opened; ``check_fence`` raises LostLead if another has."""

    is_local = True

    def __init__(self, disk: Disk, check_fence: Callable[[], None]) -> None:
        self._disk = disk
        self._check_fence = check_fence
        self._asked = 0

    def clock_secs(self) -> float:
        """Return a time, later than any look is trusted; it is asked for before each deletion."""
        self._disk.step()
        self._asked += LOOKED_SECS
        return self._asked

    def begin(self, version: int) -> None:
        """Do nothing: nothing is remembered."""

    def configuration(self) -> Mapping[str, str | None]:
        """Return no properties."""
        return {}

    def refresh(self) -> int:
        """Return the newest version."""
        self._check_fence()
        return len(self._disk.made) - 1

    def log(self) -> KeptLog:
        """List the log."""
        return self._disk.log()

    def transactions(self, version: int) -> Iterator[tuple[int, int]]:
        """Yield the versions of transactions."""
        return self._disk.transactions(version)

    def last_transaction(self, version: int) -> int:
        """Return the version of the last transaction, down to a gap."""
        while version in self._disk.entries:
            if self._disk.made[version].is_write:
                return version
            version -= 1
        return 0

    def own_turns(self) -> Collection[int]:
        """Return all versions of turns."""
        return {made.version.number for made in self._disk.made if made.is_turn}

    def is_turn(self, version: int) -> bool:
        """Return whether a version is one of a turn."""
        return self._disk.made[version].is_turn

    def added_in(self, version: int) -> Iterable[str]:
        """Return what a version has added."""
        if version not in self._disk.entries:
            raise FileNotFoundError(entry_path(version))
        made = self._disk.made[version]
        return made.live - made.before

    def presence(self) -> Present:
        """Return which files are there now."""
        return _Present(frozenset(self._disk.data))

    def make_checkpoint(self, version: int, is_there: Callable[[str], bool], *, is_newest: bool = True) -> None:
        """Make a checkpoint of a version that can be opened."""
        del is_newest  # nobody looks for a name
        disk = self._disk
        disk.step()
        if version in disk.checkpoints:
            return
        if version not in disk.log().versions():
            raise FailedException(f"version {version} can't be opened")
        base = max((checkpoint for checkpoint in disk.checkpoints if checkpoint < version), default=-1)
        removed = dict(disk.checkpoints[base].removed_ms) if base >= 0 else {}
        for made in disk.made[base + 1 : version + 1]:
            removed.update(dict.fromkeys(made.before - made.live, int(made.made_secs * 1000)))
        live = disk.made[version].live
        disk.checkpoints[version] = _Checkpoint(
            {path: time_ms for path, time_ms in removed.items() if path not in live and is_there(path)}
        )
        disk.step()

    def sync(self) -> None:
        """Do nothing: all is durable at once."""

    def places_in(self, version: int) -> frozenset[str]:
        """Return the files of a version."""
        return self._disk.made[version].live

    def removals_in(self, version: int) -> Sequence[Removal]:
        """Return the removals that the checkpoint of a version has."""
        removed = self._disk.checkpoints[version].removed_ms
        return [Removal(time_ms, (path,)) for path, time_ms in removed.items()]

    def removed_since(self, oldest_secs: float, version: int, made_secs: float) -> Iterable[str]:
        """Yield what was removed since a time, by the checkpoint, which knows of all that is there."""
        del made_secs
        for removal in self.removals_in(version):
            if removal.time_ms >= oldest_secs * 1000:
                yield from removal.places

    def written(self) -> Mapping[str, float]:
        """Return the data files."""
        return dict(self._disk.data)

    def old_outside(self, files_secs: int) -> Iterable[str]:
        """Return none: all data files lie together."""
        del files_secs
        return ()

    def remove_late(self) -> None:
        """Do nothing: no write is put by its number alone."""

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._disk.delete(path)
