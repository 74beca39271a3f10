"""The topology of the soak of changes: tables of each kind, of which some get a field, and one comes later.

A word's row has its count and, once the topology has grown, the number of the row that had it last. ``total`` is opaque,
``copies`` holds the rows, and ``minutes`` what windows over them have said. ``lengths`` comes by a backfill.
"""

import datetime as dt
from collections import Counter
from pathlib import Path

from committers import AppendCommitter, Count, EventClock, Tumbling, WindowCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState, StateKind
from txtopo import BasicBolt, BatchBolt, Config, Fields, ICommitter, Topology, TransactionalTopologyBuilder

ROW = Fields("word: string", "number: long", "at: timestamp")
ROWS, PARTITIONS, TAKE = 60, 2, 2
TRANSACTIONS = ROWS // TAKE
"""How many have input; one at the end has none, and closes all windows."""

GROUP_MAX = 3
"""The most transactions of a commit group."""

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
DELAY = dt.timedelta(seconds=20)
LATER = "lengths"
"""The state that comes later."""


def data() -> dict[int, list[list[object]]]:
    """Return the rows of each partition; their times are in about their order."""

    def row(partition: int, number: int) -> list[object]:
        at = START + dt.timedelta(seconds=10 * number - 37 * (number % 5 == 0))
        return ["w" * (1 + (number * 7 + partition) % 11), number, at]

    return {partition: [row(partition, number) for number in range(ROWS)] for partition in range(PARTITIONS)}


class Pass(BasicBolt):
    """Passes on what it gets."""

    output_fields = ROW.with_attempt()

    def execute(self, tuple, collector):
        collector.emit(tuple.values)


class Keep(BasicBolt):
    """Passes on some fields."""

    def __init__(self, fields: Fields) -> None:
        self.output_fields = fields.with_attempt()
        self.names = list(self.output_fields)

    def execute(self, tuple, collector):
        collector.emit([tuple[name] for name in self.names])


class CountBy(BatchBolt, ICommitter):
    """Counts rows by a key; a state with two value fields keeps the number of the last row as well."""

    def __init__(self, state: str) -> None:
        self.state_name = state

    def prepare(self, config, context, collector, attempt):
        self.state = context.state(self.state_name)
        self.has_number = len(self.state.value) > 1
        self.counts: Counter[object] = Counter()
        self.numbers: dict[object, int] = {}

    def execute(self, tuple):
        word = tuple["word"]
        key = {"words": word, "total": "all", LATER: len(word)}[self.state_name]
        self.counts[key] += 1
        self.numbers[key] = max(self.numbers.get(key, 0), tuple["number"])

    def finish_batch(self):
        self.state.multi_update(list(self.counts), self.after)

    def after(self, key, old):
        before = old[0] if isinstance(old, tuple) else old
        count = (before or 0) + self.counts[key]
        return (count, self.numbers[key]) if self.has_number else count


def topology(output: str, grown: str = "no", later: str = "no") -> Topology:
    """Return spout → pass → all committers, with the new fields or without, with the state that comes later or not."""
    has_fields, folder, upkeep = grown == "yes", Path(output), {"upkeep_every_writes": 3, "files_max": 3}
    value = Fields("n: long", "number: long") if has_fields else Fields("n: long")
    builder = TransactionalTopologyBuilder("changing", "rows", MemoryTransactionalSpout(data(), ROW, TAKE), 2)
    builder.set_bolt("pass", Pass(), 2).shuffle_grouping("rows")
    for name, key in (("words", "word: string"), ("total", "name: string"), (LATER, "length: long")):
        if name != LATER or later == "yes":
            kind = StateKind.OPAQUE if name == "total" else StateKind.TRANSACTIONAL
            fields = Fields("n: long") if name == LATER else value
            builder.set_committer_bolt(f"count-{name}", CountBy(name), 1).global_grouping("pass")
            has_vectors = name != "total"
            state = DeltaState(folder / name, Fields(key), fields, kind, deletion_vectors=has_vectors, **upkeep)
            builder.set_state(name, state)
    copied = ROW if has_fields else Fields("word: string", "at: timestamp")
    builder.set_bolt("keep", Keep(copied), 2).shuffle_grouping("pass")
    builder.set_committer_bolt("copy", AppendCommitter("copies"), 2).shuffle_grouping("keep")
    builder.set_state("copies", DeltaRows(folder / "copies", copied, **upkeep))
    clock = EventClock("clock", time="at", delay=DELAY, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("pass")
    builder.set_state("clock", clock.state(folder / "clock"))
    minutes = WindowCommitter(
        "open",
        clock="clock",
        time="at",
        window=Tumbling(dt.timedelta(minutes=1)),
        key=Fields("word: string"),
        aggregates={"n": Count()},
    )
    bolt = builder.set_committer_bolt("windows", minutes, 2)
    bolt.fields_grouping("pass", Fields("word")).all_grouping("clock")
    builder.set_state("open", minutes.state(folder / "open", **upkeep))
    builder.set_committer_bolt("append", AppendCommitter("minutes")).shuffle_grouping("windows")
    builder.set_state("minutes", DeltaRows(folder / "minutes", minutes.results(), **upkeep))
    return builder.build()


def config() -> Config:
    """Return a configuration that makes small groups."""
    return Config(group_transactions_max=GROUP_MAX, max_spout_pending=6)
