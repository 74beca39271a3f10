"""Latency: one small transaction every 200 ms, from available to visible in Delta, in either mode."""

import json
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming import StreamingQuery

from tests.harness.benchmarks.inputs import DrawnWords, TouchedKeys, check_delta, file_names, write_files
from tests.harness.benchmarks.log_times import LogWatch, log_times, visible_at
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.peers import DeltaRsPeer, MergePeer, Peer, start_stream
from tests.harness.benchmarks.topologies import (
    STATE,
    BatchSpout,
    WordSpout,
    appended,
    application,
    big_state as big_topology,
    fused,
)
from tests.harness.benchmarks.txtopo_contender import MODES, REAL_TIME, TXTOPO, run_checked
from txtopo import RunReport, Topology, run
from txtopo.assembly.parts import Observer
from txtopo.servers.zookeeper import ZooKeeperServer
from txtopo.transactional.core.record.facts import Fact
from txtopo.transactional.core.record.history import HistoryEvent

WORDS = DrawnWords(tuples=1_000)
MANY_KEYS = attrs.evolve(WORDS, keys=100_000)
FAST_INTERVAL_SECS = 0.02
FAST_TRANSACTIONS = 1_500
"""Half a minute of them."""
INTERVAL_SECS = 0.2
TRANSACTIONS = 150
BARE_PUT = "a bare synced put"
SETTLING_SECS = 3
"""What arrives so soon after the first arrival is left out, because the stream or topology starts; and what arrives
before the first is visible, because it has waited for the start on a busy machine."""
LEFT_OUT = f"what arrives in the first {SETTLING_SECS} s, or before the first is visible, is left out"
ARRIVALS_MIN = 30
BARE_PUTS = 50
TABLES = (10_000, 100_000, 10_000_000)
"""Keys of tables that are filled before, by transactions of up to ``LOAD_KEYS``."""
LOAD_KEYS = 500_000
LOADING = {"topology.max.spout.pending": 2, "topology.group.transactions.max": 1, "topology.message.timeout.secs": 600}
"""Each of them is a group, which the driver folds, and may take long on a busy machine."""
DEADLINE_SECS = 120
"""How long a peer may still work when the last file has arrived."""

_FACTS = {HistoryEvent.BEGUN, HistoryEvent.METADATA_SAVED, HistoryEvent.PROCESSED, HistoryEvent.COMMITTING}
STEPS = ("source", "metadata", "job", "to the commit", "commit phase", "preparing", "deciding", "publishing")
"""What a transaction goes through from available to visible; it is decided before the last."""


class Moments(Observer):
    """When each transaction of a run went from one of :data:`STEPS` to the next, as the run tells it."""

    def __init__(self) -> None:
        self._secs: dict[int, list[float]] = defaultdict(list)

    def recorded(self, fact: Fact) -> None:
        """Keep the moments of a fact, in seconds of the clock of the day."""
        secs = [fact.at_secs] if fact.what in _FACTS else []
        if fact.what is HistoryEvent.COMMITTED and fact.measures is not None:
            write = fact.measures.writes[STATE]
            secs = [*write.prepared, write.published[0]]
        for txid in fact.txids if secs else ():
            self._secs[txid] += [time.time() - time.monotonic() + each for each in secs]

    def of(self, first: int, last: int) -> np.ndarray:
        """Return those of some transactions, a row for each; the last one is when its group was durably decided."""
        return np.array([self._secs[txid] for txid in range(first, last + 1)])


def latency(bench: Bench) -> Outcome:
    """Measure how long a transaction takes to become visible when the source is slow."""
    measured = measure(latency_contenders, bench)
    return Outcome(
        workload="latency",
        title=f"{WORDS.tuples:,} tuples every {INTERVAL_SECS * 1000:.0f} ms, available → visible in Delta",
        unit=Unit("ms", is_lower_better=True),
        lines=measured.lines,
        targets=(
            Target(f"{TXTOPO} p50", f"{MergePeer.name} p50", 10),
            Target(f"{REAL_TIME} p50", f"{TXTOPO} p50", 4),
        ),
        phases=measured.phases,
        notes=(
            "visible is, for everyone, when another process is told that the version's file in the log has its name",
            LEFT_OUT,
            "a peer takes all files there are as soon as it has merged the last ones; each file counts",
            f"{BARE_PUT} writes, links and syncs a file of the same keys and a log entry, and nothing else",
        ),
    )


def latency_real_time(bench: Bench) -> Outcome:
    """Measure how real-time mode bears other tables, another store, and transactions that come ten times as fast."""
    folder = bench.work / "zookeeper"
    folder.mkdir(exist_ok=True)
    with ZooKeeperServer(folder) as server:
        measured = measure(lambda bench: real_time_contenders(bench, server), bench)
    return Outcome(
        workload="latency_real_time",
        title=f"{WORDS.tuples:,} tuples, available → visible in Delta, in real-time mode",
        unit=Unit("ms", is_lower_better=True),
        lines=measured.lines,
        phases=measured.phases,
        notes=(LEFT_OUT,),
    )


def real_time_contenders(bench: Bench, server: ZooKeeperServer) -> Sequence[Contender]:
    """Return txtopo in real-time mode, with a large table, rows, another store, and many transactions."""
    arrivals, fast = arrivals_of(bench), bench.times(FAST_TRANSACTIONS, 10 * ARRIVALS_MIN)

    def ours(what: str, **more: Any) -> Contender:
        return _ours(bench, REAL_TIME, **{"words": WORDS, "transactions": arrivals, "what": what, **more})

    return [
        ours(""),
        ours("a source that wakes", wakes=True),
        ours(f"{MANY_KEYS.keys:,} keys", words=MANY_KEYS),
        ours(f"{MANY_KEYS.keys:,} keys, deletion vectors", words=MANY_KEYS, make=with_vectors),
        ours("rows appended", make=appended),
        ours("ZooKeeper", zookeeper=server.hosts),
        ours(f"{1 / FAST_INTERVAL_SECS:.0f} a second", transactions=fast, interval_secs=FAST_INTERVAL_SECS),
    ]


def latency_keys(bench: Bench) -> Outcome:
    """Measure what the number of keys does to real-time mode, in tables that are filled before."""
    few, *_, many = (_label(bench, keys) for keys in TABLES)
    measured = measure(lambda each: [_filled(each, keys, _label(bench, keys)) for keys in TABLES], bench)
    return Outcome(
        workload="latency_keys",
        title=f"{WORDS.tuples:,} of a table's keys, available → visible in Delta, in real-time mode with deletion vectors",
        unit=Unit("ms", is_lower_better=True),
        lines=measured.lines,
        targets=(Target(f"{many} p50", f"{few} p50", 1.5, is_at_most=True),),
        phases=measured.phases,
        notes=(LEFT_OUT,),
    )


def _label(bench: Bench, keys: int) -> str:
    return f"{REAL_TIME}, {bench.times(keys, WORDS.tuples):,} keys"


def _filled(bench: Bench, keys: int, name: str) -> Contender:
    rows = TouchedKeys(bench.times(keys, WORDS.tuples), WORDS.tuples, loads=-(-keys // LOAD_KEYS))
    last = rows.loads + arrivals_of(bench)

    def once(folder: Path) -> Sample:
        def into(spout: BatchSpout) -> Topology:
            return big_topology(folder, spout, is_reduced=True, deletion_vectors=True)

        run(into(BatchSpout(rows, rows.loads)), LOADING, spark=bench.spark)
        spout, told, watch = BatchSpout(rows, last, INTERVAL_SECS), Moments(), LogWatch(folder / STATE)
        topology = into(spout)
        with watch:
            report = run_checked(bench.spark, topology, MODES[REAL_TIME], folder, rows, last, told)
        visible = visible_at(folder / STATE, application(topology.plan.topology_id), rows.loads + 1, last, watch.seen)
        available = np.array(spout.begun_at)[rows.loads :]
        return latency_sample(available, visible, report, told.of(rows.loads + 1, last))

    return Contender(name, Role.TXTOPO, once)


def with_vectors(output: Path, spout: WordSpout) -> Topology:
    """Return :func:`fused` into a table with deletion vectors, where a group writes the rows that it touches alone."""
    return fused(output, spout, deletion_vectors=True)


def latency_contenders(bench: Bench) -> Sequence[Contender]:
    """Return txtopo in both modes, its peers, and what a disk takes."""
    transactions = arrivals_of(bench)
    prepared = write_files(bench.work / "inputs", WORDS, transactions)

    def of(peer: Peer) -> Contender:
        return Contender(
            peer.name, Role.PEER, lambda folder: _run_peer(bench, peer, prepared, folder), peer.needs_delta_jars
        )

    ours = [_ours(bench, mode, WORDS, transactions) for mode in MODES]
    return [*ours, of(MergePeer()), of(DeltaRsPeer()), Contender(BARE_PUT, Role.LIMIT, _put_bare)]


def _ours(
    bench: Bench,
    mode: str,
    words: DrawnWords,
    transactions: int,
    what: str = "",
    interval_secs: float = INTERVAL_SECS,
    *,
    make: Callable[[Path, WordSpout], Topology] = fused,
    zookeeper: str = "",
    wakes: bool = False,
) -> Contender:
    def once(folder: Path) -> Sample:
        spout = WordSpout(words, transactions, interval_secs, wakes=wakes)
        topology, config = make(folder, spout), MODES[mode]
        if zookeeper:
            store = {
                "transactional.zookeeper.servers": zookeeper,
                "transactional.zookeeper.root": f"/{uuid.uuid4().hex}",
            }
            config = config.with_settings({"topology.state.store": "zookeeper", **store})
        told, watch = Moments(), LogWatch(folder / STATE)
        with watch:
            report = run_checked(bench.spark, topology, config, folder, words, transactions, told)
        available = np.array(spout.begun_at)
        visible = visible_at(folder / STATE, application(topology.plan.topology_id), 1, transactions, watch.seen)
        return latency_sample(available, visible, report, told.of(1, transactions))

    return Contender(f"{mode}, {what}" if what else mode, Role.TXTOPO, once)


def _put_bare(folder: Path) -> Sample:
    """Write what a transaction writes, and nothing else: a file of all keys, and an entry under its final name."""
    rows = pa.BufferOutputStream()
    pq.write_table(pa.table({"word": np.arange(WORDS.keys).astype(str), "n": np.arange(WORDS.keys)}), rows)
    content, entry = rows.getvalue().to_pybytes(), b"{}" * 500
    began, visible = [], []
    descriptor = os.open(folder, os.O_RDONLY)
    for number in range(BARE_PUTS):
        began.append(time.time())
        for name, data in ((f"{number}.parquet", content), (f"{number}.draft", entry)):
            with (folder / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        (folder / f"{number}.json").hardlink_to(folder / f"{number}.draft")
        os.fsync(descriptor)
        visible.append(time.time())
    os.close(descriptor)
    return _quantiles(np.array(visible) - np.array(began))


def _run_peer(bench: Bench, peer: Peer, prepared: Path, folder: Path) -> Sample:
    transactions = arrivals_of(bench)
    source, checkpoint, table = folder / "source", folder / "checkpoint", folder / "words"
    source.mkdir()
    peer.create(bench.spark, table)
    with LogWatch(table) as watch:
        query = start_stream(bench.spark, peer, source, checkpoint)
        try:
            available = _let_files_arrive(prepared, source, transactions)
            _await_batches(query, checkpoint, table, transactions)
        finally:
            query.stop()
    check_delta(peer.name, table, WORDS.totals(transactions))
    batch_of_file = _batches_by_file(checkpoint)
    visible_of_batch = {
        each.version - 1: each.at_secs for each in log_times(table, watch.seen)
    }  # version 0 is the empty table
    visible = [visible_of_batch[batch_of_file[file_names(txid, 1)[0]]] for txid in range(1, transactions + 1)]
    return latency_sample(np.array(available), np.array(visible))


def _let_files_arrive(prepared: Path, source: Path, transactions: int) -> list[float]:
    """Let a file arrive at each interval, by a rename, and return when each did."""
    arrived: list[float] = []
    start = time.time()
    pause = threading.Event()
    for txid in range(1, transactions + 1):
        (name,) = file_names(txid, 1)
        draft = source / f"_{name}"  # Spark skips names with an underscore, so it never reads half a file
        draft.write_bytes((prepared / name).read_bytes())
        pause.wait(max(0.0, start + txid * INTERVAL_SECS - time.time()))
        draft.rename(source / name)
        arrived.append(time.time())
    return arrived


def _await_batches(query: StreamingQuery, checkpoint: Path, table: Path, transactions: int) -> None:
    """Wait until every file is in a batch, and every batch in the table."""
    deadline = time.monotonic() + DEADLINE_SECS
    pause = threading.Event()
    while True:
        batches = _batches_by_file(checkpoint)
        versions = sum(1 for _ in (table / "_delta_log").glob("*.json"))
        if len(batches) == transactions and versions > max(batches.values()) + 1:
            return
        error = query.exception()
        if error is not None:
            raise error
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"a peer has taken {len(batches)} of {transactions} files {DEADLINE_SECS} s after the last"
            )
        pause.wait(0.1)


def _batches_by_file(checkpoint: Path) -> dict[str, int]:
    """Return the batch of each file, from the log of the stream's source."""
    batches: dict[str, int] = {}
    for path in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            entry = json.loads(line)
            batches[entry["path"].rpartition("/")[2]] = entry["batchId"]
    return batches


def latency_sample(
    available: np.ndarray, visible: np.ndarray, report: RunReport | None = None, between: np.ndarray | None = None
) -> Sample:
    """Return the latencies of what was available at these times and visible at those, without those of the start.

    ``between`` are the moments between, see :class:`Moments`: then there are the latencies from available to decided, too.
    """
    began = min(max(available[0] + SETTLING_SECS, visible[0]), available[-1])  # a short try may end before its start
    counted = available >= began
    sample = _quantiles((visible - available)[counted], report)
    if between is None:
        return sample
    decided = _quantiles((between[:, -1] - available)[counted]).figures
    steps = _steps(np.column_stack((available, between, visible))[counted])
    figures = {**sample.figures, **{f"decided {name}": each for name, each in decided.items()}}
    return attrs.evolve(sample, figures=figures, steps=steps)


def _steps(moments: np.ndarray) -> Mapping[str, str]:
    """Return the mean of each step of those transactions whose time is in the middle half: so they add up."""
    secs = moments[:, -1] - moments[:, 0]
    low, high = np.percentile(secs, (25, 75))
    means = np.diff(moments[(secs >= low) & (secs <= high)]).mean(axis=0) * 1000
    return {step: f"{mean:.2f} ms" for step, mean in zip((*STEPS, "in all"), (*means, means.sum()), strict=True)}


def _quantiles(secs: np.ndarray, report: RunReport | None = None) -> Sample:
    return Sample({f"p{quantile}": float(np.percentile(secs * 1000, quantile)) for quantile in (50, 99)}, report)


def arrivals_of(bench: Bench) -> int:
    """Return the number of transactions, or of arrivals."""
    return bench.times(TRANSACTIONS, ARRIVALS_MIN)
