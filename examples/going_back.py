"""The story of a bug, told by txtopo's commands: found, tried out beside the truth, and undone.

A committer adds up orders by customer. Somebody has changed it: it counts each order above 700 cents twice. The
commands show which transactions wrote a wrong total, what the mended code would make of them, and what would have come
of it in a fork; then they bring the topology back to before the mistake, and run the rest again.

Tell it with ``python -m examples.going_back [FOLDER]``. Each command is printed with what it prints, and can be typed
as well. The guide "Going back" explains them.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from committers import AppendCommitter
from spouts import FilesTransactionalSpout
from state import DeltaRows, DeltaState
from txtopo import (
    BatchBolt,
    BatchOutputCollector,
    Config,
    Fields,
    ICommitter,
    TopologyContext,
    TransactionalTopology,
    TransactionalTopologyBuilder,
    Tuple,
)

OUTPUT = "txtopo-data/going-back"
MODULE = "examples.going_back"
DAYS = 12
ORDER = Fields("customer: string", "cents: long")


class Total(BatchBolt, ICommitter):
    """Adds up cents by customer.

    Args:
        is_mended: whether the bug is gone.
    """

    def __init__(self, *, is_mended: bool) -> None:
        self._is_mended = is_mended

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Start with nothing."""
        self._totals = context.state("totals")
        self._sums: dict[str, int] = {}

    def execute(self, tuple: Tuple) -> None:
        """Add one order."""
        customer, cents = tuple["customer"], tuple["cents"]
        is_doubled = cents > 700 and not self._is_mended  # noqa: PLR2004 - the bug
        self._sums[customer] = self._sums.get(customer, 0) + cents * (2 if is_doubled else 1)

    def finish_batch(self) -> None:
        """Add the batch to the totals."""
        for customer, cents in self._sums.items():
            self._totals.update(customer, functools.partial(_added, cents))


def _added(cents: int, old: int | None) -> int:
    return (old or 0) + cents


def topology(output: str = OUTPUT, mended: bool = False) -> TransactionalTopology:  # noqa: FBT001, FBT002 - for --set
    """Return the topology; each file is a transaction."""
    spout = FilesTransactionalSpout(f"{output}/in", format="csv", fields=ORDER, batch_files_max=1)
    builder = TransactionalTopologyBuilder("orders-total", "orders", spout)
    builder.set_committer_bolt("total", Total(is_mended=mended)).global_grouping("orders")
    builder.set_state("totals", DeltaState(f"{output}/totals", Fields("customer: string"), Fields("cents: long")))
    builder.set_committer_bolt("keep", AppendCommitter("orders")).shuffle_grouping("orders")
    builder.set_state("orders", DeltaRows(f"{output}/orders", ORDER))
    return builder.build()


def config() -> Config:
    """Return small commit groups, so that there are some points to go back to."""
    return Config(group_transactions_max=3)


def write_orders(folder: Path) -> None:
    """Write a file of orders for each day: ann's grow, bob's do not."""
    folder.mkdir(parents=True, exist_ok=True)
    for day in range(1, DAYS + 1):
        (folder / f"day-{day:02}.csv").write_text(f"customer,cents\nann,{100 * day}\nbob,100\n", encoding="utf-8")


def story(output: str) -> list[tuple[str, int]]:
    """Return the commands of the story, each with its exit status."""
    here, mended, side = f"--set output={output}", f"--set output={output} --set mended=true", f"{output}-mended"
    return [
        (f"run {MODULE} {here}", 0),
        (f"blame {output} ann", 0),
        (f"replay {MODULE} --from 1 --to {DAYS} {mended}", 1),
        (f"fork {MODULE} 7 {side} {mended}", 0),
        (f"run {MODULE} --fork {side} {mended}", 0),
        (f"diff {output} {side}", 1),
        (f"rewind {MODULE} 7 --dry-run {mended}", 0),
        (f"rewind {MODULE} 7 --yes {mended}", 0),
        (f"run {MODULE} {mended}", 0),
        (f"diff {output} {side}", 0),
        (f"state {output}/totals", 0),
        (f"audit {output}", 0),
    ]


def main(output: str = OUTPUT) -> None:
    """Tell the story in a folder; end with an error if a command ends otherwise than it should."""
    write_orders(Path(output) / "in")
    for command, expected in story(output):
        click.echo(f"$ txtopo {command}")
        status = subprocess.run([sys.executable, "-m", "txtopo", *command.split()], check=False).returncode  # noqa: S603 - our own commands
        if status != expected:
            sys.exit(f"its exit status was {status}, not {expected}")
        click.echo()


if __name__ == "__main__":
    main(*sys.argv[1:2])
