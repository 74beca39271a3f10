"""Nimbus processes on a real ZooKeeper."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.cluster.conftest import Make
from tests.cluster.nimbuses import TOKEN, NimbusProcess, archive, builds, submitted
from tests.waiting import wait_for
from txtopo.cluster.client import ClusterClient
from txtopo.cluster.code.submission import Submission
from txtopo.cluster.decisions.assignment import Ending, EndingKind, Heartbeat, SupervisorInfo
from txtopo.cluster.state import ClusterState
from txtopo.errors import ClusterError

pytestmark = pytest.mark.slow


def test_life_of_a_topology(make: Make) -> None:
    """Submit, deactivate, activate, rebalance, kill: each shows in the summary, and killed it is gone with its code."""
    [nimbus] = make().start().nimbuses
    answer = nimbus.submit("words", wait_secs=0.5)
    assert answer.status_code == 201, answer.text
    topology = answer.json()
    assert (topology["name"], topology["status"], topology["replicationCount"]) == ("words", "ACTIVE", 1)
    assert topology["note"] == "no supervisor is there to check the code"
    assert nimbus.codes() == [topology["id"]]
    assert nimbus.post("/words/deactivate").json()["topology"]["status"] == "INACTIVE"
    assert nimbus.post("/words/activate").json()["status"] == "success"
    answer = nimbus.post("/words/rebalance/0.2", json={"settings": {"shop.discount": 3}})
    assert answer.json()["topology"]["status"] == "REBALANCING"
    wait_for("it is active again", lambda: nimbus.get("/api/v1/topology/words")["status"] == "ACTIVE")
    assert nimbus.get("/api/v1/topology/words")["settings"] == {"shop.discount": "3"}
    assert nimbus.post("/words/kill").json()["topology"]["status"] == "KILLED"
    wait_for("it is gone", lambda: nimbus.get("/api/v1/topology/summary") == {"topologies": []})
    wait_for("its code is gone", lambda: nimbus.codes() == [])
    assert nimbus.post("/words/kill").status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", Submission("a/b", "words", "words").to_bytes() + b"\n" + archive()),
        ("", Submission("words", "words", "words").to_bytes() + b"\nno zip"),
        ("", b"["),
        ("", b"[" * 60_000 + b"\nzip"),
        ("", b"x" * 70_000),
        ("/words/kill/soon", b""),
        ("/words/kill/-1", b""),
        ("/words/kill/nan", b""),
        ("/words/rebalance/-3", b""),
        ("/words/rebalance", b"[" * 60_000),
        ("/words/rebalance", b'{"setting": {}}'),
        ("/words/rebalance", b'{"settings": {"a": NaN}}'),
        ("/words/rebalance", b'{"settings": {"a": "1", "a": "2"}}'),
        ("/words/rebalance", b'{"settings": {"a": "\\ud800"}}'),
    ],
    ids=lambda value: value[-40:],
)
def test_request_that_is_none(alone: NimbusProcess, path: str, body: bytes) -> None:
    """It is refused with words; nothing is stored, and the log has no error of the nimbus' own."""
    answer = alone.post(path, content=body)
    assert (answer.status_code, bool(answer.json()["errorMessage"])) == (400, True)
    assert alone.codes() == []
    assert "a request failed" not in alone.log.read_text()


def test_upload_that_is_too_large(make: Make) -> None:
    """It is refused, whether its length is announced or found out while it comes."""
    [nimbus] = make(nimbus_upload_bytes_max=10_000).start().nimbuses
    assert nimbus.submit("words", archive("#" * 5_000)).status_code == 201
    assert nimbus.submit("large", archive() + bytes(10_000)).status_code == 413
    chunks = (bytes(1000) for _ in range(1000))
    assert nimbus.post("", content=chunks).status_code == 413
    assert not list(nimbus.folder.glob("nimbus/*/code/.draft*"))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/topology"),
        ("POST", "/api/v1/topology/words/activate"),
        ("POST", "/api/v1/topology/words/deactivate"),
        ("POST", "/api/v1/topology/words/rebalance"),
        ("POST", "/api/v1/topology/words/rebalance/1"),
        ("POST", "/api/v1/topology/words/kill"),
        ("POST", "/api/v1/topology/words/kill/0"),
        ("GET", "/api/v1/code/words-1-9"),
        ("GET", "/api/v1/code/words-1-9/code.zip"),
    ],
)
@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_token(alone: NimbusProcess, method: str, path: str, header: str | None) -> None:
    """What changes something, and code, needs the token; on loopback, too."""
    del alone.client.headers["Authorization"]
    try:
        headers = {} if header is None else {"Authorization": header}
        assert alone.client.request(method, path, headers=headers).status_code == 401
    finally:
        alone.client.headers["Authorization"] = f"Bearer {TOKEN}"


@pytest.mark.parametrize("path", ["..%2f..%2ftoken", "%2e%2e", "words-1-9", "words-1-9/manifest.json", "../x/code.zip"])
def test_code_that_is_not_there(alone: NimbusProcess, path: str) -> None:
    """No path leaves the folder of the code."""
    assert alone.client.get(f"/api/v1/code/{path}").status_code == 404


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


def test_who_does_not_lead_says_who_does(make: Make) -> None:
    """N-leadership: each of the five requests is refused with the leader's address; reads are answered by all."""
    cluster = make(2)
    leader, other = cluster.pair()
    assert leader.submit("words").status_code == 201
    for path in ("", "/words/activate", "/words/deactivate", "/words/rebalance", "/words/kill"):
        answer = other.submit("more") if not path else other.post(path)
        assert (answer.status_code, answer.json()["error"]) == (421, "NotLeader")
        assert answer.json()["leader"] == leader.address
    wait_for("the other one holds the code", lambda: other.codes() == leader.codes())
    shown = other.get("/api/v1/topology/words")
    assert shown["status"] == "ACTIVE"
    assert shown["holders"] == sorted([leader.address, other.address])
    assert other.get("/api/v1/leader")["leader"] == leader.address
    nimbuses = other.get("/api/v1/nimbus/summary")["nimbuses"]
    assert {each["address"]: each["status"] for each in nimbuses} == {
        leader.address: "Leader",
        other.address: "Not a Leader",
    }


def test_exactly_enough_copies(make: Make) -> None:
    """H4: with as many holders as asked for, the leader among them, a submission does not wait out its time."""
    cluster = make(2, topology_min_replication_count=2, topology_max_replication_wait_time_sec=-1).start()
    answer = cluster.leader().submit("words")
    assert (answer.status_code, answer.json()["replicationCount"]) == (201, 2)
    assert "nimbuses hold the code" not in answer.json()["note"]


@pytest.mark.parametrize("wait_secs", [0, 0.5])
def test_too_few_copies(make: Make, wait_secs: float) -> None:
    """After the wait the submission goes on, and says so; 0 does not wait at all."""
    [nimbus] = make(topology_min_replication_count=2, topology_max_replication_wait_time_sec=wait_secs).start().nimbuses
    answer = nimbus.submit("words")
    assert answer.status_code == 201
    assert f"1 of 2 nimbuses hold the code after {wait_secs:g} s" in answer.json()["note"]


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


@pytest.mark.parametrize(
    ("status", "content", "outcome"),
    [
        (200, b'{"topologyId": "words"}', None),
        (200, b'{"topologyId": "other"}', "the code builds topology 'other', not 'words'"),
        (400, b'{"errorMessage": "no module named shop"}', "no module named shop"),
    ],
)
def test_check_by_a_supervisor(make: Make, status: int, content: bytes, outcome: str | None) -> None:
    """Code that does not build its topology where drivers run is refused, and leaves nothing."""
    cluster = make().start()
    [nimbus] = cluster.nimbuses
    cluster.add_supervisor("s1", 1, lambda _: (status, content))
    answer = nimbus.submit("words")
    if answer.status_code == 201:
        assert answer.json()["note"] == outcome
    else:
        assert outcome is not None
        assert outcome in answer.json()["errorMessage"]
        wait_for("nothing is left", lambda: nimbus.codes() == [] and not cluster.state.manifests())


@pytest.mark.long
@pytest.mark.parametrize("content", [b"oops", b"[]", b'{"error": "CodeUnavailable", "errorMessage": "not now"}'])
def test_supervisor_that_does_not_answer(make: Make, content: bytes) -> None:
    """It is asked again; while none has checked the code it is not let in, and in the end refused with what it says."""
    cluster = make(nimbus_submission_check_secs=3).start()
    [nimbus] = cluster.nimbuses
    asked = []

    def answer(path: str) -> tuple[int, bytes]:
        asked.append(path)
        return builds(path) if "-2-" in path else (503, content)

    cluster.add_supervisor("s1", 1, answer)
    refused = nimbus.submit("words")
    assert (refused.status_code, refused.json()["error"]) == (503, "ClusterError")
    assert "no supervisor has checked the code within 3 s" in refused.json()["errorMessage"]
    assert "no answer within" not in refused.json()["errorMessage"]
    assert len(asked) > 3
    assert cluster.statuses() == {}
    assert nimbus.submit("words").json()["note"] is None


def _damaged(nimbus: NimbusProcess, topology: str) -> bytes:
    """Damage a nimbus' copy of a topology's code; return what it was."""
    [path] = nimbus.folder.glob(f"nimbus/*/code/{topology}/code.zip")
    content = path.read_bytes()
    path.write_bytes(b"?" * len(content))
    return content


@pytest.mark.long
def test_damaged_copies(make: Make) -> None:
    """Holders notice, without being started again or asked; a sound copy anywhere makes all sound again."""
    cluster = make(2, topology_min_replication_count=2, topology_max_replication_wait_time_sec=-1)
    leader, other = cluster.pair()
    words = leader.submit("words").json()["id"]
    content = _damaged(other, words)
    [path] = other.folder.glob(f"nimbus/*/code/{words}")
    wait_for(
        "it is fetched again", lambda: (path / "code.zip").is_file() and (path / "code.zip").read_bytes() == content
    )
    for nimbus in cluster.nimbuses:
        _damaged(nimbus, words)
    wait_for("nobody holds it", lambda: leader.get("/api/v1/topology/words")["replicationCount"] == 0)
    files = {"code.zip": content, "topology.json": Submission("words", "words", "words").to_bytes()}
    cluster.add_supervisor("s1", 1, lambda path: (200, files[path.rpartition("/")[2]]))
    wait_for("both hold it", lambda: leader.get("/api/v1/topology/words")["replicationCount"] == 2)
    assert "was fetched from a supervisor" in leader.log.read_text() + other.log.read_text()


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
        assert client.submit(Submission("words", "words", "words"), tmp_path / "code.zip")["status"] == "ACTIVE"


def test_settings_that_are_too_many(make: Make) -> None:
    """However often a topology is rebalanced, its record stays small: ZooKeeper would drop its connections for one MiB."""
    [nimbus] = make().start().nimbuses
    list(submitted(nimbus, "words"))
    answers = []
    for number in range(2):
        settings = {f"shop.{number}.{each}": "x" * 1000 for each in range(40)}
        answers.append(nimbus.post("/words/rebalance/0", json={"settings": settings}))
        wait_for("it is active", lambda: nimbus.get("/api/v1/topology/words")["status"] == "ACTIVE")
    assert [each.status_code for each in answers] == [200, 400]
    assert "64 KiB" in answers[1].json()["errorMessage"]


def test_rebalance_with_settings_that_do_not_build(make: Make) -> None:
    """It is refused, and the topology stays as it is."""
    cluster = make().start()
    [nimbus] = cluster.nimbuses
    list(submitted(nimbus, "words"))
    cluster.add_supervisor("s1", 1, lambda _: (400, b'{"errorMessage": "there is no setting x.y"}'))
    answer = nimbus.post("/words/rebalance/0", json={"settings": {"x.y": "1"}})
    assert (answer.status_code, answer.json()["error"]) == (400, "SubmissionError")
    assert "there is no setting x.y" in answer.json()["errorMessage"]
    assert cluster.statuses() == {"words": "ACTIVE"}


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [(EndingKind.FINISHED, "FINISHED", None), (EndingKind.FAILED, "FAILED", "UserCodeError: it broke")],
)
def test_topology_that_has_ended(make: Make, tmp_path: Path, kind: EndingKind, status: str, reason: str | None) -> None:
    """A supervisor's report ends it; it stays listed with the reason, and its name is free; then its code goes."""
    shared = tmp_path / "shared"
    cluster = make(nimbus_code_distributor="shared", nimbus_code_distributor_folder=shared).start()
    [nimbus] = cluster.nimbuses
    [words] = submitted(nimbus, "words")
    cluster.add_supervisor("s1", 1)
    wait_for("it is assigned", lambda: words in cluster.state.assignments())
    cluster.state.report(words, 1, Ending(kind, reason or ""))
    wait_for(f"it is {status}", lambda: cluster.statuses() == {"words": status})
    wait_for("its slot is free", lambda: cluster.state.assignments() == {})
    assert nimbus.get("/api/v1/topology/words")["reason"] == reason
    [again] = submitted(nimbus, "words")
    assert list(cluster.state.topologies()) == [again]
    wait_for("the old code is gone", lambda: nimbus.codes() == [again])
    assert [path.name for path in shared.iterdir()] == [again]


def test_secrets_are_shown_nowhere(make: Make) -> None:
    """Settings whose names look like secrets are hidden in answers; the token and credentials are in no log."""
    cluster = make(storm_zookeeper_auth="txtopo:zookeeper-secret")
    cluster.root += "-locked"
    [nimbus] = cluster.start().nimbuses
    settings = {
        "shop.password": "open sesame",
        "fs.s3a.access.key": "open sesame",
        "account.key": "open sesame",
        "shop.passphrase": "open sesame",
        "shop.pwd": "open sesame",
        "private_key": "open sesame",
    }
    plain = {"shop.discount": "3", "shop.url": "jdbc:postgresql://shop:sesame-seeds@db/shop"}
    words = nimbus.submit("words", settings=settings | plain).json()["id"]
    with contextlib.closing(ClusterState(cluster.hosts, cluster.root, 10.0, "txtopo:zookeeper-secret")) as state:
        state.announce_supervisor(SupervisorInfo("s1", "127.0.0.1:1", 1))
        wait_for("it is assigned", lambda: words in state.assignments())
        state.report(words, 1, Ending(EndingKind.FAILED, "ValueError: 'open sesame' is wrong"))
        wait_for("it has failed", lambda: nimbus.get("/api/v1/topology/words")["status"] == "FAILED")
    shown = nimbus.get("/api/v1/topology/words")
    assert shown["settings"] == {
        **dict.fromkeys(settings, "…"),
        "shop.discount": "3",
        "shop.url": "jdbc:postgresql://…@db/shop",
    }
    assert shown["reason"] == "ValueError: '…' is wrong"
    for path in ("/api/v1/topology/summary", "/api/v1/topology/words"):
        found = httpx.get(f"http://{nimbus.address}{path}", trust_env=False).json()
        [stranger] = found.get("topologies", [found])
        assert (stranger["settings"], stranger["reason"], stranger["status"]) == ({}, None, "FAILED")
    for path in ("/api/v1/page", f"/api/v1/page/{words}/errors"):
        assert httpx.get(f"http://{nimbus.address}{path}", trust_env=False).status_code == 401
    texts = [
        nimbus.client.get(path).text for path in ("/api/v1/topology/summary", "/metrics", "/api/v1/cluster/summary")
    ]
    nimbus.stop()
    for text in (*texts, nimbus.log.read_text()):
        for secret in ("open sesame", "sesame-seeds", TOKEN, "zookeeper-secret"):
            assert secret not in text


def test_metrics(make: Make) -> None:
    """In Prometheus' text format: who leads, topologies by status, and what their drivers say."""
    cluster = make().start()
    [nimbus] = cluster.nimbuses
    [words] = submitted(nimbus, "words")
    cluster.state.beat(words, 1, Heartbeat("launch", 1, "running", figures={"committed": 17}))
    lines = nimbus.client.get("/metrics").text.splitlines()
    assert "txtopo_nimbus_is_leader 1.0" in lines
    assert 'txtopo_topologies{status="ACTIVE"} 1.0' in lines
    assert "txtopo_submissions_total 1.0" in lines
    assert 'txtopo_topology_figure{figure="committed",topology="words"} 17.0' in lines


@pytest.mark.long
def test_zookeeper_that_is_not_there(make: Make) -> None:
    """A nimbus that cannot start ends with 13, in one line that says why."""
    cluster = make()
    cluster.hosts = "127.0.0.1:1"
    [nimbus] = cluster.nimbuses
    assert nimbus.start().wait() == 13
    assert "ZooKeeper at 127.0.0.1:1 has not answered" in nimbus.log.read_text()


def test_end_in_good_order(make: Make) -> None:
    """SIGTERM: exit status 0, the lead given up at once, the topologies untouched."""
    cluster = make(2).start()
    leader = cluster.leader()
    leader.submit("words")
    [other] = cluster.others(leader)
    wait_for("the other one holds the code", lambda: other.codes() == leader.codes())
    assert leader.stop() == 0
    wait_for("the other one leads", lambda: other.leads)
    assert cluster.statuses() == {"words": "ACTIVE"}


def test_unexpected_error_ends_the_process(make: Make) -> None:
    """Fail fast: a damaged record ends a nimbus with 20, and its log names the record."""
    cluster = make().start()
    [nimbus] = cluster.nimbuses
    [words] = submitted(nimbus, "words")
    cluster.state.session.client.set(cluster.state.node("storms", words), b"{")
    assert nimbus.wait() == 20
    assert f"storms/{words} in ZooKeeper is damaged" in nimbus.log.read_text()


def test_end_while_a_submission_waits_for_ever(make: Make) -> None:
    """SIGTERM does not wait for it: the submission is refused, and the process ends."""
    [nimbus] = make(topology_min_replication_count=2, topology_max_replication_wait_time_sec=-1).start().nimbuses
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(nimbus.submit, "words")
        wait_for("its code is kept", nimbus.codes)
        assert nimbus.stop() == 0
        assert waiting.result().status_code == 421


def test_elector_and_distributor_of_ones_own(make: Make) -> None:
    """Settings name classes; a nimbus runs with them."""
    own = {
        "nimbus_leader_elector": "txtopo.cluster:ZooKeeperLeaderElector",
        "nimbus_code_distributor": "txtopo.cluster:LocalCodeDistributor",
    }
    [nimbus] = make(**own).start().nimbuses
    assert nimbus.submit("words").status_code == 201


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("nimbus_code_distributor", "nowhere:Nothing", "cannot be made"),
        ("nimbus_code_distributor", "txtopo.cluster:ZooKeeperLeaderElector", "is not a CodeDistributor"),
        ("nimbus_code_distributor", "shared", "set nimbus.code.distributor.folder, too"),
        ("nimbus_leader_elector", "txtopo.cluster:LocalCodeDistributor", "is not a LeaderElector"),
        ("nimbus_port", "x", "nimbus.port is 'x'; it must be an integer"),
    ],
)
def test_mistake_in_a_setting(make: Make, setting: str, value: str, why: str) -> None:
    """A nimbus ends with 1 and says what is wrong."""
    cluster = make()
    [nimbus] = cluster.nimbuses
    if setting == "nimbus_port":
        nimbus.port = value  # type: ignore[assignment]
    assert nimbus.start(**{setting: value}).wait() == 1
    assert why in nimbus.log.read_text().replace("\n", " ")


@pytest.mark.long
def test_shared_folder(make: Make, tmp_path: Path) -> None:
    """Nimbuses with a shared folder copy from it; a newcomer does when all holders are gone.

    A kill empties it, and so does a submission that is refused.
    """
    folder = tmp_path / "shared"
    cluster = make(2, nimbus_code_distributor="shared", nimbus_code_distributor_folder=folder)
    holder, newcomer = cluster.nimbuses
    holder.start_to_lead()
    [words] = submitted(holder, "words")
    assert [path.name for path in folder.iterdir()] == [words]
    holder.kill()
    holder.lose_disk()
    newcomer.start_to_lead()
    wait_for("it holds the code", lambda: newcomer.codes() == [words])
    newcomer.post("/words/kill/0")
    wait_for("the folder is empty", lambda: not list(folder.iterdir()))
    cluster.add_supervisor("s1", 1, lambda _: (400, b'{"errorMessage": "no module named shop"}'))
    assert newcomer.submit("refused").status_code == 400
    wait_for("it is empty again", lambda: not list(folder.iterdir()))
