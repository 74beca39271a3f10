"""What commands do in a schedule, as ``txtopo rewind`` goes back and ``txtopo fork`` forks; and a last upkeep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import attrs

from state.delta.upkeep.schedule import ENTRIES_SECS
from txtopo.errors import FailedException, StateAccessError
from txtopo.files.places import folder_at
from txtopo.fork.fork import Fork, ForkPoints, ForkSubject, fill
from txtopo.fork.forking import begun_after, state_of
from txtopo.journal.entries import JournalPart
from txtopo.journal.journal import counting_parts
from txtopo.journal.search import EnteredGroup
from txtopo.testing.checkers import require
from txtopo.testing.simulation.checks import Checks
from txtopo.testing.simulation.durable import Durable
from txtopo.testing.simulation.process import Process
from txtopo.testing.simulation.threads import Clock
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.commit.point_keeper import PointKeeper
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.divergence import CoordinatorRecord
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject
from txtopo.transactional.recovery.operations.repair import carry_out
from txtopo.transactional.recovery.operations.rewind import Past
from txtopo.transactional.recovery.plans import GoTo, recorded_plan
from txtopo.transactional.recovery.values import copy_of, source_in

OFFERED = 0.5
"""How probable it is that a rewind goes to a transaction that is still there although nobody has promised it."""
PERIOD_SECS = 61
"""How often what nobody needs is looked for, and a second."""
UNNAMED_SECS = 25 * 3600
"""After so long files go that no version names."""


@attrs.frozen
class Commands:
    """Who calls commands for a topology, given what is durable of it; ``random`` draws where they go."""

    plan: Plan
    durable: Durable
    checks: Checks
    random: Random
    log: Callable[[str], None]

    def go_back(self, coordinator_state: CoordinatorState, *, beside_paused: bool) -> None:
        """Go back to a point, or go on with that; ``beside_paused``: while a process is paused."""
        subject, checks = self._subject(), self.checks
        plan = recorded_plan(coordinator_state)
        if plan is None:
            points = [point.txid for point in checks.promised()]
            if not points:  # the last one has aged out meanwhile
                return
            past = Past.of(subject, CoordinatorRecord.of(coordinator_state, 0))
            if beside_paused or self.random.random() < OFFERED:
                offered = (point.txid for point in past.standing[1:] if point.txid)
                points = [txid for txid in offered if txid not in points] or points
            # The oldest one is deleted next, perhaps by who is paused.
            wanted = min(points) if beside_paused else self.random.choice(points)
            point, reasons = past.nearest(wanted)
            with checks.keeping():
                require(point.txid == wanted, f"each point can be gone back to: not {wanted}, {reasons}")
            plan = past.plan(point, 1)
            self.log(f"goes back to {wanted}")
        assert isinstance(plan, GoTo), "nothing else is planned"
        checks.gone_back(plan.txid)
        carry_out(subject, coordinator_state, plan)

    def fork(self, fork: Commands) -> bool:
        """Make a fork at a point, of whose topology ``fork`` has what is durable; return False if it is refused."""
        topology_id, durable, checks = self.plan.topology_id, self.durable, self.checks
        values = copy_of(durable.store(), topology_id)
        assert values is not None, "nobody writes meanwhile"
        origin = self._subject()
        state = state_of(origin, values)
        parts, committed = durable.journal(), state.committed()
        points = [point.txid for point in checks.promised()]
        wanted = self.random.choice(points)
        point, obstacles = ForkPoints.of(origin, committed.txid, points).find(wanted)
        with checks.keeping():
            require(
                point is not None and point.txid == wanted, f"each point can be forked at: not {wanted}, {obstacles}"
            )
        assert point is not None, "it was required"
        counting = counting_parts(parts, lambda entry: entry.last <= committed.txid)
        groups = [EnteredGroup(part.header, entry) for part in counting for entry in part.entries]
        begun, is_all = begun_after(self.plan, point, lambda _last, _first: reversed(groups), state)
        source = source_in(values)
        if source and not is_all:
            return False
        self.log(f"forks at {wanted}")
        for name, forked in fork.durable.states.items():
            forked.origin = durable.tables[name]
        names = {name: name for name in fork.durable.states}
        to = GoTo.of_fork(point, committed)
        made = Fork(topology_id, f"fork of {point.incarnation}", topology_id, txid=wanted, tables=names, plan=to)
        subject = ForkSubject(made, folder_at("/nowhere"), origin, to, fork.durable.states, begun, source)
        store = fork.durable.store()
        coordinator_state = CoordinatorState(store, store.take_lead(topology_id, "the simulator"), topology_id)
        try:
            fill(subject, coordinator_state, lambda header: fork.durable.begin_journal(header, fork.checks.journal))
        except StateAccessError as error:
            with checks.keeping():
                is_kept = wanted in {kept.txid for kept in checks.promised()}
                require(not is_kept, f"a point stays while a fork is made at it: {error}")
            raise FailedException(str(error)) from error
        finally:
            store.close()
        return True

    def keep_up(
        self, coordinator_state: CoordinatorState, process: Process, clock: Clock, history: tuple[int, int]
    ) -> None:
        """Let a process do the upkeep while two periods pass, by settings of the history."""
        durable = self.durable
        recent_secs, hours = history
        keeping = PointKeeper(
            coordinator_state, durable.committed, clock.wall_secs, recent_secs=recent_secs, rewind_hours=hours
        )
        states = [
            durable.states[name].open(*table.owner, process.epoch)
            for name, table in durable.tables.items()
            if table.owner is not None
        ]
        for secs in (0, *[max(recent_secs, ENTRIES_SECS) + PERIOD_SECS] * 2, UNNAMED_SECS):
            clock.aged_secs += secs
            keeping.tell(states)
            for state in states:
                state.maintain()
            while process.threads.works:
                process.threads.do(process.threads.works[0])

    def _subject(self) -> RepairSubject:
        plan = self.plan
        return _Subject(plan.topology_id, plan.kinds, plan.states, folder_at("/nowhere"), {}, durable=self.durable)


@attrs.frozen
class _Subject(RepairSubject):
    """The topology, for who goes back."""

    durable: Durable = attrs.field(kw_only=True)

    def around(self, txids: Iterable[int]) -> list[JournalPart]:
        """Return its journal, which is small."""
        del txids
        return self.durable.journal()
