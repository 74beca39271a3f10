"""Sinks of plain topologies: what is acked is in the table, and a replay of an upsert changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from committers import DeltaAppendBolt, DeltaUpsertBolt
from txtopo import Fields, PlainTopology, RichBolt, TopologyBuilder
from txtopo.errors import ConfigError
from txtopo.testing.feeders import AckFailMapTracker, FeederSpout
from txtopo.testing.inline_cluster import InlineCluster

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


def topology(feeder: FeederSpout, sink: RichBolt, tasks: int = 1) -> PlainTopology:
    """Return a spout with a sink."""
    builder = TopologyBuilder("sink")
    builder.set_spout("feeder", feeder)
    builder.set_bolt("sink", sink, tasks).fields_grouping("feeder", Fields("page"))
    return builder.build()


def feeder_of(tracker: AckFailMapTracker) -> FeederSpout:
    """Return a spout that emits page, hits and at."""
    return FeederSpout(Fields("page", "hits", "at"), tracker)


def test_acked_when_it_is_durable(cluster: InlineCluster, tmp_path: Path) -> None:
    """A tuple is acked after the write that a tick begins, and its row is in the table then."""
    tracker = AckFailMapTracker()
    feeder = feeder_of(tracker)
    sink = DeltaAppendBolt(tmp_path / "hits", KEY + VALUE, flush_secs=5.0)  # type: ignore[arg-type]
    running = cluster.submit(topology(feeder, sink))
    feeder.feed(["a", 1, 10], "one")
    running.tracked_wait()
    assert not tracker.acked
    assert not (tmp_path / "hits").exists()
    cluster.advance_time(5.0)
    tracker.assert_acked("one")
    assert rows(tmp_path / "hits") == [("a", 1, 10)]


def test_size_bounds(cluster: InlineCluster, tmp_path: Path) -> None:
    """So many rows, or so many bytes, are written at once, without a tick."""
    tracker = AckFailMapTracker()
    feeder = feeder_of(tracker)
    cluster.submit(topology(feeder, DeltaAppendBolt(str(tmp_path / "hits"), KEY + VALUE, rows_max=3, bytes_max=1_000)))
    for number in range(3):
        feeder.feed(["a", number, 0], number)
    tracker.assert_acked(0, 1, 2)
    feeder.feed(["b" * 1_000, 3, 0], 3)
    tracker.assert_acked(3)


def test_value_that_does_not_fit(cluster: InlineCluster, tmp_path: Path) -> None:
    """A tuple that does not fit the table fails alone, and the error is reported."""
    tracker = AckFailMapTracker()
    feeder = feeder_of(tracker)
    sink = DeltaAppendBolt(str(tmp_path / "hits"), KEY + VALUE, rows_max=3)
    running = cluster.submit(topology(feeder, sink))
    for number, hits in enumerate([1, "many", 3]):
        feeder.feed(["a", hits, 0], number)
    tracker.assert_acked(0, 2)
    tracker.assert_failed(1)
    assert rows(tmp_path / "hits") == [("a", 1, 0), ("a", 3, 0)]
    (error,) = {status.last_error for status in running.statuses() if status.last_error}
    assert "does not fit the table" in error


def test_write_that_fails(cluster: InlineCluster, tmp_path: Path) -> None:
    """If a write fails, the roots of its tuples fail, and the worker lives."""
    (tmp_path / "hits").write_text("this is no folder")
    tracker = AckFailMapTracker()
    feeder = feeder_of(tracker)
    sink = DeltaAppendBolt(str(tmp_path / "hits"), KEY + VALUE, rows_max=1)
    running = cluster.submit(topology(feeder, sink))
    feeder.feed(["a", 1, 0], "one")
    tracker.assert_failed("one")
    assert running.errors == []


def test_upsert(cluster: InlineCluster, tmp_path: Path) -> None:
    """The highest version of a key stays, in whatever order versions come; a replay changes nothing."""
    tracker = AckFailMapTracker()
    feeder = feeder_of(tracker)
    sink = DeltaUpsertBolt(str(tmp_path / "pages"), KEY, VALUE, version="at", rows_max=4)
    cluster.submit(topology(feeder, sink))
    for number, values in enumerate([("a", 1, 10), ("a", 2, 30), ("a", 3, 20), ("b", 4, 10)]):
        feeder.feed(values, number)
    tracker.assert_acked(*range(4))
    assert rows(tmp_path / "pages") == [("a", 2, 30), ("b", 4, 10)]
    for number, values in enumerate([("a", 9, 30), ("b", 5, 11), ("b", 8, 9), (None, 1, 1)]):
        feeder.feed(values, number + 4)
    tracker.assert_acked(*range(4, 8))
    assert rows(tmp_path / "pages") == [("a", 2, 30), ("b", 5, 11), (None, 1, 1)]


def test_upsert_of_equals(cluster: InlineCluster, tmp_path: Path) -> None:
    """Of equal versions the first one stays, within a write too; a key without a value is a key as any other."""
    tracker = AckFailMapTracker()
    feeder = feeder_of(tracker)
    sink = DeltaUpsertBolt(str(tmp_path / "pages"), KEY, VALUE, version="at", rows_max=3)
    cluster.submit(topology(feeder, sink))
    for number, values in enumerate(
        [("a", 1, 10), ("a", 2, 10), (None, 3, 1), (None, 4, 2), (None, 5, 2), ("a", 6, 9)]
    ):
        feeder.feed(values, number)
    tracker.assert_acked(*range(6))
    assert rows(tmp_path / "pages") == [("a", 1, 10), (None, 4, 2)]


def test_what_is_left_at_the_end(cluster: InlineCluster, tmp_path: Path) -> None:
    """It is written before the bolt goes, although nobody asks for it any more."""
    tracker = AckFailMapTracker()
    feeder = feeder_of(tracker)
    running = cluster.submit(topology(feeder, DeltaAppendBolt(str(tmp_path / "hits"), KEY + VALUE)))
    feeder.feed(["a", 1, 10], "one")
    running.tracked_wait()
    running.stop(wait_secs=0)
    assert rows(tmp_path / "hits") == [("a", 1, 10)]


def test_upsert_by_several_tasks(cluster: InlineCluster, tmp_path: Path) -> None:
    """Tasks that write to one table at a time try again when they meet."""
    write_deltalake(str(tmp_path / "pages"), pa.table({"page": ["x"], "hits": [1], "at": [1]}))
    tracker = AckFailMapTracker()
    feeder = feeder_of(tracker)
    sink = DeltaUpsertBolt(str(tmp_path / "pages"), KEY, VALUE, version="at", rows_max=5)
    cluster.submit(topology(feeder, sink, tasks=4))
    for number in range(100):
        feeder.feed([f"page {number % 20}", number, number], number)
    cluster.advance_time(1.0)
    tracker.assert_acked(*range(100))
    assert len(rows(tmp_path / "pages")) == 21


def test_mistakes() -> None:
    """Fields without types, bounds of nothing and unknown versions are refused when the sink is made."""
    with pytest.raises(ConfigError, match="has no type; write it as 'page: string'"):
        DeltaAppendBolt("t", Fields("page"))
    with pytest.raises(ConfigError, match="must be above 0"):
        DeltaAppendBolt("t", KEY, rows_max=0)
    with pytest.raises(ConfigError, match="no value field 'when'"):
        DeltaUpsertBolt("t", KEY, VALUE, version="when")
