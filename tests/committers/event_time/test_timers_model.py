"""TimerCommitter: rows and timers of generated streams are told in txid order, and each timer once."""

import datetime as dt
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from committers import AppendCommitter, EventClock, TimerCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState, read_table
from tests.budgets import examples
from tests.committers.event_time import oracle
from tests.committers.event_time.oracle import Row
from tests.committers.event_time.test_windows import SECOND, TYPED, padded, streams, table
from txtopo import Config, Fields, TransactionalTopologyBuilder, Tuple
from txtopo.testing.inline import run_inline

SILENCE = 10 * SECOND


class NoReading(TimerCommitter):
    """Emits a key that was silent for ten seconds, once for each silence, and then forgets it."""

    output_fields = Fields("attempt", "key: string", "since: timestamp")

    def on_rows(self, key: Any, rows: Sequence[Tuple], old: Any) -> Any:
        """Remember the last reading."""
        last = max([row["at"] for row in rows if row["at"] is not None], default=None)
        if last is None or (old is not None and last <= old):
            return old
        self.set_timer(key, last + SILENCE)
        return last

    def on_timer(self, key: Any, time: dt.datetime, old: Any) -> Any:
        """Tell of a silence, unless another reading came since."""
        if old is None or old + SILENCE > time:
            return old
        self.collector.emit((self.attempt, key, old))
        return None


def expected(transactions: Sequence[Sequence[Row]], delay: dt.timedelta) -> list[tuple[int, str, dt.datetime]]:
    """Return what NoReading emits, by a plain loop."""
    clock = oracle.Clock(delay)
    last: dict[str, dt.datetime] = {}
    timers: set[tuple[dt.datetime, str]] = set()
    told = []
    for txid, rows in enumerate([*transactions, []], 1):
        _, after = clock.move(rows)
        newest: dict[str, dt.datetime] = defaultdict(lambda: dt.datetime.min.replace(tzinfo=dt.UTC))
        for time, key, _ in rows:
            if time is not None and key is not None:
                newest[key] = max(newest[key], time)
        for key, time in newest.items():
            if key not in last or time > last[key]:
                last[key] = time
                timers.add((time + SILENCE, key))
        due = sorted(timer for timer in timers if txid > len(transactions) or (after is not None and timer[0] <= after))
        timers.difference_update(due)
        for time, key in due:
            if key in last and last[key] + SILENCE <= time:
                told.append((txid, key, last.pop(key)))
    return told


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(transactions=streams, delay=st.integers(0, 20).map(lambda secs: secs * SECOND), group=st.integers(1, 4))
def test_silences(transactions, delay, group) -> None:
    """Rows come before timers, and a timer fires in the transaction that moves the watermark to it."""
    transactions = [[(at, key or "c", n) for at, key, n in rows] for rows in padded(transactions)]
    data = dict(enumerate(map(list, zip(*transactions, strict=True))))
    builder = TransactionalTopologyBuilder("silences", "rows", MemoryTransactionalSpout(data, TYPED, 1), 2)
    clock = EventClock("clock", time="at", delay=delay, close_at_end=True)
    alerts = NoReading("last", "timers", clock="clock", key=Fields("key: string"))
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_committer_bolt("alerts", alerts, 2).fields_grouping("rows", Fields("key")).all_grouping("clock")
    builder.set_committer_bolt("told", AppendCommitter("told")).global_grouping("alerts")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        root = Path(folder)
        builder.set_state("clock", clock.state(root / "clock"))
        builder.set_state("last", DeltaState(root / "last", Fields("key: string"), Fields("at: timestamp")))
        builder.set_state("timers", alerts.timers_state(root / "timers"))
        builder.set_state("told", DeltaRows(root / "told", Fields("key: string", "since: timestamp")))
        run_inline(builder.build(), Config(max_spout_pending=4, group_transactions_max=group))
        told = expected(transactions, delay)
        assert table(root, "told", "txid", "key", "since") == sorted(told, key=repr)
        assert read_table(root / "timers").num_rows == 0
