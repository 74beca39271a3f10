"""Topologies of event time that the simulator is let loose on: windows, sessions, deduplication, timers, a ttl."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from committers import (
    AppendCommitter,
    Count,
    Deduplicate,
    EventClock,
    Max,
    ReduceCommitter,
    Sessions,
    TimerCommitter,
    Tumbling,
    WindowCommitter,
)
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState
from tests.bolts import Take
from txtopo import Fields, ICommitter, Topology, TransactionalTopologyBuilder

SECOND = dt.timedelta(seconds=1)
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
EVENT = Fields("part: string", "word: string", "at: timestamp")
KEY = Fields("word: string")

TIMES: dict[str, list[tuple[str, float | None]]] = {
    "p": [
        ("cat", 1),
        ("dog", 3),
        ("cat", 12),
        ("cat", 11),
        ("dog", 2),
        ("cat", 25),
        ("cat", None),
        ("dog", 41),
        ("cat", 60),
    ],
    "q": [("dog", 2), ("cat", 12), ("dog", 1), ("dog", 26), ("cat", 70), ("cat", 33)],
}
"""By partition: words, and seconds after START. Some come late, twice, or without a time, and pauses close sessions."""

DATA = {
    number: [[part, word, None if second is None else START + second * SECOND] for word, second in rows]
    for number, (part, rows) in enumerate(TIMES.items())
}


class Remind(TimerCommitter):
    """Says of a word that it has not come for ten seconds."""

    output_fields = Fields("attempt", "word: string", "since: timestamp")

    def on_rows(self, key, rows, old):
        last = max((row["at"] for row in rows if row["at"] is not None), default=old)
        if last is None or (old is not None and last <= old):
            return old
        self.set_timer(key, last + 10 * SECOND)
        return last

    def on_timer(self, key, time, old):
        if old is None or old + 10 * SECOND > time:
            return old
        self.collector.emit((self.attempt, key, old))
        return None


class NotePlanned(Take, ICommitter):
    """Writes when each transaction was planned."""

    def prepare(self, config, context, collector, attempt):
        self.planned = context.state("planned")
        self.attempt = attempt

    def finish_batch(self):
        self.planned.append([(self.attempt.txid, self.context.planned_at)])


def topology(idle: bool = False) -> Topology:
    """Return all that event time has, over one clock; if ``idle``, partitions that fall silent are not waited for."""
    builder = TransactionalTopologyBuilder("events", "spout", MemoryTransactionalSpout(DATA, EVENT, 1), 2)
    idle_after = {"idle_after": 30 * SECOND} if idle else {}
    clock = EventClock("clock", time="at", delay=4 * SECOND, partition="part", close_at_end=not idle, **idle_after)
    builder.set_committer_bolt("clock", clock).global_grouping("spout")
    builder.set_state("clock", clock.state("unused/clock"))

    made = {"clock": "clock", "time": "at", "key": KEY, "aggregates": {"rows": Count()}}
    for name, window in (("windows", Tumbling(10 * SECOND)), ("sessions", Sessions(5 * SECOND))):
        committer = WindowCommitter(f"open-{name}", window=window, **made)
        bolt = builder.set_committer_bolt(name, committer, 2)
        bolt.fields_grouping("spout", Fields("word")).all_grouping("clock")
        builder.set_state(f"open-{name}", committer.state(f"unused/open-{name}"))
        for stream in ("default", "late"):
            append(builder, name if stream == "default" else f"{name}-late", name, stream, committer.results())

    unique = Deduplicate("seen", clock="clock", time="at", key="word", within=8 * SECOND, fields=EVENT)
    builder.set_committer_bolt("unique", unique, 2).fields_grouping("spout", Fields("word")).all_grouping("clock")
    builder.set_state("seen", unique.state("unused/seen"))
    append(builder, "once", "unique", "default", EVENT)

    remind = Remind("last", "timers", clock="clock", key=KEY)
    builder.set_committer_bolt("remind", remind, 2).fields_grouping("spout", Fields("word")).all_grouping("clock")
    builder.set_state("last", DeltaState("unused/last", KEY, Fields("at: timestamp")))
    builder.set_state("timers", remind.timers_state("unused/timers"))
    append(builder, "silent", "remind", "default", Fields("word: string", "since: timestamp"))

    totals = ReduceCommitter("totals", KEY, values={"n": Count(), "at": Max("at: timestamp")})
    builder.set_committer_bolt("totals", totals, 2).fields_grouping("spout", Fields("word"))
    builder.set_state("totals", totals.state("unused/totals", ttl=15 * SECOND, clock="clock"))

    builder.set_committer_bolt("note-planned", NotePlanned()).global_grouping("spout")
    builder.set_state("planned", DeltaRows("unused/planned", Fields("txid_planned: long", "at: timestamp")))
    return builder.build()


def append(builder: TransactionalTopologyBuilder, table: str, above: str, stream: str, fields: Fields) -> None:
    builder.set_committer_bolt(f"append-{table}", AppendCommitter(table)).shuffle_grouping(above, stream)
    builder.set_state(table, DeltaRows(f"unused/{table}", fields))


def check_state(tables: Mapping[str, Mapping[Any, Any]]) -> None:
    """No window is said twice, a transaction is planned once, and windows and sessions count the same rows."""
    counted = {kind: sum(_rows(tables, kind)) for kind in ("windows", "sessions")}
    assert counted["windows"] == counted["sessions"], counted
    for name in ("windows", "sessions"):
        said = Counter(row[:3] for row, times in tables[name].items() for _ in range(times))
        assert max(said.values(), default=1) == 1, said
    planned = Counter(row[0] for row, times in tables["planned"].items() for _ in range(times))
    assert max(planned.values(), default=1) == 1, planned


def _rows(tables: Mapping[str, Mapping[Any, Any]], kind: str) -> Iterator[int]:
    """Yield the numbers of rows in windows of a kind: open ones, closed ones, and late ones."""
    for name in (f"open-{kind}", kind, f"{kind}-late"):
        for (_word, start, _end, rows, *_), times in tables[name].items():
            if start is not None:  # not the end of a session that was said
                yield rows * times
