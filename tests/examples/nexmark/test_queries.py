"""Each query of Nexmark has DuckDB's answer, however its events are cut into transactions, and wherever a run dies."""

import tempfile
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from examples.nexmark.events import Events
from tests.budgets import examples
from tests.crashes import Crash, run_with_crash
from tests.harness.benchmarks.nexmark.__main__ import queries
from tests.harness.benchmarks.nexmark.answers import Answers, found_in
from txtopo.testing import run_inline

EVENTS = Events(2_500, every_us=30_000, late_us=3_900_000)
"""75 seconds, midnight among them, in which events come up to 3.9 s late."""
QUERIES = queries()


def check(name: str, root: Path) -> None:
    """Compare the answer in a folder with DuckDB's."""
    with Answers.of(root / "events") as answers:
        found = answers.difference(name, found_in(QUERIES[name], str(root)))
    assert (found.missing.to_pylist(), found.surplus.to_pylist()) == ([], [])
    assert found.rows, "there is something to answer"


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=examples(3), deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(ends=st.lists(st.integers(1, EVENTS.count - 1), max_size=12), seed=st.integers(1, 100))
def test_whatever_the_cut(name: str, ends: list[int], seed: int) -> None:
    """Transactions may have many events, few or none."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        root = Path(folder)
        attrs.evolve(EVENTS, seed=seed).write(root / "events", ends)
        run_inline(QUERIES[name].topology(str(root / "events"), str(root)))
        check(name, root)


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("at", [15, 40])
@pytest.mark.parametrize("name", QUERIES)
def test_a_run_that_dies(tmp_path: Path, name: str, at: int) -> None:
    """At a durable step; the next one goes on."""
    EVENTS.write(tmp_path / "events", range(0, EVENTS.count, 250))
    crash = Crash(at)
    assert not run_with_crash(lambda: QUERIES[name].topology(str(tmp_path / "events"), str(tmp_path)), crash)
    run_inline(QUERIES[name].topology(str(tmp_path / "events"), str(tmp_path)))
    check(name, tmp_path)
