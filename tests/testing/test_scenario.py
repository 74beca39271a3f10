"""The scenario itself: a wrong scenario does not pass."""

import pytest

from txtopo.attempts import TransactionAttempt, attempt_number
from txtopo.testing.scenario import Scenario, ask, attempt, begun, limits, recovered, run, save, ticked


def test_attempts_as_text() -> None:
    """``"txid:try"``, with the epoch behind it where it is not the first."""
    assert attempt("7:2") == TransactionAttempt(7, 2)
    assert attempt("7:2@3") == TransactionAttempt(7, attempt_number(3, 1))


def test_a_true_scenario() -> None:
    """What is expected is said, and nothing else."""
    with Scenario(limits(pending=1)) as scenario:
        scenario >> recovered() << ask(1, 1)
        scenario >> begun(1) << save(1) << run(1, "1:1")


def test_a_wrong_word() -> None:
    """Another action than expected is refused, and the message shows the scenario so far."""
    scenario = Scenario(limits()) >> recovered()
    with pytest.raises(AssertionError, match=r"(?s)the scenario so far:.*>> Recovered.*expected: .*but said: Create"):
        Scenario.__lshift__(scenario, ask(1, 99))


def test_a_missing_word() -> None:
    """An action that does not come is missed."""
    scenario = Scenario(limits()) >> recovered() << ask(1, 4)
    with pytest.raises(AssertionError, match="but said: nothing more"):
        Scenario.__lshift__(scenario, ask(1, 4))
    with pytest.raises(AssertionError, match="expected: a stop\nbut said: nothing more"):
        scenario.take_stop()


def test_a_word_too_many() -> None:
    """An action that nobody expects is found at the next event, and at the end."""
    scenario = Scenario(limits()) >> recovered()
    with pytest.raises(AssertionError, match="expected: nothing more\nbut said: Create"):
        Scenario.__rshift__(scenario, ticked(1))
    with pytest.raises(AssertionError, match="expected: nothing more"), Scenario(limits()) as scenario:
        scenario >> recovered()


def test_an_error_in_a_scenario_comes_first() -> None:
    """An error in the scenario is not hidden by actions that were not expected yet."""
    with pytest.raises(ZeroDivisionError), Scenario(limits()) as scenario:
        scenario >> recovered()
        raise ZeroDivisionError
