"""Routing: equal keys come to one task, however a chunk is held and whatever its keys are."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.transactional.tasks.test_bolt_tasks import Sums
from txtopo import Fields, TransactionalTopologyBuilder, TransactionAttempt
from txtopo.api.tuples import TupleSource
from txtopo.columnar.chunks import Chunk
from txtopo.transactional.tasks import routing
from txtopo.transactional.tasks.context import TaskContext
from txtopo.transactional.tasks.routing import Router

ATTEMPT = TransactionAttempt(7, 1)
TASKS = 3


def router(fields: Fields, by: Fields | None) -> tuple[Router, TupleSource]:
    """Return a router by fields, or, without them, an even one."""
    builder = TransactionalTopologyBuilder("routes", "spout", MemoryTransactionalSpout({}, fields, 1))
    bolt = builder.set_bolt("sums", Sums(), TASKS)
    bolt.shuffle_grouping("spout") if by is None else bolt.fields_grouping("spout", by)
    builder.set_state("sums", MemoryState())
    plan = builder.build().plan
    source = TupleSource("spout", "default", 0, plan.spout.streams["default"])
    return Router(plan, plan.edges[0], 0, TaskContext(plan, plan.spout, 0, None)), source


def tasks_of(fields: Fields, by: Fields, rows: list[tuple[Any, ...]], *, columnar: bool) -> dict[int, list[Any]]:
    made, source = router(fields, by)
    chunk = Chunk(source, rows=[(ATTEMPT, *row) for row in rows])
    if columnar:
        chunk.batch()
    return {task: [tuple(row[1:]) for row in part.rows(ATTEMPT)] for task, part in made.route(chunk, ATTEMPT)}


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


def test_memory_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process forgets the keys it has seen before there are too many, and never keeps long ones."""
    monkeypatch.setattr(routing, "_MEMO_KEYS_MAX", 8)
    rows = [(f"key-{i}" * (1 + 100 * (i % 2)), i) for i in range(100)]
    first = tasks_of(Fields("word", "n"), Fields("word"), rows, columnar=False)
    memo = routing._memos[TASKS]
    assert len(memo) <= 8
    assert all(len(key) < 300 for key in memo)
    assert tasks_of(Fields("word", "n"), Fields("word"), rows, columnar=False) == first


@pytest.mark.parametrize("columnar", [False, True], ids=["rows", "columns"])
def test_a_shuffle_is_even(columnar: bool) -> None:
    """Each task gets its share of a chunk, to one tuple; all tuples arrive; the next chunk goes on where it ended."""
    fields = Fields("n: long") if columnar else Fields("n")
    made, source = router(fields, None)
    counts: collections.Counter[int] = collections.Counter()
    seen = []
    for size in (100, 1, 1, 1, 2, 5, 64, 7):
        chunk = Chunk(source, rows=[(ATTEMPT, n) for n in range(size)])
        if columnar:
            chunk.batch()
        routed = {task: [row[1] for row in part.rows(ATTEMPT)] for task, part in made.route(chunk, ATTEMPT)}
        sizes = [len(routed.get(task, [])) for task in range(TASKS)]
        assert max(sizes) - min(sizes) <= 1
        assert sorted(n for part in routed.values() for n in part) == list(range(size))
        counts.update({task: len(part) for task, part in routed.items()})
        seen.append(sorted(routed))
    assert sorted(seen[1:4]) == [[0], [1], [2]], "single tuples go round"
    assert max(counts.values()) - min(counts.values()) <= len(seen)
