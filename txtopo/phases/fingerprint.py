"""Fingerprints: how many tuples a component emitted for an attempt, and a checksum of them in their order.

They go into the journal with each transaction, so that a replay can tell whether the source, or which
component first, has emitted something else. A checksum is of values, never of attempts or places; it is None
where the values have no bytes that every process agrees on.
"""

from __future__ import annotations

import marshal
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from txtopo.phases.chunks import Chunk
from txtopo.phases.hashing import mix

_MARSHAL_VERSION = 2
"""The last one without references, whose bytes depend on which equal objects are one."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")
_MASK = (1 << 64) - 1


@attrs.frozen
class Fingerprint:
    """What one component, or one of its tasks, emitted."""

    tuples: int = 0
    checksum: int | None = 0

    def joined(self, other: Fingerprint) -> Fingerprint:
        """Return the fingerprint of two tasks, or two streams, together."""
        checksum = None
        if self.checksum is not None and other.checksum is not None:
            checksum = (self.checksum + other.checksum) & _MASK
        return Fingerprint(self.tuples + other.tuples, checksum)


Fingerprints = Mapping[str, Fingerprint]
"""What was emitted, by component."""


class Tracer:
    """Takes the fingerprints of what the tasks of one attempt emit in one place."""

    def __init__(self) -> None:
        self._tuples: dict[tuple[str, str, int], int] = {}
        self._checksums: dict[tuple[str, str, int], int | None] = {}

    def trace(self, component: str, task: int, chunk: Chunk) -> None:
        """Take in the next chunk that a task emits on a stream."""
        origin = (component, chunk.source.stream, task)
        self._tuples[origin] = self._tuples.get(origin, 0) + len(chunk)
        before = self._checksums.get(origin, 0)
        self._checksums[origin] = None if before is None else _checksum(chunk, before)

    def fingerprints(self) -> dict[str, Fingerprint]:
        """Return what was traced, by component."""
        parts = []
        for (component, stream, task), tuples in self._tuples.items():
            checksum = self._checksums[component, stream, task]
            if checksum is not None:
                checksum = mix(mix(zlib.crc32(stream.encode()) ^ (task << 32)) ^ checksum)
            parts.append({component: Fingerprint(tuples, checksum)})
        return joined(parts)


def joined(parts: Iterable[Fingerprints]) -> dict[str, Fingerprint]:
    """Return the fingerprints of all places together."""
    sums: dict[str, Fingerprint] = {}
    for part in parts:
        for component, fingerprint in part.items():
            sums[component] = sums.get(component, Fingerprint()).joined(fingerprint)
    return sums


def _checksum(chunk: Chunk, before: int) -> int | None:
    if chunk.is_columnar:
        return zlib.crc32(chunk.batch().serialize(), before)
    checksum = before
    for column in chunk.columns():
        content = _content(column)
        if content is None:
            return None
        checksum = zlib.crc32(content, checksum)
    return checksum


def _content(column: list[Any]) -> bytes | None:
    """Return bytes that differ where values do; None if not every process agrees on them."""
    if type(column[0]) is str:  # most fields are texts: joining them takes a fifth of the time
        try:
            texts = "\0".join(column) + "\0"
        except TypeError:
            pass
        else:
            if texts.count("\0") == len(column):
                return texts.encode("utf-8", "surrogatepass")
    try:
        return marshal.dumps(column, _MARSHAL_VERSION)
    except ValueError:  # dates, decimals, the user's own classes
        shown = repr(column)
        return None if _ADDRESS.search(shown) else shown.encode("utf-8", "surrogatepass")
