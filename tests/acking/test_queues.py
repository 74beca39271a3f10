"""A task's queue keeps the order of its tuples, in memory and in a file."""

from __future__ import annotations

import random

import pytest

from txtopo.acking.queues import SEGMENT_TUPLES, TaskQueue
from txtopo.acking.trees.tuples import TreeTuple
from txtopo.api.fields import Fields
from txtopo.api.tuples import TupleSource

SOURCES = [TupleSource("a", "default", 1, Fields("n")), TupleSource("b", "default", 2, Fields("n"))]


def queue() -> TaskQueue:
    """Return an empty queue."""
    return TaskQueue(SOURCES, {id(source): number for number, source in enumerate(SOURCES)})


def tuple_of(number: int) -> TreeTuple:
    """Return a tuple with roots of every kind."""
    roots, edges = [(0, 0), (7, 9), ((7, 8), {7: 1, 8: 2})][number % 3]
    return TreeTuple((number,), SOURCES[number % 2], roots, edges)


@pytest.mark.parametrize("seed", range(20))
def test_order(seed: int) -> None:
    """Whatever is spilled when: tuples come out once, in the order in which they went in, as they were."""
    rng = random.Random(seed)
    made, taken, waiting = 0, 0, queue()
    while taken < 5_000:
        action = rng.randrange(3)
        if action == 0 and made < 5_000:
            for _ in range(rng.randrange(1_000)):
                waiting.newest.append(tuple_of(made))
                made += 1
        elif action == 1 and rng.random() < 0.5:
            waiting.spill()
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


def test_nothing_to_take() -> None:
    """An empty queue gives nothing, and its spilling makes no file."""
    waiting = queue()
    waiting.spill()
    assert waiting.take(10) == []
    waiting.close()
