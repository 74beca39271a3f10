"""The client, and real nimbuses."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.cluster.conftest import Make
from tests.cluster.nimbuses import TOKEN, archive
from tests.waiting import wait_for
from txtopo.cluster.client import ClusterClient
from txtopo.cluster.code.submission import Submission
from txtopo.errors import (
    AlreadyAlive,
    ClusterError,
    NoLeader,
    NotAlive,
    RequestError,
    SubmissionError,
    TransitionError,
)

pytestmark = pytest.mark.slow

DOWN = "127.0.0.1:1"
WORDS = Submission("words", "word-counts", "words")


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    path = tmp_path / "code.zip"
    path.write_bytes(archive())
    return path


def test_errors_are_those_of_txtopo(make: Make, zipped: Path, tmp_path: Path) -> None:
    """Each with the message of the nimbus."""
    [nimbus] = make().start().nimbuses
    with ClusterClient([nimbus.address], TOKEN) as client:
        with pytest.raises(NotAlive, match="no topology 'nobody'"):
            client.kill("nobody")
        with pytest.raises(NotAlive):
            client.topology("nobody")
        client.submit(WORDS, zipped)
        with pytest.raises(AlreadyAlive):
            client.submit(WORDS, zipped)
        client.kill("words", 60)
        with pytest.raises(TransitionError, match="is KILLED"):
            client.activate("words")
        (tmp_path / "bad.zip").write_bytes(b"no zip")
        with pytest.raises(SubmissionError, match="not a zip"):
            client.submit(Submission("other", "other", "words"), tmp_path / "bad.zip")
    with ClusterClient([nimbus.address], "wrong") as stranger:
        with pytest.raises(RequestError, match="token"):
            stranger.kill("words")
        assert "words" in [topology.name for topology in stranger.topologies()]


def test_odd_names(make: Make, zipped: Path) -> None:
    """Whatever is allowed in a name works everywhere: in requests, on disks, and between nimbuses."""
    settings = {"topology_min_replication_count": 2, "topology_max_replication_wait_time_sec": -1}
    cluster = make(2, **settings).start()
    with ClusterClient([cluster.leader().address], TOKEN) as client:
        for name in ("w%20?#&=;+", "数え-wörter", "-", "%2f", "summary", "x" * 100):
            assert client.submit(Submission(name, "word-counts", "words"), zipped).replication_count == 2
            assert client.deactivate(name).name == name
            assert client.topology(name).status == "INACTIVE"
            client.kill(name, 0)
            wait_for("it is gone", lambda: client.topologies() == [])


def test_no_seed_that_answers() -> None:
    """The error names all of them, when patience is over."""
    started = time.monotonic()
    with ClusterClient([DOWN, "127.0.0.1:2"], TOKEN, patience_secs=1.0) as client:
        with pytest.raises(NoLeader, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
            client.kill("words")
        with pytest.raises(NoLeader):
            client.topologies()
    assert time.monotonic() - started < 60.0


@pytest.mark.long
def test_request_during_an_election(make: Make, zipped: Path) -> None:
    """H13: while nobody leads, the retry error without patience; with it, the request is carried out afterwards."""
    cluster = make(2)
    leader, other = cluster.pair()
    seeds = [leader.address, other.address]
    with ClusterClient(seeds, TOKEN, patience_secs=60.0) as patient:
        patient.submit(WORDS, zipped)
        wait_for("the other one holds the code", lambda: other.codes() == leader.codes())
        leader.kill()
        with ClusterClient(seeds, TOKEN, patience_secs=0.0) as hasty, pytest.raises(NoLeader):
            hasty.deactivate("words")
        assert patient.deactivate("words").status == "INACTIVE"
    assert other.leads


def test_seeds_that_are_down_hang_or_do_not_lead(make: Make, zipped: Path) -> None:
    """H13: they cost nobody time, for all are asked at once: the leader is found, and carries requests out."""
    leader, follower = make(2).pair()
    with socket.create_server(("127.0.0.1", 0)) as hung:
        seeds = [DOWN, f"127.0.0.1:{hung.getsockname()[1]}", follower.address]
        with ClusterClient(seeds, TOKEN) as client:
            started = time.monotonic()
            assert client.leader() == leader.address
            client.submit(WORDS, zipped)
            assert client.deactivate("words").status == "INACTIVE"
            assert [topology.name for topology in client.topologies()] == ["words"]
            assert time.monotonic() - started < 60.0


def test_connection_that_breaks_during_a_submission(make: Make, zipped: Path) -> None:
    """The client does not submit twice: it says that it may have been submitted."""
    cluster = make(topology_min_replication_count=2, topology_max_replication_wait_time_sec=-1).start()
    [nimbus] = cluster.nimbuses
    with ClusterClient([nimbus.address], TOKEN) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.submit, WORDS, zipped)
        wait_for("its code is kept", nimbus.codes)
        nimbus.kill()
        with pytest.raises(ClusterError, match="may have been submitted"):
            waiting.result()


@pytest.mark.parametrize("fault", [httpx.ConnectError("refused"), httpx.ConnectTimeout("silent")], ids=repr)
def test_request_that_was_not_sent(zipped: Path, fault: httpx.TransportError) -> None:
    """A leader that cannot be reached has done nothing: what the next one says counts, and it takes a submission."""
    faults: list[httpx.TransportError] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v1/leader":
            return httpx.Response(200, json={"leader": "leader:1"})
        if faults:
            raise faults.pop()
        if request.url.path == "/api/v1/topology":
            return httpx.Response(201, json={"name": "words"})
        return httpx.Response(404, json={"error": "NotAlive", "errorMessage": "the cluster has no topology 'nobody'"})

    with ClusterClient(["seed:1"], TOKEN) as client:
        client._client = httpx.Client(transport=httpx.MockTransport(answer))
        faults.append(fault)
        with pytest.raises(NotAlive):
            client.kill("nobody")
        faults.append(fault)
        assert client.submit(WORDS, zipped).name == "words"


def test_requests_that_a_leader_without_zookeeper_may_have_carried_out() -> None:
    """As when the leader's answer is lost: if the next leader refuses what was done already, that is no error."""
    refusals = {"kill": ("NotAlive", 404), "rebalance": ("TransitionError", 409)}
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/v1/")
        if path == "leader":
            return httpx.Response(200, json={"leader": "leader:1"})
        if request.method == "GET":
            return httpx.Response(200, json={"topologies": [{"id": "w-1", "name": "words", "status": "REBALANCING"}]})
        sent.append(path)
        kind, status = ("Unreachable", 503) if len(sent) == 1 else refusals[path.rpartition("/")[2]]
        return httpx.Response(status, json={"error": kind, "errorMessage": "no"})

    with ClusterClient(["seed:1"], TOKEN) as client:
        client._client = httpx.Client(transport=httpx.MockTransport(answer))
        assert client.rebalance("words").status == "REBALANCING"
        assert sent == ["topology/words/rebalance"] * 2
        sent.clear()
        assert client.kill("words").status == "KILLED"


def test_kill_whose_answer_is_lost(make: Make, zipped: Path) -> None:
    """A topology that is gone when the request is sent again was killed by it: that is no error."""
    cluster = make(2)
    leader, other = cluster.nimbuses
    leader.start_to_lead("nimbus.store.after=kill")
    other.start().wait_until_up()
    with ClusterClient([leader.address, other.address], TOKEN) as client:
        client.submit(WORDS, zipped)
        wait_for("the other one holds the code", lambda: other.codes() == leader.codes())
        assert client.kill("words", 0).status == "KILLED"
        wait_for("it is gone", lambda: client.topologies() == [])
