"""A supervisor's slot, step by step."""

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


BEATS: dict[str, Any] = {"is_process_alive": True, "beat_age_secs": 0.1}
RUNS: dict[str, Any] = {**BEATS, "has_run": True}


class Story:
    """A slot, look by look; by default that of a driver that runs."""

    def __init__(self, slot: DriverSlot | None = None, **changes: Any) -> None:
        self.slot = slot or attrs.evolve(DriverSlot(0, SlotState.RUNNING, WORDS, since=10.0), **changes)

    def look(self, now: float, **seen: Any) -> tuple[SlotState, list[Action]]:
        """Take a look; return the slot's new state and the actions."""
        # Once a driver was started, its code is here.
        has_code = self.slot.state not in {SlotState.EMPTY, SlotState.FETCHING}
        self.slot, actions = step(self.slot, Seen(now, **{"wanted": WORDS, "has_code": has_code, **seen}), LIMITS)
        return self.slot.state, list(actions)


def test_way_to_a_running_driver() -> None:
    """An assignment's code is fetched, the driver launched once, and left alone while it beats."""
    story = Story(EMPTY)
    assert story.look(0.0, wanted=None) == (SlotState.EMPTY, [])
    assert story.look(1.0) == (SlotState.FETCHING, [FetchCode("words-1")])
    assert story.look(2.0, has_code=True) == (SlotState.STARTING, [Launch(WORDS)])
    assert story.look(3.0, **BEATS) == (SlotState.STARTING, [])
    assert story.look(9.0, **RUNS) == (SlotState.RUNNING, [])
    assert story.look(99.0, **RUNS) == (SlotState.RUNNING, [])


def test_killed_driver_is_launched_again() -> None:
    """A driver that a signal ends is launched again for the same assignment: at once, a second time after the backoff."""
    story = Story()
    assert story.look(20.0, exit_status=-9, has_run=True) == (SlotState.WAITING, [CleanUp()])
    assert story.look(20.0) == (SlotState.STARTING, [Launch(WORDS)])
    story.look(21.0, exit_status=-9, has_run=True)
    assert story.slot.until == pytest.approx(21.0 + 2 * LIMITS.backoff_secs)
    assert story.look(21.9) == (SlotState.WAITING, [])
    assert story.look(22.0) == (SlotState.STARTING, [Launch(WORDS)])


def test_backoff_grows_to_a_bound() -> None:
    """A driver that runs and fails again and again is launched for ever, each time later up to the longest backoff."""
    waits, story = [], Story()
    for _ in range(8):
        story.look(20.0, exit_status=1, has_run=True)
        waits.append(story.slot.until - 20.0)
        story.slot = attrs.evolve(story.slot, state=SlotState.RUNNING)
    assert waits == [0, 1, 2, 4, 8, 10, 10, 10]


def test_a_first_start_that_fails_is_not_repeated_at_once() -> None:
    """Only a driver that has run is launched again without a wait."""
    story = Story(state=SlotState.STARTING)
    story.look(20.0, exit_status=1)
    assert (story.slot.state, story.slot.until) == (SlotState.WAITING, 20.0 + LIMITS.backoff_secs)


@pytest.mark.parametrize(
    ("state", "now", "seen"),
    [
        (SlotState.RUNNING, 20.0, {**RUNS, "beat_age_secs": LIMITS.silence_secs}),
        (SlotState.RUNNING, 20.0, {**RUNS, "cut_off_secs": LIMITS.isolation_secs}),
        (SlotState.STARTING, 10.0 + LIMITS.start_timeout_secs, BEATS),
    ],
)
def test_a_driver_that_is_just_in_time(state: SlotState, now: float, seen: dict[str, Any]) -> None:
    """It is left alone at the last moment of each limit."""
    assert Story(state=state).look(now, **seen) == (state, [])


NOT_IN_TIME = "the topology did not run within supervisor.worker.start.timeout.secs, 120 s"


def test_long_run_ends_the_backoff() -> None:
    """After a run of ``backoff_reset_secs`` a driver that ends is launched at once again, however often it has before."""
    story = Story(failures=5)
    story.look(10.0 + LIMITS.backoff_reset_secs, **RUNS)
    assert story.slot.failures == 5
    story.look(10.1 + LIMITS.backoff_reset_secs, **RUNS)
    story.look(99.0, exit_status=-9, has_run=True)
    assert (story.slot.state, story.slot.until) == (SlotState.WAITING, 99.0)


@pytest.mark.parametrize(
    ("state", "seen", "why"),
    [
        (
            SlotState.STARTING,
            {"beat_age_secs": 0.1, "detail": "starting Spark, for 99 s"},
            f"{NOT_IN_TIME}; its last stage was: starting Spark, for 99 s",
        ),
        (SlotState.STARTING, {}, f"{NOT_IN_TIME}; it gave no sign of life"),
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
    story = Story(state=state, failed_starts=LIMITS.retries_max - 1)
    assert story.look(200.0, is_process_alive=True, **seen) == (SlotState.STOPPING, [Terminate()])
    assert story.slot.why == why
    after, actions = story.look(201.0, error="SIGTERM", has_run=state is SlotState.RUNNING)
    if state is SlotState.STARTING:
        assert isinstance(actions[0], Report)
        assert actions[0].ending.reason == f"{why}; SIGTERM"
    else:
        assert (after, story.slot.why) == (SlotState.WAITING, f"{why}; SIGTERM")


def test_code_that_was_lost_meanwhile() -> None:
    """A driver that is to be started again without its code, damaged say, waits until it is fetched again."""
    story = Story(failures=3)
    story.look(99.0, exit_status=-9, has_run=True)
    assert story.look(200.0, has_code=False) == (SlotState.FETCHING, [FetchCode("words-1")])
    assert story.slot.failures == 4
    assert story.look(201.0, has_code=True) == (SlotState.STARTING, [Launch(WORDS)])


def test_driver_that_never_runs_is_reported() -> None:
    """After the third start in a row that fails, nimbus is told, with the driver's last words; nothing is launched."""
    story = Story(state=SlotState.STARTING)
    for _ in range(LIMITS.retries_max - 1):
        assert story.look(20.0, exit_status=1) == (SlotState.WAITING, [CleanUp()])
        story.look(99.0)
    state, [report, cleaned] = story.look(100.0, exit_status=1, error="no Java")
    assert (state, cleaned) == (SlotState.ENDED, CleanUp())
    assert isinstance(report, Report)
    assert (report.ending.kind, report.ending.reason) == (EndingKind.KEEPS_FAILING, "no Java")
    assert story.look(500.0) == (SlotState.ENDED, [])


@pytest.mark.parametrize(
    ("status", "kind"), [(DriverExit.FINISHED, EndingKind.FINISHED), (DriverExit.BROKEN_RULE, EndingKind.FAILED)]
)
@pytest.mark.parametrize("state", [SlotState.STARTING, SlotState.RUNNING, SlotState.STOPPING])
def test_end_for_good_is_reported_at_once(status: DriverExit, kind: EndingKind, state: SlotState) -> None:
    """A driver that has finished, or that no start will help, is reported and not launched again."""
    story = Story(state=state)
    after, actions = story.look(20.0, exit_status=status)
    assert after is SlotState.ENDED
    assert [action.ending.kind for action in actions if isinstance(action, Report)] == [kind]
    assert story.look(21.0, wanted=None)[0] is SlotState.EMPTY


def test_end_is_reported_before_it_is_forgotten() -> None:
    """A supervisor that died in between, and found nothing, would start a driver that has finished again."""
    for story, status in (
        (Story(), DriverExit.FINISHED),
        (Story(), DriverExit.BROKEN_RULE),
        (Story(state=SlotState.STARTING, failures=2, failed_starts=LIMITS.retries_max - 1), 1),
    ):
        _, actions = story.look(20.0, exit_status=status)
        assert [type(action) for action in actions] == [Report, CleanUp]


def test_driver_that_survives_a_kill() -> None:
    """It is killed again and again: a process in the kernel takes the signal late."""
    story = Story(state=SlotState.STOPPING, since=20.0)
    for secs in (0.0, 2.0, 60.0):
        now = 20.0 + LIMITS.shutdown_secs + secs
        assert story.look(now, is_process_alive=True) == (SlotState.STOPPING, [Kill()])


@pytest.mark.parametrize("wanted", [None, COUNTS, AGAIN])
def test_driver_that_is_not_wanted_ends_first(wanted: Assignment | None) -> None:
    """SIGTERM, after the grace SIGKILL until the process is gone, and only then the slot's next topology."""
    story = Story()
    assert story.look(20.0, wanted=wanted, **BEATS) == (SlotState.STOPPING, [Terminate()])
    assert story.look(22.9, wanted=wanted, **BEATS) == (SlotState.STOPPING, [])
    assert story.look(23.0, wanted=wanted, **BEATS) == (SlotState.STOPPING, [Kill()])
    after = story.look(24.0, wanted=wanted, exit_status=-9)
    if wanted is None:
        assert after == (SlotState.EMPTY, [CleanUp()])
    else:
        assert after == (SlotState.STARTING, [CleanUp(), Launch(wanted)])


def test_driver_that_does_not_start_in_time() -> None:
    """A driver that beats but whose topology does not run within the start timeout is ended."""
    story = Story(state=SlotState.STARTING)
    assert story.look(130.0, **BEATS) == (SlotState.STARTING, [])
    assert story.look(130.1, **BEATS) == (SlotState.STOPPING, [Terminate()])


def test_cut_off_supervisor_stops_its_drivers() -> None:
    """Before nimbus can start them elsewhere; and starts nothing until it can read what is wanted now."""
    story = Story()
    assert story.look(50.0, cut_off_secs=20.0, **RUNS) == (SlotState.RUNNING, [])
    assert story.look(50.1, cut_off_secs=20.1, **RUNS) == (SlotState.STOPPING, [Terminate()])
    story.look(51.0, cut_off_secs=21.0, exit_status=75, has_run=True)
    assert story.look(99.0, cut_off_secs=60.0) == (SlotState.WAITING, [])
    assert story.look(99.1) == (SlotState.STARTING, [Launch(WORDS)])
    assert Story(EMPTY).look(1.0, cut_off_secs=0.1, has_code=True) == (SlotState.EMPTY, [])


def test_code_that_comes_while_cut_off() -> None:
    """Nothing is launched without ZooKeeper: the topology may run elsewhere by now."""
    story = Story(EMPTY)
    story.look(1.0)
    state, actions = story.look(2.0, has_code=True, cut_off_secs=1.0)
    assert state is SlotState.FETCHING
    assert Launch(WORDS) not in actions
    assert story.look(3.0, has_code=True) == (SlotState.STARTING, [Launch(WORDS)])


def test_assignment_withdrawn_while_its_code_is_fetched() -> None:
    """The slot is empty again, and nothing was launched."""
    story = Story(EMPTY)
    story.look(1.0)
    assert story.look(2.0, wanted=None) == (SlotState.EMPTY, [CleanUp()])


@pytest.mark.parametrize("has_run", [True, False])
def test_adopted_driver_is_left_alone(has_run: bool) -> None:
    """A supervisor that is started again launches nothing and ends nothing that is wanted."""
    slot = adopted(0, WORDS, has_run, 5.0)
    story = Story(slot)
    assert story.look(6.0, is_process_alive=True, beat_age_secs=1.0, has_run=has_run) == (slot.state, [])
    assert story.slot == slot


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
