"""Benchmarks by name: ``python -m tests.harness.benchmarks small large``, or ``all``."""

import datetime as dt
import json
import tempfile
from pathlib import Path

import click
from rich.console import Console

from tests.harness.benchmarks import history
from tests.harness.benchmarks.measuring import Bench
from tests.harness.benchmarks.outcome import print_moved, print_outcome, processor, write_json
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
@click.option("--keep", metavar="NAME", help="Make the figures part of the history, by this name.")
@click.option("--note", default="", help="What a reader of the history must know of this run.")
def main(names: tuple[str, ...], rounds: int, scale: float, output: Path, keep: str | None, note: str) -> None:
    """Run txtopo, its peers and the limit side by side. NAME is a workload, or all.

    Totals are checked in every round; a wrong one ends the benchmark. At the end stands what has moved by more than noise
    since the last run on such a machine that is in the history.
    """
    if keep is not None and scale != 1:
        raise click.UsageError("the history has figures of whole sizes: leave out --scale or --keep")
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
    documents = [json.loads((output / f"{name}.json").read_text(encoding="utf-8")) for name in chosen]
    entry = history.entry_of(documents, f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", processor(), note)
    if scale == 1:
        print_moved(console, entry)
    if keep is not None:
        console.print(f"kept: {history.keep(entry, keep)}", soft_wrap=True)


if __name__ == "__main__":
    main()
