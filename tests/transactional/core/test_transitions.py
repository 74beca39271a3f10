"""The one table."""

import itertools

import pytest

from txtopo.errors import InternalError
from txtopo.transactional.core.transitions import LIVE, TRANSITIONS, Status, Trigger, after


def test_the_table_is_all_there_is() -> None:
    """A pair in the table leads where it says; any other is our bug, and named."""
    for status, trigger in itertools.product(Status, Trigger):
        if (status, trigger) in TRANSITIONS:
            assert after(status, trigger) is TRANSITIONS[status, trigger]
        else:
            with pytest.raises(InternalError, match=f"no transition '{trigger.value}' from status '{status.value}'"):
                after(status, trigger)


def test_every_status_is_reached_and_every_trigger_used() -> None:
    """Nothing in the table is dead."""
    reached, waiting = {Status.READY}, [Status.READY]
    while waiting:
        status = waiting.pop()
        for (source, _), target in TRANSITIONS.items():
            if source is status and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert reached == set(Status)
    assert {trigger for _, trigger in TRANSITIONS} == set(Trigger)


def test_a_commit_can_be_reached_from_anywhere() -> None:
    """No status is a trap: each leads to COMMITTED, which is the end."""
    arrives = {Status.COMMITTED}
    for _ in Status:
        arrives |= {source for (source, _), target in TRANSITIONS.items() if target in arrives}
    assert arrives == set(Status)
    assert not [source for source, _ in TRANSITIONS if source is Status.COMMITTED]


def test_only_a_commit_or_a_letter_commits() -> None:
    """COMMITTED is reached in a turn only: through a commit phase or a dead letter."""
    sources = {source for (source, _), target in TRANSITIONS.items() if target is Status.COMMITTED}
    assert sources == {Status.COMMITTING, Status.WRITING_DEAD_LETTER}


def test_live_statuses() -> None:
    """An attempt lives from its start to its commit or failure; READY, DEAD and COMMITTED have none."""
    assert set(Status) - LIVE == {Status.READY, Status.DEAD, Status.COMMITTED}
