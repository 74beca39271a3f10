"""A source that follows a script: which rows each transaction takes, when it is planned, and when there is silence."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from committers import AppendCommitter, EventClock
from spouts import Coordinator, Emitter, TransactionalSpout
from state import DeltaRows, read_table
from txtopo import (
    BatchBolt,
    Config,
    Fields,
    ICommitter,
    OutputFieldsDeclarer,
    RunReport,
    TransactionalTopologyBuilder,
)
from txtopo.testing.inline import run_inline

SECOND = dt.timedelta(seconds=1)
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


@attrs.frozen
class Planned:
    """A transaction: the second after START at which it is planned, and its rows; None: the source is quiet."""

    second: float
    rows: Sequence[Any] | None


class Script(TransactionalSpout):
    """Begins transactions as a script says, and moves the clock on the wall, :meth:`wall_secs`, as it goes."""

    def __init__(self, transactions: Sequence[Planned], fields: Fields) -> None:
        self.output_fields = fields.with_attempt()
        self.fields, self.transactions = fields, transactions
        self.now = 0.0

    def wall_secs(self) -> float:
        """Return the time at which the transaction that begins now is planned."""
        return START.timestamp() + self.now

    def coordinator(self, config, context):
        """Return the coordinator."""
        return _Follower(self)

    def emitter(self, config, context):
        """Return an emitter of the rows."""
        return _Rows([transaction.rows for transaction in self.transactions])

    def __reduce__(self):
        """Leave behind the coordinator's clock when it moves."""
        return Script, (self.transactions, self.fields)


class _Follower(Coordinator):
    def __init__(self, script: Script) -> None:
        self.script, self.at = script, 0

    def _look(self) -> Planned | None:
        script = self.script
        if self.at >= len(script.transactions):
            return None
        script.now = max(script.now, script.transactions[self.at].second)
        return script.transactions[self.at]

    def resume(self, txid, metadata):
        self.at = max(self.at, txid)

    def cleanup_before(self, txid):
        self.at = max(self.at, txid - 1)  # what was begun without input is committed before it goes on

    def is_ready(self):
        planned = self._look()
        return planned is not None and planned.rows is not None

    def is_exhausted(self):
        return self._look() is None

    def initialize_transaction(self, txid, previous_metadata):
        self._look()
        self.at = txid
        return txid


class _Rows(Emitter):
    def __init__(self, rows: Sequence[Sequence[Any] | None]) -> None:
        self.rows = rows

    def emit_batch(self, attempt, metadata, collector):
        for row in self.rows[metadata - 1] or ():
            collector.emit((attempt, *row))


TOLD = Fields("before: long", "after: long", "limit: long")


class Telling(BatchBolt, ICommitter):
    """Puts what the clock says into a table."""

    def prepare(self, config, context, collector, attempt):
        self.told: list[Any] = []
        self.table = context.state("told")

    def execute(self, tuple):
        self.told.append(tuple.values[1:])

    def finish_batch(self):
        self.table.append(self.told)


def run_clock(
    root: Path, script: Script, clock: Any, *, until: int | None = None, group: int = 4, above: Any = None
) -> None:
    """Run a clock over a script, below a bolt or the source."""
    builder = TransactionalTopologyBuilder("clock", "rows", script)
    if above is not None:
        builder.set_bolt("above", above).shuffle_grouping("rows")
    builder.set_committer_bolt("clock", clock).global_grouping("rows" if above is None else "above")
    builder.set_state("clock", clock.state(root / "clock"))
    builder.set_committer_bolt("telling", Telling()).all_grouping("clock")
    builder.set_state("told", DeltaRows(root / "told", TOLD))
    config = Config(max_spout_pending=4, group_transactions_max=group)
    run_inline(builder.build(), config, until=until, wall_secs=script.wall_secs)


def run_timed(
    root: Path,
    script: Script,
    committer: Any,
    *,
    until: int | None = None,
    group: int = 2,
    tasks: int = 2,
    above: Any = None,
    **of_clock: Any,
) -> RunReport:
    """Run a committer of event time over a script, with a table for each of its streams; the key is ``key``.

    Both it and its clock may be below a bolt.
    """
    builder = TransactionalTopologyBuilder("timed", "rows", script)
    source = "rows" if above is None else "above"
    if above is not None:
        builder.set_bolt("above", above).shuffle_grouping("rows")
    clock = EventClock("clock", time="at", **{"delay": 10 * SECOND, **of_clock})
    builder.set_committer_bolt("clock", clock).global_grouping(source)
    builder.set_state("clock", clock.state(root / "clock"))
    timed = builder.set_committer_bolt("timed", committer, tasks).all_grouping("clock")
    timed.fields_grouping(source, Fields("key"))
    builder.set_state("windows", committer.state(root / "windows"))
    for stream, fields in declared(committer).items():
        builder.set_committer_bolt(stream, AppendCommitter(stream)).shuffle_grouping("timed", stream)
        builder.set_state(stream, DeltaRows(root / stream, fields))
    config = Config(max_spout_pending=4, group_transactions_max=group)
    return run_inline(builder.build(), config, until=until, wall_secs=script.wall_secs)


def declared(committer: Any) -> dict[str, Fields]:
    """Return the fields of each stream of a bolt."""
    declarer = OutputFieldsDeclarer()
    committer.declare_output_fields(declarer)
    return {stream: fields.without_attempt() for stream, fields in declarer.streams.items()}


def rows_of(root: Path, name: str, *fields: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table in order, times in seconds after START."""
    found = read_table(root / name)
    columns = (map(_plain, found[field].to_pylist()) for field in fields or found.column_names)
    return sorted(zip(*columns, strict=True), key=repr)


def _plain(value: Any) -> Any:
    return (value - START).total_seconds() if isinstance(value, dt.datetime) else value


def told(root: Path) -> list[tuple[float | None, ...]]:
    """Return what the clock told in each transaction, in seconds after START."""
    rows = sorted(read_table(root / "told").to_pylist(), key=lambda row: row["txid"])
    assert [row["txid"] for row in rows] == list(range(1, len(rows) + 1))
    return [tuple(_second(row[name]) for name in TOLD) for row in rows]


def _second(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6 - START.timestamp()
