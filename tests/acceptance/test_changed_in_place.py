"""Whoever changes in place what txtopo hands out, or what it was given, changes nothing that txtopo keeps.

A topology touches every place where values change hands. It runs twice: once as it is, once with everything spoilt
right after it was used. Transactions fail after they have spoilt all they reach, and each group runs a second time.
"""

import copy
import operator
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from committers import ReduceCommitter
from spouts import (
    Coordinator,
    Emitter,
    MemoryTransactionalSpout,
    OpaquePartitionedEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedEmitter,
    PartitionedTransactionalSpout,
)
from state import DeltaState, MemoryState, read_table
from txtopo import (
    BasicBolt,
    BatchBolt,
    Config,
    FailedException,
    Fields,
    ICommitter,
    TransactionalSpout,
    TransactionalTopologyBuilder,
)
from txtopo.api.components.groupings import CustomStreamGrouping
from txtopo.api.values import KEYED_KINDS, StateKind
from txtopo.testing.inline import run_inline

TYPED = Fields(
    "key: string", "tags: array<string>", "counts: map<string, long>", "point: struct<x: long, ys: array<long>>"
)
UNTYPED = Fields("key", "tags", "counts", "point")
CONFIGURED = "my.list"
DATA_PER_BATCH = 2


@attrs.define
class Box:
    """A user's class."""

    content: list[Any]


@attrs.define
class World:
    """What outlives the objects of a run, which are pickled."""

    rows: list[tuple[Any, ...]] = attrs.field(factory=list)
    failing: set[int] = attrs.field(factory=set)
    is_spoiling: bool = False
    reached: list[Any] = attrs.field(factory=list)
    """What users have held on to."""
    metadata: dict[int, Any] = attrs.field(factory=dict)


WORLD = World()


def spoil(*values: Any) -> None:
    """Change everything in place, as deep as it goes, now and once more later on."""
    if WORLD.is_spoiling:
        for value in values:
            _spoil(value)
        WORLD.reached.extend(values)


def _spoil(value: Any) -> None:
    if isinstance(value, list):
        for each in value:
            _spoil(each)
        value.append("spoilt")
    elif isinstance(value, dict):
        for each in value.values():
            _spoil(each)
        value["spoilt"] = 1
    elif isinstance(value, tuple):
        for each in value:
            _spoil(each)
    elif isinstance(value, Box):
        _spoil(value.content)
    elif isinstance(value, bytearray):
        value.extend(b"spoilt")
    elif hasattr(value, "value_before"):
        _spoil(value.value)
        _spoil(getattr(value, "previous", None))


def spoil_again() -> None:
    reached, WORLD.reached = WORLD.reached, []
    for value in reached:
        _spoil(value)


def may_fail(attempt: Any) -> None:
    if attempt.txid in WORLD.failing and attempt.attempt & 0xFFFF == 1:
        raise FailedException("everything is spoilt by now")


def see_metadata(txid: int, metadata: Any) -> None:
    """Every attempt of a transaction gets the same metadata."""
    assert WORLD.metadata.setdefault(txid, copy.deepcopy(metadata)) == metadata
    spoil(metadata)


def emit_rows(attempt: Any, collector: Any, start: int, end: int) -> None:
    for row in WORLD.rows[start:end]:
        values = [attempt, *copy.deepcopy(row)]
        collector.emit(values)
        spoil(values[1:])
        spoil_again()


def end_of(start: int) -> int:
    return min(len(WORLD.rows), start + DATA_PER_BATCH)


class WithFields:
    """A component whose output fields are the attempt and those that it is given."""

    def __init__(self, fields: Fields) -> None:
        self.output_fields = fields.with_attempt()


class RowsCoordinator(Coordinator):
    def __init__(self, config: Any) -> None:
        assert config[CONFIGURED] == [1, [2]]
        spoil(config)
        self.end = 0

    def resume(self, txid, metadata):
        self.end = metadata["range"][1] if metadata else 0
        spoil(metadata)

    def initialize_transaction(self, txid, previous_metadata):
        start = previous_metadata["range"][1] if previous_metadata else 0
        spoil(previous_metadata)
        self.end = end_of(start)
        metadata = {"range": [start, self.end], "more": {"a": [1]}}
        WORLD.reached.append(metadata)
        return metadata

    def is_exhausted(self):
        spoil_again()
        return self.end >= len(WORLD.rows)


class RowsEmitter(Emitter):
    def __init__(self, config: Any) -> None:
        assert config[CONFIGURED] == [1, [2]]
        spoil(config)

    def emit_batch(self, attempt, metadata, collector):
        start, end = metadata["range"]
        see_metadata(attempt.txid, metadata)
        emit_rows(attempt, collector, start, end)


class RowsSpout(WithFields, TransactionalSpout):
    def coordinator(self, config, context):
        return RowsCoordinator(config)

    def emitter(self, config, context):
        return RowsEmitter(config)

    def input_ranges(self, metadata, previous_metadata):
        start, end = metadata["range"]
        assert start == (previous_metadata["range"][1] if previous_metadata else 0)
        spoil(metadata, previous_metadata)
        return {"rows": (start, end)}


class Parts(PartitionedCoordinator):
    def partitions(self):
        return [{"name": ["even", 0]}, {"name": ["odd", 1]}]

    def resume(self, txid, metadata):
        self.ends = {key: taken["range"][1] for key, taken in metadata.items()}
        spoil(metadata)

    def is_exhausted(self):
        spoil_again()
        return len(self.ends) == 2 and all(end >= len(WORLD.rows) for end in self.ends.values())


class PartsEmitter(PartitionedEmitter):
    def emit_new_batch(self, attempt, collector, partition, previous_metadata):
        start = previous_metadata["range"][1] if previous_metadata else 0
        end = end_of(start)
        is_even = partition["name"][1] == 0
        spoil(partition, previous_metadata)
        return {"range": [start, end]} if is_even or attempt.txid % 2 == 0 or end == len(WORLD.rows) else None

    def emit_batch(self, attempt, collector, partition, metadata):
        start, end = metadata["range"]
        if partition["name"][0] == "even":
            emit_rows(attempt, collector, start, end)
        spoil(partition, metadata)


class PartsSpout(WithFields, PartitionedTransactionalSpout):
    def coordinator(self, config, context):
        spoil(config)
        return Parts()

    def emitter(self, config, context):
        spoil(config)
        return PartsEmitter()

    def input_range(self, metadata, previous_metadata):
        start, end = metadata["range"]
        assert start == (previous_metadata["range"][1] if previous_metadata else 0)
        spoil(metadata, previous_metadata)
        return (start, end)


class OpaqueEmitter(OpaquePartitionedEmitter):
    def emit_batch(self, attempt, collector, partition, previous_metadata):
        start = previous_metadata["range"][1] if previous_metadata else 0
        end = end_of(start)
        if partition["name"][0] == "even":
            emit_rows(attempt, collector, start, end)
        metadata = {"range": [start, end]}
        spoil(partition, previous_metadata)
        WORLD.reached.append(metadata)
        return metadata


class OpaqueSpout(WithFields, OpaquePartitionedTransactionalSpout):
    def coordinator(self, config, context):
        return Parts()

    def emitter(self, config, context):
        return OpaqueEmitter()

    def input_ranges(self, metadata, previous_metadata):
        spoil(metadata, previous_metadata)


class Basic(WithFields, BasicBolt):
    """Passes tuples on and spoils them."""

    def prepare(self, config, context):
        assert config[CONFIGURED] == [1, [2]]
        spoil(config)

    def execute(self, tuple, collector):
        values = list(tuple.values)
        collector.emit(values)
        spoil(values[1:])
        spoil_again()


class Late(BatchBolt):
    """Emits what it got when the batch is over, on two streams, and directly."""

    def __init__(self, fields: Fields) -> None:
        self.own_fields = fields.with_attempt()

    def declare_output_fields(self, declarer):
        declarer.declare(self.own_fields)
        declarer.declare_stream("direct", self.own_fields, direct=True)

    def prepare(self, config, context, collector, attempt):
        assert config[CONFIGURED] == [1, [2]]
        spoil(config)
        self.rows = []

    def execute(self, tuple):
        self.rows.append(tuple.values)

    def finish_batch(self):
        for values in self.rows:
            self.collector.emit(values)
            self.collector.emit_direct(0, values, "direct")
        for values in self.rows:
            spoil(values[1:])


class OneTask(CustomStreamGrouping):
    def choose_tasks(self, source_task, values):
        task = len(values[2]) % 2
        spoil(values[1:])
        return [task, 1 - task]


class Keeper(BatchBolt, ICommitter):
    """Uses a state in every way."""

    output_fields = Fields("attempt", "key", "all")

    def __init__(self, state: str, how: str) -> None:
        self.name = state
        self.how = how

    def prepare(self, config, context, collector, attempt):
        spoil(config)
        self.state = context.state(self.name)
        self.tags = defaultdict(list)

    def execute(self, tuple):
        self.tags[tuple["key"]] += tuple["tags"]
        spoil(tuple.values[1:])

    def finish_batch(self):
        keys = sorted(self.tags)
        getattr(self, self.how)()
        spoil(self.tags)
        for key in keys:
            every = self.state.get(key).value
            self.collector.emit((self.attempt, key, every))
            spoil(every)
        spoil_again()
        may_fail(self.attempt)

    def one_by_one(self):
        for key, tags in self.tags.items():
            stored = self.state.get(key)
            new = [*(stored.value if stored else []), *tags]
            spoil(stored)
            self.state.put(key, new)
            spoil(new)
            self.state.put(key, self.state.get(key))

    def many(self):
        keys = list(self.tags)
        stored = self.state.multi_get(keys)
        new = {key: [*(one.value if one else []), *self.tags[key]] for key, one in zip(keys, stored, strict=True)}
        spoil(stored)
        self.state.multi_put(new)
        spoil(new)
        spoil(self.state.multi_get(keys))

    def update(self):
        for key, tags in self.tags.items():
            spoil(self.state.update(key, lambda old, tags=tags: extended(old, tags)))
            spoil(self.state.get(key))

    def multi_update(self):
        def extend(key, old):
            new = [*(old or []), *self.tags[key]]
            spoil(old)
            WORLD.reached.append(new if WORLD.is_spoiling else None)
            return new

        spoil(self.state.multi_update(list(self.tags), extend))

    def multi_reduce(self):
        first = {key: tags[:1] for key, tags in self.tags.items()}
        self.state.multi_reduce(first, operator.iadd)
        spoil(first)
        self.state.multi_reduce({key: tags[1:] for key, tags in self.tags.items()}, joined)

    def remove(self):
        for key, tags in self.tags.items():
            self.state.update(key, lambda old, tags=tags: extended(old, tags))
        gone = "gone"
        self.state.put(gone, [])
        self.state.remove(gone)


def extended(old: Any, more: Any) -> Any:
    """Change a list in place, as many do."""
    old = [] if old is None else old
    old.extend(more)
    return old


def joined(old: Any, new: Any) -> Any:
    made = [*old, *new]
    spoil(old, new)
    return made


class Below(BatchBolt):
    """Keeps, in the commit phase, what committers tell of."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("below")

    def execute(self, tuple):
        every = tuple["all"]
        self.state.update(tuple["key"], lambda old: (old or 0) + len(every))
        spoil(every)

    def finish_batch(self):
        pass


class Points(BatchBolt, ICommitter):
    """Keeps values of several fields."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("points")
        self.rows = []

    def execute(self, tuple):
        self.rows.append(tuple.values)

    def finish_batch(self):
        for _, key, tags, counts, point in self.rows:
            value = [tags, counts, point, 1]  # some give a list where a tuple is meant
            before = self.state.get(key)
            value[3] += before.value[3] if before else 0
            self.state.put(key, value)
            spoil(value, before)
            value[3] = -1


HOWS = ("one_by_one", "many", "update", "multi_update", "multi_reduce", "remove")


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    yield
    WORLD.__init__()


def spout_of(name: str, fields: Fields) -> Any:
    if name == "memory":
        given = copy.deepcopy([list(row) for row in WORLD.rows])
        spout = MemoryTransactionalSpout(given, fields, DATA_PER_BATCH)
        for row in given:  # to add one is to add input
            spoil(row)
        return spout
    return {"rows": RowsSpout, "parts": PartsSpout, "opaque": OpaqueSpout}[name](fields)


def run_once(spout: str, fields: Fields, kind: StateKind, folder: Path | None, is_spoiling: bool) -> dict[str, Any]:
    """Run the topology; return what its states hold."""
    WORLD.is_spoiling = is_spoiling
    WORLD.reached, WORLD.metadata = [], {}
    builder = TransactionalTopologyBuilder("t", "spout", spout_of(spout, fields))
    setting = [1, [2]]
    builder.spout_declarer.add_configuration(CONFIGURED, setting)
    for name, bolt, tasks in (("basic", Basic(fields), 2), ("late", Late(fields), 1)):
        builder.set_bolt(name, bolt, tasks).all_grouping("spout").add_configuration(CONFIGURED, setting)
    setting.append(3)
    states = {}

    def add_state(name: str, value: Fields, typed: bool = fields is TYPED) -> None:
        key = Fields("key: string")
        if folder is not None:
            states[name] = DeltaState(folder / name, key, value, kind)
        elif typed:
            states[name] = MemoryState(key, value, kind)
        else:
            states[name] = MemoryState(Fields("key"), Fields(*value.names), kind)
        builder.set_state(name, states[name])

    for how in HOWS:
        add_state(how, Fields("tags: array<string>"))
        committer = builder.set_committer_bolt(how, Keeper(how, how), 2)
        committer.fields_grouping("spout", Fields("key")).fields_grouping("late", Fields("key"))
        builder.set_bolt(f"below-{how}", Below()).global_grouping(how)
    add_state("below", Fields("n: long"))
    for name in ("iadd-1", "iadd-2"):
        add_state(name, Fields("tags: array<string>"))
        reducer = builder.set_committer_bolt(name, ReduceCommitter(name, "key", "tags", operator.iadd))
        reducer.global_grouping("basic").direct_grouping("late", "direct")
    add_state(
        "points",
        Fields(
            "tags: array<string>", "counts: map<string, long>", "point: struct<x: long, ys: array<long>>", "n: long"
        ),
    )
    builder.set_committer_bolt("points", Points(), 2).custom_grouping("spout", OneTask())
    run_inline(builder.build(), Config(max_spout_pending=5))
    spoil_again()
    if folder is not None:
        return {
            name: sorted(read_table(str(state.path)).drop_columns(["txid"]).to_pylist(), key=str)
            for name, state in states.items()
            if isinstance(state, DeltaState)
        }
    spoil([state.items() for state in states.values()])
    return {name: {key: kept.value for key, kept in state.items().items()} for name, state in states.items()}


def rows() -> list[tuple[Any, ...]]:
    return [(key, [f"{key}{n}"], {"a": n}, {"x": n, "ys": [1, 2]}) for n in range(4) for key in ("x", "y")]


def boxed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    key, tags, counts, point = row
    return key, tags, {**counts, "box": Box([bytearray(b"x")])}, Box([point, (1, [2])])


def check_both(spout: str, fields: Fields, kind: StateKind, folders: tuple[Path, Path] | None = None) -> None:
    WORLD.rows = rows() if fields is TYPED else list(map(boxed, rows()))
    WORLD.failing = {1, 2, 4}
    left, spoilt = folders or (None, None)
    assert run_once(spout, fields, kind, spoilt, True) == run_once(spout, fields, kind, left, False)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("spout", "fields", "kind"),
    [
        *(("rows", TYPED, kind) for kind in KEYED_KINDS),
        *(("memory", UNTYPED, kind) for kind in KEYED_KINDS),
        ("parts", UNTYPED, StateKind.TRANSACTIONAL),
        ("opaque", TYPED, StateKind.OPAQUE),
    ],
    ids=lambda value: value if isinstance(value, str) else value.value if isinstance(value, StateKind) else "",
)
def test_in_memory(spout: str, fields: Fields, kind: StateKind) -> None:
    """A run whose users spoil all they reach comes to what one comes to that leaves everything alone."""
    check_both(spout, fields, kind)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        StateKind.OPAQUE,
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in KEYED_KINDS if kind is not StateKind.OPAQUE),
    ],
    ids=lambda kind: kind.value,
)
def test_in_delta(kind: StateKind, tmp_path: Path) -> None:
    """So it does over Delta tables, whose values come from a cache."""
    check_both("rows", TYPED, kind, (tmp_path / "left", tmp_path / "spoilt"))
