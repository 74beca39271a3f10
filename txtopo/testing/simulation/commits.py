"""Commit phases of a world's groups: run, or told again as earlier schedules have run them.

What the commit phases of a group put depends on the attempts, on what their bolts took along from the processing phase,
and on the tables. Where all of it is the same, the group is told again once it has been run twice and came to the very
same both times; now and then it is run all the same. As with jobs (see ``memory``), attempts of later epochs are the
same but for their number, and it is drawn beforehand where faults strike: a group that one strikes is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.state import Key, OpenedState, StateValue, by_key
from txtopo.attempts import TransactionAttempt
from txtopo.testing.simulation.memory import JobMemory, Passage, Passages, Reaching, pickled_number
from txtopo.testing.simulation.tables import OpenedSimulatedState
from txtopo.transactional.commit.phases import GroupOutcome, LoadCarried, run_commit_phases
from txtopo.transactional.tasks.batch_run import CarriedBolt
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.transactional.tasks.fingerprint import Fingerprints
from txtopo.transactional.tasks.progress_probe import ProgressProbe

ROWS_MAX = 500
"""Rows of all tables together that are remembered with a group."""

NUMBER = b"<number>"
"""Stands for the number of an attempt that is known without its epoch."""

EXACT = frozenset({int, bool, str, bytes, type(None)})
"""Types whose equal values are the very same; 0.0 and -0.0 are equal."""

KeyedRows = Mapping[Key, StateValue | None]
"""Rows by key; None for those that are removed."""


@attrs.frozen(eq=False)
class Tables:
    """What stands in each table when a group begins; they are equal if they hold the same, in whatever order."""

    rows: Mapping[str, Mapping[Key, StateValue]]

    def __hash__(self) -> int:
        return hash(tuple(map(len, self.rows.values())))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tables):
            return NotImplemented
        return self.rows.keys() == other.rows.keys() and all(
            len(rows) == len(other.rows[name]) and _are_same(rows, other.rows[name]) for name, rows in self.rows.items()
        )


@attrs.frozen
class GroupKey:
    """What a group is remembered by: its attempts, what their bolts took along, and the tables."""

    attempts: tuple[tuple[int, int], ...]
    carried: tuple[tuple[str, int, bytes], ...]
    tables: Tables


@attrs.define(eq=False)
class Group:
    """A group all of whose commit phases ran to their end, and what that came to."""

    attempts: tuple[TransactionAttempt, ...]
    steps: tuple[int, ...]
    """How many failpoints each attempt came by."""
    writes: Mapping[str, KeyedRows]
    fingerprints: tuple[Fingerprints, ...]
    progress: tuple[int, int]
    """Tuples and steps that the probe has shown: the core is told that the group gets on."""
    is_known: bool = False
    """Whether it has come to the same twice."""

    @property
    def attempt(self) -> TransactionAttempt:
        """The first attempt."""
        return self.attempts[0]

    def is_same(self, other: Group) -> bool:
        """Whether two runs have come to the same, but for the number of their attempts."""
        return (
            self.steps == other.steps
            and self.progress == other.progress
            and self.fingerprints == other.fingerprints
            and list(self.writes) == list(other.writes)
            and all(
                list(rows) == list(other.writes[name]) and _are_same(rows, other.writes[name])
                for name, rows in self.writes.items()
            )
        )

    def is_struck(self, passages: Sequence[Passage]) -> bool:
        """Whether a fault strikes one of its attempts."""
        return any(
            fault < steps for passage, steps in zip(passages, self.steps, strict=True) for fault in passage.faults
        )

    def told(self, attempts: Sequence[TransactionAttempt], probe: ProgressProbe) -> GroupOutcome:
        """Return what it comes to once more, and show that it got there."""
        tuples, steps = self.progress
        if steps:
            probe.attempt = attempts[-1]
            probe.tuples += tuples
            probe.steps += steps
        fingerprints = dict(zip(attempts, self.fingerprints, strict=True))
        return GroupOutcome(tuple(attempts), self.writes, fingerprints=fingerprints)


class CommitPhases:
    """The commit phases of one world's groups.

    Args:
        memory: remembers them for all worlds; None: they are run.
        reaching: where the failpoints of bolts arrive.
        passage: draws where faults strike an attempt.
    """

    def __init__(
        self, memory: JobMemory | None, reaching: Reaching, passage: Callable[[TransactionAttempt], Passage]
    ) -> None:
        self._memory = memory
        self._reaching = reaching
        self._passage = passage

    def run(
        self,
        task_factory: TaskFactory,
        states: Mapping[str, OpenedState],
        attempts: Sequence[TransactionAttempt],
        load_carried: LoadCarried,
        probe: ProgressProbe,
    ) -> GroupOutcome:
        """Run the commit phases of a group, or tell again what they came to."""
        passages = {attempt: self._passage(attempt) for attempt in attempts}
        memory = self._memory
        if memory is None or not memory.is_on:
            return self._run(task_factory, states, passages, load_carried, probe)
        tables = Tables({name: _rows_of(state) for name, state in states.items()})
        carried = {attempt: load_carried(attempt) for attempt in attempts}
        key = GroupKey(
            tuple((attempt.txid, memory.number_of(attempt)) for attempt in attempts),
            tuple(self._as_known(attempt, bolt) for attempt in attempts for bolt in carried[attempt]),
            tables,
        )
        known = memory.known(key, Group)
        if known is not None and not known.is_struck(list(passages.values())) and not memory.is_due(Group):
            memory.groups_told += 1
            return known.told(attempts, probe)
        tuples, steps = probe.tuples, probe.steps
        outcome = self._run(task_factory, states, passages, carried.__getitem__, probe)
        is_small = sum(map(len, tables.rows.values())) <= ROWS_MAX
        if is_small and outcome.failed is None and not any(passage.struck for passage in passages.values()):
            memory.remember(key, _group(outcome, passages, (probe.tuples - tuples, probe.steps - steps)))
        return outcome

    def _run(
        self,
        task_factory: TaskFactory,
        states: Mapping[str, OpenedState],
        passages: Passages,
        load_carried: LoadCarried,
        probe: ProgressProbe,
    ) -> GroupOutcome:
        with self._reaching.on_the_way(passages):
            return run_commit_phases(task_factory, states, tuple(passages), load_carried, probe)

    def _as_known(self, attempt: TransactionAttempt, bolt: CarriedBolt) -> tuple[str, int, bytes]:
        """Return what a bolt took along, without the epoch where the attempt is known without it."""
        assert self._memory is not None, "it asks"
        if self._memory.is_whole_number(attempt):
            return bolt.component, bolt.task, bolt.state
        return bolt.component, bolt.task, bolt.state.replace(pickled_number(attempt), NUMBER)


def _group(outcome: GroupOutcome, passages: Passages, progress: tuple[int, int]) -> Group:
    return Group(
        outcome.finished,
        tuple(len(passage.steps) for passage in passages.values()),
        {name: dict(by_key(writes)) for name, writes in outcome.writes.items()},
        tuple(outcome.fingerprints[attempt] for attempt in outcome.finished),
        progress,
    )


def _rows_of(state: OpenedState) -> Mapping[Key, StateValue]:
    assert isinstance(state, OpenedSimulatedState), "a simulated world has no other"
    return state.rows


def _are_same(some: KeyedRows, others: KeyedRows) -> bool:
    """Whether each row is the same, to the types of its values."""
    try:
        return all(_is_same(row, others[key]) for key, row in some.items())
    except KeyError:
        return False


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        if type(one) is not type(other) or one != other:
            return False
        if isinstance(one, tuple):
            kinds = [*map(type, one)]
            if EXACT.issuperset(kinds):
                return kinds == [*map(type, other)]
        return repr(one) == repr(other)
    except Exception:  # noqa: BLE001 - whatever a user's value raises: then it is not known
        return False
