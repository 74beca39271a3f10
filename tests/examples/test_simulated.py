"""Each example keeps every promise in ``txtopo simulate``: it is right."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import examples
from tests.examples.topologies import EXAMPLES, PLAIN
from txtopo import Config
from txtopo.testing.simulation.plain.world import make_plain_subject
from txtopo.testing.simulation.schedule import Simulated
from txtopo.testing.simulation.schedules import faults_unlogged, make_subject, run_schedules

SEEDS = range(1, 4)
UNTIL = 4


def test_no_example_is_forgotten() -> None:
    """Each module with a topology is among those that are simulated here, and run in both modes elsewhere."""
    names = [module.name for module in pkgutil.iter_modules(examples.__path__)]
    with_topologies = {name for name in names if hasattr(importlib.import_module(f"examples.{name}"), "topology")}
    assert {name.partition(" ")[0] for name in (*EXAMPLES, *PLAIN)} == with_topologies


@pytest.mark.slow
@pytest.mark.parametrize("is_real_time", [False, True], ids=["micro-batch", "real-time"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_transactional(tmp_path: Path, name: str, is_real_time: bool) -> None:
    """Among them clocks, whose tables may depend on the time at which transactions are planned."""
    topology = EXAMPLES[name](tmp_path, str(tmp_path / "out"))
    invariant = getattr(importlib.import_module(f"examples.{name.partition(' ')[0]}"), "check_state", None)
    check(make_subject(topology, until=UNTIL, invariant=invariant, is_real_time=is_real_time))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", PLAIN)
def test_plain(tmp_path: Path, name: str) -> None:
    """Every root is acked or failed once."""
    check(make_plain_subject(PLAIN[name](str(tmp_path / "out")), Config(), UNTIL))


def check(subject: Simulated) -> None:
    """Run some schedules."""
    with faults_unlogged():
        found = run_schedules(subject, SEEDS, processes=1)
    assert [(failure.seed, failure.violation) for failure in found.failures] == []
