"""What runs in a Spark task: it imports what an executor uses, and nothing else."""

import json
import subprocess
import sys

import pytest

NOT_OF_AN_EXECUTOR = {
    "kazoo",
    "deltalake",
    "cattrs",
    "rich",
    "click",
    "pandas",
    "state",
    "spouts",
    "committers",
    "txtopo.engine",
}
"""The packages that only a driver needs: coordinator state, the Delta log, commands, the run loop."""

LOADED = "import json, sys, txtopo.spark.tasks.worker; print(json.dumps(sorted(sys.modules)))"

NAMED = "import sys; from state import *; from spouts import *; from txtopo import *; print('cattrs' in sys.modules)"


@pytest.mark.slow
def test_imports() -> None:
    """An executor that imports the worker loads nothing that only the driver needs."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert "txtopo.spark.tasks.worker" in loaded
    packages = {name for module in loaded for name in (module.split(".")[0], ".".join(module.split(".")[:2]))}
    assert packages & NOT_OF_AN_EXECUTOR == set()


@pytest.mark.slow
def test_what_a_module_of_bolts_names() -> None:
    """A module with bolts may name states and spouts, too: an executor imports them without what only records need."""
    done = subprocess.run([sys.executable, "-c", NAMED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
