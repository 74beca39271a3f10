"""The promises of one schedule, checked at each version of a table, when nothing is half-written, and at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from txtopo.testing import checkers
from txtopo.testing.checkers import Rows, require
from txtopo.testing.simulation.durable import Durable
from txtopo.testing.simulation.tables.disk import Disk, SimulatedPast
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.recovery.points import KeptPoint


@attrs.define(eq=False)
class Checks:
    """Checks a schedule.

    The code under test may swallow what a check raises, as an error of user code; so the first one is kept. ``tables``
    checks each version of a table, ``attempts`` each attempt that emits. ``histories`` say how long versions are kept,
    in seconds, and points, in hours; each process has one of them.
    """

    _plan: Plan
    _durable: Durable
    _tables: checkers.TableChecker
    attempts: checkers.AttemptChecker
    _histories: Sequence[tuple[int, int]]
    _wall_secs: Callable[[], float]
    violation: BaseException | None = None
    """The first error that no fault explains."""
    _points: dict[KeptPoint, dict[str, checkers.Rows]] = attrs.field(factory=dict, init=False)
    """The points on record, each with the rows of all tables."""

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep what is raised within, even if the code under test swallows it."""
        try:
            yield
        except Exception as error:
            self.violated(error)
            raise

    def violated(self, error: BaseException) -> None:
        """Keep an error that no fault explains, if it is the first one."""
        if self.violation is None:
            self.violation = error

    def promised(self, hours: int | None = None) -> list[KeptPoint]:
        """Return the points on record that are to be there; note the rows of new ones.

        Without ``hours``, a setting, whichever settings a process had.
        """
        on_record = self._durable.points
        if on_record is None:
            return []
        tables = self._durable.tables
        self._points = {
            point: self._points.get(point)
            or {name: table.disk.rows_as_of(point.txid) for name, table in tables.items()}
            for point in on_record.points
        }
        hours = hours or min(history for _, history in self._histories)
        return list(on_record.at(int(self._wall_secs() * 1000), hours).points)

    def gone_back(self, txid: int) -> None:
        """Forget the metadata of what is undone: it begins anew."""
        known = self.attempts.metadata
        self.attempts.metadata = {each: metadata for each, metadata in known.items() if each <= txid}

    def emits(self, assigned: AssignedAttempt) -> None:
        """Check that the metadata of an attempt is durable before the attempt emits."""
        with self.keeping():
            self.attempts.emits(assigned, self._durable.metadata_of(assigned.attempt.txid))

    def fail_alone(self, txids: set[int], struck: int) -> None:
        """Check that no more transactions of a job fail than faults have struck in it."""
        with self.keeping():
            if len(txids) > struck:
                raise checkers.Violation(f"a failing transaction fails alone (promise 5): {txids}, {struck} struck")

    def written(self, table: str, before: checkers.Version, version: checkers.Version) -> None:
        """Check a new version of a table."""
        with self.keeping():
            self._tables.written(table, before, version)

    def settled(self) -> None:
        """Check the moment in which nothing may be half-written."""
        self.promised()
        with self.keeping():
            tables = self._durable.tables
            rows = {name: table.newest.rows for name, table in tables.items() if name in self._plan.states}
            self._tables.settled(self._durable.committed, rows)

    def past(self, disk: Disk) -> None:
        """Check that what is promised of a table's past is there, when something of it was deleted."""
        name = next(name for name, table in self._durable.tables.items() if table.disk is disk)
        recent_secs = min(secs for secs, _ in self._histories)
        points = {point.txid: self._points[point][name] for point in self.promised()}
        with self.keeping():
            check_promised(name, disk, points, recent_secs)

    def journal(self) -> None:
        """Check that the journal has all that the oldest point needs, when a part of it was cut."""
        needed = min((point.txid for point in self.promised()), default=self._durable.committed)
        first = self._durable.journal_begins_after
        with self.keeping():
            checkers.require(first <= needed, f"the journal begins by the oldest point, {needed}: after {first}")

    def input(self, oracle: checkers.Oracle | None, *, is_cut_anew: bool) -> None:
        """Check at the end that the journal has each transaction once, and all input, by the expected result, if any.

        If ``is_cut_anew``, other transactions have the same input, so that only the final values can be compared.
        """
        after = self._durable.journal_begins_after
        entries = checkers.check_journal(self._durable.journal(), self._durable.committed, after)
        if oracle is not None and not after:
            checkers.check_input(entries, set(self._plan.semantics), oracle.tuples)
            if is_cut_anew:
                for name in self._plan.states:
                    self._final_values(name, oracle)

    def _final_values(self, name: str, oracle: checkers.Oracle) -> None:
        last = oracle.as_of(name, oracle.transactions)
        checkers.require(
            {key: row.value for key, row in self._durable.tables[name].newest.rows.items()}
            == {key: row.value for key, row in last.items()},
            f"every total is as if each tuple had come once (promise 10): table {name!r}",
        )

    def gone(self, hours: int) -> None:
        """Check that nothing is left but what is needed, after an upkeep with this setting."""
        if self.violation is not None:
            raise self.violation
        txids = [point.txid for point in self.promised(hours)]
        for name, table in self._durable.tables.items():
            check_gone(name, table.disk, txids)


def check_promised(name: str, disk: Disk, points: Mapping[int, Rows], recent_secs: float) -> None:
    """Check that what is promised of a table's past can be read: its points, each with its rows.

    Who has begun to read a version may go on for ``recent_secs``.
    """
    for txid, rows in points.items():
        number = disk.version_of(txid)
        require(number is not None and disk.made[number].version.rows == rows, f"point {txid} of {name!r} stays whole")
    readable = set(disk.readable())
    for number in disk.recent(recent_secs):
        require(
            number in readable, f"who has begun to read has {recent_secs} s for it: version {number} of table {name!r}"
        )


def check_gone(name: str, disk: Disk, txids: Iterable[int]) -> None:
    """Check that a table's past has only what is promised: points, and the last transaction with all later versions.

    ``txids`` are the points. Call it twice the time after the last write for which recent versions are kept.
    """
    points = {disk.version_of(txid) or 0 for txid in txids}
    newest = len(disk.made) - 1
    base = max((made.version.number for made in disk.made if made.is_write), default=0)
    is_found = SimulatedPast(disk, lambda: None).last_transaction(newest) == base
    has_one = not base or base in disk.checkpoints
    require(
        is_found and has_one, f"the version of the last transaction of {name!r}, {base}, is there, and a checkpoint"
    )
    log = {number for number in disk.log().files if number < base and not disk.made[number].is_turn}
    require(log <= points, f"the log of versions that nobody needs is gone: {log - points} of table {name!r}")
    needed = frozenset[str]().union(*(disk.made[number].live for number in {*points, *range(base, newest + 1)}))
    extra = disk.data.keys() - needed
    require(not extra, f"files that nobody needs are gone: {sorted(extra)} of table {name!r}")
