"""The topology that is killed, as a process, and its changes: arguments are the folders of its input and its output."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers import ApplyChanges
from spouts import FilesTransactionalSpout
from tests.harness.benchmarks.inputs import FILES
from txtopo import Config, Fields, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.testing import run_inline

LATE = 50_000
"""A change comes up to so many changes too late."""

CHANGE = Fields("id: long", "name: string", "price: long", "lsn: long", "deleted: boolean")
COLUMNS = ("id", "name", "price", "lsn")


def made(count: int, keys: int) -> pa.Table:
    """Return changes as they come, 1 of 20 of which comes twice and 1 of 10 deletes its row."""
    rng = np.random.default_rng(1)
    lsn = np.arange(count)
    doubled = rng.random(count) < 0.05
    lsn[doubled] = rng.integers(0, count, doubled.sum())
    lsn = lsn[np.argsort(np.arange(count) + rng.random(count) * min(LATE, count / 10))]
    ids = np.random.default_rng(2).integers(0, keys, count)[lsn]
    name = pa.array(lsn).cast(pa.string())
    return pa.table([ids, name, lsn * 7 % 1_000, lsn, lsn % 10 == 0], schema=CHANGE.arrow_schema())


def left(changes: pa.Table) -> pa.Table:
    """Return the rows that sorting all changes leaves, by key."""
    ordered = changes.sort_by([("id", "ascending"), ("lsn", "ascending")])
    ids = ordered["id"].to_numpy()
    last = ordered.filter(pa.array(np.append(ids[1:] != ids[:-1], values=True)))
    return last.filter(pc.invert(last["deleted"])).select(COLUMNS)


def topology(source: Path, output: Path) -> TransactionalTopology:
    """Return transactions of files → the table that they change."""
    spout = FilesTransactionalSpout(source, CHANGE, batch_bytes=2**40, batch_files_max=FILES)
    builder = TransactionalTopologyBuilder("changes", "changes", spout, 2)
    parts = {"key": Fields("id: long"), "values": CHANGE.subset(["name", "price"]), "sequence": Fields("lsn: long")}
    apply = ApplyChanges("rows", "gone", deleted="deleted", **parts)
    builder.set_committer_bolt("apply", apply, 2).fields_grouping("changes", Fields("id"))
    builder.set_state("rows", apply.state(output / "rows"))
    builder.set_state("gone", apply.tombstones(output / "gone"))
    return builder.build()


def main(source: Path, output: Path) -> None:
    """Run it to its end."""
    run_inline(
        topology(source, output), Config(max_spout_pending=8, group_transactions_max=2, state_dir=output / "_txtopo")
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
