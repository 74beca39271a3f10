"""Code on the disks of several nimbuses: damage is noticed, and sound copies are fetched."""

from pathlib import Path

import pytest

from tests.cluster.conftest import Make
from tests.cluster.nimbuses import NimbusProcess, submitted
from tests.waiting import wait_for
from txtopo.cluster.code.submission import Submission

pytestmark = pytest.mark.slow


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
