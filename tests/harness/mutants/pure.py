"""``python -m tests.harness.mutants.pure``: change the pure parts in thousands of small ways; too few may go unnoticed.

mutmut changes a copy of the sources and runs the tests that reach what it has changed; what it changes and runs is in
``pyproject.toml``. Not every change is a bug: words of messages and log lines are nobody's promise.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.harness.mutants.__main__ import FOLDERS, ROOT

CAUGHT_SHARE_MIN = 0.85
"""So many of all changes must be caught: of each tenth, 89 % were when this was begun."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.mutants.pure", description=__doc__)
    parser.add_argument("names", nargs="*", help="only changes of these names, such as '*core.coordinator*'")
    arguments = parser.parse_args()
    if importlib.util.find_spec("mutmut") is None:
        sys.exit("mutmut is missing: pip install -e '.[mutation]'")
    with tempfile.TemporaryDirectory(prefix="txtopo-mutants-") as name:
        folder = Path(name)
        for part in FOLDERS:
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        _mutmut(folder, "run", "--max-children", str(os.cpu_count()), *arguments.names)
        print(_mutmut(folder, "results"))
        _mutmut(folder, "export-cicd-stats")
        counts = json.loads((folder / "mutants" / "mutmut-cicd-stats.json").read_text())
    caught, missed = counts["killed"] + counts["timeout"], counts["survived"] + counts["no_tests"]
    print(f"{caught} of {caught + missed} changes were caught")
    if not arguments.names and caught < CAUGHT_SHARE_MIN * (caught + missed):
        sys.exit(f"fewer than {CAUGHT_SHARE_MIN:.0%}: see those that survived")


def _mutmut(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {(done.stdout + done.stderr)[-2000:]}")
    return "\n".join(line for line in done.stdout.splitlines() if "not checked" not in line)


if __name__ == "__main__":
    main()
