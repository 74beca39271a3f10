"""A supervisor's slot, step by step."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from txtopo.cluster.decisions.assignment import Assignment, EndingKind
from txtopo.cluster.decisions.slots import (
    Action,
    CleanUp,
    DriverExit,
    DriverSlot,
    FetchCode,
    Kill,
    Launch,
    Report,
    Seen,
    SlotLimits,
    SlotState,
    Terminate,
    adopted,
    step,
)

LIMITS = SlotLimits()
WORDS = Assignment("words-1", 1, "s1", 0)
AGAIN = attrs.evolve(WORDS, number=2)
COUNTS = Assignment("counts-2", 1, "s1", 0)
EMPTY = DriverSlot(0)


def _run(*looks: dict[str, Any], slot: DriverSlot = EMPTY) -> tuple[DriverSlot, list[Action]]:
    """Take several looks; return the slot and the actions of the last one."""
    actions: list[Action] = []
    for look in looks:
        # Once a driver was started, its code is here.
        has_code = slot.state not in {SlotState.EMPTY, SlotState.FETCHING}
        slot, last = step(slot, Seen(**{"wanted": WORDS, "has_code": has_code, **look}), LIMITS)
        actions = list(last)
    return slot, actions


def _running(**changes: Any) -> DriverSlot:
    return attrs.evolve(DriverSlot(0, SlotState.RUNNING, WORDS, since=10.0), **changes)


def test_way_to_a_running_driver() -> None:
    """An assignment's code is fetched, the driver launched once, and left alone while it beats."""
    slot, actions = _run({"now": 0.0, "wanted": None})
    assert (slot, actions) == (EMPTY, [])
    slot, actions = _run({"now": 1.0}, slot=slot)
    assert (slot.state, actions) == (SlotState.FETCHING, [FetchCode("words-1")])
    slot, actions = _run({"now": 2.0, "has_code": True}, slot=slot)
    assert (slot.state, actions) == (SlotState.STARTING, [Launch(WORDS)])
    slot, actions = _run({"now": 3.0, "is_process_alive": True, "beat_age_secs": 0.1}, slot=slot)
    assert (slot.state, actions) == (SlotState.STARTING, [])
    slot, actions = _run({"now": 9.0, "is_process_alive": True, "beat_age_secs": 0.1, "has_run": True}, slot=slot)
    assert (slot.state, actions) == (SlotState.RUNNING, [])
    slot, actions = _run({"now": 99.0, "is_process_alive": True, "beat_age_secs": 0.1, "has_run": True}, slot=slot)
    assert (slot.state, actions) == (SlotState.RUNNING, [])


def test_killed_driver_is_launched_again() -> None:
    """A driver that a signal ends is launched again for the same assignment: at once, a second time after the backoff."""
    slot, actions = _run({"now": 20.0, "exit_status": -9, "has_run": True}, slot=_running())
    assert (slot.state, actions) == (SlotState.WAITING, [CleanUp()])
    slot, actions = _run({"now": 20.0}, slot=slot)
    assert (slot.state, actions) == (SlotState.STARTING, [Launch(WORDS)])
    slot, actions = _run({"now": 21.0, "exit_status": -9, "has_run": True}, slot=slot)
    assert slot.until == pytest.approx(21.0 + 2 * LIMITS.backoff_secs)
    assert _run({"now": 21.9}, slot=slot) == (slot, [])
    slot, actions = _run({"now": 22.0}, slot=slot)
    assert (slot.state, actions) == (SlotState.STARTING, [Launch(WORDS)])


def test_backoff_grows_to_a_bound() -> None:
    """A driver that runs and fails again and again is launched for ever, each time later up to the longest backoff."""
    waits = []
    slot = _running()
    for _ in range(8):
        slot, _ = _run({"now": 20.0, "exit_status": 1, "has_run": True}, slot=slot)
        waits.append(slot.until - 20.0)
        slot = attrs.evolve(slot, state=SlotState.RUNNING)
    assert waits == [0, 1, 2, 4, 8, 10, 10, 10]


def test_long_run_ends_the_backoff() -> None:
    """After a run of ``backoff_reset_secs`` a driver that ends is launched at once again, however often it has before."""
    alive = {"is_process_alive": True, "has_run": True, "beat_age_secs": 0.1}
    slot = _running(failures=5)
    assert _run({"now": 10.0 + LIMITS.backoff_reset_secs, **alive}, slot=slot) == (slot, [])
    slot, _ = _run({"now": 10.1 + LIMITS.backoff_reset_secs, **alive}, slot=slot)
    slot, _ = _run({"now": 99.0, "exit_status": -9, "has_run": True}, slot=slot)
    assert (slot.state, slot.until) == (SlotState.WAITING, 99.0)


@pytest.mark.parametrize(
    ("state", "seen", "why"),
    [
        (
            SlotState.STARTING,
            {"beat_age_secs": 0.1, "detail": "starting Spark, for 99 s"},
            (
                "the topology did not run within supervisor.worker.start.timeout.secs, 120 s; its last stage was: starting "
                "Spark, for 99 s"
            ),
        ),
        (
            SlotState.STARTING,
            {},
            "the topology did not run within supervisor.worker.start.timeout.secs, 120 s; it gave no sign of life",
        ),
        (
            SlotState.RUNNING,
            {"beat_age_secs": 31.0, "has_run": True},
            "the driver gave no sign of life for supervisor.worker.timeout.secs, 30 s",
        ),
        (
            SlotState.RUNNING,
            {"cut_off_secs": 21.0, "has_run": True},
            "ZooKeeper has been away for supervisor.isolation.secs, 20 s",
        ),
    ],
)
def test_reason_of_a_driver_that_is_stopped(state: SlotState, seen: dict[str, Any], why: str) -> None:
    """It is kept with the slot, and told with the driver's own last words when the topology keeps failing."""
    slot = attrs.evolve(_running(), state=state, failed_starts=LIMITS.retries_max - 1)
    slot, actions = _run({"now": 200.0, "is_process_alive": True, **seen}, slot=slot)
    assert (slot.state, slot.why, actions) == (SlotState.STOPPING, why, [Terminate()])
    slot, actions = _run({"now": 201.0, "error": "SIGTERM", "has_run": state is SlotState.RUNNING}, slot=slot)
    if state is SlotState.STARTING:
        [report, _] = actions
        assert isinstance(report, Report)
        assert report.ending.reason == f"{why}; SIGTERM"
    else:
        assert (slot.state, slot.why) == (SlotState.WAITING, f"{why}; SIGTERM")


def test_code_that_was_lost_meanwhile() -> None:
    """A driver that is to be started again without its code, damaged say, waits until it is fetched again."""
    slot, _ = _run({"now": 99.0, "exit_status": -9, "has_run": True}, slot=_running(failures=3))
    slot, actions = _run({"now": 200.0, "has_code": False}, slot=slot)
    assert (slot.state, slot.failures, actions) == (SlotState.FETCHING, 4, [FetchCode("words-1")])
    slot, actions = _run({"now": 201.0, "has_code": True}, slot=slot)
    assert (slot.state, actions) == (SlotState.STARTING, [Launch(WORDS)])


def test_driver_that_never_runs_is_reported() -> None:
    """After the third start in a row that fails, nimbus is told, with the driver's last words; nothing is launched."""
    slot = attrs.evolve(_running(), state=SlotState.STARTING)
    for _ in range(LIMITS.retries_max - 1):
        slot, actions = _run({"now": 20.0, "exit_status": 1}, slot=slot)
        assert (slot.state, actions) == (SlotState.WAITING, [CleanUp()])
        slot, _ = _run({"now": 99.0}, slot=slot)
    slot, actions = _run({"now": 100.0, "exit_status": 1, "error": "no Java"}, slot=slot)
    assert slot.state is SlotState.ENDED
    [report, cleaned] = actions
    assert cleaned == CleanUp()
    assert isinstance(report, Report)
    assert (report.ending.kind, report.ending.reason) == (EndingKind.KEEPS_FAILING, "no Java")
    assert _run({"now": 500.0}, slot=slot) == (slot, [])


@pytest.mark.parametrize(
    ("status", "kind"), [(DriverExit.FINISHED, EndingKind.FINISHED), (DriverExit.BROKEN_RULE, EndingKind.FAILED)]
)
@pytest.mark.parametrize("state", [SlotState.STARTING, SlotState.RUNNING, SlotState.STOPPING])
def test_end_for_good_is_reported_at_once(status: DriverExit, kind: EndingKind, state: SlotState) -> None:
    """A driver that has finished, or that no start will help, is reported and not launched again."""
    slot, actions = _run({"now": 20.0, "exit_status": status}, slot=_running(state=state))
    assert slot.state is SlotState.ENDED
    assert [each.ending.kind for each in actions if isinstance(each, Report)] == [kind]
    slot, actions = _run({"now": 21.0, "wanted": None}, slot=slot)
    assert slot.state is SlotState.EMPTY


def test_end_is_reported_before_it_is_forgotten() -> None:
    """A supervisor that died in between, and found nothing, would start a driver that has finished again."""
    for status in (DriverExit.FINISHED, DriverExit.BROKEN_RULE):
        _, actions = _run({"now": 20.0, "exit_status": status, "has_run": True}, slot=_running())
        assert [type(each) for each in actions] == [Report, CleanUp]
    slot = attrs.evolve(_running(), state=SlotState.STARTING, failures=2, failed_starts=LIMITS.retries_max - 1)
    _, actions = _run({"now": 20.0, "exit_status": 1}, slot=slot)
    assert [type(each) for each in actions] == [Report, CleanUp]


def test_driver_that_survives_a_kill() -> None:
    """It is killed again and again: a process in the kernel takes the signal late."""
    slot = attrs.evolve(_running(), state=SlotState.STOPPING, since=20.0)
    for secs in (0.0, 2.0, 60.0):
        now = 20.0 + LIMITS.shutdown_secs + secs
        slot, actions = _run({"now": now, "is_process_alive": True}, slot=slot)
        assert (slot.state, actions) == (SlotState.STOPPING, [Kill()])


@pytest.mark.parametrize("wanted", [None, COUNTS, AGAIN])
def test_driver_that_is_not_wanted_ends_first(wanted: Assignment | None) -> None:
    """SIGTERM, after the grace SIGKILL until the process is gone, and only then the slot's next topology."""
    alive = {"wanted": wanted, "is_process_alive": True, "beat_age_secs": 0.1, "has_code": True}
    slot, actions = _run({"now": 20.0, **alive}, slot=_running())
    assert (slot.state, actions) == (SlotState.STOPPING, [Terminate()])
    slot, actions = _run({"now": 22.9, **alive}, slot=slot)
    assert actions == []
    slot, actions = _run({"now": 23.0, **alive}, slot=slot)
    assert (slot.state, actions) == (SlotState.STOPPING, [Kill()])
    slot, actions = _run({"now": 24.0, "wanted": wanted, "exit_status": -9, "has_code": True}, slot=slot)
    if wanted is None:
        assert (slot.state, actions) == (SlotState.EMPTY, [CleanUp()])
    else:
        assert (slot.state, actions) == (SlotState.STARTING, [CleanUp(), Launch(wanted)])


def test_silent_driver_is_ended_and_launched_again() -> None:
    """A driver whose heartbeat stops while its process lives is ended, and launched again."""
    alive = {"is_process_alive": True, "has_run": True}
    slot, actions = _run({"now": 50.0, "beat_age_secs": 30.1, **alive}, slot=_running())
    assert (slot.state, actions) == (SlotState.STOPPING, [Terminate()])
    slot, actions = _run({"now": 51.0, "exit_status": DriverExit.STOPPED, "has_run": True}, slot=slot)
    assert slot.state is SlotState.WAITING


def test_driver_that_does_not_start_in_time() -> None:
    """A driver that beats but whose topology does not run within the start timeout is ended."""
    starting = _running(state=SlotState.STARTING)
    alive = {"is_process_alive": True, "beat_age_secs": 0.1}
    assert _run({"now": 130.0, **alive}, slot=starting) == (starting, [])
    slot, actions = _run({"now": 130.1, **alive}, slot=starting)
    assert (slot.state, actions) == (SlotState.STOPPING, [Terminate()])


def test_cut_off_supervisor_stops_its_drivers() -> None:
    """Before nimbus can start them elsewhere; and starts nothing until it can read what is wanted now."""
    alive = {"is_process_alive": True, "beat_age_secs": 0.1, "has_run": True}
    slot, actions = _run({"now": 50.0, "cut_off_secs": 20.0, **alive}, slot=_running())
    assert actions == []
    slot, actions = _run({"now": 50.1, "cut_off_secs": 20.1, **alive}, slot=slot)
    assert (slot.state, actions) == (SlotState.STOPPING, [Terminate()])
    slot, _ = _run({"now": 51.0, "cut_off_secs": 21.0, "exit_status": 75, "has_run": True}, slot=slot)
    slot, actions = _run({"now": 99.0, "cut_off_secs": 60.0}, slot=slot)
    assert (slot.state, actions) == (SlotState.WAITING, [])
    slot, actions = _run({"now": 99.1}, slot=slot)
    assert actions == [Launch(WORDS)]
    assert _run({"now": 1.0, "cut_off_secs": 0.1, "has_code": True}) == (EMPTY, [])


def test_code_that_comes_while_cut_off() -> None:
    """Nothing is launched without ZooKeeper: the topology may run elsewhere by now."""
    slot, _ = _run({"now": 1.0})
    slot, actions = _run({"now": 2.0, "has_code": True, "cut_off_secs": 1.0}, slot=slot)
    assert slot.state is SlotState.FETCHING
    assert Launch(WORDS) not in actions
    _, actions = _run({"now": 3.0, "has_code": True}, slot=slot)
    assert actions == [Launch(WORDS)]


def test_assignment_withdrawn_while_its_code_is_fetched() -> None:
    """The slot is empty again, and nothing was launched."""
    slot, actions = _run({"now": 1.0}, {"now": 2.0, "wanted": None})
    assert (slot.state, actions) == (SlotState.EMPTY, [CleanUp()])


@pytest.mark.parametrize("has_run", [True, False])
def test_adopted_driver_is_left_alone(has_run: bool) -> None:
    """A supervisor that is started again launches nothing and ends nothing that is wanted."""
    slot = adopted(0, WORDS, has_run, 5.0)
    after, actions = _run({"now": 6.0, "is_process_alive": True, "beat_age_secs": 1.0, "has_run": has_run}, slot=slot)
    assert (after, actions) == (slot, [])


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "wanted": st.sampled_from([None, WORDS, AGAIN, COUNTS]),
                "has_code": st.booleans(),
                "dies": st.booleans(),
                "exit_status": st.sampled_from([0, 1, 65, 75, -9, None]),
                "has_run": st.booleans(),
                "beat_age_secs": st.sampled_from([None, 0.1, 31.0]),
                "cut_off_secs": st.sampled_from([0.0, 0.0, 5.0, 25.0]),
            }
        ),
        max_size=60,
    )
)
def test_never_two_processes_in_a_slot(looks: list[dict[str, Any]]) -> None:
    """Whatever happens: no launch while a process lives, none without code, none for what is not wanted."""
    slot, is_alive, fetched = EMPTY, False, set()
    for number, look in enumerate(looks):
        dies = look.pop("dies")
        is_alive = is_alive and not dies
        if look["has_code"] and look["wanted"]:
            fetched.add(look["wanted"].topology)
        look["has_code"] = bool(look["wanted"]) and look["wanted"].topology in fetched
        slot, actions = step(slot, Seen(now=number * 3.0, is_process_alive=is_alive, **look), LIMITS)
        for action in actions:
            if isinstance(action, Launch):
                assert not is_alive
                assert action.assignment == look["wanted"]
                assert action.assignment.topology in fetched
                is_alive = True
            if isinstance(action, Terminate | Kill):
                assert is_alive
            if isinstance(action, CleanUp):
                assert not is_alive
