"""When transactions are planned, and those without input: when a source is quiet, and at its end."""

import datetime as dt
import signal
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from spouts import DataFrameSpout, MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, read_table
from tests.api.components.test_partitioned import Log, LogSpout
from tests.cli.conftest import command_line
from tests.processes import ran
from txtopo import BatchBolt, Config, FailedException, Fields, ICommitter, Topology, TransactionalTopologyBuilder, run
from txtopo.errors import StateAccessError, TopologyError
from txtopo.testing.inline import run_inline

__all__ = ["command_line"]

KINDS = ("repeatable", "partitioned", "opaque")
QUIET = dt.timedelta(milliseconds=50)
TOLD = ("planned: long", "is_end: boolean", "tuples: long")


def planned_ms(context: Any) -> int:
    return (context.planned_at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


class Processed(BatchBolt):
    """Tells what its context says in the processing phase, and how many tuples there were."""

    output_fields = Fields("attempt", *TOLD)

    def prepare(self, config, context, collector, attempt):
        self.tuples = 0

    def execute(self, tuple):
        self.tuples += 1

    def finish_batch(self):
        self.collector.emit((self.attempt, planned_ms(self.context), self.context.is_at_end, self.tuples))


class Committed(BatchBolt, ICommitter):
    """Writes what it is told, and what its context says in the commit phase; fails in the transactions of a list."""

    failing: tuple[int, ...] = ()

    def __init__(self, quiet_after: dt.timedelta | None = None, *, at_end: bool = False) -> None:
        self.quiet_after, self.at_end = quiet_after, at_end

    def prepare(self, config, context, collector, attempt):
        self.told: list[Any] = []

    def execute(self, tuple):
        self.told.append(tuple.values[1:])

    def finish_batch(self):
        if self.attempt.txid in self.failing and self.attempt.attempt & 0xFFFF <= 1:
            raise FailedException("once")
        ((planned, is_end, tuples),) = self.told
        same = (planned, is_end) == (planned_ms(self.context), self.context.is_at_end)
        self.context.state("told").append([(planned, is_end, tuples, same)])


def topology(output: Path, spout: Any, committer: Committed) -> Topology:
    builder = TransactionalTopologyBuilder("planned", "spout", spout, 2)
    builder.set_bolt("processed", Processed()).global_grouping("spout")
    builder.set_committer_bolt("committed", committer).global_grouping("processed")
    builder.set_state("told", DeltaRows(output / "told", Fields(*TOLD, "same: boolean")))
    return builder.build()


def rows_of(output: Path) -> list[dict[str, Any]]:
    return sorted(read_table(output / "told").to_pylist(), key=lambda row: row["txid"])


def turns_of(output: Path) -> list[tuple[int, bool]]:
    """Check what every row says; return the number of tuples and whether it was the end, by transaction."""
    rows = rows_of(output)
    assert [row["txid"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(row["same"] for row in rows), "both phases see the same"
    times = [row["planned"] for row in rows]
    assert times == sorted(times), "it never falls"
    return [(row["tuples"], row["is_end"]) for row in rows]


@attrs.define
class Source:
    """A spout of a kind with rows that can grow; it may wait for more instead of ending."""

    kind: str
    rows: list[str] = attrs.field(factory=lambda: list("abc"))
    waits: bool = False

    def spout(self) -> Any:
        match self.kind:
            case "repeatable":
                spout: Any = MemoryTransactionalSpout(self.rows, Fields("word"), 2)
            case "partitioned":
                spout = LogSpout(Log({0: self.rows}))
            case "opaque":
                spout = OpaqueMemoryTransactionalSpout(self.rows, Fields("word"), 2)
        return Waiting.of(spout) if self.waits else spout

    def run(self, output: Path, committer: Committed, until: int | None = None) -> None:
        """Run it into a folder; of an opaque spout one transaction at a time, as it may begin some in vain."""
        pending_max = 1 if self.kind == "opaque" else 8
        run_inline(topology(output, self.spout(), committer), Config(max_spout_pending=pending_max), until=until)


class Waiting:
    """Makes a spout's coordinator one that waits where it would be exhausted."""

    @staticmethod
    def of(spout: Any) -> Any:
        make = spout.coordinator

        def coordinator(config, context):
            made = make(config, context)
            is_exhausted = made.is_exhausted
            made.is_ready, made.is_exhausted = lambda: not is_exhausted(), lambda: False
            return made

        spout.coordinator = coordinator
        return spout


@pytest.mark.parametrize("kind", KINDS)
def test_both_phases_see_when_it_was_planned(tmp_path: Path, kind: str) -> None:
    """Wall-clock time, UTC, which never falls; without a bolt that asks no transaction lacks input."""
    before = time.time_ns() // 1_000_000
    Source(kind).run(tmp_path, Committed())
    assert turns_of(tmp_path) == [(2, False), (1, False)]
    assert all(before <= row["planned"] <= time.time_ns() // 1_000_000 for row in rows_of(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_end(tmp_path: Path, kind: str, command_line) -> None:
    """Once a source is exhausted there is one transaction more, and not another before there was input again.

    The audit finds nothing, no input counts twice, and a replay sees what was recorded.
    """
    source = Source(kind)
    for _ in range(3):
        source.run(tmp_path, Committed(at_end=True))
        assert turns_of(tmp_path) == [(2, False), (1, False), (0, True)]
    source.rows.append("d")
    for _ in range(2):
        source.run(tmp_path, Committed(at_end=True))
        assert turns_of(tmp_path) == [(2, False), (1, False), (0, True), (1, False), (0, True)]
    audit = command_line("audit", str(tmp_path))
    assert (audit.exit_code, "5 transactions, 1 to 5, each once" in audit.stdout) == (0, True), audit.stdout
    explained = command_line("explain", str(tmp_path), "3").stdout
    assert "input     none: the source was exhausted" in explained


def test_nothing_to_end(tmp_path: Path) -> None:
    """A source that was empty from the start has no end."""
    Source("repeatable", rows=[]).run(tmp_path, Committed(at_end=True))
    assert turns_of(tmp_path) == []


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_quiet(tmp_path: Path, kind: str, command_line) -> None:
    """While a source has nothing, transactions without input follow each other at the shortest time asked for."""
    source = Source(kind, waits=True)
    committer = Committed(QUIET)
    source.run(tmp_path, committer, until=4)
    source.rows.append("d")
    source.run(tmp_path, committer, until=6)
    assert turns_of(tmp_path) == [(n, False) for n in (2, 1, 0, 0, 1, 0)]
    planned = [row["planned"] for row in rows_of(tmp_path)]
    assert all(planned[at] - planned[at - 1] >= 50 for at in (2, 3, 5))
    assert command_line("audit", str(tmp_path)).exit_code == 0
    assert "input     none: the source had had none for a while" in command_line("explain", str(tmp_path), "4").stdout


@pytest.mark.parametrize("kind", KINDS)
def test_transactions_without_input_are_replayed(tmp_path: Path, kind: str) -> None:
    """One that fails, or that an opaque spout rolls back, is tried again, and takes and loses nothing."""
    committer = Committed(QUIET)
    committer.failing = (1, 2, 3, 4)
    source = Source(kind, waits=True)
    source.run(tmp_path, committer, until=4)
    assert turns_of(tmp_path) == [(2, False), (1, False), (0, False), (0, False)]
    source.rows.append("d")
    source.waits, committer = False, Committed(at_end=True)
    committer.failing = (5, 6)
    source.run(tmp_path, committer)
    assert turns_of(tmp_path)[4:] == [(1, False), (0, True)]


MODULE = """
from pathlib import Path
from tests.acceptance.test_planned import Committed, Source, topology
def build():
    return topology(Path({output!r}), Source({kind!r}).spout(), Committed(at_end=True))
topology_to_replay = build()
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_sees_what_was_recorded(tmp_path: Path, kind: str, command_line) -> None:
    """Every transaction, those without input too, writes the same rows at any later time."""
    output = tmp_path / "out"
    Source(kind).run(output, Committed(at_end=True))
    command_line.write_module("planned_topology", MODULE.format(output=str(output), kind=kind))
    for txid in (1, 2, 3):
        replay = command_line("replay", "planned_topology:topology_to_replay", str(txid))
        assert (replay.exit_code, "differs" in replay.stdout) == (0, False), replay.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "failpoint", "begun"),
    [
        ("repeatable", "metadata.save.after=kill", 2),
        ("opaque", "group.decide.after=kill", 1),
        ("opaque", "group.decide.after=kill:3", 3),
        ("opaque", "table.write.after=kill:3", 3),
    ],
)
def test_killed(tmp_path: Path, kind: str, failpoint: str, begun: int) -> None:
    """A transaction that began before a kill -9 was planned when it began, whoever commits it; no end comes twice."""
    script = (
        "from pathlib import Path\n"
        "from tests.acceptance.test_planned import Committed, Source\n"
        f"Source({kind!r}).run(Path({str(tmp_path)!r}), Committed(at_end=True))\n"
    )
    dead = ran("-c", script, failpoints=failpoint)
    killed_ms = time.time_ns() // 1_000_000
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    Source(kind).run(tmp_path, Committed(at_end=True))
    assert turns_of(tmp_path) == [(2, False), (1, False), (0, True)]
    assert all(row["planned"] <= killed_ms for row in rows_of(tmp_path)[:begun]), "they began before it died"


class Ended:
    """A coordinator of two transactions."""

    def __init__(self) -> None:
        self.begun = 0

    def resume(self, txid, metadata):
        self.begun = metadata or 0

    def initialize_transaction(self, txid, previous_metadata):
        self.begun = (previous_metadata or 0) + 1
        return self.begun

    def is_exhausted(self):
        return self.begun == 2


class Frames(DataFrameSpout):
    output_fields = Fields("attempt", "n: long")

    def coordinator(self, config, context):
        return Ended()

    def read(self, spark, metadata):
        return spark.range(metadata).toDF("n")


def test_frames(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is read for a transaction without input, and its bolts see no row."""
    run(topology(tmp_path, Frames(), Committed(at_end=True)))
    assert turns_of(tmp_path) == [(1, False), (2, False), (0, True)]


def test_times_that_cannot_be(tmp_path: Path) -> None:
    """A quiet_after that is no time, or none at all, is refused before anything runs."""
    for wrong in (5, dt.timedelta(0)):
        with pytest.raises(TopologyError, match=r"'committed': quiet_after is .*; give a timedelta"):
            topology(tmp_path, Source("repeatable").spout(), Committed(wrong))


def test_no_transaction_no_time(tmp_path: Path) -> None:
    """A spout outlives transactions: its context says that it has none."""
    spout = Source("repeatable").spout()
    asked: list[str] = []
    make = spout.coordinator

    def coordinator(config, context):
        for name in ("planned_at", "is_at_end"):
            with pytest.raises(StateAccessError, match=f"no transaction here that {name} could be of"):
                getattr(context, name)
            asked.append(name)
        return make(config, context)

    spout.coordinator = coordinator
    run_inline(topology(tmp_path, spout, Committed()))
    assert asked == ["planned_at", "is_at_end"]
