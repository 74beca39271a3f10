"""Routing: which tasks of an edge's target get which tuples of a chunk."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from txtopo.contracts.context import TopologyContext
from txtopo.contracts.optional import call_if_there
from txtopo.core.attempts import TransactionAttempt
from txtopo.errors import TopologyError
from txtopo.phases.chunks import Chunk, Row
from txtopo.phases.hashing import mix, stable_hash
from txtopo.topology.groupings import EVEN, CustomStreamGrouping, GroupingKind
from txtopo.topology.plan import Edge, Plan

_MEMO_KEYS_MAX = 100_000
"""Keys whose task is remembered by a router."""

Routed = list[tuple[int, Chunk]]


class Router:
    """Routes what one source task emits on one edge, for one attempt.

    Args:
        plan: the plan the edge is in.
        edge: the subscription.
        source_task: the task that emits.
        context: that task's context, for custom groupings.
    """

    def __init__(self, plan: Plan, edge: Edge, source_task: int, context: TopologyContext) -> None:
        self.edge = edge
        self._source_task = source_task
        self._tasks = plan.by_id[edge.target].tasks
        self._keeps_task = not edge.grouping.moves(plan.by_id[edge.source].tasks, self._tasks)
        self._next = source_task
        self._memo: dict[Any, int] = {}
        self._load = [0] * self._tasks
        self._custom: CustomStreamGrouping | None = edge.grouping.custom
        if edge.grouping.fields is not None:
            fields = plan.by_id[edge.source].streams[edge.stream]
            self._positions = [fields.index(name) for name in edge.grouping.fields]
        if self._custom is not None:
            call_if_there(self._custom, "prepare", context, edge.stream, list(range(self._tasks)))

    def route(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        """Return each target task that gets tuples, with the chunk of them."""
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
            if chunk.is_columnar:
                return self._route_columns(chunk)
            return self._route_keys(chunk, attempt)
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
            ((first + i) % self._tasks, Chunk(chunk.source, rows=rows[i :: self._tasks]))
            for i in range(min(self._tasks, len(rows)))
        ]

    def _route_keys(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        shares: list[list[Row]] = [[] for _ in range(self._tasks)]
        memo = self._memo
        for row in chunk.rows(attempt):
            key = self._key(row)
            task = memo.get(key)
            if task is None:
                task = self._task_of(key)
            shares[task].append(row)
        return [(task, Chunk(chunk.source, rows=rows)) for task, rows in enumerate(shares) if rows]

    def _route_columns(self, chunk: Chunk) -> Routed:
        batch = chunk.batch()
        columns = [batch.column(position - 1) for position in self._positions if position > 0]
        if len(columns) == 1:
            encoded = columns[0].dictionary_encode(null_encoding="encode")
            lookup = np.array([self._task_of(key) for key in encoded.dictionary.to_pylist()], dtype=np.int64)
            tasks = lookup[encoded.indices.to_numpy(zero_copy_only=False)]
        else:
            keys = zip(*(column.to_pylist() for column in columns), strict=True)
            tasks = np.fromiter((self._task_of(key) for key in keys), dtype=np.int64, count=len(chunk))
        return [
            (int(task), Chunk(chunk.source, batch=batch.take(np.flatnonzero(tasks == task))))
            for task in np.unique(tasks)
        ]

    def _route_partial_keys(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        shares: list[list[Row]] = [[] for _ in range(self._tasks)]
        for row in chunk.rows(attempt):
            hashed = stable_hash(self._key(row))
            one, other = hashed % self._tasks, mix(hashed) % self._tasks
            task = one if self._load[one] <= self._load[other] else other
            self._load[task] += 1
            shares[task].append(row)
        return [(task, Chunk(chunk.source, rows=rows)) for task, rows in enumerate(shares) if rows]

    def _route_custom(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        assert self._custom is not None, "a custom grouping has its object"
        shares: list[list[Row]] = [[] for _ in range(self._tasks)]
        for row in chunk.rows(attempt):
            for task in self._custom.choose_tasks(self._source_task, row):
                self.check_task(task)
                shares[task].append(row)
        return [(task, Chunk(chunk.source, rows=rows)) for task, rows in enumerate(shares) if rows]

    def check_task(self, task: int) -> None:
        """Refuse a task index that the target does not have.

        Raises:
            TopologyError: there is no such task.
        """
        if not 0 <= task < self._tasks:
            raise TopologyError(
                f"task {task} of {self.edge.target!r} was chosen; it has tasks 0 to {self._tasks - 1}",
                component=self.edge.source,
            )

    def _key(self, row: Row) -> Any:
        if len(self._positions) == 1:
            return row[self._positions[0]]
        return tuple(row[position] for position in self._positions)

    def _task_of(self, key: Sequence[Any] | Any) -> int:
        task = stable_hash(key) % self._tasks
        if len(self._memo) < _MEMO_KEYS_MAX:
            try:
                self._memo[key] = task
            except TypeError:  # an unhashable key, such as a list
                return task
        return task
