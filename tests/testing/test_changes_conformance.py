"""The conformance class of changes: txtopo's committers and a user's pass it, and it finds what others forget."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from committers import ApplyChanges, Count, Max, ReduceCommitter
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaState, StateKind, read_table
from txtopo import BatchBolt, Fields, ICommitter, TransactionalTopologyBuilder
from txtopo.testing import ChangesConformance, ChangesPlace

LEVEL = Fields("item: string", "level: long")
ROWS = [[f"i{n * 5 % 7}", None if n % 4 == 3 else n * 3 % 5] for n in range(24)]


class Levels(BatchBolt, ICommitter):
    """A committer of a user's: the last level of each item, none if it is null."""

    def declare_output_fields(self, declarer: Any) -> None:
        declarer.declare_stream("changes", (LEVEL + Fields("diff: long")).with_attempt())

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.levels: dict[str, int | None] = {}

    def execute(self, tuple: Any) -> None:
        self.levels[tuple["item"]] = tuple["level"]

    def before(self, state: Any) -> list[Any]:
        return list(state.values_before(list(self.levels)))

    def finish_batch(self) -> None:
        state = self.context.state("levels")
        before = self.before(state)
        state.multi_remove([item for item, level in self.levels.items() if level is None])
        state.multi_put({item: level for item, level in self.levels.items() if level is not None})
        for (item, level), old in zip(self.levels.items(), before, strict=True):
            self.tell(item, old, -1)
            self.tell(item, level, 1)

    def tell(self, item: str, level: int | None, diff: int) -> None:
        if level is not None:
            self.collector.emit((self.attempt, item, level, diff), "changes")


def place_of(committer: Any, kind: StateKind = StateKind.TRANSACTIONAL) -> ChangesPlace:
    """The place of a committer of levels."""

    def topology(folder: Path) -> TransactionalTopologyBuilder:
        spout = MemoryTransactionalSpout if kind is StateKind.TRANSACTIONAL else OpaqueMemoryTransactionalSpout
        builder = TransactionalTopologyBuilder("levels", "rows", spout({0: ROWS}, LEVEL, 4))
        builder.set_committer_bolt("levels", committer, 2).fields_grouping("rows", Fields("item"))
        builder.set_state("levels", DeltaState(folder / "levels", Fields("item: string"), Fields("level: long"), kind))
        return builder

    return ChangesPlace(topology, "levels", LEVEL + Fields("diff: long"), lambda folder: read_table(folder / "levels"))


@pytest.mark.slow
class TestLevels(ChangesConformance):
    @pytest.fixture(params=[StateKind.TRANSACTIONAL, StateKind.OPAQUE])
    def place(self, request: Any) -> ChangesPlace:
        return place_of(Levels(), request.param)


@pytest.mark.slow
class TestReduceCommitter(ChangesConformance):
    @pytest.fixture
    def place(self) -> ChangesPlace:
        values = {"rows": Count(), "level": Max("level: long")}
        committer = ReduceCommitter("levels", Fields("item: string"), values=values)

        def topology(folder: Path) -> TransactionalTopologyBuilder:
            builder = TransactionalTopologyBuilder("levels", "rows", MemoryTransactionalSpout({0: ROWS}, LEVEL, 4))
            builder.set_committer_bolt("levels", committer, 2).fields_grouping("rows", Fields("item"))
            builder.set_state("levels", committer.state(folder / "levels"))
            return builder

        def rows(folder: Path) -> pa.Table:
            return committer.results(read_table(folder / "levels"))

        return ChangesPlace(topology, "levels", committer.changes(), rows)


@pytest.mark.slow
class TestApplyChanges(ChangesConformance):
    @pytest.fixture
    def place(self) -> ChangesPlace:
        key, values, sequence = (Fields(field) for field in ("item: string", "level: long", "at: long"))
        apply = ApplyChanges("rows", "gone", key=key, values=values, sequence=sequence, deleted="gone")
        events = [[item, level, n * 7 % 24, level is None] for n, (item, level) in enumerate(ROWS)]

        def topology(folder: Path) -> TransactionalTopologyBuilder:
            spout = MemoryTransactionalSpout({0: events}, key + values + sequence + Fields("gone: boolean"), 4)
            builder = TransactionalTopologyBuilder("levels", "events", spout)
            builder.set_committer_bolt("apply", apply, 2).fields_grouping("events", key)
            builder.set_state("rows", apply.state(folder / "rows"))
            builder.set_state("gone", apply.tombstones(folder / "gone"))
            return builder

        return ChangesPlace(topology, "apply", apply.changes(), lambda folder: read_table(folder / "rows"))


class _TellsNoRemoval(Levels):
    def tell(self, item: str, level: int | None, diff: int) -> None:
        if diff > 0 or self.levels[item] is not None:
            super().tell(item, level, diff)


class _TellsNoRowBefore(Levels):
    def before(self, state: Any) -> list[Any]:
        return [None] * len(self.levels)


class _OfTheWholeGroup(Levels):
    """Tells rows against those that a file has, as of the last commit group."""

    def before(self, state: Any) -> list[Any]:
        before = {row["item"]: row["level"] for row in state.snapshot().to_pylist()}
        return [before.get(item) for item in self.levels]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("committer", "test"),
    [
        (_TellsNoRemoval, "test_changes_add_up_to_the_table"),
        (_TellsNoRowBefore, "test_changes_add_up_to_the_table"),
        (_OfTheWholeGroup, "test_groups_make_no_difference"),
    ],
)
def test_what_is_forgotten_is_found(tmp_path: Path, committer: Any, test: str) -> None:
    """A committer that does not tell what it removes, or tells against the wrong rows, fails."""
    with pytest.raises(AssertionError, match=r"the changes have .* too much"):
        getattr(ChangesConformance(), test)(place_of(committer()), tmp_path)
