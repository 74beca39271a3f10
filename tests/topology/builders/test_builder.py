"""The builder: every mistake in a graph is found by build(), named, with its remedy."""

import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import pytest

from committers import (
    ApplyChanges,
    Count,
    EventClock,
    JoinStream,
    ReduceCommitter,
    StreamJoin,
    Tumbling,
    WindowCommitter,
)
from spouts.memory import MemoryTransactionalSpout
from state import DeltaState
from state.memory import MemoryState
from tests.bolts import Pass, PassBatch, Take
from txtopo import (
    ArrowBatchBolt,
    BasicBolt,
    DataFrameBolt,
    Fields,
    ICommitter,
    TransactionalTopologyBuilder,
)
from txtopo.errors import TopologyError
from txtopo.topology.plans.description import shown_class_of
from txtopo.topology.plans.plan import Phase


class TypedBatch(PassBatch):
    output_fields = Fields("attempt", "word: string")


class NoAttempt(Pass):
    output_fields = Fields("word", "n")


class TypedFirst(Pass):
    output_fields = Fields("attempt: string", "n")


class Asks(Take, ICommitter):
    def prepare(self, config, context, collector, attempt):
        self.state = context.state("totals")


class Columns(ArrowBatchBolt):
    def execute(self, batch):
        pass


class Frame(DataFrameBolt):
    output_fields = Fields("attempt", "word: string")

    def transform(self, frame):
        return frame


class OtherTyped(Take):
    output_fields = Fields("attempt", "n: long")


class Several(Take):
    def declare_output_fields(self, declarer):
        declarer.declare(Fields("attempt", "word"))
        declarer.declare_stream("long words", Fields("attempt", "word", "length"))


Builder = TransactionalTopologyBuilder
Mistake = Callable[[Builder], Any]


def builder(spout_fields: Fields | None = None, parallelism: int | None = 1) -> Builder:
    spout = MemoryTransactionalSpout({0: [["cat"]]}, spout_fields or Fields("word"), 1)
    return TransactionalTopologyBuilder("words", "spout", spout, parallelism)


def _cycle(b: Builder) -> None:
    b.set_bolt("a", Pass()).shuffle_grouping("spout").shuffle_grouping("c")
    b.set_bolt("b", Pass()).shuffle_grouping("a")
    b.set_bolt("c", Pass()).shuffle_grouping("b")


def _frame_below(b: Builder) -> None:
    b.set_committer_bolt("a", TypedBatch()).shuffle_grouping("spout")
    b.set_bolt("frame", Frame()).shuffle_grouping("a")


def _frame_of_two(b: Builder) -> None:
    b.set_bolt("a", TypedBatch()).shuffle_grouping("spout")
    b.set_bolt("b", OtherTyped()).shuffle_grouping("spout")
    b.set_bolt("frame", Frame()).shuffle_grouping("a").shuffle_grouping("b")


def takes(bolt: object, *tasks: object, source: str = "spout", stream: str = "default") -> Mistake:
    """Add a bolt "a" that takes what comes by turns."""
    return lambda b: b.set_bolt("a", bolt, *tasks).shuffle_grouping(source, stream)


def twice(add: Mistake) -> Mistake:
    """Do the same two times."""
    return lambda b: [add(b), add(b)]


def _no_output(b: Builder) -> None:
    b.set_bolt("a", Take()).shuffle_grouping("spout")
    b.set_bolt("b", Pass()).shuffle_grouping("a")


STATE = MemoryState(Fields("k"), Fields("v"))
LIVING = DeltaState(
    "out/t", Fields("k: string"), Fields("at: timestamp"), ttl=dt.timedelta(days=1), clock="clock"
)  # its keys expire

MISTAKES: list[tuple[str, Mistake, list[str]]] = [
    ("unknown component", takes(Pass(), source="spuot"), ["'a'", "'spuot'", "did you mean 'spout'"]),
    ("unknown stream", takes(Pass(), stream="side"), ["'a'", "'side'", "'default'"]),
    (
        "unknown field",
        lambda b: b.set_bolt("a", Pass()).fields_grouping("spout", Fields("wrd")),
        ["'a'", "'wrd'", "did you mean 'word'"],
    ),
    ("no keys", lambda b: b.set_bolt("a", Pass()).fields_grouping("spout", Fields()), ["'a'", "names no field"]),
    ("cycle", _cycle, ["cycle", "'a'", "'b'", "'c'"]),
    ("duplicate id", twice(takes(Pass())), ["'a'", "2 times"]),
    ("spout's id again", lambda b: b.set_bolt("spout", Pass()).shuffle_grouping("spout"), ["'spout'", "2 times"]),
    ("no input", lambda b: b.set_bolt("a", Pass()), ["'a'", "no input", "shuffle_grouping('spout')"]),
    ("unset state", takes(Asks()), ["'a'", "'totals'", "set_state"]),
    ("no attempt", takes(NoAttempt()), ["'a'", "attempt", "first"]),
    ("typed attempt", takes(TypedFirst()), ["'a'", "attempt"]),
    ("zero tasks", takes(Pass(), 0), ["'a'", "parallelism", "0"]),
    ("true tasks", takes(Pass(), True), ["'a'", "parallelism", "True"]),
    ("text tasks", takes(Pass(), "3"), ["'a'", "parallelism", "'3'"]),
    ("num tasks", lambda b: takes(Pass())(b).set_num_tasks(-1), ["'a'", "-1"]),
    ("a class", takes(Pass), ["'a'", "class Pass"]),
    ("not a bolt", takes(object()), ["'a'", "BatchBolt"]),
    ("basic committer", lambda b: b.set_committer_bolt("a", Pass()).shuffle_grouping("spout"), ["'a'", "finish_batch"]),
    ("no columns", takes(Columns()), ["'a'", "types"]),
    ("no output", _no_output, ["'b'", "'a'", "output_fields"]),
    ("not a state", lambda b: b.set_state("totals", {}), ["'totals'", "DeltaState"]),
    ("state twice", twice(lambda b: b.set_state("t", STATE)), ["'t'", "2 times"]),
    ("no clock", lambda b: b.set_state("t", LIVING), ["'t'", "'clock'", "EventClock"]),
    (
        "not a clock",
        lambda b: (b.set_state("t", LIVING), b.set_state("clock", STATE)),
        ["'t'", "'clock'", "MemoryState", "watermark: timestamp"],
    ),
    ("custom grouping", lambda b: b.set_bolt("a", Pass()).custom_grouping("spout", len), ["CustomStreamGrouping"]),
    ("frame below a committer", _frame_below, ["'frame'", "committer"]),
    ("frame of two kinds", _frame_of_two, ["'frame'", "different fields"]),
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


@pytest.mark.parametrize("topology_id", ["", "a/b", None])
def test_topology_id_is_checked(topology_id: str) -> None:
    """A topology id that could not name coordinator state is refused."""
    b = TransactionalTopologyBuilder(topology_id, "spout", MemoryTransactionalSpout({0: [["cat"]]}, Fields("word"), 1))
    with pytest.raises(TopologyError, match="topology id"):
        b.build()


def test_all_mistakes_at_once() -> None:
    """Two mistakes of a kind are told of in one error."""
    b = builder()
    b.set_bolt("a", Pass()).shuffle_grouping("nowhere")
    b.set_bolt("b", Pass()).shuffle_grouping("elsewhere")
    with pytest.raises(TopologyError) as raised:
        b.build()
    assert "'nowhere'" in str(raised.value)
    assert "'elsewhere'" in str(raised.value)


def test_phases() -> None:
    """Promise 13: for spout → A → B (committer) → C → D, A works ahead; B, C and D are of the commit phase."""
    b = builder()
    b.set_bolt("D", PassBatch()).shuffle_grouping("C")
    b.set_bolt("C", Pass()).shuffle_grouping("B")
    b.set_committer_bolt("B", PassBatch(), 3).fields_grouping("A", Fields("word"))
    b.set_bolt("A", Pass(), 2).shuffle_grouping("spout")
    plan = b.build().plan
    assert [c.id for c in plan.of_phase(Phase.PROCESSING)] == ["spout", "A"]
    assert [c.id for c in plan.of_phase(Phase.COMMIT)] == ["B", "C", "D"]
    assert [c.tasks for c in plan.components] == [1, 2, 3, 1, 1]


def test_icommitter_is_a_committer() -> None:
    """A bolt marked ICommitter is a committer also when it is added by set_bolt, as in Storm."""
    b = builder()
    b.set_state("totals", MemoryState(Fields("k"), Fields("v")))
    b.set_bolt("a", Asks()).shuffle_grouping("spout")
    assert b.build().plan.by_id["a"].is_committer


@pytest.mark.parametrize("is_committer", [False, True])
def test_a_bolt_that_does_not_pickle(is_committer: bool) -> None:
    """The bolt is named by its id, and the attribute by its name."""
    bolt = Asks() if is_committer else Take()
    bolt.lock = threading.Lock()  # type: ignore[union-attr]
    builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout([], Fields("word"), 1))
    builder.set_bolt("own", bolt).shuffle_grouping("spout")
    with pytest.raises(
        TopologyError, match=r"bolt 'own': .*, attribute 'lock' \(lock\), does not pickle .* in prepare\(\)"
    ):
        builder.build()


def test_several_streams() -> None:
    """A bolt may declare several streams, and another may take one of them by name."""
    b = builder()
    b.set_bolt("a", Several()).shuffle_grouping("spout")
    b.set_bolt("b", Pass()).fields_grouping("a", Fields("length"), "long words")
    plan = b.build().plan
    assert [(edge.source, edge.stream) for edge in plan.inputs("b")] == [("a", "long words")]


@pytest.mark.parametrize(
    ("topology_id", "message"),
    [
        (".", "is the name of a folder already"),
        ("..", "is the name of a folder already"),
        ("n" * 201, "has 201 characters as part of a file's name, at most 200 fit"),
        ("é" * 34, "has 204 characters as part of a file's name, at most 200 fit"),
    ],
)
def test_an_id_is_part_of_the_names_of_files(topology_id, message):
    """An id that can't be is refused before anything runs; the longest that can be is accepted."""
    spout = MemoryTransactionalSpout([("a",)], Fields("word"), 1)
    with pytest.raises(TopologyError, match=message):
        TransactionalTopologyBuilder(topology_id, "spout", spout).build()
    for accepted in ("n" * 200, "é" * 33, "..."):
        TransactionalTopologyBuilder(accepted, "spout", spout).build()


@pytest.mark.parametrize("outer", ["out/a", "out/a/", "./out/../out/a", "s3://bucket/out/a"])
def test_a_table_inside_another_is_refused(outer):
    """A vacuum of the outer table would delete it; one whose name merely begins alike is beside it."""

    def built(inner):
        builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout([("a",)], Fields("word"), 1))
        for name, path in (("inner", inner), ("outer", outer)):
            builder.set_state(name, DeltaState(path, key=Fields("k: string"), value=Fields("n: long")))
        builder.build()

    top = "s3://bucket/out" if "://" in outer else "out"
    for inner in (f"{top}/a/b", f"{top}/a/b/c"):
        with pytest.raises(
            TopologyError, match=r"state 'inner': its table \S+ is inside \S+, the table of state 'outer'"
        ):
            built(inner)
    built(f"{top}/ab")


def test_a_path_that_no_file_can_have():
    """A state of one's own that is there is refused with its name."""

    class Elsewhere(MemoryState):
        """A state at such a path."""

        address = "a\0b"

    builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout([("a",)], Fields("word"), 1))
    builder.set_state("counts", Elsewhere(Fields("k: string"), Fields("n: long")))
    with pytest.raises(TopologyError, match=r"state 'counts': its table can't be at 'a\\x00b': no path has a null"):
        builder.build()


def test_a_table_inside_another_by_a_symbolic_link(tmp_path):
    """What counts is where it really is."""
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout([("a",)], Fields("word"), 1))
    for name, path in (("inner", "link/b"), ("outer", "a")):
        builder.set_state(name, DeltaState(tmp_path / path, key=Fields("k: string"), value=Fields("n: long")))
    with pytest.raises(TopologyError, match=r"state 'inner': its table \S+/link/b is inside \S+/a, the table"):
        builder.build()


class Learns(PassBatch):
    """Has attributes of its own with the names of properties that committers of txtopo have."""

    grouped_by = property(lambda _: None)
    table_mistakes = output_mistakes = "many"

    def __init__(self):
        self.folds, self.verbs = 5, [3, 4]


class Listens(BasicBolt):
    """Has attributes of its own with the names of what batch bolts ask for."""

    output_fields = Fields("attempt", "word")

    def __init__(self):
        self.quiet_after = 5

    def execute(self, tuple, collector):
        """Pass a word on."""

    def at_end(self):
        """Tell something else."""


def test_attributes_that_are_named_as_those_of_other_bolts():
    """They are the user's own, and mean nothing here."""
    builder = TransactionalTopologyBuilder("own", "spout", MemoryTransactionalSpout([], Fields("word", "n"), 1))
    builder.set_bolt("learns", Learns(), 2).shuffle_grouping("spout")
    builder.set_bolt("listens", Listens()).shuffle_grouping("spout")
    plan = builder.build().plan
    assert (plan.folds, plan.quiet_after, plan.at_end) == ({}, None, False)
    assert [shown_class_of(bolt) for bolt in plan.bolts] == ["Learns", "Listens"]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_what_several_committers_fold_into_a_state(order):
    """It is said in the same words, in whatever order they are declared."""
    builder = TransactionalTopologyBuilder("own", "spout", MemoryTransactionalSpout([], Fields("word", "n", "m"), 1))
    several = [
        ReduceCommitter("totals", "word", "n"),
        ReduceCommitter("totals", "word", "m"),
        ReduceCommitter("totals", "word", "n"),
    ]
    for number in order:
        builder.set_committer_bolt(f"sums{number}", several[number]).fields_grouping("spout", Fields("word"))
    builder.set_state("totals", MemoryState())
    assert builder.build().plan.folds == {"totals": {"": "sum of m and sum of n"}}


SIDE = Fields("a: long", "b: long", "at: timestamp", "n: long")


def _two_streams(bolt: Any, *by: str, tasks: int = 2) -> Builder:
    """Two spouts, grouped by the names of fields, or not."""
    builder = Builder("t", "one", MemoryTransactionalSpout([], SIDE, 1))
    builder.add_spout("other", MemoryTransactionalSpout([], SIDE, 1))
    declared = builder.set_committer_bolt("keeps", bolt, tasks)
    for spout, names in zip(("one", "other"), by, strict=True):
        declared.fields_grouping(spout, Fields(*names)) if names else declared.shuffle_grouping(spout)
    return builder


def _joined() -> StreamJoin:
    left, right = (JoinStream(source, key=["a", "b"], fields=SIDE.subset("ab")) for source in ("one", "other"))
    return StreamJoin("lefts", "rights", left=left, right=right)


def _applied() -> ApplyChanges:
    return ApplyChanges("s", "t", key=SIDE.subset("ab"), values=Fields("n: long"), sequence=Fields("at: timestamp"))


SPLIT = {
    "a join by a shuffle": (_joined, ("", "ab"), r"each a, b.*write \.fields_grouping\('one', Fields\('a', 'b'\)\)"),
    "a join by another field": (_joined, ("ab", "n"), r"each a, b.*write \.fields_grouping\('other'"),
    "a join in another order": (_joined, ("ab", "ba"), r"groups 'one' by a, b and 'other' by b, a; "),
    "a join, one stream by the whole key": (_joined, ("a", "ab"), r"groups 'one' by a and 'other' by a, b; "),
    "totals of two streams": (
        lambda: ReduceCommitter("totals", ["a", "b"], "n"),
        ("a", "b"),
        r"keeps something for each a, b.*groups 'one' by a and 'other' by b; ",
    ),
    "changes from two streams": (_applied, ("ab", ""), r"write \.fields_grouping\('other', Fields\('a', 'b'\)\)"),
}


@pytest.mark.parametrize(("make", "by", "says"), SPLIT.values(), ids=SPLIT)
def test_keys_in_several_tasks(make, by, says):
    """Rows that belong together would meet in no task: build() says how to group them."""
    with pytest.raises(TopologyError, match=says):
        _two_streams(make(), *by).build()


def test_a_key_with_a_name_of_the_clock(tmp_path):
    """A clock's stream has no rows of a key, whatever its fields are called: all tasks get it."""
    builder = Builder("t", "rows", MemoryTransactionalSpout([], Fields("limit: long", "at: timestamp"), 1))
    clock = EventClock("clock", time="at", delay=dt.timedelta())
    builder.set_committer_bolt("clock", clock).shuffle_grouping("rows")
    builder.set_state("clock", clock.state(tmp_path / "clock"))
    window = {"window": Tumbling("1m"), "aggregates": {"n": Count()}, "key": Fields("limit: long")}
    counts = WindowCommitter("counts", clock="clock", time="at", **window)
    builder.set_committer_bolt("counts", counts, 2).fields_grouping("rows", Fields("limit")).all_grouping("clock")
    builder.set_state("counts", counts.state(tmp_path / "counts"))
    builder.build()
