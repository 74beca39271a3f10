"""A topology with a state of each kind, and what its tables hold: its input is computed, not drawn.

There are a transactional state and an opaque one, which a bolt updates by key; one that ``ReduceCommitter`` folds; and a
table of rows, partitioned.
"""

import os
import pathlib
from collections import Counter

from committers import AppendCommitter, ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState, StateKind, read_table
from txtopo import BatchBolt, Config, Fields, ICommitter, Topology, TransactionalTopologyBuilder

TRANSACTIONS = 240
TAKE = 2
"""Rows of each partition in a transaction."""
PARTITIONS = 2
SPEAKERS = ("ada", "bea", "cyd", "dot", "eve", "fay", "gus")

CONFIG = Config(max_spout_pending=45, group_transactions_max=12)
EXECUTORS_CONFIG = CONFIG.with_settings({"topology.driver.rows.max": 0})
"""The same; the executors fold and write what goes into tables, however little it is."""
REAL_TIME_CONFIG = CONFIG.with_settings({"topology.processing.mode": "real-time"})
"""The same; writes of tables with keys are decided by their rows."""


def input_rows(transactions: int = TRANSACTIONS) -> dict[int, list[tuple[str, str, int]]]:
    """Return the rows of each partition: side, speaker, points."""
    count = transactions * TAKE
    return {
        partition: [
            (("left", "right")[(at // 5 + partition) % 2], SPEAKERS[(at * 3 + at // 7 + partition) % 7], at % 11 - 3)
            for at in range(count)
        ]
        for partition in range(PARTITIONS)
    }


class KeepTotals(BatchBolt, ICommitter):
    """Adds up each speaker's points, in a transactional state, and keeps the last ones in an opaque one."""

    def prepare(self, config, context, collector, attempt):
        self.totals, self.latest = context.state("totals"), context.state("latest")
        self.points: Counter[str] = Counter()

    def execute(self, tuple):
        self.points[tuple["speaker"]] += tuple["points"]

    def finish_batch(self):
        for speaker, points in self.points.items():
            self.totals.update(speaker, lambda old, points=points: (old or 0) + points)
            self.latest.update(speaker, lambda old, points=points: points)


def topology(
    output: str | os.PathLike[str] = ".", transactions: int = TRANSACTIONS, *, deletion_vectors: bool = False
) -> Topology:
    """Return the topology, with its tables below ``output``; ``deletion_vectors`` is for those with keys."""
    folder = pathlib.Path(output)
    fields = Fields("side: string", "speaker: string", "points: long")
    builder = TransactionalTopologyBuilder(
        "interrupted", "spout", MemoryTransactionalSpout(input_rows(transactions), fields, TAKE), 2
    )
    builder.set_committer_bolt("keep", KeepTotals(), 2).fields_grouping("spout", Fields("speaker"))
    folded = ReduceCommitter("folded", ("side", "speaker"), "points")
    builder.set_committer_bolt("fold", folded, 2).fields_grouping("spout", Fields("side", "speaker"))
    builder.set_committer_bolt("append", AppendCommitter("rows"), 2).shuffle_grouping("spout")
    speaker, points = Fields("speaker: string"), Fields("points: long")
    often = {"upkeep_every_writes": 8, "files_max": 6}
    keyed = {**often, "deletion_vectors": deletion_vectors}
    builder.set_state("totals", DeltaState(folder / "totals", speaker, points, **keyed))
    builder.set_state("latest", DeltaState(folder / "latest", speaker, points, StateKind.OPAQUE, **keyed))
    builder.set_state(
        "folded", DeltaState(folder / "folded", Fields("side: string", "speaker: string"), points, **keyed)
    )
    builder.set_state("rows", DeltaRows(folder / "rows", fields, partition_by="side", **often))
    return builder.build()


def expected_rows(transactions: int = TRANSACTIONS) -> dict[str, Counter[tuple[object, ...]]]:
    """Return what each table holds at the end, computed without txtopo: its rows, the txid last."""
    totals: dict[str, tuple[int, int]] = {}
    latest: dict[str, tuple[int, int]] = {}
    folded: dict[tuple[str, str], tuple[int, int]] = {}
    rows: Counter[tuple[object, ...]] = Counter()
    everything = input_rows(transactions)
    for txid in range(1, transactions + 1):
        own: Counter[str] = Counter()
        for partition in everything.values():
            for side, speaker, points in partition[(txid - 1) * TAKE : txid * TAKE]:
                rows[side, speaker, points, txid] += 1
                own[speaker] += points
                folded[side, speaker] = folded.get((side, speaker), (0, 0))[0] + points, txid
        totals |= {speaker: (totals.get(speaker, (0, 0))[0] + points, txid) for speaker, points in own.items()}
        latest |= {speaker: (points, txid) for speaker, points in own.items()}
    return {
        "totals": Counter((speaker, *kept) for speaker, kept in totals.items()),
        "latest": Counter((speaker, *kept) for speaker, kept in latest.items()),
        "folded": Counter((*key, *kept) for key, kept in folded.items()),
        "rows": rows,
    }


def tables_in(folder: pathlib.Path, txid: int | None = None) -> dict[str, Counter]:
    """Return the rows of each table, the txid last; now, or as of a transaction."""
    return {
        name: Counter(zip(*read_table(folder / name, txid).to_pydict().values(), strict=True))
        for name in expected_rows(0)
    }
