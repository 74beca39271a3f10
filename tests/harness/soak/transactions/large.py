"""The topology of a large table: with deletion vectors, many keys, and few that a transaction touches.

The driver folds groups of one transaction, and the executors larger ones. Files are merged all the time.
"""

import functools

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers import ReduceCommitter
from state import ConsistentView, DeltaState, read_tables
from state.delta import merging
from tests.harness.benchmarks.inputs import TouchedKeys
from tests.harness.benchmarks.topologies import BatchSpout
from tests.harness.soak.transactions.oracle import SHOWN_MAX, Judge
from tests.harness.soak.transactions.topology import SPOUT, TASKS, TOPOLOGY_ID, TOUCHED, Flaw, Setup
from txtopo import Fields, Topology, TransactionalTopologyBuilder
from txtopo.journal.journal import read_journal
from txtopo.testing.checkers import Violation, check_journal

LOADS = 10
"""How many transactions put all keys at first."""


class Reduce(ReduceCommitter):
    """Folds what it gets, unless it fails."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__("words", "word", "n")
        self.flaw = flaw

    def finish_batch(self) -> None:
        super().finish_batch()
        self.flaw.maybe_fail("reduce", self.attempt)


def keys_of(setup: Setup) -> TouchedKeys:
    """Return the keys of each transaction."""
    return TouchedKeys(setup.keys, TOUCHED, LOADS)


def large_topology(setup: Setup) -> Topology:
    """Return spout → reduce (committer)."""
    builder = TransactionalTopologyBuilder(TOPOLOGY_ID, SPOUT, BatchSpout(keys_of(setup), setup.transactions), 1)
    builder.set_committer_bolt("reduce", Reduce(Flaw(setup.seed)), TASKS).fields_grouping(SPOUT, Fields("word"))
    options = {"upkeep_every_writes": 3, "files_max": 3, "deletion_vectors": True}
    table = DeltaState(f"{setup.output}/words", Fields("word: string"), Fields("n: long"), **options)
    builder.set_state("words", table)
    return builder.build()


def merge_often() -> None:
    """Have two files of a tier merged, in this process."""
    merging._TIER = 2


@attrs.define(eq=False)
class LargeJudge(Judge):
    """Compares the table with what a plain loop makes of the transactions."""

    def __attrs_post_init__(self) -> None:
        """Compute nothing ahead."""

    def check_end(self, committed: int) -> int:
        """Raise a Violation unless all transactions are committed and every row is exact; return their number."""
        check_journal(read_journal(self.journal), committed)
        view = read_tables(self.setup.output)
        if not committed == view.txid == self.setup.transactions:
            raise Violation(f"all input is committed (promise 16): {committed} of {self.setup.transactions}")
        self.check_tables(view)
        return committed

    def check_tables(self, view: ConsistentView) -> None:
        """Raise a Violation unless each key has its total and the last transaction that has touched it."""
        table = view.tables["words"]
        keys = pc.utf8_slice_codeunits(table["word"].cast(pa.string()), 1).cast(pa.int64()).to_numpy()
        order = np.argsort(keys)
        found = np.stack([keys[order], *(table[name].to_numpy()[order] for name in ("n", "txid"))])
        expected = rows_at(keys_of(self.setup), view.txid)
        self.rows_checked += table.num_rows
        if not np.array_equal(found, expected):
            of_found, wanted = (set(map(tuple, rows.T.tolist())) for rows in (found, expected))
            lines = [f"{row} is too much" for row in sorted(of_found - wanted)]
            lines += [f"{row} is missing" for row in sorted(wanted - of_found)] or ["a row is there twice"]
            raise Violation("\n".join([f"as of transaction {view.txid}, of {len(lines)} rows", *lines[:SHOWN_MAX]]))


@functools.cache
def touched(keys: TouchedKeys, txid: int) -> np.ndarray:
    """Return the keys of a transaction, by their numbers."""
    return keys.indexes(txid)


@functools.lru_cache(maxsize=2)
def rows_at(keys: TouchedKeys, txid: int) -> np.ndarray:
    """Return key, total and last transaction of each row after a transaction."""
    totals = np.zeros(keys.keys, np.int64)
    last = np.zeros_like(totals)
    for number in range(1, txid + 1):
        own = touched(keys, number)
        totals[own] += 1
        last[own] = number
    there = np.flatnonzero(totals)
    return np.stack([there, totals[there], last[there]])
