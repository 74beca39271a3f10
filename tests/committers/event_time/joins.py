"""A topology of a join: the rows of a script, split into a left and a right stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from committers import AppendCommitter, EventClock, EventTime, IntervalJoin, JoinStream
from state import DeltaRows
from tests.committers.event_time.scripted import SECOND, Planned, Script, declared
from txtopo import BasicBolt, Config, Fields, RunReport, TransactionalTopologyBuilder
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
