"""Nimbus processes on a real ZooKeeper."""

import contextlib
import os
from pathlib import Path

import httpx
import pytest

from tests.cluster.conftest import Make
from tests.cluster.nimbuses import TOKEN, NimbusProcess, archive, submitted
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.cluster.code.distribution import locked_home
from txtopo.cluster.code.submission import Submission
from txtopo.cluster.decisions.assignment import Ending, EndingKind, Heartbeat, SupervisorInfo
from txtopo.cluster.nimbus.daemon import Nimbus
from txtopo.cluster.settings import ClusterConfig
from txtopo.cluster.state import ClusterState
from txtopo.errors import ConfigError

pytestmark = pytest.mark.slow


def test_life_of_a_topology(make: Make) -> None:
    """Submit, deactivate, activate, rebalance, kill: each shows in the summary, and killed it is gone with its code."""
    [nimbus] = make().start().nimbuses
    answer = nimbus.submit("words", wait_secs=0.5)
    assert answer.status_code == 201, answer.text
    topology = answer.json()
    assert (topology["name"], topology["status"], topology["replicationCount"]) == ("words", "ACTIVE", 1)
    assert topology["warning"] == "no supervisor is there to check the code"
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
    assert {nimbus["address"]: nimbus["status"] for nimbus in nimbuses} == {
        leader.address: "Leader",
        other.address: "Not a Leader",
    }


def test_settings_that_are_too_many(make: Make) -> None:
    """However often a topology is rebalanced, its record stays small: ZooKeeper would drop its connections for one MiB."""
    [nimbus] = make().start().nimbuses
    list(submitted(nimbus, "words"))
    answers = []
    for number in range(2):
        settings = {f"shop.{number}.{each}": "x" * 1000 for each in range(40)}
        answers.append(nimbus.post("/words/rebalance/0", json={"settings": settings}))
        wait_for("it is active", lambda: nimbus.get("/api/v1/topology/words")["status"] == "ACTIVE")
    assert [answer.status_code for answer in answers] == [200, 400]
    assert "64 KiB" in answers[1].json()["errorMessage"]


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


def test_a_driver_that_ends_while_a_rebalance_waits(make: Make) -> None:
    """One that fails makes way for the next revision at once; after one that has finished nothing follows, for that
    reason."""
    cluster = make().start()
    [nimbus] = cluster.nimbuses
    [words, pages] = submitted(nimbus, "words", "pages")
    cluster.add_supervisor("s1", 2)
    wait_for("both are assigned", lambda: len(cluster.state.assignments()) == 2)
    for name, topology, kind in (("words", words, EndingKind.FAILED), ("pages", pages, EndingKind.FINISHED)):
        assert nimbus.post(f"/{name}/rebalance/900").is_success
        cluster.state.report(topology, 1, Ending(kind, "it broke"))
    wait_for("both go on", lambda: cluster.statuses() == {"words": "ACTIVE", "pages": "FINISHED"})
    wait_for("one is assigned anew", lambda: [each.number for each in cluster.state.assignments().values()] == [2])
    assert cluster.state.assignments()[words].revision == 1
    assert nimbus.get("/api/v1/topology/pages")["reason"] == "its input was exhausted before it was rebalanced"


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
        found = httpx.get(f"http://{nimbus.address}{path}", trust_env=False, timeout=DEADLINE_SECS).json()
        [stranger] = found.get("topologies", [found])
        assert (stranger["settings"], stranger["reason"], stranger["status"]) == ({}, None, "FAILED")
    for path in ("/api/v1/page", f"/api/v1/page/{words}/errors"):
        assert httpx.get(f"http://{nimbus.address}{path}", trust_env=False, timeout=DEADLINE_SECS).status_code == 401
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


def test_folder_of_another_nimbus(tmp_path: Path) -> None:
    """It is refused: each would take what the other one is about to publish for code that nobody needs."""
    config = ClusterConfig({"storm.local.dir": str(tmp_path)})
    lock = locked_home(tmp_path / "nimbus")
    try:
        with pytest.raises(ConfigError, match=r"another nimbus uses .*storm\.local\.dir of its own"):
            Nimbus(config, "127.0.0.1:1", TOKEN, "1", lambda _: None)
    finally:
        os.close(lock)


def test_unexpected_error_ends_the_process(make: Make) -> None:
    """Fail fast: a damaged record ends a nimbus with 20, and its log names the record."""
    cluster = make().start()
    [nimbus] = cluster.nimbuses
    [words] = submitted(nimbus, "words")
    cluster.state.session.client.set(cluster.state.node("storms", words), b"{")
    assert nimbus.wait() == 20
    assert f"storms/{words} in ZooKeeper is damaged" in nimbus.log.read_text()


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
        ("nimbus_port", "x", "nimbus.port is 'x'; it must be a port"),
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
