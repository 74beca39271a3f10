"""Rewind: the points that a topology can be brought back to, and the plan to go to one.

A *point* is the end of a commit group: at every other transaction, no table has a version. The journal knows the points
and what belongs to each: metadata, the states and their last transactions. A topology can be brought back to a point if
every table keeps its version of it. :mod:`txtopo.transactional.recovery.operations.repair` carries the plan out, in the
steps of any repair; then the transactions after the point begin anew.

Transaction 0 is a point as well: no table needs an old version to become empty.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import NEVER, Planned
from txtopo.api.state import StateTable, TableDescription
from txtopo.attempts import transactions_words
from txtopo.errors import ConfigError, StateAccessError, StopError
from txtopo.journal.backfills import backfills_of, unfinished_backfills
from txtopo.journal.entries import JournalHeader, JournalPart, JournalTransaction
from txtopo.journal.journal import counting_parts
from txtopo.journal.search import JournalSearch
from txtopo.text.words import NOTHING_CHANGED
from txtopo.transactional.recovery.checkpoints import Checkpoint, checkpoints_in
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState
from txtopo.transactional.recovery.divergence import CoordinatorRecord
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject
from txtopo.transactional.recovery.operations.ways import RollbackPlanner
from txtopo.transactional.recovery.plans import GoTo, StartAnew
from txtopo.transactional.recovery.tables import descriptions_of

REASONS_MAX = 3
"""How many reasons are named why a point is passed over."""


@attrs.frozen
class Point:
    """A transaction that a topology can be brought back to, unless there are obstacles."""

    checkpoint: Checkpoint
    first: int
    """The first transaction of the commit group that ends here."""
    rolled_back: tuple[str, ...]
    """The states whose tables would get the rows of an earlier version."""
    obstacles: tuple[str, ...]

    @property
    def txid(self) -> int:
        """The last transaction that would stay committed."""
        return self.checkpoint.txid


@attrs.frozen
class Reach:
    """The checkpoints that a journal tells of, and what tables keep of them."""

    parts: Sequence[JournalPart]
    """What the journal says of them."""
    checkpoints: Sequence[Checkpoint]
    """Newest first."""
    kept: Mapping[str, Collection[int]]
    """By state, the transactions of checkpoints whose versions its table keeps."""

    @classmethod
    def of(
        cls,
        subject: RepairSubject,
        tables: Mapping[str, StateTable],
        descriptions: Mapping[str, TableDescription],
        txids: Iterable[int],
        decided: int,
    ) -> Reach:
        """Find the checkpoints of a topology.

        Args:
            subject: the topology.
            tables: those that count.
            descriptions: of those that are there.
            txids: the points on record, and a transaction that is asked for.
            decided: the last transaction that the coordinator state has decided.

        Raises:
            ConfigError: the journal has no complete line yet.
        """
        all_kept = {name: tables[name].all_kept() for name in descriptions}
        parts = subject.around({*txids, *itertools.chain(*all_kept.values())})
        if not parts:
            raise ConfigError(
                f"the journal of topology {subject.topology_id!r} has no complete line yet: it tells of no transaction"
            )
        incarnation = parts[-1].header.incarnation
        points = checkpoints_in(parts, subject.topology_id, incarnation, subject.states, descriptions, decided=decided)
        kept: dict[str, Collection[int]] = {}
        for name, listed in all_kept.items():  # a table that lists none is asked for those of checkpoints
            txids_of_state = {checkpoint.states[name].txid or 0 for checkpoint in points if name in checkpoint.states}
            kept[name] = {*([0] if tables[name].is_kept(None) else []), *(listed or tables[name].kept(txids_of_state))}
        return cls(parts, points, kept)


@attrs.frozen
class Past:
    """What a topology can be brought back to, as journal and tables have it; read without the lead."""

    points: tuple[Point, ...]
    """Newest first: the first is where the topology is, the last is transaction 0."""
    oldest: int | None
    """The first committed transaction that the journal has; None if it has none."""
    descriptions: Mapping[str, TableDescription]
    unversioned: tuple[str, ...]
    """The states that keep no versions: they stay as they are, whatever the point."""

    _ways: RollbackPlanner
    _subject: RepairSubject

    @classmethod
    def of(cls, subject: RepairSubject, known: CoordinatorRecord, txid: int | None = None) -> Past:
        """Read the tables, and find the points in the journal.

        Args:
            subject: the topology.
            known: what the coordinator state says, which may have begun a state that the journal does not know yet.
            txid: a transaction that is asked for; None: none is yet.

        Raises:
            ConfigError: the journal has no complete line yet.
            StateAccessError: the journal ends before what is known.
        """
        tables, decided = subject.tables(), known.decided
        descriptions = descriptions_of(tables)
        target_txids = () if txid is None else (txid,)
        reach = Reach.of(subject, tables, descriptions, (*known.points, *target_txids), decided)
        parts, checkpoints = reach.parts, [*reach.checkpoints]
        newest = parts[-1].header
        if checkpoints[0].txid < decided:
            raise StateAccessError(
                f"topology {subject.topology_id!r} is at transaction {decided}, but its journal ends at "
                f"{checkpoints[0].txid}: it was run without a journal, or a part is lost. Nothing can be brought back; "
                "nothing was changed",
                txid=decided,
            )
        if checkpoints[-1].txid:
            checkpoints.append(Checkpoint(0, None, newest.incarnation, newest.spouts, {}, "the tables"))
        counting = _counting(parts, checkpoints[0].txid)
        now = checkpoints[0]
        mark = CommittedMark(now.txid, now.metadata, {**now.states, **known.committed.states}, now.planned)
        record = CoordinatorRecord(subject.topology_id, newest.incarnation, newest.epoch, mark, None)
        ways = RollbackPlanner(
            record=record,
            tables=tables,
            descriptions=descriptions,
            optional=subject.optional,
            kept=reach.kept,
            backfilled=backfills_of(subject.metadata_dir, parts),
            # The journal may name states of a backfill that died just before it joined: that alone means nothing.
            unfinished=unfinished_backfills(
                subject.metadata_dir,
                subject.topology_id,
                {name: state.identity for name, state in known.committed.states.items()},
            ),
        )
        firsts = {entry.last: entry.first for part in counting for entry in part.entries}
        gaps = _JournalGaps.between(counting)
        points = [
            Point(
                checkpoint,
                firsts.get(checkpoint.txid, checkpoint.txid),
                rolled_back,
                (*obstacles, *gaps.after(checkpoint)),
            )
            for checkpoint in checkpoints
            for rolled_back, obstacles in [ways.rollbacks(checkpoint)]
        ]
        return cls(
            tuple(points),
            gaps.spans[0][0] + 1 if gaps.spans else None,
            descriptions,
            tuple(name for name in subject.states if name not in tables),
            ways,
            subject,
        )

    @property
    def committed(self) -> Checkpoint:
        """The last committed transaction."""
        return self.points[0].checkpoint

    @property
    def unfinished(self) -> Mapping[str, int]:
        """The states of backfills that have not joined the topology, each with its last transaction."""
        return self._ways.unfinished

    @property
    def standing(self) -> tuple[Point, ...]:
        """The points without obstacles, newest first."""
        return tuple(point for point in self.points if not point.obstacles)

    def undone(self, point: Point) -> Iterator[JournalTransaction]:
        """Yield the transactions after a point, which would begin anew, newest first, as far as known."""
        return itertools.takewhile(
            lambda transaction: transaction.txid > point.txid,
            _backwards(self._subject.journal(), self.committed.txid),
        )

    def at(self, time_ms: int) -> int:
        """Return the last transaction that was planned at or before a time, in ms since 1970.

        Where the clock was put back, it is the last one before the newest file of the journal that begins later.

        Raises:
            StopError: it has not come yet.
            StateAccessError: the journal does not go back to that time, or the topology does not.
        """
        last, newest, journal = self.committed.txid, self.committed.planned, self._subject.journal()
        # A clock may have been ahead when the last transaction was planned.
        if time_ms > max(time.time_ns() // 1_000_000, newest.at_ms):
            raise StopError(
                f"{Planned(time_ms).at:%F %T} UTC has not come yet; the last transaction, {last}, was planned at "
                f"{newest.at:%F %T} UTC; {NOTHING_CHANGED}"
            )
        for header in reversed(journal.headers()):
            if header.planned.at_ms <= time_ms:
                break
            last = min(last, header.committed)
        point = (
            transaction
            for transaction in _backwards(journal, last)
            if transaction.planned != NEVER and transaction.planned.at_ms <= time_ms
        )
        until = next(point, None)
        if until is not None:
            return until.txid
        group = None if self.oldest is None else journal.find(self.oldest)
        planned = NEVER if self.oldest is None or group is None else group.transaction(self.oldest).planned
        if planned == NEVER or self.oldest != 1:
            since = "" if planned == NEVER else f": it begins with {self.oldest}, of {planned.at:%F %T} UTC"
            raise StateAccessError(f"the journal does not say which transaction was the last then{since}; give a TXID")
        raise StateAccessError(
            f"the first transaction was planned at {planned.at:%F %T} UTC, after that time; to go back to before it, "
            "which empties the tables, give TXID 0"
        )

    def nearest(self, txid: int) -> tuple[Point, list[str]]:
        """Return the newest point at or before a transaction, and in words why not a nearer one.

        Transaction 0, where all tables are empty, is only near if it is asked for.

        Raises:
            StateAccessError: the transaction is not committed, or no table keeps a point at or before it.
        """
        if txid > self.committed.txid:
            raise StateAccessError(
                f"transaction {txid} is not committed; the last one is {self.committed.txid}", txid=txid
            )
        reasons: list[str] = []
        for point in self._before(txid, reasons):
            if not point.txid and txid:
                reasons = [*summarized(reasons), *self._oldest_words(txid)]
                if not point.obstacles:
                    reasons.append(
                        "the next point is 0, before the first transaction, where all tables are empty; give TXID 0 if "
                        "that is meant"
                    )
                reasons = reasons or [*point.obstacles]
                break
            if not point.obstacles and self._is_kept(point):
                return point, summarized(reasons)
            reasons += point.obstacles
        raise StateAccessError("; ".join(dict.fromkeys(reasons)), txid=txid)

    def _oldest_words(self, txid: int) -> Iterable[str]:
        """Yield which point is the oldest, if a transaction lies before it."""
        oldest = min((point.txid for point in self.standing if txid < point.txid < self.committed.txid), default=None)
        if oldest is not None:
            yield f"the oldest point is {oldest}"

    def plan(self, point: Point, number: int) -> GoTo:
        """Return the plan to go to a point."""
        plan = self._ways.plan(point.checkpoint, number, is_as_it_is=False)
        return attrs.evolve(plan, until=self.committed.txid, last_txids=self._last_txids, is_rewind=True)

    @property
    def _last_txids(self) -> dict[str, int]:
        """The last transaction of each state that the topology has or has had."""
        states = self.committed.states
        return {name: mark.txid or 0 for name, mark in states.items() if name not in self.unfinished}

    def _before(self, txid: int, reasons: list[str]) -> Iterable[Point]:
        """Return the points up to a transaction; note why it is not one itself."""
        at_or_after = [point for point in self.points if point.txid >= txid]
        group = at_or_after[-1]
        if group.txid != txid:
            if group.first <= txid:
                reasons.append(f"transactions {group.first} to {group.txid} were committed together")
            else:
                reasons.append(f"the journal no longer has transaction {txid}")
        return [point for point in self.points if point.txid <= txid]

    def _is_kept(self, point: Point) -> bool:
        """Whether the tables that are to be rolled back really have their version: a recorded plan must not fail."""
        states = self._ways.plan(point.checkpoint, 0, is_as_it_is=False).states
        return all(self._ways.tables[name].is_kept(states[name]) for name in point.rolled_back)


def summarized(reasons: Iterable[str]) -> list[str]:
    """Return the first of some reasons, each once, and how many more there are: between two points, many are alike."""
    different = list(dict.fromkeys(reasons))
    if len(different) <= REASONS_MAX + 1:
        return different
    return [*different[:REASONS_MAX], f"so it is with {len(different) - REASONS_MAX:,} more versions before"]


def refuse_other_store(topology_id: str, incarnation: str | None, newest: JournalHeader | None) -> None:
    """Raise StateAccessError for a store without the coordinator state that belongs to a topology's journal.

    ``incarnation`` is the topology's in the store, ``newest`` the newest header of its journal; None if there is none.
    """
    if newest is not None and incarnation != newest.incarnation:
        has = "has no coordinator state" if incarnation is None else "has coordinator state of another incarnation"
        raise StateAccessError(
            f"the store of topology {topology_id!r} {has}, but there is a journal. If it has another store, as on a "
            "cluster, give topology.state.store and its settings (of a cluster: transactional.zookeeper.servers and "
            "transactional.zookeeper.root, storm.zookeeper.root followed by /state). If the coordinator state was "
            "lost, run 'txtopo repair' first. Nothing was changed"
        )


def without_new(subject: RepairSubject, committed: CommittedMark) -> tuple[RepairSubject, tuple[str, ...]]:
    """Return a topology without the states that are new in its code, and these.

    A rewind leaves them as they are: what they lack, a backfill gives them. So is a state that was begun empty by a
    start that died, and left out since: it was there for no transaction, and no part of the journal names it.
    """
    empty = {
        name for name, mark in committed.states.items() if mark.begun_after and mark.left_after == mark.begun_after
    }
    new = tuple(
        name
        for name in subject.states
        if committed.txid and name not in committed.states.keys() - empty and name not in subject.optional
    )
    return attrs.evolve(subject, states={n: state for n, state in subject.states.items() if n not in new}), new


def refuse_left_behind(subject: RepairSubject, coordinator_state: CoordinatorState, plan: GoTo | StartAnew) -> None:
    """Raise StateAccessError if code lacks a state with rows that a plan undoes, or that a fork would not get."""
    last_txids, after = plan.last_txids, 0
    if isinstance(plan, GoTo) and not plan.is_beside:
        after = plan.txid
        if coordinator_state.is_begun and coordinator_state.incarnation == plan.incarnation:
            # A plan that an earlier version has recorded does not name them.
            states = coordinator_state.committed().states
            last_txids = {**{name: mark.txid or 0 for name, mark in states.items()}, **last_txids}
    behind = [name for name, last in last_txids.items() if name not in subject.states and last > after]
    if behind:
        raise StateAccessError(
            f"the code lacks {', '.join(map(repr, behind))}, with rows of transactions after {after} that would stay "
            "behind: use code that declares it, and take it out of the topology afterwards; nothing was changed",
            txid=after,
        )


def metadata_after(
    subject: RepairSubject, coordinator_state: CoordinatorState, plan: GoTo
) -> list[tuple[Any, Planned]]:
    """Return the metadata of the transactions that a plan lets begin anew, and how each was planned, in order.

    Not only committed ones have taken input: so have those that are begun in the store, and those of the last group in
    the journal, which may never have been committed. Once the plan is on record, its own part of the journal may be
    there, which has none of them: it does not count.

    Raises:
        StateAccessError: one of them is missing, so nobody can say whether its input is there.
    """
    # The store comes first: what leaves it meanwhile, if the topology is running, is in the journal already.
    is_same = coordinator_state.is_begun and coordinator_state.incarnation == plan.incarnation
    transactions = coordinator_state.begun_as_far_as_known() if is_same else ()

    def is_meant(header: JournalHeader) -> bool:
        return header.incarnation == plan.incarnation and (not plan.epoch or header.epoch < plan.epoch)

    entered = [
        transaction
        for group in subject.journal(is_meant).backwards(reaching=plan.txid + 1)
        for transaction in group.entry.transactions
    ]
    by_txid = {transaction.txid: (transaction.metadata, transaction.planned) for transaction in entered}
    # A store that was restored from a backup may have another transaction than the one that was committed since.
    by_txid |= {
        transaction.txid: (transaction.metadata, transaction.planned)
        for transaction in transactions
        if transaction.txid > plan.until
    }
    # A table has more only if all but it was restored from a backup that was taken in the midst of this.
    tables = descriptions_of(subject.tables()).values() if plan.epoch else ()
    reached = [table.last_txid or 0 for table in tables if table.incarnation == plan.incarnation]
    txids_after = range(plan.txid + 1, max([plan.until, *by_txid, *reached]) + 1)
    lost = [txid for txid in txids_after if txid not in by_txid]
    if plan.unseen_until:
        lost = [min(plan.unseen_after, plan.txid) + 1, plan.unseen_until]
    if lost:
        raise StateAccessError(
            f"{_lost_text(lost[0], lost[-1], plan.txid)}. If the journal was restored from a backup, restore the "
            "coordinator state and all tables from the same one",
            txid=plan.txid,
        )
    return [by_txid[txid] for txid in txids_after]


@attrs.frozen
class _JournalGaps:
    """What a journal lacks."""

    spans: Sequence[tuple[int, int]]
    """After which transaction each part begins, and with which one it ends, in order: a coordinator leaves no gap."""

    @classmethod
    def between(cls, parts: Sequence[JournalPart]) -> _JournalGaps:
        spans: list[tuple[int, int]] = []
        for part in parts:
            if part.entries:
                begin = spans[-1][1] if part.skips and spans else part.header.committed
                spans.append((begin, part.entries[-1].last))
        return cls(sorted(spans))

    def after(self, checkpoint: Checkpoint) -> Iterable[str]:
        """Yield that transactions after a point would have to run again that the journal does not have."""
        reached = checkpoint.txid
        for begin, end in self.spans:
            if begin > reached:
                yield _lost_text(reached + 1, begin, checkpoint.txid)
                return
            reached = max(reached, end)


def _lost_text(first: int, last: int, after: int) -> str:
    return (
        f"the journal no longer has {transactions_words(first, last)}, so it does not say what input would have to be "
        f"read again after transaction {after}; nothing was changed"
    )


def _counting(parts: Sequence[JournalPart], last: int) -> Sequence[JournalPart]:
    """Return a journal's parts of its newest incarnation, as far as they count: the last group up to ``last``."""
    own_parts = [part for part in parts if part.header.incarnation == parts[-1].header.incarnation]
    return counting_parts(own_parts, lambda entry: entry.last <= last)


def _backwards(journal: JournalSearch, last: int) -> Iterator[JournalTransaction]:
    """Yield the transactions of a journal's newest incarnation that count, from ``last`` on, newest first."""
    incarnation = None
    for group in journal.backwards(last):
        incarnation = incarnation or group.header.incarnation
        if group.header.incarnation != incarnation:
            return
        yield from (transaction for transaction in reversed(group.entry.transactions) if transaction.txid <= last)
