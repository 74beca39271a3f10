"""What the command line imports."""

from __future__ import annotations

import subprocess
import sys

from click import Context

from txtopo.cli.main import txtopo

LOADED = """
import sys
import examples.transactional_words
from txtopo.cli.main import txtopo
txtopo.get_command(None, "run")
print(*sorted(set(sys.argv[1:]) & set(sys.modules)))
"""


def test_a_run_imports_nothing_that_other_commands_need():
    """``txtopo run`` waits neither for the client of ZooKeeper nor for the simulator; a worker does not, either."""
    others = ["kazoo", "txtopo.cli.audit", "txtopo.cli.repair", "txtopo.testing.simulation.world"]
    command = [sys.executable, "-c", LOADED, "txtopo.cli.run", *others]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "txtopo.cli.run\n"


def test_every_command_is_found():
    """Each command that is listed has that name."""
    context = Context(txtopo)
    names = txtopo.list_commands(context)
    assert [txtopo.get_command(context, name).name for name in names] == names
    assert txtopo.get_command(context, "nonsense") is None
