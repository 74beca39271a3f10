"""Routing: equal keys come to one task, however a chunk is held and whatever its keys are."""

import collections
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.transactional.tasks.test_bolt_tasks import Sums
from txtopo import CustomStreamGrouping, Fields, TransactionalTopologyBuilder, TransactionAttempt
from txtopo.api.components.planned import Planned
from txtopo.api.data.tuples import TupleSource
from txtopo.api.reduction import Reduction
from txtopo.columnar.chunks import Chunk, decode
from txtopo.columnar.reducing import ReductionCombiner
from txtopo.errors import TopologyError
from txtopo.topology.builders.graph import BoltDeclarer
from txtopo.topology.plans.groupings import partial_key_choice
from txtopo.transactional.tasks.context import TaskContext
from txtopo.transactional.tasks.routing import COMBINED_ROWS_MIN, SAMPLE_ROWS, Router

ATTEMPT = TransactionAttempt(7, 1)
TASKS = 3


class Parity(CustomStreamGrouping):
    """Every tuple goes to task 0, odd ones to another one, too."""

    other = 1

    def choose_tasks(self, source_task, values):
        attempt, n = values
        assert (attempt, source_task) == (ATTEMPT, 0)
        return [0, self.other] if n % 2 else [0]


class Routes:
    """Rows that a router routes, by task."""

    def __init__(self, fields: Fields, subscribe: Callable[[BoltDeclarer], object], bolt: Sums | None = None) -> None:
        builder = TransactionalTopologyBuilder("routes", "spout", MemoryTransactionalSpout({}, fields, 1))
        subscribe(builder.set_bolt("sums", bolt or Sums(), TASKS))
        builder.set_state("sums", MemoryState())
        plan = builder.build().plan
        self.source = TupleSource("spout", "default", 0, plan.spouts[0].streams["default"])
        self.router = Router(plan, plan.edges[0], 0, TaskContext(plan, plan.spouts[0], 0, None))

    def __call__(self, rows: Sequence[tuple[Any, ...]], *, columnar: bool = False) -> dict[int, list[Any]]:
        chunk = Chunk(self.source, rows=[(ATTEMPT, *row) for row in rows])
        if columnar:
            chunk.batch()
        routed = self.router.route(chunk, ATTEMPT, Planned(7).at)
        return {task: [tuple(row[1:]) for row in part.rows(ATTEMPT)] for task, part in routed}


def tasks_of(fields: Fields, by: Fields, rows: list[tuple[Any, ...]], *, columnar: bool) -> dict[int, list[Any]]:
    return Routes(fields, lambda bolt: bolt.fields_grouping("spout", by))(rows, columnar=columnar)


@pytest.mark.parametrize("by", [["word"], ["n"], ["word", "n"], ["n", "word"], ["attempt", "word"], ["attempt"]])
def test_rows_and_columns_agree(by: list[str]) -> None:
    """Rows and columns of the same tuples come to the same tasks, in order."""
    rows = [(f"word-{i % 17}", i % 5) for i in range(100)]
    by_rows = tasks_of(Fields("word", "n"), Fields(*by), rows, columnar=False)
    by_columns = tasks_of(Fields("word: string", "n: long"), Fields(*by), rows, columnar=True)
    assert by_rows == by_columns
    assert sorted(row for part in by_rows.values() for row in part) == sorted(rows)


def test_keys_without_a_python_hash() -> None:
    """Lists are keys, though no dictionary takes them."""
    routed = tasks_of(Fields("parts", "n"), Fields("parts"), [([i % 4], i) for i in range(40)], columnar=False)
    tasks = collections.defaultdict(set)
    for task, rows in routed.items():
        for parts, _ in rows:
            tasks[parts[0]].add(task)
    assert [len(of_key) for of_key in tasks.values()] == [1] * 4


@pytest.mark.parametrize("fields", [Fields("word", "n"), Fields("word: string", "n: long")], ids=["rows", "columns"])
@pytest.mark.parametrize("by", [["word"], ["word", "n"], ["attempt", "word"]])
def test_partial_keys(fields: Fields, by: list[str]) -> None:
    """A key is shared by two tasks, half each, that are the same as in a plain topology."""
    rows = [(f"word-{i % 17}", i % 17) for i in range(17 * 40)]
    shares = [
        collections.Counter(Routes(fields, lambda bolt: bolt.partial_key_grouping("spout", Fields(*by)))(rows[i::17]))
        for i in range(17)
    ]
    for row, routed in zip(rows, shares, strict=False):
        assert {task: len(part) for task, part in routed.items()} == dict.fromkeys(routed, 20)
        key = row if by == ["word", "n"] else row[:1]
        choose = partial_key_choice(TASKS)
        assert set(routed) == {choose(key), choose(key)}
        assert len(routed) == 2


def test_a_custom_grouping() -> None:
    """Each tuple goes, in order, to all of the tasks that the grouping chooses for it."""
    route = Routes(Fields("n"), lambda bolt: bolt.custom_grouping("spout", Parity()))
    assert route([(n,) for n in range(5)]) == {0: [(0,), (1,), (2,), (3,), (4,)], 1: [(1,), (3,)]}


@pytest.mark.parametrize("task", [-1, TASKS])
def test_tasks_that_do_not_exist(task: int) -> None:
    """Whoever names a task that the bolt does not have is told: the grouping, or ``emit_direct``."""
    grouping = Parity()
    grouping.other = task
    route = Routes(Fields("n"), lambda bolt: bolt.custom_grouping("spout", grouping))
    says = f"chose task {task} of 'sums', which has the tasks 0, 1, 2"
    with pytest.raises(TopologyError, match=f"Parity {says}"):
        route([(1,)])
    with pytest.raises(TopologyError, match=f"emit_direct {says}"):
        route.router.check_task(task)
    route.router.check_task(TASKS - 1)


@pytest.mark.parametrize("columnar", [False, True], ids=["rows", "columns"])
def test_a_shuffle_is_even(columnar: bool) -> None:
    """Each task gets its share of a chunk, to one tuple; all tuples arrive; the next chunk goes on where it ended."""
    route = Routes(Fields("n: long") if columnar else Fields("n"), lambda bolt: bolt.shuffle_grouping("spout"))
    counts: collections.Counter[int] = collections.Counter()
    seen = []
    for size in (100, 1, 1, 1, 2, 5, 64, 7):
        routed = route([(n,) for n in range(size)], columnar=columnar)
        sizes = [len(routed.get(task, [])) for task in range(TASKS)]
        assert max(sizes) - min(sizes) <= 1
        assert sorted(row for part in routed.values() for row in part) == [(n,) for n in range(size)]
        counts.update({task: len(part) for task, part in routed.items()})
        seen.append(sorted(routed))
    assert sorted(seen[1:4]) == [[0], [1], [2]], "single tuples go round"
    assert max(counts.values()) - min(counts.values()) <= len(seen)


class CombinedSums(Sums):
    """Sums by word that takes combined rows."""

    def execute_batch(self, batch):
        raise AssertionError("routed only")

    def combiner(self):
        return ReductionCombiner(("word",), "n", Reduction.SUM)


def routed_in_columns(words: Sequence[str], subscribe: Callable[[BoltDeclarer], object], bolt: Sums) -> list[Chunk]:
    """The chunks that rows of these words become, each with n = 1."""
    routes = Routes(Fields("word: string", "n: long", "other: long"), subscribe, bolt)
    rows = [(ATTEMPT, word, 1, number) for number, word in enumerate(words)]
    chunk = Chunk(routes.source, rows=rows)
    chunk = Chunk(routes.source, batch=chunk.batch())
    return [
        decode(part.encode(), routes.source, ATTEMPT) for _, part in routes.router.route(chunk, ATTEMPT, Planned(7).at)
    ]


MANY = [f"w{number % 7}" for number in range(COMBINED_ROWS_MIN)]


@pytest.mark.parametrize(
    ("subscribe", "words", "bolt", "is_combined"),
    [
        pytest.param(lambda b: b.fields_grouping("spout", Fields("word")), MANY, CombinedSums(), True, id="fields"),
        pytest.param(lambda b: b.global_grouping("spout"), MANY, CombinedSums(), True, id="global"),
        pytest.param(lambda b: b.shuffle_grouping("spout"), MANY, CombinedSums(), True, id="shuffle"),
        pytest.param(lambda b: b.all_grouping("spout"), MANY, CombinedSums(), True, id="all"),
        pytest.param(lambda b: b.fields_grouping("spout", Fields("other")), MANY, CombinedSums(), False, id="by another"),
        pytest.param(lambda b: b.partial_key_grouping("spout", Fields("word")), MANY, CombinedSums(), False, id="partial key"),
        pytest.param(lambda b: b.fields_grouping("spout", Fields("word")), MANY[1:], CombinedSums(), False, id="few rows"),
        pytest.param(lambda b: b.fields_grouping("spout", Fields("word")), MANY, Sums(), False, id="no columns"),
        pytest.param(
            lambda b: b.fields_grouping("spout", Fields("word")), list(map(str, range(2_000))), CombinedSums(), False,
            id="many keys",
        ),
    ],
)  # fmt: skip
def test_combined(subscribe, words, bolt, is_combined) -> None:
    """Rows are combined before any grouping that can be told by the key, if they are many and become far fewer."""
    chunks = routed_in_columns(words, subscribe, bolt)
    assert {chunk.is_combined for chunk in chunks} == {is_combined}
    totals = collections.Counter()
    for chunk in chunks:
        for row in chunk.batch().select(["word", "n"]).to_pylist():
            totals[row["word"]] += row["n"]
    copies = sum(totals.values()) // len(words)  # by "all", each task gets every row
    assert totals == {word: n * copies for word, n in collections.Counter(words).items()}
    if is_combined:
        assert sum(map(len, chunks)) == 7 * copies


@pytest.mark.parametrize(("keys", "is_combined"), [(4_000, True), (20_000, False)])
def test_a_sample_tells_whether_to_combine(monkeypatch, keys, is_combined) -> None:
    """Nearly all keys of the sample differ in both; all rows are combined only where a key comes often enough there."""
    taken = []

    def combine(self, batch, planned_at, inner=ReductionCombiner.combine):
        taken.append(len(batch))
        return inner(self, batch, planned_at)

    monkeypatch.setattr(ReductionCombiner, "combine", combine)
    words = [f"w{random.Random(number).randrange(keys)}" for number in range(20_000)]
    chunks = routed_in_columns(words, lambda b: b.fields_grouping("spout", Fields("word")), CombinedSums())
    assert {chunk.is_combined for chunk in chunks} == {is_combined}
    assert taken == [SAMPLE_ROWS, *([len(words)] if is_combined else [])]
    assert len(set(words[:SAMPLE_ROWS])) > 0.8 * SAMPLE_ROWS
