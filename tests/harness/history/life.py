"""The life of a topology that writes three keyed tables, and what of it is on the disk."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from committers import Max, ReduceCommitter
from spouts import Coordinator, Emitter
from state import DeltaState, SqliteStore, read_table
from state.delta.log.checkpoints import checkpoint_path
from state.delta.log.data_files import files_of
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from state.delta.log.ownership import Owner
from state.delta.read.points import TableVersions
from tests.harness.history.clock import SimulatedClock
from txtopo import (
    BatchOutputCollector,
    Config,
    Fields,
    Topology,
    TopologyContext,
    TransactionalSpout,
    TransactionalTopologyBuilder,
    TransactionAttempt,
)
from txtopo.assembly.environment import Environment
from txtopo.assembly.threads import ThreadPools
from txtopo.backfill.backfill import BackfillNews, backfill
from txtopo.config import MICRO_BATCH
from txtopo.engine.runner import run_with
from txtopo.testing.inline import inline_environment
from txtopo.testing.simulation.pool import PooledRunner
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.points import KeptPoint
from txtopo.transactional.tasks.factory import TaskFactory

TABLES = ("first", "second", "third")
LATER = "later"
"""The table that comes by a backfill."""
TOPOLOGY = "history"
REWIND_HOURS = 168
KEY_BYTES = 8
NUMBER_DIGITS = 12
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
RECENT_SECS = 300
IDLE_STEP_SECS = 20
_MEASURED_EVERY = 50


@attrs.frozen
class Load:
    """What is written.

    Args:
        keys: how many keys each table has, from the first group on.
        touched: how many of them a later group puts.
        has_vectors: whether the tables have deletion vectors.
        row_bytes: how large a row is, its key of 8 bytes and the number of its group included.
    """

    keys: int = 10_000
    touched: int = 1_000
    has_vectors: bool = False
    row_bytes: int = 100

    def touched_by(self, txid: int) -> np.ndarray[Any, Any]:
        """Return the keys that a group puts."""
        if txid == 1:
            return np.arange(self.keys)
        return np.random.default_rng(txid).choice(self.keys, self.touched, replace=False)

    def rows(self, txid: int) -> pa.RecordBatch:
        """Return the rows of a group; the text of each begins with the group's number."""
        keys = self.touched_by(txid)
        digits = max(0, self.row_bytes - KEY_BYTES - NUMBER_DIGITS)
        noise = np.random.default_rng((txid, 1)).integers(0, len(_HEX), size=(len(keys), digits), dtype=np.uint8)
        number = np.frombuffer(f"{txid:0{NUMBER_DIGITS}d}".encode(), np.uint8)
        # As one block of bytes, in 0.6 ms for 1,000 rows: a text each in Python took 3.8 ms, a tenth of the whole group.
        block = np.hstack([np.broadcast_to(number, (len(keys), NUMBER_DIGITS)), _HEX[noise]])
        ends = pa.py_buffer((np.arange(len(keys) + 1) * block.shape[1]).astype(np.int32))
        texts = pa.StringArray.from_buffers(len(keys), ends, pa.py_buffer(block.tobytes()))
        return pa.RecordBatch.from_pydict({"id": pa.array(keys, pa.int64()), "text": texts})

    def last_put(self, txid: int) -> np.ndarray[Any, Any]:
        """Return by key the last group up to one that has put it."""
        found = np.zeros(self.keys, np.int64)
        for number in range(txid, 0, -1):
            own = self.touched_by(number)
            own = own[found[own] == 0]
            found[own] = number
            if found.all():
                break
        return found


class _Numbers(Coordinator):
    def __init__(self, life: Life) -> None:
        self._life = life
        self._last = 0

    def resume(self, txid: int, metadata: Any) -> None:
        self._last = txid

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> int:
        self._last = txid
        self._life.pass_one(txid)
        return txid

    def is_ready(self) -> bool:
        if self._last < self._life.last:
            return True
        self._life.clock.go_on(IDLE_STEP_SECS)
        return False

    def is_exhausted(self) -> bool:
        return self._last >= self._life.last and not self._life.is_waiting()


class _Rows(Emitter):
    def __init__(self, load: Load) -> None:
        self._load = load

    def emit_batch(self, attempt: TransactionAttempt, metadata: int, collector: BatchOutputCollector) -> None:
        collector.emit_batch(self._load.rows(metadata))


class _Spout(TransactionalSpout):
    output_fields = Fields("attempt", "id: long", "text: string")

    def __init__(self, life: Life) -> None:
        self._life = life

    def __reduce__(self) -> Any:
        return _Spout, (Life(self._life.folder, self._life.load, SimulatedClock(0), ()),)

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        return _Numbers(self._life)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        return _Rows(self._life.load)


@attrs.frozen
class Cost:
    """What this process has cost up to a moment; all but the first is the same however busy the machine is."""

    cpu_secs: float
    reads: int
    bytes_read: int
    writes: int
    bytes_written: int
    listed: int
    """The names in folders that were listed."""

    @staticmethod
    def until_now(clock: SimulatedClock) -> Cost:
        """Return it. Of system calls the kernel counts those of delta-rs, too."""
        lines = Path("/proc/self/io").read_text().splitlines()
        io = {name: int(count) for name, count in (line.split(": ") for line in lines)}
        return Cost(time.process_time(), io["syscr"], io["rchar"], io["syscw"], io["wchar"], clock.listed)

    def since(self, before: Cost, groups: int) -> Cost:
        """Return what a group has cost since another moment."""
        pairs = zip(attrs.astuple(self), attrs.astuple(before), strict=True)
        return Cost(*((now - then) / groups for now, then in pairs))


@attrs.define(eq=False)
class Life:
    """A topology in a folder, and its time."""

    folder: Path
    load: Load
    clock: SimulatedClock
    steps_secs: Sequence[float]
    """The time before each group."""
    last: int = 0
    """The last transaction that it is to commit."""
    is_waiting: Callable[[], bool] = lambda: False
    """Whether it goes on after that, and waits for input."""
    costs: dict[int, Cost] = attrs.field(factory=dict)
    """What this process had cost at the beginning of a transaction, by its number, of the first and every 50th."""
    mode: str = MICRO_BATCH
    """In real-time mode, its worker is in this process."""
    names: tuple[str, ...] = TABLES
    """Its tables."""
    begun_after: dict[str, int] = attrs.field(factory=dict)
    """By table that came later, the transaction at which it joined."""

    def pass_one(self, txid: int) -> None:
        """Take note that a transaction begins, and let the time pass until then."""
        self.clock.go_on(self.steps_secs[txid - 1])
        if txid == 1 or txid % _MEASURED_EVERY == 0:
            self.costs[txid] = Cost.until_now(self.clock)

    def cost_of(self, groups: int, last: int) -> Cost:
        """Return what one of some groups has cost, up to about a transaction."""
        end = max(txid for txid in self.costs if txid <= last)
        start = max((txid for txid in self.costs if txid <= end - groups), default=1)
        return self.costs[end].since(self.costs[start], end - start)

    def run(self, last: int, **settings: Any) -> None:
        """Run up to a transaction, each in a group of its own."""
        self.last = last
        with self.clock.instead_of_the_real_one():
            report = run_with(*self._declared(settings), self._environment(), until=None)
        assert report.committed_txid == last, f"it was stopped at transaction {report.committed_txid}"

    def backfill(self, name: str) -> None:
        """Give the topology, which stands still, one more table, with all that it has committed."""
        self.names = (*self.names, name)
        news = BackfillNews(lambda _: None, lambda _part, _txid: None, lambda _: None)
        with self.clock.instead_of_the_real_one():
            joined_at = backfill(*self._declared({}), self._environment(), name, news).joined_at
        assert joined_at == self.last, f"it joined at {joined_at}"
        self.begun_after[name] = self.last

    def _environment(self) -> Environment:
        def wall_secs() -> float:
            return self.clock.now_secs

        @contextlib.contextmanager
        def make_runner(plan: Plan, config: Config, prototypes: dict[str, bytes]) -> Iterator[PooledRunner]:
            runner = PooledRunner(lambda: TaskFactory(plan, config, prototypes), 1, Random(1), memory_max=1 << 24)
            with contextlib.closing(runner):
                yield runner

        if self.mode == MICRO_BATCH:
            return inline_environment(1, wall_secs)
        return Environment(make_runner, make_threads=lambda jobs_max: ThreadPools(jobs_max, 1, wall_secs))

    def _declared(self, settings: Mapping[str, Any]) -> tuple[Topology, Config]:
        builder = TransactionalTopologyBuilder(TOPOLOGY, "rows", _Spout(self), 1)
        for name in self.names:
            committer = ReduceCommitter(name, "id", values={"text": Max("text")})
            builder.set_committer_bolt(f"into-{name}", committer, 1).fields_grouping("rows", Fields("id"))
            fields = Fields("id: long"), Fields("text: string")
            builder.set_state(name, DeltaState(self.folder / name, *fields, deletion_vectors=self.load.has_vectors))
        config = Config(
            {
                "topology.group.transactions.max": 1,
                "topology.max.spout.pending": 1,
                "topology.rewind.hours": REWIND_HOURS,
                "topology.processing.mode": self.mode,
                **settings,
            }
        )
        return builder.build(), config

    def recent_groups(self) -> int:
        """Return how many groups there were in the last five minutes."""
        ago_secs, count = 0.0, 0
        for step_secs in reversed(self.steps_secs[: self.last]):
            if ago_secs > RECENT_SECS:
                break
            ago_secs, count = ago_secs + step_secs, count + 1
        return count

    def points(self) -> tuple[KeptPoint, ...]:
        """Return the points that are left of those on record."""
        store = SqliteStore(self.folder / "_txtopo" / "coordinator.sqlite")
        try:
            known = CoordinatorState(store, None, TOPOLOGY).points()
        finally:
            store.close()
        return known.at(int(self.clock.now_secs * 1000), REWIND_HOURS).points

    def wrong_points(self) -> Iterator[str]:
        """Yield in words what a point lacks, by its rows in each table."""
        for point in self.points():
            expected = self.load.last_put(point.txid)
            for name in self.names_at(point.txid):
                rows = read_table(self.folder / name, point.txid).sort_by("id")
                seen = np.array([int(text[:NUMBER_DIGITS]) for text in rows["text"].to_pylist()])
                if not np.array_equal(seen, expected):
                    yield f"table {name!r} at {point.txid}"

    def names_at(self, txid: int) -> list[str]:
        """Return the tables that it had at a transaction."""
        return [name for name in self.names if self.begun_after.get(name, 0) <= txid]

    def sizes(self, name: str) -> TableSizes:
        """Return what a table has on the disk, looked at from outside."""
        root = self.folder / name
        location = Location.resolve(str(root), None)
        table = location.handle()
        owner = Owner.of(table)
        assert owner is not None, "it is a state's"
        files = {str(path.relative_to(root)): path.stat() for path in root.rglob("*") if path.is_file()}
        versions = TableVersions(location, table, owner)
        of_points = [versions.as_of(point.txid) for point in self.points()]
        live = [
            {place for file in files_of(location, each).values() for place in file.places}
            for each in (table, *of_points)
            if each is not None
        ]
        checkpoints = [checkpoint_path(version) for version in KeptLog.of(location.folder).checkpoints]
        since_secs = self.clock.now_secs - RECENT_SECS
        return TableSizes(
            files=len(files),
            bytes=sum(file.st_size for file in files.values()),
            live_bytes=max(sum(files[place].st_size for place in places) for places in live),
            checkpoint_bytes=max(files[path].st_size for path in checkpoints if path in files),
            recent_bytes=sum(file.st_size for file in files.values() if self.clock.at(file.st_mtime) >= since_secs),
        )

    def journal_bytes(self) -> int:
        """Return the size of the journal."""
        return sum(path.stat().st_size for path in (self.folder / "_txtopo" / "journal").rglob("*.jsonl"))


@attrs.frozen
class TableSizes:
    """What a table has on the disk."""

    files: int
    bytes: int
    live_bytes: int
    """Of the files of that version that has the most, of those of points and the newest, with their dead rows.

    It has fewer just after files were merged.
    """
    checkpoint_bytes: int
    """Of the largest one."""
    recent_bytes: int
    """Of what was written in the last five minutes."""

    def bytes_max(self, points: int) -> int:
        """Return the bound of what it may have."""
        return (points + 2) * (self.live_bytes + self.checkpoint_bytes) + self.recent_bytes
