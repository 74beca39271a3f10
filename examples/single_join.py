"""Storm's SingleJoin: it joins two streams by a key, and anchors each joined tuple to both of its halves.

Run it with ``txtopo run examples.single_join``. If a joined tuple fails further down, both spouts emit their halves
again. A half that waits too long for its other half fails, and is emitted again.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console

from committers import DeltaAppendBolt
from txtopo import (
    Config,
    Fields,
    OutputCollector,
    PlainTopology,
    RichBolt,
    Spout,
    SpoutOutputCollector,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

OUTPUT = "txtopo-data/single-join"


class People(Spout):
    """Emits one field of each person, and again after each failure.

    It takes every ``step``-th person, round and round; ``step`` must share no divisor with ``people``.
    """

    def __init__(self, field: str, people: int, step: int) -> None:
        self.output_fields = Fields("id", field)
        self._field = field
        self._people = people
        self._step = step

    def open(self, config: Any, context: TopologyContext, collector: SpoutOutputCollector) -> None:
        """Begin with the first."""
        self._collector = collector
        self._next = 0
        self._again: list[int] = []

    def next_tuple(self) -> None:
        """Emit a person that failed, or the next one."""
        if self._again:
            person = self._again.pop()
        elif self._next < self._people:
            person = self._next * self._step % self._people
            self._next += 1
        else:
            return
        self._collector.emit((person, _known_of(person, self._field)), message_id=person)

    def fail(self, message_id: int) -> None:
        """Emit it again."""
        self._again.append(message_id)

    def is_exhausted(self) -> bool:
        """Whether all people were emitted, and none waits to be emitted again."""
        return self._next == self._people and not self._again


def _known_of(person: int, field: str) -> Any:
    return ("female", "male")[person % 2] if field == "gender" else 20 + person % 60


class Join(RichBolt):
    """Joins tuples with equal ids from two streams; each waits at most ``timeout_secs`` for the other."""

    output_fields = Fields("id", "gender", "age")

    def __init__(self, timeout_secs: float) -> None:
        self._timeout_secs = timeout_secs

    def component_configuration(self) -> dict[str, Any]:
        """Ask for ticks, at which it fails tuples that have waited too long."""
        return {"topology.tick.tuple.freq.secs": self._timeout_secs / 4}

    def prepare(self, config: Any, context: TopologyContext, collector: OutputCollector) -> None:
        """Start with no tuples."""
        self._collector = collector
        self._waiting: dict[int, tuple[Tuple, float]] = {}

    def execute(self, tuple: Tuple) -> None:
        """Join a tuple, or let it wait."""
        if tuple.source_component == "__system":
            self._expire()
            return
        other, _ = self._waiting.get(tuple["id"], (None, 0.0))
        if other is None:
            self._waiting[tuple["id"]] = (tuple, time.monotonic() + self._timeout_secs)
        elif other.source_component == tuple.source_component:  # emitted again: the former root failed meanwhile
            self._collector.fail(other)
            self._waiting[tuple["id"]] = (tuple, time.monotonic() + self._timeout_secs)
        else:
            del self._waiting[tuple["id"]]
            gender, age = (tuple, other) if "gender" in tuple else (other, tuple)
            self._collector.emit((tuple["id"], gender["gender"], age["age"]), [gender, age])
            self._collector.ack(gender)
            self._collector.ack(age)

    def _expire(self) -> None:
        now = time.monotonic()
        late = [key for key, (_, deadline) in self._waiting.items() if deadline <= now]
        for key in late:
            self._collector.fail(self._waiting.pop(key)[0])


def topology(
    people: int = 5_003, timeout_secs: float = 5.0, parallelism: int = 2, output: str = OUTPUT
) -> PlainTopology:
    """Return the topology; ``output`` is the Delta table of the joined rows."""
    builder = TopologyBuilder("single-join")
    builder.set_spout("genders", People("gender", people, 1))
    builder.set_spout("ages", People("age", people, 7))
    join = builder.set_bolt("join", Join(timeout_secs), parallelism)
    join.fields_grouping("genders", Fields("id")).fields_grouping("ages", Fields("id"))
    rows = Fields("id: long", "gender: string", "age: long")
    builder.set_bolt("rows", DeltaAppendBolt(output, rows, flush_secs=0.5)).shuffle_grouping("join")
    return builder.build()


def config() -> Config:
    """Return its configuration: two workers, and enough pending roots for all people whose halves wait."""
    return Config({"topology.workers": 2, "topology.max.spout.pending": 10_000})


def show_results(console: Console, output: str) -> None:
    """Print the number of rows."""
    console.print(f"{pa.table(DeltaTable(output).scan(columns=['id'])).num_rows:,} rows")
