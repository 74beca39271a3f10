"""EventClock: a wrong declaration is told with what to do, and gives no wrong watermark."""

from __future__ import annotations

import datetime as dt

import pytest

from committers import EventClock
from spouts import MemoryTransactionalSpout
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.errors import FieldsError, TopologyError
from txtopo.testing.inline import run_inline

ROWS = [(dt.datetime(2026, 3, 1, tzinfo=dt.UTC),)]


@pytest.mark.parametrize("fields", ["at: timestamp", "at"])
@pytest.mark.parametrize(
    ("time", "tasks", "error", "said"),
    [
        ("at", 2, TopologyError, r"one task, not 2; declare it with parallelism 1"),
        ("time", 1, FieldsError, r"'time'; (its|the) fields are .*at"),
    ],
)
def test_a_wrong_declaration(time, tasks, error, said, fields, tmp_path):
    """Several tasks would each move the watermark; a field that does not exist is named beside those that do."""
    builder = TransactionalTopologyBuilder("clocked", "rows", MemoryTransactionalSpout(ROWS, Fields(fields), 1))
    clock = EventClock("clock", time=time, delay=dt.timedelta())
    builder.set_committer_bolt("clock", clock, tasks).shuffle_grouping("rows")
    builder.set_state("clock", clock.state(tmp_path / "clock"))
    with pytest.raises(error, match=said):
        run_inline(builder.build())
