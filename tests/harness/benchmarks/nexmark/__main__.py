"""Nexmark's queries, measured and compared with DuckDB's answers: ``python -m tests.harness.benchmarks.nexmark q5 q7``.

Without names, all queries that there are. A query runs once over a part of the events to warm up, then for each number
of events a transaction.
CPU seconds are those of the driver, Spark's Python workers and the JVM, without its compilers.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import shutil
import tempfile
import time
from pathlib import Path
from types import ModuleType

import click
from pyspark.sql import SparkSession

import examples.nexmark
from examples.nexmark.events import Events
from tests.harness.benchmarks.core_secs import CoreSecs
from tests.harness.benchmarks.nexmark.answers import QUERIES, Answers, found_in
from tests.harness.benchmarks.session import benchmark_session
from txtopo import Config, run

WARM_UP = 0.1
"""The part of the events that a query runs over first."""


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


@click.command()
@click.argument("names", nargs=-1, metavar="[QUERY]…")
@click.option("--events", default=1_000_000, show_default=True, type=click.IntRange(100), help="How many.")
@click.option("--seed", default=1, show_default=True, help="Decides the events.")
@click.option("--each", multiple=True, default=(20_000, 500_000), show_default=True, help="Events of a transaction.")
@click.option("--real-time", is_flag=True, help="In real-time mode.")
def main(names: tuple[str, ...], events: int, seed: int, each: tuple[int, ...], real_time: bool) -> None:
    """Measure queries."""
    config = Config({"topology.processing.mode": "real-time"}) if real_time else Config()
    made = Events(events, seed)
    with tempfile.TemporaryDirectory(prefix="txtopo-nexmark-") as folder, benchmark_session() as spark:
        work = Path(folder)
        few = Events(max(100, round(events * WARM_UP)), seed)
        few.write(work / "few", range(0, few.count, max(1, few.count // 5)))
        for size in each:
            made.write(work / str(size), range(0, events, size))
        with Answers.of(work / str(each[0])) as answers:
            for name, query in queries().items():
                if names and name not in names:
                    continue
                _run(query, work / "few", work / "run", config, spark)
                for size in each:
                    secs, cores = _run(query, work / str(size), work / "run", config, spark)
                    found = answers.difference(name, found_in(query, str(work / "run")))
                    click.echo(
                        f"{name}: {lines(query)} lines; {size:,} a transaction: {events / secs:,.0f} events/s, "
                        f"{cores * 1e6 / events:.1f} CPU seconds a million; {found.rows:,} rows, "
                        f"{found.missing.num_rows:,} missing, {found.surplus.num_rows:,} too many"
                    )


def _run(query: ModuleType, events: Path, output: Path, config: Config, spark: SparkSession) -> tuple[float, float]:
    """Run a query into a new folder; return its seconds by the clock and those of cores."""
    shutil.rmtree(output, ignore_errors=True)
    topology = query.topology(str(events), str(output))
    begun, cores = time.perf_counter(), CoreSecs.now()
    run(topology, config, spark=spark)
    return time.perf_counter() - begun, sum(CoreSecs.now().since(cores))


if __name__ == "__main__":
    main()
