"""Points of a topology with tables of all kinds: each is gone back to, with everything that belongs to it."""

import datetime as dt
import pathlib
import re
import time

import pytest

from committers import (
    AppendCommitter,
    Count,
    Deduplicate,
    EventClock,
    Max,
    ReduceCommitter,
    ReplaceCommitter,
    Sum,
    Tumbling,
    WindowCommitter,
)
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, DeltaState, StateKind, read_points, read_table, read_tables
from tests.cli.conftest import command_line
from tests.crashes import Crash, survives
from tests.state.delta.delta_tables import scheduled_tables
from tests.variants import variants
from txtopo import BasicBolt, Config, Fields, Topology, TransactionalTopologyBuilder
from txtopo.testing.inline import run_inline

__all__ = ["command_line"]

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
TRANSACTIONS = 26
ROW = Fields("at: timestamp", "key: string", "n: long")
DATA = {
    partition: [
        (START + (at - (at * 7 + partition) % 5) * SECOND, "abcde"[(at * 3 + partition) % 5], at)
        for at in range(TRANSACTIONS)
    ]
    for partition in range(2)
}

MODULE = """
from tests.transactional.recovery.operations.test_going_back import made

def topology(output: str = "out", vectors: bool = False, opaque: bool = False):
    return made(output, vectors=vectors, opaque=opaque)
"""


class Seldom(BasicBolt):
    """Passes on what comes with each seventh transaction."""

    output_fields = Fields("attempt", "key: string", "n: long")

    def execute(self, tuple, collector):
        if tuple["n"] % 7 == 6:
            collector.emit((tuple[0], tuple["key"], tuple["n"]))


def made(output: str, *, vectors: bool, opaque: bool) -> Topology:
    """Return a topology with tables with keys, of rows, that expire, of windows and of a clock; one is written seldom."""
    root = pathlib.Path(output)
    spout = (OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout)(DATA, ROW, 1)
    builder = TransactionalTopologyBuilder("kinds", "rows", spout, 2)
    clock = EventClock("clock", time="at", delay=3 * SECOND)
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(root / "clock"))
    totals = ReduceCommitter("totals", "key", values={"n": Sum("n"), "at": Max("at")})
    builder.set_committer_bolt("sum", totals, 2).fields_grouping("rows", Fields("key"))
    key, layout = Fields("key: string"), {"deletion_vectors": vectors, "upkeep_every_writes": 4, "files_max": 3}
    kind = StateKind.OPAQUE if opaque else StateKind.TRANSACTIONAL
    builder.set_state("totals", DeltaState(root / "totals", key, Fields("n: long", "at: timestamp"), kind, **layout))
    builder.set_committer_bolt(
        "live", ReduceCommitter("living", "key", values={"n": Count(), "at": Max("at")}), 2
    ).fields_grouping("rows", Fields("key"))
    builder.set_state(
        "living",
        DeltaState(root / "living", key, Fields("n: long", "at: timestamp"), ttl=4 * SECOND, clock="clock", **layout),
    )
    unique = Deduplicate("seen", clock="clock", time="at", key="key", within=2 * SECOND, fields=ROW)
    builder.set_committer_bolt("unique", unique, 2).fields_grouping("rows", Fields("key")).all_grouping("clock")
    builder.set_state("seen", unique.state(root / "seen"))
    builder.set_committer_bolt("append", AppendCommitter("first")).shuffle_grouping("unique")
    builder.set_state("first", DeltaRows(root / "first", ROW, upkeep_every_writes=4, files_max=3))
    builder.set_committer_bolt("replace", ReplaceCommitter("parts")).shuffle_grouping("rows")
    builder.set_state("parts", DeltaRows(root / "parts", ROW, partition_by="key", upkeep_every_writes=4))
    windows = WindowCommitter(
        "open", clock="clock", time="at", key=key, window=Tumbling(5 * SECOND), aggregates={"n": Sum("n: long")}
    )
    builder.set_committer_bolt("windows", windows).fields_grouping("rows", Fields("key")).all_grouping("clock")
    builder.set_state("open", windows.state(root / "open"))
    builder.set_committer_bolt("close", AppendCommitter("closed")).shuffle_grouping("windows")
    builder.set_state("closed", DeltaRows(root / "closed", windows.results()))
    builder.set_bolt("seldom", Seldom()).shuffle_grouping("rows")
    builder.set_committer_bolt("seldom-sum", ReduceCommitter("rare", "key", "n")).fields_grouping(
        "seldom", Fields("key")
    )
    builder.set_state("rare", DeltaState(root / "rare", key, Fields("n: long"), **layout))
    return builder.build()


EXPIRING = ("living", "seen", "open")
WALL = "active"
"""A column of the clock's table that tells the time of the wall."""


def view(output: str, txid: int | None = None) -> dict[str, list[str]]:
    """Return the rows of each table, without those that have expired."""
    found = read_tables(output, txid)
    tables = dict(found.tables)
    for name in EXPIRING:
        tables[name] = read_table(pathlib.Path(output, name), found.txid, live=True)
    tables["clock"] = tables["clock"].drop_columns(WALL)
    return {name: sorted(map(str, table.to_pylist())) for name, table in tables.items()}


class Wall:
    """A clock that is ahead, so that all files are old at once, and that goes on each time that somebody looks."""

    def __init__(self):
        self.secs = time.time() + 3600

    def __call__(self):
        self.secs += 18
        return self.secs


def run_over_crashes(make, wall: Wall, crashes: int) -> None:
    """Run to the end; die at so many moments before, each further on than the one before."""
    config = Config(
        {"topology.group.transactions.max": 4, "topology.history.recent.secs": 300, "topology.max.spout.pending": 6}
    )
    run = lambda: run_inline(make(), config, wall_secs=wall)
    for number in range(1, crashes + 1):
        survives(run, Crash(number * 37))
    run()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vectors", "opaque", "step"), variants((True, True, 3), long=[(True, True, 1), (False, False, 1)])
)
def test_all_goes_back_to_each_point(command_line, vectors, opaque, step):
    """At each that is listed tables of all kinds are as they were, read and returned to; what runs again is exact.

    All are read, and each so-many-th is returned to.
    """
    command_line.write_module("kinds", MODULE)
    run_inline(made("control", vectors=False, opaque=opaque), Config(group_transactions_max=1))
    make = lambda: scheduled_tables(made("out", vectors=vectors, opaque=opaque), clean_up_secs=0)
    wall = Wall()
    run_over_crashes(make, wall, crashes=4)
    options = ("--set", f"vectors={vectors}".lower(), "--set", f"opaque={opaque}".lower())
    expected = {}
    points = listed(command_line.told("rewind", "kinds", *options))
    shown = read_points("out")
    assert len(points) > 3
    recent = {*range(shown.since.txid, shown.last.txid + 1)}
    assert {*points} - recent == {point.txid for point in shown.points} - recent
    for txid in (*points, shown.last.txid):
        expected[txid] = view("control", txid)
        assert view("out", txid) == expected[txid], txid
    middle = len(points) // 2
    for txid in reversed(points[middle % step :: step]):
        between = txid + 1 if txid + 1 in range(1, TRANSACTIONS) and txid + 1 not in points else txid
        told = command_line.told("rewind", "kinds", str(between), "--yes", *options)
        assert f"the topology goes back to transaction {txid}, " in told
        assert view("out") == expected[txid], txid
        if txid == points[middle]:
            command_line.told("audit", "out")
            run_over_crashes(make, wall, crashes=2)
            assert view("out") == expected[TRANSACTIONS]
            command_line.told("audit", "out")
            assert [point for point in points if point <= txid] == [
                each for each in listed(command_line.told("rewind", "kinds", *options)) if each <= txid
            ]
            command_line.told("rewind", "kinds", str(txid), "--yes", *options)
    run_over_crashes(make, wall, crashes=0)
    assert view("out") == expected[TRANSACTIONS]
    command_line.told("audit", "out")


def listed(text: str) -> list[int]:
    """Return the transactions in a list of points."""
    return [int(each) for each in re.findall(r"^  (\d+), ", text, re.MULTILINE)]
