"""A topology of a join: the rows of a script, split into a left and a right stream."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from committers import AppendCommitter, EventClock, EventTime, IntervalJoin, JoinStream
from spouts import MemoryTransactionalSpout
from state import DeltaRows
from tests.committers.event_time.scripted import SECOND, START, Planned, Script, declared
from txtopo import BasicBolt, Config, Fields, RunReport, TransactionalTopology, TransactionalTopologyBuilder, run
from txtopo.testing.inline import run_inline

SCRIPTED = Fields("side: string", "at: timestamp", "key: string", "n: long")
UNTYPED = Fields("side", "at", "key", "n")

LEFT = Fields("key: string", "at: timestamp", "n: long")
RIGHT = Fields("paid_at: timestamp", "order: string", "n: long")

SIDES = {
    "left": JoinStream("left", key="key", time="at", fields=LEFT),
    "right": JoinStream("right", key="order", time="paid_at", fields=RIGHT, rename={"order": "key", "n": "amount"}),
}


class Only(BasicBolt):
    """Emits the rows of one side."""

    def __init__(self, side: str, is_typed: bool) -> None:
        self.side = side
        fields = LEFT if side == "left" else RIGHT
        self.output_fields = fields.with_attempt() if is_typed else Fields("attempt", *fields.names)

    def execute(self, tuple, collector):
        side, at, key, n = tuple.values[1:]
        if side == self.side:
            collector.emit((tuple.attempt, *((key, at, n) if side == "left" else (at, key, n))))


def run_join(
    root: Path,
    transactions: Sequence[Planned],
    join: IntervalJoin,
    *,
    delays: Mapping[str, Any] = {"left": 0 * SECOND, "right": 0 * SECOND},
    until: int | None = None,
    is_typed: bool = True,
    group: int = 2,
    tasks: int = 2,
    is_ending: bool = True,
) -> RunReport:
    """Run a join over a script, with a table for each of its streams."""
    script = Script(transactions, SCRIPTED if is_typed else UNTYPED)
    builder = TransactionalTopologyBuilder("join", "rows", script)
    sources = {
        "left": EventTime("at", delay=delays["left"]),
        "right": EventTime("paid_at", delay=delays["right"]),
    }
    clock = EventClock("clock", sources=sources, close_at_end=is_ending)
    clocked = builder.set_committer_bolt("clock", clock)
    joining = builder.set_committer_bolt("join", join, tasks).all_grouping("clock")
    for side, key in (("left", "key"), ("right", "order")):
        builder.set_bolt(side, Only(side, is_typed)).shuffle_grouping("rows")
        clocked.global_grouping(side)
        joining.fields_grouping(side, Fields(key))
    builder.set_state("clock", clock.state(root / "clock"))
    builder.set_state("open", join.state(root / "open"))
    for stream, fields in declared(join).items():
        builder.set_committer_bolt(f"to-{stream}", AppendCommitter(stream)).shuffle_grouping("join", stream)
        builder.set_state(stream, DeltaRows(root / stream, fields))
    config = Config(max_spout_pending=4, group_transactions_max=group)
    return run_inline(builder.build(), config, until=until, wall_secs=script.wall_secs)


def bought(output: Path, *, is_joined: bool = True, near: int = 10) -> TransactionalTopology:
    """Orders of one spout, kept as they are and joined with payments of another, some of which nobody waits for."""
    sides = {side: Fields("id: long", "at: timestamp", f"{side}: long") for side in ("left", "right")}
    rows = {
        "left": [(n % 7, START + n * SECOND, n) for n in range(60)],
        "right": [(n % 5, START + (n * 13 % 60) * SECOND, n) for n in range(60)],
    }
    spouts = {side: MemoryTransactionalSpout(rows[side], sides[side], 5) for side in sides}
    builder = TransactionalTopologyBuilder("bought", "left", spouts["left"])
    builder.add_spout("right", spouts["right"])
    clock = EventClock("clock", time="at", delay=30 * SECOND, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("left").global_grouping("right")
    builder.set_state("clock", clock.state(output / "clock"))
    builder.set_committer_bolt("orders", AppendCommitter("orders")).shuffle_grouping("left")
    builder.set_state("orders", DeltaRows(output / "orders", sides["left"]))
    if is_joined:
        left = JoinStream("left", key="id", time="at", fields=sides["left"])
        right = JoinStream("right", key="id", time="at", fields=sides["right"], rename={"at": "right_at"})
        interval = {"lower": -3 * SECOND, "upper": near * SECOND}
        join = IntervalJoin("open", clock="clock", left=left, right=right, how="full", **interval)
        joining = builder.set_committer_bolt("join", join, 2).all_grouping("clock")
        joining.fields_grouping("left", Fields("id")).fields_grouping("right", Fields("id"))
        builder.set_state("open", join.state(output / "open"))
        builder.set_committer_bolt("joined", AppendCommitter("joined")).shuffle_grouping("join")
        builder.set_state("joined", DeltaRows(output / "joined", join.joined()))
    return builder.build()


if __name__ == "__main__":
    small = {"topology.max.spout.pending": 3, "topology.group.transactions.max": 2}
    run(bought(Path(sys.argv[1])), Config({"topology.processing.mode": sys.argv[2], **small}))
