"""The Spark tests with other versions of Spark, each in an environment of its own.

\b
    python -m tests.harness.compat 3.5.1 4.1.4          every test that starts Spark, with the lowest version beside another
    python -m tests.harness.compat --quick 3.5.1        the tests that depend on Spark's insides: DataFrames, sessions, Delta
    python -m tests.harness.compat --test PATH 4.2.0    some tests

An environment has this project with its tests' extra, that version of pyspark, and the delta-spark that is found
beside it, if there is one. It is kept in ``build/compat`` and used again until pyproject.toml changes.
"""

import hashlib
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import click

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")
ENVIRONMENTS = ROOT / "build" / "compat"

QUICK = (
    "tests/spark/session/test_delta.py",
    "tests/spark/sql/test_dataframe_session.py",
    "tests/spark/sql/test_combining.py",
    "tests/spark/session/test_starting.py::test_command_line[spark.driver.memory=2x-heap]",
    "tests/acceptance/test_frames.py",
    "tests/acceptance/test_words.py::test_exact[7-64-auto]",
    "tests/acceptance/test_words.py::test_exact[3-8-spread]",
    "tests/acceptance/test_words.py::test_failures_change_nothing",
)
"""The tests that depend on Spark's internals."""

EVERY = ("tests/spark", "tests/acceptance", "tests/committers", "tests/examples", "tests/spouts/test_conformance.py")
"""All tests that start Spark, except those of disasters, which do not depend on its version."""

SIDE_BY_SIDE = 2
"""How many versions are tested at the same time."""


class Environment:
    """A virtual environment with one version of Spark."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._folder = ENVIRONMENTS / version
        self._wheels = ENVIRONMENTS / "wheels"
        self.python = self._folder / "bin" / "python"

    def make(self) -> None:
        """Install the project with this Spark, unless the environment was made from the same pyproject.toml."""
        wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
        mark = self._folder / "made-of"
        if mark.exists() and mark.read_text() == wanted:
            return
        # Of pyspark's sources, which are 400 MB, pip keeps the wheel for the next environment.
        wheel = (
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            f"--wheel-dir={self._wheels}",
            f"pyspark=={self.version}",
        )
        subprocess.run([sys.executable, *wheel], check=False)
        uv = [UV, "venv", "--quiet", "--clear", f"--python={sys.executable}", self._folder]
        subprocess.run(uv, check=True)
        if not self._install(".[test,spark-delta]"):
            print(f"Spark {self.version}: there is no delta-spark for it; without", flush=True)
            if not self._install(".[test]"):
                raise click.ClickException(f"this project can't be installed with Spark {self.version}")
        mark.write_text(wanted)  # last: an install that was interrupted is made again

    def test(self, tests: tuple[str, ...]) -> tuple[bool, str]:
        """Run tests; return whether they have passed, and their output."""
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        # These would lead pyspark to another Spark, or its workers to another Python.
        others = {"SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
        environment = {name: value for name, value in os.environ.items() if name not in others}
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return ended.returncode == 0, ended.stdout

    def packages(self) -> str:
        """Return the versions of the installed packages that matter here."""
        command = [UV, "pip", "freeze", "--quiet", f"--python={self.python}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        matter = re.compile(r"^(pyspark|delta.spark|py4j|numpy|pandas|pyarrow|deltalake)==", re.IGNORECASE)
        return " ".join(line for line in listed.splitlines() if matter.match(line))

    def _install(self, what: str) -> bool:
        to = [f"--python={self.python}", f"--find-links={self._wheels}"]
        command = [UV, "pip", "install", "--quiet", *to, what, f"pyspark=={self.version}"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


@click.command(help=__doc__)
@click.argument("versions", nargs=-1, required=True)
@click.option("--quick", is_flag=True, help="Only the tests that depend on Spark's insides.")
@click.option("--test", "chosen", multiple=True, metavar="PATH", help="Only these tests.")
def main(versions: tuple[str, ...], *, quick: bool, chosen: tuple[str, ...]) -> None:
    """Run the tests with each version; end with status 1 if some have failed."""
    tests = chosen or (QUICK if quick else EVERY)
    one_is_made = Lock()  # pip builds this project in its own folder

    def passes(version: str) -> bool:
        environment = Environment(version)
        with one_is_made:
            started = time.monotonic()
            environment.make()
            made = time.monotonic()
        is_good, output = environment.test(tests)
        took = f"made in {made - started:.0f} s, tested in {time.monotonic() - made:.0f} s"
        print(f"== Spark {version} ({environment.packages()}), {took}\n{output}", flush=True)
        return is_good

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        failed = [version for version, is_good in zip(versions, pool.map(passes, versions), strict=True) if not is_good]
    if failed:
        print(f"failed with Spark {', '.join(failed)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
