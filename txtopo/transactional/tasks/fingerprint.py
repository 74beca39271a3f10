"""Fingerprints: the number of tuples that a component emitted for an attempt, and an order-dependent checksum.

The journal keeps them for each transaction, so that a replay can find the first component, perhaps the spout, that
emits different tuples. A checksum covers values, never attempts or partitions; it is None if the encoding of the values
depends on the process. Fingerprints also carry the input that a spout skipped, which is not compared.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import pyarrow as pa

from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.columnar.chunks import Chunk
from txtopo.columnar.hashing import mix

_MASK = (1 << 64) - 1

_COPIED_BYTES_MAX = 1 << 22
"""To copy more takes longer than all else: the system has to clear fresh memory for it. To copy takes a fifth of the
time of a stream for 100 rows."""

SkippedInput = tuple[str, Any, Any]
"""(partition, start, end) of input that a spout did not emit because it was gone."""


@attrs.frozen
class Fingerprint:
    """The fingerprint of the tuples that one component, or one of its tasks, emitted."""

    tuples: int = 0
    checksum: int | None = 0
    skipped: tuple[SkippedInput, ...] = attrs.field(default=(), eq=False)
    """The input that a spout has skipped."""
    streams: Mapping[str, int] = attrs.field(factory=dict, eq=False)
    """Of the tuples, those on each stream but the default one; not in the journal."""

    def joined(self, other: Fingerprint) -> Fingerprint:
        """Return the combined fingerprint of two tasks or two streams."""
        checksum = None
        # A sum, because the reports of partitions come in any order.
        if self.checksum is not None and other.checksum is not None:
            checksum = (self.checksum + other.checksum) & _MASK
        streams = dict(Counter(self.streams) + Counter(other.streams)) if other.streams else self.streams
        return Fingerprint(self.tuples + other.tuples, checksum, self.skipped + other.skipped, streams)


Fingerprints = Mapping[str, Fingerprint]
"""Fingerprints by component."""


class Tracer:
    """Computes the fingerprints of the tasks of one attempt in one partition."""

    def __init__(self) -> None:
        self._tuples: dict[tuple[str, str, int], int] = {}
        self._checksums: dict[tuple[str, str, int], int | None] = {}
        self._skipped: dict[str, tuple[SkippedInput, ...]] = {}

    def trace(self, component: str, task: int, chunk: Chunk) -> None:
        """Add the next chunk that a task emits on a stream."""
        origin = (component, chunk.source.stream, task)
        self._tuples[origin] = self._tuples.get(origin, 0) + len(chunk)
        before = self._checksums.get(origin, 0)
        self._checksums[origin] = None if before is None else _checksum(chunk, before)

    def skip(self, component: str, skipped: tuple[SkippedInput, ...]) -> None:
        """Add input that a task of a spout has skipped."""
        self._skipped[component] = self._skipped.get(component, ()) + skipped

    def fingerprints(self) -> dict[str, Fingerprint]:
        """Return the fingerprints so far, by component."""
        by_component: dict[str, Fingerprint] = {}
        for (component, stream, task), tuples in self._tuples.items():
            checksum = self._checksums[component, stream, task]
            # Stream and task are mixed in, so that tuples that move between them change the sum.
            if checksum is not None:
                checksum = mix(mix(zlib.crc32(stream.encode()) ^ (task << 32)) ^ checksum)
            streams = {} if stream == DEFAULT_STREAM else {stream: tuples}
            fingerprint, before = Fingerprint(tuples, checksum, streams=streams), by_component.get(component)
            by_component[component] = fingerprint if before is None else before.joined(fingerprint)
        for component, skipped in self._skipped.items():
            by_component[component] = by_component.get(component, Fingerprint()).joined(Fingerprint(0, 0, skipped))
        return by_component


def joined(parts: Iterable[Fingerprints]) -> dict[str, Fingerprint]:
    """Return the combined fingerprints of all partitions."""
    sums: dict[str, Fingerprint] = {}
    for part in parts:
        for component, fingerprint in part.items():
            before = sums.get(component)
            sums[component] = fingerprint if before is None else before.joined(fingerprint)
    return sums


def _checksum(chunk: Chunk, before: int) -> int | None:
    if chunk.is_columnar:
        return _checksum_of(chunk.batch(), before)
    checksum = before
    for position in range(len(chunk.columns())):
        column = chunk.column_as_bytes(position)
        if column is None:
            return None
        checksum = zlib.crc32(column.content, checksum)
    return checksum


def _checksum_of(batch: pa.RecordBatch, before: int) -> int:
    """Return the checksum of the bytes that ``serialize()`` makes of a batch's rows."""
    is_large = batch.get_total_buffer_size() > _COPIED_BYTES_MAX
    columns = [
        column if is_large and _is_whole(column) else pa.concat_arrays([column, column.slice(0, 0)])
        for column in batch.columns
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    if not is_large:
        return zlib.crc32(batch.serialize(), before)
    sink = _ChecksumSink(before, len(batch.schema.serialize()))
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), batch.schema) as stream:
        stream.write_batch(batch)
        return sink.checksum


def _is_whole(column: pa.Array) -> bool:
    """Whether a column's buffers end with its last row.

    Where Arrow fills a slice of a buffer up to a multiple of 8 bytes, it takes the rows beside it, so that is copied.
    """
    kind = column.type
    if column.offset or column.null_count or pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        return False
    last_offset = 4 if pa.types.is_string(kind) or pa.types.is_binary(kind) else 0
    return bool(column.nbytes + last_offset == column.get_total_buffer_size())


class _ChecksumSink:
    """A file that keeps of what is written to it, after the first bytes, the checksum."""

    closed = False

    def __init__(self, checksum: int, skipped: int) -> None:
        self.checksum = checksum
        self._skipped = skipped

    def write(self, content: Any) -> None:
        """Take the next bytes, of which none are partly skipped."""
        if self._skipped > 0:
            self._skipped -= len(content)
        else:
            self.checksum = zlib.crc32(content, self.checksum)

    def flush(self) -> None:
        """Do nothing: nothing waits."""

    def close(self) -> None:
        """Close the file."""
        self.closed = True
