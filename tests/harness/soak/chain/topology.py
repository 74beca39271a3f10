"""The topologies that are killed, each as a process: arguments are the stage, rows, a factor, and the mode."""

import sys
from pathlib import Path

from polars import col

from committers import Sum
from spouts import DeltaTransactionalSpout, MemoryTransactionalSpout
from txtopo import Config, Fields, TransactionalTopology, run
from txtopo.streams import Flow
from txtopo.testing import run_inline

ROW = Fields("n: long", "key: long")
FEED = ("_change_type: string", "_commit_version: long")
KEYS = 10


def rows_of(rows: int, factor: int) -> list[list[int]]:
    """Return the rows of the first topology; a factor makes other ones of the second half."""
    return [[number * factor if number >= rows // 2 else number, number % KEYS] for number in range(rows)]


def topology(stage: int = 0, rows: int = 1000, factor: int = 1, folder: str = ".") -> TransactionalTopology:
    """Keep rows and their sums by key, the first topology those of a list, each other one those of the one before."""
    flow, before = Flow(f"stage{stage}", output=folder), Path(folder)
    if not stage:
        numbers = flow.source("numbers", MemoryTransactionalSpout(rows_of(rows, factor), ROW, 3))
        numbers.append("rows0")
        numbers.group_by("key").agg(n=Sum("n")).upsert("sums0", deletion_vectors=True)
        return flow.build()
    flow.source("rows", DeltaTransactionalSpout(before / f"rows{stage - 1}", ROW, batch_files_max=5)).append(
        f"rows{stage}"
    )
    sums = DeltaTransactionalSpout(before / f"sums{stage - 1}", Fields("key: long", "n: long", *FEED), changes="emit")
    changes = flow.source("sums", sums).filter(col("_change_type") != "update_preimage")
    changes = changes.with_columns(deleted=col("_change_type") == "delete")
    changes.apply_changes(f"sums{stage}", key="key", sequence="_commit_version", deleted="deleted")
    return flow.build()


def main(stage: int, rows: int, factor: int, mode: str) -> None:
    """Run one to its end, in the working directory: without Spark, or in one of Spark's modes."""
    settings = {"topology.max.spout.pending": 6, "topology.group.transactions.max": 2}
    settings["topology.history.recent.secs"] = 24 * 3600  # a busy machine may take long from one run to the next
    if mode == "inline":
        run_inline(topology(stage, rows, factor), Config(settings))
    else:
        run(topology(stage, rows, factor), Config({**settings, "topology.processing.mode": mode}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
