"""The queue of a bolt's task: tuples wait in memory as columns, and beyond a limit in a file.

A tuple becomes an object when it is executed, or when ``execute_batch`` looks at it. So what waits is no work for the
garbage collector.

Bolts never wait for each other: two workers, of one thread each, could otherwise do so forever. Only spouts pause when
too much waits. But tuples of earlier roots may still multiply on their way down, so a queue must hold more than fits
into memory.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

import attrs

from txtopo.api.tuples import TupleSource
from txtopo.errors import UserCodeError
from txtopo.files.spill import SpillFile
from txtopo.plain.tasks.weighing import tuples_bytes
from txtopo.plain.transport import unpickling
from txtopo.plain.transport.frames import Columns
from txtopo.plain.trees.tuples import Edges, Roots

SEGMENT_TUPLES = 2_000
"""The most tuples of one segment of the file."""

SEGMENT_BYTES = 1 << 22
"""About the most bytes of a segment, unless a single tuple takes more."""


Row = tuple[Sequence[Any], int, Roots, Edges]
"""A tuple in the file: its values, the number of its source, its roots and its edges."""


@attrs.frozen
class _Weighed:
    """Columns that wait, and about how many bytes they take."""

    columns: Columns
    bytes: float


class TaskQueue:
    """The tuples that wait for ``task``: the oldest in memory, then those in the file, then the newest, in memory."""

    def __init__(self, sources: Sequence[TupleSource], task: int) -> None:
        self._sources = sources
        self._task = task
        self._file = SpillFile()
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

    @property
    def file_bytes(self) -> int:
        """Bytes that wait in the file."""
        return self._file.bytes

    def put(self, columns: Columns) -> None:
        """Add tuples at the end."""
        self._newest.append(self._weighed(columns))

    def take(self, most: int) -> list[Columns]:
        """Remove and return the oldest tuples: up to ``most``, and at least one if there are any."""
        if not self._oldest and self._file:
            self._oldest.extend(map(self._weighed, self._columns_of(self._read())))
        oldest = self._oldest or self._newest
        taken: list[Columns] = []
        while oldest and most > 0:
            each = oldest.popleft()
            count = len(each.columns.values)
            self._count -= count
            self._bytes -= each.bytes
            if count > most:
                oldest.appendleft(self._weighed(each.columns.part(most)))
                taken.append(each.columns.part(0, most))
            else:
                taken.append(each.columns)
            most -= count
        if not self._count:
            self._bytes = 0.0  # sums of floats don't end at 0
        return taken

    def give_back(self, taken: Sequence[Columns], done: int) -> None:
        """Put what was taken last back in front, without the first ``done`` tuples."""
        left = []
        for columns in taken:
            count = len(columns.values)
            if count > done:
                left.append(self._weighed(columns.part(done) if done else columns))
            done = max(0, done - count)
        self._oldest.extendleft(reversed(left))

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

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _weighed(self, columns: Columns) -> _Weighed:
        """Count columns that are about to wait."""
        weighed = _Weighed(columns, tuples_bytes(columns.values))
        self._count += len(columns.values)
        self._bytes += weighed.bytes
        return weighed

    def _columns_of(self, rows: Iterable[Row]) -> Iterator[Columns]:
        for number, some in groupby(rows, key=itemgetter(1)):
            columns = Columns(number, self._task)
            for values, _, roots, edges in some:
                columns.add(tuple(values), roots, edges)
            yield columns

    def _write(self, rows: Sequence[Row]) -> None:
        try:
            segment = pickle.dumps(rows, 5)
        except Exception as error:  # noqa: BLE001 - a user's value may raise anything while it is pickled
            raise self._blamed(rows, error) from None
        self._file.put(segment)

    def _blamed(self, rows: Sequence[Row], error: Exception) -> Exception:
        """Return an error that names who emitted a tuple that does not pickle; ``error`` if each does alone."""
        for values, number, _roots, _edges in rows:
            try:
                pickle.dumps(values, 5)
            except Exception as alone:  # noqa: BLE001 - as above
                source = self._sources[number]
                return UserCodeError(
                    f"task {source.task} emitted a value on stream {source.stream!r} that does not pickle "
                    f"({alone}); tuples that wait go to files when there are many: emit plain values",
                    component=source.component,
                )
        return error

    def _read(self) -> list[Row]:
        """Remove and return the oldest segment of the file."""
        segment = self._file.take()
        try:
            rows: list[Row] = pickle.loads(segment)  # noqa: S301 - written by _write
        except Exception:  # whatever a user's value raises while it is unpickled
            error = unpickling.blamed(segment, _values_of, self._sources)
            if error is None:
                raise
            raise error from None
        return rows


def _rows_of(waiting: Iterable[Columns]) -> Iterator[Row]:
    for each in waiting:
        each.fill()
        yield from zip(each.values, repeat(each.source), each.roots, each.edges)


def _values_of(rows: Any) -> unpickling.Rows:
    return ((number, [values]) for values, number, _roots, _edges in rows)
