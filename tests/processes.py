"""Python in a process of its own, which imports this source tree, whatever is installed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_SECS = 550.0
"""Below the time limit of a test."""


def environment(failpoints: str = "", **variables: str) -> dict[str, str]:
    """Return the environment of such a process; see ``txtopo.failpoints`` for what it may do at which failpoint."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "TXTOPO_FAILPOINTS": failpoints, **variables}


def python(*arguments: object, failpoints: str = "", **options: Any) -> subprocess.Popen[str]:
    """Start Python with these arguments. Its output is piped, unless the options of ``Popen`` say otherwise."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, **{"env": environment(failpoints), "stdout": subprocess.PIPE, "text": True, **options}
    )


def ran(
    *arguments: object, failpoints: str = "", cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments to its end; return how it ended, and what it has printed."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment(failpoints, **variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECS,
        check=False,
    )
