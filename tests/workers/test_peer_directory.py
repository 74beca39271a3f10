"""Which generations a worker reads frames of."""

import pytest

from txtopo.workers.messages import Peer
from txtopo.workers.peer_directory import Arrival, PeerDirectory


@pytest.fixture
def directory() -> PeerDirectory:
    """Generation 3 of a worker, whose peers are generations 1 and 2."""
    made = PeerDirectory()
    made.welcome(3, [Peer(0, 1, None), Peer(2, 2, ("host", 1))])
    return made


def test_before_the_welcome_everything_waits() -> None:
    """A peer may be faster than the driver's answer."""
    assert PeerDirectory().judge(1, 7) is Arrival.EARLY


def test_peers_are_read(directory: PeerDirectory) -> None:
    """Frames between living generations are read."""
    assert [directory.judge(sender, 3) for sender in (1, 2)] == [Arrival.READ] * 2


def test_frames_for_a_former_generation_are_dropped(directory: PeerDirectory) -> None:
    """What was meant for the dead is not read by their successor."""
    assert directory.judge(1, 0) is Arrival.STALE


def test_a_successor_waits_until_the_driver_has_told_of_it(directory: PeerDirectory) -> None:
    """From then on it is read, and its predecessor's frames are dropped."""
    assert directory.judge(4, 3) is Arrival.EARLY
    directory.replace(1, Peer(0, 4, None))
    assert (directory.judge(4, 3), directory.judge(1, 3)) == (Arrival.READ, Arrival.STALE)
    assert directory.generations == {0: 4, 2: 2}


def test_what_was_exchanged_with_the_dead_is_forgotten(directory: PeerDirectory) -> None:
    """Counts are compared between living generations only."""
    directory.sent.update({1: 5, 2: 6})
    directory.received.update({1: 7})
    directory.replace(1, Peer(0, 4, None))
    assert (dict(directory.sent), dict(directory.received)) == ({2: 6}, {})


def test_congestion_ends_with_who_told_of_it(directory: PeerDirectory) -> None:
    """A generation that has died is not waited for any more; others still are."""
    directory.congested.update({1, 2})
    directory.replace(1, Peer(0, 4, None))
    assert directory.congested == {2}


def test_a_peer_that_joins_keeps_its_generation(directory: PeerDirectory) -> None:
    """It says where it listens, once it does."""
    directory.join(Peer(0, 1, ("host", 9)))
    assert directory[0].address == ("host", 9)
    assert len(directory) == len(list(directory)) == 2


def test_lost_channel(directory: PeerDirectory) -> None:
    """The driver is told, unless it knows better; nobody waits for the end of a congestion that can't be told."""
    directory.congested.update({1, 2})
    assert directory.lose(1)
    assert directory.congested == {2}
    directory.replace(2, Peer(2, 4, None))
    assert not directory.lose(2)
