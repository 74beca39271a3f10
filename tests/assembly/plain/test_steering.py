"""Each request has one answer in each phase of a plain topology, in whatever order requests come."""

import itertools

import pytest

from txtopo.assembly.plain.steering import (
    EXHAUSTED,
    FAILED,
    STOPPED,
    Action,
    Answer,
    BeginWorkers,
    Event,
    Finish,
    Phase,
    RebalanceAsked,
    Steering,
    WorkersEnded,
)
from txtopo.workers.events import ActivationAsked, StopAsked

STOP, REBALANCE = StopAsked(5.0), RebalanceAsked(3)
ON, OFF = ActivationAsked(is_active=True), ActivationAsked(is_active=False)
BUG = RuntimeError("a bug")
ENDED, DONE = WorkersEnded(is_exhausted=False, error=None), WorkersEnded(is_exhausted=True, error=None)
BROKEN = WorkersEnded(is_exhausted=False, error=BUG)

WAYS: dict[Phase, list[Event]] = {
    Phase.RUNNING: [],
    Phase.REBALANCING: [RebalanceAsked(2)],
    Phase.STOPPING: [StopAsked(30.0)],
    Phase.ENDED: [DONE],
}
"""How to come into each phase."""

EXPECTED: list[tuple[Phase, Event, list[Action], Phase]] = [
    (Phase.RUNNING, STOP, [STOP], Phase.STOPPING),
    (Phase.RUNNING, REBALANCE, [StopAsked(30.0)], Phase.REBALANCING),
    (Phase.RUNNING, ON, [ON], Phase.RUNNING),
    (Phase.RUNNING, OFF, [OFF], Phase.RUNNING),
    (Phase.RUNNING, ENDED, [Finish(EXHAUSTED, None), Answer()], Phase.ENDED),
    (Phase.RUNNING, DONE, [Finish(EXHAUSTED, None), Answer()], Phase.ENDED),
    (Phase.RUNNING, BROKEN, [Finish(FAILED, BUG), Answer(BUG)], Phase.ENDED),
    (Phase.REBALANCING, STOP, [STOP, Answer()], Phase.STOPPING),
    (Phase.REBALANCING, REBALANCE, [], Phase.REBALANCING),
    (Phase.REBALANCING, ON, [], Phase.REBALANCING),
    (Phase.REBALANCING, OFF, [], Phase.REBALANCING),
    (Phase.REBALANCING, ENDED, [BeginWorkers(2, is_active=True), Answer()], Phase.RUNNING),
    (Phase.REBALANCING, DONE, [Finish(EXHAUSTED, None), Answer()], Phase.ENDED),
    (Phase.REBALANCING, BROKEN, [Finish(FAILED, BUG), Answer(BUG)], Phase.ENDED),
    (Phase.STOPPING, STOP, [STOP], Phase.STOPPING),
    (Phase.STOPPING, REBALANCE, [Answer()], Phase.STOPPING),
    (Phase.STOPPING, ON, [], Phase.STOPPING),
    (Phase.STOPPING, OFF, [], Phase.STOPPING),
    (Phase.STOPPING, ENDED, [Finish(STOPPED, None), Answer()], Phase.ENDED),
    (Phase.STOPPING, DONE, [Finish(STOPPED, None), Answer()], Phase.ENDED),
    (Phase.STOPPING, BROKEN, [Finish(FAILED, BUG), Answer(BUG)], Phase.ENDED),
    (Phase.ENDED, STOP, [], Phase.ENDED),
    (Phase.ENDED, REBALANCE, [Answer()], Phase.ENDED),
    (Phase.ENDED, ON, [], Phase.ENDED),
    (Phase.ENDED, OFF, [], Phase.ENDED),
    (Phase.ENDED, ENDED, [], Phase.ENDED),
    (Phase.ENDED, DONE, [], Phase.ENDED),
    (Phase.ENDED, BROKEN, [], Phase.ENDED),
]
EVENTS = (STOP, REBALANCE, ON, OFF, ENDED, DONE, BROKEN)


def steering_in(phase: Phase) -> Steering:
    """Return a topology of one worker in a phase."""
    steering = Steering(1, rebalance_secs=30.0, is_active=True)
    for event in WAYS[phase]:
        steering.handle(event)
    assert steering.phase is phase
    return steering


@pytest.mark.parametrize(("phase", "event", "actions", "then"), EXPECTED)
def test_answer(phase: Phase, event: Event, actions: list[Action], then: Phase) -> None:
    """What a request, or the end of the workers, leads to."""
    steering = steering_in(phase)
    assert steering.handle(event) == actions
    assert steering.phase is then


def test_no_case_is_left_out() -> None:
    """Each event in each phase has a case above."""
    assert {(phase, event) for phase, event, _, _ in EXPECTED} == set(itertools.product(Phase, EVENTS))


def test_last_number_counts() -> None:
    """Of two rebalances at a time the later one's number is taken; both go on when the workers are being started."""
    steering = steering_in(Phase.REBALANCING)
    steering.handle(REBALANCE)
    assert steering.handle(ENDED) == [BeginWorkers(3, is_active=True), Answer()]


def test_deactivated_while_it_moves() -> None:
    """What is asked for between two sets of workers is in force for the next one."""
    steering = steering_in(Phase.REBALANCING)
    steering.handle(OFF)
    assert steering.handle(ENDED) == [BeginWorkers(2, is_active=False), Answer()]
    steering.handle(REBALANCE)
    steering.handle(ON)
    assert steering.handle(ENDED) == [BeginWorkers(3, is_active=True), Answer()]


def test_rebalance_of_a_failed_topology() -> None:
    """Its caller learns why the topology has failed."""
    steering = steering_in(Phase.RUNNING)
    steering.handle(BROKEN)
    assert steering.handle(REBALANCE) == [Answer(BUG)]
