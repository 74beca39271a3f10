"""Nexmark's windows, joins, ranks and totals of totals on Spark: killed in both modes, and run again, they have DuckDB's answer."""

import signal
from pathlib import Path

import pytest

from tests.examples.nexmark.test_queries import EVENTS, check
from tests.processes import ran
from tests.variants import variants

QUERIES = ("q3", "q4", "q5", "q6", "q7", "q8", "q9", "q13", "q15", "q16", "q18", "q19", "q20", "q23")
MODES = ("micro-batch", "real-time")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    variants(
        ("q8", "real-time"), long=[(q, mode) for q in QUERIES for mode in MODES if (q, mode) != ("q8", "real-time")]
    ),
)
def test_killed_on_spark(tmp_path: Path, name: str, mode: str) -> None:
    """A SIGKILL when a commit group is decided, but not yet in its tables; the next run goes on from there."""
    EVENTS.write(tmp_path / "events", range(0, EVENTS.count, 250))
    command = ["-m", "txtopo", "run", f"examples.nexmark.{name}", "--set", f"topology.processing.mode={mode}"]
    command += [
        "--set",
        "topology.group.transactions.max=2",
        "--set",
        f"events={tmp_path / 'events'}",
        "--set",
        f"output={tmp_path}",
    ]
    killed = ran(*command, failpoints="group.decide.after=kill:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = ran(*command)
    assert again.returncode == 0, again.stderr
    check(name, tmp_path)
