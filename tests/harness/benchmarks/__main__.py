"""Benchmarks by name: ``python -m tests.harness.benchmarks small large``, or ``all``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.console import Console

from tests.harness.benchmarks.measuring import Bench
from tests.harness.benchmarks.outcome import print_outcome, write_json
from tests.harness.benchmarks.session import benchmark_session
from tests.harness.benchmarks.workloads import WORKLOADS


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice([*WORKLOADS, "all"]), metavar="NAME…")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Rounds, after a warm-up.")
@click.option(
    "--scale",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="A factor on sizes, for a quick try; the targets are for 1.",
)
@click.option(
    "--output",
    default=Path("txtopo-data/benchmarks"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the figures as JSON.",
)
def main(names: tuple[str, ...], rounds: int, scale: float, output: Path) -> None:
    """Run txtopo, its peers and the limit side by side. NAME is a workload, or all.

    Totals are checked in every round; a wrong one ends the benchmark.
    """
    chosen = list(WORKLOADS) if "all" in names else list(dict.fromkeys(names))
    console = Console()
    with benchmark_session(with_kafka="kafka" in chosen) as spark:
        for name in chosen:
            with tempfile.TemporaryDirectory(prefix="txtopo-benchmark-") as work:
                bench = Bench(spark, Path(work), console, rounds, scale)
                outcome = WORKLOADS[name](bench)
            print_outcome(console, outcome)
            path = write_json(output, outcome, rounds=rounds, scale=scale)
            console.print(f"written: {path}\n", soft_wrap=True)


if __name__ == "__main__":
    main()
