"""Collectors: a tree adds up (MI1-MI3), and mistakes are refused."""

import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from txtopo import Fields, TaskHook
from txtopo.api.data.tuples import Tuple, TupleSource
from txtopo.errors import AnchorError, FieldsError, TopologyError
from txtopo.plain.tasks.collectors import BoltCollector, SpoutCollector
from txtopo.plain.tasks.errors import ErrorReporter
from txtopo.plain.tasks.outbox import Outbox
from txtopo.plain.tasks.output import OutputStream, TaskOutput
from txtopo.plain.tasks.queues import TaskQueue
from txtopo.plain.trees.pending import PendingRoots
from txtopo.plain.trees.tuples import TreeTuple
from txtopo.topology.plans.groupings import Choice, KeyChoice

LOCAL, REMOTE, FAR = 11, 12, 13
"""Tasks: in this worker, which is 0, and in the workers 1 and 2."""

BITS = {LOCAL: 0, REMOTE: 0b010, FAR: 0b100}
"""The bits of their workers."""

SOURCE = TupleSource("source", "default", 1, Fields("word"))


@attrs.define
class Sent:
    """A tuple as it was sent."""

    task: int
    values: tuple[Any, ...]
    edges: dict[int, int]


class Bench:
    """A collector's surroundings, and what it has sent."""

    def __init__(self, *to: int, several: Sequence[int] = (), rng: random.Random | None = None) -> None:
        """Let the streams have an edge to each of the tasks, one to several tasks, and one to a task that is drawn."""
        self.outbox = Outbox({LOCAL: TaskQueue([SOURCE])}, {LOCAL: 0, REMOTE: 1, FAR: 2}, (0,))
        self.outbox.bit_of.update({REMOTE: BITS[REMOTE], FAR: BITS[FAR]})
        choices = [Choice(one=lambda _values, task=task: task) for task in to]
        if several:
            choices.append(Choice(some=lambda _values: several))
        if rng is not None:
            choices.append(Choice(one=lambda _values: rng.choice([LOCAL, REMOTE, FAR])))
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
        """Return what was sent, and forget it."""
        found = []
        for columns in self.outbox.columns:
            taken = columns.take()
            taken.fill()
            for values, roots, edges in zip(taken.values, taken.roots, taken.edges, strict=True):
                found.append(Sent(columns.task, values, edges_of(roots, edges)))
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


def as_received(sent: Sent) -> TreeTuple:
    if len(sent.edges) > 1:
        return TreeTuple(sent.values, SOURCE, tuple(sent.edges), sent.edges)
    ((root, edge),) = sent.edges.items() or [(0, 0)]
    return TreeTuple(sent.values, SOURCE, root, edge)


EMITS: list[Callable[..., Any]] = [
    lambda collector, **place: collector.emit(["a"], **place),
    lambda collector, **place: collector.emit(("a",), **place),
    lambda collector, **place: collector.emit(["a", 1], stream="side", **place),
    lambda collector, **place: collector.emit_direct(REMOTE, ["a"], stream="direct", **place),
]


@pytest.mark.parametrize("seed", range(40))
def test_trees(slow, seed):
    """S1, S3, MI1 to MI3: whatever is anchored to whatever, a root's value is 0 just when no tuple of its tree is open.

    Its mask names every other worker that a tuple of the tree was sent to.
    """
    rng = random.Random(seed)
    bench = Bench(several=rng.choice([(), (LOCAL, REMOTE)]), rng=rng)
    if slow:
        bench.output.hooks.append(NoHook())
    spout, bolt = bench.spout(0), bench.bolt()
    waiting: list[tuple[TreeTuple, set[int]]] = []
    workers: Counter[int] = Counter()

    def emit(roots: set[int] | None, collector: Any, **place: Any) -> None:
        rng.choice(EMITS)(collector, **place)
        roots = {list(spout.inits)[-1]} if roots is None else roots
        for sent in bench.sent():
            assert set(sent.edges) == roots
            waiting.append((as_received(sent), roots))
            workers.update(dict.fromkeys(roots, 0))
            for root in roots:
                workers[root] |= BITS[sent.task]

    def ack() -> None:
        still_open = set().union(*(roots for _, roots in waiting))
        values = {root: value ^ bench.outbox.acks.get(root, 0) for root, (value, _) in spout.inits.items()}
        assert {root for root, value in values.items() if value} == still_open
        acked, _ = waiting.pop(rng.randrange(len(waiting)))
        bolt.ack(acked)

    for number in range(4):
        emit(None, spout, message_id=number)
    emit(set(), spout)
    for _ in range(rng.choice([3, 6, 40])):
        anchors = [rng.choice(waiting) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]) if waiting else 0)]
        roots = set().union(*(roots for _, roots in anchors))
        tuples = [anchor for anchor, _ in anchors]
        emit(roots, bolt, anchors=tuples[0] if len(tuples) == 1 and rng.random() < 0.8 else tuples)
        if waiting and rng.random() < 0.5:
            ack()
    while waiting:
        ack()
    assert {root: value ^ bench.outbox.acks[root] for root, (value, _) in spout.inits.items()} == dict.fromkeys(
        spout.inits, 0
    )
    masks = {root: mask | bench.outbox.masks.get(root, 0) for root, (_, mask) in spout.inits.items()}
    assert masks == dict(workers)
    assert [pending.message_id for pending in bench.pending.roots.values()] == [0, 1, 2, 3]


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


@pytest.mark.parametrize("message_id", [0, "", (), [], False], ids=repr)
def test_message_ids_that_are_false(message_id):
    """Only None means that a tuple is not tracked; a message id may be of any type."""
    bench = Bench(LOCAL)
    collector = bench.spout(0)
    collector.emit(["a"], message_id=message_id)
    assert [pending.message_id for pending in bench.pending.roots.values()] == [message_id]


class Odd(str):
    """A key that can't be looked up the first time."""

    __slots__ = ("asked",)

    def __hash__(self):
        if not hasattr(self, "asked"):
            self.asked = True
            raise KeyError("the user's own")
        return super().__hash__()


def test_the_errors_of_a_key():
    """What a key's hash raises is the bolt's error."""
    bench = Bench(LOCAL)
    bench.output.streams["default"].choices[:] = [Choice(one=lambda _: LOCAL, key=KeyChoice(0, lambda _: LOCAL))]
    with pytest.raises(KeyError, match="own"):
        bench.bolt().emit((Odd("a"),))


@pytest.mark.parametrize("key", ["a", 7, ("a", "b"), ["a"], {"a": 1}, "a" * 1_000], ids=type)
def test_a_key_leads_to_one_task(key):
    """A key that was seen before, also one that no cache takes, leads where the grouping says, and its tuple counts."""
    bench, asked = Bench(), list[Any]()

    def task(key: Any) -> int:
        asked.append(key)
        return REMOTE

    choice = Choice(one=lambda values: task(values[0]), key=KeyChoice(0, task))
    bench.output.streams["default"].choices.append(choice)
    collector = bench.bolt()
    assert [collector.emit([key]) for _ in range(3)] == [[REMOTE]] * 3
    assert len(asked) == (3 if isinstance(key, (list, dict)) or len(str(key)) > 256 else 1)
    assert [(each.task, each.values) for each in bench.sent()] == [(REMOTE, (key,))] * 3
    assert (collector.counts().emitted, collector.counts().transferred) == ({"default": 3}, 3)


def test_tuples_with_and_without_a_tree():
    """Tuples of one task to another keep their order, and each its own root, however many of them have none."""
    bench = Bench(REMOTE)
    collector, anchor = bench.bolt(), received(7)
    for number in range(12):
        place = {"anchors": anchor} if number in {2, 3, 7, 10} else {}
        collector.emit((number,), **place)
        if number == 5:
            collector.emit_batch([("b",), ("c",)])
            collector.emit_batch([("d",), ("e",)], anchor)
    sent = bench.sent()
    assert [each.values[0] for each in sent] == [*range(6), "b", "c", "d", "e", *range(6, 12)]
    assert [each.values[0] for each in sent if each.edges] == [2, 3, "d", "e", 7, 10]
    assert len({edge for each in sent for edge in each.edges.values()}) == 6
    assert collector.counts().transferred == 16


def test_emitted_values_are_kept():
    """A list that is emitted and then changed was sent as it was."""
    bench = Bench(LOCAL)
    values = ["a"]
    bench.bolt().emit(values)
    values[0] = "b"
    assert [each.values for each in bench.sent()] == [("a",)]
