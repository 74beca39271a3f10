"""The queue of a bolt's task: tuples wait in memory as columns, and beyond a limit in a file.

A tuple becomes an object when it is executed, or when ``execute_batch`` looks at it. So what waits is no work for the
garbage collector.

Bolts never wait for each other: two workers, of one thread each, could otherwise do so forever. Only spouts pause when
too much waits. But tuples of earlier roots may still multiply on their way down, so a queue must hold more than fits
into memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import attrs

from txtopo.api.data.tuples import TupleSource
from txtopo.files.spill import SpillFile
from txtopo.plain.frames import Columns, Frame, decode, encode
from txtopo.plain.tasks.weighing import tuples_bytes

SEGMENT_TUPLES = 2_000
"""The most tuples of one segment of the file."""

SEGMENT_BYTES = 1 << 22
"""About the most bytes of a segment, unless a single tuple takes more."""


@attrs.frozen
class _Weighed:
    columns: Columns
    bytes: float


class TaskQueue:
    """The tuples that wait for a task: the oldest in memory, then those in the file, then the newest, in memory."""

    def __init__(self, sources: Sequence[TupleSource]) -> None:
        self._sources = sources
        self._file = SpillFile()
        self._oldest: deque[_Weighed] = deque()
        self._newest: deque[_Weighed] = deque()
        self._bytes = 0.0
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._count or self._file)

    def __len__(self) -> int:
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
            self._oldest.extend(map(self._weighed, decode(self._file.take(), self._sources).tuples))
        oldest = self._oldest or self._newest
        batches: list[Columns] = []
        while oldest and most > 0:
            each = oldest.popleft()
            count = len(each.columns.values)
            self._count -= count
            self._bytes -= each.bytes
            if count > most:
                oldest.appendleft(self._weighed(each.columns.part(most)))
                batches.append(each.columns.part(0, most))
            else:
                batches.append(each.columns)
            most -= count
        if not self._count:
            self._bytes = 0.0  # sums of floats don't end at 0
        return batches

    def give_back(self, batches: Sequence[Columns], done_count: int) -> None:
        """Put what was taken last back in front, without the first ``done_count`` tuples."""
        unfinished = []
        for columns in batches:
            count = len(columns.values)
            if count > done_count:
                unfinished.append(self._weighed(columns.part(done_count) if done_count else columns))
            done_count = max(0, done_count - count)
        self._oldest.extendleft(reversed(unfinished))

    def spill(self) -> None:
        """Write the newest tuples to the file."""
        if not self._newest:
            return
        count = sum(len(each.columns.values) for each in self._newest)
        weight = sum(each.bytes for each in self._newest)
        together = max(1, min(SEGMENT_TUPLES, int(SEGMENT_BYTES * count / weight)))
        segment, tuples_left = Frame(), together
        for each in self._newest:
            each.columns.fill()
            start = 0
            while start < len(each.columns.values):
                part = each.columns.part(start, start + tuples_left)
                segment.tuples.append(part)
                start, tuples_left = start + tuples_left, tuples_left - len(part.values)
                if not tuples_left:
                    self._file.put(encode(segment, self._sources))
                    segment, tuples_left = Frame(), together
        if segment.tuples:
            self._file.put(encode(segment, self._sources))
        self._newest.clear()
        self._count -= count
        self._bytes = max(0.0, self._bytes - weight)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _weighed(self, columns: Columns) -> _Weighed:
        weighed = _Weighed(columns, tuples_bytes(columns.values))
        self._count += len(columns.values)
        self._bytes += weighed.bytes
        return weighed
