"""ApplyChanges: the table is what sorting all events would make, wherever they are cut, and whatever dies."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from committers import ApplyChanges, EventClock
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import MemoryState, read_table
from tests.budgets import examples
from tests.crashes import Crash, run_inline, run_with_crash
from tests.topologies import committing
from txtopo import Config, Fields, Topology, TransactionalTopologyBuilder, run
from txtopo.api.values import KEYED_KINDS
from txtopo.errors import InputError, TopologyError

KEY, VALUES, SEQUENCE = (
    Fields("id: long"),
    Fields("name: string", "price: decimal(9,2)"),
    Fields("lsn: long", "pos: int"),
)
CHANGE = KEY + VALUES + SEQUENCE + Fields("deleted: boolean")
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.none() | st.sampled_from("abc"),
        st.none() | st.decimals(0, 9, places=2),
        st.integers(0, 4),
        st.integers(0, 1),
        st.sampled_from([None, False, False, True]),
    ),
    min_size=1,
    max_size=16,
)


def applying(**more: Any) -> ApplyChanges:
    """The committer of all tests."""
    arguments = {"key": KEY, "values": VALUES, "sequence": SEQUENCE, "deleted": "deleted"} | more
    return ApplyChanges("rows", "gone", **arguments)


def sorted_out(events: list[Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The rows and the tombstones that are left when all events were sorted; of equal ones the last counts."""
    last: dict[Any, Any] = {}
    for event in sorted(events, key=lambda each: each[3:5]):
        last[event[0]] = event
    rows = {key: tuple(event[1:5]) for key, event in last.items() if not event[5]}
    return rows, {key: tuple(event[3:5]) for key, event in last.items() if event[5]}


def found(folder: Path, name: str, *columns: str) -> dict[Any, Any]:
    """Rows of a table by their key."""
    return {row["id"]: tuple(row[each] for each in columns) for row in read_table(folder / name).to_pylist()}


@pytest.mark.few(1)
@pytest.mark.parametrize("spout", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout])
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), events=EVENTS)
def test_as_if_sorted(spout: Any, data: Any, events: list[Any]) -> None:
    """Events out of order, twice, with equal sequences, deletes before and after: in tables of each kind, with a crash."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    kind, take, tasks = (
        data.draw(st.sampled_from(KEYED_KINDS)),
        data.draw(st.integers(1, 5)),
        data.draw(st.integers(1, 2)),
    )
    config = Config(max_spout_pending=4, group_transactions_max=data.draw(st.integers(1, 3)))
    typed = CHANGE if data.draw(st.booleans()) else Fields(*CHANGE.names)

    def topology() -> Topology:
        tables = {
            "rows": applying().state(folder / "rows", kind=kind),
            "gone": applying().tombstones(folder / "gone", kind=kind),
        }
        return committing(spout({0: events}, typed, take), applying(), tasks, by="id", **tables)

    if not run_with_crash(topology, Crash(data.draw(st.integers(0, 40))), config):
        assert run_with_crash(topology, Crash(), config)
    rows, gone = sorted_out(events)
    assert found(folder, "rows", *VALUES, *SEQUENCE) == rows
    assert found(folder, "gone", *SEQUENCE) == gone
    shutil.rmtree(folder)


def in_memory(events: list[Any], fields: Fields = CHANGE, **more: Any) -> dict[Any, Any]:
    """Apply events, two in each transaction, to a state in memory; return its rows."""
    committer = applying(**more)
    rows, gone = MemoryState(KEY, VALUES + SEQUENCE), MemoryState(KEY, committer.tombstones("unused").value)
    run_inline(committing(MemoryTransactionalSpout({0: events}, fields, 2), committer, by="id", rows=rows, gone=gone))
    return {key: each.value for key, each in rows.items().items()}


def test_unchanged_values() -> None:
    """They stay as the event before left them, in its transaction or an earlier one; without a row there is none."""
    fields = CHANGE + Fields("unchanged: array<string>")
    events = [
        [1, "a", None, 1, 0, False, []],
        [1, None, None, 2, 0, False, ["name"]],
        [1, "b", None, 3, 0, False, None],
        [1, None, None, 4, 0, False, ["name", "other"]],
        [2, None, None, 1, 0, False, ["name"]],
        [1, None, None, 5, 0, False, ["name"]],
        [2, "c", None, 3, 0, True, None],
        [2, None, None, 4, 0, False, ["name"]],
    ]
    assert in_memory(events, fields, unchanged="unchanged") == {1: ("b", None, 5, 0), 2: (None, None, 4, 0)}


def test_one_field_each() -> None:
    """A single sequence, and no deletes."""
    fields = Fields("id: long", "name: string", "lsn: long")
    events = [[1, "a", 2], [1, "b", 1], [1, "c", 2], [2, "d", 5], [2, "e", 4]]
    committer = ApplyChanges("rows", "gone", key=KEY, values=Fields("name: string"), sequence=Fields("lsn: long"))
    rows, gone = MemoryState(KEY, committer.state("unused").value), MemoryState(KEY, Fields("lsn: long"))
    run_inline(committing(MemoryTransactionalSpout({0: events}, fields, 2), committer, by="id", rows=rows, gone=gone))
    assert {key: each.value for key, each in rows.items().items()} == {1: ("c", 2), 2: ("d", 5)}


@pytest.mark.parametrize("field", ["id", "pos"])
def test_nulls_that_order_nothing(field: str) -> None:
    """A null in key or sequence stops the run, by name."""
    event = [None if name == field else 1 if name in {"id", "lsn", "pos"} else None for name in CHANGE]
    with pytest.raises(InputError, match=f"a change whose '{field}' is null"):
        in_memory([event])


def test_fields_that_a_stream_lacks() -> None:
    """They are named when the topology is built."""
    with pytest.raises(TopologyError, match="reads field 'deleted', which 'spout' does not have"):
        committing(MemoryTransactionalSpout({0: []}, CHANGE.subset(CHANGE.names[:-1]), 1), applying(), by="id")


def test_tombstones_are_forgotten(tmp_path: Path) -> None:
    """Until then an older event changes nothing; afterwards it brings its row back."""
    fields = CHANGE + Fields("at: timestamp")

    def event(key: int, lsn: int, minute: int, *, deleted: bool = False) -> list[Any]:
        return [key, "a", None, lsn, 0, deleted, NOON + dt.timedelta(minutes=minute)]

    events = [event(1, 5, 0, deleted=True), event(1, 4, 1), event(2, 1, 30), event(2, 2, 30), event(1, 3, 2)]
    committer = applying(time="at")
    builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout({0: events}, fields, 1))
    clock = EventClock("watermark", time="at", delay=dt.timedelta(minutes=1))
    builder.set_committer_bolt("clock", clock).global_grouping("spout")
    builder.set_committer_bolt("apply", committer).fields_grouping("spout", Fields("id"))
    builder.set_state("watermark", clock.state(tmp_path / "clock"))
    builder.set_state("rows", committer.state(tmp_path / "rows"))
    ttl = {"ttl": dt.timedelta(minutes=10), "clock": "watermark"}
    builder.set_state("gone", committer.tombstones(tmp_path / "gone", **ttl))
    topology = builder.build()
    run_inline(topology, until=2)
    assert found(tmp_path, "rows", "lsn") == {}
    run_inline(topology)
    assert found(tmp_path, "rows", "lsn") == {1: (3,), 2: (2,)}


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_on_spark(tmp_path: Path, spark: Any, mode: str) -> None:
    """Events take part in jobs and in real-time workers, by columns."""
    events = [[n * 7 % 10, str(n), None, n * 3 % 50, 0, n % 5 == 0] for n in range(50)]
    tables = {"rows": applying().state(tmp_path / "rows"), "gone": applying().tombstones(tmp_path / "gone")}
    spout = MemoryTransactionalSpout({0: events}, CHANGE, 8)
    run(committing(spout, applying(), 2, by="id", **tables), Config({"topology.processing.mode": mode}))
    assert found(tmp_path, "rows", *VALUES, *SEQUENCE) == sorted_out(events)[0]
