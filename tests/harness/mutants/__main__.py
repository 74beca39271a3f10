"""``python -m tests.harness.mutants``: are the tests themselves any good? Re-introduce real bugs, one at a time.

Each bug goes into a copy of the sources. Then the simulator looks for it, and where its tables or its store stand
in for the code in question, the tests of that code do. None may survive.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.harness.mutants.bugs import BUGS, Bug
from tests.simulation.test_schedules import FAST_SEEDS

ROOT = Path(__file__).resolve().parents[3]
FAST = "not spark and not slow"
FOLDERS = ("txtopo", "state", "spouts", "committers", "examples", "tests")
TEST_TIMEOUT_SECS = 200
TIMEOUT_SECS = 600


@attrs.frozen
class Verdict:
    """Who found a bug, and how soon."""

    catcher: str | None
    detail: str
    elapsed_secs: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="schedules of each subject")
    parser.add_argument("--fast", action="store_true", help="only by what `make fast` runs")
    parser.add_argument("--only", metavar="TEXT", default="", help="bugs with this text in their name")
    arguments = parser.parse_args()
    bugs = [bug for bug in BUGS if arguments.only in bug.name]
    width = max(len(bug.name) for bug in bugs)
    survivors = []
    for bug in bugs:
        verdict = judge(bug, FAST_SEEDS if arguments.fast else arguments.seeds, FAST if arguments.fast else "")
        if verdict.catcher is None:
            survivors.append(bug.name)
        caught = verdict.catcher or "NOBODY"
        print(f"{bug.name:{width}}  {verdict.elapsed_secs:5.1f} s  {caught}: {verdict.detail}", flush=True)
    print(f"{len(bugs) - len(survivors)} of {len(bugs)} bugs were caught")
    if survivors:
        sys.exit(f"survived: {', '.join(survivors)}")


def judge(bug: Bug, seeds: int, markers: str = "") -> Verdict:
    """Put a bug in, and return who caught it: seeds of the simulator, or tests that a marker expression selects."""
    started = time.monotonic()
    try:
        with mutated(bug) as folder:
            for catcher, detail in _hunt(bug, folder, seeds, markers):
                return Verdict(catcher, detail, time.monotonic() - started)
    except subprocess.TimeoutExpired as hang:  # the time limit of a test could not end it
        return Verdict("time limit", f"it hangs for {hang.timeout:g} s", time.monotonic() - started)
    except AssertionError as error:
        return Verdict(None, str(error), time.monotonic() - started)
    return Verdict(None, "it survived", time.monotonic() - started)


@contextmanager
def mutated(bug: Bug) -> Iterator[Path]:
    """Copy the sources, with the bug in them."""
    with tempfile.TemporaryDirectory(prefix="txtopo-mutant-") as name:
        folder = Path(name)
        for part in FOLDERS:
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        path = folder / bug.path
        source = path.read_text()
        # A text that is there twice would put in two bugs, of which one could be caught for the other.
        assert source.count(bug.old) == 1, f"{bug.name!r} is out of date: see {bug.path}"
        path.write_text(source.replace(bug.old, bug.new))
        yield folder


def _hunt(bug: Bug, folder: Path, seeds: int, markers: str) -> Iterator[tuple[str, str]]:
    if bug.subjects:
        found = _run(folder, "-m", "tests.harness.mutants.catch", str(seeds), *bug.subjects)
        for line in found.stdout.splitlines():
            result = json.loads(line)
            if result["violation"] is not None:
                yield "simulator", f"seed {result['seeds']} of {result['subject']!r}: {result['violation'][:90]}"
    if bug.tests:
        limit = f"--timeout={TEST_TIMEOUT_SECS}"  # so a test that hangs has failed
        found = _run(folder, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", limit, "-m", markers, *bug.tests)
        failed = re.search(r"^FAILED (\S+)", found.stdout, re.MULTILINE)
        if failed is not None:
            yield "tests", failed[1]


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    # The copy comes first on the path, before the sources that are installed here in place.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECS,
        check=False,
    )


if __name__ == "__main__":
    main()
