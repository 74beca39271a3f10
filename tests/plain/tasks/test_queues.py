"""A task's queue keeps the order of its tuples, in memory and in a file."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from tests.plain.topologies import TwoArgumentsError
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import TupleSource
from txtopo.errors import UserCodeError
from txtopo.plain.frames import Columns
from txtopo.plain.tasks.queues import SEGMENT_BYTES, SEGMENT_TUPLES, TaskQueue

SOURCES = [TupleSource("a", "default", 1, Fields("n")), TupleSource("b", "default", 2, Fields("n"))]

Row = tuple[tuple[Any, ...], int, Any, Any]
"""A tuple: its values, the number of its source, its roots and its edges."""


def row_of(number: int) -> Row:
    """Return a tuple, in runs of one source, with roots of every kind."""
    roots, edges = [(0, 0), (7, 9), ((7, 8), {7: 1, 8: 2}), (0, 0)][number % 4]
    return (number,), number // 5 % 2, roots, edges


def put(waiting: TaskQueue, rows: Iterable[Row]) -> None:
    """Put tuples, as few at once as a task may emit."""
    for values, source, roots, edges in rows:
        columns = Columns(source, 5)
        columns.add(values, roots, edges)
        waiting.put(columns)


def rows_of(taken: Iterable[Columns]) -> list[Row]:
    """Return the tuples of columns."""
    rows = []
    for each in taken:
        each.fill()
        for values, roots, edges in zip(each.values, each.roots, each.edges, strict=True):
            rows.append((values, each.source, roots, edges))
    return rows


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(20))
def test_order(seed: int) -> None:
    """Whatever is spilled when: tuples come out once, in the order in which they went in, as they were."""
    rng = random.Random(seed)
    made, taken, waiting = 0, 0, TaskQueue(SOURCES)
    while taken < 5_000:
        action = rng.randrange(4)
        if action == 0 and made < 5_000:
            columns = Columns(rng.randrange(2), 5)
            for _ in range(rng.randrange(1_000)):
                if rng.random() < 0.5:
                    columns.add((made,), made % 3, made * made % 3)
                else:
                    columns.values.append((made,))
                    columns.is_short = True
                made += 1
            if columns.values:
                waiting.put(columns)
        elif action == 1 and rng.random() < 0.5:
            waiting.spill()
        elif action == 3:
            back = waiting.take(rng.randrange(1, 700))
            done = rng.randrange(1 + sum(len(each.values) for each in back))
            for values, _, roots, edges in rows_of(back)[:done]:
                assert (values, roots in {0, taken % 3}, edges in {0, taken * taken % 3}) == ((taken,), True, True)
                taken += 1
            waiting.give_back(back, done)
        else:
            assert bool(waiting) == (taken < made)
            most = rng.randrange(1, 700)
            rows = rows_of(waiting.take(most))
            assert len(rows) <= most
            for values, _, roots, edges in rows:
                assert (values, roots in {0, taken % 3}, edges in {0, taken * taken % 3}) == ((taken,), True, True)
                taken += 1
    assert (bool(waiting), len(waiting), waiting.memory_bytes()) == (made > taken, made - taken, waiting.memory_bytes())
    waiting.close()


def test_rows_of_every_kind() -> None:
    """Sources, roots and edges come back from the file as they were."""
    waiting, rows = TaskQueue(SOURCES), [row_of(number) for number in range(40)]
    put(waiting, rows)
    waiting.spill()
    found = []
    while waiting:
        found += rows_of(waiting.take(7))
    assert found == rows
    waiting.close()


@pytest.mark.slow
def test_memory() -> None:
    """What is spilled takes no memory, but for the segment whose turn it is."""
    waiting = TaskQueue(SOURCES)
    put(waiting, (row_of(number) for number in range(10 * SEGMENT_TUPLES)))
    waiting.spill()
    assert len(waiting) == 0
    assert waiting
    waiting.take(1)
    assert len(waiting) == SEGMENT_TUPLES - 1
    waiting.close()


def large(number: int) -> Row:
    """Return a tuple with 100 kB, nested."""
    return ({"deep": [str(number) * 100_000]},), 0, 0, 0


def test_few_large_ones() -> None:
    """A queue of few tuples weighs what is in them, until they are taken or written."""
    waiting = TaskQueue(SOURCES)
    put(waiting, (large(number) for number in range(10)))
    assert 1e6 < waiting.memory_bytes() < 1.1e6
    taken = waiting.take(5)
    assert 5e5 < waiting.memory_bytes() < 5.5e5
    waiting.give_back(taken, 1)
    assert 9e5 < waiting.memory_bytes() < 9.9e5
    waiting.spill()
    assert 4e5 < waiting.memory_bytes() < 4.4e5
    assert [values[0]["deep"][0][0] for values, *_ in rows_of(waiting.take(10))] == list("1234")
    assert waiting.memory_bytes() == 0
    waiting.close()


def test_large_ones_come_back_one_by_one() -> None:
    """Of a file of large tuples only few are in memory at a time, however few of their number a segment could hold."""
    waiting = TaskQueue(SOURCES)
    put(waiting, (large(number % 10) for number in range(200)))
    waiting.spill()
    most = 0
    while waiting:
        waiting.take(1)
        most = max(most, waiting.memory_bytes())
    assert 1e6 < most <= SEGMENT_BYTES
    waiting.close()


def test_a_value_that_cannot_be_read_back() -> None:
    """It is an error of who emitted it, by component, task and stream."""
    waiting = TaskQueue(SOURCES)
    put(waiting, [row_of(0), (([TwoArgumentsError("this", "that")],), 1, 0, 0)])
    waiting.spill()
    with pytest.raises(
        UserCodeError, match="task 2 emitted a value on stream 'default' that pickles and does not unpickle"
    ) as raised:
        waiting.take(1)
    assert raised.value.component == "b"
    waiting.close()
