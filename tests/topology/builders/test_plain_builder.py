"""The builder of plain topologies: build() finds a mistake of each kind; test_builder has those that both builders find."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from spouts.memory import MemoryTransactionalSpout
from tests.bolts import Take
from tests.plain.topologies import Pass, Words
from txtopo import Fields, RichBolt, Spout, TopologyBuilder, TransactionalTopologyBuilder
from txtopo.errors import TopologyError
from txtopo.topology.plans.plain_plan import PlainKind


class Rich(RichBolt):
    output_fields = Fields("word", "n")

    def execute(self, tuple):
        pass


class Silent(RichBolt):
    def execute(self, tuple):
        pass


class Direct(RichBolt):
    def declare_output_fields(self, declarer):
        declarer.declare(Fields("word"))
        declarer.declare_stream("direct", Fields("word"), direct=True)

    def execute(self, tuple):
        pass


class OwnStream(Words):
    def declare_output_fields(self, declarer):
        declarer.declare_stream("__mine", Fields("word"))


class BadFields(Words):
    output_fields = ("word",)


class OfTransactions(Take):
    output_fields = Fields("attempt", "word")


class StormsNames(Words):
    def nextTuple(self):  # noqa: N802 - as in Storm
        pass


class Locked(Words):
    def __init__(self):
        self.lock = threading.Lock()


Mistake = Callable[[TopologyBuilder], Any]


def builder() -> TopologyBuilder:
    made = TopologyBuilder("words")
    made.set_spout("spout", Words())
    return made


def transactional_spout() -> MemoryTransactionalSpout:
    return MemoryTransactionalSpout({0: [["cat"]]}, Fields("word"), 1)


def test_topology_of_the_guide() -> None:
    """Tasks are numbered through the topology; components keep their order, kind, streams and settings."""
    b = builder()
    b.set_spout("other", Words(), 2)
    bolt = b.set_bolt("pass", Pass(), 2).set_num_tasks(4)
    bolt.shuffle_grouping("spout").fields_grouping("other", Fields("word")).add_configuration("my.name", 7)
    b.set_bolt("rich", Rich()).global_grouping("pass")
    topology = b.build()
    plan = topology.plan
    assert topology.id == "words"
    assert [(c.id, c.kind, c.parallelism, c.tasks) for c in plan.components] == [
        ("spout", PlainKind.SPOUT, 1, (1,)),
        ("other", PlainKind.SPOUT, 2, (2, 3)),
        ("pass", PlainKind.BASIC_BOLT, 2, (4, 5, 6, 7)),
        ("rich", PlainKind.RICH_BOLT, 1, (8,)),
    ]
    assert [spout.id for spout in plan.spouts] == ["spout", "other"]
    assert plan.by_id["pass"].configuration == {"my.name": 7}
    assert plan.by_id["rich"].streams == {"default": Fields("word", "n")}
    assert [(edge.source, edge.target) for edge in plan.edges] == [
        ("spout", "pass"),
        ("other", "pass"),
        ("pass", "rich"),
    ]
    assert [edge.target for edge in plan.outputs("spout", "default")] == ["pass"]


def test_cycles_are_allowed() -> None:
    """A bolt may take what comes from below it, or from itself."""
    b = builder()
    b.set_bolt("a", Pass()).shuffle_grouping("spout").shuffle_grouping("b").shuffle_grouping("a")
    b.set_bolt("b", Pass()).shuffle_grouping("a")
    assert len(b.build().plan.edges) == 4


def test_every_grouping() -> None:
    """All groupings of Storm are there, a stream on each."""
    b = builder()
    b.set_bolt("direct", Direct()).shuffle_grouping("spout")
    bolt = b.set_bolt("a", Silent())
    bolt.shuffle_grouping("spout").fields_grouping("spout", Fields("word")).global_grouping("spout")
    bolt.all_grouping("spout").none_grouping("spout").local_or_shuffle_grouping("spout")
    bolt.partial_key_grouping("spout", Fields("word")).direct_grouping("direct", "direct")
    assert len({edge.grouping.kind for edge in b.build().plan.edges}) == 8


def spout(made: object, *parallelism: int, name: str = "a") -> Mistake:
    """Add a spout."""
    return lambda b: b.set_spout(name, made, *parallelism)


def bolt(made: object) -> Mistake:
    """Add a bolt "a" that takes what comes by turns."""
    return lambda b: b.set_bolt("a", made).shuffle_grouping("spout")


def below_direct(b: TopologyBuilder) -> None:
    b.set_bolt("direct", Direct()).shuffle_grouping("spout")
    b.set_bolt("a", Silent()).shuffle_grouping("direct", "direct")


MISTAKES: list[tuple[str, Mistake, list[str]]] = [
    ("bolt's id twice", lambda b: [bolt(Pass())(b), bolt(Pass())(b)], ["'a'", "2 times"]),
    ("empty id", spout(Words(), name=""), ["component id ''", "non-empty"]),
    ("system id", spout(Words(), name="__acker"), ["'__acker'", "begins with '__'"]),
    ("a class as spout", spout(Words), ["'a'", "Words is a class; give an object of it"]),
    ("not a spout", spout(object()), ["'a'", "object is not a spout", "subclass Spout"]),
    ("a spout as bolt", bolt(Words()), ["'a'", "Words is not a bolt", "BasicBolt or RichBolt"]),
    (
        "transactional spout",
        lambda b: b.set_spout("a", transactional_spout()),
        ["'a'", "MemoryTransactionalSpout", "TransactionalTopologyBuilder", "subclass Spout"],
    ),
    (
        "transactional bolt",
        bolt(OfTransactions()),
        ["'a'", "OfTransactions", "TransactionalTopologyBuilder", "BasicBolt or RichBolt"],
    ),
    ("Storm's spelling", spout(StormsNames()), ["'a'", "nextTuple", "next_tuple()"]),
    (
        "does not pickle",
        spout(Locked()),
        ["spout 'a': Locked, attribute 'lock' (lock), does not pickle", "create objects that do not pickle in open()"],
    ),
    (
        "unknown component of a direct grouping",
        lambda b: b.set_bolt("a", Pass()).direct_grouping("spuot", "direct"),
        ["'a'", "'spuot'", "did you mean 'spout'"],
    ),
    ("zero executors", spout(Words(), 0), ["'a'", "parallelism is 0"]),
    ("zero tasks", lambda b: spout(Words())(b).set_num_tasks(0), ["'a'", "number of tasks is 0"]),
    (
        "fewer tasks than executors",
        lambda b: spout(Words(), 4)(b).set_num_tasks(3),
        ["'a' has 3 tasks for a parallelism of 4", "raise set_num_tasks or lower the parallelism"],
    ),
    (
        "direct stream by another grouping",
        below_direct,
        ["'a'", "stream 'direct' of 'direct' is direct; use direct_grouping"],
    ),
    (
        "direct grouping of another stream",
        lambda b: b.set_bolt("a", Silent()).direct_grouping("spout"),
        ["'a'", "stream 'default' of 'spout' is not declared as direct; declare it with direct=True"],
    ),
    ("system stream", spout(OwnStream()), ["'a'", "'__mine'", "begin with '__'"]),
    ("fields that are a tuple", spout(BadFields()), ["'a'", "('word',)", "Fields('name', …)"]),
    (
        "misspelt setting",
        lambda b: spout(Words())(b).add_configuration("topology.max.spout.pendin", 3),
        ["'a'", "topology.max.spout.pendin", "did you mean"],
    ),
]


@pytest.mark.parametrize(("mistake", "says"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_build_refuses(mistake: Mistake, says: list[str]) -> None:
    """Promise 17: build() refuses a mistake with a message that names the component and the remedy."""
    b = builder()
    mistake(b)
    with pytest.raises(TopologyError) as raised:
        b.build()
    for words in says:
        assert words in str(raised.value)
    assert "__system" not in str(raised.value)


def test_no_spout() -> None:
    """A topology without a spout is refused; so is one without anything, and one whose bolt comes first says a spout."""
    b = TopologyBuilder("words")
    with pytest.raises(TopologyError, match="the topology has no spout; add one by set_spout"):
        b.build()
    b.set_bolt("a", Pass()).shuffle_grouping("a")
    with pytest.raises(TopologyError, match="the topology has no spout; add one by set_spout"):
        b.build()
    b.set_bolt("b", Pass())
    b.set_spout("spout", Words())
    with pytest.raises(
        TopologyError, match=r"'b' has no input; add a grouping, for example .shuffle_grouping\('spout'\)"
    ):
        b.build()


@pytest.mark.parametrize("topology_id", ["", "a/b", None, 3])
def test_topology_id(topology_id: str) -> None:
    """An id that can name nothing is refused."""
    b = TopologyBuilder(topology_id)
    b.set_spout("spout", Words())
    with pytest.raises(TopologyError, match="topology id"):
        b.build()


@pytest.mark.parametrize("component", [Words(), Rich()], ids=lambda component: type(component).__name__)
def test_plain_components_in_a_transactional_topology(component) -> None:
    """The other builder says where a component of a plain topology belongs."""
    is_spout = isinstance(component, Spout)
    b = TransactionalTopologyBuilder("words", "spout", component if is_spout else transactional_spout(), 1)
    if not is_spout:
        b.set_bolt("a", component).shuffle_grouping("spout")
    with pytest.raises(TopologyError, match="is for plain topologies, which a TopologyBuilder builds"):
        b.build()
