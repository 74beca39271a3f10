"""Random kills of three topologies in a row, each of which reads the tables of the one before; the first two go back."""

import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs
import click

from state import read_table
from tests.harness.soak.chain.topology import rows_of

_ROOT = Path(__file__).parents[4]
_MODULE = "tests.harness.soak.chain.topology"
_WAY = re.compile(r"run again: txtopo (rewind MODULE --to '[^']*')")


@attrs.define(eq=False)
class _Chain:
    """The topologies in a folder, and how they are run and killed."""

    folder: str
    rows: int
    mode: str
    drawing: random.Random
    alive_secs: float
    factor: int = 1
    killed: int = 0

    def run(self, stage: int, *, is_killed: bool) -> str:
        """Run one, and kill it at some moment unless it has ended; return what it has refused, if it has."""
        words = ["-m", _MODULE, str(stage), str(self.rows), str(self.factor), self.mode]
        process = self._begun(words)
        if is_killed:
            try:
                _, told = process.communicate(timeout=self.drawing.uniform(self.alive_secs / 4, self.alive_secs))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.killed += 1
                return ""
        else:
            _, told = process.communicate()
        if process.returncode and not _WAY.search(told):
            raise click.ClickException(f"topology {stage} ended with {process.returncode}: {told[-3000:]}")
        return told if process.returncode else ""

    def rewind(self, stage: int, *where: str) -> None:
        """Bring one back."""
        sets = [f"stage={stage}", f"rows={self.rows}", f"factor={self.factor}"]
        words = [
            "-m",
            "txtopo",
            "rewind",
            _MODULE,
            *where,
            "--yes",
            *(each for name in sets for each in ("--set", name)),
        ]
        process = self._begun(words)
        _, told = process.communicate()
        if "give TXID 0" in told:  # it has begun after what is void
            self.rewind(stage, "0")
        elif process.returncode:
            raise click.ClickException(f"{shlex.join(words)}: {told[-3000:]}")

    def settle(self) -> None:
        """Run each to its end, and follow the way that one names."""
        for stage in range(3):
            while told := self.run(stage, is_killed=False):
                way = _WAY.search(told)
                assert way is not None, "run() has looked"
                click.echo(f"topology {stage} is told to {way[1]}")
                self.rewind(stage, *shlex.split(way[1])[2:])

    def check(self) -> None:
        """Compare the tables of all with the rows of the first one."""
        rows = rows_of(self.rows, self.factor)
        sums: dict[int, int] = {}
        for number, key in rows:
            sums[key] = sums.get(key, 0) + number
        for stage in range(3):
            kept = read_table(Path(self.folder, f"rows{stage}"))
            if sorted(kept["n"].to_pylist()) != sorted(number for number, _ in rows):
                raise click.ClickException(f"rows are lost or doubled in rows{stage}")
            summed = read_table(Path(self.folder, f"sums{stage}"))
            if dict(zip(summed["key"].to_pylist(), summed["n"].to_pylist(), strict=True)) != sums:
                raise click.ClickException(f"sums{stage} are {summed.to_pylist()}, and not {sums}")

    def _begun(self, words: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )


@click.command()
@click.option("--rows", default=3_000, help="rows of the first topology's input")
@click.option("--kills", default=30, help="how many runs are killed before one goes back, and after it")
@click.option("--rewinds", default=2, help="how often one goes back: the first, then the second, and so on")
@click.option(
    "--mode", type=click.Choice(["inline", "micro-batch", "real-time"]), default="inline", help="without Spark or with"
)
@click.option("--alive-secs", default=5.0, help="how long a run may live at most before it is killed")
@click.option("--seed", default=None, type=int, help="of the moments; by default another one each time")
def main(rows: int, kills: int, rewinds: int, mode: str, alive_secs: float, seed: int | None) -> None:
    """Kill runs at random moments, bring the first two topologies back, follow the ways that are named, and compare."""
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        chain = _Chain(folder, rows, mode, random.Random(seed), alive_secs)
        for rewind in range(rewinds + 1):
            until = chain.killed + kills
            tries = 0
            while chain.killed < until and tries < 3 * kills:
                stage, tries = chain.drawing.randrange(3), tries + 1
                if not stage or Path(folder, f"sums{stage - 1}", "_delta_log").exists():
                    chain.run(stage, is_killed=True)
            chain.settle()
            chain.check()
            if rewind < rewinds:
                stage = rewind % 2
                chain.factor += not stage  # the first one makes other rows then
                chain.rewind(stage, str(max(read_table(Path(folder, f"rows{stage}"))["txid"].to_pylist()) // 2))
    click.echo(f"{chain.killed} kills, {rewinds} rewinds: the tables of all three are those of {rows:,} rows")
