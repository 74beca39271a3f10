"""Collectors: the hot path of plain topologies. Every tuple goes through ``emit`` once and through ``ack`` once.

Its functions are closures, set as attributes of a collector: in CPython 3.11 they take half the time of methods, which
look everything up on ``self``. ``emit`` is a *fast lane* for the common case: a tuple with at most one anchor, of one
root, on the default stream, for one task. Everything else goes through a sender, an ordinary object. With the fast
lane, a topology acks 1.9 times as many tuples a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from txtopo.api.collector import BasicOutputCollector, OutputCollector, SpoutOutputCollector
from txtopo.api.context import BoltEvent
from txtopo.api.tuples import DEFAULT_STREAM, Tuple
from txtopo.errors import AnchorError
from txtopo.plain.tasks.batches import Batches
from txtopo.plain.tasks.metrics import Counts
from txtopo.plain.tasks.outbox import ColumnsByTask
from txtopo.plain.tasks.output import OutputStream, TaskOutput
from txtopo.plain.trees.acker import EDGE_BITS, RandomBits, draw_root
from txtopo.plain.trees.pending import PendingRoot, PendingRoots
from txtopo.plain.trees.tuples import SETTLED, Roots, TreeTuple
from txtopo.topology.groupings import ChooseOne

log = logging.getLogger("txtopo.plain")

ACK_STREAM = "__ack_ack"
FAIL_STREAM = "__ack_fail"
"""Hooks see acks and failures of tracked tuples, which are messages to the acker, as emitted on these streams."""


def _fast_lane(output: TaskOutput) -> tuple[OutputStream | None, ChooseOne | None, int, ColumnsByTask | None]:
    """Return what the fast lane needs: the default stream, how it chooses its one task, its width, and its columns.

    A stream that the fast lane can't take has None for the choice.
    """
    stream = output.streams.get(DEFAULT_STREAM)
    if stream is None or stream.direct_tasks is not None or len(stream.choices) != 1 or stream.choices[0].one is None:
        return None, None, -1, None
    return stream, stream.choices[0].one, len(stream.fields), output.remote[DEFAULT_STREAM]


class BoltCollector(OutputCollector):
    """The collector of one task of a bolt."""

    __slots__ = (
        "ack",
        "ack_batch",
        "acks_told",
        "counts",
        "emit",
        "emit_batch",
        "emit_direct",
        "fail",
        "report_error",
        "reset_timeout",
    )

    # Variables in place of the methods: see the module.
    emit: Callable[..., list[int]]
    emit_batch: Callable[..., None]
    emit_direct: Callable[..., None]
    ack: Callable[[Tuple], None]  # type: ignore[assignment]
    ack_batch: Callable[[Sequence[Tuple]], None]  # type: ignore[assignment]
    fail: Callable[[Tuple], None]  # type: ignore[assignment]
    reset_timeout: Callable[[Tuple], None]  # type: ignore[assignment]
    report_error: Callable[[BaseException], None]  # type: ignore[assignment]
    counts: Callable[[], Counts]
    """Returns the counts of the collector."""
    acks_told: Callable[[], int]
    """Returns how many acks went to ackers: one for each root of each acked tuple."""

    def __init__(self, output: TaskOutput) -> None:
        sender = _BoltSender(output)
        self.emit, emitted = _bolt_fast_lane(output, sender)
        self.emit_direct = sender.emit_direct
        self.ack, self.fail, settled = _settling(output)
        batches = Batches(output, self.emit, self.ack)
        self.emit_batch, self.ack_batch = batches.emit, batches.ack
        self.reset_timeout = lambda given: output.outbox.reset.extend(_roots_of(given.roots))  # type: ignore[attr-defined]
        self.report_error = output.errors.report

        def counts() -> Counts:
            acked, failed, _ = settled()
            return output.counts(emitted(), acked + batches.acked, failed)

        self.counts = counts
        self.acks_told = lambda: settled()[2] + batches.acked - batches.untracked


class _BoltSender:
    """Emits for a bolt's task what the fast lane does not take."""

    def __init__(self, output: TaskOutput) -> None:
        self._output = output

    def emit(self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple] | None, stream: str) -> list[int]:
        return self._send(*self._output.prepared(values, stream), anchors)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        self._send(*self._output.prepared(values, stream, task), anchors)

    def _send(
        self,
        stream: OutputStream,
        values: tuple[Any, ...],
        tasks: list[int],
        anchors: Tuple | Sequence[Tuple] | None,
    ) -> list[int]:
        output = self._output
        tree = _anchors(anchors, output.component)
        for task in tasks:
            edges = _attach(tree, output.bits, output.outbox.bit_of.get(task, 0))
            if not edges:
                output.send(stream, task, values, 0, 0)
            elif len(edges) == 1:
                ((root, edge),) = edges.items()
                output.send(stream, task, values, root, edge)
            else:
                output.send(stream, task, values, tuple(edges), edges)
        output.sent(stream, values, tasks)
        return tasks


def _bolt_fast_lane(output: TaskOutput, sender: _BoltSender) -> tuple[Callable[..., list[int]], Callable[[], int]]:
    """Return how a bolt's task emits, and how many tuples it has sent without the sender."""
    hooks, bits, local, bit_of = output.hooks, output.bits, output.outbox.local.get, output.outbox.bit_of
    emit_any = sender.emit
    lane, one, width, remote = _fast_lane(output)
    source = None if lane is None else lane.source
    sent = 0

    def emit(
        values: Sequence[Any], anchors: Tuple | Sequence[Tuple] | None = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        # All that can raise comes before the edge id is drawn: an edge that nobody gets would never be acked.
        nonlocal sent
        if stream is not DEFAULT_STREAM or one is None or hooks:
            return emit_any(values, anchors, stream)
        if anchors is None:
            root = edge = 0
        elif anchors.__class__ is TreeTuple and anchors.roots.__class__ is int:
            root = anchors.roots
            edge = 0
        else:
            return emit_any(values, anchors, stream)
        if values.__class__ is not tuple or len(values) != width:
            values = output.values(lane, values)  # type: ignore[arg-type]
        task = one(values)
        if root:
            edge = bits(EDGE_BITS)
            anchors.edges ^= edge  # type: ignore[union-attr, operator]
        sent += 1
        queue = local(task)
        if queue is not None:
            queue.append(TreeTuple(values, source, root, edge))  # type: ignore[arg-type]
            return [task]
        columns = remote[task]  # type: ignore[index]
        columns.values.append(values)
        columns.roots.append(root)
        columns.edges.append(edge)
        if root:
            anchors.mask |= bit_of[task]  # type: ignore[union-attr]
        return [task]

    return emit, lambda: sent


def _settling(  # noqa: C901 - one scope for its closures; see the module
    output: TaskOutput,
) -> tuple[Callable[[Tuple], None], Callable[[Tuple], None], Callable[[], tuple[int, int, int]]]:
    """Return how a bolt's task acks, how it fails, and what it counts: acked and failed tuples, and acks to ackers."""
    outbox, hooks = output.outbox, output.hooks
    acks, masks = outbox.acks, outbox.masks
    acked_before, mask_before = acks.get, masks.get
    acked = failed = 0
    untracked = more_roots = 0  # of acked tuples; those with one root need no counter, and so cost nothing

    def ack(tuple: Tuple) -> None:
        nonlocal acked, more_roots, untracked
        roots = tuple.roots  # type: ignore[attr-defined]
        if roots.__class__ is int:
            if roots:
                acks[roots] = acked_before(roots, 0) ^ tuple.edges  # type: ignore[attr-defined]
                if tuple.mask:  # type: ignore[attr-defined]
                    masks[roots] = mask_before(roots, 0) | tuple.mask  # type: ignore[attr-defined]
            else:
                untracked += 1
        elif roots is SETTLED:
            log.warning("component %r acked or failed %r again: ignored", output.component, tuple)
            return
        else:
            for root, edge in tuple.edges.items():  # type: ignore[attr-defined]
                acks[root] = acked_before(root, 0) ^ edge
                if tuple.mask:  # type: ignore[attr-defined]
                    masks[root] = mask_before(root, 0) | tuple.mask  # type: ignore[attr-defined]
            more_roots += len(roots) - 1
        tuple.roots = SETTLED  # type: ignore[attr-defined]
        acked += 1
        if hooks:
            tell_settled(tuple, roots, ACK_STREAM, "bolt_acked")

    def fail(tuple: Tuple) -> None:
        nonlocal failed
        roots = tuple.roots  # type: ignore[attr-defined]
        if roots is SETTLED:
            log.warning("component %r acked or failed %r again: ignored", output.component, tuple)
            return
        outbox.failed.extend(_roots_of(roots))
        tuple.roots = SETTLED  # type: ignore[attr-defined]
        failed += 1
        if hooks:
            tell_settled(tuple, roots, FAIL_STREAM, "bolt_failed")

    def tell_settled(tuple: Tuple, roots: Roots, stream: str, method: str) -> None:
        for root in _roots_of(roots):
            output.tell_emitted((root,), stream, [])
        for hook in hooks:
            getattr(hook, method)(BoltEvent(tuple, output.task))

    return ack, fail, lambda: (acked, failed, acked - untracked + more_roots)


def _anchors(anchors: Tuple | Sequence[Tuple] | None, component: str) -> list[TreeTuple]:
    """Return the anchors that belong to a tree; refuse those that were acked or failed, or are not of this topology."""
    given = [] if anchors is None else [anchors] if isinstance(anchors, Tuple) else list(anchors)
    for anchor in given:
        if not isinstance(anchor, TreeTuple):
            raise AnchorError(
                f"{anchor!r} is not a tuple that a bolt of a plain topology received", component=component
            )
        if anchor.roots is SETTLED:
            raise AnchorError(
                f"{anchor!r} was acked or failed before; emit what is anchored to a tuple before you ack it",
                component=component,
            )
    return [anchor for anchor in given if isinstance(anchor, TreeTuple) and anchor.roots]


def _attach(anchors: Sequence[TreeTuple], bits: RandomBits, bit: int) -> dict[int, int]:
    """Anchor a tuple for one task, in the worker with this bit (0: here), and return its edge ids by root.

    Each anchor gets an edge of its own, in all of its roots. So an anchor that is named twice, or two that share a
    root, add up.
    """
    edges: dict[int, int] = {}
    for anchor in anchors:
        edge = bits(EDGE_BITS)
        anchor.mask |= bit
        if isinstance(anchor.edges, int):
            anchor.edges ^= edge
        else:
            for root in anchor.edges:
                anchor.edges[root] ^= edge
        for root in _roots_of(anchor.roots):
            edges[root] = edges.get(root, 0) ^ edge
    return edges


def _roots_of(roots: Roots) -> tuple[int, ...]:
    if isinstance(roots, tuple):
        return roots
    return (roots,) if isinstance(roots, int) and roots else ()


class SpoutCollector(SpoutOutputCollector):
    """The collector of one task of a spout.

    It chooses among the ``ackers`` of its worker, given by number. If there are none, it calls ``ack_now`` with each
    message id at once.
    """

    __slots__ = ("_pending", "counts", "emit", "emit_direct", "emitted", "inits", "report_error")

    emit: Callable[..., list[int]]
    emit_direct: Callable[..., None]
    report_error: Callable[[BaseException], None]  # type: ignore[assignment]
    inits: dict[int, tuple[int, int]]
    """The roots that the ackers do not know yet, each with the XOR of its edge ids and its mask."""
    counts: Callable[[], Counts]
    """Returns the counts of the collector."""
    emitted: Callable[[], int]
    """Returns how many tuples the spout emitted, whether tracked or not."""

    def __init__(
        self,
        output: TaskOutput,
        pending: PendingRoots,
        ackers: Sequence[int],
        clock: Callable[[], float],
        ack_now: Callable[[Any], None],
    ) -> None:
        sender = _SpoutSender(output, pending.roots, ackers, clock, ack_now)
        self.emit, fast = _spout_fast_lane(output, sender)
        self.emit_direct = sender.emit_direct
        self.inits = sender.inits
        self.report_error = output.errors.report
        self.counts = lambda: output.counts(fast())
        self.emitted = lambda: fast() + sender.sent
        self._pending = pending

    def pending_count(self) -> int:
        """Return how many roots of this task are neither acked nor failed."""
        return len(self._pending)


@attrs.define(eq=False)
class _SpoutSender:
    """Emits for a spout's task what the fast lane does not take."""

    output: TaskOutput
    roots: dict[int, PendingRoot]
    ackers: Sequence[int]
    clock: Callable[[], float]
    ack_now: Callable[[Any], None]
    inits: dict[int, tuple[int, int]] = attrs.field(factory=dict, init=False)
    sent: int = attrs.field(default=0, init=False)

    def emit(self, values: Sequence[Any], stream: str, message_id: Any) -> list[int]:
        return self._send(*self.output.prepared(values, stream), message_id)

    def emit_direct(
        self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None
    ) -> None:
        self._send(*self.output.prepared(values, stream, task), message_id)

    def _send(self, stream: OutputStream, values: tuple[Any, ...], tasks: list[int], message_id: Any) -> list[int]:
        output, bits = self.output, self.output.bits
        self.sent += 1
        root = value = mask = 0
        is_tracked = message_id is not None and bool(self.ackers)
        if is_tracked:
            root = draw_root(bits, self.ackers, self.roots)
            self.roots[root] = PendingRoot(message_id, stream.name, self.clock())
        for task in tasks:
            edge = bits(EDGE_BITS) if is_tracked else 0
            value ^= edge
            mask |= output.outbox.bit_of.get(task, 0)
            output.send(stream, task, values, root, edge)
        if is_tracked:
            self.inits[root] = (value, mask)
        output.sent(stream, values, tasks)
        if message_id is not None and not self.ackers:
            self.ack_now(message_id)
        return tasks


def _spout_fast_lane(output: TaskOutput, sender: _SpoutSender) -> tuple[Callable[..., list[int]], Callable[[], int]]:
    """Return how a spout's task emits, and how many tuples it has sent without the sender."""
    hooks, bits, local, bit_of = output.hooks, output.bits, output.outbox.local.get, output.outbox.bit_of.get
    roots, inits, ackers, clock, emit_any = sender.roots, sender.inits, sender.ackers, sender.clock, sender.emit
    lane, one, width, remote = _fast_lane(output)
    source = None if lane is None else lane.source
    sent = 0

    def emit(values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None) -> list[int]:
        nonlocal sent
        if stream is not DEFAULT_STREAM or one is None or hooks or not (ackers or message_id is None):
            return emit_any(values, stream, message_id)
        if values.__class__ is not tuple or len(values) != width:
            values = output.values(lane, values)  # type: ignore[arg-type]
        task = one(values)
        sent += 1
        root = edge = 0
        if message_id is not None:
            root, edge = draw_root(bits, ackers, roots), bits(EDGE_BITS)
            roots[root] = PendingRoot(message_id, stream, clock())
            inits[root] = (edge, bit_of(task, 0))
        queue = local(task)
        if queue is not None:
            queue.append(TreeTuple(values, source, root, edge))  # type: ignore[arg-type]
        else:
            columns = remote[task]  # type: ignore[index]
            columns.values.append(values)
            columns.roots.append(root)
            columns.edges.append(edge)
        return [task]

    return emit, lambda: sent


class BasicCollector(BasicOutputCollector):
    """The collector of one task of a basic bolt: it anchors all tuples to the one that is being executed."""

    __slots__ = ("_collector", "anchor")

    anchor: Tuple | None
    """The tuple that is being executed."""

    def __init__(self, collector: BoltCollector) -> None:
        self._collector = collector
        self.anchor = None

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple."""
        self._collector.emit(values, self.anchor, stream)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to one task, by its id."""
        self._collector.emit_direct(task, values, self.anchor, stream)
