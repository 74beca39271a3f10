"""The queue of a bolt's task: tuples that wait in memory, and beyond a limit in a file.

Bolts never wait for each other: two workers of one thread each would wait for ever. Only spouts pause when too much
waits. But what is under way already may still multiply on its way down, so a queue must be able to hold more than
memory should.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from sys import getsizeof

from txtopo.acking.trees.tuples import TreeTuple
from txtopo.api.tuples import TupleSource
from txtopo.spill import SpillFile

SEGMENT_TUPLES = 2_000
"""Tuples that are written, and read again, together."""

_WEIGHED_MIN = 100
"""Tuples in a queue from which on it is weighed."""

_TUPLE_BYTES = 250
"""What a tuple takes in memory besides its values, measured with one root."""


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
        """Return about how many bytes the tuples in memory take, judged by the last one."""
        if len(self) < _WEIGHED_MIN:
            return 0
        last = (self.newest or self._oldest)[-1]
        return len(self) * (_TUPLE_BYTES + sum(map(getsizeof, last.values)))

    def take(self, most: int) -> list[TreeTuple]:
        """Remove the oldest tuples and return them, at least one if there are any."""
        if not self._oldest and self._file:
            self._oldest = self._read()
        oldest = self._oldest or self.newest
        if len(oldest) <= most:
            taken = oldest[:]
            oldest.clear()
        else:
            taken = oldest[:most]
            del oldest[:most]
        return taken

    def spill(self) -> None:
        """Write what came last to the file, so that it takes no memory until its turn comes."""
        for start in range(0, len(self.newest), SEGMENT_TUPLES):
            self._write(self.newest[start : start + SEGMENT_TUPLES])
        self.newest.clear()

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _write(self, tuples: Sequence[TreeTuple]) -> None:
        rows = [(each.values, self._numbers[id(each.source)], each.roots, each.edges) for each in tuples]
        self._file.put(pickle.dumps(rows, 5))

    def _read(self) -> list[TreeTuple]:
        rows = pickle.loads(self._file.take())  # noqa: S301 - written by _write
        return [TreeTuple(values, self._sources[number], roots, edges) for values, number, roots, edges in rows]
