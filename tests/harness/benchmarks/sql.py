"""What a commit group costs a state in a database: ``python -m tests.harness.benchmarks.sql``.

It prints rows per second of the coordinator's CPU, from the group's write buffer to the database's commit, for
random keys of a table that has ten times as many, and for appended rows. The server's CPU is not in it; nor is waiting,
so that a busy machine changes little.
"""

import operator
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

from state import SqlRows, SqlState
from tests.postgres import PostgresServer
from txtopo import Fields
from txtopo.api.state import OpenedState
from txtopo.transactional.commit.write_buffer import group_state

_WORD, _N = Fields("word: string"), Fields("n: long")


def _rows(numbers: np.ndarray) -> pa.Table:
    return pa.table({"word": [f"word {number}" for number in numbers.tolist()], "n": numbers})


def _group(opened: OpenedState, txid: int, put: Callable[[object], None]) -> float:
    """Write a group, and return the CPU that it took, in seconds."""
    before = time.process_time()
    group = group_state(opened)
    view = group.begin(txid)
    put(view)
    view.check()
    view.finish()
    opened.publish(txid, opened.prepare(txid, group.writes()))
    return time.process_time() - before


def _measure(url: str, count: int, groups: int) -> tuple[float, float]:
    """Return the rows per CPU-second of keyed groups and of appended ones."""
    drawing = np.random.default_rng(5)
    keyed = SqlState(url, f"keyed_{count}", _WORD, _N).open("benchmark", "keyed", "life", 1)
    every = _rows(np.arange(10 * count))
    _group(keyed, 1, lambda view: view.multi_reduce(every, operator.add))
    draws = [_rows(drawing.choice(10 * count, count, replace=False)) for _ in range(groups)]
    of_keys = [
        _group(keyed, at + 2, lambda view, rows=rows: view.multi_reduce(rows, operator.add))
        for at, rows in enumerate(draws)
    ]
    log = SqlRows(url, f"log_{count}", _WORD + _N).open("benchmark", "log", "life", 1)
    of_rows = [_group(log, at + 1, lambda view, rows=rows: view.append(rows)) for at, rows in enumerate(draws)]
    for each in (keyed, log):
        each.close()
    return count / float(np.median(of_keys)), count / float(np.median(of_rows))


@click.command()
@click.option("--groups", default=5, help="how many groups are measured, of which the median counts")
def main(groups: int) -> None:
    """Measure both databases, and print a table."""
    click.echo("| rows of a group | PostgreSQL, keys | appended | SQLite, keys | appended |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        for count in (100, 1_000, 10_000, 100_000):
            of_both = [_measure(url, count, groups) for url in (server.url, f"sqlite:///{Path(folder) / 'rows.db'}")]
            cells = [f"{rate:,.0f}" for rates in of_both for rate in rates]
            click.echo(f"| {count:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
