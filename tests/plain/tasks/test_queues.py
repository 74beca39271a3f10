"""A task's queue keeps the order of its tuples, in memory and in a file."""

from __future__ import annotations

import random

import pytest

from tests.plain.topologies import TwoArgumentsError
from txtopo.api.fields import Fields
from txtopo.api.tuples import TupleSource
from txtopo.errors import UserCodeError
from txtopo.plain.tasks.queues import SEGMENT_BYTES, SEGMENT_TUPLES, TaskQueue
from txtopo.plain.trees.tuples import TreeTuple

SOURCES = [TupleSource("a", "default", 1, Fields("n")), TupleSource("b", "default", 2, Fields("n"))]


def queue() -> TaskQueue:
    """Return an empty queue."""
    return TaskQueue(SOURCES, {id(source): number for number, source in enumerate(SOURCES)})


def tuple_of(number: int) -> TreeTuple:
    """Return a tuple with roots of every kind."""
    roots, edges = [(0, 0), (7, 9), ((7, 8), {7: 1, 8: 2})][number % 3]
    return TreeTuple((number,), SOURCES[number % 2], roots, edges)


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(20))
def test_order(seed: int) -> None:
    """Whatever is spilled when: tuples come out once, in the order in which they went in, as they were."""
    rng = random.Random(seed)
    made, taken, waiting = 0, 0, queue()
    while taken < 5_000:
        action = rng.randrange(4)
        if action == 0 and made < 5_000:
            for _ in range(rng.randrange(1_000)):
                waiting.newest.append(tuple_of(made))
                made += 1
        elif action == 1 and rng.random() < 0.5:
            waiting.spill()
        elif action == 3:
            waiting.memory_bytes()
            back = waiting.take(rng.randrange(1, 700))
            waiting.give_back(back)
        else:
            assert bool(waiting) == (taken < made)
            for each in waiting.take(rng.randrange(1, 700)):
                wanted = tuple_of(taken)
                assert (each.values, each.source, each.roots, each.edges) == (
                    wanted.values,
                    wanted.source,
                    wanted.roots,
                    wanted.edges,
                )
                taken += 1
    waiting.close()


def test_memory() -> None:
    """What is spilled takes no memory, but for the segment whose turn it is."""
    waiting = queue()
    waiting.newest.extend(tuple_of(number) for number in range(10 * SEGMENT_TUPLES))
    waiting.spill()
    assert len(waiting) == 0
    assert waiting
    waiting.take(1)
    assert len(waiting) == SEGMENT_TUPLES - 1
    waiting.close()


def large(number: int) -> TreeTuple:
    """Return a tuple with 100 kB, nested."""
    return TreeTuple(({"deep": [str(number) * 100_000]},), SOURCES[0], 0, 0)


def test_few_large_ones() -> None:
    """A queue of few tuples weighs what is in them, until they are taken or written."""
    waiting = queue()
    waiting.newest.extend(large(number) for number in range(10))
    assert 1e6 < waiting.memory_bytes() < 1.1e6
    taken = waiting.take(5)
    assert 5e5 < waiting.memory_bytes() < 5.5e5
    waiting.give_back(taken[1:])
    assert 9e5 < waiting.memory_bytes() < 9.9e5
    waiting.spill()
    assert 4e5 < waiting.memory_bytes() < 4.4e5
    assert [each.values[0]["deep"][0][0] for each in waiting.take(10)] == list("1234")
    assert waiting.memory_bytes() == 0
    waiting.close()


def test_large_ones_come_back_one_by_one() -> None:
    """Of a file of large tuples only few are in memory at a time, however few of their number a segment could hold."""
    waiting = queue()
    waiting.newest.extend(large(number % 10) for number in range(200))
    waiting.spill()
    most = 0
    while waiting:
        waiting.take(1)
        most = max(most, waiting.memory_bytes())
    assert 1e6 < most <= SEGMENT_BYTES
    waiting.close()


def test_a_value_that_cannot_be_read_back() -> None:
    """It is an error of who emitted it, by component, task, stream and field."""
    waiting = queue()
    waiting.newest.extend([tuple_of(0), TreeTuple(([TwoArgumentsError("this", "that")],), SOURCES[1], 0, 0)])
    waiting.spill()
    with pytest.raises(UserCodeError, match="task 2 emitted a value in field 'n' on stream 'default'") as raised:
        waiting.take(1)
    assert raised.value.component == "b"
    waiting.close()
