"""Submissions to real nimbuses: names, copies, and what is left of one that fails."""

import contextlib
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.conftest import Make
from tests.cluster.nimbuses import TOKEN, NimbusProcess, archive, submitted
from tests.waiting import wait_for
from txtopo.cluster.client import ClusterClient
from txtopo.cluster.code.submission import Submission
from txtopo.cluster.decisions.assignment import Heartbeat
from txtopo.errors import ClusterError

pytestmark = pytest.mark.slow


def test_name_in_use(make: Make) -> None:
    """Also while it is killed; and the topology's id, under whatever name: both would write the same tables."""
    [nimbus] = make().start().nimbuses
    assert nimbus.submit("words", topology_id="counts").status_code == 201
    for name, topology_id in (("words", "other"), ("other", "counts")):
        answer = nimbus.submit(name, topology_id=topology_id)
        assert (answer.status_code, answer.json()["error"]) == (409, "AlreadyAlive")
    nimbus.post("/words/kill/60")
    assert nimbus.submit("words").status_code == 409
    for path in ("activate", "deactivate", "rebalance"):
        assert nimbus.post(f"/words/{path}").json()["error"] == "TransitionError"
    nimbus.post("/words/kill/0")
    wait_for("the name is free", lambda: nimbus.get("/api/v1/topology/summary") == {"topologies": []})
    assert nimbus.submit("words", topology_id="counts").status_code == 201


def test_one_of_many_submissions_of_a_name_wins(make: Make) -> None:
    """Sent at the same moment, one is taken and the others are refused."""
    [nimbus] = make().start().nimbuses
    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(lambda _: nimbus.submit("words").status_code, range(8)))
    assert statuses == [201, *[409] * 7]
    [topology] = nimbus.get("/api/v1/topology/summary")["topologies"]
    wait_for("nothing else is left", lambda: nimbus.codes() == [topology["id"]])


def test_exactly_enough_copies(make: Make) -> None:
    """H4: with as many holders as asked for, the leader among them, a submission does not wait out its time."""
    cluster = make(2, topology_min_replication_count=2, topology_max_replication_wait_time_sec=-1).start()
    answer = cluster.leader().submit("words")
    assert (answer.status_code, answer.json()["replicationCount"]) == (201, 2)
    assert "nimbuses hold the code" not in answer.json()["warning"]


@pytest.mark.parametrize("wait_secs", [0, 0.5])
def test_too_few_copies(make: Make, wait_secs: float) -> None:
    """After the wait the submission goes on, and says so; 0 does not wait at all."""
    [nimbus] = make(topology_min_replication_count=2, topology_max_replication_wait_time_sec=wait_secs).start().nimbuses
    answer = nimbus.submit("words")
    assert answer.status_code == 201
    assert f"1 of 2 nimbuses hold the code after {wait_secs:g} s" in answer.json()["warning"]


@pytest.mark.long
def test_waiting_submission_blocks_nobody(make: Make) -> None:
    """H5: while it waits for ever, topologies are killed, dead drivers moved, and requests answered."""
    cluster = make(
        2, topology_min_replication_count=2, topology_max_replication_wait_time_sec=-1, nimbus_task_timeout_secs=1
    )
    cluster.start()
    leader = cluster.leader()
    [other] = cluster.others(leader)
    [running, doomed] = submitted(leader, "running", "doomed")
    for name in ("s1", "s2"):
        cluster.add_supervisor(name, 2)
    first = wait_for("it is assigned", lambda: cluster.state.assignments().get(running))
    other.kill()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leader.submit, "waiting")
        wait_for("its code is kept", lambda: len(leader.codes()) == 3)
        cluster.state.beat(running, first.number, Heartbeat("launch", 1))
        leader.post("/doomed/kill/0")
        wait_for("it is gone", lambda: "doomed" not in cluster.statuses())
        moved = wait_for(
            "the driver that beats no more is moved",
            lambda: [
                each for each in [cluster.state.assignments().get(running)] if each and each.number > first.number
            ],
        )
        assert moved[0].supervisor != first.supervisor
        assert not waiting.done()
        assert "waiting" not in cluster.statuses()
        other.start()
        assert waiting.result().status_code == 201
    assert doomed not in cluster.state.topologies()


def test_lead_lost_while_a_submission_waits(make: Make) -> None:
    """H4: the submission fails, nothing is active, and no code of it is left anywhere."""
    cluster = make(2, topology_min_replication_count=3, topology_max_replication_wait_time_sec=-1)
    leader, other = cluster.pair()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leader.submit, "waiting")
        wait_for("both hold the code", lambda: leader.codes() and other.codes())
        # As the end of its session does.
        cluster.state.remove_nodes(cluster.state.node("leader"))
        answer = waiting.result()
    assert (answer.status_code, answer.json()["error"]) == (421, "NotLeader")
    assert cluster.statuses() == {}
    wait_for("no code is left", lambda: not leader.codes() and not other.codes() and not cluster.state.manifests())


@contextlib.contextmanager
def _small_disk(nimbus: NimbusProcess) -> Iterator[Callable[[], object]]:
    """Give a nimbus a disk of 1 MiB; yield what makes it larger."""
    nimbus.folder.mkdir(parents=True)

    def mount(*options: str) -> int:
        command = ["mount", *options, "-t", "tmpfs", "tmpfs", str(nimbus.folder)]
        return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode

    if mount("-o", "size=1m"):
        pytest.skip("only root may mount a small disk")
    try:
        yield lambda: mount("-o", "remount,size=64m")
    finally:
        nimbus.kill()
        subprocess.run(["umount", "-l", str(nimbus.folder)], check=True)


def _large_archive() -> bytes:
    return archive("#" + random.Random(7).randbytes(3 << 20).hex())


def test_leader_with_a_full_disk(make: Make, tmp_path: Path) -> None:
    """A submission is refused with the reason, to whoever has sent it; the leader goes on."""
    cluster = make()
    [nimbus] = cluster.nimbuses
    (tmp_path / "code.zip").write_bytes(_large_archive())
    with _small_disk(nimbus) as enlarge, ClusterClient([nimbus.address], TOKEN) as client:
        nimbus.start().wait_until_up()
        wait_for("it leads", lambda: nimbus.leads)
        answer = nimbus.submit("words", _large_archive())
        assert (answer.status_code, answer.json()["error"]) == (507, "ClusterError")
        with pytest.raises(ClusterError, match=f"the daemon at {nimbus.address} has no room for it: No space left"):
            client.submit(Submission("words", "words", "words"), tmp_path / "code.zip")
        assert nimbus.is_alive()
        enlarge()
        assert client.submit(Submission("words", "words", "words"), tmp_path / "code.zip").status == "ACTIVE"


def test_end_while_a_submission_waits_for_ever(make: Make) -> None:
    """SIGTERM does not wait for it: the submission is refused, and the process ends."""
    [nimbus] = make(topology_min_replication_count=2, topology_max_replication_wait_time_sec=-1).start().nimbuses
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(nimbus.submit, "words")
        wait_for("its code is kept", nimbus.codes)
        assert nimbus.stop() == 0
        assert waiting.result().status_code == 421
