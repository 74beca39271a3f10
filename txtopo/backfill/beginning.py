"""The beginning of a backfill: founds its coordinator state at the transaction before its first one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from txtopo.assembly.storage import make_store
from txtopo.backfill.joining import OWNER, JoinedTopology
from txtopo.backfill.part import BackfillPart
from txtopo.backfill.trial import refuse_missing_input
from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder
from txtopo.journal.following import JournalFollower
from txtopo.journal.journal import find_journal
from txtopo.topology.plan import Plan
from txtopo.transactional.recovery.coordinator_state import (
    CommittedMark,
    CoordinatorState,
    StateMark,
    committed_in,
    incarnation_in,
)

START_EMPTY = "topology.state.start.empty"


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
    folder: Path
    topology: JoinedTopology

    @property
    def journal(self) -> Folder:
        """The topology's journal."""
        return find_journal(self.topology.metadata_dir, self.plan.topology_id)

    def committed(self) -> CommittedMark | None:
        """Return the last transaction that is committed here; None if the backfill has not begun."""
        if not self.folder.exists():
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
        """Take the lead of the backfill; yield its coordinator state.

        Raises:
            AlreadyRunning: another process runs it.
        """
        with contextlib.closing(make_store(self.plan, self.run_config(None))) as store:
            lead = store.take_lead(self.plan.topology_id, OWNER, epoch_min)
            yield CoordinatorState(store, lead, self.plan.topology_id)

    def begin(self, state: str, first: int | None) -> CommittedMark:
        """Begin the backfill, or go on with the one that has begun; return what is committed here.

        Args:
            state: the state that was asked for.
            first: the transaction to begin with; None for the first, or for the one with which it has begun.

        Raises:
            ConfigError: it can't begin there, or has begun elsewhere; nothing was written.
            DivergenceError: the topology's tables and its coordinator state are of two timelines.
        """
        self.topology.refuse_two_timelines()
        committed = self.committed()
        if committed is None:
            self._refuse_tables()
            self._refuse_first(first or 1)
            committed = self._found((first or 1) - 1)
        mark = committed.states.get(state)
        begun_with = 1 + (mark.begun_after if mark is not None else committed.txid)
        if first is not None and first != begun_with:
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
                "topology.state.store": "sqlite",
                # What the topology has committed can't be given up here.
                "topology.transaction.max.attempts.policy": "WAIT",
                START_EMPTY: dict.fromkeys(new, committed.txid) if new and committed is not None else None,
            }
        )

    def _found(self, before: int) -> CommittedMark:
        follower = JournalFollower(self.journal, before)
        refuse_missing_input(self.plan, self.config, follower, self.topology.committed().txid)
        founded = CommittedMark(before, follower.metadata, {}, follower.planned)
        with self.leading() as state:
            state.check_spout(self.plan.semantics.name)
            # A crash before this leaves a folder with an empty store, and the next call begins anew.
            with durable_step("backfill.begin"):
                state.found(self.topology.incarnation, founded)
        return founded

    def _prepare(self) -> None:
        """Raise the epoch above those of the tables: a start of the topology may have opened one that had joined.

        Forget what is begun and not decided: the journal says again what it is, unless the topology has gone back.
        """
        tables = [table for name in self.part.new if (table := self.plan.states[name].table()) is not None]
        epochs = [found.epoch for table in tables if (found := table.look()) is not None]
        with self.leading(max(epochs, default=0)) as state:
            state.forget_begun()

    def _refuse_first(self, first: int) -> None:
        last = self.topology.committed().txid
        if first > last:
            raise ConfigError(
                f"--from is {first}, but the topology is at transaction {last}, so there is nothing to backfill; a "
                f"state can begin empty there, with {START_EMPTY}"
            )
        if first > 1 and self.part.scratch:
            which = ", ".join(map(repr, self.part.scratch))
            raise ConfigError(
                f"the backfill needs {which} as of transaction {first - 1}, and gets it only by running all "
                "transactions before: leave --from out"
            )

    def _refuse_tables(self) -> None:
        for name in self.part.new:
            table = self.plan.states[name].table()
            found = None if table is None else table.look()
            if table is not None and found is not None and found.last_txid is not None:
                raise ConfigError(
                    f"state {name!r}: there is a table at {table.address} already, at transaction {found.last_txid}; "
                    "move it away, or give the state another path"
                )

    def _refuse_departed(self, committed: CommittedMark) -> None:
        """Refuse states that were in the topology before, unless all that they have is from this backfill."""
        for name in self.part.new:
            known: StateMark | None = self.topology.committed().states.get(name)
            if known is not None and known.left_after is not None and known.left_after > committed.txid:
                raise ConfigError(
                    f"state {name!r} was in the topology up to transaction {known.left_after}; a backfill is for new "
                    "states: give it another name and path"
                )
