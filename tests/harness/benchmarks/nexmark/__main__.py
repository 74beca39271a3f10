"""Measures queries of Nexmark beside Structured Streaming: ``python -m tests.harness.benchmarks.nexmark q5 q7``.

Without names, all queries. For each number of events a transaction, both systems run a query over the same files, once
over a few to warm up and once measured; each row is compared with DuckDB's answer, and the command fails if one differs
or none was compared. CPU seconds are those of the driver, Spark's Python workers and the JVM, without its compilers. At
the end stands a table in Markdown; ``--keep FILE`` writes it as JSON, too, after each query, and ``--show FILE`` prints
that of a file. The table of the documentation is that of ``measured.json`` beside this module, put there by
``python -m tests.harness.benchmarks.history``.
"""

import ast
import datetime as dt
import importlib
import inspect
import itertools
import os
import pkgutil
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import attrs
import click
from pyspark.sql import SparkSession

import examples.nexmark
from examples.nexmark.events import DELAY, Events
from tests.harness.benchmarks.core_secs import CoreSecs
from tests.harness.benchmarks.nexmark import structured_streaming
from tests.harness.benchmarks.nexmark.answers import QUERIES, Answers, Difference, found_in
from tests.harness.benchmarks.nexmark.costs import Cost, Series
from tests.harness.benchmarks.outcome import processor, versions
from tests.harness.benchmarks.session import benchmark_session
from txtopo import Config, run

WARM_UP_FILES, WARM_UP_EACH = 2, 20_000
"""A query runs over so many files first, of so many events at most."""

LEAST_SPAN = dt.timedelta(minutes=1)
"""The least time from the first event to the last: the longest windows and pauses of sessions are of 10 seconds."""


def queries() -> dict[str, ModuleType]:
    """Return the modules of the queries that there are, in the order of their numbers."""
    names = {module.name for module in pkgutil.iter_modules(examples.nexmark.__path__)}
    return {name: importlib.import_module(f"examples.nexmark.{name}") for name in QUERIES if name in names}


def lines(query: ModuleType) -> int:
    """Return the number of lines of a query, without docstrings, imports and empty lines."""
    source = inspect.getsource(query)
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) and (
            is_docstring or not isinstance(node, ast.Expr)
        ):
            left_out |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return sum(number not in left_out and line != "" for number, line in enumerate(source.splitlines(), 1))


def events_of(count: int, seed: int) -> Events:
    """Return events over so much time that windows and sessions close, also if they are few."""
    every_us = Events(count).every_us
    return Events(count, seed, every_us=max(every_us, LEAST_SPAN // dt.timedelta(microseconds=1) // count))


@click.command()
@click.argument("names", nargs=-1, metavar="[QUERY]…")
@click.option("--events", default=1_000_000, show_default=True, type=click.IntRange(100), help="How many.")
@click.option("--seed", default=1, show_default=True, help="Decides the events.")
@click.option("--each", multiple=True, default=(20_000, 500_000), show_default=True, help="Events of a transaction.")
@click.option("--transactions", type=click.IntRange(1), help="At most so many of each size.")
@click.option("--real-time", is_flag=True, help="txtopo in real-time mode.")
@click.option("--alone", is_flag=True, help="Without Structured Streaming.")
@click.option("--keep", type=click.Path(dir_okay=False, path_type=Path), help="Write all costs to this file, as JSON.")
@click.option(
    "--show", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Print a file's table; run nothing."
)
def main(
    names: tuple[str, ...],
    events: int,
    seed: int,
    each: tuple[int, ...],
    transactions: int | None,
    real_time: bool,
    alone: bool,
    keep: Path | None,
    show: Path | None,
) -> None:
    """Measure queries."""
    if show is not None:
        click.echo(Series.read(show).table())
        return
    mode = "real-time" if real_time else "micro-batch"
    config = Config({"topology.processing.mode": mode})
    pairs: list[tuple[Cost, Cost | None]] = []
    day = dt.datetime.now(tz=dt.UTC).date().isoformat()
    series = Series(day, processor(), os.cpu_count() or 1, versions(), mode, pairs)
    with tempfile.TemporaryDirectory(prefix="txtopo-nexmark-") as folder, benchmark_session() as spark:
        for size in each:
            made = events_of(min(events, size * (transactions or events)), seed)
            bench = Bench(Path(folder, str(size)), made, size)
            with Answers.of(bench.events) as answers:
                for name, query in queries().items():
                    if names and name not in names:
                        continue
                    own = bench.of_txtopo(name, query, answers, config, spark)
                    click.echo(f"{name}: txtopo: {own}")
                    peer = None if alone else bench.of_structured_streaming(name, answers, spark)
                    if peer is not None:
                        click.echo(f"{name}: Structured Streaming: {peer}")
                    pairs.append((own, peer))
                    if keep is not None:
                        series.keep(keep)
    click.echo(f"\n{series.table()}")
    wrong = [cost for pair in pairs for cost in pair if cost is not None and not cost.is_right]
    if wrong:
        raise click.ClickException("\n".join(f"{cost.query}: {cost}" for cost in wrong))


class Bench:
    """Events in files of a size, over which queries are run.

    Args:
        folder: a folder that is not there yet.
        made: the events.
        size: the events of a transaction.
    """

    def __init__(self, folder: Path, made: Events, size: int) -> None:
        self._folder, self._made, self._size = folder, made, size
        self._output = folder
        self._runs = itertools.count()
        each = min(size, WARM_UP_EACH)
        few = attrs.evolve(made, count=min(made.count, each * WARM_UP_FILES))
        made.write(folder / "events", range(0, made.count, size))
        few.write(folder / "few", range(0, few.count, each))

    @property
    def events(self) -> Path:
        """The folder of the events."""
        return self._folder / "events"

    def of_txtopo(self, name: str, query: ModuleType, answers: Answers, config: Config, spark: SparkSession) -> Cost:
        """Return what a query costs as a flow."""
        secs, cores = self._measured(
            lambda events, output: run(query.topology(str(events), str(output)), config, spark=spark)
        )
        found = answers.difference(name, found_in(query, str(self._output)))
        return self._cost(name, lines(query), secs, cores, found)

    def of_structured_streaming(self, name: str, answers: Answers, spark: SparkSession) -> Cost:
        """Return what a query costs in Structured Streaming; windows that stay open are left out of the answer."""
        session = structured_streaming.session_of(spark)
        lasts = self._made.lasts_max
        secs, cores = self._measured(
            lambda events, output: structured_streaming.Run(session, events, output, lasts).all(name)
        )
        last_us = (self._made.count - 1) * self._made.every_us
        watermark = self._made.start + dt.timedelta(microseconds=last_us) - DELAY
        ends = structured_streaming.OPEN.get(name)
        closed = "true" if ends is None else f"{ends} <= TIMESTAMP '{watermark:%Y-%m-%d %H:%M:%S.%f}'"
        answer = structured_streaming.Run(session, self.events, self._output, lasts).answer(name)
        found = answers.difference(name, answer, where=closed)
        return self._cost(name, structured_streaming.lines(name), secs, cores, found)

    def _cost(self, name: str, own_lines: int, secs: float, cores: float, found: Difference) -> Cost:
        counts = found.rows, found.missing.num_rows, found.surplus.num_rows
        return Cost(name, own_lines, self._size, self._made.count, secs, cores, *counts)

    def _measured(self, once: Callable[[Path, Path], object]) -> tuple[float, float]:
        """Run something twice; return the seconds by the clock of the second time, and those of cores.

        Each run has a folder of its own: Spark uploads a state store's last snapshot after its query has ended, and in
        the folder of the next query that would be a snapshot of the next query's state.
        """
        for events in (self._folder / "few", self.events):
            if self._output != self._folder:
                shutil.rmtree(self._output, ignore_errors=True)
            self._output = self._folder / f"output-{next(self._runs)}"
            begun, cores = time.perf_counter(), CoreSecs.now()
            once(events, self._output)
        return time.perf_counter() - begun, sum(CoreSecs.now().since(cores))


if __name__ == "__main__":
    main()
