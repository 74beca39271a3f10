"""Routing: distributes the tuples of a chunk over the tasks of an edge's target."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.api.components.bolt import BatchBolt
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.groupings import EVEN, GroupingKind
from txtopo.api.data.fields import Fields
from txtopo.api.reduction import Combiner
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.chunks import Chunk, Row
from txtopo.topology.builders.kinds import takes_batches
from txtopo.topology.plans.groupings import (
    check_task,
    custom_choice,
    partial_key_choice,
    task_by_key,
    tasks_of_columns,
    tasks_of_keys,
)
from txtopo.topology.plans.plan import Edge, Plan, PlannedComponent
from txtopo.topology.user_code.blame import user_code

Routed = list[tuple[int, Chunk]]

COMBINED_ROWS_MIN = 1_000
"""Fewer rows are routed as they are: to combine them takes longer than to move them."""

SAMPLE_ROWS = 1_024
"""From these, at the beginning of many more rows, follows whether equal keys are frequent enough."""

_COMBINED_BY = EVEN | {GroupingKind.FIELDS, GroupingKind.GLOBAL, GroupingKind.ALL}
"""Groupings that look at key fields of the rows, or at none."""


class Router:
    """Routes what one source task emits on one edge for one attempt; a custom grouping gets its ``context``."""

    def __init__(self, plan: Plan, edge: Edge, source_task: int, context: TopologyContext | None) -> None:
        self.edge = edge
        self._source_task = source_task
        self._tasks = plan.by_id[edge.target].tasks
        self._keeps_task = not edge.grouping.moves(plan.by_id[edge.source].tasks, self._tasks)
        self._combiner: Combiner | None = None
        self._may_combine = edge.grouping.kind in _COMBINED_BY and not self._keeps_task
        self._plan = plan
        self._next = source_task  # each source task begins elsewhere, or the first tuples of all would go to task 0
        kind = edge.grouping.kind
        if edge.grouping.fields is not None:
            fields = plan.by_id[edge.source].streams[edge.stream]
            positions = (fields.index(name) for name in edge.grouping.fields)
            self._positions = [position for position in positions if position > 0]  # the attempt is always equal
        if kind is GroupingKind.PARTIAL_KEY and self._tasks > 1:
            self._choose_for_key = partial_key_choice(self._tasks)
        if kind is GroupingKind.CUSTOM:
            self._choose_some = custom_choice(edge, source_task, range(self._tasks), context)

    def route(self, chunk: Chunk, attempt: TransactionAttempt, planned_at: dt.datetime) -> Routed:
        """Return each target task with its chunk of tuples, combined if that makes them far fewer."""
        kind = self.edge.grouping.kind
        if self._may_combine and chunk.source.fields.columnar and len(chunk) >= COMBINED_ROWS_MIN:
            chunk = self._combined(chunk, attempt, planned_at)
        if kind is GroupingKind.ALL:
            return [(task, chunk) for task in range(self._tasks)]
        if kind is GroupingKind.DIRECT:
            return []
        if kind is GroupingKind.CUSTOM:
            handed = zip(chunk.rows(attempt), chunk.handed_rows(attempt), strict=True)
            return self._dealt(chunk, ((row, task) for row, values in handed for task in self._choose_some(values)))
        if self._tasks == 1 or kind is GroupingKind.GLOBAL:
            return [(0, chunk)]
        if kind in EVEN:
            return self._route_evenly(chunk, attempt)
        if kind is GroupingKind.PARTIAL_KEY:
            rows = chunk.rows(attempt)
            keys = (tuple([row[position] for position in self._positions]) for row in rows)
            return self._dealt(chunk, zip(rows, map(self._choose_for_key, keys), strict=True))
        if not self._positions:
            return [(task_by_key(self._tasks)[attempt.txid], chunk)]
        if chunk.is_columnar:
            return self._route_columns(chunk)
        tasks = tasks_of_keys(self._keys(chunk), self._tasks)
        return self._dealt(chunk, zip(chunk.rows(attempt), tasks, strict=True))

    def _combined(self, chunk: Chunk, attempt: TransactionAttempt, planned_at: dt.datetime) -> Chunk:
        target = self._plan.by_id[self.edge.target]
        with user_code(target.id, attempt):
            if self._combiner is None:
                self._combiner = _first_combiner(target, self.edge, chunk, planned_at)
            combined = None if self._combiner is None else self._combiner.combine(chunk.batch(), planned_at)
        # Rows that hardly become fewer would cost the same again with each chunk.
        if combined is None or combined.num_rows * 2 > len(chunk):
            self._may_combine = False
            return chunk
        return Chunk(chunk.source, batch=combined, is_combined=True)

    def check_task(self, task: int) -> None:
        """Raise a TopologyError if the target has no such task, which ``emit_direct`` named."""
        check_task(task, range(self._tasks), self.edge, "emit_direct")

    def _route_evenly(self, chunk: Chunk, attempt: TransactionAttempt) -> Routed:
        if self._keeps_task:
            return [(self._source_task, chunk)]
        first, self._next = self._next % self._tasks, self._next + len(chunk)
        if chunk.is_columnar:
            bounds = np.linspace(0, len(chunk), self._tasks + 1).astype(int)
            batch = chunk.batch()
            return [
                ((first + i) % self._tasks, chunk.part_of_batch(batch.slice(start, end - start)))
                for i, (start, end) in enumerate(itertools.pairwise(bounds))
                if end > start
            ]
        rows = chunk.rows(attempt)
        return [
            ((first + i) % self._tasks, chunk.part(rows[i :: self._tasks])) for i in range(min(self._tasks, len(rows)))
        ]

    def _route_columns(self, chunk: Chunk) -> Routed:
        batch = chunk.batch()
        names = chunk.source.fields.names
        keys = (names[position] if chunk.is_combined else position - 1 for position in self._positions)
        tasks = tasks_of_columns([batch.column(key) for key in keys], self._tasks)
        small = tasks.astype(np.min_scalar_type(self._tasks))  # sorts several times as fast
        order = np.argsort(small, kind="stable")
        ends = np.cumsum(np.bincount(small, minlength=self._tasks))
        return [
            (task, chunk.part_of_batch(batch.take(order[start:end])))
            for task, (start, end) in enumerate(itertools.pairwise([0, *ends.tolist()]))
            if end > start
        ]

    def _dealt(self, chunk: Chunk, dealt: Iterable[tuple[Row, int]]) -> Routed:
        """Return a chunk in parts, given (row, task) pairs; a row with several tasks comes once for each."""
        shares: list[list[Row]] = [[] for _ in range(self._tasks)]
        take = [share.append for share in shares]
        for row, task in dealt:
            take[task](row)
        return [(task, chunk.part(share)) for task, share in enumerate(shares) if share]

    def _keys(self, chunk: Chunk) -> Sequence[Any]:
        """Return each tuple's key: the value of one key field, or a tuple of the values of several."""
        columns = chunk.columns()
        keys = [columns[position - 1] for position in self._positions]
        return keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))


def _combiner_of(target: PlannedComponent, edge: Edge, fields: Fields) -> Combiner | None:
    """Return a bolt's combiner for a stream with these fields; None if it has none, or if the grouping rules it out."""
    bolt = target.component
    combiner = bolt.combiner_of(edge.source) if isinstance(bolt, BatchBolt) and takes_batches(type(bolt)) else None
    if combiner is None or not {*combiner.key, *combiner.fields} <= set(fields.names[1:]):
        return None
    grouped_by = set(edge.grouping.fields or ()) - {fields.names[0]}
    return combiner if grouped_by <= set(combiner.key) else None


def _first_combiner(target: PlannedComponent, edge: Edge, first: Chunk, planned_at: dt.datetime) -> Combiner | None:
    """Return a bolt's combiner; None if none suits the stream, or if the first rows would hardly become fewer."""
    combiner = _combiner_of(target, edge, first.source.fields)
    return combiner if combiner is not None and _may_halve(combiner, first.batch(), planned_at) else None


def _may_halve(combiner: Combiner, batch: pa.RecordBatch, planned_at: dt.datetime) -> bool:
    """Return whether combining may leave half of the rows, as far as a sample of them can say; few are just tried."""
    if batch.num_rows < 2 * SAMPLE_ROWS:
        return True
    sample = combiner.combine(batch.slice(0, SAMPLE_ROWS), planned_at)
    # Of K equally frequent keys, K (1 - e^(-n/K)) come among n rows; these are half as many as the rows if n/K = 1.594.
    per_key = 1.594 * SAMPLE_ROWS / batch.num_rows
    return sample is not None and sample.num_rows <= SAMPLE_ROWS * -math.expm1(-per_key) / per_key
