"""Choosing: which tasks get a tuple, for each grouping (T-SHUFFLE, T-SHUFFLE2, T-PKG, T-FIELD, T-CUSTOM)."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from decimal import Decimal

import pytest

from tests.plain.topologies import Take, Words
from txtopo import CustomStreamGrouping, Fields, TopologyBuilder
from txtopo.api.components.groupings import Grouping, GroupingKind
from txtopo.errors import TopologyError
from txtopo.plain.tasks.context import PlainTaskContext
from txtopo.plain.tasks.offload import Offloading
from txtopo.topology.plans import groupings
from txtopo.topology.plans.groupings import chooser
from txtopo.topology.plans.plan import Edge

FIELDS = Fields("word", "n")


def context() -> PlainTaskContext:
    builder = TopologyBuilder("topology")
    builder.set_spout("spout", Words())
    builder.set_bolt("bolt", Take(), 6).shuffle_grouping("spout")
    plan = builder.build().plan
    return PlainTaskContext(plan, plan.by_id["spout"], 1, {}, [], Offloading(), nullcontext)


def choose(
    grouping: Grouping, tasks: Sequence[int], local: Sequence[int] = (), seed: int = 0
) -> Callable[[Sequence[object]], Sequence[int]]:
    """Return a function from values to the tasks chosen."""
    edge = Edge(0, "spout", "default", "bolt", grouping)
    choice = chooser(edge, FIELDS, 1, tasks, local, context(), random.Random(seed))
    one, some = choice.one, choice.some
    assert (one is None) != (some is None)
    if one is not None:
        return lambda values: [one(values)]
    assert some is not None
    return some


SHUFFLES = [Grouping(GroupingKind.SHUFFLE), Grouping(GroupingKind.NONE), Grouping(GroupingKind.LOCAL_OR_SHUFFLE)]


@pytest.mark.parametrize("grouping", SHUFFLES, ids=str)
@pytest.mark.parametrize(("tasks", "sends"), [(2, 100_000), (6, 30_000)], ids=["T-SHUFFLE", "T-SHUFFLE2"])
def test_shuffle(grouping, tasks, sends):
    """Each task gets exactly its share, whatever is sent; Storm's bound for two tasks is 49 to 51 %."""
    of = choose(grouping, range(3, 3 + tasks))
    shares = Counter(task for _ in range(sends) for task in of(("a", 1)))
    assert shares == dict.fromkeys(range(3, 3 + tasks), sends // tasks)


def test_shuffle_begins_anywhere():
    """The order of the turns is drawn at random, so that many sources don't all begin with the same task."""
    first = {choose(SHUFFLES[0], range(6), seed=seed)(("a", 1))[0] for seed in range(50)}
    assert first == set(range(6))


def test_local_or_shuffle():
    """Tasks of the same worker get everything, if there are any."""
    of = choose(SHUFFLES[2], range(6), local=[2, 5])
    assert Counter(of(("a", 1))[0] for _ in range(100)) == {2: 50, 5: 50}


@pytest.mark.parametrize("tasks", [[4, 7], [9, 8, 7], [9, 8, 7, 1, 2, 3]], ids=str)
@pytest.mark.parametrize("fields", [Fields("word"), Fields("word", "n")], ids=str)
def test_partial_key(tasks, fields):
    """T-PKG: whatever the key, it has two tasks, never one task twice; the one that was sent less gets the tuple."""
    words = [*(f"word {n}" for n in range(50)), ["unhashable"]]
    grouping = Grouping(GroupingKind.PARTIAL_KEY, fields)
    pairs = []
    for word in words:
        of = choose(grouping, tasks)
        counts = Counter(of((word, 1))[0] for _ in range(100))
        assert sorted(counts.values()) == [50, 50]
        pairs.append(frozenset(counts))
    assert frozenset().union(*pairs) == set(tasks)


@pytest.mark.parametrize(
    "equal",
    [
        (b"key", bytes(bytearray(b"key"))),
        ("key", "key"),
        (1, True, 1.0, Decimal(1)),
        ([1, "a"], [1, "a"]),
    ],
    ids=repr,
)
def test_fields_by_content(equal):
    """T-FIELD: equal keys go to the same task, from any source task and in any process, also unhashable ones."""
    chosen = set()
    for key in equal:
        for seed in range(3):
            of = choose(Grouping(GroupingKind.FIELDS, Fields("word")), range(6), seed=seed)
            chosen.update([*of((key, 1)), *of((key, 2))])
    assert len(chosen) == 1


def test_keys_are_remembered_within_bounds():
    """Some keys are remembered and no long ones; those that are not go where they went before."""
    by_key = groupings.ByKey(lambda key: sum(map(ord, key)), keys_max=8)
    keys = [f"{i}-" * (1 + 100 * (i % 2)) for i in range(100)]
    for _ in range(2):
        assert [by_key[key] for key in keys] == [by_key.decide(key) for key in keys]
        assert 0 < len(by_key) <= 8
        assert all(len(key) < 10 for key in by_key)


class Folded(str):
    """A string that is equal to those that differ only in case."""

    __slots__ = ()

    def __eq__(self, other):
        return self.casefold() == other.casefold()

    def __hash__(self):
        return hash(self.casefold())


def test_a_key_goes_by_its_characters_whatever_came_before():
    """Also one that its class makes equal to another one: a replay, which may begin elsewhere, sends it there too."""
    by_key = groupings.task_by_key(1 << 20)
    keys = [Folded("Word"), Folded("word"), (Folded("WORD"), 1), (Folded("word"), 1)]
    assert [by_key[key] for key in keys] == [by_key.decide(key) for key in keys]


def test_global_and_all():
    """Global is the lowest task, all is every task once."""
    tasks = [7, 4, 9]
    assert choose(Grouping(GroupingKind.GLOBAL), tasks)(("a", 1)) == [4]
    assert list(choose(Grouping(GroupingKind.ALL), tasks)(("a", 1))) == [7, 4, 9]
    assert list(choose(Grouping(GroupingKind.ALL), [7])(("a", 1))) == [7]


def test_custom_that_chooses_a_stranger():
    """A task of another component is refused by name."""

    class Stranger(CustomStreamGrouping):
        def choose_tasks(self, source_task, values):
            return [99]

    of = choose(Grouping(GroupingKind.CUSTOM, custom=Stranger()), [3, 4])
    with pytest.raises(TopologyError, match=r"Stranger chose task 99 of 'bolt', which has the tasks 3, 4"):
        of(("a", 1))
