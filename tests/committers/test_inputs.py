"""What ready-made committers miss in the streams that they subscribe to is said by ``build()``."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from committers import (
    AppendCommitter,
    Count,
    Deduplicate,
    EventClock,
    Max,
    ReduceCommitter,
    Sum,
    TimerCommitter,
    Tumbling,
    WindowCommitter,
)
from spouts import MemoryTransactionalSpout
from state import DeltaRows
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.errors import ConfigError, TopologyError

MINUTE = dt.timedelta(minutes=1)
ROWS = Fields("user: string", "n: long", "at: timestamp")
USER = Fields("user: string")


class Alerts(TimerCommitter):
    def on_rows(self, key: Any, rows: Any, old: Any) -> Any:
        return None

    def on_timer(self, key: Any, time: dt.datetime, old: Any) -> Any:
        return None


def windows(clock: str = "clock", of: str = "n", time: str = "at", late_rows: Fields | None = None) -> WindowCommitter:
    return WindowCommitter(
        "s",
        clock=clock,
        time=time,
        key=USER,
        window=Tumbling(MINUTE),
        aggregates={"n": Sum(f"{of}: long")},
        late_rows=late_rows,
    )


KNOWN = "'rows' does not have; known: 'attempt', 'user', 'n', 'at'"


@pytest.mark.parametrize(
    ("committer", "clock", "message"),
    [
        (windows("clok"), "clock", "bolt 'own' has the clock 'clok', but subscribes to 'clock'; write clock='clock'"),
        (windows(), "", "bolt 'own' has the clock 'clock'; give an EventClock that id, and subscribe to it by"),
        (windows(of="m"), "clock", f"bolt 'own' reads field 'm', which {KNOWN}"),
        (windows(time="time"), "clock", f"bolt 'own' reads field 'time', which {KNOWN}"),
        (Alerts("v", "s", clock="clok", key=USER), "clock", "write clock='clock'"),
        (Alerts("v", "s", clock="clock", key=Fields("who: string")), "clock", f"reads field 'who', which {KNOWN}"),
        (ReduceCommitter("s", "user", values={"n": Max("m: long")}), "", f"reads field 'm', which {KNOWN}"),
        (ReduceCommitter("s", "who", values={"n": Count()}), "", f"reads field 'who', which {KNOWN}"),
        (ReduceCommitter("s", "user", "m"), "", f"reads field 'm', which {KNOWN}"),
        (EventClock("clock", time="time", delay=MINUTE), "", f"reads field 'time', which {KNOWN}"),
        (EventClock("clock", time="at", delay=MINUTE, partition="p"), "", f"reads field 'p', which {KNOWN}"),
        (
            Deduplicate("s", clock="clock", time="at", key="user", within=MINUTE, fields=ROWS + Fields("m: int")),
            "clock",
            f"reads field 'm', which {KNOWN}",
        ),
    ],
)
def test_refused(committer: Any, clock: str, message: str) -> None:
    """A clock that is another one or missing, and fields that a stream lacks."""
    builder = TransactionalTopologyBuilder("inputs", "rows", MemoryTransactionalSpout([], ROWS, 1))
    bolt = builder.set_committer_bolt("own", committer).shuffle_grouping("rows")
    if clock:
        builder.set_committer_bolt(clock, EventClock("times", time="at", delay=MINUTE)).global_grouping("rows")
        bolt.all_grouping(clock)
    with pytest.raises(TopologyError) as refusal:
        builder.build()
    assert message in str(refusal.value)


PRICE = Fields("n: long")


@pytest.mark.parametrize(
    ("stream", "late_rows", "fields", "told"),
    [
        ("default", None, None, ""),
        ("late", None, None, ""),
        (
            "untimed",
            None,
            None,
            "puts user, n of stream 'untimed' of 'windows', Fields('user: string', 'n: bigint'), into",
        ),
        ("late", PRICE, ["n", "window_start", "window_end"], "puts n, window_start, window_end of stream 'late' of"),
        ("late", PRICE, ["n", "window_start", "window_end", "n"], "puts n, window_start, window_end, n of stream"),
        ("late", ROWS, ["user", "window_start", "window_end", "n"], ""),
        ("late", PRICE, ["n", "user"], "reads field 'user', which stream 'late' of 'windows' does not have"),
    ],
)
def test_the_table_of_a_stream(tmp_path: Path, stream: str, late_rows: Any, fields: Any, told: str) -> None:
    """A table whose columns are not those of the stream that is put there is refused with stream, table and columns."""
    builder = TransactionalTopologyBuilder("inputs", "rows", MemoryTransactionalSpout([], ROWS, 1))
    clock, own = EventClock("times", time="at", delay=MINUTE), windows(late_rows=late_rows)
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("times", clock.state(tmp_path / "times"))
    builder.set_committer_bolt("windows", own).shuffle_grouping("rows").all_grouping("clock")
    builder.set_state("s", own.state(tmp_path / "s"))
    builder.set_committer_bolt("put", AppendCommitter("table", fields)).shuffle_grouping("windows", stream)
    builder.set_state("table", DeltaRows(tmp_path / "table", own.results()))
    if not told:
        builder.build()
        return
    with pytest.raises(TopologyError) as refusal:
        builder.build()
    assert f"bolt 'put' {told}" in str(refusal.value)
    table = f"state 'table', whose table has {own.results()}; declare the table with the fields of the stream"
    assert told.startswith("reads") or table in str(refusal.value)


class Counting(ReduceCommitter):
    def execute(self, tuple: Any) -> None:
        self.fold(tuple["user"], 1)


def test_a_subclass_reads_what_it_likes(tmp_path: Path) -> None:
    """What a ReduceCommitter folds by its own execute() is its own affair."""
    builder = TransactionalTopologyBuilder("inputs", "rows", MemoryTransactionalSpout([], ROWS, 1))
    committer = Counting("s", "name", "n")
    builder.set_committer_bolt("own", committer).fields_grouping("rows", Fields("user"))
    builder.set_state("s", ReduceCommitter("s", USER, values={"n": Count()}).state(tmp_path / "s"))
    builder.build()


def test_no_aggregate() -> None:
    """The name of an aggregate is none."""
    with pytest.raises(ConfigError, match=r"^values\['n'\] is 'sum'; give an Aggregate$"):
        ReduceCommitter("s", "user", values={"n": "sum"})  # type: ignore[dict-item]
