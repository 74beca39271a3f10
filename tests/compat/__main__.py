"""The Spark tests with other versions of Spark, each in an environment of its own: what a user's pip makes.

\b
    python -m tests.compat 3.5.1 4.1.4          every test that starts Spark, with the lowest version and another
    python -m tests.compat --quick 3.5.1        the tests that depend on Spark's insides: DataFrames, sessions, Delta
    python -m tests.compat --test PATH 4.2.0    some tests

An environment has this project with its tests' extra, that version of pyspark, and the delta-spark that pip finds
beside it, if there is one. It is kept in ``build/compat`` and used again until pyproject.toml changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build" / "compat"

QUICK = (
    "tests/spark/test_delta.py",
    "tests/spark/sql/test_frame_session.py",
    "tests/spark/sql/test_frame_tasks.py",
    "tests/spark/test_starting.py",
    "tests/acceptance/test_frames.py",
    "tests/acceptance/test_words.py",
)
"""What depends on Spark's insides; half of a minute where nothing else runs."""

EVERY = ("tests/spark", "tests/acceptance", "tests/committers", "tests/examples", "tests/spouts/test_conformance.py")
"""All tests that start Spark, but those of disasters, which come by other versions as they do by one."""


class Environment:
    """A virtual environment with one version of Spark.

    Args:
        version: of Spark.
    """

    def __init__(self, version: str) -> None:
        self.version = version
        self._folder = ENVIRONMENTS / version
        self.python = self._folder / "bin" / "python"

    def make(self) -> None:
        """Install the project with this Spark, unless that was done before."""
        wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
        mark = self._folder / "made-of"
        if mark.exists() and mark.read_text() == wanted:
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        venv.create(self._folder, with_pip=True)
        if not self._install(".[test,spark-delta]"):
            print(f"Spark {self.version}: there is no delta-spark for it; without", flush=True)
            if not self._install(".[test]"):
                raise click.ClickException(f"pip can't install this project with Spark {self.version}")
        mark.write_text(wanted)

    def test(self, tests: tuple[str, ...]) -> bool:
        """Run tests; return whether they have passed."""
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        others = {"SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
        environment = {name: value for name, value in os.environ.items() if name not in others}
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0

    def packages(self) -> str:
        """Return what was installed, of what matters here."""
        command = [self.python, "-m", "pip", "list", "--format=freeze"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        matter = re.compile(r"^(pyspark|delta.spark|py4j|numpy|pandas|pyarrow|deltalake)==", re.IGNORECASE)
        return " ".join(line for line in listed.splitlines() if matter.match(line))

    def _install(self, what: str) -> bool:
        command = [self.python, "-m", "pip", "install", "--quiet", what, f"pyspark=={self.version}"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


@click.command(help=__doc__)
@click.argument("versions", nargs=-1, required=True)
@click.option("--quick", is_flag=True, help="Only the tests that depend on Spark's insides.")
@click.option("--test", "chosen", multiple=True, metavar="PATH", help="Only these tests.")
def main(versions: tuple[str, ...], *, quick: bool, chosen: tuple[str, ...]) -> None:
    """Run the tests with each version; end with status 1 if some have failed."""
    tests = chosen or (QUICK if quick else EVERY)
    failed = []
    for version in versions:
        started = time.monotonic()
        environment = Environment(version)
        environment.make()
        print(f"== Spark {version} ({environment.packages()}), made in {time.monotonic() - started:.0f} s", flush=True)
        if not environment.test(tests):
            failed.append(version)
    if failed:
        print(f"failed with Spark {', '.join(failed)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
