"""A keyed table of another topology as a source: what each commit group changes, as if it had a change data feed."""

import datetime as dt
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings, strategies as st
from polars import col

from committers import ApplyChanges, EventClock, Max, ReduceCommitter, Sum
from spouts import DeltaTransactionalSpout, MemoryTransactionalSpout
from state import DeltaState, read_table
from tests.budgets import examples
from tests.crashes import Crash, run_with_crash
from tests.transactional.recovery.operations.test_going_back import Wall
from txtopo import Config, Fields, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, InputError
from txtopo.streams import Flow
from txtopo.testing import run_inline
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.context import PlainContext

EVENT = Fields("id: long", "name: string", "lsn: long", "deleted: boolean")

KEPT = {"topology.history.recent.secs": 24 * 3600}
"""For a reader that comes later than in 5 minutes: the machine is busy, or its clock was set."""

GROUPS = Config({**KEPT, "topology.group.transactions.max": 2})

Event = tuple[int, str | None]
"""A key and its name; None deletes it."""


def customers(folder: Path, events: Sequence[Event], *, has_vectors: bool = False) -> TransactionalTopology:
    """Keep the customers that events tell of, three in a transaction."""
    rows = [[key, name, number, name is None] for number, (key, name) in enumerate(events)]
    apply = ApplyChanges(
        "customers",
        "gone",
        key=Fields("id: long"),
        values=Fields("name: string"),
        sequence=Fields("lsn: long"),
        deleted="deleted",
    )
    builder = TransactionalTopologyBuilder("customers", "events", MemoryTransactionalSpout(rows, EVENT, 3))
    builder.set_committer_bolt("apply", apply, 2).fields_grouping("events", Fields("id"))
    builder.set_state("customers", apply.state(folder / "customers", deletion_vectors=has_vectors))
    builder.set_state("gone", apply.tombstones(folder / "gone", deletion_vectors=has_vectors))
    return builder.build()


def mirror(folder: Path, table: str = "customers", key: str = "id", **options: Any) -> TransactionalTopology:
    """Apply what changes in a table to another one."""
    flow = Flow("mirror", output=str(folder / "mirror"))
    changes = flow.source("changes", DeltaTransactionalSpout(folder / table, changes="emit", **options))
    changes = changes.filter(col("_change_type") != "update_preimage").drop("txid")
    changes = changes.with_columns(deleted=col("_change_type") == "delete")
    changes.apply_changes("copy", key=key, sequence=["_commit_version", "_change_type"], deleted="deleted")
    return flow.build()


def rows_of(path: Path, names: Sequence[str] = ("id", "name"), **options: Any) -> list[dict[str, Any]]:
    return sorted(read_table(path, **options).select(names).to_pylist(), key=lambda row: row[names[0]])


ROUNDS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["ann", "bob", None])), max_size=12), st.integers(0, 60)
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(20))
@given(rounds=ROUNDS, has_vectors=st.booleans(), files=st.integers(1, 4))
def test_a_copy_of_a_table(rounds: list[tuple[list[Event], int]], has_vectors: bool, files: int) -> None:
    """Whatever changes in a table and whenever it is read, whoever dies: a copy made of its changes is equal to it."""
    with tempfile.TemporaryDirectory() as name:
        folder, events = Path(name), list[Event]()
        run_inline(customers(folder, events, has_vectors=has_vectors))
        for more, at in rounds:
            events += more
            run_inline(customers(folder, events, has_vectors=has_vectors), GROUPS)
            run_with_crash(lambda: mirror(folder, batch_files_max=files), Crash(at))
            run_inline(mirror(folder, batch_files_max=files))
            assert rows_of(folder / "mirror" / "copy") == rows_of(folder / "customers")


NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
CLICK = Fields("user: string", "n: long", "at: timestamp")


def users(folder: Path, minutes: Sequence[int], *, has_vectors: bool) -> TransactionalTopology:
    """Count the clicks of users, who are forgotten ten minutes after their last one."""
    rows = [["abcde"[minute % 5], 1, NOON + dt.timedelta(minutes=minute)] for minute in minutes]
    builder = TransactionalTopologyBuilder("users", "clicks", MemoryTransactionalSpout(rows, CLICK, 1))
    clock = EventClock("clock", time="at", delay=dt.timedelta(0))
    builder.set_committer_bolt("clock", clock).global_grouping("clicks")
    builder.set_state("clock", clock.state(folder / "clock"))
    count = ReduceCommitter("users", "user", values={"n": Sum("n"), "at": Max("at")})
    builder.set_committer_bolt("count", count, 2).fields_grouping("clicks", Fields("user"))
    options = {"ttl": dt.timedelta(minutes=10), "clock": "clock", "deletion_vectors": has_vectors}
    value = Fields("n: long", "at: timestamp")
    builder.set_state(
        "users", DeltaState(folder / "users", Fields("user: string"), value, upkeep_every_writes=3, **options)
    )
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("has_vectors", [False, True])
def test_keys_that_expire(tmp_path: Path, has_vectors: bool) -> None:
    """A key that expires is deleted by the version that says so, also where its file was merged since or is old."""
    minutes = [0, 1, 2, 7, 8, 11, 13, 21, 40, 41, 43, 44, 50, 52, 70, 71, 75]
    for end in (1, 4, 5, 8, 9, 12, len(minutes)):
        run_inline(users(tmp_path, minutes[:end], has_vectors=has_vectors), GROUPS)
        run_inline(mirror(tmp_path, "users", "user"))
        names = ("user", "n", "at")
        assert rows_of(tmp_path / "mirror" / "copy", names) == rows_of(tmp_path / "users", names, live=True)


@pytest.mark.parametrize("has_vectors", [False, True])
def test_snapshots_of_points(tmp_path: Path, has_vectors: bool) -> None:
    """A reader may begin with the rows as of any transaction that ends a group, expired keys left out, and goes on."""
    minutes = [0, 1, 2, 7, 8, 11, 13, 21, 40, 41, 43, 44]
    run_inline(
        users(tmp_path, minutes, has_vectors=has_vectors), Config({**KEPT, "topology.group.transactions.max": 1})
    )
    fields = Fields("user: string", "n: long", "at: timestamp", "_change_type: string")
    for txid in range(1, len(minutes) + 1):
        transactions = steps(tmp_path / "users", fields=fields, as_of_txid=txid, batch_bytes=1)[1]
        found: dict[str, Any] = {}
        expected = {row["user"]: row["n"] for row in rows_of(tmp_path / "users", ("user", "n"), txid=txid)}
        seen = []
        for rows in transactions:
            found |= {user: n for user, n, _, kind in rows if kind in {"insert", "update_postimage"}}
            found = {user: n for user, n in found.items() if user not in {row[0] for row in rows if row[3] == "delete"}}
            seen.append(dict(found))
        live = {row["user"]: row["n"] for row in rows_of(tmp_path / "users", ("user", "n"), live=True)}
        alive = {row["user"]: row["n"] for row in rows_of(tmp_path / "users", ("user", "n"), txid=txid, live=True)}
        assert alive.items() <= expected.items()
        assert (alive in seen, found) == (True, live)


def test_the_nearest_group_before_a_txid_is_named(tmp_path: Path) -> None:
    """Who asks for a transaction amid a group is told the end of the one before, though it is no point."""
    events: list[Event] = [(n, "ann") for n in range(36)]
    run_inline(customers(tmp_path, events), Config(group_transactions_max=3, max_spout_pending=6))

    def refusal(txid: int) -> str:
        spout = DeltaTransactionalSpout(tmp_path / "customers", FED, as_of_txid=txid, changes="emit")
        try:
            spout.coordinator({}, PlainContext()).resume(0, None)
        except ConfigError as refused:
            return str(refused)
        return ""

    refusals = {txid: refusal(txid) for txid in range(1, 13)}
    ends = [txid for txid, refused in refusals.items() if not refused]
    amid = [txid for txid in refusals if ends[0] < txid and txid not in ends]
    assert amid
    for txid in amid:
        assert f"as of {max(end for end in ends if end < txid)} and " in refusals[txid]


def test_a_txid_that_is_no_point(tmp_path: Path) -> None:
    """A transaction amid a group, one that is not there yet, and a table of nobody are refused; the ways on are named."""
    events: list[Event] = [(n, "ann") for n in range(12)]
    run_inline(customers(tmp_path, events[:3]))
    run_inline(customers(tmp_path, events), Config(group_transactions_max=4, max_spout_pending=4))
    table = tmp_path / "customers"
    last = max(row["txid"] for row in rows_of(table, ("txid",)))
    assert last == 4
    with pytest.raises(ConfigError, match="keeps no version that ends with it, but as of 4"):
        steps(table, fields=FED, as_of_txid=9)
    with pytest.raises(ConfigError, match="not both"):
        DeltaTransactionalSpout(table, FED, as_of_txid=1, starting_version=1)
    write_deltalake(str(tmp_path / "plain"), pa.table({"n": [1]}))
    plain = DeltaTransactionalSpout(tmp_path / "plain", Fields("n: long"), as_of_txid=1)
    with pytest.raises(ConfigError, match="is of no topology of txtopo"):
        plain.coordinator({}, PlainContext()).resume(0, None)


def steps(path: Path, begun: Sequence[Any] = (), **options: Any) -> tuple[list[Any], list[list[tuple[Any, ...]]]]:
    """Return the metadata of the transactions that come next, and what is emitted in each."""
    spout = DeltaTransactionalSpout(path, changes="emit", **options)
    coordinator, found = spout.coordinator({}, PlainContext()), list(begun)
    coordinator.resume(len(found), found[-1] if found else None)
    while coordinator.is_ready():
        found.append(coordinator.initialize_transaction(len(found) + 1, found[-1] if found else None))
    return found, [emitted(spout, each) for each in found[len(begun) :]]


def emitted(spout: DeltaTransactionalSpout, metadata: Any) -> list[tuple[Any, ...]]:
    attempt = TransactionAttempt(1, 1)
    collector = RecordingCollector(attempt, spout.output_fields)
    spout.emitter({}, PlainContext()).emit_batch(attempt, metadata, collector)
    return [tuple(values[1:]) for values in collector.tuples]


FED = Fields("id: long", "name: string", "txid: long", "_change_type: string", "_commit_version: long")


@pytest.mark.parametrize("has_vectors", [False, True])
def test_what_a_commit_group_changes(tmp_path: Path, has_vectors: bool) -> None:
    """Each key once, before and after, with the upstream's txid; what only moves to other files does not come."""
    events: list[Event] = [(1, "ann"), (2, "bob"), (3, "cid")]
    run_inline(customers(tmp_path, events, has_vectors=has_vectors))
    table = tmp_path / "customers"
    begun, first = steps(table, fields=FED)
    (version,) = {row[-1] for row in first[0]}
    assert sorted(first[0]) == [(n, name, 1, "insert", version) for n, name in events]
    events += [(1, "ann"), (2, None), (4, "dan"), (4, "eve")]
    run_inline(customers(tmp_path, events, has_vectors=has_vectors), GROUPS)
    _, (changes,) = steps(table, begun, fields=FED)
    assert [row[:4] for row in changes] == [
        (2, "bob", 3, "delete"),
        (1, "ann", 1, "update_preimage"),
        (1, "ann", 2, "update_postimage"),
        (4, "eve", 3, "insert"),
    ]


@pytest.mark.slow
def test_history_that_is_gone(tmp_path: Path) -> None:
    """Who was away for longer than the history is told so, unless the version that was read last is still kept."""
    wall = Wall()
    config = Config(group_transactions_max=1, rewind_hours=1)
    events: list[Event] = [(n % 4, f"v{n}") for n in range(30)]
    run_inline(customers(tmp_path, events[:3]), config, wall_secs=wall)
    table = tmp_path / "customers"
    begun, _ = steps(table, fields=FED)
    run_inline(customers(tmp_path, events), config, wall_secs=wall)
    between = steps(table, begun, fields=FED)[0][:3]
    for _ in range(3):
        wall.secs += 2 * 3600  # beyond the last point that is kept, whatever the hour
        events += [(n % 4, f"w{n}") for n in range(160)]
        run_inline(customers(tmp_path, events), config, wall_secs=wall)
    with pytest.raises(InputError, match=r"from \d+ on are gone .*topology.history.recent.secs.*begin anew"):
        steps(table, between, fields=FED)
