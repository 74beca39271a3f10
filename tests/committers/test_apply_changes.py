"""ApplyChanges: the table is what sorting all events would make, wherever they are cut, and whatever dies."""

import datetime as dt
import shutil
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from committers import ApplyChanges, EventClock, spill
from committers.spill import SpillLimits
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import MemoryState, read_table
from tests.budgets import examples
from tests.crashes import Crash, run_inline, run_with_crash
from tests.topologies import committing
from txtopo import Config, Fields, RunReport, Topology, TransactionalTopology, TransactionalTopologyBuilder, run
from txtopo.api.values import KEYED_KINDS
from txtopo.api.writes import RowsFile
from txtopo.columnar.rows_file import write_rows_file
from txtopo.errors import ConfigError, InputError, TopologyError
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved

KEY, VALUES, SEQUENCE = (
    Fields("id: long"),
    Fields("name: string", "price: decimal(9,2)"),
    Fields("lsn: long", "pos: int"),
)
CHANGE = KEY + VALUES + SEQUENCE + Fields("deleted: boolean")
MINUTE = dt.timedelta(minutes=1)
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
    return {row["id"]: tuple(row[column] for column in columns) for row in read_table(folder / name).to_pylist()}


@pytest.mark.slow
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


def in_memory(events: list[Any], fields: Fields = CHANGE, take: int = 2, **more: Any) -> dict[Any, Any]:
    """Apply events, so many in each transaction, to a state in memory; return its rows."""
    committer = applying(**more)
    rows, gone = MemoryState(KEY, VALUES + SEQUENCE), MemoryState(KEY, committer.tombstones("unused").value)
    run_inline(
        committing(MemoryTransactionalSpout({0: events}, fields, take), committer, by="id", rows=rows, gone=gone)
    )
    return {key: row.value for key, row in rows.items().items()}


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


def left_as_is(transactions: list[list[Any]]) -> dict[Any, Any]:
    """The rows after transactions whose events may leave fields as they are, applied one by one."""
    known: dict[Any, tuple[Any, Any]] = {}
    for events in transactions:
        for key, name, price, lsn, pos, is_deleted, unchanged in sorted(events, key=lambda each: each[3:5]):
            sequence, values = known.get(key, (None, None))
            if sequence is None or (lsn, pos) >= sequence:
                was = values or (name, price)
                left = [
                    was[at] if field in (unchanged or ()) else own
                    for at, (field, own) in enumerate(zip(VALUES, (name, price), strict=True))
                ]
                known[key] = (lsn, pos), None if is_deleted else tuple(left)
    return {key: values + sequence for key, (sequence, values) in known.items() if values is not None}


@pytest.mark.few(1)
@settings(max_examples=examples(40), deadline=None)
@given(
    events=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.none() | st.sampled_from("abc"),
            st.none() | st.decimals(0, 9, places=2),
            st.integers(0, 4),
            st.integers(0, 1),
            st.sampled_from([None, False, False, True]),
            st.none() | st.lists(st.sampled_from(["name", "price", None, "other"]), max_size=2),
        ),
        max_size=16,
    ),
    take=st.integers(1, 6),
    is_delta=st.booleans(),
)
def test_as_if_applied_one_by_one(events: list[Any], take: int, *, is_delta: bool) -> None:
    """Events that leave fields as they are, several of a key in a transaction, beside deletes, old and equal ones."""
    fields = CHANGE + Fields("unchanged: array<string>")
    transactions = [events[at : at + take] for at in range(0, len(events), take)]
    if not is_delta:
        assert in_memory(events, fields, take=take, unchanged="unchanged") == left_as_is(transactions)
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path, committer = Path(folder), applying(unchanged="unchanged")
        tables = {"rows": committer.state(path / "rows"), "gone": committer.tombstones(path / "gone")}
        spout = MemoryTransactionalSpout({0: events}, fields, take)
        run_inline(committing(spout, committer, by="id", **tables))
        assert found(path, "rows", *VALUES, *SEQUENCE) == left_as_is(transactions)


@pytest.mark.parametrize("more", [{}, {"unchanged": "unchanged"}], ids=["latest", "all"])
def test_many_events_are_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    """Through a file come the same ones, in the same order where sequences are equal."""
    written: list[RowsFile] = []
    monkeypatch.setattr(spill, "write_rows_file", lambda *given: written.append(write_rows_file(*given)) or written[-1])
    events = [[n % 5, "abcde"[n * 3 % 5], None, n * 7 % 4, 0, n % 6 == 0, None] for n in range(60)]
    fields, committer = CHANGE + Fields("unchanged: array<string>"), applying(**more)
    committer.spill_limits = SpillLimits(file_rows=1, rows_reduced=1)
    tables = {"rows": committer.state(tmp_path / "rows"), "gone": committer.tombstones(tmp_path / "gone")}
    spout = MemoryTransactionalSpout({0: events}, fields, 25)
    run_inline(committing(spout, committer, 2, by="id", **tables), Config())
    assert (found(tmp_path, "rows", *VALUES, *SEQUENCE), found(tmp_path, "gone", *SEQUENCE)) == sorted_out(events)
    assert written


def test_one_field_each() -> None:
    """A single sequence, and no deletes."""
    fields = Fields("id: long", "name: string", "lsn: long")
    events = [[1, "a", 2], [1, "b", 1], [1, "c", 2], [2, "d", 5], [2, "e", 4]]
    committer = ApplyChanges("rows", "gone", key=KEY, values=Fields("name: string"), sequence=Fields("lsn: long"))
    rows, gone = MemoryState(KEY, committer.state("unused").value), MemoryState(KEY, Fields("lsn: long"))
    run_inline(committing(MemoryTransactionalSpout({0: events}, fields, 2), committer, by="id", rows=rows, gone=gone))
    assert {key: row.value for key, row in rows.items().items()} == {1: ("c", 2), 2: ("d", 5)}


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


@pytest.mark.slow
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


@pytest.mark.parametrize("take", [1, 2, 4])
def test_a_sequence_that_is_no_number(take: int) -> None:
    """NaN is larger than all numbers and equal to itself, in a transaction and over several, as it is in Spark."""
    nan, sequence = float("nan"), Fields("version: double")
    committer = ApplyChanges("rows", "gone", key=KEY, values=Fields("name: string"), sequence=sequence)
    rows, gone = MemoryState(KEY, Fields("name: string") + sequence), MemoryState(KEY, sequence)
    events = [[1, "a", 5.0], [1, "b", nan], [1, "c", 6.0], [1, "d", nan], [2, "a", nan], [2, "b", -nan], [2, "c", 0.0]]
    spout = MemoryTransactionalSpout({0: events}, KEY + Fields("name: string") + sequence, take)
    run_inline(committing(spout, committer, by="id", rows=rows, gone=gone))
    assert {key: row.value[0] for key, row in rows.items().items()} == {1: "d", 2: "b"}


HISTORY = CHANGE + Fields("at: timestamp")
TIMED_EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.none() | st.sampled_from("ab"),
        st.none() | st.just(Decimal(1)),
        st.integers(0, 4),
        st.integers(0, 1),
        st.sampled_from([None, False, False, True]),
        st.integers(0, 9).map(lambda minute: NOON + minute * MINUTE),
    ),
    min_size=1,
    max_size=16,
)


def versions_of(events: list[Any], take: int) -> dict[Any, Any]:
    """The history by key, sequence and repeat: all events sorted, each valid until the next; so many are in a transaction."""
    came: dict[Any, dict[Any, Any]] = {}
    for txid, start in enumerate(range(0, len(events), take), 1):
        last = {(event[0], event[3:5]): event for event in events[start : start + take]}
        for (key, sequence), event in last.items():
            of_key = came.setdefault(key, {})
            content = (None if event[5] else event[1:3], event[6])
            equal = [version for version in of_key if version[0] == sequence]
            before = of_key[max(equal)] if equal else None
            if before is None or (before != content and (before[0], content[0]) != (None, None)):  # deleted once
                of_key[sequence, txid] = content
    expected = {}
    for key, of_key in came.items():
        for sequence, txid in of_key:
            values, time = of_key[sequence, txid]
            later = sorted(each for each in of_key if each > (sequence, txid))
            if values is not None:
                valid_to = of_key[later[0]][1] if later else None
                to_txid = max(txid, min(each[1] for each in later)) if later else None
                repeat = sum(each[0] == sequence and each[1] < txid for each in of_key)
                expected[(key, *sequence, repeat)] = (*values, time, valid_to, txid, to_txid)
    return expected


def rows_as_of(folder: Path, txid: int) -> dict[Any, Any]:
    """The rows of the table after a transaction, as the history tells them."""
    rows = [
        (version[0], (*row[:2], *version[1:3]))
        for version, row in versions_in(folder).items()
        if row[-2] <= txid and (row[-1] is None or row[-1] > txid)
    ]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def with_history(**more: Any) -> ApplyChanges:
    return applying(time="at", history="versions", **more)


def without_history(folder: Path, events: list[Any]) -> Topology:
    """The topology before it had a history."""
    committer = applying(time="at")
    tables = {"rows": committer.state(folder / "rows"), "gone": committer.tombstones(folder / "gone")}
    return committing(MemoryTransactionalSpout({0: events}, HISTORY, 1), committer, by="id", **tables)


def keep_history(
    folder: Path, events: list[Any], fields: Fields = HISTORY, config: Any = None, take: int = 1, **more: Any
) -> RunReport:
    """Apply events, so many in each transaction, to tables with a history."""
    committer = with_history(**more)
    tables = {
        "rows": committer.state(folder / "rows"),
        "gone": committer.tombstones(folder / "gone", schema_evolution="add"),
        "versions": committer.history(folder / "versions"),
    }
    return run_inline(
        committing(MemoryTransactionalSpout({0: events}, fields, take), committer, by="id", **tables), config
    )


def versions_in(folder: Path) -> dict[Any, Any]:
    """The history in a folder, by key, sequence and how many of an equal one came before."""
    columns = [*VALUES, "valid_from", "valid_to", "from_txid", "to_txid"]
    return {
        tuple(row[each] for each in (*KEY, *SEQUENCE, "repeat")): tuple(row[column] for column in columns)
        for row in read_table(folder / "versions").to_pylist()
    }


@pytest.mark.slow
@pytest.mark.parametrize("spout", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), events=TIMED_EVENTS)
def test_the_history_as_if_sorted(spout: Any, data: Any, events: list[Any]) -> None:
    """Whatever the order, each version is valid until the next; in tables of each kind, with a crash, by two tasks."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    kind, take = data.draw(st.sampled_from(KEYED_KINDS)), data.draw(st.integers(1, 5))
    tasks = data.draw(st.integers(1, 2))
    config = Config(max_spout_pending=4, group_transactions_max=data.draw(st.integers(1, 3)))

    def topology() -> Topology:
        committer = with_history()
        tables = {
            "rows": committer.state(folder / "rows", kind=kind),
            "gone": committer.tombstones(folder / "gone", kind=kind),
            "versions": committer.history(folder / "versions", kind=kind),
        }
        return committing(spout({0: events}, HISTORY, take), committer, tasks, by="id", **tables)

    if not run_with_crash(topology, Crash(data.draw(st.integers(0, 40))), config):
        assert run_with_crash(topology, Crash(), config)
    assert found(folder, "rows", *VALUES, *SEQUENCE) == sorted_out(events)[0]
    assert versions_in(folder) == versions_of(events, take)
    for txid in range(len(events) // take + 2):
        assert rows_as_of(folder, txid) == sorted_out(events[: txid * take])[0]
    shutil.rmtree(folder)


def test_a_version_that_comes_late(tmp_path: Path) -> None:
    """It takes its place between two others, and was never the row of its key; a delete ends a version, too."""
    events = [
        (1, "a", None, 10, 0, False, NOON),
        (1, "c", None, 30, 0, False, NOON + 30 * MINUTE),
        (1, "b", None, 20, 0, False, NOON + 20 * MINUTE),
        (1, None, None, 40, 0, True, NOON + 40 * MINUTE),
        (1, "c", None, 30, 0, False, NOON + 30 * MINUTE),
    ]
    keep_history(tmp_path, events)
    assert versions_in(tmp_path) == {
        (1, 10, 0, 0): ("a", None, NOON, NOON + 20 * MINUTE, 1, 2),
        (1, 20, 0, 0): ("b", None, NOON + 20 * MINUTE, NOON + 30 * MINUTE, 3, 3),
        (1, 30, 0, 0): ("c", None, NOON + 30 * MINUTE, NOON + 40 * MINUTE, 2, 4),
    }


def test_equal_sequences_of_one_transaction(tmp_path: Path) -> None:
    """The last one counts, so what says in the end what the table has is no version, whatever came with it."""
    events = [(1, name, None, 10, 0, False, NOON) for name in "aaba"]
    keep_history(tmp_path, events, take=2)
    assert versions_in(tmp_path) == versions_of(events, 2) == {(1, 10, 0, 0): ("a", None, NOON, None, 1, None)}


@pytest.mark.slow
def test_equal_sequences_of_two_transactions(tmp_path: Path) -> None:
    """The history says what the table had before the later one came; one that comes again is no version."""
    events = [
        (1, "a", None, 10, 0, False, NOON),
        (1, "b", None, 10, 0, False, NOON),
        (1, "b", None, 10, 0, False, NOON),
        (1, None, None, 10, 0, True, NOON),
        (1, "c", None, 10, 0, False, NOON + MINUTE),
    ]
    keep_history(tmp_path, events)
    assert versions_in(tmp_path) == {
        (1, 10, 0, 0): ("a", None, NOON, NOON, 1, 2),
        (1, 10, 0, 1): ("b", None, NOON, NOON, 2, 4),
        (1, 10, 0, 3): ("c", None, NOON + MINUTE, None, 5, None),
    }
    assert [rows_as_of(tmp_path, txid) for txid in range(6)] == [
        {1: (name, None, 10, 0)} if name else {} for name in (None, "a", "b", "b", None, "c")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("equal", ["a", "ab", "abc", " a", "a b", "a bc b", "a  b", "   ab"])
def test_what_is_remembered_is_forgotten(tmp_path: Path, equal: str) -> None:
    """With a time to live, and whatever equal sequences there were: the next event ends the version that was left."""
    times = [NOON + number * dt.timedelta(seconds=1) for number in range(len(equal))]
    events = [(1, name.strip() or None, None, 10, 0, name == " ", at) for name, at in zip(equal, times, strict=True)]
    events += [(2, "z", None, 1, 0, False, NOON + 60 * MINUTE), (1, "d", None, 20, 0, False, NOON + 61 * MINUTE)]
    forgetting(tmp_path, events)
    assert versions_in(tmp_path) == versions_of(events, 1)


def forgetting(folder: Path, events: list[Any], options: Any = None) -> None:
    """Apply events, one in each transaction, to tables that remember the versions of a key for ten minutes."""
    builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout({0: events}, HISTORY, 1))
    clock = EventClock("watermark", time="at", delay=MINUTE)
    committer = with_history()
    builder.set_committer_bolt("clock", clock).global_grouping("spout")
    builder.set_committer_bolt("apply", committer).fields_grouping("spout", Fields("id"))
    builder.set_state("watermark", clock.state(folder / "clock"))
    own = {"gone": {"ttl": 10 * MINUTE, "clock": "watermark"}, **(options or {})}
    for name, make in (("rows", committer.state), ("gone", committer.tombstones), ("versions", committer.history)):
        builder.set_state(name, make(folder / name, **own.get(name, {})))
    run_inline(builder.build(), {"topology.group.transactions.max": 1})


@pytest.mark.slow
@pytest.mark.parametrize("before", ["a", "ab", " a ", "a b ", "a  b"])
@pytest.mark.parametrize("again", ["a", "c", "cd"])
def test_a_sequence_that_comes_again_after_its_delete_is_forgotten(tmp_path: Path, before: str, again: str) -> None:
    """The history keeps the versions that it had of the sequence, for all that was remembered of them was the delete."""
    times = [NOON + number * dt.timedelta(seconds=1) for number in range(len(before) + len(again))]
    events = [
        (1, name.strip() or None, None, 10, 0, name == " ", at) for name, at in zip(before + again, times, strict=True)
    ]
    events.insert(len(before), (1, None, None, 20, 0, True, NOON + MINUTE))
    events.insert(len(before) + 1, (2, "z", None, 1, 0, False, NOON + 60 * MINUTE))
    forgetting(tmp_path, events)
    rows: dict[Any, Any] = {}
    for txid, (key, name, price, lsn, pos, is_deleted, _) in enumerate(events, 1):
        rows.pop(key, None)
        if not is_deleted:
            rows[key] = (name, price, lsn, pos)
        assert rows_as_of(tmp_path, txid) == rows, versions_in(tmp_path)


def test_an_event_older_than_what_is_remembered(tmp_path: Path) -> None:
    """It has no place, counts as too old and changes no table; one among the versions that are remembered has."""
    events = [(1, str(lsn), None, lsn, 0, False, NOON + lsn * MINUTE) for lsn in (1, 3, 5, 7, 4, 6)]
    report = keep_history(tmp_path, events, versions_max=2)
    assert [(lsn, row[0]) for (_, lsn, *_), row in sorted(versions_in(tmp_path).items())] == [
        (1, "1"),
        (3, "3"),
        (5, "5"),
        (6, "6"),
        (7, "7"),
    ]
    assert versions_in(tmp_path)[1, 5, 0, 0][3] == NOON + 6 * MINUTE
    assert [reading.value for reading in report.readings if reading.name == "too_old"] == [1]
    assert found(tmp_path, "rows", "name") == {1: ("7",)}


def test_a_history_that_begins_later(tmp_path: Path) -> None:
    """A row that was there before is a version of unknown begin, once the next one ends it; not if it comes again."""
    events = [(1, "a", None, 10, 0, False, NOON), (2, None, None, 10, 0, True, NOON)]
    run_inline(without_history(tmp_path, events))
    events += [
        (1, "a", None, 10, 0, False, NOON),
        (1, "0", None, 5, 0, False, NOON),
        (1, "b", None, 20, 0, False, NOON + 20 * MINUTE),
        (2, "c", None, 20, 0, False, NOON + 20 * MINUTE),
    ]
    keep_history(tmp_path, events, config={"topology.state.start.empty": "versions=2"})
    assert versions_in(tmp_path) == {
        (1, 10, 0, 0): ("a", None, None, NOON + 20 * MINUTE, 0, 5),
        (1, 20, 0, 0): ("b", None, NOON + 20 * MINUTE, None, 5, None),
        (2, 20, 0, 0): ("c", None, NOON + 20 * MINUTE, None, 6, None),
    }


def test_unchanged_values_in_the_history(tmp_path: Path) -> None:
    """They are those of the version before, also of one that is between two others."""
    events = [
        (1, "a", None, 10, 0, False, NOON, []),
        (1, "c", None, 30, 0, False, NOON, None),
        (1, None, Decimal(1), 20, 0, False, NOON, ["name"]),
    ]
    keep_history(tmp_path, events, HISTORY + Fields("unchanged: array<string>"), unchanged="unchanged")
    names = {sequence[1]: row[:2] for sequence, row in versions_in(tmp_path).items()}
    assert names == {10: ("a", None), 20: ("a", Decimal(1)), 30: ("c", None)}


@pytest.mark.parametrize(("name", "time"), [("rows", "seen"), ("versions", "valid_from")])
def test_rows_that_expire_beside_a_history(tmp_path: Path, name: str, time: str) -> None:
    """A version would never end, or be gone while it is the row of its key: build() refuses both."""
    committer = with_history(values=Fields("seen: timestamp"))
    states = {"rows": committer.state, "gone": committer.tombstones, "versions": committer.history}
    options = {name: {"ttl": MINUTE, "clock": "watermark", "time": time}}
    made = {state: make(tmp_path / state, **options.get(state, {})) for state, make in states.items()}
    spout = MemoryTransactionalSpout([], HISTORY + Fields("seen: timestamp"), 1)
    with pytest.raises(TopologyError, match=f"keeps a history, .*state '{name}' has a ttl"):
        committing(
            spout,
            committer,
            by="id",
            watermark=EventClock("watermark", time="at", delay=MINUTE).state(tmp_path / "w"),
            **made,
        )


@pytest.mark.slow
def test_versions_that_ended_long_ago(tmp_path: Path) -> None:
    """By the time at which they ended, versions go; those that did not end stay."""
    events = [(1, name, None, lsn, 0, False, NOON + lsn * MINUTE) for lsn, name in enumerate("abc")]
    events += [(2, "z", None, 1, 0, False, NOON + 60 * MINUTE), (1, "d", None, 20, 0, False, NOON + 61 * MINUTE)]
    forgetting(tmp_path, events, {"versions": {"ttl": 10 * MINUTE, "clock": "watermark", "time": "valid_to"}})
    live = read_table(tmp_path / "versions", live=True)
    assert sorted(live["name"].to_pylist()) == ["c", "d", "z"]


def test_a_history_needs_times(tmp_path: Path) -> None:
    """Without the field, without a time in an event, and where there is no history, it is refused."""
    with pytest.raises(ConfigError, match="name the field with the time of events: time='at'"):
        applying(history="versions")
    with pytest.raises(ConfigError, match="keeps no history"):
        applying().history("unused")
    with pytest.raises(InputError, match="a change whose 'at' is null"):
        keep_history(tmp_path, [(1, "a", None, 10, 0, False, None)])


MODULE = """
from pathlib import Path
from tests.committers.test_apply_changes import many_changes
topology_with_history = many_changes(Path({folder!r}))
"""


def many_changes(folder: Path) -> Topology:
    """Changes out of order, doubled and deleted, three in a transaction."""
    committer = with_history()
    tables = {
        "rows": committer.state(folder / "rows"),
        "gone": committer.tombstones(folder / "gone"),
        "versions": committer.history(folder / "versions"),
    }
    return committing(MemoryTransactionalSpout({0: MANY}, HISTORY, 3), committer, 2, by="id", **tables)


MANY = [
    (n % 3, str(n), None, n * 7 % 20, 0, n % 5 == 0, NOON + (n * 7 % 20) * MINUTE) for n in (*range(30), *range(10, 20))
]


@pytest.mark.slow
def test_going_back_and_replays_of_a_history(tmp_path: Path, command_line: Any) -> None:
    """A rewind and a fork make the same versions again, a replay of each transaction is the same, the audit agrees."""
    output = tmp_path / "out"
    alone = {"topology.group.transactions.max": 1}
    run_inline(many_changes(output), alone)
    expected = versions_of(MANY, 3)
    assert versions_in(output) == expected
    command_line.write_module("historical", MODULE.format(folder=str(output)))
    module = "historical:topology_with_history"
    for txid in range(1, 15):
        replay = command_line("replay", module, str(txid))
        assert (replay.exit_code, "differs" in replay.output) == (0, False), replay.output
    command_line.told("fork", module, "6", str(tmp_path / "side"))
    plan = moved(many_changes(output).plan, Config(), folder_at(tmp_path / "side"))[0]
    run_inline(TransactionalTopology(plan), {"topology.state.dir": str(tmp_path / "side" / "_txtopo")})
    assert versions_in(tmp_path / "side") == expected
    command_line.told("rewind", module, "5", "--yes")
    assert versions_in(output) == versions_of(MANY[:15], 3)
    run_inline(many_changes(output))
    assert versions_in(output) == expected
    audit = command_line("audit", str(output))
    assert audit.exit_code == 0, audit.output
