"""The queue of a bolt that takes many tuples at once: they wait as columns, so none of them is an object."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter

import attrs

from txtopo.api.tuples import TupleSource
from txtopo.plain.tasks.queues import SEGMENT_BYTES, SEGMENT_TUPLES, Row, WaitingTuples
from txtopo.plain.tasks.weighing import tuples_bytes
from txtopo.plain.transport.frames import Columns


@attrs.frozen
class _Weighed:
    """Columns that wait, and about how many bytes they take."""

    columns: Columns
    bytes: float


class ColumnQueue(WaitingTuples):
    """The tuples that wait for ``task``: the oldest in memory, then those in the file, then the newest, in memory."""

    def __init__(self, sources: Sequence[TupleSource], task: int) -> None:
        super().__init__(sources)
        self._task = task
        self._oldest: deque[_Weighed] = deque()
        self._newest: deque[_Weighed] = deque()
        self._bytes = 0.0
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._count or self._file)

    def __len__(self) -> int:
        """Return how many tuples are in memory."""
        return self._count

    def memory_bytes(self) -> int:
        """Return about how many bytes the tuples in memory take."""
        return int(self._bytes)

    def put(self, columns: Columns) -> None:
        """Add tuples at the end."""
        self._put(self._newest, columns)

    def take(self, most: int) -> list[Columns]:
        """Remove and return the oldest tuples: up to ``most``, or the oldest columns if these alone are more."""
        if not self._oldest and self._file:
            for columns in self._columns_of(self._read()):
                self._put(self._oldest, columns)
        oldest = self._oldest or self._newest
        taken: list[Columns] = []
        while oldest and (not taken or len(oldest[0].columns.values) <= most):
            each = oldest.popleft()
            most -= len(each.columns.values)
            taken.append(each.columns)
            self._bytes -= each.bytes
        self._count -= sum(len(each.values) for each in taken)
        if not self._count:
            self._bytes = 0.0  # sums of floats don't end at 0
        return taken

    def spill(self) -> None:
        """Write the newest tuples to the file."""
        if not self._newest:
            return
        count = sum(len(each.columns.values) for each in self._newest)
        weight = sum(each.bytes for each in self._newest)
        together = max(1, min(SEGMENT_TUPLES, int(SEGMENT_BYTES * count / weight)))
        rows: list[Row] = []
        for row in _rows_of(each.columns for each in self._newest):
            rows.append(row)
            if len(rows) == together:
                self._write(rows)
                rows = []
        if rows:
            self._write(rows)
        self._newest.clear()
        self._count -= count
        self._bytes = max(0.0, self._bytes - weight)

    def _put(self, waiting: deque[_Weighed], columns: Columns) -> None:
        self._count += len(columns.values)
        for part in _parts(columns):
            weight = tuples_bytes(part.values)
            waiting.append(_Weighed(part, weight))
            self._bytes += weight

    def _columns_of(self, rows: Iterable[Row]) -> Iterator[Columns]:
        for number, some in groupby(rows, key=itemgetter(1)):
            columns = Columns(number, self._task)
            for values, _, roots, edges in some:
                columns.values.append(tuple(values))
                columns.roots.append(roots)
                columns.edges.append(edges)
            yield columns


def _rows_of(waiting: Iterable[Columns]) -> Iterator[Row]:
    for each in waiting:
        yield from zip(each.values, repeat(each.source), each.roots, each.edges)


def _parts(columns: Columns) -> Iterator[Columns]:
    """Divide columns into parts that a task may take at once."""
    if len(columns.values) <= SEGMENT_TUPLES:
        yield columns
        return
    for start in range(0, len(columns.values), SEGMENT_TUPLES):
        part, end = Columns(columns.source, columns.task), start + SEGMENT_TUPLES
        part.values, part.roots = columns.values[start:end], columns.roots[start:end]
        part.edges = columns.edges[start:end]
        yield part
