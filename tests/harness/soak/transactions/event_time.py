"""The topology of event time: windows of a minute count words, and each row is counted once, or late or untimed once."""

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from committers import AppendCommitter, Count, EventClock, Tumbling, WindowCommitter
from state import ConsistentView, DeltaRows
from tests.committers.event_time.oracle import PartitionedClock, windows
from tests.harness.soak.transactions.oracle import SHOWN_MAX, Judge, rows_of_journal
from tests.harness.soak.transactions.topology import (
    DELAY,
    IDLE_AFTER,
    SPOUT,
    TASKS,
    TOO_FAR,
    TOPOLOGY_ID,
    Flaw,
    Pass,
    Setup,
    data_of,
    fields_of,
    spout_of,
)
from txtopo import Fields, Topology, TransactionalTopologyBuilder
from txtopo.api.components.planned import BeginReason
from txtopo.journal.entries import JournalTransaction
from txtopo.testing.checkers import Violation

SIZE, AHEAD_MAX = dt.timedelta(minutes=1), dt.timedelta(days=1)
COLUMNS = {
    "closed": ("txid", "word", "window_start", "window_end", "rows"),
    "late": ("txid", "word", "window_start", "window_end", "rows"),
    "untimed": ("txid", "word", "rows"),
}
"""By table, its columns in the order of the expected rows."""


def timed_topology(setup: Setup) -> Topology:
    """Return spout → pass → clock and windows (committers) → said → closed (committer), beside late and untimed."""
    flaw = Flaw(setup.seed)
    builder = TransactionalTopologyBuilder(TOPOLOGY_ID, SPOUT, spout_of(setup), TASKS)
    builder.set_bolt("pass", Pass(flaw, fields_of(setup)), TASKS).shuffle_grouping(SPOUT)
    by_partition = {"partition": "part", "idle_after": IDLE_AFTER} if setup.idle else {}
    clock = EventClock("clock", time="at", delay=DELAY, ahead_max=AHEAD_MAX, close_at_end=True, **by_partition)
    builder.set_committer_bolt("clock", clock).global_grouping("pass")
    committer = WindowCommitter(
        "open",
        clock="clock",
        time="at",
        window=Tumbling(SIZE),
        aggregates={"rows": Count()},
        key=Fields("word: string"),
    )
    bolt = builder.set_committer_bolt("windows", committer, TASKS)
    bolt.fields_grouping("pass", Fields("word")).all_grouping("clock")
    builder.set_bolt("said", Pass(flaw, committer.results(), "said"), TASKS).none_grouping("windows")
    builder.set_committer_bolt("closed", AppendCommitter("closed")).shuffle_grouping("said")
    for name in ("late", "untimed"):
        builder.set_committer_bolt(name, AppendCommitter(name)).shuffle_grouping("windows", name)
    output, upkeep = setup.output, {"upkeep_every_writes": 3, "files_max": 3}
    builder.set_state("clock", clock.state(f"{output}/clock"))
    builder.set_state("open", committer.state(f"{output}/open", **upkeep))
    for name, fields in (("closed", committer.results()), ("late", committer.results()), ("untimed", UNTIMED)):
        builder.set_state(name, DeltaRows(f"{output}/{name}", fields, **upkeep))
    return builder.build()


UNTIMED = Fields("word: string", "rows: long")


class TimedJudge(Judge):
    """Compares what windows have said with what a plain loop says of the same transactions."""

    def check_tables(self, view: ConsistentView) -> None:
        """Raise a Violation unless each row is in the one table, and counted in the one row, that it belongs to."""
        entries = self.entries_until(view.txid)
        batches = rows_of_journal(self.setup, entries)
        transactions = [transaction for entry in entries for transaction in entry.transactions]
        is_over = bool(transactions) and transactions[-1].planned.turn is BeginReason.END
        marks = marks_of(batches, transactions) if self.setup.idle else ()
        expected = expected_of(batches[:-1] if is_over else batches, marks)
        lines = []
        for name, columns in COLUMNS.items():
            table = view.tables[name]
            actual = Counter(zip(*(table[column].to_pylist() for column in columns), strict=True))
            # What is still open when the input so far ends is said by the end only.
            wanted = Counter(row for row in expected[name] if row[0] <= view.txid)
            lines += [f"{name}: {row} is too much" for row in (actual - wanted).elements()]
            lines += [f"{name}: {row} is missing" for row in (wanted - actual).elements()]
            self.rows_checked += table.num_rows
        if is_over:
            counted = sum(sum(view.tables[name]["rows"].to_pylist()) for name in COLUMNS)
            rows = sum(map(len, data_of(self.setup).values()))
            if counted != rows:
                lines.append(f"{counted} rows are counted, of {rows}")
        if lines:
            raise Violation("\n".join([f"the tables as of transaction {view.txid} differ:", *lines[:SHOWN_MAX]]))


Mark = tuple[dt.datetime | None, dt.datetime | None]
"""The watermark before and after a transaction."""


def marks_of(batches: Sequence[Sequence[Sequence[Any]]], transactions: Sequence[JournalTransaction]) -> Sequence[Mark]:
    """Return the watermarks of a clock by partition, by the times at which the journal says they were planned."""
    clock = PartitionedClock()
    settings = {"delay": DELAY, "partition": "part", "idle_after": IDLE_AFTER, "ahead_max": AHEAD_MAX}
    return [
        clock.move([(at, part) for _, at, part in batch], each.planned.at, close_at_end=True, **settings)
        for batch, each in zip(batches, transactions, strict=True)
    ]


def expected_of(
    batches: Sequence[Sequence[Sequence[Any]]], marks: Sequence[Mark] = ()
) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """Return the rows of each table after some transactions and the end, in the order of :data:`COLUMNS`."""
    near = [[(at, word, None) for word, at, *_ in batch if at != TOO_FAR] for batch in batches]
    said = windows(near, lambda time: [_window(time)], DELAY, dt.timedelta(), marks)
    far = Counter(
        (txid, word, *_window(at)) for txid, batch in enumerate(batches, 1) for word, at, *_ in batch if at == TOO_FAR
    )
    return {
        "closed": [(txid, *window, rows) for window, (txid, rows, _) in said.closed.items()],
        "late": [*((*key, rows) for key, (rows, _) in said.late.items()), *((*key, rows) for key, rows in far.items())],
        "untimed": [(*key, rows) for key, (rows, _) in said.untimed.items()],
    }


def _window(time: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    start = time.replace(second=0, microsecond=0)
    return start, start + SIZE
