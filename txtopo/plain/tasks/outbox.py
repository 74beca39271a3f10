"""The outbox of a worker: the tuples, acks and failures of its tasks since the last flush."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

from txtopo.plain.frames import Columns, Frame
from txtopo.plain.tasks.queues import TaskQueue
from txtopo.plain.tasks.weighing import tuples_bytes
from txtopo.plain.trees.acker import ACKER_MASK, acker_of
from txtopo.topology.plans.groupings import divide


class ColumnsByTask(dict[int, Columns]):
    """The columns from one task and stream, ``source``, to each task; made at their first use."""

    def __init__(self, outbox: Outbox, source: int) -> None:
        super().__init__()
        self._outbox = outbox
        self._source = source
        self.local: list[Columns] = []
        """Those to tasks of this worker."""

    def sent(self) -> int:
        """Return how many tuples were put into the columns, as often as there are tasks that got them."""
        return sum(columns.taken + len(columns.values) for columns in self.values())

    def __missing__(self, task: int) -> Columns:
        columns = self[task] = Columns(self._source, task)
        columns.bit = self._outbox.bit_of.get(task, 0)
        self._outbox.columns.append(columns)
        if task in self._outbox.local:
            self.local.append(columns)
        return columns


class Outbox:
    """What waits to be sent, by kind. Collectors write to its parts directly: a call per tuple would double their cost.

    ``local`` are the queues of the tasks in this worker, ``acker_workers`` the worker of each acker, by its number.
    """

    def __init__(
        self, local: Mapping[int, TaskQueue], worker_of: Mapping[int, int], acker_workers: tuple[int, ...]
    ) -> None:
        self.local = local
        self.columns: list[Columns] = []
        """The columns of all tasks and streams, also empty ones."""
        self.acks: dict[int, int] = {}
        """By root, the XOR of the edge ids that bolts here acked and added."""
        self.masks: dict[int, int] = {}
        """By root of ``acks``, the bits of the workers that the added edges lead to; no entry means none."""
        self.failed: list[int] = []
        self.reset: list[int] = []
        self.bit_of: dict[int, int] = {}
        """By task of another worker, the bit of that worker's generation: see :meth:`set_bit`."""
        self._worker_of = worker_of
        self._acker_workers = acker_workers

    def set_bit(self, task: int, bit: int) -> None:
        """Let a task be of a generation with this bit from now on."""
        self.bit_of[task] = bit
        for columns in self.columns:
            if columns.task == task:
                columns.bit = bit

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for a flush."""
        return not (self.acks or self.failed or self.reset or any(c.values for c in self.columns))

    def memory_bytes(self) -> int:
        """Return about how many bytes the tuples take."""
        return int(sum(tuples_bytes(columns.values) for columns in self.columns))

    def drop(self, worker: int) -> None:
        """Drop the tuples for the tasks of a worker that has died.

        Acks and failures for it stay: their roots died with its spouts, and the successor's ackers drop them after
        some timeouts.
        """
        for columns in self.columns:
            if self._worker_of[columns.task] == worker:
                columns.take()

    def take_frames(self) -> dict[int, Frame]:
        """Remove and return everything: a frame for each worker, this one among them."""
        frames: dict[int, Frame] = {}
        for columns in self.columns:
            if columns.values:
                frame = frames.setdefault(self._worker_of[columns.task], Frame())
                frame.tuples.append(columns.take())
        if self.acks:
            self._take_acks(frames)
        for roots, name in ((self.failed, "failed"), (self.reset, "reset")):
            for root in roots:
                getattr(frames.setdefault(self._acker_workers[acker_of(root)], Frame()), name).append(root)
            roots.clear()
        return frames

    def _take_acks(self, frames: dict[int, Frame]) -> None:
        acks, masks, workers = self.acks, self.masks, self._acker_workers
        if len(set(workers)) == 1:
            frame = frames.setdefault(workers[0], Frame())
            frame.acks = (list(acks), list(acks.values()), list(map(masks.get, acks, repeat(0))))
        else:
            roots, values = list(acks), list(acks.values())
            for worker, pick in divide([workers[root & ACKER_MASK] for root in roots]).items():
                mine = pick(roots)
                frames.setdefault(worker, Frame()).acks = (mine, pick(values), list(map(masks.get, mine, repeat(0))))
        acks.clear()
        masks.clear()
