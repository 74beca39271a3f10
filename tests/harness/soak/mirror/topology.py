"""The topology that is killed, as a process: arguments are the folders of its input and its output."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.harness.benchmarks.workloads.changes import topology
from txtopo import Config
from txtopo.testing import run_inline


def main(source: Path, output: Path) -> None:
    """Run it to its end."""
    run_inline(
        topology(source, output), Config(max_spout_pending=8, group_transactions_max=2, state_dir=output / "_txtopo")
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
