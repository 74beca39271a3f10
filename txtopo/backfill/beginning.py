"""The beginning of a backfill: founds its coordinator state at the transaction before its first one.

Where that is a later one than the first, states that the topology has already are copied as of it, or as of the point
before: the backfill goes to the earlier one, and says so before it writes anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import attrs

from txtopo.assembly.storage import make_store
from txtopo.backfill.joining import OWNER, JoinedTopology
from txtopo.backfill.part import BackfillPart
from txtopo.backfill.trial import refuse_missing_input
from txtopo.config import Config
from txtopo.errors import ConfigError, StateAccessError
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder
from txtopo.fork.fork import ForkPoint, ForkPoints, copied, mark_of
from txtopo.journal.folders import find_journal
from txtopo.journal.following import JournalFollower
from txtopo.journal.holds import BackfillHold
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, StateMark, committed_in
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject
from txtopo.transactional.recovery.values import incarnation_in

START_EMPTY = "topology.state.start.empty"

SCRATCH = "tables"
"""Where the scratch tables are, in the folder of a backfill."""


@attrs.frozen
class BackfillPlace:
    """What a backfill runs, and where.

    Args:
        plan: the plan of the part, whose scratch tables are in the folder.
        part: what it consists of.
        config: the topology's configuration.
        folder: the folder of the backfill, which is the metadata directory of its run.
        topology: the topology that it will join.
    """

    plan: Plan
    part: BackfillPart
    config: Config
    folder: Folder
    topology: JoinedTopology
    holding: BackfillHold = attrs.field(
        init=False, default=attrs.Factory(lambda self: BackfillHold(self.folder), takes_self=True)
    )
    """What it needs of the topology's past."""

    @property
    def journal(self) -> Folder:
        """The topology's journal."""
        return find_journal(self.topology.metadata_dir, self.plan.topology_id)

    def committed(self) -> CommittedMark | None:
        """Return the last transaction that is committed here; None if the backfill has not begun."""
        if self.folder.is_empty():
            return None
        with contextlib.closing(make_store(self.plan, self.run_config(None))) as store:
            incarnation = incarnation_in(store, self.plan.topology_id)
            if incarnation not in {None, self.topology.incarnation}:
                raise ConfigError(
                    f"{self.folder} belongs to a backfill of a former incarnation of topology "
                    f"{self.plan.topology_id!r}: remove it, and the tables that it has begun"
                )
            return committed_in(store, self.plan.topology_id)

    @contextlib.contextmanager
    def leading(self, epoch_min: int = 1) -> Iterator[CoordinatorState]:
        """Take the lead of the backfill, and yield its coordinator state; AlreadyRunning if another process has it."""
        with contextlib.closing(make_store(self.plan, self.run_config(None))) as store:
            lead = store.take_lead(self.plan.topology_id, OWNER, epoch_min)
            yield CoordinatorState(store, lead, self.plan.topology_id)

    def begin(self, state: str, first: int | None, on_point: Callable[[ForkPoint], None]) -> CommittedMark:
        """Begin the backfill, or go on with the one that has begun; return what is committed here.

        Args:
            state: the state that was asked for.
            first: the transaction to begin with; None for the first, or for the one with which it has begun.
            on_point: called with the moment after which it begins, if tables are copied as of that, before anything is
                written.

        Raises:
            ConfigError: it can't begin there, or has begun elsewhere; nothing was written.
            StateAccessError: the topology has removed what is to be copied, just now.
            DivergenceError: the topology's tables and its coordinator state are of two timelines.
        """
        self.topology.refuse_two_timelines()
        committed = self.committed()
        if committed is None:
            self._refuse_tables()
            self._refuse_first(first or 1)
            committed = self._begin_state(first, on_point)
        else:
            self.holding.go_on(committed.txid)
        mark = committed.states.get(state)
        begun_with = 1 + (mark.begun_after if mark is not None else committed.txid)
        hold = self.holding.current()
        if first is not None and first not in {begun_with, None if hold is None else hold.wish}:
            raise ConfigError(
                f"the backfill of state {state!r} has begun with transaction {begun_with} and is at "
                f"{committed.txid}: leave --from out to go on with it; or, to begin anew, remove {self.folder} and the "
                "table"
            )
        self._refuse_departed(committed)
        self._prepare()
        return committed

    def run_config(self, committed: CommittedMark | None) -> Config:
        """Return the configuration of the backfill's run, given what is committed here."""
        new = () if committed is None or not committed.txid else set(self.plan.states) - set(committed.states)
        return self.config.with_settings(
            {
                "topology.state.dir": str(self.folder),
                "topology.state.store": None,
                # What the topology has committed can't be given up here.
                "topology.transaction.max.attempts.policy": "WAIT",
                # A run of its topology that has the new state tells of it.
                "topology.lineage": False,
                START_EMPTY: dict.fromkeys(new, committed.txid) if new and committed is not None else None,
            }
        )

    def _begin_state(self, first: int | None, on_point: Callable[[ForkPoint], None]) -> CommittedMark:
        before, marks = (first or 1) - 1, dict[str, StateMark]()
        if before and self.part.scratch:
            point = self._point(before)
            on_point(point)
            before = point.checkpoint.txid
            marks = {name: point.checkpoint.states[name] for name in self.part.scratch}
        follower = JournalFollower(self.journal, before)
        refuse_missing_input(self.plan, self.config, follower, self.topology.committed().txid)
        with self.leading() as state:
            # A crash from here on to the end leaves a folder with an empty store, and the next call begins anew.
            self.holding.begin(before, first, before if marks else None)
            try:
                JournalFollower(self.journal, before)  # again: it may have been cut until the hold was said
                founded = CommittedMark(before, follower.metadata, self._copied(marks, state), follower.planned)
                with durable_step("backfill.begin"):
                    state.found(self.topology.incarnation, founded, self.plan.kinds)
            except StateAccessError:
                self.holding.end()
                raise
            self.holding.begin(before, first, None)
        return founded

    def _copied(self, marks: Mapping[str, StateMark], coordinator_state: CoordinatorState) -> dict[str, StateMark]:
        """Copy the topology's tables as of some marks; return the marks of the copies."""
        # What an interrupted try has left.
        self.folder.delete_all(SCRATCH)
        copies: dict[str, StateMark] = {}
        for name, mark in marks.items():
            state, origin = self.plan.states[name], self.topology.states[name]
            with durable_step("backfill.table"):
                opened = copied(state, origin, mark, coordinator_state, name, self.topology.incarnation)
            copies[name] = mark_of(opened, mark)
            opened.close()
        return copies

    def _point(self, before: int) -> ForkPoint:
        """Return the newest moment up to a transaction as of which the topology's tables can be copied."""
        origins = {name: self.topology.states[name] for name in self.part.scratch}
        topology = self.topology
        subject = RepairSubject(topology.topology_id, self.plan.kinds, origins, topology.metadata_dir, {})
        txids = {before, *topology.points()}
        points = ForkPoints.of(subject, topology.committed().txid, txids, is_of_all=True)
        point, obstacles = points.find(before)
        if point is not None:
            return ForkPoint(point, tuple(obstacles))
        tables, why = ", ".join(map(repr, self.part.scratch)), "; ".join(obstacles)
        later = min((checkpoint.txid for checkpoint in points.standing if checkpoint.txid > before), default=None)
        ways_on = [
            *(["leave --from out to run all transactions"] if not points.checkpoints[-1].txid else []),
            *([f"begin with --from {later + 1}"] if later is not None else []),
        ] or ["bring that table back first"]
        raise ConfigError(
            f"the backfill needs {tables} as of transaction {before} or a point before it, which is gone ({why}): "
            f"{', or '.join(ways_on)}"
        )

    def _prepare(self) -> None:
        """Raise the epoch above those of the tables: a start of the topology may have opened one that had joined.

        Forget what is begun and not decided: the journal says again what it is, unless the topology has gone back.
        """
        tables = [table for name in self.part.new if (table := self.plan.states[name].table()) is not None]
        epochs = [description.epoch for table in tables if (description := table.describe()) is not None]
        with self.leading(max(epochs, default=0)) as state:
            state.forget_begun()

    def _refuse_first(self, first: int) -> None:
        last = self.topology.committed().txid
        if first > last:
            raise ConfigError(
                f"--from is {first}, but the topology is at transaction {last}, so there is nothing to backfill; a "
                f"state can begin empty there, with {START_EMPTY}"
            )

    def _refuse_tables(self) -> None:
        for name in self.part.new:
            table = self.plan.states[name].table()
            found = None if table is None else table.describe()
            if table is not None and found is not None and found.last_txid is not None:
                raise ConfigError(
                    f"state {name!r}: there is a table at {table.address} already, at transaction {found.last_txid}; "
                    "move it away, or give the state another path"
                )

    def _refuse_departed(self, committed: CommittedMark) -> None:
        """Refuse states that were in the topology before, unless all that they have is from this backfill."""
        for name in self.part.new:
            mark: StateMark | None = self.topology.committed().states.get(name)
            if mark is not None and mark.left_after is not None and mark.left_after > committed.txid:
                raise ConfigError(
                    f"state {name!r} was in the topology up to transaction {mark.left_after}; a backfill is for new "
                    "states: give it another name and path"
                )
