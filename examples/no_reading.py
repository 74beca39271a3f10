"""Alerts for sensors that fall silent: a committer with timers.

Each reading sets a timer for ten minutes later. When the watermark passes that time and no other reading has come in
between, an alert goes into a table, once for each silence. Time is event time: that of the readings, not that of the
machine. So the alerts are the same whenever the topology runs, however its input is cut into transactions, and however
often it is killed.

Run it with ``txtopo run examples.no_reading``.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from committers import AppendCommitter, EventClock, TimerCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState, read_table
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder, Tuple

OUTPUT = "txtopo-data/no_reading"
SENSORS = 8
HOURS = 6
SILENCE = dt.timedelta(minutes=10)
READING = Fields("sensor: string", "at: timestamp", "value: double")

_FIRST = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


class NoReading(TimerCommitter):
    """Sets a timer for ten minutes after each reading, and emits an alert if no other has come in between."""

    output_fields = Fields("attempt", "sensor", "last_at", "noticed_at")

    def on_rows(self, key: Any, rows: Sequence[Tuple], old: list[dt.datetime] | None) -> list[dt.datetime]:
        """Keep the times of the readings, and set a timer for each."""
        times = [row["at"] for row in rows if self.watermark is None or row["at"] + SILENCE > self.watermark]
        for at in times:
            self.set_timer(key, at + SILENCE)
        return [*(old or []), *times]

    def on_timer(self, key: Any, time: dt.datetime, old: list[dt.datetime] | None) -> list[dt.datetime] | None:
        """Emit an alert if the reading of ten minutes ago was the last one, and forget it."""
        later = [at for at in old or [] if at > time - SILENCE]
        if not any(at <= time for at in later):
            self.collector.emit((self.attempt, key, time - SILENCE, time))
        return later or None


def readings(hours: int = HOURS) -> Iterator[tuple[str, dt.datetime, float]]:
    """Yield a reading a minute of each sensor, nearly in order; now and then one is silent for 20 minutes."""
    chance = random.Random(0)  # noqa: S311 - the same readings in every run
    silent_until = dict.fromkeys(range(SENSORS), 0)
    for minute in range(hours * 60):
        for sensor in range(SENSORS):
            if minute >= silent_until[sensor] and chance.random() < 1 / 100:
                silent_until[sensor] = minute + 20
            if minute >= silent_until[sensor]:
                at = _FIRST + dt.timedelta(minutes=minute, seconds=chance.randrange(60))
                yield f"sensor-{sensor}", at, chance.gauss(20, 1)


def topology(
    output: str = OUTPUT, parallelism: int = 2, hours: int = HOURS, readings_a_transaction: int = 50
) -> TransactionalTopology:
    """Return the topology."""
    spout = MemoryTransactionalSpout(list(readings(hours)), READING, readings_a_transaction)
    builder = TransactionalTopologyBuilder("no-reading", "readings", spout)
    clock = EventClock("clock", time="at", delay=dt.timedelta(minutes=1))
    builder.set_committer_bolt("clock", clock).global_grouping("readings")
    builder.set_state("clock", clock.state(f"{output}/clock"))

    silence = NoReading("recent", "timers", clock="clock", key=Fields("sensor: string"))
    committer = builder.set_committer_bolt("no-reading", silence, parallelism)
    committer.fields_grouping("readings", Fields("sensor")).all_grouping("clock")
    recent = DeltaState(f"{output}/recent", key=Fields("sensor: string"), value=Fields("times: array<timestamp>"))
    builder.set_state("recent", recent)
    builder.set_state("timers", silence.timers_state(f"{output}/timers"))

    builder.set_committer_bolt("append", AppendCommitter("alerts")).shuffle_grouping("no-reading")
    alert = Fields("sensor: string", "last_at: timestamp", "noticed_at: timestamp")
    builder.set_state("alerts", DeltaRows(f"{output}/alerts", alert))
    return builder.build()


def show_results(console: Console, output: str) -> None:
    """Print the alerts."""
    alerts = sorted(read_table(f"{output}/alerts").to_pylist(), key=lambda row: (row["noticed_at"], row["sensor"]))
    for row in alerts[:5]:
        console.print(f"{row['sensor']} has sent nothing since {row['last_at']:%H:%M:%S}")
    console.print(f"{len(alerts):,} alerts")
