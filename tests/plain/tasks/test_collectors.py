"""Collectors: edge ids, masks and what is refused (MI1-MI3)."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from functools import reduce
from operator import xor
from typing import Any

import attrs
import pytest

from txtopo import Fields, TaskHook
from txtopo.api.tuples import Tuple, TupleSource
from txtopo.errors import AnchorError, FieldsError, TopologyError
from txtopo.plain.tasks.collectors import BasicCollector, BoltCollector, OutputStream, SpoutCollector, TaskOutput
from txtopo.plain.tasks.errors import ErrorReporter
from txtopo.plain.tasks.metrics import Counts
from txtopo.plain.tasks.outbox import Outbox
from txtopo.plain.trees.pending import PendingRoots
from txtopo.plain.trees.tuples import TreeTuple
from txtopo.topology.groupings import Choice

LOCAL, REMOTE, FAR = 11, 12, 13
"""Tasks: in this worker, which is 0, and in the workers 1 and 2."""

SOURCE = TupleSource("source", "default", 1, Fields("word"))


@attrs.define
class Sent:
    """A tuple as it was sent."""

    task: int
    values: tuple[Any, ...]
    edges: dict[int, int]


class Bench:
    """A collector's surroundings, and what it has sent."""

    def __init__(self, *to: int, several: Sequence[int] = ()) -> None:
        """Let the default stream have an edge to each of the tasks, and one to several tasks."""
        self.queues: dict[int, list[TreeTuple]] = {LOCAL: []}
        self.outbox = Outbox(self.queues, {LOCAL: 0, REMOTE: 1, FAR: 2}, (0,))
        self.outbox.bit_of.update({REMOTE: 0b010, FAR: 0b100})
        choices = [Choice(one=lambda _values, task=task: task) for task in to]
        if several:
            choices.append(Choice(some=lambda _values: several))
        streams = {
            "default": self.stream("default", Fields("word"), choices),
            "side": self.stream("side", Fields("word", "n"), choices),
            "direct": self.stream("direct", Fields("word"), [], frozenset({LOCAL, REMOTE})),
        }
        errors = ErrorReporter("bolt", 5, lambda: 0.0, 10.0, 5)
        self.output = TaskOutput("bolt", 5, streams, self.outbox, random.Random(1).getrandbits, errors)

    def stream(self, name: str, fields: Fields, choices: list[Choice], direct: Any = None) -> OutputStream:
        number = ["default", "side", "direct"].index(name)
        return OutputStream(name, fields, TupleSource("bolt", name, 5, fields), number, choices, direct)

    def bolt(self) -> BoltCollector:
        return BoltCollector(self.output)

    def spout(self, *ackers: int) -> SpoutCollector:
        self.pending = PendingRoots(30)
        self.acked: list[Any] = []
        return SpoutCollector(self.output, self.pending, ackers, lambda: 3.0, self.acked.append)

    def sent(self) -> list[Sent]:
        """Return what was sent, to local tasks first, and forget it."""
        found = [
            Sent(task, tuple(each.values), edges_of(each.roots, each.edges))
            for task, queue in self.queues.items()
            for each in queue
        ]
        for queue in self.queues.values():
            queue.clear()
        for columns in self.outbox.columns:
            for values, roots, edges in zip(columns.values, columns.roots, columns.edges, strict=True):
                found.append(Sent(columns.task, values, edges_of(roots, edges)))
            columns.values, columns.roots, columns.edges = [], [], []
        return found


def edges_of(roots: Any, edges: Any) -> dict[int, int]:
    if isinstance(roots, int):
        return {roots: edges} if roots else {}
    assert set(roots) == set(edges)
    return dict(edges)


def received(*roots: int) -> TreeTuple:
    """Return a tuple that a bolt received; its edge id is 1000 more than each root."""
    if len(roots) <= 1:
        (root,) = roots or (0,)
        return TreeTuple(("in",), SOURCE, root, root + 1000 if root else 0)
    return TreeTuple(("in",), SOURCE, roots, {root: root + 1000 for root in roots})


class NoHook(TaskHook):
    """Takes a collector off its fast lane, and must change nothing."""


@pytest.fixture(params=[False, True], ids=["fast lane", "general way"])
def slow(request: pytest.FixtureRequest) -> bool:
    return request.param


def test_edges_of_a_root():
    """MI1: a root that three tasks get is three tuples of three ids, and its init message is their XOR."""
    bench = Bench(LOCAL, several=(REMOTE, FAR))
    collector = bench.spout(0)
    assert collector.emit(["a"], message_id="one") == [LOCAL, REMOTE, FAR]
    sent = bench.sent()
    ((root, (value, mask)),) = collector.inits.items()
    edges = [each.edges[root] for each in sent]
    assert [(each.task, each.values) for each in sent] == [(LOCAL, ("a",)), (REMOTE, ("a",)), (FAR, ("a",))]
    assert len(set(edges)) == 3
    assert (value, mask) == (reduce(xor, edges), 0b110)
    assert bench.pending.roots[root].message_id == "one"
    assert bench.pending.roots[root].emitted_at == 3.0
    assert collector.pending_count() == 1


def test_a_root_for_one_task(slow):
    """The init message of a root that one task gets is that tuple's edge, and names its worker if that is another."""
    for task, mask in [(LOCAL, 0), (REMOTE, 0b010), (FAR, 0b100)]:
        bench = Bench(task)
        if slow:
            bench.output.hooks.append(NoHook())
        collector = bench.spout(0)
        assert [collector.emit(["a"], message_id=number) for number in range(2)] == [[task], [task]]
        assert collector.emit(("b",)) == [task]
        assert collector.emit(["c", 1], "side", message_id=2) == [task]
        first, second, untracked, side = bench.sent()
        assert (first.values, untracked.values, side.values) == (("a",), ("b",), ("c", 1))
        expected = {root: (edge, mask) for sent in (first, second, side) for root, edge in sent.edges.items()}
        assert (collector.inits, untracked.edges) == (expected, {})
        assert [pending.message_id for pending in bench.pending.roots.values()] == [0, 1, 2]
        assert [(pending.stream, pending.emitted_at) for pending in bench.pending.roots.values()] == [
            ("default", 3.0),
            ("default", 3.0),
            ("side", 3.0),
        ]
        assert (collector.counts(), collector.emitted()) == (Counts({"default": 3, "side": 1}, 4), 4)


def test_one_anchor(slow):
    """A child has an edge of its own in its anchor's root; the anchor's ack takes its own edge and adds the child's."""
    bench = Bench(LOCAL)
    if slow:
        bench.output.hooks.append(NoHook())
    collector = bench.bolt()
    anchor = received(7)
    assert collector.emit(["a"], anchor) == [LOCAL]
    assert collector.emit(("b",), [anchor]) == [LOCAL]
    first, second = bench.sent()
    assert set(first.edges) == set(second.edges) == {7}
    assert first.edges[7] != second.edges[7]
    collector.ack(anchor)
    assert bench.outbox.acks == {7: 1007 ^ first.edges[7] ^ second.edges[7]}
    assert bench.outbox.masks == {}


def test_masks(slow):
    """The ack of an anchor names the workers that its children were sent to."""
    for task, mask in [(LOCAL, {}), (REMOTE, {7: 0b010}), (FAR, {7: 0b100})]:
        bench = Bench(task)
        if slow:
            bench.output.hooks.append(NoHook())
        collector = bench.bolt()
        anchor = received(7)
        assert collector.emit(["a"], anchor) == [task]
        collector.ack(anchor)
        ((sent),) = bench.sent()
        assert (sent.task, set(sent.edges)) == (task, {7})
        assert bench.outbox.masks == mask


def test_masks_of_several_roots():
    """Where a tuple has several roots, the ack for each of them names the workers of the children."""
    bench = Bench(REMOTE, several=(LOCAL, FAR))
    collector = bench.bolt()
    anchor, other = received(7, 8), received(9)
    collector.emit(["a"], [anchor, other])
    collector.ack(anchor)
    assert bench.outbox.masks == {7: 0b110, 8: 0b110}
    collector.ack(other)
    assert bench.outbox.masks == {7: 0b110, 8: 0b110, 9: 0b110}


def test_anchors_that_share_a_root():
    """MI2: of two anchors with the same root each gets an edge, and the child their XOR; other roots get their own."""
    bench = Bench(LOCAL)
    collector = bench.bolt()
    one, other = received(7), received(7, 8)
    collector.emit(["a"], [one, other])
    (child,) = bench.sent()
    added_by_one = one.edges ^ 1007
    added_by_other = {root: edge ^ (root + 1000) for root, edge in other.edges.items()}
    assert added_by_other[7] == added_by_other[8] != added_by_one
    assert child.edges == {7: added_by_one ^ added_by_other[7], 8: added_by_other[8]}


def test_an_anchor_named_twice():
    """T-ACK3: the same tuple as two anchors adds up: with its ack and the child's the root's value is 0."""
    bench = Bench(LOCAL)
    collector = bench.bolt()
    anchor = received(7)
    collector.emit(["a"], [anchor, anchor])
    (child,) = bench.sent()
    collector.ack(anchor)
    assert 1007 ^ bench.outbox.acks[7] ^ child.edges[7] == 0


def as_received(sent: Sent) -> TreeTuple:
    if len(sent.edges) > 1:
        return TreeTuple(sent.values, SOURCE, tuple(sent.edges), sent.edges)
    ((root, edge),) = sent.edges.items() or [(0, 0)]
    return TreeTuple(sent.values, SOURCE, root, edge)


@pytest.mark.parametrize("seed", range(20))
def test_trees_add_up(seed):
    """S1, S3: whatever is anchored to whatever, a root's value is 0 just when no tuple of its tree is open."""
    rng = random.Random(seed)
    bench = Bench(LOCAL, several=(LOCAL, REMOTE))
    collector = bench.bolt()
    waiting = [(received(7), {7}), (received(8), {8}), (received(9, 10), {9, 10}), (received(), set())]
    values = {root: root + 1000 for root in (7, 8, 9, 10)}
    for _ in range(40):
        anchors = rng.sample(waiting, rng.randint(0, min(3, len(waiting))))
        collector.emit(["a"], [anchor for anchor, _ in anchors])
        waiting.extend((as_received(sent), set(sent.edges)) for sent in bench.sent())
    while waiting:
        still_open = set().union(*(roots for _, roots in waiting))
        found = {root: value ^ bench.outbox.acks.get(root, 0) for root, value in values.items()}
        assert {root for root, value in found.items() if value} == still_open
        anchor, _ = waiting.pop(rng.randrange(len(waiting)))
        collector.ack(anchor)
    assert {root: value ^ bench.outbox.acks[root] for root, value in values.items()} == dict.fromkeys(values, 0)


def test_anchors_without_roots():
    """MI3: an anchor of no tree adds nothing; beside a tracked one, the child is in that one's tree alone."""
    bench = Bench(LOCAL)
    collector = bench.bolt()
    collector.emit(["a"], [received(), received(7)])
    collector.emit(["b"], received())
    collector.emit(["c"], [received(), received()])
    collector.emit(["d"])
    collector.emit(["e"], [])
    assert [set(each.edges) for each in bench.sent()] == [{7}, set(), set(), set(), set()]


def test_emit_after_ack(slow):
    """AC11, W6: a tuple that was acked or failed is refused as an anchor, instead of a silent timeout later."""
    bench = Bench(LOCAL)
    if slow:
        bench.output.hooks.append(NoHook())
    collector = bench.bolt()
    for settle in (collector.ack, collector.fail):
        for roots in [(7,), (7, 8), ()]:
            anchor = received(*roots)
            settle(anchor)
            for anchors in (anchor, [anchor], [received(9), anchor]):
                with pytest.raises(AnchorError, match="acked or failed before") as raised:
                    collector.emit(["a"], anchors)
                assert raised.value.component == "bolt"
            with pytest.raises(AnchorError):
                collector.emit_direct(LOCAL, ["a"], anchor, "direct")
    assert bench.sent() == []


def test_a_stranger_as_anchor():
    """A tuple that no bolt of a plain topology received can't be an anchor."""
    collector = Bench(LOCAL).bolt()
    for stranger in (Tuple(("a",), SOURCE), "word"):
        with pytest.raises(AnchorError, match="not a tuple that a bolt of a plain topology received"):
            collector.emit(["a"], [stranger])


@pytest.mark.parametrize("roots", [(7,), (7, 8), ()], ids=str)
@pytest.mark.parametrize("first", ["ack", "fail"])
@pytest.mark.parametrize("second", ["ack", "fail"])
def test_settled_twice(caplog, roots, first, second):
    """W6: a second ack or failure of a tuple is ignored and logged, so that it can't toggle its tree back."""
    bench = Bench(LOCAL)
    collector = bench.bolt()
    anchor = received(*roots)
    getattr(collector, first)(anchor)
    before = (dict(bench.outbox.acks), list(bench.outbox.failed), collector.counts())
    with caplog.at_level(logging.WARNING, "txtopo.plain"):
        getattr(collector, second)(anchor)
    assert (bench.outbox.acks, bench.outbox.failed, collector.counts()) == before
    assert ["again: ignored" in record.message for record in caplog.records] == [True]


def test_fail_and_reset():
    """Every root of a tuple is failed, or reset; a settled tuple resets nothing."""
    bench = Bench(LOCAL)
    collector = bench.bolt()
    several = received(7, 8)
    for each in (several, received(9), received()):
        collector.reset_timeout(each)
        collector.fail(each)
    collector.reset_timeout(several)
    assert (bench.outbox.reset, bench.outbox.failed, bench.outbox.acks) == ([7, 8, 9], [7, 8, 9], {})


@pytest.mark.parametrize("make", [Bench.bolt, lambda bench: bench.spout(0)], ids=["bolt", "spout"])
@pytest.mark.parametrize(
    ("values", "stream", "says"),
    [
        ((), "default", "has 1 values, for .*; 0 were emitted"),
        (("a", 1), "default", "2 were emitted"),
        (["a"], "side", "has 2 values, for .*; 1 were emitted"),
        ("a", "default", r"write emit\(\['a'\]\)"),
        (b"a", "default", r"write emit\(\[b'a'\]\)"),
        (["a"], "nowhere", "there is no stream 'nowhere'; its streams are: 'default', 'side', 'direct'"),
    ],
)
def test_values_that_do_not_fit(make, values, stream, says):
    """A wrong number of values, a text for a list of values, and an unknown stream are refused by name."""
    bench = Bench(LOCAL)
    collector = make(bench)
    with pytest.raises(FieldsError, match=says):
        collector.emit(values, stream=stream)
    assert bench.sent() == []


@pytest.mark.parametrize("make", [Bench.bolt, lambda bench: bench.spout(0)], ids=["bolt", "spout"])
def test_direct_streams(make):
    """A direct stream is emitted on by emit_direct only, other streams by emit only, and to tasks that take it."""
    bench = Bench(LOCAL)
    collector = make(bench)
    collector.emit_direct(REMOTE, ["a"], stream="direct")
    assert [(each.task, each.values) for each in bench.sent()] == [(REMOTE, ("a",))]
    with pytest.raises(TopologyError, match="'direct' is declared as direct; name the task by emit_direct"):
        collector.emit(["a"], stream="direct")
    with pytest.raises(TopologyError, match="'default' is not declared as direct"):
        collector.emit_direct(LOCAL, ["a"])
    with pytest.raises(TopologyError, match=f"task {FAR} does not take .*; tasks that do: {LOCAL}, {REMOTE}"):
        collector.emit_direct(FAR, ["a"], stream="direct")
    with pytest.raises(FieldsError):
        collector.emit_direct(LOCAL, ["a", "b"], stream="direct")
    assert bench.sent() == []


def test_direct_roots_and_anchors():
    """A tuple that is emitted directly has its place in trees like any other."""
    bench = Bench()
    spout = bench.spout(0)
    spout.emit_direct(REMOTE, ["a"], "direct", message_id=1)
    (sent,) = bench.sent()
    assert spout.inits == {root: (edge, 0b010) for root, edge in sent.edges.items()}
    bolt, anchor = bench.bolt(), received(7)
    bolt.emit_direct(REMOTE, ["b"], anchor, "direct")
    (sent,) = bench.sent()
    bolt.ack(anchor)
    assert (bench.outbox.acks, bench.outbox.masks) == ({7: 1007 ^ sent.edges[7]}, {7: 0b010})


def test_untracked_roots():
    """SP7: without a message id nothing is pending, and the tuple is in no tree."""
    bench = Bench(LOCAL)
    collector = bench.spout(0)
    assert collector.emit(["a"]) == [LOCAL]
    assert (collector.inits, collector.pending_count(), bench.acked) == ({}, 0, [])
    assert [each.edges for each in bench.sent()] == [{}]


@pytest.mark.parametrize("message_id", [0, "", (), [], False], ids=repr)
def test_message_ids_that_are_false(message_id):
    """Only None means that a tuple is not tracked; a message id may be of any type."""
    bench = Bench(LOCAL)
    collector = bench.spout(0)
    collector.emit(["a"], message_id=message_id)
    assert [pending.message_id for pending in bench.pending.roots.values()] == [message_id]


def test_roots_without_ackers():
    """SP6: without ackers a root is acked before emit returns, in the order of the emissions."""
    bench = Bench(LOCAL)
    collector = bench.spout()
    seen = []
    for number in range(3):
        collector.emit(["a"], message_id=number)
        seen.append(list(bench.acked))
    assert seen == [[0], [0, 1], [0, 1, 2]]
    assert (collector.inits, collector.pending_count()) == ({}, 0)
    assert [each.edges for each in bench.sent()] == [{}, {}, {}]


def test_roots_that_nobody_receives():
    """SP9: a root without receivers is pending until the acker, told of a value of 0, acks it."""
    bench = Bench()
    collector = bench.spout(0)
    assert collector.emit(["a"], message_id=1) == []
    assert list(collector.inits.values()) == [(0, 0)]


def test_basic_collector():
    """BB1: what a basic bolt emits is anchored to the tuple that it executes, directly or not."""
    bench = Bench(LOCAL)
    bolt = bench.bolt()
    collector = BasicCollector(bolt)
    collector.anchor = received(7)
    assert collector.emit(["a"]) is None
    collector.emit_direct(LOCAL, ["b"], "direct")
    one, other = bench.sent()
    bolt.ack(collector.anchor)
    assert bench.outbox.acks == {7: 1007 ^ one.edges[7] ^ other.edges[7]}


def test_counts(slow):
    """Emissions are counted by stream, transfers by task, acks and failures by tuple, also of untracked ones."""
    bench = Bench(LOCAL)
    if slow:
        bench.output.hooks.append(NoHook())
    collector = bench.bolt()
    for _ in range(3):
        collector.emit(["a"], received(7))
    collector.emit(["a", 1], stream="side")
    collector.ack(received(7))
    collector.ack(received())
    collector.fail(received(7, 8))
    assert collector.counts() == Counts({"default": 3, "side": 1}, 4, 0, 2, 1)
    several = Bench(LOCAL, several=(REMOTE, FAR)).bolt()
    several.emit(["a"])
    assert several.counts() == Counts({"default": 1}, 3)


def test_emitted_values_are_kept():
    """A list that is emitted and then changed was sent as it was."""
    bench = Bench(LOCAL)
    values = ["a"]
    bench.bolt().emit(values)
    values[0] = "b"
    assert [each.values for each in bench.sent()] == [("a",)]


def test_acks_are_counted_by_root(slow):
    """The acker of each root is told: an untracked tuple counts nothing, one of two roots twice, a second ack nothing."""
    bench = Bench(LOCAL)
    if slow:
        bench.output.hooks.append(NoHook())
    collector = bench.bolt()
    for each in (received(), received(7), received(7, 8)):
        collector.ack(each)
        collector.ack(each)
    assert (collector.acks_told(), collector.counts().acked) == (3, 3)
