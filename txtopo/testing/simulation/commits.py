"""Commit phases of a world's groups: run, or reused from earlier schedules.

The writes of a group depend on its attempts, on the bolts that they carry over from the processing phase, and on the
tables. Once a group has been run twice with exactly the same result, later groups with the same attempts, bolts and
tables reuse it; one in 32 is run anyway. As with jobs (see ``memory``), attempts of later epochs differ only in their
number, and the places where faults strike are drawn beforehand: a group in which a fault strikes is run.
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
"""Rows of all tables together, up to which a group is remembered: the tables are part of its key."""

NUMBER = b"<number>"
"""Replaces the number of an attempt in pickled bolts, if attempts are identified without their epoch."""

EXACT = frozenset({int, bool, str, bytes, type(None)})
"""Types whose equal values are identical. No floats: 0.0 equals -0.0."""

KeyedRows = Mapping[Key, StateValue | None]
"""Rows by key; None for a removed row."""


@attrs.frozen(eq=False)
class Tables:
    """The rows of each table when a group begins; equal whatever the order of their rows."""

    rows: Mapping[str, Mapping[Key, StateValue]]

    def __hash__(self) -> int:
        # Lengths only: users' values need not be hashable, and the order of rows must not count.
        return hash(tuple(map(len, self.rows.values())))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tables):
            return NotImplemented
        return self.rows.keys() == other.rows.keys() and all(
            len(rows) == len(other.rows[name]) and _are_same(rows, other.rows[name]) for name, rows in self.rows.items()
        )


@attrs.frozen
class GroupKey:
    """Identifies a group: its attempts, the bolts that they carry, and the tables."""

    attempts: tuple[tuple[int, int], ...]
    carried: tuple[tuple[str, int, bytes], ...]
    tables: Tables


@attrs.define(eq=False)
class Group:
    """A group whose commit phases all ran to their end, with their result."""

    attempts: tuple[TransactionAttempt, ...]
    steps: tuple[int, ...]
    """How many failpoints each attempt reached."""
    writes: Mapping[str, KeyedRows]
    fingerprints: tuple[Fingerprints, ...]
    progress: tuple[int, int]
    """Tuples and steps that the progress probe counted."""
    is_known: bool = False
    """Whether two runs had this result."""

    @property
    def attempt(self) -> TransactionAttempt:
        """The first attempt."""
        return self.attempts[0]

    def is_same(self, other: Group) -> bool:
        """Whether two runs had the same result, except for the numbers of their attempts."""
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
        """Return the result for other attempts, and count its progress."""
        tuples, steps = self.progress
        # The run loop renews the group's timeout while the probe changes, as it would in a run.
        if steps:
            probe.attempt = attempts[-1]
            probe.tuples += tuples
            probe.steps += steps
        fingerprints = dict(zip(attempts, self.fingerprints, strict=True))
        return GroupOutcome(tuple(attempts), self.writes, fingerprints=fingerprints)


class CommitPhases:
    """The commit phases of one world's groups.

    ``memory`` remembers them for all worlds; without it, all are run. ``passage`` draws where faults strike an attempt.
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
        """Run the commit phases of a group, or reuse their result."""
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
        """Return a carried bolt, without the attempt's epoch if the attempt is identified without it."""
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
    """Whether each row is the same, including the types of its values."""
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
