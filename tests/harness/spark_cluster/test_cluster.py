"""A standalone cluster by the command itself: packages are shipped, and a worker is killed in the middle."""

import contextlib
import re
from pathlib import Path

import pytest

from tests.harness.spark_cluster.standalone import why_not
from tests.processes import python

pytestmark = pytest.mark.slow

DEADLINE_SECS = 400


def left_below(folder: Path) -> list[str]:
    """Return the processes whose working folder is this one or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_text(errors="replace"))
    return found


@pytest.mark.long
@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_worker_killed(tmp_path: Path) -> None:
    """Executors that cannot import txtopo run a topology, one worker dies in the middle, and all tables are exact.

    The command leaves no process and no file behind.
    """
    command = ["-m", "tests.harness.spark_cluster", "--transactions", "120", "--kill"]
    process = python(*command, "--output", tmp_path / "cluster")
    try:
        said = process.communicate(timeout=DEADLINE_SECS)[0]
    finally:
        process.terminate()  # it takes its processes with it
        process.wait()
    assert process.returncode == 0, said
    assert "none can import txtopo, spouts, committers, state, examples, tests" in " ".join(said.split())
    assert re.search(r"killed a worker .*: \d+ transactions were committed, [1-9]\d* being processed", said)
    assert "all tables are exact, in both layouts" in said
    assert not left_below(tmp_path)
    assert not (tmp_path / "cluster").exists()
