"""The elector on ZooKeeper."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.nimbuses import next_root
from tests.cluster.relay import Relay
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.cluster.nimbus.election import LeaderElector, ZooKeeperLeaderElector
from txtopo.cluster.state import ClusterState, NimbusInfo
from txtopo.testing import ElectorPlace, LeaderElectorConformance, ZooKeeperServer


class ZooKeeperPlace(ElectorPlace, contextlib.ExitStack):
    """Electors on one root of a real server, each behind a relay of its own."""

    session_secs = 2.0

    def __init__(self, hosts: str) -> None:
        super().__init__()
        self.hosts = hosts
        self.root = next_root()
        self.failures: list[BaseException] = []
        self._relays: dict[int, Relay] = {}

    def nimbus(self, address: str, may_lead: Callable[[], bool] = lambda: True) -> tuple[LeaderElector, ClusterState]:
        relay = Relay(self.hosts)
        self.callback(relay.close)
        state = ClusterState(relay.address, self.root, session_timeout_secs=self.session_secs)
        self._relays[id(state)] = relay
        self.callback(state.close)
        state.announce_nimbus(NimbusInfo(address))
        elector = ZooKeeperLeaderElector(on_failure=self.failures.append)
        elector.prepare(state, address, may_lead)
        self.callback(elector.close)
        return elector, state

    def cut(self, state: ClusterState) -> None:
        self._relays[id(state)].cut()

    def heal(self, state: ClusterState) -> None:
        self._relays[id(state)].heal()


@pytest.fixture
def place(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperPlace]:
    with ZooKeeperPlace(zookeeper.hosts) as place:
        yield place
        assert place.failures == []


class TestZooKeeperLeaderElector(LeaderElectorConformance):
    """The elector keeps all promises of its contract."""


def test_successor_leads_within_the_session_timeout(place: ZooKeeperPlace) -> None:
    """A leader that vanishes without a word is followed when its session has ended, and nothing else is waited for."""
    first, state = place.nimbus("127.0.0.1:1")
    first.add_to_leader_lock_queue()
    wait_for("the first leads", first.is_leader)
    second, _ = place.nimbus("127.0.0.1:2")
    second.add_to_leader_lock_queue()
    timeout_secs = state.session.client._session_timeout / 1000
    started = time.monotonic()
    place.cut(state)
    wait_for("the second leads", second.is_leader)
    assert time.monotonic() - started < timeout_secs + 20.0


def test_short_break_keeps_the_lead(place: ZooKeeperPlace) -> None:
    """is_leader() is False during the break and True after it, in the same term."""
    place.session_secs = 10.0
    first, state = place.nimbus("127.0.0.1:1")
    first.add_to_leader_lock_queue()
    wait_for("the first leads", first.is_leader)
    before = first.term()
    suspended = threading.Event()
    state.session.listen(lambda: None if state.session.is_connected else suspended.set())
    place.cut(state)
    assert suspended.wait(DEADLINE_SECS)
    assert not first.is_leader()
    place.heal(state)
    wait_for("the first leads", first.is_leader)
    assert first.term() == before


def test_lead_that_is_not_wanted_any_more(place: ZooKeeperPlace) -> None:
    """Who is closed while it is asked whether it holds all code does not lead, and is in nobody's way."""
    in_check, go_on = threading.Event(), threading.Event()

    def slow() -> bool:
        in_check.set()
        return go_on.wait(DEADLINE_SECS)

    first, _ = place.nimbus("127.0.0.1:1", slow)
    first.add_to_leader_lock_queue()
    assert in_check.wait(DEADLINE_SECS)
    closing = threading.Thread(target=first.close)
    closing.start()
    wait_for("it wants to lead no more", lambda: not first.is_queued())
    second, _ = place.nimbus("127.0.0.1:2")
    second.add_to_leader_lock_queue()
    go_on.set()
    seen: list[bool] = []
    wait_for("the second leads", lambda: seen.append(first.is_leader()) or second.is_leader())
    assert not any(seen)
    closing.join()


def test_term_of_another_during_the_check(place: ZooKeeperPlace) -> None:
    """A nimbus that checks its code for long, while another one leads and submits, does not lead on that check.

    1. The first one is asked whether it holds all code, and begins to look.
    2. Its session ends; the second one leads, a topology is submitted, and the second one leaves.
    3. The first one says yes: too late, the epoch has another version.
    """
    answers = itertools.count()
    in_check, go_on = threading.Event(), threading.Event()

    def slow() -> bool:
        if next(answers) == 0:
            in_check.set()
            assert go_on.wait(DEADLINE_SECS)
        return True

    first, state = place.nimbus("127.0.0.1:1", slow)
    first.add_to_leader_lock_queue()
    assert in_check.wait(DEADLINE_SECS)
    place.cut(state)
    second, _ = place.nimbus("127.0.0.1:2")
    second.add_to_leader_lock_queue()
    wait_for("the second leads", second.is_leader)
    second.close()
    place.heal(state)
    go_on.set()
    wait_for("the first leads", first.is_leader)
    assert next(answers) == 2
    term = first.term()
    assert term is not None
    assert term.epoch == 2
