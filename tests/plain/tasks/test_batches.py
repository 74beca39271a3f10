"""Many tuples in one call: the same as one by one, and each input settled once."""

import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.budgets import examples
from tests.plain.tasks.test_collectors import BITS, FAR, LOCAL, REMOTE, SOURCE, Bench, NoHook, received
from tests.plain.topologies import Alone
from txtopo import (
    CustomStreamGrouping,
    FailedException,
    Fields,
    PlainTopology,
    RichBolt,
    Spout,
    TopologyBuilder,
    Tuples,
)
from txtopo.errors import AnchorError, FieldsError, TopologyError, UserCodeError
from txtopo.plain.frames import Columns
from txtopo.plain.tasks.bolts import EXECUTED_AT_ONCE_MAX
from txtopo.plain.tasks.queues import TaskQueue
from txtopo.plain.trees.tuples import TreeTuples
from txtopo.topology.plans.groupings import Choice

CHOICES: Sequence[Callable[[], Choice]] = (
    lambda: Choice(one=lambda _values: LOCAL),
    lambda: Choice(one=lambda _values: REMOTE, many=lambda rows: [REMOTE] * len(rows)),
    lambda: Choice(one=lambda values: (LOCAL, REMOTE, FAR)[values[0] % 3]),
    lambda: Choice(some=lambda values: (LOCAL, FAR)[: values[0] % 3]),
)

ROOTS = st.sampled_from([(), (1,), (2,), (1, 2)])
ANCHORED_TO_ONE = st.tuples(st.integers(0, 9), st.lists(st.integers(0, 4), min_size=1, max_size=1))
"""What ``emit_batch`` has a fast way for, if hooks and roots allow it."""
EMITTED = st.tuples(st.integers(0, 9), st.lists(st.integers(0, 4), max_size=2) | st.none())


@settings(max_examples=examples(150), deadline=None)
@given(
    roots=st.lists(ROOTS, min_size=5, max_size=5) | st.lists(st.sampled_from([(1,), (2,)]), min_size=5, max_size=5),
    emitted=st.lists(EMITTED, max_size=12) | st.lists(ANCHORED_TO_ONE, min_size=2, max_size=12),
    chosen=st.lists(st.sampled_from(CHOICES), max_size=2),
    is_hooked=st.booleans(),
    are_lists=st.booleans(),
)
def test_many_are_as_one_by_one(roots, emitted, chosen, is_hooked, are_lists):
    """Whatever is anchored to whatever: the same tuples to the same tasks, masks and counts, and trees that add up."""
    found = []
    for is_batch in (False, True):
        bench = Bench()
        for stream in bench.output.streams.values():
            stream.choices.extend(choice() for choice in chosen)
        if is_hooked:
            bench.output.hooks.append(NoHook())
        collector, inputs = bench.bolt(), [received(*root) for root in roots]
        rows = [[number] if are_lists else (number,) for number, _ in emitted]
        anchors = [None if some is None else [inputs[each] for each in some] for _, some in emitted]
        anchors = [anchor[0] if anchor is not None and len(anchor) == 1 else anchor for anchor in anchors]
        if is_batch:
            collector.emit_batch(rows, anchors)
            collector.ack_batch(inputs)
        else:
            for row, anchor in zip(rows, anchors, strict=True):
                collector.emit(row, anchor)
            for each in inputs:
                collector.ack(each)
        sent = bench.sent()
        values = Counter({root: 0 for each in roots for root in each})
        for root in values:
            for each in roots:
                values[root] ^= root + 1000 if root in each else 0
            for each in sent:
                values[root] ^= each.edges.get(root, 0)
        assert bench.outbox.acks == values
        drawn = [edge for each in sent if len(each.edges) == 1 for edge in each.edges.values() if edge]
        assert len(drawn) == len(set(drawn)), "tuples that share an edge are acked too early"
        found.append(
            (
                Counter((each.task, each.values, tuple(sorted(each.edges))) for each in sent),
                bench.outbox.masks,
                collector.counts(),
                collector.acks_told(),
            )
        )
    assert found[0] == found[1]


def test_the_workers_that_many_tuples_go_to():
    """An ack names the other workers that have tuples anchored to it; without that, roots wait when one of them dies."""
    bench = Bench(REMOTE)
    collector, inputs = bench.bolt(), [received(1), received(2)]
    collector.emit_batch([("a",), ("b",)], inputs)
    collector.ack_batch(inputs)
    assert bench.outbox.masks == {1: BITS[REMOTE], 2: BITS[REMOTE]}


def waiting(*roots: int) -> TreeTuples:
    """Return tuples as a queue hands them out; an edge id is 1000 more than its root."""
    count = len(roots)
    edges = [root + 1000 if root else 0 for root in roots]
    return TreeTuples([(SOURCE, count)], [(number,) for number in range(count)], roots, edges)


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_a_second_ack_of_many(is_looked_at, caplog):
    """W6: a second ack of many is ignored and logged, ever more seldom: a bolt that acks all twice fills no disk. None
    of them is an anchor any more."""
    bench = Bench(LOCAL)
    collector, tuples = bench.bolt(), waiting(7, 0, 7, 8)
    if is_looked_at:
        list(tuples)
    collector.ack_batch(tuples)
    before = (dict(bench.outbox.acks), collector.counts(), collector.acks_told())
    assert before == ({7: 0, 8: 1008}, collector.counts(), 3)
    with caplog.at_level(logging.WARNING, "txtopo.plain"):
        collector.ack_batch(tuples)
    assert (dict(bench.outbox.acks), collector.counts(), collector.acks_told()) == before
    assert [record.message.split("again: ")[1] for record in caplog.records] == [
        f"ignored, {times} so far" for times in (1, 2, 4)
    ]
    with pytest.raises(AnchorError, match="acked or failed before"):
        collector.emit_batch([("a",)], [tuples[1]])
    assert bench.sent() == []


@pytest.mark.parametrize(
    ("rows", "anchors", "stream", "error", "says"),
    [
        ([("a",), ()], None, "default", FieldsError, "has 1 values, for .*; 0 were emitted"),
        (["a"], None, "default", FieldsError, r"write emit\(\['a'\]\)"),
        ([("a",)], None, "nowhere", FieldsError, "there is no stream 'nowhere'"),
        ([("a",)], None, "direct", TopologyError, "name the task by emit_direct"),
        ([("a",)], [], "default", AnchorError, "got 1 rows and 0 anchors"),
        ([("a",)], ["word"], "default", AnchorError, "not a tuple that a bolt of a plain topology received"),
    ],
)
def test_mistakes(rows, anchors, stream, error, says):
    """Rows and anchors that do not fit are refused as by emit; no row of the call is sent, and no edge is left over."""
    bench = Bench(LOCAL, REMOTE)
    given_tuple = received(7)
    with pytest.raises(error, match=says) as raised:
        bench.bolt().emit_batch(rows, given_tuple if anchors is None else anchors, stream)
    assert raised.value.component == "bolt"
    assert bench.sent() == []
    assert given_tuple.edges == 1007


class Numbers(Spout):
    """Emits so many numbers, and takes note of what becomes of them."""

    output_fields = Fields("n", "key")

    def __init__(self, count):
        self.count = count

    def open(self, config, context, collector):
        self.collector, self.left, self.told = collector, list(range(self.count)), []

    def next_tuple(self):
        if self.left:
            number = self.left.pop(0)
            self.collector.emit((number, number % 5), message_id=number)

    def ack(self, message_id):
        self.told.append(("ack", message_id))

    def fail(self, message_id):
        self.told.append(("fail", message_id))


class Alike(RichBolt):
    """Emits each number several times, anchored, unless it fails it."""

    output_fields = Fields("n", "key")
    poison = 7
    """It fails numbers that this divides."""

    def prepare(self, config, context, collector):
        self.collector, self.seen, self.calls = collector, [], []


class OneByOne(Alike):
    def execute(self, tuple):
        self.seen.append(tuple.values)
        if tuple["n"] % self.poison == 0:
            raise FailedException("poison")
        for _ in range(tuple["n"] % 3):
            self.collector.emit(tuple.values, tuple)
        self.collector.ack(tuple)


class Many(Alike):
    def execute_batch(self, tuples):
        self.calls.append((tuples.source_component, len(tuples)))
        self.seen.extend(tuples.values)
        good = [each for each in tuples if each["n"] % self.poison]
        anchors = [each for each in good for _ in range(each["n"] % 3)]
        self.collector.emit_batch([anchor.values for anchor in anchors], anchors)
        self.collector.ack_batch(good)
        if len(good) < len(tuples):
            raise FailedException("poison")


class ManyAsColumns(Many):
    """Emits nothing, and looks at no tuple if none fails: they stay columns."""

    poison = 11

    def execute_batch(self, tuples):
        if any(n % self.poison == 0 for n in tuples.column("n")):
            super().execute_batch(tuples)
            return
        self.seen.extend(tuples.values)
        self.collector.ack_batch(tuples)


class Last(OneByOne):
    poison = 11

    def execute(self, tuple):
        self.seen.append(tuple.values)
        if tuple["n"] % self.poison == 0:
            raise FailedException("poison")
        self.collector.ack(tuple)


class ByNumber(CustomStreamGrouping):
    def prepare(self, context, stream, target_tasks):
        self.tasks = target_tasks

    def choose_tasks(self, source_task, values):
        return self.tasks[: values[0] % 3]


GROUPINGS: dict[str, Callable[[Any, str], Any]] = {
    "shuffle": lambda bolt, source: bolt.shuffle_grouping(source),
    "local or shuffle": lambda bolt, source: bolt.local_or_shuffle_grouping(source),
    "fields": lambda bolt, source: bolt.fields_grouping(source, Fields("key")),
    "partial key": lambda bolt, source: bolt.partial_key_grouping(source, Fields("key")),
    "global": lambda bolt, source: bolt.global_grouping(source),
    "all": lambda bolt, source: bolt.all_grouping(source),
    "custom": lambda bolt, source: bolt.custom_grouping(source, ByNumber()),
}


def topology(count: int, middle: RichBolt, last: RichBolt, first: str, second: str) -> PlainTopology:
    builder = TopologyBuilder("alike")
    builder.set_spout("spout", Numbers(count))
    GROUPINGS[first](builder.set_bolt("middle", middle, 3), "spout")
    GROUPINGS[second](builder.set_bolt("last", last, 2), "middle")
    return builder.build()


def outcome(built: PlainTopology, workers: int, ackers: int | None) -> tuple[Any, ...]:
    alone = Alone(built, {"topology.acker.executors": ackers}, workers)
    alone.activate()
    alone.run(500)
    spouts = alone.objects["spout"]
    statuses = [worker.status() for worker in alone.workers]
    executed: Counter[str] = Counter()
    for status in statuses:
        for component, counts in status.counts:
            executed[component, "executed"] += counts.executed
            executed[component, "acked"] += counts.acked
            executed[component, "failed"] += counts.failed
            executed[component, "transferred"] += counts.transferred
    assert [worker.pending() for worker in alone.workers] == [0] * workers
    return (
        Counter(told for spout in spouts for told in spout.told),
        Counter(("middle", each) for bolt in alone.objects["middle"] for each in bolt.seen),
        Counter(("last", each) for bolt in alone.objects["last"] for each in bolt.seen),
        executed,
        sum((status.latencies.buckets for status in statuses), Counter[int]()),
    )


@settings(max_examples=examples(60), deadline=None)
@given(
    count=st.integers(1, 40),
    first=st.sampled_from(sorted(GROUPINGS)),
    second=st.sampled_from(sorted(GROUPINGS)),
    workers=st.integers(1, 3),
    ackers=st.sampled_from([None, 0, 1]),
    many=st.sampled_from([(Many, ManyAsColumns), (Many, Last), (OneByOne, ManyAsColumns)]),
)
def test_topologies_are_alike(count, first, second, workers, ackers, many):
    """By every grouping, with and without ackers: the same tuples, acks, failures, counts and number of latencies."""
    middle, last = many
    one_by_one = outcome(topology(count, OneByOne(), Last(), first, second), workers, ackers)
    assert outcome(topology(count, middle(), last(), first, second), workers, ackers) == one_by_one


class Breaks(Many):
    """Acks half of its tuples, then fails or breaks."""

    def __init__(self, error):
        self.error = error

    def execute_batch(self, tuples):
        self.calls.append(len(tuples))
        self.collector.ack_batch(tuples[: len(tuples) // 2])
        raise self.error


def test_an_error_in_the_middle():
    """What was acked before a FailedException stays acked, all else fails; another error names task and batch."""
    found = {}
    for error in (FailedException("half of it"), ValueError("broken")):
        builder = TopologyBuilder("breaks")
        builder.set_spout("spout", Numbers(9))
        builder.set_bolt("bolt", Breaks(error)).shuffle_grouping("spout")
        alone = Alone(builder.build())
        alone.activate()
        if isinstance(error, ValueError):
            with pytest.raises(UserCodeError, match=r"task \d+, \d+ tuples of 'spout': .*broken"):
                alone.run()
            continue
        alone.run()
        (bolt,), (spout,) = alone.objects["bolt"], alone.objects["spout"]
        found = Counter(kind for kind, _ in spout.told)
        assert found == {
            "ack": sum(call // 2 for call in bolt.calls),
            "fail": sum(-(-call // 2) for call in bolt.calls),
        }
        assert sorted(number for _, number in spout.told) == list(range(9))


class Ticked(Many):
    def component_configuration(self):
        return {"topology.tick.tuple.freq.secs": 10}

    def execute_batch(self, tuples: Tuples) -> None:
        self.calls.append((tuples.source_component, len(tuples)))
        self.collector.ack_batch(tuples)


def test_a_tick_comes_alone():
    """Ticks and tuples never share a call."""
    builder = TopologyBuilder("ticked")
    builder.set_spout("spout", Numbers(3))
    builder.set_bolt("bolt", Ticked()).shuffle_grouping("spout")
    alone = Alone(builder.build())
    alone.activate()
    alone.run(1)
    alone.clock.now = 10.0
    alone.run()
    (bolt,) = alone.objects["bolt"]
    calls = Counter[str]()
    for component, count in bolt.calls:
        calls[component] += count
    assert calls == {"spout": 3, "__system": 1}


class Neither(RichBolt):
    pass


class OverridesExecute(Many):
    def execute(self, tuple):
        self.calls.append(("alone", 1))
        self.collector.ack(tuple)


def test_which_method_is_called():
    """The most derived class decides; a bolt that has neither method is refused by name."""
    builder = TopologyBuilder("which")
    builder.set_spout("spout", Numbers(3))
    builder.set_bolt("bolt", OverridesExecute()).shuffle_grouping("spout")
    alone = Alone(builder.build())
    alone.activate()
    alone.run()
    (bolt,) = alone.objects["bolt"]
    assert bolt.calls == [("alone", 1)] * 3
    builder.set_bolt("neither", Neither()).shuffle_grouping("spout")
    with pytest.raises(TopologyError, match=r"'neither': .* has neither execute\(\) nor execute_batch\(\)"):
        builder.build()


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(20))
def test_waiting_columns_keep_their_order(seed):
    """Whatever is put, spilled and taken when: tuples come back in their order, each once, with its root and edge."""
    rng = random.Random(seed)
    queue, expected, found = TaskQueue([SOURCE, SOURCE]), list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for _ in range(40):
        columns = Columns(rng.randrange(2), 5)
        for _ in range(rng.choice([1, 3, 5_000]) if rng.random() < 0.6 else 0):
            number = len(expected)
            columns.values.append((number,))
            columns.roots.append(number)
            columns.edges.append(number + 1)
            expected.append((columns.source, (number,), number, number + 1))
        if columns.values:
            queue.put(columns)
        if rng.random() < 0.3:
            queue.spill()
        if rng.random() < 0.4:
            found += rows_of(queue.take(EXECUTED_AT_ONCE_MAX))
    while queue:
        taken = rows_of(queue.take(EXECUTED_AT_ONCE_MAX))
        assert 0 < len(taken) <= EXECUTED_AT_ONCE_MAX
        found += taken
    assert found == expected
    assert (len(queue), queue.memory_bytes(), queue.file_bytes) == (0, 0, 0)
    queue.close()


def rows_of(taken: Sequence[Columns]) -> list[tuple[Any, ...]]:
    for each in taken:
        each.fill()
    return [(each.source, *row) for each in taken for row in zip(each.values, each.roots, each.edges, strict=True)]
