"""Drivers, supervisors and whole machines that are killed while a topology commits; what users ask of topologies."""

import contextlib
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.cluster.conftest import MakeCluster
from tests.cluster.nimbuses import next_root
from tests.cluster.relay import Relay
from tests.cluster.supervisors import DriverCluster, SupervisorProcess, counts_in, expected
from tests.waiting import DEADLINE_SECS
from txtopo.testing import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_killed_driver(make_cluster: MakeCluster) -> None:
    """F5, H8: a driver that is killed is started again in its slot, without a nimbus, too; the table is exact."""
    cluster = make_cluster(nimbus_task_timeout_secs=60)  # no nimbus takes one that starts slowly for dead
    [supervisor] = cluster.supervisors
    topology = cluster.submit()
    for seen in (3, 15):
        cluster.wait_for("it commits", lambda seen=seen: cluster.counted() >= seen)
        before = cluster.cluster.state.assignments()[topology]
        pid = supervisor.drivers()[topology]
        os.kill(pid, signal.SIGKILL)
        cluster.wait_for("it is started again", lambda pid=pid: supervisor.drivers().get(topology, pid) != pid)
        assert cluster.cluster.state.assignments()[topology] == before
        cluster.nimbus.kill()
    cluster.wait_for("it commits", lambda: cluster.counted() > seen)
    cluster.nimbus.start()
    cluster.wait_until_counted()


@pytest.mark.long
def test_killed_supervisor(make_cluster: MakeCluster) -> None:
    """H9: a supervisor that is killed, or ends in good order, and comes back finds its driver running."""
    cluster = make_cluster()
    [supervisor] = cluster.supervisors
    topology = cluster.submit(pause=0.3)
    cluster.wait_for("it commits", lambda: cluster.counted() >= 1)
    before, pid = cluster.cluster.state.assignments()[topology], supervisor.drivers()[topology]
    for end in (supervisor.kill, supervisor.stop):
        end()
        counted = cluster.counted()
        cluster.wait_for("it commits without a supervisor", lambda counted=counted: cluster.counted() > counted)
        supervisor.start().wait_until_up()
        assert supervisor.drivers() == {topology: pid}
    assert cluster.cluster.state.assignments()[topology] == before
    cluster.wait_until_counted()


@pytest.mark.long
@pytest.mark.parametrize("step", ["launch.before", "launch.after", "report.before", "report.after"])
def test_supervisor_that_dies_at_a_step(make_cluster: MakeCluster, step: str) -> None:
    """Whenever it dies, the one that is started again starts no second driver, and the topology finishes."""
    cluster = make_cluster(nimbus_task_timeout_secs=60)
    [supervisor] = cluster.supervisors
    supervisor.stop()
    supervisor.start(f"supervisor.{step}=kill").wait_until_up()
    cluster.submit(total=5)
    cluster.wait_for("it dies", lambda: not supervisor.is_alive())
    supervisor.start()
    cluster.wait_until_counted(5)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_lost_machine(make_cluster: MakeCluster, mode: str) -> None:
    """H8: a machine is lost while its topology commits: the other one goes on, and the table is exact."""
    cluster = make_cluster(2)
    topology = cluster.submit(**{"topology.processing.mode": mode})
    cluster.wait_for("it commits", lambda: cluster.counted() >= 3)
    before = cluster.cluster.state.assignments()[topology]
    [lost] = [supervisor for supervisor in cluster.supervisors if supervisor.id == before.supervisor]
    [other] = [supervisor for supervisor in cluster.supervisors if supervisor is not lost]
    lost.lose_machine()
    cluster.wait_for("the other one runs it", lambda: topology in other.drivers())
    assert cluster.cluster.state.assignments()[topology].supervisor == other.id
    cluster.wait_until_counted()


@pytest.mark.long
def test_deactivate_and_activate(make_cluster: MakeCluster) -> None:
    """Deactivated, what has begun is committed and nothing else begins; a new driver begins nothing, either."""
    cluster = make_cluster()
    [supervisor] = cluster.supervisors
    topology = cluster.submit(total=150)
    cluster.wait_for("it commits", lambda: cluster.counted() >= 3)
    assert "is INACTIVE" in cluster.command("deactivate", "counting")
    cluster.wait_for("it is inactive", lambda: cluster.stages() == ["inactive"])
    cluster.wait_for("nothing is in flight", lambda: cluster.figures()["inFlight"] == 0)
    counted = cluster.counted()
    pid = supervisor.drivers()[topology]
    os.kill(pid, signal.SIGKILL)
    cluster.wait_for("it is started again", lambda: supervisor.drivers().get(topology, pid) != pid)
    cluster.wait_for("it is inactive again", lambda: cluster.figures().get("committedTxid") == counted)
    assert (cluster.counted(), counts_in(cluster.output)) == (counted, expected(counted))
    assert "is ACTIVE" in cluster.command("activate", "counting")
    cluster.wait_until_counted(150)


@pytest.mark.long
def test_kill_and_submit_again(make_cluster: MakeCluster) -> None:
    """A killed topology stops in good order and goes after its wait; submitted again with new code, it goes on."""
    cluster = make_cluster()
    [supervisor] = cluster.supervisors
    topology = cluster.submit(total=1000)
    cluster.wait_for("it commits", lambda: cluster.counted() >= 3)
    assert "is in use" in cluster.submit(is_right=False)
    assert "is KILLED; kill in" in cluster.command("kill", "counting", "--wait", "600")
    cluster.wait_for("its driver ends", lambda: not supervisor.drivers())
    assert cluster.status() == "KILLED"
    counted = cluster.counted()
    assert counts_in(cluster.output) == expected(counted)
    cluster.command("kill", "counting", "--wait", "0")
    cluster.wait_for("it is gone, which would take longer than this by itself", lambda: not cluster.cluster.statuses())
    changed = cluster.copy_of_code(**{"Count(1, bug_at)": "Count(1000, bug_at)"})
    total = counted + 20
    again = cluster.submit(changed, total=total)
    assert again != topology
    cluster.wait_for("it has finished", lambda: cluster.status() == "FINISHED")
    before, after = expected(counted), expected(total)
    assert counts_in(cluster.output) == {key: n + 1000 * (after[key] - n) for key, n in before.items()}


@pytest.mark.long
def test_bug_of_the_user(make_cluster: MakeCluster) -> None:
    """A topology with a bug has failed at once, with the reason; its log has the error; the name is free."""
    cluster = make_cluster()
    cluster.submit(bug_at=3)
    cluster.wait_for("it has failed", lambda: cluster.status() == "FAILED")
    reason = cluster.shown()["reason"]
    assert "a bug in the committer" in reason
    assert "txid 3" in reason
    assert counts_in(cluster.output) == expected(2)
    assert "a bug in the committer" in cluster.command("logs", "counting")
    cluster.submit(total=12)  # more than the window that had begun
    cluster.wait_until_counted(12)


@pytest.mark.long
def test_mistakes_are_found_before_anything_is_stored(make_cluster: MakeCluster) -> None:
    """Bad names, settings, modules and archives are refused; the cluster has nothing of them."""
    cluster = make_cluster()
    assert "cannot be named" in cluster.submit("tests/cluster/submitted", "--name", "a/b", is_right=False)
    assert "there is no setting" in cluster.submit(max_spuot_pending=3, is_right=False)
    assert "no module" in cluster.submit("nowhere.to.be.found", is_right=False)
    broken = cluster.copy_of_code(**{"def topology(": "import not_installed_anywhere\n\n\ndef topology("})
    assert "not_installed_anywhere" in cluster.submit(broken, is_right=False)
    assert cluster.cluster.statuses() == {}
    assert cluster.nimbus.codes() == []


def test_requests_to_a_supervisor(make_cluster: MakeCluster) -> None:
    """Logs and checks need the token; no path leads out of the folder of logs; health and slots are for everybody."""
    cluster = make_cluster()
    [supervisor] = cluster.supervisors
    base = f"http://127.0.0.1:{supervisor.port}"
    right = cluster.nimbus.client.headers
    for path in ("/health", "/metrics", "/api/v1/supervisor"):
        assert httpx.get(base + path, timeout=DEADLINE_SECS).status_code == 200
    assert 'txtopo_supervisor_slots{state="empty"} 4.0' in httpx.get(f"{base}/metrics", timeout=DEADLINE_SECS).text
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        for path in ("log/words", "page", "page/words/errors"):
            assert httpx.get(f"{base}/api/v1/{path}", headers=headers, timeout=DEADLINE_SECS).status_code == 401
        assert httpx.post(f"{base}/api/v1/code/words/check", headers=headers, timeout=DEADLINE_SECS).status_code == 401
    for topology in ("words", "..", "%2e%2e", "..%2f..%2fid"):
        assert httpx.get(f"{base}/api/v1/log/{topology}", headers=right, timeout=DEADLINE_SECS).status_code == 404
        assert (
            httpx.get(f"{base}/api/v1/page/{topology}/errors", headers=right, timeout=DEADLINE_SECS).status_code == 404
        )
    assert httpx.post(f"{base}/api/v1/code/words/check", headers=right, timeout=DEADLINE_SECS).status_code == 503
    other = SupervisorProcess(cluster.cluster, 1)
    other.log = cluster.cluster.folder / "other.log"
    assert other.start().wait() == 1
    assert "another supervisor uses" in other.log.read_text()


@pytest.mark.long
def test_supervisor_that_is_cut_off(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """A machine without ZooKeeper ends its driver before the other one starts it; healed, it takes work again."""
    with (
        contextlib.closing(Relay(zookeeper.hosts)) as relay,
        DriverCluster(zookeeper.hosts, next_root(), tmp_path, 2, nimbus_task_timeout_secs=15) as cluster,
    ):
        cut_off, other = cluster.supervisors
        cluster.nimbus.start().wait_until_up()
        cut_off.start(storm_zookeeper_servers=relay.address).wait_until_up()
        cluster.cluster.leader()
        topology = cluster.submit(pause=0.3)
        cluster.wait_for("it commits", lambda: cluster.counted() >= 3)
        other.start().wait_until_up()
        relay.cut()
        cluster.wait_for("its driver ends", lambda: not cut_off.drivers())
        assert other.drivers() == {}, "before the other one starts it"
        cluster.wait_for("the other one runs it", lambda: topology in other.drivers())
        assert cut_off.drivers() == {}
        relay.heal()
        cluster.wait_until_counted()
        cut_off_id = cut_off.id
        cluster.wait_for("it is back", lambda: cut_off_id in cluster.cluster.state.supervisors())
