"""Bytewax, in one process and a virtual environment of its own, which the project's environment knows nothing of."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.harness.benchmarks.event_time.events import DELAY_SECS, WINDOW_SECS

BYTEWAX = "bytewax, one process"

_PACKAGES = ("bytewax==0.21.1", f"pyarrow=={pa.__version__}")
_ROOT = Path(__file__).parents[4]
_ENVIRONMENT = _ROOT / "build" / "benchmarks" / "bytewax"
_JOB = Path(__file__).with_name("bytewax_job.py")


def bytewax_python() -> Path | str:
    """Return the interpreter of an environment with bytewax, made if need be; why there is none if pip can't make it."""
    python, mark = _ENVIRONMENT / "bin" / "python", _ENVIRONMENT / "made-of"
    wanted = "\n".join(_PACKAGES)
    if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
        return python
    shutil.rmtree(_ENVIRONMENT, ignore_errors=True)
    venv.create(_ENVIRONMENT, with_pip=True)
    pip = [python, "-m", "pip", "install", "--quiet", *_PACKAGES]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        said = installed.stderr.strip().splitlines() or ["nothing said"]
        return f"{BYTEWAX} is left out, because pip can't install {_PACKAGES[0]}: {said[-1]}"
    mark.write_text(wanted, encoding="utf-8")  # last: an install that was interrupted is made again
    return python


def windows_by_bytewax(python: Path, source: Path, folder: Path) -> tuple[float, pa.Table]:
    """Return the seconds of bytewax's flow over all transactions, without its start, and the windows that it closed."""
    output = folder / "windows.parquet"
    command = [python, _JOB, source, output, str(DELAY_SECS), str(WINDOW_SECS)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{BYTEWAX} has failed:\n{ended.stderr}")
    return float(ended.stdout.split()[-1]), pq.read_table(output)
