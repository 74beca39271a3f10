"""Random kills of a topology that applies changes: the table is what sorting all of them leaves."""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc

from state import read_table
from tests.harness.benchmarks.inputs import write_transactions
from tests.harness.soak.mirror.topology import CHANGE, COLUMNS, left, made

_VERSIONS_MAX = 3
"""A run is killed within so many versions of the table, and then within some milliseconds."""

_DELAY_SECS = 0.02


@click.command()
@click.option("--changes", default=1_000_000, help="Changes, up to 50,000 or a tenth too late; 1 of 20 comes twice.")
@click.option("--keys", default=100_000, help="Keys that they are of.")
@click.option("--size", default=20_000, help="Changes of a transaction.")
@click.option("--kills", default=10, help="How many runs are killed.")
@click.option("--seed", default=None, type=int, help="Of the moments; by default another one each time.")
@click.option("--folder", default=None, type=click.Path(path_type=Path), help="Where the folder of the run is made.")
def main(changes: int, keys: int, size: int, kills: int, seed: int | None, folder: Path | None) -> None:
    """Kill runs at random moments, let the last one end, and compare its tables with all changes sorted."""
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}")
    drawing, killed, table = random.Random(seed), 0, made(changes, keys)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        source, output = write_transactions(Path(work) / "changes", table, size), Path(work) / "out"
        while True:
            process = subprocess.Popen([sys.executable, "-m", f"{__package__}.topology", str(source), str(output)])
            if killed < kills:
                killed += _killed(process, output, drawing)
            if process.wait() == 0:
                break
            if process.returncode > 0:
                raise click.ClickException(f"a run ended with {process.returncode}")
        expected = left(table)
        if not _sorted(read_table(output / "rows").select(COLUMNS)).equals(_sorted(expected)):
            raise click.ClickException("the rows are not those that sorting all changes leaves")
        gone = pc.count_distinct(table["id"]).as_py() - expected.num_rows
        if read_table(output / "gone").num_rows != gone:
            raise click.ClickException(f"the tombstones are not those of the {gone:,} keys that are deleted")
    click.echo(
        f"{killed} kills, {changes:,} changes: the table is what sorting them leaves, and {gone:,} keys are gone"
    )


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.cast(CHANGE.subset(COLUMNS).arrow_schema()).sort_by("id").combine_chunks()


def _killed(process: subprocess.Popen[bytes], output: Path, drawing: random.Random) -> bool:
    """Kill a run once it has written a drawn number of versions, and some time; return whether it was still there."""
    until = _versions(output) + drawing.randint(1, _VERSIONS_MAX)
    while _versions(output) < until and process.poll() is None:
        time.sleep(0.01)
    time.sleep(drawing.random() * _DELAY_SECS)
    is_there = process.poll() is None
    process.kill()
    return is_there


def _versions(output: Path) -> int:
    log = output / "rows" / "_delta_log"
    return sum(path.suffix == ".json" for path in log.iterdir()) if log.exists() else 0
