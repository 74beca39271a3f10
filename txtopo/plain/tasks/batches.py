"""Many tuples in one call: what a bolt with ``execute_batch`` emits and acks.

A tuple that is emitted alone costs a call, a choice of its task, and an edge id; and an object, if its bolt is in this
worker. Here, each of these is one pass over a column, in C where Python allows: the tasks of all rows first, then the
edge ids of all rows for a task, cut from one draw. All of this is for tuples with at most one root, of streams that
groupings choose tasks for, without hooks. Everything else goes tuple by tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, cast

from txtopo.api.components.collector import Anchor, anchor_of_each
from txtopo.api.data.tuples import DEFAULT_STREAM, Tuple
from txtopo.errors import AnchorError
from txtopo.plain.tasks.output import OutputStream, TaskOutput
from txtopo.plain.trees.acker import EDGE_BITS, RandomBits
from txtopo.plain.trees.tuples import TreeTuple, TreeTuples
from txtopo.topology.plans.groupings import Pick

_roots_of = attrgetter("roots")


class Batches:
    """Emits and acks many tuples for one task of a bolt; ``emit`` and ``ack`` are for one of them."""

    def __init__(self, output: TaskOutput, emit: Callable[..., list[int]], ack: Callable[[Tuple], None]) -> None:
        self._output = output
        self._emit_one = emit
        self._ack_one = ack
        self.acked = 0
        """Tuples that were acked as columns."""
        self.untracked = 0
        """How many of them belong to no tree."""

    def emit(
        self,
        rows: Sequence[Sequence[Any]],
        anchors: Tuple | Sequence[Anchor] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit many tuples; see :meth:`OutputCollector.emit_batch`."""
        output = self._output
        to = output.streams.get(stream)
        try:
            each = None if anchors is None else anchor_of_each(rows, anchors)
        except AnchorError as error:
            error.component = error.component or output.component
            raise
        roots = None if each is None else _single_roots(each)
        if not rows:
            return
        if to is None or to.direct_tasks is not None or output.hooks or (each is not None and roots is None):
            for row, anchor in zip(rows, each or repeat(None)):  # noqa: B905 - None for each row
                self._emit_one(row, anchor, stream)
            return
        # All that can raise comes before an edge id is drawn: an edge that nobody gets would never be acked.
        values = _checked(output, to, rows)
        chosen = [choice.tasks_of(values) for choice in to.choices]
        if roots is None or not any(roots):
            sent = self._send(to, values, chosen)
        else:
            sent = self._send_tracked(to, values, chosen, roots, cast("Sequence[TreeTuple]", each))
        output.emitted[stream] += len(values)
        if stream == DEFAULT_STREAM:
            output.copies += sent

    def ack(self, tuples: Sequence[Tuple]) -> None:
        """Ack many tuples; see :meth:`OutputCollector.ack_batch`."""
        if isinstance(tuples, TreeTuples) and not tuples.is_made and not self._output.hooks:
            roots = tuples.roots
            if not any(roots) or set(map(type, roots)) == {int}:
                self._ack_columns(cast("Sequence[int]", roots), cast("Sequence[int]", tuples.edges))
                tuples.settle()
                return
        for each in tuples:
            self._ack_one(each)

    def _ack_columns(self, roots: Sequence[int], edges: Sequence[int]) -> None:
        self.acked += len(roots)
        if not any(roots):
            self.untracked += len(roots)
            return
        acks = self._output.outbox.acks
        before = acks.get
        for root, edge in zip(roots, edges, strict=True):
            if root:
                acks[root] = before(root, 0) ^ edge
            else:
                self.untracked += 1

    def _send(self, stream: OutputStream, rows: list[Any], chosen: Sequence[Mapping[int, Pick]]) -> int:
        """Send tuples of no tree; return to how many tasks."""
        sent = 0
        for by_task in chosen:
            for task, pick in by_task.items():
                values = pick(rows)
                columns = self._output.columns[stream.name][task]
                columns.values.extend(values)
                columns.is_short = True
                sent += len(values)
        return sent

    def _send_tracked(
        self,
        stream: OutputStream,
        rows: list[Any],
        chosen: Sequence[Mapping[int, Pick]],
        roots: list[int],
        anchors: Sequence[TreeTuple],
    ) -> int:
        sent = 0
        for by_task in chosen:
            for task, pick in by_task.items():
                values, theirs = pick(rows), pick(anchors)
                edges = draw_edges(self._output.bits, len(values))
                columns = self._output.columns[stream.name][task]
                bit = columns.bit
                if bit:
                    for anchor, edge in zip(theirs, edges, strict=True):
                        anchor.edges ^= edge
                        anchor.mask |= bit
                else:
                    for anchor, edge in zip(theirs, edges, strict=True):
                        anchor.edges ^= edge
                columns.fill()
                columns.values.extend(values)
                columns.roots.extend(pick(roots))
                columns.edges.extend(edges)
                sent += len(values)
        return sent


def draw_edges(bits: RandomBits, count: int) -> list[int]:
    """Return the ids of new edges, cut from one draw: a tenth of the time of drawing each."""
    return memoryview(bits(EDGE_BITS * count).to_bytes(EDGE_BITS // 8 * count, "little")).cast("Q").tolist()


def _single_roots(anchors: Sequence[Anchor]) -> list[int] | None:
    """Return the root of each anchor, 0 for none; None if one of them is not a single tuple with at most one root."""
    try:
        roots = list(map(_roots_of, anchors))
    except AttributeError:
        return None
    return roots if not any(roots) or set(map(type, roots)) == {int} else None


def _checked(output: TaskOutput, stream: OutputStream, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return rows as they are sent: tuples, each with a value for each field of the stream."""
    if set(map(type, rows)) == {tuple} and set(map(len, rows)) == {len(stream.fields)}:
        return list(rows)
    return [output.values(stream, row) for row in rows]
