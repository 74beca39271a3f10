"""What a commit group costs a keyed table with deletion vectors: ``python -m tests.harness.benchmarks.groups``.

It prints CPU time and bytes of all that the state does for a group, merges included and checkpoints of the log only
with ``--checkpoints``, by rows of the table and touched keys: random ones, in groups one after another, as a
coordinator has them; and what a start takes, and the index of the rows. Keys are longs, or words with ``--words``. The
time is the process's own, so that a busy machine changes little. ``--bytes-max 0`` has rows and index on the disk;
another process has filled the table, so the memory is what a coordinator has.
"""

import multiprocessing
import operator
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

from state import DeltaState
from state.delta.keyed.state import OpenedDeltaState
from tests.harness.benchmarks.inputs import rows_of
from txtopo import Config, Fields
from txtopo.columnar.key_index import HashIndex, hashes_of
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.transactional.commit.write_buffer import group_state

_LOAD_ROWS = 500_000

_NEVER = 1_000_000_000
"""How many writes no benchmark makes."""


class Table:
    """A table of words, and the groups that it gets."""

    def __init__(
        self, path: Path, *, are_words: bool, deletion_vectors: bool, bytes_max: int, has_checkpoints: bool
    ) -> None:
        self._path = path
        self._rows_of = rows_of if are_words else _of_longs
        key = Fields("word: string" if are_words else "word: long")
        upkeep = {} if has_checkpoints else {"upkeep_every_writes": _NEVER}
        declared = DeltaState(path, key, Fields("n: long"), deletion_vectors=deletion_vectors, **upkeep)
        self._drawing = np.random.default_rng(5)
        probe = ProgressProbe()
        opened = declared.open("benchmark", "words", "life", 1)
        assert isinstance(opened, OpenedDeltaState), "it is keyed"
        self._state = opened
        with probe.current():
            self._state.hold_rows(bytes_max)
            self._state.multi_get(["w0" if are_words else 0])  # which waits for all rows
        self.steps = probe.steps
        """How often a start has shown progress."""
        self._txid = self._state.last_txid or 0

    def fold(self, rows: pa.Table) -> None:
        """Fold a number into each key, in a group of its own."""
        self._txid += 1
        group = group_state(self._state)
        view = group.begin(self._txid)
        view.multi_reduce(rows, operator.add)
        view.check()
        view.finish()
        self._state.write(self._txid, group.writes())
        self._state.maintain()

    def fill(self, rows: int) -> None:
        """Put all keys."""
        for start in range(0, rows, _LOAD_ROWS):
            self.fold(self._rows_of(np.arange(start, min(rows, start + _LOAD_ROWS))))

    def costs(self, rows: int, touched: int, groups: int) -> tuple[float, float, float]:
        """Return the median and the mean of the CPU ms of some groups, and the mean of their KB."""
        before, cpu_ms = self._sizes(), []
        for _ in range(groups):
            keys = self._rows_of(np.unique(self._drawing.integers(0, rows, touched)))
            began = time.process_time()
            self.fold(keys)
            cpu_ms.append((time.process_time() - began) * 1000)
        new = sum(size for path, size in self._sizes().items() if path not in before)
        return float(np.median(cpu_ms)), float(np.mean(cpu_ms)), new / groups / 1000

    def close(self) -> None:
        """End what goes on beside the groups."""
        self._state.close()

    def _sizes(self) -> dict[Path, int]:
        return {path: path.stat().st_size for path in self._path.rglob("*") if path.is_file()}


def _of_longs(keys: np.ndarray) -> pa.Table:
    """Return a row with n = 1 for each key."""
    return pa.table({"word": pa.array(keys), "n": pa.array(np.ones(len(keys), np.int64))})


def fill(path: Path, rows: int, *, are_words: bool, deletion_vectors: bool) -> None:
    """Make a table of so many rows."""
    bytes_max = Config().state_bytes_max
    table = Table(
        path, are_words=are_words, deletion_vectors=deletion_vectors, bytes_max=bytes_max, has_checkpoints=True
    )
    table.fill(rows)
    table.close()


def memory() -> str:
    """Return in words what the process has in memory: its own, and the pages of mapped files."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own, files = (int(status[name].split()[0]) / 1000 for name in ("RssAnon", "RssFile"))
    return f"{own:,.0f} MB of its own, {files:,.0f} MB of files in memory"


def index_bytes(rows: int) -> int:
    """Return what an index of so many rows takes beside them when it is made, which is its largest share of a row."""
    index = HashIndex(rows)
    slots = index.add(hashes_of(rows_of(np.arange(rows)).select(["word"])), np.arange(rows))
    return index.nbytes + slots.nbytes


@click.command()
@click.option("--rows", multiple=True, default=(10_000, 1_000_000), show_default=True, type=click.IntRange(1_000))
@click.option("--touched", multiple=True, default=(100, 1_000, 100_000), show_default=True, type=click.IntRange(1))
@click.option("--groups", default=24, show_default=True, type=click.IntRange(1), help="Of each size.")
@click.option("--words", is_flag=True, help="Keys are words, not longs.")
@click.option("--rewritten", is_flag=True, help="Without deletion vectors.")
@click.option("--checkpoints", is_flag=True, help="With the checkpoints of the log: one for 50 groups or fewer.")
@click.option("--bytes-max", default=Config().state_bytes_max, show_default=True, help="topology.state.bytes.max.")
def main(
    rows: tuple[int, ...],
    touched: tuple[int, ...],
    groups: int,
    *,
    words: bool,
    rewritten: bool,
    checkpoints: bool,
    bytes_max: int,
) -> None:
    """Print what groups cost, by rows of the table and touched keys."""
    for count in rows:
        with tempfile.TemporaryDirectory(prefix="txtopo-benchmark-") as folder:
            path, made = Path(folder) / "words", {"are_words": words, "deletion_vectors": not rewritten}
            filling = multiprocessing.get_context("spawn").Process(target=fill, args=(path, count), kwargs=made)
            filling.start()
            filling.join()
            began = time.process_time()
            table = Table(path, **made, bytes_max=bytes_max, has_checkpoints=checkpoints)
            cpu_secs = time.process_time() - began
            click.echo(f"{count:,} rows: a start takes {cpu_secs:.1f} s CPU, in {table.steps} steps; {memory()}")
            click.echo(f"  the index takes {index_bytes(count) / count:.1f} bytes a row")
            for own in (each for each in touched if each <= count):
                median, mean, size = table.costs(count, own, groups)
                click.echo(f"  {own:,} keys: {median:.1f} ms CPU, {mean:.1f} in the mean, {size:,.0f} KB; {memory()}")
            table.close()


if __name__ == "__main__":
    main()
