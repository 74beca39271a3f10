"""The transactions as of which a table can be shown, as far as its log goes back.

Its newest versions are all there. Of older ones, those of points are, each with the entry that made it; the entries of
a table that went back stay, too, and tell which later ones are void. Entries may stay for longer than files do.

The application transaction ``<topology>/<state>`` rises from version to version, so bisection from the end finds the
newest version whose txid is not above the wanted one, of those that the log still has. It falls only if ``txtopo
repair`` has rolled the table back: each version has the number of the last rollback, and if the wanted version is not
after that, it is searched up to the version that was restored.
"""

from __future__ import annotations

import bisect
import contextlib
import datetime as dt
import itertools
from collections.abc import Collection, Iterator, Sequence

import attrs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from state.delta.log.data_files import DataFolder, Presence, files_of
from state.delta.log.entries import LogEntry, actions_of, log_entries, read_entry, standing, version_after
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from state.delta.log.ownership import Numbers, Owner
from txtopo.api.data.utc import EPOCH
from txtopo.errors import ConfigError, DivergenceError
from txtopo.journal.ending import metadata_dir_below
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart
from txtopo.journal.folders import find_journal
from txtopo.journal.journal import counting_parts
from txtopo.journal.search import JournalSearch

_TELLING_MAX = 8
"""How many versions are looked at for one that needs files: a table may be empty for long."""


@attrs.frozen
class ShownPoint:
    """A transaction as of which a table can be shown, or all tables of a topology can.

    Args:
        txid: the transaction.
        written_ms: when it was written, in milliseconds since 1970; None if that is not known.
    """

    txid: int
    written_ms: int | None = None

    def __str__(self) -> str:
        """Return it in words."""
        if self.written_ms is None:
            return str(self.txid)
        return f"{self.txid}, written {EPOCH + dt.timedelta(milliseconds=self.written_ms):%Y-%m-%d %H:%M:%S} UTC"


@attrs.frozen
class ShownPoints:
    """The transactions as of which a table can be shown, or all tables of a topology can.

    Args:
        points: those of which the next versions are gone, oldest first.
        since: from this one on, each that ends a commit group is one.
        last: the newest one.
    """

    points: tuple[ShownPoint, ...]
    since: ShownPoint
    last: ShownPoint

    def shows(self, txid: int) -> bool:
        """Whether a transaction, which must end a commit group, is one of them."""
        return txid >= self.since.txid or any(point.txid == txid for point in self.points)

    def until(self, txid: int) -> int:
        """Return the last of the points up to a transaction; 0 if there is none."""
        return max((point.txid for point in self.points if point.txid <= txid), default=0)

    def around(self, txid: int) -> tuple[ShownPoint | None, ShownPoint | None]:
        """Return the last one before a transaction that none of them is, and the first after it."""
        every = [*self.points, *{self.since.txid: self.since, self.last.txid: self.last}.values()]
        before = [point for point in every if point.txid < txid]
        after = [point for point in every if point.txid > txid]
        return (before[-1] if before else None), (after[0] if after else None)


@attrs.frozen
class GroupWrites:
    """The commit groups that wrote a state, as far as the journal goes back, or tells of some transactions.

    Args:
        begin: the last transaction that was committed before the journal begins.
        before: the last one up to there that wrote the state, 0 if none has; None if the journal does not say.
        firsts: the first transaction of each group, in order.
        lasts: the last one of each.
    """

    begin: int
    before: int | None
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]

    @staticmethod
    def of(parts: Sequence[JournalPart], state: str) -> GroupWrites:
        """Find them in a journal, which must have a part."""
        header = parts[0].header
        before = (header.states[state] or 0) if state in header.states else None
        firsts: dict[int, int] = {}
        """By the last transaction of each group, the first one; itself where a header alone tells of it."""
        for part in counting_parts(parts, lambda _: True):
            firsts = {last: first for last, first in firsts.items() if last <= part.header.committed}
            firsts.setdefault(part.header.states.get(state) or 0, part.header.states.get(state) or 0)
            firsts |= {entry.last: entry.first for entry in part.entries if state in entry.states}
        lasts = sorted(last for last in firsts if last)
        return GroupWrites(header.committed, before, tuple(firsts[last] for last in lasts), tuple(lasts))

    def has_none(self, reached: int, txid: int) -> bool:
        """Whether the state's last write up to a transaction is known to be that of ``reached``; 0: there is none."""
        if self.begin > reached and self.before != reached:
            return False
        following = bisect.bisect_right(self.lasts, reached)
        return following == len(self.lasts) or self.firsts[following] > txid


@attrs.frozen
class WrittenGroup:
    """The journal's facts about the group of a Delta write: its first transaction, and how many keys it removed."""

    first: int
    removed: int


@attrs.frozen
class _Whole:
    """Tells which versions have all of their files: these may go sooner than entries of the log."""

    location: Location
    present: Presence

    @classmethod
    def of(cls, location: Location) -> _Whole:
        return cls(location, DataFolder(location).presence())

    def has(self, version: int) -> bool | None:
        """Whether a version has all of its files; None if it needs none."""
        files = files_of(self.location, self.location.handle(version)).values()
        return all(self.present(place) for file in files for place in file.places) if files else None

    def first(self, low: int, high: int, checkpoints: Collection[int]) -> int:
        """Return the first version from which on all have, of those from ``low`` on; that of ``high`` has.

        The versions of points, which have ``checkpoints``, are kept among others that are not; and the first versions
        of a table need no file. So the next ones tell.
        """
        middle = low  # which is the first one, mostly
        while low < high:
            telling = (number for number in range(middle, high) if number not in checkpoints)
            answers = ((number, self.has(number)) for number in itertools.islice(telling, _TELLING_MAX))
            asked, is_whole = next((each for each in answers if each[1] is not None), (0, True))
            if is_whole:
                high = middle
            else:
                low = asked + 1
            middle = (low + high) // 2
        return low


@attrs.frozen
class TableVersions:
    """A table, and what is kept of the versions before.

    Args:
        location: the table's location.
        table: a handle of its newest version, or of the newest one to consider.
        owner: its owner, by the names of today, as the journal has it.
    """

    location: Location
    table: DeltaTable
    owner: Owner

    @property
    def txid(self) -> int | None:
        """The last transaction; None before the first."""
        return self.txid_of(self.table)

    def txid_of(self, table: DeltaTable) -> int | None:
        """Return the last transaction of another handle's version."""
        return table.transaction_version(self.owner.application)

    def numbers_of(self, table: DeltaTable) -> Numbers:
        """Return what a handle's version carries."""
        return Numbers.of(table, self.owner.application)

    def points(self) -> ShownPoints:
        """Find the transactions as of which the table can be shown.

        It costs two listings, and a read for each version before the last gap in the log and each time that the table
        went back since; if files have gone sooner than entries, one for each bisection of these, too.
        """
        location, newest = self.location, self.table.version()
        log = KeptLog.of(location.folder)
        versions = [version for version in log.versions() if version <= newest]
        first = versions[-1]
        for version in reversed(versions[:-1]):
            if version != first - 1:
                break
            first = version
        complete = _Whole.of(location)
        logged, first = first, complete.first(first, newest, log.checkpoints)
        entry = read_entry(location, first)
        began_txid = self.txid_of(location.handle(first)) or 0
        since = ShownPoint(began_txid, None if entry is None else entry.written_ms)
        turns = list(self.rollbacks(first))
        for turn in turns:
            if (turn.txid or 0) < since.txid:
                since = ShownPoint(turn.txid or 0, turn.written_ms)
        lowest = since.txid
        points: list[ShownPoint] = []
        older = (read_entry(location, number) for number in reversed([*log.entries]) if number < first)
        for entry_found in standing(each for each in (*turns, entry, *older) if each is not None):
            if entry_found.version >= first or entry_found.txid is None or entry_found.txid >= lowest:
                continue
            lowest, version = entry_found.txid, entry_found.version
            is_kept = version < logged or (version in log.checkpoints and complete.has(version))
            if version in versions and is_kept:
                points.append(ShownPoint(lowest, entry_found.written_ms))
        txid = self.txid or 0
        entry_made = next((each for each in log_entries(location, newest, first) if each.txid == txid), None)
        last = ShownPoint(txid, None if entry_made is None else entry_made.written_ms)
        return ShownPoints(tuple(reversed(points)), since, last)

    def rollbacks(self, first: int) -> Iterator[LogEntry]:
        """Yield the versions after ``first`` that went back, newest first, and were not rolled back themselves.

        Each names the one before it; see :func:`~state.delta.log.entries.standing`.
        """
        table, first = self.table, max(0, first)
        # None is the first version, which has no rows yet: so 0 says that there is none.
        while (version := self.numbers_of(table).rolled_back_at or 0) > first:
            entry = read_entry(self.location, version)
            if entry is None:
                return
            yield entry
            if (entry.restored or 0) <= first:
                return
            table = self.location.handle(entry.restored)

    def as_of(self, txid: int) -> DeltaTable | None:
        """Return the newest version whose txid is up to one; None if it is not kept."""
        if (self.txid or 0) <= txid:
            return self.table
        latest = self.table.version()
        versions = [version for version in KeptLog.of(self.location.folder).versions() if version < latest]
        rolled_back_at = self.numbers_of(self.table).rolled_back_at or 0
        # Txids fall at the last rollback: if it restored more than is wanted, search before it, otherwise after it.
        rolled_back = read_entry(self.location, rolled_back_at) if rolled_back_at else None
        first = bisect.bisect_left(versions, rolled_back_at)
        if rolled_back is not None and (rolled_back.txid or 0) > txid:
            # Not in between: the table may have gone back even further, and then to that version.
            first = bisect.bisect_right(versions, rolled_back.restored or 0)
            before = self._kept(versions[first - 1]) if first else None
            return None if before is None else attrs.evolve(self, table=before).as_of(txid)
        # The wanted version is usually one of the last few: so the first steps are short, and each doubles.
        step = 1
        low, high = first, len(versions)
        while low < high:  # the wanted version is in versions[low:high], or is the one before those
            middle = max((low + high) // 2, high - step)
            step *= 2
            if self._txid_at(versions[middle]) > txid:
                high = middle
            else:
                low = middle + 1
        handle = self._kept(versions[low - 1]) if low > first else None
        return None if handle is None else self._with_files(handle)

    def exact_as_of(self, txid: int) -> DeltaTable | None:
        """Return what :meth:`as_of` does; None, too, where others may have written it in between."""
        handle = self.as_of(txid)
        if handle is None or handle.version() >= self.table.version():
            return handle
        reached = self.txid_of(handle) or 0
        is_exact = reached == txid or self.following(handle) == handle.version() + 1
        return handle if is_exact or self.is_last_write(reached, txid) else None

    def following(self, table: DeltaTable) -> int:
        """Return the number of the next version that is kept after one that is not the newest."""
        return next(version for version in KeptLog.of(self.location.folder).versions() if version > table.version())

    def is_last_write(self, last: int, txid: int) -> bool:
        """Whether the journal shows that its last write up to a transaction is that of ``last``; 0: it has none."""
        journal = self._journal()
        with contextlib.suppress(DivergenceError):  # it is damaged
            parts = [] if journal is None else [part for part in journal.around([txid]) if self._is_of(part.header)]
            return bool(parts) and GroupWrites.of(parts, self.owner.state).has_none(last, txid)
        return False

    def group_of(self, last: int) -> WrittenGroup | None:
        """Return the group whose last transaction is given; None if no journal beside the table has it."""
        journal, state = self._journal(), self.owner.state
        entries: list[JournalEntry] = []
        with contextlib.suppress(DivergenceError):
            groups = () if journal is None else journal.all_with(last)
            entries = [group.entry for group in groups if self._is_of(group.header) and state in group.entry.states]
        entries = [entry for entry in entries if entry.last == last]
        if not entries:
            return None
        # A dropped group may have been entered again with other limits. So only what holds for all entries is used.
        return WrittenGroup(min(entry.first for entry in entries), max(entry.states[state][1] for entry in entries))

    def _journal(self) -> JournalSearch | None:
        with contextlib.suppress(ConfigError):
            return JournalSearch(find_journal(metadata_dir_below(self.location.folder.parent), self.owner.topology_id))
        return None

    def _is_of(self, header: JournalHeader) -> bool:
        """Whether a coordinator knew the table as that of its state."""
        known = header.tables.get(self.owner.state)
        return known is not None and known.identity == str(self.table.metadata().id)

    def _with_files(self, handle: DeltaTable) -> DeltaTable:
        """Return a version or, if files of it are gone, the one that made its last transaction visible.

        1. A group writes a version, which becomes a point's. Upkeep moves its rows to other files.
        2. Later groups remove those files, and upkeep deletes them after ``topology.history.recent.secs``.
        3. The log still has the version that moved the rows: it goes with a later clean-up, or comes back after a loss
           of power, perhaps without its entry. What stays for the point is the version of the group.
        """
        version = handle.version()
        entry = read_entry(self.location, version)
        is_of_group = entry is not None and entry.txid is not None
        if is_of_group or not (txid := self.txid_of(handle)):
            return handle
        next_version = version_after(self.location, version, txid)
        if next_version is None or DataFolder(self.location).missing(files_of(self.location, handle).values()) is None:
            return handle
        return self._kept(next_version) or handle

    def _txid_at(self, version: int) -> int:
        """Return the last transaction of a version, 0 if it has none or is not kept.

        Mostly its own entry says it: to open a version takes 20 ms in a log of a thousand, as many as an hour leaves.
        """
        with contextlib.suppress(OSError, ValueError, KeyError):
            actions = ({"txn": action} for action in actions_of(self.location, version, "txn"))
            txid = Numbers.in_entry(actions, self.owner.application).txid
            if txid is not None:
                return txid
        table = self._kept(version)
        return 0 if table is None else self.txid_of(table) or 0

    def _kept(self, version: int) -> DeltaTable | None:
        try:
            return self.location.handle(version)
        except DeltaError:
            return None
