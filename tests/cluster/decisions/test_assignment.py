"""Which supervisor runs which driver."""

import itertools
from collections.abc import Iterable, Sequence

import attrs
import pytest
from hypothesis import given, strategies as st

from txtopo.cluster.decisions.assignment import (
    Apply,
    Assign,
    Assignment,
    AssignmentLimits,
    ClusterView,
    Decision,
    Ending,
    EndingKind,
    Heartbeat,
    HeartbeatCache,
    Slot,
    SupervisorInfo,
    Unassign,
    decide,
)
from txtopo.cluster.decisions.lifecycle import RUNS, Event, Request, Status, Topology

LIMITS = AssignmentLimits()


def _topology(name: str, status: Status = Status.ACTIVE, revision: int = 0) -> Topology:
    return Topology(f"{name}-1", name, name, status, 0.0, revision=revision)


def _supervisors(*slots: int) -> dict[str, SupervisorInfo]:
    return {f"s{n}": SupervisorInfo(f"s{n}", f"127.0.0.1:{n}", count) for n, count in enumerate(slots, start=1)}


def _view(
    topologies: Iterable[Topology],
    supervisors: dict[str, SupervisorInfo],
    assignments: Iterable[Assignment] = (),
    endings: dict[tuple[str, int], Ending] | None = None,
) -> ClusterView:
    return ClusterView(
        {topology.id: topology for topology in topologies},
        {assignment.topology: assignment for assignment in assignments},
        supervisors,
        endings or {},
        {assignment.topology: assignment.number for assignment in assignments},
    )


def _places(decisions: Sequence[Decision]) -> dict[str, Slot]:
    return {
        decision.assignment.topology: decision.assignment.place
        for decision in decisions
        if isinstance(decision, Assign)
    }


def test_new_topologies_are_spread_until_the_slots_are_full() -> None:
    """N-assign, for driver slots: evenly over the supervisors, each slot once; what finds no slot waits."""
    topologies = [_topology(f"t{n}") for n in range(6)]
    decisions = decide(_view(topologies, _supervisors(2, 2, 1)), set(), LIMITS, 5.0)
    places = _places(decisions)
    assert sorted(places) == ["t0-1", "t1-1", "t2-1", "t3-1", "t4-1"]
    assert len(set(places.values())) == 5
    assert [places[f"t{n}-1"].supervisor for n in range(3)] == ["s1", "s2", "s3"]


def test_live_driver_is_never_moved() -> None:
    """Not when its supervisor's node is gone, and not to balance; N-reassign."""
    here = Assignment("t-1", 1, "s1", 0)
    assert decide(_view([_topology("t")], _supervisors(0, 4), [here]), {"t-1"}, LIMITS, 5.0) == []
    assert decide(_view([_topology("t")], {}, [here]), {"t-1"}, LIMITS, 5.0) == []


def test_dead_driver_moves_away() -> None:
    """To another supervisor if there is a slot, with the next number; to its own if there is no other."""
    here = Assignment("t-1", 4, "s1", 0)
    [moved] = decide(_view([_topology("t")], _supervisors(2, 1), [here]), set(), LIMITS, 5.0)
    assert isinstance(moved, Assign)
    assert (moved.assignment.place, moved.assignment.number) == (Slot("s2", 0), 5)
    [same] = decide(_view([_topology("t")], _supervisors(1), [here]), set(), LIMITS, 5.0)
    assert isinstance(same, Assign)
    assert (same.assignment.place, same.assignment.number) == (Slot("s1", 0), 5)


def test_dead_driver_without_any_slot_waits_for_one() -> None:
    """All supervisors gone: unassigned; a new supervisor: assigned, with a number that no driver has had."""
    here = Assignment("t-1", 4, "s1", 0)
    [decision] = decide(_view([_topology("t")], {}, [here]), set(), LIMITS, 5.0)
    assert isinstance(decision, Unassign)
    view = attrs.evolve(_view([_topology("t")], _supervisors(1)), numbers={"t-1": 4})
    [again] = decide(view, set(), LIMITS, 6.0)
    assert isinstance(again, Assign)
    assert again.assignment.number == 5


def test_dead_driver_comes_before_a_new_topology() -> None:
    """What has run gets the last free slot, whatever was submitted earlier."""
    old = Assignment("words-1", 1, "s1", 0)
    view = _view([_topology("alpha"), _topology("words")], _supervisors(1), [old])
    assert _places(decide(view, set(), LIMITS, 0.0)) == {"words-1": Slot("s1", 0)}


def test_slot_of_a_live_driver_is_not_given_away() -> None:
    """Even while its supervisor is away and comes back with fewer topologies than slots."""
    live = Assignment("a-1", 1, "s1", 0)
    decisions = decide(_view([_topology("a"), _topology("b")], _supervisors(2), [live]), {"a-1"}, LIMITS, 5.0)
    assert _places(decisions) == {"b-1": Slot("s1", 1)}


def test_killed_topology_keeps_its_slot_and_gets_no_other() -> None:
    """Its driver is ending there; dead or alive, it is not started anywhere."""
    here = Assignment("k-1", 1, "s1", 0)
    topologies = [_topology("k", Status.KILLED), _topology("new")]
    assert decide(_view(topologies, _supervisors(1), [here]), set(), LIMITS, 5.0) == []
    assert decide(_view([_topology("k", Status.KILLED)], _supervisors(1)), set(), LIMITS, 5.0) == []


@pytest.mark.parametrize("status", [Status.FINISHED, Status.FAILED])
def test_ended_topology_loses_its_slot(status: Status) -> None:
    """It is unassigned, and so is one that is gone; it is never assigned again."""
    here = Assignment("t-1", 1, "s1", 0)
    for topologies in ([_topology("t", status)], []):
        [decision] = decide(_view(topologies, _supervisors(1), [here]), {"t-1"}, LIMITS, 5.0)
        assert isinstance(decision, Unassign)
    assert decide(_view([_topology("t", status)], _supervisors(1)), set(), LIMITS, 5.0) == []


def test_rebalanced_topology_is_assigned_anew() -> None:
    """A new revision ends the old driver by a new number, in the slot that suits best, its own before others."""
    here = Assignment("t-1", 1, "s1", 0, revision=0)
    [decision] = decide(_view([_topology("t", revision=1)], _supervisors(1, 1), [here]), {"t-1"}, LIMITS, 5.0)
    assert isinstance(decision, Assign)
    assert (decision.assignment.place, decision.assignment.revision) == (Slot("s1", 0), 1)


def test_rebalanced_topology_keeps_its_slot_among_equal_ones() -> None:
    """A driver that need not move is not moved; one that must goes where the load is least, as a new one does."""
    here = Assignment("t-1", 1, "s2", 1)
    view = _view([_topology("t", revision=1)], _supervisors(2, 2), [here])
    assert _places(decide(view, {"t-1"}, LIMITS, 5.0)) == {"t-1": Slot("s2", 1)}
    other = Assignment("u-1", 1, "s2", 0)
    view = _view([_topology("t", revision=1), _topology("u")], _supervisors(2, 2), [here, other])
    assert _places(decide(view, {"t-1", "u-1"}, LIMITS, 5.0)) == {"t-1": Slot("s1", 0)}


def test_a_number_is_above_that_of_the_assignment_too() -> None:
    """Also where nobody has kept the highest number that a driver has had."""
    view = attrs.evolve(_view([_topology("t")], _supervisors(1), [Assignment("t-1", 4, "s1", 0)]), numbers={})
    [again] = decide(view, set(), LIMITS, 5.0)
    assert isinstance(again, Assign)
    assert again.assignment.number == 5


def test_code_that_nobody_holds_is_not_assigned() -> None:
    """A supervisor could not fetch it."""
    assert decide(_view([_topology("t")], _supervisors(1)), set(), LIMITS, 5.0, ready=set()) == []


@pytest.mark.parametrize(("kind", "event"), [(EndingKind.FINISHED, Event.FINISHED), (EndingKind.FAILED, Event.FAILED)])
def test_report_of_an_end(kind: EndingKind, event: Event) -> None:
    """What a supervisor reports becomes the topology's event, even if the last heartbeat was a moment ago."""
    here = Assignment("t-1", 3, "s1", 0)
    view = _view([_topology("t")], _supervisors(1), [here], {("t-1", 3): Ending(kind, "why")})
    apply, unassign = decide(view, {"t-1"}, LIMITS, 5.0)
    assert isinstance(apply, Apply)
    assert apply.request.event is event
    assert isinstance(unassign, Unassign)


@pytest.mark.parametrize("kind", EndingKind)
def test_report_of_an_end_before_a_rebalance(kind: EndingKind) -> None:
    """A driver that fails ends no later revision, which may have other settings, and the rebalance waits no longer;
    input that is exhausted is so for all revisions."""
    here = Assignment("t-1", 3, "s1", 0)
    found = []
    for topology in (_topology("t", Status.REBALANCING), _topology("t", revision=1)):
        view = _view([topology], _supervisors(1), [here], {("t-1", 3): Ending(kind, "why")})
        found.append(decide(view, {"t-1"}, LIMITS, 5.0))
    if kind is EndingKind.FINISHED:
        assert found == [[Apply("t-1", Request(Event.FINISHED)), Unassign(here, "finished")]] * 2
        return
    assert found[0] == [Apply("t-1", Request(Event.DO_REBALANCE))]
    assert found[1] == [Assign(Assignment("t-1", 4, "s1", 0, 1, 5.0), "rebalanced")]


def test_late_report_of_an_earlier_driver() -> None:
    """It means nothing: the driver of another number runs now."""
    here = Assignment("t-1", 3, "s1", 0)
    view = _view([_topology("t")], _supervisors(1), [here], {("t-1", 2): Ending(EndingKind.FAILED, "why")})
    assert decide(view, {"t-1"}, LIMITS, 5.0) == []


def test_topology_that_keeps_failing_moves_then_fails() -> None:
    """F2: each supervisor gets one try, up to the bound; then the topology fails with the reason and the places."""
    supervisors = _supervisors(1, 1, 1, 1)
    here, tried = Assignment("t-1", 1, "s1", 0), ["s1"]
    for _ in range(LIMITS.moves_max - 1):
        ending = {("t-1", here.number): Ending(EndingKind.KEEPS_FAILING, "no Java")}
        [moved] = decide(_view([_topology("t")], supervisors, [here], ending), set(), LIMITS, 5.0)
        assert isinstance(moved, Assign)
        here = moved.assignment
        assert here.supervisor not in tried
        tried.append(here.supervisor)
    ending = {("t-1", here.number): Ending(EndingKind.KEEPS_FAILING, "no Java")}
    apply, _ = decide(_view([_topology("t")], supervisors, [here], ending), set(), LIMITS, 5.0)
    assert isinstance(apply, Apply)
    assert apply.request.reason == "the driver keeps failing at its start, on s1, s2, s3: no Java"
    only = Assignment("t-1", 1, "s1", 0)
    ending = {("t-1", 1): Ending(EndingKind.KEEPS_FAILING, "no Java")}
    apply, _ = decide(_view([_topology("t")], _supervisors(4), [only], ending), set(), LIMITS, 5.0)
    assert isinstance(apply, Apply)
    assert apply.request.event is Event.FAILED


def _alive_at(cache: HeartbeatCache, now: float, count: int | None, at: float = 0.0) -> bool:
    here = Assignment("t-1", 1, "s1", 0)
    beats = {} if count is None else {("t-1", 1): Heartbeat("launch", count, at=at)}
    cache.update({"t-1": here}, beats, now)
    return cache.is_alive(here, LIMITS, now)


def test_heartbeat_that_stopped() -> None:
    """Alive for the timeout after the last change by the nimbus' own clock, whatever time the beat names."""
    cache = HeartbeatCache()
    assert _alive_at(cache, 0.0, 1, at=1e9)
    assert _alive_at(cache, 30.0, 1, at=1e9)
    assert not _alive_at(cache, 30.1, 1, at=1e9)
    assert _alive_at(cache, 30.2, 2, at=1e9)


def test_grace_of_a_new_assignment() -> None:
    """Without any heartbeat it is alive for task.launch.secs, and dead after it."""
    cache = HeartbeatCache()
    assert _alive_at(cache, 0.0, None)
    assert _alive_at(cache, 120.0, None)
    assert not _alive_at(cache, 120.1, None)


def test_restarted_driver_counts_anew() -> None:
    """A driver that was launched again begins to count at 1: that is a change."""
    cache = HeartbeatCache()
    here = Assignment("t-1", 1, "s1", 0)
    cache.update({"t-1": here}, {("t-1", 1): Heartbeat("a", 1)}, 0.0)
    cache.update({"t-1": here}, {("t-1", 1): Heartbeat("b", 1)}, 29.0)
    assert cache.is_alive(here, LIMITS, 50.0)


@pytest.mark.slow
@given(st.data())
def test_no_slot_is_ever_given_twice(data: st.DataObject) -> None:
    """N-collision: whatever dies, ends, joins and leaves, round after round, no two topologies share a slot, and only
    those that run have one."""
    assignments: dict[str, Assignment] = {}
    numbers: dict[str, int] = {}
    names = [f"t{n}-1" for n in range(5)]
    for round_ in range(data.draw(st.integers(1, 6))):
        topologies = {
            name: Topology(
                name, name, name, data.draw(st.sampled_from(Status)), 0.0, revision=data.draw(st.integers(0, 1))
            )
            for name in data.draw(st.sets(st.sampled_from(names)))
        }
        supervisors = _supervisors(*data.draw(st.lists(st.integers(0, 3), max_size=3)))
        endings = {
            (each.topology, each.number): Ending(data.draw(st.sampled_from(EndingKind)))
            for each in assignments.values()
            if data.draw(st.booleans())
        }
        alive = data.draw(st.sets(st.sampled_from(names)))
        view = ClusterView(topologies, dict(assignments), supervisors, endings, dict(numbers))
        for decision in decide(view, alive, LIMITS, float(round_)):
            match decision:
                case Assign(assignment):
                    assert topologies[assignment.topology].status in RUNS
                    assert assignment.number > numbers.get(assignment.topology, 0)
                    assert assignment.slot < supervisors[assignment.supervisor].slots
                    assignments[assignment.topology] = assignment
                    numbers[assignment.topology] = assignment.number
                case Unassign(assignment):
                    del assignments[assignment.topology]
                case Apply():
                    pass
        for one, other in itertools.combinations(assignments.values(), 2):
            assert one.place != other.place
        assert all(name in topologies and topologies[name].status in RUNS for name in assignments)
