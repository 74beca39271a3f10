"""A topology that gets a new state after a while, and another one that has had it from the start."""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from committers import (
    AppendCommitter,
    Count,
    EventClock,
    JoinStream,
    Max,
    ReduceCommitter,
    StreamJoin,
    Tumbling,
    WindowCommitter,
)
from committers.aggregates.aggregate import Aggregate
from state import DeltaRows, DeltaState, read_table
from tests.bolts import Collecting
from txtopo import (
    BasicBolt,
    Config,
    FailedException,
    Fields,
    Topology,
    TransactionalSpout,
    TransactionalTopologyBuilder as Builder,
)
from txtopo.assembly.feed.feed import Feed
from txtopo.backfill.backfill import BackfillNews, BackfillReport, backfill
from txtopo.engine.runner import run_with
from txtopo.errors import InputError
from txtopo.files.places import folder_at
from txtopo.fork.fork import ForkPoint
from txtopo.journal.folders import find_journal, topologies_with_journal
from txtopo.journal.journal import read_journal
from txtopo.testing.inline import inline_environment
from txtopo.transactional.core.events import MetadataCreated, SourceStatus, TransactionMetadata

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
ROW = Fields("attempt", "word: string", "at: timestamp")
CONFIG = Config(group_transactions_max=3, transaction_max_attempts=1, transaction_max_attempts_policy="SKIP")

BAD = "bad"
"""A word with which ``count`` fails, so that its transaction is given up."""


@attrs.define
class World:
    """What the source holds, and how a bolt that has changed works; one for each process."""

    rows: list[str] = attrs.field(factory=list)
    is_open: bool = False
    """Whether more rows may come."""
    gone_below: int = 0
    """The source no longer has rows below this one."""
    suffix: str = ""
    """What ``upper`` adds to each word."""


WORLD = World()


class Rows(TransactionalSpout):
    """Emits one row a transaction."""

    output_fields = ROW

    class _Coordinator:
        def __init__(self) -> None:
            self.at = 0

        def resume(self, txid, metadata):
            self.at = 0 if metadata is None else metadata["end"]

        def initialize_transaction(self, txid, previous):
            self.at += 1
            return {"end": self.at}

        def is_ready(self):
            return self.at < len(WORLD.rows)

        def is_exhausted(self):
            return self.at >= len(WORLD.rows) and not WORLD.is_open

    class _Emitter:
        def emit_batch(self, attempt, metadata, collector):
            at = metadata["end"] - 1
            if at < WORLD.gone_below:
                raise InputError(f"row {at} was removed")
            collector.emit((attempt, WORLD.rows[at], START + at * SECOND))

    def coordinator(self, config, context):
        return self._Coordinator()

    def emitter(self, config, context):
        return self._Emitter()

    def input_ranges(self, metadata, previous):
        return {"rows": ((previous or {"end": 0})["end"], metadata["end"])}


class Upper(BasicBolt):
    output_fields = Fields("attempt", "word: string", "at: timestamp")

    def execute(self, tuple, collector):
        attempt, word, at = tuple.values
        collector.emit((attempt, word.upper() + WORLD.suffix, at))


class Counting(Collecting):
    """Counts each word in a state; in one called ``turns``, the transactions."""

    def finish_batch(self):
        if self.name == "words" and BAD.upper() in self.words:
            raise FailedException("a bad word")
        for word in self.words if self.name != "turns" else ["all"]:
            self.state.update(word, lambda old: (old or 0) + 1)


@attrs.frozen
class Scripted(Feed):
    """Begins transactions that another topology has committed, at the same times."""

    transactions: Sequence[TransactionMetadata]
    total: int | None = None
    lag: int | None = None

    def open_store(self, store, lead, root):
        pass

    def create(self, action, committed):
        begun = self.transactions[action.first_txid - 1 :][: action.count]
        return MetadataCreated(tuple(begun), SourceStatus.READY if begun else SourceStatus.EXHAUSTED)

    def finish(self, committed):
        pass

    def close(self):
        pass


def state_of(folder: Path, name: str) -> DeltaState:
    return DeltaState(folder / name, Fields("word: string"), Fields("n: long"))


def counting(folder: Path, *names: str, spout: Any = None) -> Topology:
    """Return spout → upper → a committer for each state."""
    builder = Builder("t", "rows", spout or Rows(), 1)
    builder.set_bolt("upper", Upper(), 2).shuffle_grouping("rows")
    for name in names:
        builder.set_committer_bolt(f"count-{name}", Counting(name), 1).global_grouping("upper")
        builder.set_state(name, state_of(folder, name))
    return builder.build()


def windows(folder: Path, *names: str) -> Topology:
    """Return a topology with an event clock; with the name ``minutes``, it has windows below the clock as well.

    Any other name is one more table of their results.
    """
    builder = Builder("t", "rows", Rows(), 1)
    builder.set_bolt("upper", Upper(), 2).shuffle_grouping("rows")
    clock = EventClock(
        "clock", time="at", delay=2 * SECOND, idle_after=dt.timedelta(milliseconds=20), close_at_end=True
    )
    builder.set_committer_bolt("clock", clock).global_grouping("upper")
    builder.set_state("clock", clock.state(folder / "clock"))
    builder.set_committer_bolt("count-words", Counting("words"), 1).global_grouping("upper")
    builder.set_state("words", state_of(folder, "words"))
    if "minutes" in names:
        window = Tumbling(5 * SECOND)
        open_minutes = WindowCommitter(
            "open", clock="clock", time="at", key=Fields("word: string"), window=window, aggregates={"n": Count()}
        )
        committer = builder.set_committer_bolt("windows", open_minutes)
        committer.fields_grouping("upper", Fields("word")).all_grouping("clock")
        builder.set_state("open", open_minutes.state(folder / "open"))
        for name in names:
            append = "append" if name == "minutes" else f"append-{name}"
            builder.set_committer_bolt(append, AppendCommitter(name)).shuffle_grouping("windows")
            builder.set_state(name, DeltaRows(folder / name, open_minutes.results()))
    return builder.build()


def totals(folder: Path, *names: str, end: type[Aggregate] = Max) -> Topology:
    """Return a topology that counts words.

    With ``sizes`` it counts the counts, with ``joined`` it joins each word with its count, and with ``ends`` it keeps
    the last time of each word, or what ``end`` makes of its times.
    """
    builder = Builder("t", "rows", Rows(), 1)
    builder.set_bolt("upper", Upper(), 2).shuffle_grouping("rows")
    words = ReduceCommitter("words", Fields("word: string"), values={"n": Count(), "at": Max("at: timestamp")})
    builder.set_committer_bolt("count-words", words, 2).fields_grouping("upper", Fields("word"))
    builder.set_state("words", words.state(folder / "words"))
    if "sizes" in names:
        sizes = ReduceCommitter("sizes", Fields("n: long"), values={"words": Count()}, diff="diff")
        builder.set_committer_bolt("count-sizes", sizes).fields_grouping("count-words", Fields("n"), "changes")
        builder.set_state("sizes", sizes.state(folder / "sizes"))
    if "ends" in names:
        ends = ReduceCommitter("ends", Fields("word: string"), values={"at": end("at: timestamp")})
        builder.set_committer_bolt("end", ends).fields_grouping("upper", Fields("word"))
        builder.set_state("ends", ends.state(folder / "ends"))
    if "joined" in names:
        left = JoinStream("count-words", key="word", fields=Fields("word: string", "n: long"), stream="changes")
        join = StreamJoin(
            "lefts",
            "rights",
            left=left,
            right=JoinStream("upper", key="word", fields=Fields("word: string")),
            how="left",
        )
        joining = builder.set_committer_bolt("join", join, 2).fields_grouping("upper", Fields("word"))
        joining.fields_grouping("count-words", Fields("word"), "changes")
        builder.set_state("lefts", join.left_table(folder / "lefts"))
        builder.set_state("rights", join.right_table(folder / "rights"))
        builder.set_committer_bolt("append", AppendCommitter("joined")).shuffle_grouping("join")
        builder.set_state("joined", DeltaRows(folder / "joined", join.joined()))
    return builder.build()


def history_of(folder: Path) -> list[TransactionMetadata]:
    """Return the transactions that the journal of an output folder records."""
    metadata_dir = folder_at(folder / "_txtopo")
    journals = [find_journal(metadata_dir, name) for name in topologies_with_journal(metadata_dir)]
    entries = [entry for journal in journals for part in read_journal(journal) for entry in part.entries]
    return [TransactionMetadata(t.txid, t.metadata, t.planned) for entry in entries for t in entry.transactions]


@attrs.define
class Place:
    """An output folder, with what is there from run to run."""

    folder: Path
    make: Callable[..., Topology] = counting
    caught_up: list[int] = attrs.field(factory=list)
    points: list[ForkPoint] = attrs.field(factory=list)

    def run(
        self,
        *names: str,
        until: int | None = None,
        config: Config = CONFIG,
        like: Path | None = None,
        wall_secs: Callable[[], float] = time.time,
    ) -> None:
        """Run the topology with some states; with the transactions of another output folder, if one is given."""
        environment = inline_environment(wall_secs=wall_secs)
        if like is not None:
            script = history_of(like)
            environment = attrs.evolve(environment, make_feed=lambda _: Scripted(script))
        run_with(self.make(self.folder, *names), config, environment, until=until)

    def backfill(
        self,
        state: str,
        *names: str,
        first: int | None = None,
        on_caught_up: Callable[[int], None] | None = None,
        config: Config = CONFIG,
        **options: Any,
    ) -> BackfillReport:
        """Backfill a state of the topology with some states."""
        news = BackfillNews(self.points.append, lambda part, txid: None, on_caught_up or self.caught_up.append)
        topology = self.make(self.folder, *names)
        return backfill(topology, config, inline_environment(), state, news, first=first, **options)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table, in order."""
        return sorted(read_table(self.folder / name).to_pylist(), key=str)

    def copy(self, folder: Path) -> Place:
        """Return a place with a copy of the folder at another path; the tables' paths are as relative as they were."""
        shutil.copytree(self.folder, folder)
        return Place(folder, self.make)
