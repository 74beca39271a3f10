"""The queue of a bolt's task: tuples wait in memory, and beyond a limit in a file.

Bolts never wait for each other: two workers, of one thread each, could otherwise do so forever. Only spouts pause when
too much waits. But tuples of earlier roots may still multiply on their way down, so a queue must hold more than fits
into memory.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from txtopo.api.tuples import TupleSource
from txtopo.errors import UserCodeError
from txtopo.files.spill import SpillFile
from txtopo.plain.tasks.weighing import mean_bytes, stride
from txtopo.plain.transport import unpickling
from txtopo.plain.transport.frames import Columns
from txtopo.plain.trees.tuples import Edges, Roots, TreeTuple

SEGMENT_TUPLES = 2_000
"""The most tuples of one segment of the file."""

SEGMENT_BYTES = 1 << 22
"""About the most bytes of a segment, unless a single tuple takes more."""


Row = tuple[Sequence[Any], int, Roots, Edges]
"""A tuple in the file: its values, the number of its source, its roots and its edges."""


class WaitingTuples(ABC):
    """The tuples that wait for a task, in their order: in memory, and beyond a limit in a file.

    The file has a source's number instead of the source.
    """

    def __init__(self, sources: Sequence[TupleSource]) -> None:
        self._sources = sources
        self._file = SpillFile()

    @abstractmethod
    def put(self, columns: Columns) -> None:
        """Add tuples at the end."""

    @abstractmethod
    def __bool__(self) -> bool: ...

    @abstractmethod
    def __len__(self) -> int:
        """Return how many tuples are in memory."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Return about how many bytes the tuples in memory take; only those that are new since the last call cost."""

    @abstractmethod
    def spill(self) -> None:
        """Write the newest tuples to the file."""

    @property
    def file_bytes(self) -> int:
        """Bytes that wait in the file."""
        return self._file.bytes

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

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
            error = unpickling.blamed(segment, _rows_of, self._sources)
            if error is None:
                raise
            raise error from None
        return rows


class TaskQueue(WaitingTuples):
    """Tuples in their order: the oldest in memory, then those in the file, then the newest, in memory again.

    ``numbers`` has the number of a source by its ``id()``.
    """

    def __init__(self, sources: Sequence[TupleSource], numbers: Mapping[int, int]) -> None:
        super().__init__(sources)
        self.newest: list[TreeTuple] = []
        """Senders append to this list, which is always the same object."""
        self._oldest: list[TreeTuple] = []
        self._weighed = 0
        """How many tuples in memory were weighed: all but the youngest ones of ``newest``."""
        self._weight = 0.0
        """About how many bytes they take."""
        self._numbers = numbers

    def __bool__(self) -> bool:
        return bool(self.newest or self._oldest or self._file)

    def put(self, columns: Columns) -> None:
        """Add tuples at the end."""
        source = repeat(self._sources[columns.source])
        self.newest.extend(map(TreeTuple, columns.values, source, columns.roots, columns.edges))

    def __len__(self) -> int:
        """Return how many tuples are in memory."""
        return len(self.newest) + len(self._oldest)

    def memory_bytes(self) -> int:
        """Return about how many bytes the tuples in memory take; only those that are new since the last call cost."""
        self._weigh(self.newest, len(self.newest) + len(self._oldest) - self._weighed)
        return int(self._weight)

    def take(self, most: int) -> list[TreeTuple]:
        """Remove and return the oldest tuples, at least one if there are any."""
        if not self._oldest and self._file:
            rows = self._read()
            self._oldest = [
                TreeTuple(values, self._sources[number], roots, edges) for values, number, roots, edges in rows
            ]
            self._weigh(self._oldest, len(self._oldest))
        oldest = self._oldest or self.newest
        if len(oldest) <= most:
            taken = oldest[:]
            oldest.clear()
        else:
            taken = oldest[:most]
            del oldest[:most]
        self._forget(len(taken))
        return taken

    def give_back(self, tuples: list[TreeTuple]) -> None:
        """Put the tuples that were taken last back in front."""
        self._weigh(tuples, len(tuples))
        self._oldest[:0] = tuples

    def spill(self) -> None:
        """Write the newest tuples to the file."""
        if not self.newest:
            return
        each_bytes = self.memory_bytes() / len(self)
        together = max(1, min(SEGMENT_TUPLES, int(SEGMENT_BYTES / each_bytes)))
        for start in range(0, len(self.newest), together):
            some = self.newest[start : start + together]
            self._write([(each.values, self._numbers[id(each.source)], each.roots, each.edges) for each in some])
        self._forget(len(self.newest))
        self.newest.clear()

    def _weigh(self, tuples: list[TreeTuple], count: int) -> None:
        """Add the last ``count`` of these tuples to the weight."""
        if count:
            self._weight += count * mean_bytes([each.values for each in tuples[-count :: stride(count)]])
            self._weighed += count

    def _forget(self, count: int) -> None:
        """Subtract the mean weight of ``count`` tuples."""
        left = max(0, self._weighed - count)
        self._weight = self._weight * left / self._weighed if left else 0.0
        self._weighed = left


def _rows_of(rows: Any) -> unpickling.Rows:
    return ((number, [values]) for values, number, _roots, _edges in rows)
