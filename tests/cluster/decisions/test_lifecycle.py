"""The table of statuses and events."""

import attrs
import pytest

from txtopo.cluster.decisions.lifecycle import (
    RUNS,
    Event,
    Request,
    Status,
    Topology,
    after_code_check,
    applied,
    due,
)
from txtopo.errors import TransitionError
from txtopo.files.records import from_json, to_json

NOW = 1000.0
WORDS = Topology("words-1-900", "words", "word-counts", Status.ACTIVE, 900.0, wait_secs=30.0)

EXPECTED = """
                ACTIVATE DEACTIVATE REBALANCE   KILL   REMOVE DO_REBALANCE FINISHED FAILED CODE_LOST CODE_BACK
    ACTIVE      -        INACTIVE   REBALANCING KILLED -      -            FINISHED FAILED FAILED    -
    INACTIVE    ACTIVE   -          REBALANCING KILLED -      -            FINISHED FAILED FAILED    -
    REBALANCING error    error      error       KILLED -      previous     FINISHED FAILED FAILED    -
    KILLED      error    error      error       KILLED gone   -            -        -      -         -
    FINISHED    error    error      error       KILLED -      -            -        -      -         -
    FAILED      error    error      error       KILLED -      -            -        -      -         -
"""


def _record(status: Status) -> Topology:
    match status:
        case Status.KILLED:
            return attrs.evolve(WORDS, status=status, deadline=NOW + 5)
        case Status.REBALANCING:
            return attrs.evolve(
                WORDS, status=status, deadline=NOW + 5, previous=Status.INACTIVE, rebalance_settings={"a": "2"}
            )
        case Status.FAILED:
            return attrs.evolve(WORDS, status=status, reason="it broke")
        case _:
            return attrs.evolve(WORDS, status=status)


def _expected() -> list[tuple[Status, Event, str]]:
    header, *rows = [line.split() for line in EXPECTED.strip().splitlines()]
    return [
        (Status[name], Event[event], outcome)
        for name, *outcomes in rows
        for event, outcome in zip(header, outcomes, strict=True)
    ]


@pytest.mark.parametrize(("status", "event", "outcome"), _expected())
def test_every_event_in_every_status(status: Status, event: Event, outcome: str) -> None:
    """What comes of every event in every status is as the table in this file says."""
    before = _record(status)
    request = Request(event, reason="why")
    if outcome == "error":
        with pytest.raises(TransitionError, match=f"'words' is {status.value}"):
            applied(before, request, NOW)
        return
    after = applied(before, request, NOW)
    match outcome:
        case "-":
            assert after is before
        case "gone":
            assert after is None
        case "previous":
            assert after is not None
            assert after.status is Status.INACTIVE
        case _:
            assert after is not None
            assert after.status is Status[outcome]


def test_the_table_above_is_complete() -> None:
    """No event is left out in any status."""
    assert {(status, event) for status, event, _ in _expected()} == {(s, e) for s in Status for e in Event}


def test_kill_stores_when_its_wait_is_over() -> None:
    """The wait is the given one, else the topology's; what is due later is found by anyone who reads the record."""
    killed = applied(WORDS, Request(Event.KILL, wait_secs=10), NOW)
    assert killed is not None
    assert (killed.status, killed.deadline) == (Status.KILLED, NOW + 10)
    assert due(killed, NOW + 9.9) is None
    assert due(killed, NOW + 10) is Event.REMOVE
    by_default = applied(WORDS, Request(Event.KILL), NOW)
    assert by_default is not None
    assert by_default.deadline == NOW + WORDS.wait_secs


@pytest.mark.parametrize(("first", "second"), [(10.0, 100.0), (100.0, 10.0), (100.0, 0.0)])
def test_second_kill_replaces_the_first_ones_deadline(first: float, second: float) -> None:
    """H14: the last kill counts, whether it asks for more time or for less."""
    killed = applied(WORDS, Request(Event.KILL, wait_secs=first), NOW)
    assert killed is not None
    again = applied(killed, Request(Event.KILL, wait_secs=second), NOW + 1)
    assert again is not None
    assert again.deadline == NOW + 1 + second


@pytest.mark.parametrize("status", [Status.FINISHED, Status.FAILED])
def test_kill_of_what_has_ended_waits_for_nothing(status: Status) -> None:
    """There is no driver to stop."""
    killed = applied(_record(status), Request(Event.KILL, wait_secs=50), NOW)
    assert killed is not None
    assert due(killed, NOW) is Event.REMOVE


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.INACTIVE])
def test_rebalance_returns_with_its_settings(status: Status) -> None:
    """After its wait a topology is what it was before, with changed settings and a new revision."""
    before = attrs.evolve(WORDS, status=status, settings={"a": "1", "b": "1"})
    waiting = applied(before, Request(Event.REBALANCE, wait_secs=7, settings={"a": "2"}), NOW)
    assert waiting is not None
    assert (waiting.status, waiting.settings, due(waiting, NOW + 7)) == (
        Status.REBALANCING,
        {"a": "1", "b": "1"},
        Event.DO_REBALANCE,
    )
    after = applied(waiting, Request(Event.DO_REBALANCE), NOW + 7)
    assert after == attrs.evolve(before, settings={"a": "2", "b": "1"}, revision=1)
    finished = applied(waiting, Request(Event.FINISHED), NOW)
    assert finished is not None
    assert finished.reason == "its input was exhausted before it was rebalanced"


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.INACTIVE, Status.REBALANCING])
def test_lost_code_comes_back(status: Status) -> None:
    """A topology that failed because nobody held its code is what it was when somebody does; a rebalance is given up."""
    before = _record(status)
    lost = applied(before, Request(Event.CODE_LOST, reason="nobody has held its code for 600 s"), NOW)
    assert lost is not None
    assert (lost.status, lost.is_code_lost, lost.reason) == (
        Status.FAILED,
        True,
        "nobody has held its code for 600 s",
    )
    back = applied(lost, Request(Event.CODE_BACK), NOW)
    calm = Status.INACTIVE if status is Status.REBALANCING else status
    assert back == attrs.evolve(WORDS, status=calm)


def test_time_without_code() -> None:
    """It is counted from the first look on, by whichever leader: the moment is in the record, and goes with a holder."""
    marked = after_code_check(WORDS, is_running=False, has_holder=False, now=NOW, lost_secs=10.0)
    assert marked == attrs.evolve(WORDS, code_lost_at=NOW)
    assert after_code_check(marked, is_running=False, has_holder=False, now=NOW + 9.9, lost_secs=10.0) is marked
    assert after_code_check(marked, is_running=False, has_holder=True, now=NOW + 9.9, lost_secs=10.0) == WORDS
    lost = after_code_check(marked, is_running=False, has_holder=False, now=NOW + 10.0, lost_secs=10.0)
    assert (lost.status, lost.is_code_lost) == (Status.FAILED, True)
    assert lost.reason == "no live nimbus has held its code for 10 s: start one that does, or submit again"
    assert after_code_check(lost, is_running=False, has_holder=False, now=NOW + 99.0, lost_secs=10.0) is lost
    assert after_code_check(lost, is_running=False, has_holder=True, now=NOW + 99.0, lost_secs=10.0) == WORDS
    assert after_code_check(WORDS, is_running=False, has_holder=True, now=NOW, lost_secs=10.0) is WORDS


def test_lost_code_of_a_driver_that_runs() -> None:
    """It stops nothing: the driver needs its code no more. Once the driver is dead, the time without code counts."""
    marked = after_code_check(WORDS, is_running=True, has_holder=False, now=NOW, lost_secs=10.0)
    assert after_code_check(marked, is_running=True, has_holder=False, now=NOW + 99.0, lost_secs=10.0) is marked
    lost = after_code_check(marked, is_running=False, has_holder=False, now=NOW + 99.0, lost_secs=10.0)
    assert lost.status is Status.FAILED


def test_record_of_the_version_before() -> None:
    """A record without the time at which the code was lost is read; an unknown name in it is no error, either way."""
    written = to_json(WORDS)
    del written["code_lost_at"]
    assert from_json({**written, "of_a_later_version": 1}, Topology) == WORDS


def test_who_holds_the_name() -> None:
    """A finished or failed topology leaves its name to the next; a killed one keeps it until it is gone."""
    assert {status for status in Status if _record(status).holds_name} == RUNS


@pytest.mark.parametrize("status", list(Status))
def test_record_as_json(status: Status) -> None:
    """A record is the same when it comes back from ZooKeeper."""
    assert from_json(to_json(_record(status)), Topology) == _record(status)
