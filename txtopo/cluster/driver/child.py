"""The child processes in which submitted code is built and run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from txtopo.errors import SubmissionError


def driver_command(*arguments: str) -> list[str]:
    """Return the command of a driver process; the working folder is not on its search path."""
    return [sys.executable, "-P", "-m", "txtopo", "driver", *arguments]


def child_environment() -> dict[str, str]:
    """Return an environment in which a child imports this txtopo, whatever its working folder."""
    environment = dict(os.environ)
    # A checkout is not on a child's search path; an installed txtopo is.
    root = Path(__file__).parents[3]
    if not any(root == Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")):
        before = environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join([str(root), *(path for path in before if path)])
    return environment


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child's process group, and wait: until then the kernel gives its process id to nobody else."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def check_code(  # noqa: PLR0913 - two callers, one of which gives all
    code: Path,
    secs: float,
    *,
    limit: str = "",
    settings: Mapping[str, str] | None = None,
    folder: Path | None = None,
    work_dir: Path | None = None,
    output: IO[str] | int = subprocess.DEVNULL,
) -> Any:
    """Build the topology in folder ``code`` in a separate process; return the answer of a supervisor's API.

    ``limit`` names the setting behind ``secs``, for the error; without ``settings`` the submitted ones count. Temporary
    files go to ``folder``, in a folder ``check-…``, which a supervisor removes at its start after a crash.

    Raises:
        SubmissionError: the time is over, or the process died without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="check-", dir=folder) as name:
        answer = Path(name) / "answer.json"
        command = driver_command("--check", str(code), "--answer", str(answer))
        if settings is not None:
            (Path(name) / "settings.json").write_text(json.dumps(dict(settings)))
            command += ["--settings", str(Path(name) / "settings.json")]
        process = subprocess.Popen(  # noqa: S603 - our command
            command,
            cwd=work_dir,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a group of its own: the kill below also ends what user code has started
        )
        try:
            process.wait(secs)
        except subprocess.TimeoutExpired:
            raise SubmissionError(f"the topology is not built within {limit or f'{secs:g} s'}") from None
        finally:
            end_group(process)
        if not answer.is_file():
            raise SubmissionError(f"the process that builds the topology ended with status {process.returncode}")
        return json.loads(answer.read_bytes())
