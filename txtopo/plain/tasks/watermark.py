"""The watermark of a worker: how many bytes of tuples may wait in its memory."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from txtopo.plain.tasks.outbox import Outbox
from txtopo.plain.tasks.queues import TaskQueue

SPILL_FACTOR = 2
"""Queues go to files at this many watermarks. Spouts pause at one; what comes on top descends from earlier roots."""


@attrs.frozen
class Watermark:
    """Weighs what waits in the queues of a worker's tasks, and in its outbox."""

    queues: Mapping[int, TaskQueue]
    outbox: Outbox
    bytes: int

    def is_full(self) -> bool:
        """Return whether more than the watermark waits, including what this pass has emitted."""
        return self.outbox.memory_bytes() + self.queued_bytes() > self.bytes

    def queued_bytes(self) -> int:
        """Return about how many bytes the queued tuples take, in memory and in files."""
        return sum(queue.memory_bytes() + queue.file_bytes for queue in self.queues.values())

    def spill(self) -> None:
        """Write queues to files, those with the most bytes first, until the others fit into memory."""
        taken = {queue: queue.memory_bytes() for queue in self.queues.values()}
        left, most = sum(taken.values()), SPILL_FACTOR * self.bytes
        while left > most and taken:
            longest = max(taken, key=taken.__getitem__)
            left -= taken.pop(longest)
            longest.spill()
            left += longest.memory_bytes()
