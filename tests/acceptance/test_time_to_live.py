"""A topology whose keys expire: each transaction sees the same, whatever the groups, the crashes and the upkeep."""

import datetime as dt
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from committers import AppendCommitter, EventClock, Max, ReduceCommitter, Sum
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, DeltaState, read_table
from tests.budgets import examples
from tests.cli.conftest import command_line
from tests.committers.event_time.oracle import Clock, Row
from tests.crashes import crash_everywhere, run_with_crash
from tests.variants import variants
from txtopo import BatchBolt, Config, Fields, ICommitter, Topology, TransactionalTopologyBuilder
from txtopo.errors import StateAccessError
from txtopo.testing.inline import run_inline

__all__ = ["command_line"]

SECOND = dt.timedelta(seconds=1)
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
TYPED, UNTYPED = Fields("at: timestamp", "key: string", "n: long"), Fields("at", "key", "n")
DELAY, TTL = 3 * SECOND, 10 * SECOND


class Running(BatchBolt, ICommitter):
    """Adds to each key's total one row at a time, and emits the total."""

    output_fields = Fields("attempt", "key: string", "total: long")

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("totals")
        self.rows = []

    def execute(self, tuple):
        self.rows.append(tuple.values[1:4])

    def finish_batch(self):
        for at, key, n in sorted(self.rows, key=lambda row: (row[1], row[2], str(row[0]))):
            total, latest = self.state.update(
                key,
                lambda old, at=at, n=n: (
                    (n, at)
                    if old is None
                    else (old[0] + n, at if old[1] is None or (at is not None and at > old[1]) else old[1])
                ),
            )
            assert latest is None or at is None or latest >= at
            self.collector.emit((self.attempt, key, total))


def built(
    root: Path, transactions: Sequence[Sequence[Row]], fields: Fields = TYPED, *, by_key: bool = False,
    opaque: bool = False, ttl: dt.timedelta = TTL, **options: int,
) -> Topology:  # fmt: skip
    data = dict(enumerate(map(list, zip(*transactions, strict=True))))
    spouts = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    builder = TransactionalTopologyBuilder("living", "rows", spouts(data, fields, 1), 2)
    clock = EventClock("clock", time="at", delay=DELAY)
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(root / "clock"))
    committer = Running() if by_key else ReduceCommitter("totals", "key", values={"n": Sum("n"), "at": Max("at")})
    builder.set_committer_bolt("totals", committer, 2).fields_grouping("rows", Fields("key"))
    value = Fields("n: long", "at: timestamp")
    builder.set_state(
        "totals", DeltaState(root / "totals", Fields("key: string"), value, ttl=ttl, clock="clock", **options)
    )
    if by_key:
        builder.set_committer_bolt("said", AppendCommitter("said")).shuffle_grouping("totals")
        builder.set_state("said", DeltaRows(root / "said", Fields("key: string", "total: long")))
    return builder.build()


def expected(transactions: Sequence[Sequence[Row]]) -> tuple[list[Any], list[Any]]:
    """Return the live rows in the end, and what Running emits, by a plain loop."""
    clock, rows, said = Clock(DELAY), {}, []
    until = START - 1_000 * SECOND
    for txid, own in enumerate(transactions, 1):
        before, _ = clock.move(own)
        until = until if before is None else before - TTL
        for at, key, n in sorted(own, key=lambda row: (row[1], row[2], str(row[0]))):
            old = rows.get(key)
            if old is not None and old[2] < txid and old[1] is not None and old[1] <= until:
                old = None
            total = n + (old[0] if old else 0)
            times = [each for each in (at, old and old[1]) if each is not None]
            rows[key] = (total, max(times, default=None), txid)
            said.append((txid, key, total))
    alive = [(key, n, at) for key, (n, at, _) in rows.items() if at is None or at > until]
    return sorted(alive, key=repr), sorted(said)


def live(root: Path) -> list[tuple[str, int, dt.datetime | None]]:
    found = read_table(root / "totals", live=True).to_pylist()
    return sorted(((row["key"], row["n"], row["at"]) for row in found), key=repr)


def padded(transactions: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Return transactions of equally many rows: a spout takes one of each partition."""
    width = max(map(len, transactions))
    return [[*transaction, *[(None, "pad", 1)] * (width - len(transaction))] for transaction in transactions]


rows = st.tuples(
    st.one_of(st.integers(-5, 60).map(lambda secs: START + secs * SECOND), st.none()),
    st.sampled_from(["a", "b", "c"]),
    st.integers(-5, 5),
)
streams = st.lists(st.lists(rows, min_size=1, max_size=5), min_size=1, max_size=8).map(padded)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    transactions=streams,
    fields=st.sampled_from([TYPED, UNTYPED]),
    by_key=st.booleans(),
    opaque=st.booleans(),
    group=st.integers(1, 8),
)
def test_expired_keys_start_anew(transactions, fields, by_key: bool, opaque: bool, group: int) -> None:
    """By columns and by key, a key counts from the first transaction for which the watermark had not passed it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        root = Path(folder)
        topology = built(root, transactions, fields, by_key=by_key, opaque=opaque, upkeep_every_writes=1)
        run_inline(topology, Config(max_spout_pending=8, group_transactions_max=group))
        alive, said = expected(transactions)
        assert live(root) == alive
        if by_key:
            found = read_table(root / "said").to_pydict()
            assert sorted(zip(found["txid"], found["key"], found["total"], strict=True)) == said


STREAM = padded(
    [
        [(START + (8 * number + offset) * SECOND, key, number + 1) for offset, key in enumerate(keys)]
        for number, keys in enumerate(["abc", "ad", "be", "af", "cd", "abe", "gh", "ac"])
    ]
)
"""Each key comes again after 8 seconds or later, and some in time."""


@pytest.mark.slow
@pytest.mark.parametrize(("by_key", "every"), variants((True, 11), long=[(True, 1), (False, 1)]))
def test_crashes(tmp_path: Path, by_key: bool, every: int, command_line) -> None:
    """A crash anywhere, in upkeep too, changes no live row; the audit explains every version."""
    alive, said = expected(STREAM)
    config = Config(max_spout_pending=6, group_transactions_max=3)
    for crash, output in crash_everywhere(tmp_path, every):

        def make(output: Path = output) -> Topology:
            return built(output, STREAM, by_key=by_key, upkeep_every_writes=1)

        if not run_with_crash(make, crash, config):
            run_inline(make(), config)
        assert live(output) == alive, crash
        if by_key:
            found = read_table(output / "said").to_pydict()
            assert sorted(zip(found["txid"], found["key"], found["total"], strict=True)) == said
        if crash.at % 10 == 1:
            audit = command_line("audit", str(output))
            assert audit.exit_code == 0, audit.stdout


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("by_key", [False, True], ids=["columns", "by key"])
@pytest.mark.parametrize("every", [1, 50])
def test_a_longer_time_to_live_at_a_restart(tmp_path: Path, by_key: bool, every: int, command_line) -> None:
    """What has expired stays so, audit and replay agree; what has not lives longer."""
    output = tmp_path / "out"
    rows = [
        (START + at * SECOND, key, 1) for at, key in [(0, "a"), (60, "b"), (62, "a"), (63, "b"), (99, "b"), (99, "a")]
    ]
    stream, options = [[row] for row in rows], {"by_key": by_key, "upkeep_every_writes": every}
    run_inline(built(output, stream, **options), until=2)  # the watermark is past "a" now, and nobody has touched it
    run_inline(built(output, stream, ttl=dt.timedelta.max, **options))
    assert live(output) == [("a", 2, rows[5][0]), ("b", 3, rows[4][0])]
    audit = command_line("audit", str(output))
    assert audit.exit_code == 0, audit.stdout
    command_line.write_module("longer_topology", LONGER.format(output=str(output), stream=stream, by_key=by_key))
    for txid in range(3, 7):
        replay = command_line("replay", "longer_topology:topology_to_replay", str(txid))
        assert (replay.exit_code, "differs" in replay.stdout) == (0, False), replay.output


@pytest.mark.slow
@pytest.mark.parametrize(("by_key", "every"), variants((False, 37), slow=[(True, 19)], long=[(True, 1), (False, 1)]))
def test_crashes_where_a_longer_time_to_live_begins(tmp_path: Path, by_key: bool, every: int, command_line) -> None:
    """A kill before, in or after the version that records it brings nothing back, whoever goes on."""
    rows = [(START + at * SECOND, key, 1) for at, key in [(0, "a"), (60, "b"), (62, "a"), (63, "b"), (99, "a")]]
    stream = [[row] for row in rows]
    for crash, output in crash_everywhere(tmp_path, every):

        def make(ttl: dt.timedelta = dt.timedelta.max, output: Path = output) -> Topology:
            return built(output, stream, by_key=by_key, ttl=ttl, upkeep_every_writes=1)

        run_inline(make(TTL), until=2)
        if not run_with_crash(make, crash):
            run_inline(make())
        assert live(output) == [("a", 2, rows[4][0]), ("b", 2, rows[3][0])], crash
        audit = command_line("audit", str(output))
        assert audit.exit_code == 0, audit.stdout


LONGER = """
import datetime
from pathlib import Path
from tests.acceptance.test_time_to_live import built
longer = datetime.timedelta.max
topology_to_replay = built(Path({output!r}), {stream!r}, by_key={by_key}, ttl=longer)
"""

MODULE = """
from pathlib import Path
from tests.acceptance.test_time_to_live import STREAM, built
topology_to_replay = built(Path({output!r}), STREAM, by_key={by_key})
"""


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("by_key", [False, True], ids=["columns", "by key"])
@pytest.mark.parametrize("group", [1, 3])
def test_replays(tmp_path: Path, by_key: bool, group: int, command_line) -> None:
    """A replay finds the same keys expired, although upkeep has dropped some."""
    output = tmp_path / "out"
    config = Config(max_spout_pending=6, group_transactions_max=group)
    run_inline(built(output, STREAM, by_key=by_key, upkeep_every_writes=1), config)
    command_line.write_module("living_topology", MODULE.format(output=str(output), by_key=by_key))
    for txid in range(1, len(STREAM) + 1):
        replay = command_line("replay", "living_topology:topology_to_replay", str(txid))
        assert (replay.exit_code, "differs" in replay.stdout) == (0, False), replay.output


class WithoutX(BatchBolt):
    """Leaves out the rows of one key."""

    output_fields = TYPED.with_attempt()

    def prepare(self, config, context, collector, attempt):
        self.collector = collector

    def execute(self, tuple):
        if tuple.values[2] != "x":
            self.collector.emit(tuple.values)

    def finish_batch(self):
        pass


@pytest.mark.parametrize("group_max", [1, 2])
def test_live_keys_within_a_group(tmp_path: Path, group_max: int) -> None:
    """Live keys as of a transaction in a group: those that were, or a refusal if later ones of it let some expire."""
    times = [("a", 0), ("x", 0), ("b", 20), ("c", 0)]
    rows = [[START + secs * SECOND, key, 1] for key, secs in times]
    builder = TransactionalTopologyBuilder("living", "rows", MemoryTransactionalSpout(rows, TYPED, 1))
    clock = EventClock("clock", time="at", delay=DELAY)
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(tmp_path / "clock"))
    builder.set_bolt("some", WithoutX()).shuffle_grouping("rows")
    committer = ReduceCommitter("totals", "key", values={"n": Sum("n"), "at": Max("at")})
    builder.set_committer_bolt("totals", committer).fields_grouping("some", Fields("key"))
    value = Fields("n: long", "at: timestamp")
    builder.set_state("totals", DeltaState(tmp_path / "totals", Fields("key: string"), value, ttl=TTL, clock="clock"))
    run_inline(builder.build(), Config(group_transactions_max=group_max))
    for txid, alive in enumerate((["a"], ["a"], ["a", "b"], ["b"]), 1):
        if txid == group_max + 1 == 3:
            with pytest.raises(StateAccessError, match="no version as of transaction 3"):
                read_table(tmp_path / "totals", txid, live=True)
        else:
            assert sorted(read_table(tmp_path / "totals", txid, live=True)["key"].to_pylist()) == alive
