"""What is in ZooKeeper, on a real server."""

import threading
from collections.abc import Callable, Iterator
from unittest.mock import MagicMock

import attrs
import pytest

from state.stores.zookeeper_session import Answer, Applied, ConditionFailed, OutcomeUnknown
from tests.cluster.nimbuses import leading, next_root
from tests.cluster.relay import Relay
from tests.waiting import DEADLINE_SECS
from txtopo.cluster.code_store import CodeFile, Manifest
from txtopo.cluster.decisions.assignment import Assignment, Ending, EndingKind, Heartbeat, SupervisorInfo
from txtopo.cluster.decisions.lifecycle import Status, Topology
from txtopo.cluster.state import ClusterState, LeaderWrites, NimbusInfo, Term
from txtopo.errors import NoLeader, NotLeader, StopError, Unreachable
from txtopo.testing import ZooKeeperServer

WORDS = Topology("words-1-9", "words", "word-counts", Status.ACTIVE, 9.0)
MANIFEST = Manifest(WORDS.id, (CodeFile("code.zip", 4, "ab"),))
HERE = Assignment(WORDS.id, 1, "s1", 0)
BEAT = Heartbeat("launch", 1)

Open = Callable[..., ClusterState]


@pytest.fixture
def open_state(zookeeper: ZooKeeperServer) -> Iterator[Open]:
    root, opened = next_root(), []

    def open_(hosts: str = zookeeper.hosts, **arguments: str) -> ClusterState:
        opened.append(ClusterState(hosts, root, session_timeout_secs=10.0, **arguments))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


def _started(state: ClusterState) -> LeaderWrites:
    writes = leading(state)
    writes.publish(MANIFEST)
    writes.start(WORDS)
    writes.assign(HERE)
    return writes


def test_what_one_writes_another_reads(open_state: Open) -> None:
    """Topologies, assignments, heartbeats, endings, manifests and holders come back as they were written."""
    writer, reader = open_state(), open_state()
    _started(writer)
    assert reader.beat(WORDS.id, 1, BEAT)
    assert reader.report(WORDS.id, 1, Ending(EndingKind.FAILED, "why"))
    assert reader.hold(WORDS.id, "127.0.0.1:2")
    view = writer.view()
    assert view.topologies == {WORDS.id: WORDS}
    assert view.assignments == {WORDS.id: HERE}
    assert view.endings == {(WORDS.id, 1): Ending(EndingKind.FAILED, "why")}
    assert view.numbers == {WORDS.id: 1}
    assert writer.heartbeats() == {(WORDS.id, 1): BEAT}
    assert writer.manifests() == {WORDS.id: MANIFEST}
    assert writer.holders() == {WORDS.id: {"127.0.0.1:1", "127.0.0.1:2"}}
    reader.announce_nimbus(NimbusInfo("127.0.0.1:2"))
    assert writer.live_holders() == {WORDS.id: {"127.0.0.1:2"}}
    reader.drop(WORDS.id, "127.0.0.1:2")
    reader.drop(WORDS.id, "127.0.0.1:2")
    assert writer.holders_of(WORDS.id) == {"127.0.0.1:1"}


def test_ephemeral_nodes_end_with_their_session(open_state: Open) -> None:
    """A nimbus, a supervisor and the leader vanish with their client, and only with that."""
    one, other = open_state(), open_state()
    one.announce_nimbus(NimbusInfo("127.0.0.1:1"))
    one.announce_supervisor(SupervisorInfo("s1", "127.0.0.1:9", 4))
    other.announce_nimbus(NimbusInfo("127.0.0.1:2"))
    leading(one)
    assert set(other.nimbuses()) == {"127.0.0.1:1", "127.0.0.1:2"}
    assert other.supervisors() == {"s1": SupervisorInfo("s1", "127.0.0.1:9", 4)}
    assert other.leader() == "127.0.0.1:1"
    one.close()
    assert set(other.nimbuses()) == {"127.0.0.1:2"}
    assert other.supervisors() == {}
    with pytest.raises(NoLeader):
        other.leader()


def test_announcement_replaces_that_of_an_earlier_session(open_state: Open) -> None:
    """A daemon that is started again does not vanish when the session of its earlier life ends."""
    before, after, reader = open_state(), open_state(), open_state()
    before.announce_nimbus(NimbusInfo("127.0.0.1:1", 1.0))
    after.announce_nimbus(NimbusInfo("127.0.0.1:1", 2.0))
    before.close()
    assert reader.nimbuses() == {"127.0.0.1:1": NimbusInfo("127.0.0.1:1", 2.0)}


def test_one_term_at_a_time(open_state: Open) -> None:
    """No term begins while another one lasts, with a version of the epoch from before another one, or out of turn."""
    one, other = open_state(), open_state()
    version = one.epoch_version()
    term = leading(one).term
    assert other.begin_term("127.0.0.1:2", version) is None
    assert other.begin_term("127.0.0.1:2", other.epoch_version()) is None
    one.end_term(term)
    assert other.begin_term("127.0.0.1:2", version) is None
    assert other.begin_term("127.0.0.1:2", other.epoch_version(), other.node("leader-queue", "gone")) is None
    assert leading(other, "127.0.0.1:2").term.epoch == term.epoch + 1


def test_every_write_of_an_ended_term_is_refused(open_state: Open) -> None:
    """W5, H3: a leader that another one has followed changes nothing, by any of its writes."""
    one, other = open_state(), open_state()
    old = _started(one)
    one.end_term(old.term)
    leading(other, "127.0.0.1:2")
    before = (other.view(), other.manifests(), other.holders())
    second = attrs.evolve(WORDS, id="second-2-9")
    for write in (
        old.check,
        old.next_number,
        lambda: old.publish(attrs.evolve(MANIFEST, topology=second.id)),
        lambda: old.start(second),
        lambda: old.store(attrs.evolve(WORDS, status=Status.KILLED)),
        lambda: old.assign(attrs.evolve(HERE, number=2)),
        lambda: old.unassign(WORDS.id),
        lambda: old.remove(WORDS.id),
    ):
        with pytest.raises(NotLeader, match="nothing was written"):
            write()
    assert (other.view(), other.manifests(), other.holders()) == before
    one.end_term(old.term)
    assert other.leader() == "127.0.0.1:2"


class _Answers:
    """A session whose transactions get these answers, whatever is in them."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.client = MagicMock()

    def deadline(self) -> None:
        return None

    def commit(self, transaction: object, deadline: None) -> Answer:
        del transaction, deadline
        return self._answers.pop(0)


def test_lost_answer_to_the_last_write_of_a_term() -> None:
    """It is not said that nothing was written, unless that was so, or does no harm: else a client would ask again."""
    state = ClusterState.__new__(ClusterState)
    state.root = "/cluster"
    writes = LeaderWrites(state, Term(1, 1, "127.0.0.1:1", 0))

    def after(*answers: Answer) -> LeaderWrites:
        state.session = _Answers(*answers)  # type: ignore[assignment]
        return writes

    with pytest.raises(Unreachable, match="may have been applied"):
        after(OutcomeUnknown(), ConditionFailed(0)).store(WORDS)
    with pytest.raises(Unreachable, match="may have been applied"):
        after(ConditionFailed(2), OutcomeUnknown(), ConditionFailed(2), ConditionFailed(1)).store(WORDS)
    with pytest.raises(NotLeader, match="nothing was written"):
        after(ConditionFailed(2), ConditionFailed(0)).store(WORDS)
    with pytest.raises(NotLeader, match="nothing was written"):
        after(OutcomeUnknown(), ConditionFailed(0)).check()
    after(OutcomeUnknown(), Applied(None)).store(WORDS)


def test_writes_end_with_the_session_that_began_the_term(open_state: Open) -> None:
    """Also when no other nimbus leads yet."""
    one, other = open_state(), open_state()
    term = leading(one).term
    one.close()
    with pytest.raises(NotLeader):
        LeaderWrites(other, term).check()


def test_assignment_leaves_no_word_of_earlier_drivers(open_state: Open) -> None:
    """Heartbeats and endings of earlier numbers go; the number stays when the topology is unassigned."""
    state = open_state()
    writes = _started(state)
    state.beat(WORDS.id, 1, BEAT)
    state.report(WORDS.id, 1, Ending(EndingKind.KEEPS_FAILING))
    writes.assign(attrs.evolve(HERE, number=2))
    assert (state.heartbeats(), state.view().endings) == ({}, {})
    state.beat(WORDS.id, 2, BEAT)
    writes.unassign(WORDS.id)
    writes.unassign(WORDS.id)
    assert (state.heartbeats(), state.view().assignments, state.view().numbers) == ({}, {}, {WORDS.id: 2})


def test_removed_topology_leaves_nothing(open_state: Open) -> None:
    """All nodes go in one transaction; its driver, supervisor and holders are told that it is gone."""
    state = open_state()
    writes = _started(state)
    state.beat(WORDS.id, 1, BEAT)
    state.report(WORDS.id, 1, Ending(EndingKind.FINISHED))
    state.hold(WORDS.id, "127.0.0.1:2")
    writes.remove(WORDS.id)
    writes.remove(WORDS.id)
    assert (state.topologies(), state.assignments(), state.manifests(), state.holders()) == ({}, {}, {}, {})
    assert not state.beat(WORDS.id, 1, BEAT)
    assert not state.report(WORDS.id, 1, Ending(EndingKind.FINISHED))
    assert not state.hold(WORDS.id, "127.0.0.1:2")


def test_submission_replaces_what_has_ended(open_state: Open) -> None:
    """The old record goes in the transaction in which the new one comes."""
    state = open_state()
    writes = _started(state)
    again = attrs.evolve(WORDS, id="words-2-9")
    writes.publish(attrs.evolve(MANIFEST, topology=again.id))
    for _ in range(2):  # if its answer is lost, it is applied again
        writes.start(again, replaced=[WORDS.id])
    assert (state.topologies(), set(state.manifests())) == ({again.id: again}, {again.id})


def test_numbers_of_submissions_never_repeat(open_state: Open) -> None:
    """W11: not after a change of leaders either."""
    one, other = open_state(), open_state()
    first = leading(one)
    numbers = [first.next_number() for _ in range(3)]
    one.close()
    second = leading(other)
    assert [*numbers, second.next_number()] == [1, 2, 3, 4]


def test_watch_tells_once_of_any_change(open_state: Open) -> None:
    """A new name, a changed value, a removed name, and a name below a name each wake a watcher."""
    state = open_state()
    writes = _started(state)
    for change in (
        lambda: state.hold(WORDS.id, "127.0.0.1:2"),
        lambda: state.report(WORDS.id, 1, Ending(EndingKind.FINISHED)),
        lambda: writes.store(attrs.evolve(WORDS, status=Status.INACTIVE)),
        lambda: writes.start(attrs.evolve(WORDS, id="second-2-9")),
        lambda: writes.remove(WORDS.id),
    ):
        told = threading.Event()
        state.watch(["storms", "endings", "code-distributor"], told.set)
        assert not told.is_set()
        change()
        assert told.wait(DEADLINE_SECS)


def test_watching_for_long_keeps_nothing(open_state: Open) -> None:
    """Thousands of watches without a change are one for each node."""
    state = open_state()
    _started(state)
    told = threading.Event()
    for _ in range(50):
        state.watch(["storms", "endings"], told.set)
    client = state.session.client
    kept = [*client._data_watchers.values(), *client._child_watchers.values()]
    assert {len(each) for each in kept if each} == {1}


def test_break_during_writes(open_state: Open, zookeeper: ZooKeeperServer) -> None:
    """Writes whose answers a broken connection has swallowed are sent again, and are there exactly as meant."""
    relay = Relay(zookeeper.hosts)
    state = open_state(relay.address)
    writes = _started(state)
    stop = threading.Event()

    def cut_often() -> None:
        while not stop.wait(0.15):
            relay.cut()
            relay.heal()

    cutter = threading.Thread(target=cut_often)
    cutter.start()
    try:
        for number in range(2, 60):
            writes.assign(attrs.evolve(HERE, number=number))
            assert state.beat(WORDS.id, number, attrs.evolve(BEAT, count=number))
    finally:
        stop.set()
        cutter.join()
    assert state.assignments()[WORDS.id].number == 59
    assert state.heartbeats() == {(WORDS.id, 59): attrs.evolve(BEAT, count=59)}
    relay.close()


def test_layout_of_another_version(open_state: Open) -> None:
    """A daemon refuses nodes that it would misread, and says what to do."""
    state = open_state()
    state.session.client.set(state.node("format"), b'{"layout": 2}')
    with pytest.raises(StopError, match=r"layout 2.*storm\.zookeeper\.root"):
        open_state()


def test_digest_acl(open_state: Open) -> None:
    """With credentials, nobody else can read or write a node."""
    mine = open_state(credentials="txtopo:secret")
    _started(mine)
    assert open_state(credentials="txtopo:secret").topologies() == {WORDS.id: WORDS}
    for credentials in (None, "txtopo:guess"):
        with pytest.raises(StopError, match="other credentials"):
            open_state(credentials=credentials)
