"""Runs the commit phases of a group: one transaction after another, strictly in txid order.

A commit phase calls ``finish_batch`` of the committers and the bolts below them, component by component in topological
order. A later transaction of the group sees the values that an earlier one has put. If a transaction fails, it and the
later ones leave the group; the earlier ones are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import attrs

from txtopo.api.state import OpenedState
from txtopo.api.writes import Writes
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import RuleError, TupleTreeFailure, TxtopoError
from txtopo.topology.plans.plan import Phase
from txtopo.topology.user_code.blame import user_code
from txtopo.topology.user_code.output import ended
from txtopo.transactional.commit.views import GroupState, Writing
from txtopo.transactional.commit.write_buffer import group_states
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.core.readings import Readings
from txtopo.transactional.tasks.batch_run import BatchRun, CarriedBolt
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.transactional.tasks.fingerprint import Fingerprints

LoadCarried = Callable[[TransactionAttempt], Sequence[CarriedBolt]]
"""Returns the bolts carried over from an attempt's processing phase."""

RunCommitPhases = Callable[
    [TaskFactory, Mapping[str, OpenedState], Sequence[AssignedAttempt], LoadCarried, ProgressProbe], "GroupOutcome"
]
"""Runs the commit phases of a group, as :func:`run_commit_phases` does."""


@attrs.frozen
class GroupOutcome:
    """The result of the commit phases of a group."""

    finished: tuple[TransactionAttempt, ...]
    """The attempts whose commit phases ran to their end, in order."""
    writes: Mapping[str, Writes]
    """Their writes, by state."""
    failed: TransactionAttempt | None = None
    """The attempt that failed, if any; the attempts after it did not run."""
    failure: TxtopoError | None = None
    fingerprints: Mapping[TransactionAttempt, Fingerprints] = attrs.field(factory=dict)
    """The fingerprints of the finished attempts' components in the commit phase."""
    readings: Readings = attrs.field(factory=Readings)
    """The readings of the finished attempts."""
    states: Mapping[str, GroupState] = attrs.field(factory=dict)
    """What they have given each state, for the phases that run before it is written."""


class Phases:
    """The commit phases of one group, as far as they have run; ``before`` is the group whose writes are being made."""

    def __init__(
        self,
        task_factory: TaskFactory,
        states: Mapping[str, OpenedState],
        probe: ProgressProbe,
        writing: Writing | None = None,
        before: Mapping[str, GroupState] = MappingProxyType({}),
    ) -> None:
        self._task_factory = task_factory
        self._probe = probe
        self.states = group_states(states, writing, before)
        self.finished: list[TransactionAttempt] = []
        self.fingerprints: dict[TransactionAttempt, Fingerprints] = {}
        self.readings = Readings()

    def run(self, assigned: AssignedAttempt, carried: Sequence[CarriedBolt]) -> None:
        """Run that of the next transaction; a TxtopoError leaves nothing of it."""
        run = _run_commit_phase(self._task_factory, self.states, assigned, carried, self._probe)
        self.finished.append(assigned.attempt)
        self.fingerprints[assigned.attempt] = run.tracer.fingerprints()
        self.readings.add(run.readings)


def run_commit_phases(  # noqa: PLR0913, PLR0917 - running is made of that many parts
    task_factory: TaskFactory,
    states: Mapping[str, OpenedState],
    assigned: Sequence[AssignedAttempt],
    load_carried: LoadCarried,
    probe: ProgressProbe | None = None,
    started: Phases | None = None,
) -> GroupOutcome:
    """Run the commit phases of a group, whose attempts are in txid order, until one fails. Writes nothing.

    ``started`` are those of its first transactions that have run already.
    """
    probe = probe or ProgressProbe()
    with probe.current():
        phases = started or Phases(task_factory, states, probe)
        failed, failure = None, None
        for attempt in assigned[len(phases.finished) :]:
            try:
                phases.run(attempt, load_carried(attempt.attempt))
            except TxtopoError as error:
                failed, failure = attempt.attempt, error
                break
        try:
            writes_by_state = {name: state.writes() for name, state in phases.states.items()}
        except RuleError as error:
            # Only an error that fold_at_once() keeps names the transaction at fault.
            if all(state.failure is not error for state in phases.states.values()):
                raise
            # A value that an earlier transaction has folded does not fit, as its key's stored value shows only now. The
            # transactions before it run again without it, so that they are written as if it had failed at its turn.
            at = next(at for at, attempt in enumerate(assigned) if attempt.attempt.txid == error.txid)
            error.attempt = assigned[at].attempt.attempt
            before = run_commit_phases(task_factory, states, assigned[:at], load_carried, probe)
            return attrs.evolve(before, failed=assigned[at].attempt, failure=error)
        writes = {name: each for name, each in writes_by_state.items() if each}
        return GroupOutcome(
            tuple(phases.finished), writes, failed, failure, phases.fingerprints, phases.readings, phases.states
        )


def _run_commit_phase(
    task_factory: TaskFactory,
    group: Mapping[str, GroupState],
    assigned: AssignedAttempt,
    carried: Sequence[CarriedBolt],
    probe: ProgressProbe,
) -> BatchRun:
    attempt = assigned.attempt
    views = {name: state.begin(attempt.txid) for name, state in group.items()}
    run = BatchRun(
        task_factory,
        attempt,
        assigned.planned,
        views=views,
        carried={(bolt.component, bolt.task): bolt.state for bolt in carried},
        probe=probe,
    )
    try:
        for component in task_factory.plan.of_phase(Phase.COMMIT):
            run.finish(component)
            # A value is fitted after finish_batch has returned: blame the component that put it.
            with user_code(component.id, attempt):
                for view in views.values():
                    view.check(component.id)
        for edge, tally in run.tallies.items():
            if not tally.agrees:
                name = task_factory.plan.edges[edge].target
                raise TupleTreeFailure(f"{name!r} did not receive exactly the tuples that were sent", txid=attempt.txid)
    except TxtopoError:
        for view in views.values():
            view.discard()
        raise
    finally:
        run.close()
        ended(attempt)
    # Last: nothing of a transaction that fails may reach the group's writes.
    for view in views.values():
        view.finish()
    return run
