"""Groupings decide which tasks of a bolt get a tuple, for both kinds of topologies.

Plain topologies choose tuple by tuple, among the ids of tasks: :func:`chooser`. Transactional ones divide whole chunks,
among the indices of tasks (:mod:`txtopo.transactional.tasks.routing`). A key leads to the same task in both.

The journal keeps checksums of what each task of a bolt has emitted, and a replay compares with them. So every later
version must send a key to the same task.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any, Generic, TypeVar

import attrs
import numpy as np
import pyarrow as pa

from txtopo.api.components.context import TopologyContext
from txtopo.api.components.groupings import GroupingKind
from txtopo.api.components.optional import call_if_there
from txtopo.api.data.fields import Fields
from txtopo.columnar.hashing import Hashes, hash_columns, mix, stable_hash
from txtopo.errors import TopologyError
from txtopo.topology.plans.plan import Edge

ChooseOne = Callable[[Sequence[Any]], int]
"""Returns the task that gets a tuple with these values."""

ChooseForMany = Callable[[Sequence[Sequence[Any]]], list[int]]
"""Returns the task that gets each of these rows."""

Pick = Callable[[Sequence[Any]], list[Any]]
"""Returns some of the values of a column."""

SELECTED_MAX = 4
"""Up to so many keys it is faster to look at all rows for each key than to note the positions of each."""

ChooseSome = Callable[[Sequence[Any]], Sequence[int]]
"""Returns the tasks that get a tuple with these values."""

KEYS_MAX = 50_000
"""The most keys that are remembered; at the next one, all are forgotten."""

KEY_LENGTH_MAX = 256
"""The longest key that is remembered, in characters or bytes."""

T = TypeVar("T")


class ByKey(dict[Any, T], Generic[T]):
    """A cache of ``decide(key)``: hashing a word takes ten times as long as a lookup. Any thread may use it.

    A lookup raises TypeError if no dictionary takes the key, such as a list; then call ``decide``.
    """

    def __init__(self, decide: Callable[[Any], T], keys_max: int = KEYS_MAX) -> None:
        super().__init__()
        self.decide = decide
        self._keys_max = keys_max

    def __missing__(self, key: Any) -> T:
        decided = self.decide(key)
        if _can_remember(key):
            if len(self) >= self._keys_max:
                self.clear()
            self[key] = decided
        return decided


_EQUALITIES = {
    each.__eq__ for each in (object, str, bytes, int, float, complex, tuple, dt.date, dt.datetime, uuid.UUID, Decimal)
}


def _can_remember(key: Any) -> bool:
    """Return whether keys that are equal to this one lead where it does, and it is short."""
    if key.__class__.__eq__ not in _EQUALITIES and not isinstance(key, np.generic):
        return False  # such as a str that ignores case: the task is that of the characters
    if isinstance(key, tuple):
        return len(key) <= KEY_LENGTH_MAX and all(map(_can_remember, key))
    return not isinstance(key, (str, bytes)) or len(key) <= KEY_LENGTH_MAX


@functools.cache
def task_by_key(count: int) -> ByKey[int]:
    """Return which of ``count`` tasks gets a key, for fields groupings: the key's one value, or a tuple of several."""
    return ByKey(lambda key: stable_hash(key) % count)


def tasks_of_keys(keys: Iterable[Any], count: int) -> list[int]:
    """Return which of ``count`` tasks gets each key, for fields groupings."""
    by_key = task_by_key(count)
    try:
        return list(map(by_key.__getitem__, keys))
    except TypeError:  # an unhashable key, such as a list
        return list(map(by_key.decide, keys))


def tasks_of_columns(columns: Sequence[pa.Array], count: int) -> Hashes:
    """Return which of ``count`` tasks gets each row's key, for fields groupings: the same as :func:`tasks_of_keys`."""
    return hash_columns(columns) % np.uint64(count)


@functools.cache
def _two_by_key(count: int) -> ByKey[tuple[int, int]]:
    """Return which two of ``count`` tasks, at least two, share a key, which is a tuple even of one value."""

    def decide(key: tuple[Any, ...]) -> tuple[int, int]:
        hashed = stable_hash(key)
        mixed = mix(hashed)
        first, second = hashed % count, mixed % count
        if second == first:
            # One of the others, again by the hash.
            second = (first + 1 + mixed // count % (count - 1)) % count
        return first, second

    return ByKey(decide)


def partial_key_choice(count: int) -> Callable[[tuple[Any, ...]], int]:
    """Return how one emitting task chooses among ``count`` tasks, at least two, for a partial key.

    It takes the one of the key's two tasks that it has sent less to.
    """
    two_by_key, sent = _two_by_key(count), [0] * count

    def choose(key: tuple[Any, ...]) -> int:
        try:
            first, second = two_by_key[key]
        except TypeError:  # an unhashable value in the key
            first, second = two_by_key.decide(key)
        task = first if sent[first] <= sent[second] else second
        sent[task] += 1
        return task

    return choose


def custom_choice(edge: Edge, source_task: int, tasks: Sequence[int], context: TopologyContext | None) -> ChooseSome:
    """Prepare a custom grouping for a task that emits, and return how it chooses; each choice is checked."""
    grouping = edge.grouping.custom
    assert grouping is not None, "a custom grouping has its object"
    call_if_there(grouping, "prepare", context, edge.stream, list(tasks))
    task_set = frozenset(tasks)

    def choose(values: Sequence[Any]) -> Sequence[int]:
        chosen = grouping.choose_tasks(source_task, values)
        if not task_set.issuperset(chosen):
            for task in chosen:
                check_task(task, tasks, edge, type(grouping).__name__)
        return chosen

    return choose


def check_task(task: int, tasks: Sequence[int], edge: Edge, who: str) -> None:
    """Raise a TopologyError, which names ``who`` chose the task, if it is not one of the target's ``tasks``."""
    if task not in tasks:
        raise TopologyError(
            f"{who} chose task {task} of {edge.target!r}, which has the tasks {', '.join(map(str, tasks))}",
            component=edge.source,
        )


def divide(keys: Sequence[int]) -> Mapping[int, Pick]:
    """Return, by key, how to pick what has this key out of a column that is as long as ``keys``, in its order."""
    different = sorted(set(keys))
    if len(different) == 1:
        return {different[0]: list}
    if len(different) <= SELECTED_MAX:
        return {key: _where(list(map(key.__eq__, keys))) for key in different}
    positions: dict[int, list[int]] = {key: [] for key in different}
    for position, key in enumerate(keys):
        positions[key].append(position)
    return {key: _at(position) for key, position in positions.items()}


def _where(selected: Sequence[bool]) -> Pick:
    return lambda column: list(itertools.compress(column, selected))


def _at(positions: Sequence[int]) -> Pick:
    return lambda column: [column[position] for position in positions]


@attrs.frozen
class KeyChoice:
    """How an edge chooses by one value of a tuple: its position, and the task that gets the tuples with a value."""

    position: int
    task: Callable[[Any], int]


@attrs.frozen
class Choice:
    """How an edge chooses tasks: either one or some."""

    one: ChooseOne | None = None
    some: ChooseSome | None = None
    many: ChooseForMany | None = None
    """The same as ``one`` for many tuples, if there is a faster way than to call it for each."""
    key: KeyChoice | None = None
    """The same as ``one``, for a fields grouping on one field."""

    def tasks_of(self, rows: Sequence[Sequence[Any]]) -> Mapping[int, Pick]:
        """Return, by task, how to pick what belongs to the rows that it gets."""
        if self.some is not None:
            by_task: dict[int, list[int]] = {}
            for position, values in enumerate(rows):
                for task in self.some(values):
                    by_task.setdefault(task, []).append(position)
            return {task: _at(positions) for task, positions in by_task.items()}
        assert self.one is not None, "a choice is one of the two"
        return divide(list(map(self.one, rows)) if self.many is None else self.many(rows))


def chooser(  # noqa: PLR0913, PLR0917 - all that a grouping may look at
    edge: Edge,
    fields: Fields,
    source_task: int,
    tasks: Sequence[int],
    local: Sequence[int],
    context: TopologyContext,
    rng: random.Random,
) -> Choice:
    """Return how an edge chooses among the target's ``tasks`` for the tuples of one task.

    ``local`` are the tasks in the worker of ``source_task``, whose context is ``context``. An edge of direct grouping
    has no choice: its emitter chooses.
    """
    kind, grouping = edge.grouping.kind, edge.grouping
    if kind is GroupingKind.ALL:
        everyone = list(tasks)
        return Choice(some=lambda _values: everyone)
    if kind is GroupingKind.CUSTOM:
        return Choice(some=custom_choice(edge, source_task, tasks, context))
    if len(tasks) == 1 or kind is GroupingKind.GLOBAL:
        lowest = min(tasks)
        return Choice(one=lambda _values: lowest, many=lambda rows: [lowest] * len(rows))
    if grouping.fields is not None:
        positions = [fields.index(name) for name in grouping.fields]
        return _by_key(positions, tasks) if kind is GroupingKind.FIELDS else Choice(one=_by_half(positions, tasks))
    return Choice(one=_shuffle(local if kind is GroupingKind.LOCAL_OR_SHUFFLE and local else tasks, rng))


def _shuffle(tasks: Sequence[int], rng: random.Random) -> ChooseOne:
    """Choose the tasks in turn, in a random order: their shares differ by at most one tuple."""
    turns = itertools.cycle(rng.sample(list(tasks), len(tasks)))
    return functools.partial(next, turns)  # the values are its default, which it never takes: half of a lambda's time


def _by_key(positions: Sequence[int], tasks: Sequence[int]) -> Choice:
    key_of = itemgetter(*positions)
    decide = task_by_key(len(tasks)).decide
    tasks_by_key = ByKey(lambda key: tasks[decide(key)])

    def choose(values: Sequence[Any]) -> int:
        key = key_of(values)
        try:
            return tasks_by_key[key]
        except TypeError:  # an unhashable key, such as a list
            return tasks_by_key.decide(key)

    def choose_for_many(rows: Sequence[Sequence[Any]]) -> list[int]:
        keys = list(map(key_of, rows))
        try:
            return list(map(tasks_by_key.__getitem__, keys))
        except TypeError:
            return list(map(tasks_by_key.decide, keys))

    if len(positions) == 1:
        return Choice(one=choose, many=choose_for_many, key=KeyChoice(positions[0], tasks_by_key.decide))
    return Choice(one=choose, many=choose_for_many)


def _by_half(positions: Sequence[int], tasks: Sequence[int]) -> ChooseOne:
    choose = partial_key_choice(len(tasks))
    if len(positions) == 1:
        (position,) = positions
        return lambda values: tasks[choose((values[position],))]
    key_of = itemgetter(*positions)
    return lambda values: tasks[choose(key_of(values))]
