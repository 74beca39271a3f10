"""Rewind: the points that a topology can be brought back to, and the plan to go to one.

A *point* is the end of a commit group: at every other transaction, no table has a version. The journal knows the points
and what belongs to each: metadata, the states and their last transactions. A topology can be brought back to a point if
every table keeps its version of it. :mod:`txtopo.transactional.recovery.operations.repair` carries the plan out, in the
steps of any repair; then the transactions after the point begin anew.

Transaction 0 is a point as well: no table needs an old version to become empty.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import NEVER
from txtopo.api.state import StateTable, TableDescription
from txtopo.attempts import transactions_words
from txtopo.errors import StateAccessError
from txtopo.journal.backfills import backfills_of, unfinished_backfills
from txtopo.journal.journal import (
    JournalEntry,
    JournalHeader,
    JournalPart,
    JournalTransaction,
    counting_entries,
    find_journal,
    read_journal,
)
from txtopo.transactional.recovery.checkpoints import Checkpoint, checkpoints_in
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState
from txtopo.transactional.recovery.divergence import CoordinatorRecord
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject, descriptions_of
from txtopo.transactional.recovery.operations.ways import Ways
from txtopo.transactional.recovery.plans import GoTo, StartAnew

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
class Past:
    """What a topology can be brought back to, as journal and tables have it; read without the lead."""

    points: tuple[Point, ...]
    """Newest first: the first is where the topology is, the last is transaction 0."""
    transactions: tuple[JournalTransaction, ...]
    """The committed transactions that the journal has, oldest first."""
    descriptions: Mapping[str, TableDescription]
    unversioned: tuple[str, ...]
    """The states that keep no versions: they stay as they are, whatever the point."""

    _ways: Ways

    @classmethod
    def of(cls, subject: RepairSubject, parts: Sequence[JournalPart], known: CoordinatorRecord) -> Past:
        """Read the tables, and find the points in a journal, which must have a part.

        ``known`` is what the coordinator state says, which may have begun a state that the journal does not know yet.

        Raises:
            StateAccessError: the journal ends before it.
        """
        newest, decided = parts[-1].header, known.decided
        tables = subject.tables()
        descriptions = descriptions_of(tables)
        checkpoints = checkpoints_in(
            parts, subject.topology_id, newest.incarnation, subject.states, descriptions, decided=decided
        )
        if checkpoints[0].txid < decided:
            raise StateAccessError(
                f"topology {subject.topology_id!r} is at transaction {decided}, but its journal ends at "
                f"{checkpoints[0].txid}: it was run without a journal, or a part is lost. Nothing can be brought back; "
                "nothing was changed",
                txid=decided,
            )
        if checkpoints[-1].txid:
            checkpoints.append(Checkpoint(0, None, newest.incarnation, newest.spouts, {}, "the tables"))
        entries = _entries(parts, checkpoints[0].txid)
        now = checkpoints[0]
        mark = CommittedMark(now.txid, now.metadata, {**now.states, **known.committed.states}, now.planned)
        record = CoordinatorRecord(subject.topology_id, newest.incarnation, newest.epoch, mark, None)
        ways = Ways(
            record=record,
            tables=tables,
            descriptions=descriptions,
            optional=subject.optional,
            kept=versions_kept(tables, descriptions, checkpoints),
            backfilled=backfills_of(subject.metadata_dir, parts),
            # The journal may name states of a backfill that died just before it joined: that alone means nothing.
            unfinished=unfinished_backfills(
                subject.metadata_dir,
                subject.topology_id,
                {name: each.identity for name, each in known.committed.states.items()},
            ),
        )
        firsts = {entry.last: entry.first for entry in entries}
        transactions = _transactions(entries)
        gaps = _Gaps.among(transactions)
        points = [
            Point(each, firsts.get(each.txid, each.txid), rolled_back, (*obstacles, *gaps.after(each)))
            for each in checkpoints
            for rolled_back, obstacles in [ways.rollbacks(each)]
        ]
        return cls(
            tuple(points),
            transactions,
            descriptions,
            tuple(name for name in subject.states if name not in tables),
            ways,
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

    def undone(self, point: Point) -> tuple[JournalTransaction, ...]:
        """Return the transactions after a point, which would begin anew, in order, as far as the journal has them."""
        return tuple(each for each in self.transactions if each.txid > point.txid)

    def at(self, time_ms: int) -> int:
        """Return the last transaction that was planned at or before a time, in ms since 1970.

        Raises:
            StateAccessError: the journal does not go back to that time, or the topology does not.
        """
        known = [each for each in self.transactions if each.planned != NEVER]
        if not known or (known[0].planned.at_ms > time_ms and self.transactions[0].txid > 1):
            since = f": it begins with {known[0].txid}, of {known[0].planned.at:%F %T} UTC" if known else ""
            raise StateAccessError(f"the journal does not say which transaction was the last then{since}; give a TXID")
        until = [each.txid for each in known if each.planned.at_ms <= time_ms]
        if not until:
            raise StateAccessError(
                f"the first transaction was planned at {known[0].planned.at:%F %T} UTC, after that time; to go back to "
                "before it, which empties the tables, give TXID 0"
            )
        return max(until)

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
                reasons.append(
                    "the next point is 0, before the first transaction, where all tables are empty; give TXID 0 if "
                    "that is meant"
                )
            elif not point.obstacles and self._is_kept(point):
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
        return attrs.evolve(plan, until=self.committed.txid, held=self._held, is_rewind=True)

    @property
    def _held(self) -> dict[str, int]:
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
    found = list(dict.fromkeys(reasons))
    if len(found) <= REASONS_MAX + 1:
        return found
    return [*found[:REASONS_MAX], f"so it is with {len(found) - REASONS_MAX:,} more versions before"]


def refuse_other_store(topology_id: str, incarnation: str | None, newest: JournalHeader | None) -> None:
    """Refuse a store that does not have the coordinator state that belongs to a topology's journal.

    Args:
        topology_id: the topology's id.
        incarnation: its incarnation in the store; None if it has none there.
        newest: the newest header of its journal; None if it has none.

    Raises:
        StateAccessError: they do not belong together.
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
    gone = {name for name, mark in committed.states.items() if mark.begun_after and mark.left_after == mark.begun_after}
    new = tuple(
        name
        for name in subject.states
        if committed.txid and name not in committed.states.keys() - gone and name not in subject.optional
    )
    return attrs.evolve(subject, states={n: each for n, each in subject.states.items() if n not in new}), new


def versions_kept(
    tables: Mapping[str, StateTable], descriptions: Mapping[str, TableDescription], checkpoints: Sequence[Checkpoint]
) -> dict[str, Collection[int]]:
    """Return, by state, the transactions of checkpoints whose versions its table keeps, by one pass over its log."""
    wanted = {name: {each.states[name].txid or 0 for each in checkpoints if name in each.states} for name in tables}
    return {
        name: {*([0] if table.is_kept(None) else []), *table.kept(wanted[name])}
        for name, table in tables.items()
        if name in descriptions
    }


def refuse_left_behind(subject: RepairSubject, coordinator_state: CoordinatorState, plan: GoTo | StartAnew) -> None:
    """Refuse code that lacks a state whose table has rows that a plan undoes, or that a fork would not get.

    Raises:
        StateAccessError: it lacks one.
    """
    held, after = plan.held, 0
    if isinstance(plan, GoTo) and not plan.is_beside:
        after = plan.txid
        if coordinator_state.is_begun and coordinator_state.incarnation == plan.incarnation:
            # A plan that an earlier version has recorded does not name them.
            known = coordinator_state.committed().states
            held = {**{name: mark.txid or 0 for name, mark in known.items()}, **held}
    left = [name for name, last in held.items() if name not in subject.states and last > after]
    if left:
        raise StateAccessError(
            f"the code lacks {', '.join(map(repr, left))}, with rows of transactions after {after} that would stay "
            "behind: use code that declares it, and take it out of the topology afterwards; nothing was changed",
            txid=after,
        )


def metadata_after(subject: RepairSubject, coordinator_state: CoordinatorState, plan: GoTo) -> list[Any]:
    """Return the metadata of the transactions with input that a plan lets begin anew, in order.

    Not only committed ones have taken input: so have those that are begun in the store, and those of the last group in
    the journal, which may never have been committed. Once the plan is on record, its own part of the journal may be
    there, which has none of them: it does not count.

    Raises:
        StateAccessError: one of them is missing, so nobody can say whether its input is there.
    """
    # The store comes first: what leaves it meanwhile, if the topology is running, is in the journal already.
    is_same = coordinator_state.is_begun and coordinator_state.incarnation == plan.incarnation
    begun = coordinator_state.begun_as_far_as_known() if is_same else ()
    parts = [
        part
        for part in read_journal(find_journal(subject.metadata_dir, subject.topology_id))
        if part.header.incarnation == plan.incarnation and (not plan.epoch or part.header.epoch < plan.epoch)
    ]
    entered = _transactions(counting_entries(parts, lambda _: True))
    known = {each.txid: (each.metadata, each.planned) for each in entered}
    # A store that was restored from a backup may have another transaction than the one that was committed since.
    known |= {each.txid: (each.metadata, each.planned) for each in begun if each.txid > plan.until}
    # A table has more only if all but it was restored from a backup that was taken in the midst of this.
    tables = descriptions_of(subject.tables()).values() if plan.epoch else ()
    reached = [each.last_txid or 0 for each in tables if each.incarnation == plan.incarnation]
    wanted = range(plan.txid + 1, max([plan.until, *known, *reached]) + 1)
    lost = [txid for txid in wanted if txid not in known]
    if plan.unseen_until:
        lost = [min(plan.unseen_after, plan.txid) + 1, plan.unseen_until]
    if lost:
        raise StateAccessError(
            f"{_lost_text(lost[0], lost[-1], plan.txid)}. If the journal was restored from a backup, restore the "
            "coordinator state and all tables from the same one",
            txid=plan.txid,
        )
    return [metadata for metadata, planned in (known[txid] for txid in wanted) if planned.has_input]


@attrs.frozen
class _Gaps:
    """What a journal lacks, found for any point without a look at all transactions after it."""

    txids: Sequence[int]
    """Those that it has, in order."""
    before: Sequence[int]
    """How many are missing before each of them, as if the first one could be 0."""

    @classmethod
    def among(cls, transactions: Sequence[JournalTransaction]) -> _Gaps:
        txids = [each.txid for each in transactions]
        return cls(txids, [txid - at for at, txid in enumerate(txids)])

    def after(self, checkpoint: Checkpoint) -> Iterable[str]:
        """Yield that transactions after a point would have to run again that the journal does not have."""
        first = bisect.bisect_right(self.txids, checkpoint.txid)
        expected = checkpoint.txid + 1 - first
        at = bisect.bisect_right(self.before, expected, first)
        if at < len(self.txids):
            yield _lost_text(expected + at, self.txids[at] - 1, checkpoint.txid)


def _lost_text(first: int, last: int, after: int) -> str:
    return (
        f"the journal no longer has {transactions_words(first, last)}, so it does not say what input would have to be "
        f"read again after transaction {after}; nothing was changed"
    )


def _entries(parts: Sequence[JournalPart], last: int) -> Sequence[JournalEntry]:
    """Return the entries of a journal's newest incarnation that count; its last one does up to transaction ``last``."""
    own = [part for part in parts if part.header.incarnation == parts[-1].header.incarnation]
    return counting_entries(own, lambda entry: entry.last <= last)


def _transactions(entries: Iterable[JournalEntry]) -> tuple[JournalTransaction, ...]:
    """Return the transactions of entries, in order; of one that ran again, the later run."""
    transactions = {each.txid: each for entry in entries for each in entry.transactions}
    return tuple(transactions[txid] for txid in sorted(transactions))
