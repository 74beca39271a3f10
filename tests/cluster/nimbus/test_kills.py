"""Nimbuses that are killed, stopped, and lose their disks."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.cluster.conftest import Make
from tests.cluster.nimbuses import submitted
from tests.cluster.scenarios.lost_leader import Drivers, play
from tests.variants import variants
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.testing import ZooKeeperServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("round_", variants(0, long=[1, 2]))
def test_lost_leader(zookeeper: ZooKeeperServer, tmp_path: Path, round_: int) -> None:
    """H1, H2: the leader and its disk go; only one that has the code of all four topologies leads, and soon."""
    assert play(zookeeper.hosts, tmp_path / str(round_)).leader_after_secs < 60.0


@pytest.mark.long
def test_leader_that_wakes_up(make: Make) -> None:
    """H3: one that was stopped while another one led and wrote a hundred times changes nothing, whatever it is asked.

    1. The leader is stopped for longer than its session lasts; requests for it wait in its socket.
    2. Another one leads, and changes topologies a hundred times.
    3. The first one wakes up, believes that it leads, and carries out the requests: all are refused.
    """
    cluster = make(2)
    leader, other = cluster.pair()
    ids = list(submitted(leader, "one", "two", "three"))
    wait_for("the other one holds the code", lambda: other.codes() == sorted(ids))
    leader.signal(signal.SIGSTOP)
    with ThreadPoolExecutor(8) as pool:
        late = [
            pool.submit(
                httpx.post,
                f"http://{leader.address}/api/v1/topology{path}",
                headers=leader.client.headers,
                timeout=DEADLINE_SECS,
            )
            for path in ("/one/kill/0", "/two/deactivate", "/three/rebalance/0", "/one/activate", "/two/kill")
        ]
        wait_for("the other one leads", lambda: other.leads)
        for number in range(50):
            assert other.post(f"/{('one', 'two', 'three')[number % 3]}/deactivate").status_code == 200
            assert other.post(f"/{('one', 'two', 'three')[number % 3]}/activate").status_code == 200
        before = cluster.state.view()
        leader.signal(signal.SIGCONT)
        answers = [each.result() for each in late]
    assert {answer.status_code for answer in answers} <= {421, 503}, [answer.text for answer in answers]
    wait_for("the first one follows", lambda: leader.get("/api/v1/leader")["leader"] == other.address)
    assert cluster.state.view() == before
    assert cluster.leader() is other


@pytest.mark.long
@pytest.mark.parametrize("request_", variants("kill", long=["rebalance"]))
def test_wait_survives_leaders(make: Make, request_: str) -> None:
    """H6: with three changes of leaders in its wait, a kill or rebalance is carried out when it was to be, not later."""
    cluster = make(3).start()
    leader = cluster.leader()
    [words, other] = list(submitted(leader, "words", "other"))
    wait_for("all hold the code", lambda: all(len(nimbus.codes()) == 2 for nimbus in cluster.nimbuses))
    wait_secs = 60.0
    started = time.monotonic()
    answer = leader.post(f"/words/{request_}/{wait_secs}", json={"settings": {"a": "b"}})
    assert answer.status_code == 200
    for _ in range(3):
        leader = cluster.leader()
        leader.kill()
        before = time.monotonic()
        leader.start()
        wait_for("somebody else leads", lambda: any(nimbus.leads for nimbus in cluster.nimbuses))
        assert time.monotonic() - before < wait_secs
        assert words in cluster.state.topologies()

    def is_done() -> bool:
        found = cluster.state.topologies().get(words)
        return found is None if request_ == "kill" else found is not None and found.settings == {"a": "b"}

    wait_for("it is carried out", is_done)
    waited = time.monotonic() - started
    assert wait_secs - 1.0 < waited < wait_secs + 60.0
    assert other in cluster.state.topologies()


@pytest.mark.long
def test_nimbus_that_is_started_again(make: Make) -> None:
    """N-stateless, H9: killed right after a kill request, it goes on; no driver is moved, and the killed one goes."""
    cluster = make().start()
    [nimbus] = cluster.nimbuses
    with Drivers(cluster):
        cluster.add_supervisor("s1", 4)
        [words, _] = submitted(nimbus, "words", "doomed")
        wait_for("both are assigned", lambda: len(cluster.state.assignments()) == 2)
        before = cluster.state.assignments()[words]
        assert nimbus.post("/doomed/kill/1").status_code == 200
        nimbus.kill()
        nimbus.start().wait_until_up()
        wait_for("the killed one is gone", lambda: cluster.statuses() == {"words": "ACTIVE"})
        assert cluster.state.assignments() == {words: before}
        wait_for("so is its code", lambda: nimbus.codes() == [words])


STEPS = ("number", "keep", "upload", "publish", "check", "replicate", "start")


@pytest.mark.long
@pytest.mark.parametrize("side", variants("after", long=["before"]))
@pytest.mark.parametrize("step", STEPS)
def test_death_in_a_submission(make: Make, step: str, side: str) -> None:
    """H7: at every step of a submission: it is either active with its code or absent, and leaves no code behind."""
    cluster = make()
    [nimbus] = cluster.nimbuses
    nimbus.start_to_lead(f"nimbus.{step}.{side}=kill")
    with pytest.raises(httpx.TransportError):
        nimbus.submit("words")
    assert nimbus.wait() == -signal.SIGKILL
    nimbus.start_to_lead()
    is_active = (step, side) == ("start", "after")
    assert cluster.statuses() == ({"words": "ACTIVE"} if is_active else {})
    kept = sorted(cluster.state.topologies())
    wait_for("no other code is left", lambda: nimbus.codes() == kept and sorted(cluster.state.manifests()) == kept)
    wait_for("no draft is left", lambda: not list(nimbus.folder.glob("nimbus/*/code/.draft*")))
    assert nimbus.submit("words" if not is_active else "others").status_code == 201


@pytest.mark.long
def test_newcomer_takes_over(make: Make) -> None:
    """H10: a nimbus with an empty disk joins, fetches all code, is listed, and leads when the old ones stop."""
    cluster = make(2).start()
    leader = cluster.leader()
    ids = sorted(submitted(leader, "one", "two", "three"))
    newcomer = cluster.add().start().wait_until_up()
    wait_for("it has all code", lambda: newcomer.codes() == ids)
    addresses = {nimbus["address"] for nimbus in leader.get("/api/v1/nimbus/summary")["nimbuses"]}
    assert addresses == {nimbus.address for nimbus in cluster.nimbuses}
    for old in cluster.others(newcomer):
        old.stop()
    wait_for("it leads", lambda: newcomer.leads)
    assert newcomer.post("/one/deactivate").status_code == 200
    assert cluster.statuses() == {"one": "INACTIVE", "two": "ACTIVE", "three": "ACTIVE"}


@pytest.mark.long
def test_code_that_is_lost(make: Make) -> None:
    """H11: a topology whose code nobody live holds fails after a while; the others are led on; it comes back with it."""
    cluster = make(2, nimbus_code_lost_secs=1.5)
    holder, other = cluster.nimbuses
    holder.start_to_lead()
    [lost] = submitted(holder, "lost")
    holder.kill()
    other.start().wait_until_up()
    wait_for("the other one leads, without the code", lambda: other.leads)
    [words] = submitted(other, "words")
    wait_for("it has failed", lambda: cluster.statuses() == {"lost": "FAILED", "words": "ACTIVE"})
    assert "no live nimbus has held its code for 1.5 s" in other.get("/api/v1/topology/lost")["reason"]
    assert other.post("/words/deactivate").status_code == 200
    holder.start().wait_until_up()
    wait_for("it is back", lambda: cluster.statuses() == {"lost": "ACTIVE", "words": "INACTIVE"})
    wait_for("both hold both", lambda: holder.codes() == other.codes() == sorted([lost, words]))
