"""What bolts must do with their inputs: each that does not is named, with what it did; no right one is."""

import pytest

from tests.budgets import examples
from tests.simulation.plain.bolts import RIGHT, WRONG, Bolt, Numbers, topology
from txtopo import Config, TopologyBuilder
from txtopo.errors import UserCodeError
from txtopo.testing.simulation.plain.world import make_plain_subject
from txtopo.testing.simulation.schedules import run_schedules

TARGET = "tests.simulation.plain.bolts"


@pytest.mark.few(5)
@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_bolt_is_found(command_line, kind):
    """A few lines say which task did what with which input, and how to see it again, which then shows the same."""
    result = command_line("simulate", TARGET, "--set", f"name={kind.__name__}")
    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    first, *_, last = result.output.splitlines()
    assert first.startswith("schedule 0, without faults, is broken: ")
    assert WRONG[kind] in first
    assert "'judged'" in first
    assert "task " in first
    assert len(result.output.splitlines()) <= 3
    again = command_line(*last.removeprefix("to replay it: txtopo ").split())
    assert again.exit_code == 1
    assert first in again.output


class CannotCleanUp(Bolt):
    def execute(self, tuple):
        self.pass_on(tuple)

    def cleanup(self):
        raise ValueError("no way to clean up")


def test_a_bolt_that_can_not_clean_up():
    """A run that stops fails by it, and so does a simulated one."""
    builder = TopologyBuilder("numbers")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("judged", CannotCleanUp()).shuffle_grouping("numbers")
    with pytest.raises(UserCodeError, match=r"'judged'.* no way to clean up"):
        make_plain_subject(builder.build(), Config())


@pytest.mark.slow
@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
def test_a_right_bolt_is_not(kind):
    """Whatever fails, nothing is found."""
    subject = make_plain_subject(topology(kind.__name__), Config())
    result = run_schedules(subject, range(1, 1 + examples(150)), processes=1)
    assert [(failure.seed, failure.violation) for failure in result.failures] == []


def test_without_ackers_nothing_is_asked_of_acks():
    """If no tree is tracked, it does not matter what is acked."""
    make_plain_subject(topology("Forgets"), Config({"topology.acker.executors": 0}))


@pytest.mark.slow
def test_an_input_that_is_held_for_ever(command_line):
    """A join may do that, so it is no finding; a warning names the task."""
    result = command_line("simulate", TARGET, "--set", "name=Keeps", "--seeds", "20", "--processes", "1")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("warning: bolt 'judged' (task 3) had ")
    assert "every promise held" in result.output
