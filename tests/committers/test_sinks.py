"""Sinks of plain topologies: what is acked is in the table, and a replay of an upsert changes nothing."""

import datetime as dt
import itertools
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from committers import DeltaAppendBolt, DeltaUpsertBolt
from txtopo import Fields, RichBolt, TopologyBuilder
from txtopo.errors import ConfigError
from txtopo.testing.feeders import AckFailMapTracker, FeederSpout
from txtopo.testing.inline_cluster import InlineCluster, InlineTopology

KEY, VALUE = Fields("page: string"), Fields("hits: long", "at: long")


@pytest.fixture
def cluster() -> Iterator[InlineCluster]:
    """A cluster of two workers."""
    with InlineCluster() as running:
        yield running


def rows(path: Path) -> list[tuple[object, ...]]:
    """Return the rows of a table, sorted."""
    table = pa.table(DeltaTable(str(path)).scan())
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


@attrs.define(eq=False)
class Sending:
    """A feeder and a sink that run; tuples are numbered as they are fed."""

    feeder: FeederSpout
    tracker: AckFailMapTracker
    running: InlineTopology
    fed: int = 0

    def feed(self, *tuples: Any) -> None:
        for values in tuples:
            self.feeder.feed(values, self.fed)
            self.fed += 1

    def settled(self, acked: Any = (), failed: Any = ()) -> None:
        """See that these were acked, and that those failed."""
        self.tracker.assert_acked(*acked)
        self.tracker.assert_failed(*failed)

    def error(self) -> str:
        """Return the only error that was reported; it ended no worker."""
        (error,) = {status.last_error for status in self.running.statuses() if status.last_error}
        assert self.running.errors == []
        return error


def sending(cluster: InlineCluster, sink: RichBolt, tasks: int = 1) -> Sending:
    """Let a topology run that feeds a sink with page, hits and at."""
    tracker = AckFailMapTracker()
    feeder = FeederSpout(Fields("page", "hits", "at"), tracker)
    builder = TopologyBuilder("sink")
    builder.set_spout("feeder", feeder)
    builder.set_bolt("sink", sink, tasks).fields_grouping("feeder", Fields("page"))
    return Sending(feeder, tracker, cluster.submit(builder.build()))


def upsert(path: Path, rows_max: int, key: Fields = KEY, value: Fields = VALUE) -> DeltaUpsertBolt:
    return DeltaUpsertBolt(str(path), key, value, version="at", rows_max=rows_max)


def test_acked_when_it_is_durable(cluster: InlineCluster, tmp_path: Path) -> None:
    """A tuple is acked after the write that a tick begins, and its row is in the table then."""
    sink = DeltaAppendBolt(tmp_path / "hits", KEY + VALUE, flush_secs=5.0)  # type: ignore[arg-type]
    sent = sending(cluster, sink)
    sent.feed(("a", 1, 10))
    sent.running.tracked_wait()
    assert not sent.tracker.acked
    assert not (tmp_path / "hits").exists()
    cluster.advance_time(5.0)
    sent.settled(acked=[0])
    assert rows(tmp_path / "hits") == [("a", 1, 10)]


def test_size_bounds(cluster: InlineCluster, tmp_path: Path) -> None:
    """So many rows, or so many bytes, are written at once, without a tick."""
    sent = sending(cluster, DeltaAppendBolt(str(tmp_path / "hits"), KEY + VALUE, rows_max=3, bytes_max=1_000))
    sent.feed(("a", 0, 0), ("a", 1, 0), ("a", 2, 0))
    sent.settled(acked=[0, 1, 2])
    sent.feed(("b" * 1_000, 3, 0))
    sent.settled(acked=[3])
    sent.running.tracked_wait()
    sent.feed(("c" * 600, 4, 0))
    sent.running.tracked_wait()
    assert not sent.tracker.is_acked(4), "what was written before does not count"
    sent.feed(("d" * 600, 5, 0))
    sent.settled(acked=[4, 5])


NAN = float("nan")
EAST = dt.timezone(dt.timedelta(hours=14))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("long", 1, 2**70),
        ("long", 1, 1.5),
        pytest.param("long", 1, 10**5000, id="long-1-5000 digits"),
        ("byte", 1, 300),
        ("string", "a", "a\ud800"),
        ("string", "a", b"a"),
        ("string", "a", 1),
        ("binary", b"a", "a"),
        ("boolean", True, 1),
        ("double", 0.5, "0.5"),
        ("float", 0.5, 1e300),
        ("decimal(4,2)", Decimal("1.5"), Decimal("123.45")),
        ("decimal(4,2)", Decimal("1.5"), Decimal("1.234")),
        ("decimal(4,2)", Decimal("1.5"), Decimal("NaN")),
        ("date", dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)),
        ("date", dt.date(2020, 1, 1), 2**30),
        ("timestamp", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=EAST)),
        ("timestamp", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), 2**62),
        ("array<long>", [1], [1, 2**70]),
        ("array<string>", ["a"], [["a"]]),
        ("map<string,long>", {"a": 1}, {None: 1}),
        ("struct<a: long>", {"a": 1}, {"a": "one"}),
    ],
)
@pytest.mark.parametrize("is_upsert", [True, False])
def test_bad_value(cluster: InlineCluster, tmp_path: Path, is_upsert: bool, kind: str, good: Any, bad: Any) -> None:
    """A value that does not fit its field fails its own tuple, whatever is wrong; the others are written and acked."""
    value = Fields(f"hits: {kind}", "at: long")
    sink: RichBolt = DeltaAppendBolt(str(tmp_path / "hits"), KEY + value, rows_max=4)
    if is_upsert:
        sink = upsert(tmp_path / "hits", 4, value=value)
    sent = sending(cluster, sink)
    sent.feed(*((f"page {number}", each, number) for number, each in enumerate([good, bad, bad, None])))
    sent.settled(acked=[0, 3], failed=[1, 2])
    assert [row[0] for row in rows(tmp_path / "hits")] == ["page 0", "page 3"]
    error = sent.error()
    assert "field 'hits: " in error
    assert "does not fit the table" in error
    assert "2 of the batch failed for it" in error
    assert sum(status.reported_errors for status in sent.running.statuses()) == 1


@pytest.mark.parametrize("kind", ["double", "float"])
def test_number_that_is_none(cluster: InlineCluster, tmp_path: Path, kind: str) -> None:
    """NaN as a key or version fails its tuple: it neither equals nor follows anything. As another value it is fine."""
    key, value = Fields(f"page: {kind}"), Fields(f"hits: {kind}", f"at: {kind}")
    sent = sending(cluster, upsert(tmp_path / "pages", 4, key, value))
    sent.feed((1.0, NAN, 1.0), (NAN, 2.0, 1.0), (3.0, 3.0, NAN), (4.0, 4.0, 1.0))
    sent.settled(acked=[0, 3], failed=[1, 2])
    assert [row[0] for row in rows(tmp_path / "pages")] == [1.0, 4.0]


def test_negative_zero_is_zero(cluster: InlineCluster, tmp_path: Path) -> None:
    """0.0 and -0.0 are one key, in a batch and in the table."""
    sent = sending(cluster, upsert(tmp_path / "pages", 2, Fields("page: double")))
    sent.feed((0.0, 0, 1), (-0.0, 1, 2), (-0.0, 2, 3), (0.0, 3, 4))
    sent.settled(acked=range(4))
    assert rows(tmp_path / "pages") == [(0.0, 3, 4)]


@pytest.mark.few(4)
@pytest.mark.parametrize("rows_max", [1, 3])
@pytest.mark.parametrize("order", list(itertools.permutations([None, 7, 8])))
def test_null_versions(cluster: InlineCluster, tmp_path: Path, order: tuple[int | None, ...], rows_max: int) -> None:
    """A tuple without a version is older than every one that has one, whichever comes first."""
    sent = sending(cluster, upsert(tmp_path / "pages", rows_max))
    sent.feed(*(("a", version or -1, version) for version in order))
    sent.settled(acked=range(3))
    assert rows(tmp_path / "pages") == [("a", 8, 8)]


def test_version_that_somebody_else_wrote(cluster: InlineCluster, tmp_path: Path) -> None:
    """A version that is NaN in the table gives way to every number."""
    write_deltalake(str(tmp_path / "pages"), pa.table({"page": ["a"], "hits": [1], "at": [NAN]}))
    sent = sending(cluster, upsert(tmp_path / "pages", 1, value=Fields("hits: long", "at: double")))
    sent.feed(("a", 2, 1.0))
    sent.settled(acked=[0])
    assert rows(tmp_path / "pages") == [("a", 2, 1.0)]


@pytest.mark.slow
@pytest.mark.parametrize("is_upsert", [True, False])
def test_table_refuses_a_value(cluster: InlineCluster, tmp_path: Path, is_upsert: bool) -> None:
    """A tuple that only the table refuses, because a column is not null or narrower, or for a constraint, fails alone."""
    fields = [pa.field("page", pa.string(), nullable=False), pa.field("hits", pa.int32()), pa.field("at", pa.int64())]
    DeltaTable.create(str(tmp_path / "hits"), pa.schema(fields)).alter.add_constraint({"late": "at > 0"})
    sink: RichBolt = DeltaAppendBolt(str(tmp_path / "hits"), KEY + VALUE, rows_max=20)
    if is_upsert:
        sink = upsert(tmp_path / "hits", 20)
    sent = sending(cluster, sink)
    bad = {3: (None, 1, 1), 8: ("c", 2**40, 1), 15: ("d", 1, -1)}
    good = {number: (f"page {number:02}", number, 1) for number in range(20) if number not in bad}
    sent.feed(*(({**good, **bad})[number] for number in range(20)))
    sent.settled(acked=good, failed=bad)
    assert rows(tmp_path / "hits") == list(good.values())
    assert sum(status.reported_errors for status in sent.running.statuses()) == 2
    assert sent.running.errors == []


def test_streams_in_another_order(cluster: InlineCluster, tmp_path: Path) -> None:
    """Values are taken by their names, also if two streams have them in another order; one without them fails."""
    tracker = AckFailMapTracker()
    feeders = {
        "hits": FeederSpout(Fields("page", "hits", "at"), tracker),
        "turned": FeederSpout(Fields("at", "hits", "page"), tracker),
        "bare": FeederSpout(Fields("page"), tracker),
    }
    builder = TopologyBuilder("sink")
    sink = builder.set_bolt("sink", DeltaAppendBolt(str(tmp_path / "hits"), KEY + VALUE, rows_max=3))
    for name, feeder in feeders.items():
        builder.set_spout(name, feeder)
        sink.shuffle_grouping(name)
    cluster.submit(builder.build())
    feeders["hits"].feed(["a", 1, 2], "hits")
    feeders["bare"].feed(["a"], "bare")
    feeders["turned"].feed([3, 4, "b"], "turned")
    tracker.assert_acked("hits", "turned")
    tracker.assert_failed("bare")
    assert rows(tmp_path / "hits") == [("a", 1, 2), ("b", 4, 3)]


def test_what_is_left_at_the_end(cluster: InlineCluster, tmp_path: Path) -> None:
    """It is written before the bolt goes, although nobody asks for it any more, and a tuple beside it does not fit."""
    sent = sending(cluster, DeltaAppendBolt(str(tmp_path / "hits"), KEY + VALUE))
    sent.feed(("a", 2**70, 0), ("a", 1, 10))
    sent.running.tracked_wait()
    sent.running.stop(wait_secs=0)
    assert rows(tmp_path / "hits") == [("a", 1, 10)]


def test_write_that_fails(cluster: InlineCluster, tmp_path: Path) -> None:
    """If a write fails, the roots of its tuples fail, and the worker lives."""
    (tmp_path / "hits").write_text("this is no folder")
    sent = sending(cluster, DeltaAppendBolt(str(tmp_path / "hits"), KEY + VALUE, rows_max=1))
    sent.feed(("a", 1, 0))
    sent.settled(failed=[0])
    assert sent.running.errors == []


def test_upsert(cluster: InlineCluster, tmp_path: Path) -> None:
    """The highest version of a key stays, in whatever order versions come; a replay changes nothing."""
    sent = sending(cluster, upsert(tmp_path / "pages", 4))
    sent.feed(("a", 1, 10), ("a", 2, 30), ("a", 3, 20), ("b", 4, 10))
    sent.settled(acked=range(4))
    assert rows(tmp_path / "pages") == [("a", 2, 30), ("b", 4, 10)]
    sent.feed(("a", 9, 30), ("b", 5, 11), ("b", 8, 9), (None, 1, 1))
    sent.settled(acked=range(4, 8))
    assert rows(tmp_path / "pages") == [("a", 2, 30), ("b", 5, 11), (None, 1, 1)]


def test_upsert_of_equals(cluster: InlineCluster, tmp_path: Path) -> None:
    """Of equal versions the first one stays, within a write too; a key without a value is a key as any other."""
    sent = sending(cluster, upsert(tmp_path / "pages", 3))
    sent.feed(("a", 1, 10), ("a", 2, 10), (None, 3, 1), (None, 4, 2), (None, 5, 2), ("a", 6, 9))
    sent.settled(acked=range(6))
    assert rows(tmp_path / "pages") == [("a", 1, 10), (None, 4, 2)]


@pytest.mark.slow
def test_upsert_by_several_tasks(cluster: InlineCluster, tmp_path: Path) -> None:
    """Tasks that write to one table at a time try again when they meet."""
    write_deltalake(str(tmp_path / "pages"), pa.table({"page": ["x"], "hits": [1], "at": [1]}))
    sent = sending(cluster, upsert(tmp_path / "pages", 5), tasks=4)
    sent.feed(*((f"page {number % 20}", number, number) for number in range(100)))
    cluster.advance_time(1.0)
    sent.settled(acked=range(100))
    assert len(rows(tmp_path / "pages")) == 21


def test_mistakes() -> None:
    """Fields without types, bounds of nothing and unknown versions are refused when the sink is made."""
    with pytest.raises(ConfigError, match="has no type; write it as 'page: string'"):
        DeltaAppendBolt("t", Fields("page"))
    with pytest.raises(ConfigError, match="must be above 0"):
        DeltaAppendBolt("t", KEY, rows_max=0)
    with pytest.raises(ConfigError, match="no value field 'when'"):
        DeltaUpsertBolt("t", KEY, VALUE, version="when")
    for key, value in [("page: array<long>", "at: long"), ("page: string", "at: struct<a:long>")]:
        with pytest.raises(ConfigError, match="is a key or version, which must be a single value"):
            DeltaUpsertBolt("t", Fields(key), Fields(value), version="at")
