"""Measures queries of Nexmark beside Structured Streaming: ``python -m tests.harness.benchmarks.nexmark q5 q7``.

Without names, all queries. For each number of events a transaction, both systems run a query over the same files, once
over a few to warm up and once measured; each row is compared with DuckDB's answer. CPU seconds are those of the driver,
Spark's Python workers and the JVM, without its compilers. At the end stands a table, as :doc:`performance` has it.
"""

from __future__ import annotations

import ast
import datetime as dt
import importlib
import inspect
import pkgutil
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
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
from tests.harness.benchmarks.session import benchmark_session
from txtopo import Config, run

WARM_UP_FILES, WARM_UP_EACH = 2, 20_000
"""A query runs over so many files first, of so many events at most."""


def queries() -> dict[str, ModuleType]:
    """Return the modules of the queries that there are, in the order of their numbers."""
    names = {each.name for each in pkgutil.iter_modules(examples.nexmark.__path__)}
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


@attrs.frozen
class Cost:
    """What a query has cost a system.

    Args:
        each: the events of a transaction.
        secs: by the clock.
        core_secs: of all processes.
    """

    query: str
    lines: int
    each: int
    events: int
    secs: float
    core_secs: float
    found: Difference

    @property
    def rate(self) -> float:
        """Events a second, by the clock."""
        return self.events / self.secs

    @property
    def core_secs_a_million(self) -> float:
        """CPU seconds per million events."""
        return self.core_secs * 1e6 / self.events

    def __str__(self) -> str:
        """Return a line."""
        return (
            f"{self.lines} lines; {self.events:,} events, {self.each:,} a transaction: {self.rate:,.0f} events/s, "
            f"{self.core_secs_a_million:.1f} CPU seconds a million; {self.found.rows:,} rows, "
            f"{self.found.missing.num_rows:,} missing, {self.found.surplus.num_rows:,} too many"
        )


@click.command()
@click.argument("names", nargs=-1, metavar="[QUERY]…")
@click.option("--events", default=1_000_000, show_default=True, type=click.IntRange(100), help="How many.")
@click.option("--seed", default=1, show_default=True, help="Decides the events.")
@click.option("--each", multiple=True, default=(20_000, 500_000), show_default=True, help="Events of a transaction.")
@click.option("--transactions", type=click.IntRange(1), help="At most so many of each size.")
@click.option("--real-time", is_flag=True, help="txtopo in real-time mode.")
@click.option("--alone", is_flag=True, help="Without Structured Streaming.")
def main(
    names: tuple[str, ...],
    events: int,
    seed: int,
    each: tuple[int, ...],
    transactions: int | None,
    real_time: bool,
    alone: bool,
) -> None:
    """Measure queries."""
    config = Config({"topology.processing.mode": "real-time"}) if real_time else Config()
    pairs: list[tuple[Cost, Cost | None]] = []
    with tempfile.TemporaryDirectory(prefix="txtopo-nexmark-") as folder, benchmark_session() as spark:
        for size in each:
            made = Events(min(events, size * (transactions or events)), seed)
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
    for size in each:
        beside = [(own, peer) for own, peer in pairs if own.each == size and peer is not None]
        if beside:
            click.echo(f"\n{size:,} events a transaction\n\n{table(beside)}")


class Bench:
    """Events in files of a size, over which queries are run.

    Args:
        folder: a folder that is not there yet.
        made: the events.
        size: the events of a transaction.
    """

    def __init__(self, folder: Path, made: Events, size: int) -> None:
        self._folder, self._made, self._size = folder, made, size
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
        return Cost(name, lines(query), self._size, self._made.count, secs, cores, found)

    def of_structured_streaming(self, name: str, answers: Answers, spark: SparkSession) -> Cost:
        """Return what a query costs in Structured Streaming; windows that stay open are left out of the answer."""
        session = structured_streaming.session_of(spark)
        secs, cores = self._measured(lambda events, output: structured_streaming.Run(session, events, output).all(name))
        last_us = (self._made.count - 1) * self._made.every_us
        watermark = self._made.start + dt.timedelta(microseconds=last_us) - DELAY
        ends = structured_streaming.OPEN.get(name)
        closed = "true" if ends is None else f"{ends} <= TIMESTAMP '{watermark:%Y-%m-%d %H:%M:%S.%f}'"
        answer = structured_streaming.Run(session, self.events, self._output).answer(name)
        found = answers.difference(name, answer, where=closed)
        own_lines = structured_streaming.lines(name)
        return Cost(name, own_lines, self._size, self._made.count, secs, cores, found)

    @property
    def _output(self) -> Path:
        return self._folder / "output"

    def _measured(self, once: Callable[[Path, Path], object]) -> tuple[float, float]:
        """Run something twice; return the seconds by the clock of the second time, and those of cores."""
        for events in (self._folder / "few", self.events):
            shutil.rmtree(self._output, ignore_errors=True)
            begun, cores = time.perf_counter(), CoreSecs.now()
            once(events, self._output)
        return time.perf_counter() - begun, sum(CoreSecs.now().since(cores))


def table(pairs: Sequence[tuple[Cost, Cost]]) -> str:
    """Return the costs of txtopo and Structured Streaming as a table in Markdown, with the medians of their ratios."""
    rows = [
        "| query | lines | thousand events/s | times | CPU s a million | times |",
        "|---|---|---|---|---|---|",
    ]
    for own, peer in pairs:
        rates, cores = own.rate / peer.rate, peer.core_secs_a_million / own.core_secs_a_million
        rows.append(
            f"| {own.query} | {own.lines}, {peer.lines} | {own.rate / 1e3:,.0f}, {peer.rate / 1e3:,.0f} | {rates:.1f} | "
            f"{own.core_secs_a_million:.1f}, {peer.core_secs_a_million:.1f} | {cores:.1f} |"
        )
    faster = statistics.median(own.rate / peer.rate for own, peer in pairs)
    cheaper = statistics.median(peer.core_secs_a_million / own.core_secs_a_million for own, peer in pairs)
    return "\n".join([*rows, f"| median | | | {faster:.1f} | | {cheaper:.1f} |"])


if __name__ == "__main__":
    main()
