"""What a watch shows of a commit phase that puts many large values in one call."""

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState, MemoryState
from state.delta.columns import column_values, fit_column
from state.delta.keyed.writing import RowWrites
from state.delta.log.data_files import PUTS_MAX, fitted
from tests.bolts import Take
from tests.state.delta.delta_tables import LARGE, sized
from tests.topologies import committing
from txtopo import Fields, ICommitter, TransactionAttempt
from txtopo.api.components.planned import NEVER
from txtopo.columnar.conversion import AT_ONCE_MAX
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.files.folder import LocalFolder
from txtopo.transactional.commit.phases import run_commit_phases
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.tasks.factory import TaskFactory, prototypes_of

COUNT = 3 * AT_ONCE_MAX
TIMEOUT = 2 * AT_ONCE_MAX
"""The timeout, in looks at a value: a look is what time passes by here."""


class Clock:
    """Counts the looks at values since the watch has moved."""

    def __init__(self) -> None:
        self.probe = ProgressProbe()
        self.position = self.probe.position()
        self.idle = self.longest = self.ticks = 0

    def tick(self) -> None:
        position = self.probe.position()
        self.ticks += 1
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


class Reads(Take, ICommitter):
    """Reads what it is told to, which takes the table's rows from the disk."""

    def __init__(self, how: str) -> None:
        self.how = how

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("tags")

    def finish_batch(self):
        if self.how == "get":
            self.state.get("7")
        elif self.how == "many":
            self.state.multi_get([str(number) for number in range(500)])
        else:
            self.state.multi_reduce({str(number): number for number in range(500)}, operator.add)


def run_ninth(state: Any, committer: Any, clock: Clock) -> Any:
    """Run the commit phase of transaction 9, and return its outcome."""
    plan = committing(MemoryTransactionalSpout({}, Fields("word"), 1), committer, tags=state).plan
    opened = {"tags": state.open("id", "tags", "life", 2)}
    assigned = [AssignedAttempt(TransactionAttempt(9, 1), None, NEVER)]
    return run_commit_phases(TaskFactory(plan, {}, prototypes_of(plan)), opened, assigned, lambda _: [], clock.probe)


@pytest.mark.few(3)
@pytest.mark.parametrize("how", ["get", "many", "reduce"])
@pytest.mark.parametrize("held", ["all rows in memory", "no row in memory"])
def test_a_large_table_that_is_read_is_seen_to_get_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, held: str
) -> None:
    """Promise 7: however long a table takes to be read, each batch of its rows is progress."""
    fields = Fields("key: string"), Fields("n: long")
    state = DeltaState(tmp_path / "tags", *fields, cached_keys_max=1000)
    first = state.open("id", "tags", "life", 1)
    keys = [str(number) for number in range(60_000)]
    rows = pa.table({"key": keys, "n": range(60_000), "txid": [1] * 60_000}, schema=state.format("tags").schema())
    first.write(1, RowWrites(rows))
    sized(state, portion_rows=8_000, **(LARGE if held == "no row in memory" else {}))
    clock = Clock()
    for module in ("state.delta.read.reading", "state.delta.log.data_files"):
        monkeypatch.setattr(f"{module}.fitted", lambda rows, schema: (clock.tick(), fitted(rows, schema))[1])
    outcome = run_ninth(state, Reads(how), clock)
    assert (outcome.failure, clock.ticks > 3, clock.longest) == (None, True, 0)


class Appends(Take, ICommitter):
    """Appends a row to each of many partitions."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("tags")

    def finish_batch(self):
        self.state.append([(str(number), number) for number in range(280)])


def test_many_partitions_are_seen_to_get_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 7: each file that a commit phase puts is progress."""
    state = DeltaRows(tmp_path / "tags", Fields("p: string", "n: long"), partition_by="p")
    clock = Clock()
    put = LocalFolder.put_new

    def ticking(*args: Any, **options: Any) -> None:
        clock.tick()
        put(*args, **options)

    monkeypatch.setattr(LocalFolder, "put_new", ticking)
    outcome = run_ninth(state, Appends(), clock)
    assert (outcome.failure, clock.ticks) == (None, 280)
    assert clock.longest <= PUTS_MAX  # so many are begun before the first one ends
