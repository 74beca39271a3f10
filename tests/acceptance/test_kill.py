"""Promise 16: nothing is lost or doubled at any kill -9 of the whole process group, at any moment."""

import os
import pathlib
import random
import signal
import subprocess
import time

import pytest
from deltalake import DeltaTable

from state.delta.keyed.state import read_table
from tests.acceptance.topologies import counts_of, make_data, read_total, read_words
from tests.processes import python
from tests.variants import variants

pytestmark = pytest.mark.slow

DATA = make_data(3, 900)
DEADLINE_SECS = 240


def start(output: pathlib.Path, *settings: str) -> subprocess.Popen[str]:
    """Start the topology in a process group of its own."""
    command = ["-m", "tests.acceptance.run_words", output, *settings]
    return python(*command, start_new_session=True, stdout=subprocess.DEVNULL)


def committed(output: pathlib.Path) -> int:
    """Return the last txid in the words table, 0 before the first."""
    if not DeltaTable.is_deltatable(str(output / "words")):
        return 0
    txids = read_table(output / "words").column("txid").to_pylist()
    return max(txids, default=0)


@pytest.mark.parametrize("kills_max", variants(1, long=[4]))
def test_killed_and_resumed(tmp_path: pathlib.Path, kills_max: int) -> None:
    """Runs that are killed at random moments, and started again by the same command, give exact tables."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    deadline = time.monotonic() + DEADLINE_SECS
    kills = 0
    while True:
        before = committed(tmp_path)
        process = start(tmp_path)
        goal = before + rng.randrange(1, 120)
        while process.poll() is None and kills < kills_max and committed(tmp_path) < goal:
            assert time.monotonic() < deadline, "the run makes no progress"
            time.sleep(rng.random() * 0.02)
        if kills == kills_max:
            assert process.wait(DEADLINE_SECS) == 0
        if process.poll() == 0:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills > 0
    assert read_words(tmp_path) == counts_of(DATA)
    assert read_total(tmp_path) == sum(counts_of(DATA).values())
