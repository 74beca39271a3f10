"""Routing: distributes the tuples of a chunk over the tasks of an edge's target."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from txtopo.api.context import TopologyContext
from txtopo.api.groupings import EVEN, CustomStreamGrouping, GroupingKind
from txtopo.api.optional import call_if_there
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.chunks import Chunk, Row
from txtopo.columnar.hashing import hash_columns, mix, stable_hash
from txtopo.errors import TopologyError
from txtopo.topology.plan import Edge, Plan

_MEMO_KEYS_MAX = 50_000
"""Maximum number of cached keys for each number of tasks; a full cache is cleared."""

_MEMO_KEY_LENGTH_MAX = 256
"""Maximum length of a cached key, in characters or bytes."""

_memos: dict[int, dict[Any, int]] = {}
"""Tasks by key, for each number of tasks. Valid for every edge and attempt; any thread may clear them."""

Routed = list[tuple[int, Chunk]]


class Router:
    """Routes the tuples that one source task emits on one edge, for one attempt.

    Args:
        plan: the plan.
        edge: the subscription.
        source_task: the index of the task that emits.
        context: that task's context; only a custom grouping needs it.
    """

    def __init__(self, plan: Plan, edge: Edge, source_task: int, context: TopologyContext | None) -> None:
        self.edge = edge
        self._source_task = source_task
        self._tasks = plan.by_id[edge.target].tasks
        self._keeps_task = not edge.grouping.moves(plan.by_id[edge.source].tasks, self._tasks)
        self._next = source_task
        self._memo = _memos.setdefault(self._tasks, {})
        self._load = [0] * self._tasks
        self._custom: CustomStreamGrouping | None = edge.grouping.custom
        if edge.grouping.fields is not None:
            fields = plan.by_id[edge.source].streams[edge.stream]
            positions = (fields.index(name) for name in edge.grouping.fields)
            self._positions = [position for position in positions if position > 0]  # the attempt is always equal
        if self._custom is not None:
            call_if_there(self._custom, "prepare", context, edge.stream, list(range(self._tasks)))

    def route(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        """Return each target task that gets tuples, with a chunk of these."""
        kind = self.edge.grouping.kind
        if kind is GroupingKind.ALL:
            return [(task, chunk) for task in range(self._tasks)]
        if kind is GroupingKind.DIRECT:
            return []
        if kind is GroupingKind.CUSTOM:
            return self._route_custom(chunk, attempt)
        if self._tasks == 1 or kind is GroupingKind.GLOBAL:
            return [(0, chunk)]
        if kind in EVEN:
            return self._route_evenly(chunk, attempt)
        if kind is GroupingKind.FIELDS:
            if not self._positions:
                return [(stable_hash(attempt.txid) % self._tasks, chunk)]
            return self._route_columns(chunk) if chunk.is_columnar else self._route_keys(chunk, attempt)
        return self._route_partial_keys(chunk, attempt)

    def _route_evenly(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        if self._keeps_task:
            return [(self._source_task, chunk)]
        first, self._next = self._next % self._tasks, self._next + len(chunk)
        if chunk.is_columnar:
            bounds = np.linspace(0, len(chunk), self._tasks + 1).astype(int)
            batch = chunk.batch()
            return [
                ((first + i) % self._tasks, Chunk(chunk.source, batch=batch.slice(start, end - start)))
                for i, (start, end) in enumerate(itertools.pairwise(bounds))
                if end > start
            ]
        rows = chunk.rows(attempt)
        return [
            ((first + i) % self._tasks, chunk.part(rows[i :: self._tasks])) for i in range(min(self._tasks, len(rows)))
        ]

    def _route_keys(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        rows = chunk.rows(attempt)
        keys = self._keys(chunk)
        tasks: list[int | None]
        try:
            tasks = list(map(self._memo.get, keys))
        except TypeError:  # an unhashable key, such as a list
            tasks = [stable_hash(key) % self._tasks for key in keys]
        if None in tasks:
            tasks = [self._task_of(key) if task is None else task for key, task in zip(keys, tasks, strict=True)]
        shares: list[list[Row]] = [[] for _ in range(self._tasks)]
        take = [share.append for share in shares]
        for row, task in zip(rows, tasks, strict=True):
            take[task](row)  # type: ignore[index] # no task is None any more
        return [(task, chunk.part(share)) for task, share in enumerate(shares) if share]

    def _route_columns(self, chunk: Chunk) -> Routed:
        batch = chunk.batch()
        hashes = hash_columns([batch.column(position - 1) for position in self._positions])
        tasks = (hashes % np.uint64(self._tasks)).astype(np.min_scalar_type(self._tasks))
        order = np.argsort(tasks, kind="stable")
        ends = np.cumsum(np.bincount(tasks, minlength=self._tasks))
        return [
            (task, Chunk(chunk.source, batch=batch.take(order[start:end])))
            for task, (start, end) in enumerate(itertools.pairwise([0, *ends.tolist()]))
            if end > start
        ]

    def _route_partial_keys(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        shares: list[list[Row]] = [[] for _ in range(self._tasks)]
        for row in chunk.rows(attempt):
            hashed = stable_hash(tuple(row[position] for position in self._positions))
            one, other = hashed % self._tasks, mix(hashed) % self._tasks
            task = one if self._load[one] <= self._load[other] else other
            self._load[task] += 1
            shares[task].append(row)
        return [(task, chunk.part(rows)) for task, rows in enumerate(shares) if rows]

    def _route_custom(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        assert self._custom is not None, "a custom grouping has its object"
        shares: list[list[Row]] = [[] for _ in range(self._tasks)]
        for row, handed in zip(chunk.rows(attempt), chunk.handed_rows(attempt), strict=True):
            for task in self._custom.choose_tasks(self._source_task, handed):
                self.check_task(task)
                shares[task].append(row)
        return [(task, chunk.part(rows)) for task, rows in enumerate(shares) if rows]

    def check_task(self, task: int) -> None:
        """Check that the target has a task with this index.

        Raises:
            TopologyError: there is no such task.
        """
        if not 0 <= task < self._tasks:
            raise TopologyError(
                f"task {task} of {self.edge.target!r} was chosen, but it has only tasks 0 to {self._tasks - 1}",
                component=self.edge.source,
            )

    def _keys(self, chunk: Chunk) -> Sequence[Any]:
        """Return each tuple's key: the value of one key field, or a tuple of the values of several."""
        columns = chunk.columns()
        keys = [columns[position - 1] for position in self._positions]
        return keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))

    def _task_of(self, key: Any) -> int:
        task = stable_hash(key) % self._tasks
        if _is_small(key):
            if len(self._memo) >= _MEMO_KEYS_MAX:
                self._memo.clear()
            self._memo[key] = task
        return task


def _is_small(key: Any) -> bool:
    if isinstance(key, tuple):
        return len(key) <= _MEMO_KEY_LENGTH_MAX and all(map(_is_small, key))
    return not isinstance(key, (str, bytes)) or len(key) <= _MEMO_KEY_LENGTH_MAX
