"""Code that a supervisor builds before it gets in, or refuses."""

import pytest

from tests.cluster.conftest import Make
from tests.cluster.nimbuses import builds, submitted
from tests.waiting import wait_for

pytestmark = pytest.mark.slow


def test_check_by_a_supervisor(make: Make) -> None:
    """Code that does not build its topology where drivers run is refused, and leaves nothing; other code gets in."""
    cluster = make().start()
    [nimbus] = cluster.nimbuses
    answers = [
        (400, b'{"errorMessage": "no module named shop"}', "no module named shop"),
        (200, b'{"topologyId": "other"}', "the code builds topology 'other', not 'words'"),
    ]
    cluster.add_supervisor("s1", 1, lambda _: answers[-1][:2] if answers else (200, b'{"topologyId": "words"}'))
    while answers:
        assert answers[-1][2] in nimbus.submit("words").json()["errorMessage"]
        wait_for("nothing is left", lambda: nimbus.codes() == [] and not cluster.state.manifests())
        answers.pop()
    accepted = nimbus.submit("words")
    assert (accepted.status_code, accepted.json()["warning"]) == (201, None)


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
    assert len(asked) > 1
    assert cluster.statuses() == {}
    assert nimbus.submit("words").json()["warning"] is None


def test_rebalance_during_the_check_of_another(make: Make) -> None:
    """What both of them set is built together before it counts."""
    cluster, checks = make(), list[str]()
    [nimbus] = cluster.start().nimbuses

    def answer(path: str) -> tuple[int, bytes]:
        checks.append(path)
        if len(checks) == 2:
            assert nimbus.post("/words/rebalance/0", json={"settings": {"x.y": "1"}}).is_success
            wait_for("it is set", lambda: nimbus.get("/api/v1/topology/words")["settings"] == {"x.y": "1"})
        return builds(path)

    cluster.add_supervisor("s1", 1, answer)
    assert nimbus.submit("words").status_code == 201
    assert nimbus.post("/words/rebalance/0", json={"settings": {"x.z": "2"}}).is_success
    wait_for("both are", lambda: nimbus.get("/api/v1/topology/words")["settings"] == {"x.y": "1", "x.z": "2"})
    assert len(checks) == 4


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
