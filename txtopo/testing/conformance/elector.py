"""The conformance tests of every leader elector, yours and txtopo's: a test class to subclass.

::

    class TestMyElector(LeaderElectorConformance):
        @pytest.fixture
        def place(self):
            with MyPlace() as place:
                yield place
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import pytest

from txtopo.cluster.nimbus.election import LeaderElector
from txtopo.cluster.state import ClusterState, LeaderWrites, NimbusInfo
from txtopo.errors import NoLeader, NotLeader
from txtopo.testing.feeders import wait_until

_DEADLINE_SECS = 30.0
_POLL_SECS = 0.01


class ElectorPlace(ABC):
    """Where electors of one cluster run. It closes at the end what it has opened."""

    session_secs: float
    """How long a nimbus may be cut off before another one can lead."""

    @abstractmethod
    def nimbus(self, address: str, may_lead: Callable[[], bool] = lambda: True) -> tuple[LeaderElector, ClusterState]:
        """Return a prepared elector with a separate connection, for a nimbus that was announced."""

    @abstractmethod
    def cut(self, state: ClusterState) -> None:
        """Break the connection of a nimbus; it cannot be restored until :meth:`heal`."""

    @abstractmethod
    def heal(self, state: ClusterState) -> None:
        """Let the connection of a nimbus be restored."""


def _wait_for(what: str, condition: Callable[[], bool]) -> None:
    assert wait_until(condition, _DEADLINE_SECS, _POLL_SECS), f"not within {_DEADLINE_SECS:g} s: {what}"


def _leaders(electors: Sequence[LeaderElector]) -> list[LeaderElector]:
    return [elector for elector in electors if elector.is_leader()]


class LeaderElectorConformance:
    """The promises of :class:`~txtopo.cluster.LeaderElector`, as tests.

    Subclass it, and define a fixture ``place`` that returns a new :class:`ElectorPlace`.
    """

    def test_nobody_leads_before_anybody_queues(self, place: ElectorPlace) -> None:
        """A prepared nimbus does not lead, and asking for the leader's address raises."""
        elector, _ = place.nimbus("127.0.0.1:1")
        assert not elector.is_leader()
        assert not elector.is_queued()
        with pytest.raises(NoLeader):
            elector.get_leader_address()

    def test_one_of_several_leads(self, place: ElectorPlace) -> None:
        """Of several queued nimbuses one leads; each knows its address."""
        electors = [place.nimbus(f"127.0.0.1:{number}")[0] for number in (1, 2, 3)]
        for elector in electors:
            elector.add_to_leader_lock_queue()
            elector.add_to_leader_lock_queue()
        _wait_for("somebody leads", lambda: bool(_leaders(electors)))
        [leader] = _leaders(electors)
        address = leader.get_leader_address()
        assert address == f"127.0.0.1:{electors.index(leader) + 1}"
        assert {elector.get_leader_address() for elector in electors} == {address}

    def test_lead_that_is_given_up(self, place: ElectorPlace) -> None:
        """It ends at once, and another takes over with a higher epoch; closing twice changes nothing."""
        first, _ = place.nimbus("127.0.0.1:1")
        first.add_to_leader_lock_queue()
        _wait_for("the first leads", first.is_leader)
        before = first.term()
        second, _ = place.nimbus("127.0.0.1:2")
        second.add_to_leader_lock_queue()
        first.close()
        assert not first.is_leader()
        _wait_for("the second leads", second.is_leader)
        after = second.term()
        assert before is not None
        assert after is not None
        assert after.epoch > before.epoch
        first.close()
        assert second.term() == after

    def test_who_lacks_code_does_not_lead(self, place: ElectorPlace) -> None:
        """A nimbus that may not lead leaves the queue for the next one; it may queue again, and leads once it may."""
        asked: list[bool] = []
        has_code = False

        def may_lead() -> bool:
            asked.append(first.is_leader())
            return has_code

        first, _ = place.nimbus("127.0.0.1:1", may_lead)
        first.add_to_leader_lock_queue()
        _wait_for("the first was asked", lambda: bool(asked))
        second, _ = place.nimbus("127.0.0.1:2")
        second.add_to_leader_lock_queue()
        _wait_for("the second leads", second.is_leader)
        _wait_for("the first has left the queue", lambda: not first.is_queued())
        assert not first.is_leader()
        has_code = True
        first.add_to_leader_lock_queue()
        second.close()
        _wait_for("the first leads", first.is_leader)
        assert not any(asked)

    def test_writes_of_a_term_that_is_over(self, place: ElectorPlace) -> None:
        """They are refused, also when the one whose term is over does not know it."""
        first, state = place.nimbus("127.0.0.1:1")
        first.add_to_leader_lock_queue()
        _wait_for("the first leads", first.is_leader)
        term = first.term()
        assert term is not None
        LeaderWrites(state, term).check()
        second, _ = place.nimbus("127.0.0.1:2")
        second.add_to_leader_lock_queue()
        first.close()
        _wait_for("the second leads", second.is_leader)
        with pytest.raises(NotLeader):
            LeaderWrites(state, term).check()

    def test_broken_connection(self, place: ElectorPlace) -> None:
        """is_leader() is False as soon as the break is noticed, and before another nimbus can lead."""
        first, state = place.nimbus("127.0.0.1:1")
        first.add_to_leader_lock_queue()
        _wait_for("the first leads", first.is_leader)
        second, other = place.nimbus("127.0.0.1:2")
        second.add_to_leader_lock_queue()
        place.cut(state)
        seen: list[tuple[bool, bool]] = []

        def has_changed() -> bool:
            seen.append((first.is_leader(), second.is_leader()))
            return seen[-1] == (False, True)

        _wait_for("the second leads", has_changed)
        assert (True, True) not in seen
        assert second.get_leader_address() == "127.0.0.1:2"
        other.announce_nimbus(NimbusInfo("127.0.0.1:2"))
        place.heal(state)
        _wait_for("the first is back", lambda: state.session.is_connected)
        assert not first.is_leader()
        second.close()
        _wait_for("the first leads again", first.is_leader)
