"""Spilled segments wait in files instead of in memory, first in, first out."""

from __future__ import annotations

import tempfile
from collections import deque
from typing import IO

import attrs


@attrs.define(eq=False)
class _Part:
    file: IO[bytes]
    lengths: deque[int] = attrs.field(factory=deque)
    start: int = 0
    """Where the oldest segment begins."""
    end: int = 0


class SpillFile:
    """A queue of segments on disk, made by the first ``put``; what was taken frees its space, a file at a time.

    The files have no names, so a process that is killed leaves nothing.

    Args:
        part_bytes: a file takes segments until it has so many bytes, or an eighth of all that wait: so there are never
            many files.
    """

    def __init__(self, part_bytes: int = 64 << 20) -> None:
        self._part_bytes = part_bytes
        self._parts: deque[_Part] = deque()
        self._count = 0
        self.bytes = 0
        """Bytes that wait in files."""

    def __len__(self) -> int:
        """Return how many segments wait."""
        return self._count

    @property
    def disk_bytes(self) -> int:
        """How much the files take on the disk, segments that were taken included."""
        return sum(part.end for part in self._parts)

    def put(self, segment: bytes) -> None:
        """Write a segment behind the others."""
        if not self._parts or self._parts[-1].end >= max(self._part_bytes, self.bytes // 8):
            self._parts.append(_Part(tempfile.TemporaryFile(prefix="txtopo-spill-")))  # noqa: SIM115 - close() does
        part = self._parts[-1]
        part.file.seek(part.end)
        part.file.write(segment)
        part.lengths.append(len(segment))
        part.end += len(segment)
        self._count += 1
        self.bytes += len(segment)

    def take(self) -> bytes:
        """Remove and return the oldest segment; raise IndexError if there is none."""
        if not self._count:
            raise IndexError("no segment waits")
        part = self._parts[0]
        length = part.lengths.popleft()
        part.file.seek(part.start)
        segment = part.file.read(length)
        part.start += length
        self._count -= 1
        self.bytes -= length
        if not part.lengths and len(self._parts) > 1:
            self._parts.popleft().file.close()
        elif not part.lengths:  # the last one is used again: a queue may be empty again and again
            part.file.truncate(0)
            part.start = part.end = 0
        return segment

    def close(self) -> None:
        """Remove the files and all segments."""
        for part in self._parts:
            part.file.close()
        self._parts.clear()
        self._count = self.bytes = 0
