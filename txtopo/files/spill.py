"""Spilled segments wait in a file instead of in memory, first in, first out."""

from __future__ import annotations

import tempfile
from collections import deque
from typing import IO


class SpillFile:
    """A file of segments, made by the first ``put``. It has no name, so a process that is killed leaves nothing."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._lengths: deque[int] = deque()
        self._start = 0
        """Where the oldest segment begins."""
        self.bytes = 0
        """Bytes that wait in the file."""

    def __len__(self) -> int:
        """Return how many segments wait."""
        return len(self._lengths)

    def put(self, segment: bytes) -> None:
        """Write a segment behind the others."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="txtopo-spill-")  # noqa: SIM115 - close() does
        self._file.seek(self._start + self.bytes)
        self._file.write(segment)
        self._lengths.append(len(segment))
        self.bytes += len(segment)

    def take(self) -> bytes:
        """Remove and return the oldest segment; raise IndexError if there is none."""
        length = self._lengths.popleft()
        assert self._file is not None, "there was a segment"
        self._file.seek(self._start)
        segment = self._file.read(length)
        self._start += length
        self.bytes -= length
        if not self._lengths:  # the disk space of segments that were taken is only freed here
            self._file.truncate(0)
            self._start = 0
        return segment

    def close(self) -> None:
        """Remove the file and all segments."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lengths.clear()
        self._start = self.bytes = 0
