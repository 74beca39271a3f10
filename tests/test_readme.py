"""The README's code runs, and prints what the README says it prints."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_topology(tmp_path: pathlib.Path) -> None:
    """The topology of the README, as a script of its own, gives the output below it."""
    (script,) = blocks("python")
    (tmp_path / "topology.py").write_text(script, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(README.parent), *sys.path])}
    done = subprocess.run(
        [sys.executable, "topology.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == blocks("text")[0]
    assert done.stderr == ""


def test_commands() -> None:
    """The two commands of the README are the ones that CI and newcomers run."""
    text = README.read_text(encoding="utf-8")
    assert (
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/txtopo run examples.transactional_words" in text
    )
    assert "python3 -m venv .venv && .venv/bin/pip install '.[test,spark-delta]' && .venv/bin/pytest" in text
    assert "'.[test,spark-delta]' && .venv/bin/pytest" in (README.parent / ".ci" / "run").read_text(encoding="utf-8")
