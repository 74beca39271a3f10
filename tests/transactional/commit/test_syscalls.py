"""What the system is asked for in one commit of two tables: nothing becomes visible before what it rests on is synced."""

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from txtopo.config import MICRO_BATCH, REAL_TIME

RUN = """
import pathlib, sys
from tests.state.delta.two_tables import two_tables
from txtopo import Config
from txtopo.testing.inline import run_inline
run_inline(two_tables(pathlib.Path(sys.argv[1])), Config({"topology.processing.mode": sys.argv[2]}), until=1)
"""

CALLS = "openat,fsync,fdatasync,link,linkat,rename,renameat,renameat2"

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


class Trace:
    """The calls of a process and its threads, each as ``name path``, in the order in which they began and ended."""

    def __init__(self, text: str, root: Path) -> None:
        self.steps: list[tuple[str, str]] = []
        begun: dict[str, str] = {}
        for line in text.replace(f"{root}/", "").splitlines():
            thread, _, call = line.partition(" ")
            if "resumed>" in call:
                if thread in begun:
                    self.steps.append(("end", begun.pop(thread)))
                continue
            name = call.lstrip().partition("(")[0].removesuffix("at").removesuffix("at2")
            paths = [a or b for a, b in re.findall(r'\d+<([^>]*)>|"([^"]*)"', call)]
            if name == "open":
                if "O_EXCL" not in call:
                    continue
                name, paths = "create", paths[:1]
            what = f"{name} {' '.join(paths)}"
            self.steps.append(("begin", what))
            if "<unfinished" in call:
                begun[thread] = what
            else:
                self.steps.append(("end", what))

    def has(self, pattern: str, before: int) -> bool:
        """Return whether a call that matches has begun before a position."""
        return any(each == "begin" and re.fullmatch(pattern, what) for each, what in self.steps[:before])

    def where(self, pattern: str, moment: str, before: int | None = None) -> int:
        """Return the position of the last call that matches, of those before a position."""
        found = [
            number
            for number, (each, what) in enumerate(itertools.islice(self.steps, before))
            if each == moment and re.fullmatch(pattern, what)
        ]
        assert found, f"no {pattern} before {before} in {self.steps}"
        return found[-1]


def synced(trace: Trace, table: str, name: Callable[[str], str], before: int) -> tuple[int, int]:
    """Return when a file got its name, at last, and when its folder was synced after it; its content was before."""
    named = trace.where(name(table), "begin", before)
    draft = trace.steps[named][1].split()[1]
    trace.where(f"fsync {re.escape(draft)}", "end", named)
    folder = trace.where(f"fsync {re.escape(str(Path(draft).parent))}", "end", before)
    assert trace.where(f"fsync {re.escape(str(Path(draft).parent))}", "begin", folder) > named
    return named, folder


def synced_new(trace: Trace, file: str, before: int) -> None:
    """Check that a file was made by its name, and that its content and its folder were synced after that."""
    made = trace.where(f"create {file}", "end", before)
    path = trace.steps[made][1].split()[1]
    trace.where(f"fsync {re.escape(path)}", "end", before)
    folder = trace.where(f"fsync {re.escape(str(Path(path).parent))}", "end", before)
    assert trace.where(f"fsync {re.escape(str(Path(path).parent))}", "begin", folder) > made


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize("mode", [MICRO_BATCH, REAL_TIME])
def test_a_group_is_synced_before_it_is_decided_and_decided_before_it_is_published(tmp_path: Path, mode: str) -> None:
    """Data files and journal, with their folders; then the note; then each log's entry, whose name is synced last.

    In real-time mode the note has the rows, and the data files come after it.
    """
    output, written = tmp_path / "out", tmp_path / "trace"
    command = ["strace", "-f", "-y", "-qq", "-s", "4096", "-e", f"trace={CALLS}", "-o", str(written)]
    done = subprocess.run(
        [*command, sys.executable, "-c", RUN, str(output), mode],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    if "ptrace" in done.stderr:
        pytest.skip("processes can't be traced here")
    assert done.returncode == 0, done.stderr
    trace = Trace(written.read_text(), output)
    end = len(trace.steps)
    entries = [
        synced(trace, table, lambda table: rf"link \S+ {table}/_delta_log/\d+\.json", end)[0]
        for table in ("words", "total")
    ]
    decided = trace.where(r"fdatasync _txtopo/coordinator\.sqlite-wal", "end", min(entries))
    deciding = trace.where(r"fdatasync _txtopo/coordinator\.sqlite-wal", "begin", decided)
    for table in ("words", "total"):
        synced_new(trace, rf"{table}/_data/\S+\.parquet", deciding if mode == MICRO_BATCH else max(entries))
        assert mode == MICRO_BATCH or not trace.has(rf"create {table}/_data/\S+\.parquet", decided)
    entered = trace.where(r"fdatasync _txtopo/journal/\S+\.jsonl", "end", deciding)
    trace.where(f"fsync {re.escape(str(tmp_path))}", "end", deciding)  # the output folder's name
    header = trace.where(r"link \S+ _txtopo/journal/\S+\.jsonl", "end", entered)
    assert header < trace.where(r"fsync _txtopo/journal/\S+", "end", entered)
