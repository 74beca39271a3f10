"""The soak of changes: ``python -m tests.harness.soak changes --stories 50``."""

import logging
import random
import shutil
import tempfile
from pathlib import Path

import click

from tests.harness.soak.changes.story import Undisturbed, tell


@click.command()
@click.option("--stories", default=20, show_default=True, type=click.IntRange(1), help="How many topologies to change.")
@click.option("--steps", default=9, show_default=True, type=click.IntRange(1), help="Changes of each.")
@click.option("--seed", type=int, help="Of the first one; drawn unless given.")
def main(stories: int, steps: int, seed: int | None) -> None:
    """Rewind, fork, grow and backfill a topology in any order, with crashes, and see that its tables are exact."""
    logging.disable()  # a process that is made to die says so, at length
    first = random.SystemRandom().getrandbits(24) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="txtopo-changes-"))
    undisturbed = Undisturbed(folder / "undisturbed")
    undisturbed.run()
    for number in range(first, first + stories):
        click.echo(f"again: --stories 1 --steps {steps} --seed {number}")
        tell(folder / str(number), undisturbed, number, steps)
        shutil.rmtree(folder / str(number))
    click.echo("all tables are exact")
    shutil.rmtree(folder)
