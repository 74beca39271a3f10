"""The queue of a bolt's task: tuples that wait in memory, and beyond a limit in a file.

Bolts never wait for each other: two workers of one thread each would wait for ever. Only spouts pause when too much
waits. But what is under way already may still multiply on its way down, so a queue must be able to hold more than
memory should.
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
"""Tuples that are written, and read again, together, at most."""

SEGMENT_BYTES = 1 << 22
"""About how many bytes they take together at most, if they are several."""


class TaskQueue:
    """Tuples in the order in which they came: first those in memory, then those in the file, then what came since.

    Args:
        sources: where tuples may come from.
        numbers: the number of each of these, by its identity.
    """

    def __init__(self, sources: Sequence[TupleSource], numbers: Mapping[int, int]) -> None:
        self.newest: list[TreeTuple] = []
        """Who sends to the task appends to this list: it is always the same object."""
        self._oldest: list[TreeTuple] = []
        self._weighed = 0
        """Tuples in memory that were weighed: all but the last ones of ``newest``."""
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
        """Return about how many bytes the tuples in memory take; those that have come since are weighed."""
        self._weigh(self.newest, len(self.newest) + len(self._oldest) - self._weighed)
        return int(self._weight)

    def take(self, most: int) -> list[TreeTuple]:
        """Remove the oldest tuples and return them, at least one if there are any."""
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
        """Put tuples that were taken last in front again."""
        self._weigh(tuples, len(tuples))
        self._oldest[:0] = tuples

    def spill(self) -> None:
        """Write what came last to the file, so that it takes no memory until its turn comes."""
        if not self.newest:
            return
        each_bytes = self.memory_bytes() / len(self)
        together = max(1, min(SEGMENT_TUPLES, int(SEGMENT_BYTES / each_bytes)))
        for start in range(0, len(self.newest), together):
            self._write(self.newest[start : start + together])
        self._forget(len(self.newest))
        self.newest.clear()

    def _weigh(self, tuples: list[TreeTuple], count: int) -> None:
        """Add so many of some tuples, those that are last, to the weight."""
        if count:
            self._weight += count * mean_bytes([each.values for each in tuples[-count :: stride(count)]])
            self._weighed += count

    def _forget(self, count: int) -> None:
        """Take so many tuples off the weight; which ones weigh how much is not known."""
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
        except Exception as error:  # noqa: BLE001 - whatever a user's value raises while it is pickled
            raise self._blamed(tuples, error) from None
        self._file.put(segment)

    @staticmethod
    def _blamed(tuples: Sequence[TreeTuple], error: Exception) -> Exception:
        """Return the error of the component whose tuple can't be written; the given one if each can be, alone."""
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
