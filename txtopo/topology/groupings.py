"""Choosing: which tasks of a bolt get a tuple, by the grouping that it subscribes with.

As :mod:`txtopo.transactional.tasks.routing`, which routes whole batches, but tuple by tuple and by task ids. Equal keys
hash alike in both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import attrs

from txtopo.api.context import TopologyContext
from txtopo.api.fields import Fields
from txtopo.api.groupings import GroupingKind
from txtopo.api.optional import call_if_there
from txtopo.columnar.hashing import mix, stable_hash
from txtopo.errors import TopologyError
from txtopo.topology.plan import Edge

ChooseOne = Callable[[Sequence[Any]], int]
"""Returns the task that gets a tuple with these values."""

ChooseSome = Callable[[Sequence[Any]], Sequence[int]]
"""Returns the tasks that get a tuple with these values."""

_KEYS_MAX = 50_000
"""Keys whose task a chooser remembers; then it starts afresh. Hashing a word takes ten times as long as finding it."""


@attrs.frozen
class Choice:
    """How an edge chooses tasks: just one of the two is set."""

    one: ChooseOne | None = None
    some: ChooseSome | None = None


def chooser(  # noqa: PLR0913, PLR0917 - all that a grouping may look at
    edge: Edge,
    fields: Fields,
    source_task: int,
    tasks: Sequence[int],
    local: Sequence[int],
    context: TopologyContext,
    rng: random.Random,
) -> Choice:
    """Return how the tuples of one task choose among the tasks of an edge's target.

    Args:
        edge: the edge; not one of direct grouping, for which the emitter chooses.
        fields: the fields of its stream.
        source_task: the task that emits.
        tasks: the tasks of the target.
        local: those of them that are in the same worker.
        context: of the task that emits.
        rng: shuffles.
    """
    kind, grouping = edge.grouping.kind, edge.grouping
    if kind is GroupingKind.ALL:
        everyone = list(tasks)
        return Choice(some=lambda _values: everyone)
    if kind is GroupingKind.CUSTOM:
        return Choice(some=_custom(edge, source_task, tasks, context))
    if len(tasks) == 1 or kind is GroupingKind.GLOBAL:
        lowest = min(tasks)
        return Choice(one=lambda _values: lowest)
    if grouping.fields is not None:
        key_of = itemgetter(*(fields.index(name) for name in grouping.fields))
        return Choice(one=_by_key(key_of, tasks) if kind is GroupingKind.FIELDS else _by_two_keys(key_of, tasks))
    return Choice(one=_shuffle(local if kind is GroupingKind.LOCAL_OR_SHUFFLE and local else tasks, rng))


def _shuffle(tasks: Sequence[int], rng: random.Random) -> ChooseOne:
    """In turn over the tasks in an order drawn at random: shares differ by one tuple at most."""
    order = rng.sample(list(tasks), len(tasks))
    turns = dict(zip(order, [*order[1:], order[0]], strict=True))
    current = order[-1]

    def choose(_values: Sequence[Any]) -> int:
        nonlocal current
        current = turns[current]
        return current

    return choose


def _by_key(key_of: Callable[[Sequence[Any]], Any], tasks: Sequence[int]) -> ChooseOne:
    known: dict[Any, int] = {}
    count = len(tasks)

    def choose(values: Sequence[Any]) -> int:
        key = key_of(values)
        try:
            return known[key]
        except KeyError:
            if len(known) >= _KEYS_MAX:
                known.clear()
            task = known[key] = tasks[stable_hash(key) % count]
            return task
        except TypeError:  # an unhashable key, such as a list
            return tasks[stable_hash(key) % count]

    return choose


def _by_two_keys(key_of: Callable[[Sequence[Any]], Any], tasks: Sequence[int]) -> ChooseOne:
    sent = dict.fromkeys(tasks, 0)
    count = len(tasks)

    def choose(values: Sequence[Any]) -> int:
        hashed = stable_hash(key_of(values))
        first = hashed % count
        second = mix(hashed) % (count - 1)  # another one than the first
        one, other = tasks[first], tasks[second if second < first else second + 1]
        task = one if sent[one] <= sent[other] else other
        sent[task] += 1
        return task

    return choose


def _custom(edge: Edge, source_task: int, tasks: Sequence[int], context: TopologyContext) -> ChooseSome:
    grouping = edge.grouping.custom
    assert grouping is not None, "a custom grouping has its object"
    call_if_there(grouping, "prepare", context, edge.stream, list(tasks))
    known = frozenset(tasks)

    def choose(values: Sequence[Any]) -> Sequence[int]:
        chosen = grouping.choose_tasks(source_task, values)
        for task in chosen:
            if task not in known:
                raise TopologyError(
                    f"{type(grouping).__name__} chose task {task} of {edge.target!r}, which has the tasks "
                    f"{', '.join(map(str, tasks))}",
                    component=edge.source,
                )
        return chosen

    return choose
