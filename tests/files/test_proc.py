"""What Linux tells of processes."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.processes import python
from txtopo.files.proc import cpu_ticks, machine_id, memory_bytes, start_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here: nothing is known")


def test_this_process() -> None:
    """It is told, and the same each time."""
    own = os.getpid()
    assert start_of(own) == start_of(own) is not None
    assert (cpu_ticks(own) or 0) > 0
    assert (memory_bytes() or 0) > 1 << 20
    assert machine_id() == machine_id() != ""


def test_a_process_that_is_dead() -> None:
    """It has no start, whether its parent has taken note of its end or not; its name may hold anything."""
    program = 'open("/proc/self/comm", "wb").write(b"a) Z \\xff(c"); print(flush=True); input()'
    with python("-c", program, stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert start_of(child.pid) not in {None, start_of(os.getpid())}
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert start_of(child.pid) is None
        child.wait()
    assert (start_of(child.pid), cpu_ticks(child.pid)) == (None, None)
