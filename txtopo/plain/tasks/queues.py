"""The queue of a bolt's task: tuples wait in memory, and beyond a limit in a file.

Bolts never wait for each other: two workers, of one thread each, could otherwise do so for ever. Only spouts pause when
too much waits. But tuples of earlier roots may still multiply on their way down, so a queue must hold more than fits
into memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from txtopo.api.tuples import TupleSource
from txtopo.errors import UserCodeError
from txtopo.plain.tasks.weighing import mean_bytes, stride
from txtopo.plain.transport import unpickling
from txtopo.plain.trees.tuples import TreeTuple
from txtopo.spill import SpillFile

SEGMENT_TUPLES = 2_000
"""The most tuples of one segment of the file."""

SEGMENT_BYTES = 1 << 22
"""About the most bytes of a segment, unless a single tuple takes more."""


class TaskQueue:
    """Tuples in their order: the oldest in memory, then those in the file, then the newest, in memory again.

    The file has a source's number instead of the source; ``numbers`` has it by the source's ``id()``.
    """

    def __init__(self, sources: Sequence[TupleSource], numbers: Mapping[int, int]) -> None:
        self.newest: list[TreeTuple] = []
        """Senders append to this list, which is always the same object."""
        self._oldest: list[TreeTuple] = []
        self._weighed = 0
        """How many tuples in memory were weighed: all but the youngest ones of ``newest``."""
        self._weight = 0.0
        """About how many bytes they take."""
        self._sources = sources
        self._numbers = numbers
        self._file = SpillFile()

    def __bool__(self) -> bool:
        return bool(self.newest or self._oldest or self._file)

    @property
    def file_bytes(self) -> int:
        """Bytes that wait in the file."""
        return self._file.bytes

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
            self._oldest = self._read()
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
            self._write(self.newest[start : start + together])
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

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _write(self, tuples: Sequence[TreeTuple]) -> None:
        rows = [(each.values, self._numbers[id(each.source)], each.roots, each.edges) for each in tuples]
        try:
            segment = pickle.dumps(rows, 5)
        except Exception as error:  # noqa: BLE001 - a user's value may raise anything while it is pickled
            raise self._blamed(tuples, error) from None
        self._file.put(segment)

    @staticmethod
    def _blamed(tuples: Sequence[TreeTuple], error: Exception) -> Exception:
        """Return an error that names who emitted a tuple that does not pickle; ``error`` if each does alone."""
        for each in tuples:
            try:
                pickle.dumps(each.values, 5)
            except Exception as alone:  # noqa: BLE001 - as above
                return UserCodeError(
                    f"task {each.source.task} emitted a value on stream {each.source.stream!r} that does not pickle "
                    f"({alone}); tuples that wait go to files when there are many: emit plain values",
                    component=each.source.component,
                )
        return error

    def _read(self) -> list[TreeTuple]:
        segment = self._file.take()
        try:
            rows = pickle.loads(segment)  # noqa: S301 - written by _write
        except Exception:  # whatever a user's value raises while it is unpickled
            error = unpickling.blamed(segment, _rows_of, self._sources)
            if error is None:
                raise
            raise error from None
        return [TreeTuple(values, self._sources[number], roots, edges) for values, number, roots, edges in rows]


def _rows_of(rows: Any) -> unpickling.Rows:
    return ((number, [values]) for values, number, _roots, _edges in rows)
