"""Which incarnations a worker reads frames of."""

from __future__ import annotations

import pytest

from txtopo.workers.messages import Peer
from txtopo.workers.roster import Arrival, Roster


@pytest.fixture
def roster() -> Roster:
    """Incarnation 3 of a worker, whose peers are incarnations 1 and 2."""
    made = Roster()
    made.welcome(3, [Peer(0, 1, None), Peer(2, 2, ("host", 1))])
    return made


def test_before_the_welcome_everything_waits() -> None:
    """A peer may be faster than the driver's answer."""
    assert Roster().judge(1, 7) is Arrival.EARLY


def test_peers_are_read(roster: Roster) -> None:
    """Frames between living incarnations are read."""
    assert [roster.judge(sender, 3) for sender in (1, 2)] == [Arrival.READ] * 2


def test_frames_for_a_former_incarnation_are_dropped(roster: Roster) -> None:
    """What was meant for the dead is not read by their successor."""
    assert roster.judge(1, 0) is Arrival.STALE


def test_a_successor_waits_until_the_driver_has_told_of_it(roster: Roster) -> None:
    """From then on it is read, and its predecessor's frames are dropped."""
    assert roster.judge(4, 3) is Arrival.EARLY
    roster.replace(1, Peer(0, 4, None))
    assert (roster.judge(4, 3), roster.judge(1, 3)) == (Arrival.READ, Arrival.STALE)
    assert roster.incarnations == {0: 4, 2: 2}


def test_what_was_exchanged_with_the_dead_is_forgotten(roster: Roster) -> None:
    """Counts are compared between living incarnations only."""
    roster.sent.update({1: 5, 2: 6})
    roster.received.update({1: 7})
    roster.replace(1, Peer(0, 4, None))
    assert (dict(roster.sent), dict(roster.received)) == ({2: 6}, {})


def test_congestion_ends_with_who_told_of_it(roster: Roster) -> None:
    """An incarnation that has died is not waited for any more; others still are."""
    roster.congested.update({1, 2})
    roster.replace(1, Peer(0, 4, None))
    assert roster.congested == {2}


def test_a_peer_that_joins_keeps_its_incarnation(roster: Roster) -> None:
    """It says where it listens, once it does."""
    roster.join(Peer(0, 1, ("host", 9)))
    assert roster[0].address == ("host", 9)
    assert len(roster) == len(list(roster)) == 2


def test_lost_channel(roster: Roster) -> None:
    """The driver is told, unless it knows better; nobody waits for the end of a congestion that can't be told."""
    roster.congested.update({1, 2})
    assert roster.lose(1)
    assert roster.congested == {2}
    roster.replace(2, Peer(2, 4, None))
    assert not roster.lose(2)
