"""What a watch shows of a commit phase that puts many large values in one call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, MemoryState
from state.delta.columns import AT_ONCE_MAX, column_values, fit_column
from tests.bolts import Take
from tests.topologies import committing
from txtopo import Fields, ICommitter, TransactionAttempt
from txtopo.transactional.commit.phases import run_commit_phases
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.core.events import NEVER
from txtopo.transactional.tasks.factory import TaskFactory, prototypes_of
from txtopo.transactional.tasks.progress_probe import ProgressProbe

COUNT = 3 * AT_ONCE_MAX
TIMEOUT = 2 * AT_ONCE_MAX
"""The timeout, in looks at a value: a look is what time passes by here."""


class Clock:
    """Counts the looks at values since the watch has moved."""

    def __init__(self) -> None:
        self.probe = ProgressProbe()
        self.position = self.probe.position()
        self.idle = self.longest = 0

    def tick(self) -> None:
        position = self.probe.position()
        self.idle = self.idle + 1 if position == self.position else 0
        self.position = position
        self.longest = max(self.longest, self.idle)


class Slow(list[int]):
    """A value that takes time to look at."""

    clock: ClassVar[Clock]

    def __iter__(self) -> Iterator[int]:
        self.clock.tick()
        return super().__iter__()


class PutMany(Take, ICommitter):
    """Puts many values in each of the ways that there are."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("tags")

    def finish_batch(self):
        values = {str(number): Slow([number]) for number in range(COUNT)}
        if self.attempt.txid == 1:
            self.state.multi_put(values)
        elif self.attempt.txid == 2:
            self.state.multi_update(list(values), lambda key, old: values[key])
        else:
            for key, value in values.items():
                self.state.put(key, value)


@pytest.fixture(params=["memory", "delta"])
def state(request, tmp_path: Path) -> Any:
    fields = Fields("key: string"), Fields("tags: array<long>")
    return DeltaState(tmp_path / "tags", *fields) if request.param == "delta" else MemoryState(*fields)


def test_many_nested_values_are_seen_to_get_on(state: Any) -> None:
    """Promise 7: a commit phase whose values take longer than the timeout, all together, gets on for all to see."""
    plan = committing(MemoryTransactionalSpout({}, Fields("word"), 1), PutMany(), tags=state).plan
    clock = Slow.clock = Clock()
    opened = {"tags": state.open("id", "tags", "life", 1)}
    attempts = [TransactionAttempt(txid, 1) for txid in (1, 2, 3)]
    assigned = [AssignedAttempt(attempt, None, NEVER) for attempt in attempts]
    outcome = run_commit_phases(TaskFactory(plan, {}, prototypes_of(plan)), opened, assigned, lambda _: [], clock.probe)
    assert (outcome.finished, outcome.failure) == (tuple(attempts), None)
    assert clock.longest < TIMEOUT


def test_conversions_are_seen_to_get_on() -> None:
    """Nested values are converted, and read back, some at a time; a column of them is as if they went all at once."""
    kind = Fields("tags: map<string, array<long>>").types[0]
    values = [None if number % 7 == 0 else {"n": [number]} for number in range(COUNT)]
    probe = ProgressProbe()
    with probe.current():
        column = fit_column(values, kind)
        assert column is not None
        assert (column.values, column.array.to_pylist(maps_as_pydicts="strict")) == (values, values)
        fitted = probe.steps
        assert column_values(column.array) == values
    assert fitted >= COUNT // AT_ONCE_MAX
    assert probe.steps > fitted
    assert fit_column([*values, {"n": ["x"]}], kind) is None
