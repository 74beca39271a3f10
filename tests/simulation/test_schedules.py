"""Every promise holds in seeded disasters, 2,000 or 20,000; the same seed makes the same schedule; a failing one shrinks."""

from typing import Any

import attrs
import pytest
from click.testing import CliRunner

import examples.global_count
import examples.ring
from tests.processes import ran
from tests.simulation import event_time, joins
from tests.simulation.subjects import LONG_DATA, check_state, words
from txtopo import Topology
from txtopo.main.group import txtopo
from txtopo.testing.simulation.schedules import Failure, make_subject, run_schedules

CI_SEEDS = {
    "words": 1_200,
    "words, long": 400,
    "words, opaque state": 800,
    "words, opaque source": 1_000,
    "ring": 1_000,
    "global count": 1_000,
    "event time": 200,
    "event time, idle": 200,
    "join": 200,
    "join, real-time": 200,
    "words, real-time": 800,
    "ring, real-time": 800,
}
GATE = ("words", "words, opaque source")
FAST_SEEDS = 120
"""As many of the gate are in ``make test``, and by then the simulator catches each mutant; all others are left to ``make long``."""
LARGE = ("event time", "event time, idle", "join", "join, real-time")
"""Those with so many tables that less than a tenth is in ``make test``."""


@attrs.frozen
class Case:
    topology: Topology
    invariant: Any
    is_real_time: bool = False


def case(name: str) -> Case:
    match name:
        case "words, real-time":
            return Case(words(), check_state, is_real_time=True)
        case "ring, real-time":
            return Case(examples.ring.topology(), examples.ring.check_state, is_real_time=True)
        case "words":
            return Case(words(), check_state)
        case "words, long":
            return Case(words(data=LONG_DATA), check_state)
        case "words, opaque state":
            return Case(words(opaque_state=True), check_state)
        case "words, opaque source":
            return Case(words(opaque_source=True, opaque_state=True), check_state)
        case "ring":
            return Case(examples.ring.topology(), examples.ring.check_state)
        case "event time":
            return Case(event_time.topology(), event_time.check_state)
        case "event time, idle":
            return Case(event_time.topology(idle=True), event_time.check_state)
        case "join":
            return Case(joins.topology(), joins.check_state)
        case "join, real-time":
            return Case(joins.topology("left"), joins.check_state, is_real_time=True)
        case _:
            return Case(examples.global_count.topology(), None)


def fast_seeds(name: str) -> int:
    return FAST_SEEDS // 40 if name in LARGE else FAST_SEEDS if name in GATE else FAST_SEEDS // 4


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        *((name, 1, fast_seeds(name)) for name in CI_SEEDS),
        *(
            pytest.param(name, fast_seeds(name) + 1, 4 * seeds, marks=pytest.mark.long)
            for name, seeds in CI_SEEDS.items()
        ),
    ],
)
def test_every_promise_holds(name: str, first: int, last: int) -> None:
    """Whatever fails, each version of each table is as if every transaction had run once."""
    found = case(name)
    subject = make_subject(found.topology, invariant=found.invariant, is_real_time=found.is_real_time)
    result = run_schedules(subject, range(first, last + 1))
    assert [_told(failure) for failure in result.failures] == []
    assert result.schedules == last - first + 1
    kinds = 13 + 3 * found.is_real_time
    assert len(result.faults) >= kinds or result.schedules < FAST_SEEDS, "every kind of fault has struck"


@pytest.mark.slow
def test_the_same_seed_makes_the_same_schedule() -> None:
    """Byte for byte, in whatever process, with whatever salt of Python's hashes."""
    command = ["-m", "txtopo", "simulate", "tests.simulation.subjects", "--seed", "2174"]
    traces = [ran(*command, PYTHONHASHSEED=salt).stdout for salt in ("1", "2")]
    assert traces[0] == traces[1]
    assert traces[0].count("\n") > 50, "what happens is long enough to differ"


@pytest.mark.slow
def test_a_failing_schedule_is_shrunk_and_can_be_replayed() -> None:
    """A bolt that is not exact is found; what is printed replays the very failure, with hardly a fault in it."""
    run = CliRunner().invoke(txtopo, ["simulate", "tests.simulation.inexact", "--seeds", "500", "--processes", "1"])
    assert run.exit_code == 1, run.output
    assert "each version is as if every transaction had run once (promise 8)" in run.output
    line = next(line for line in run.output.splitlines() if line.startswith("to replay it: "))
    command = line.removeprefix("to replay it: txtopo ").split()
    faults = [number for number in command[command.index("--faults") + 1].split(",") if number]
    assert 1 <= len(faults) <= 3
    again = CliRunner().invoke(txtopo, command)
    assert again.exit_code == 1
    assert "promise 8" in again.output


@pytest.mark.slow
def test_real_time_mode_can_be_asked_for() -> None:
    """The pool's faults strike then, and only then; a plain topology has no such mode."""
    asked = ["examples.global_count", "--real-time", "--only", "deadworkers", "--seeds", "30"]
    run = CliRunner().invoke(txtopo, ["simulate", *asked])
    assert run.exit_code == 0, run.output
    assert "deadworkers" in run.output
    refused = CliRunner().invoke(txtopo, ["simulate", *(word for word in asked if word != "--real-time")])
    assert "there is no workload 'deadworkers'" in refused.output
    plain = CliRunner().invoke(txtopo, ["simulate", "examples.word_count", "--real-time"])
    assert "leave --real-time out" in plain.output


@pytest.mark.slow
def test_a_kind_of_fault_can_be_asked_for() -> None:
    """Nothing else strikes then."""
    run = CliRunner().invoke(txtopo, ["simulate", "examples.ring", "--only", "crashes", "--seeds", "60"])
    assert run.exit_code == 0, run.output
    assert "crashes" in run.output
    assert "failures" not in run.output


def _told(failure: Failure) -> str:
    return f"seed {failure.seed}: {failure.violation}\n{failure.faults}\n{failure.trace}"
