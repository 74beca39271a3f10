"""What a driver builds from submitted code, how it configures it, and how it ends."""

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import attrs
import pytest

from state import DeltaState, MemoryState
from tests.cli.display.test_progress import REPORT
from tests.cluster.nimbuses import leading, next_root
from tests.cluster.submitted.counting import topology
from tests.engine.test_metrics import REPORT as PLAIN_REPORT
from tests.waiting import DEADLINE_SECS
from txtopo import Fields
from txtopo.cluster.code.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission
from txtopo.cluster.decisions.assignment import Assignment
from txtopo.cluster.decisions.lifecycle import Status, Topology as TopologyRecord
from txtopo.cluster.decisions.slots import DriverExit
from txtopo.cluster.driver.folder import DriverFolder, DriverLaunch
from txtopo.cluster.driver.process import build, configured, exit_of
from txtopo.cluster.state import ClusterState
from txtopo.config import Config
from txtopo.errors import SubmissionError
from txtopo.testing import ZooKeeperServer

CODE = """
from tests.cluster.submitted.counting import topology as counting

def topology(a: str = "", b: str = ""):
    return counting("out", name="global-count")
"""


def code_of(folder: Path, member: str = "words.py", source: str = CODE, **values: str) -> Path:
    """Write the code of a submission."""
    folder.mkdir()
    with zipfile.ZipFile(folder / ARCHIVE_NAME, "w") as archive:
        archive.writestr(member, source)
    submission = Submission("words", values.get("topology_id", "global-count"), "words", settings={"a": "1"})
    (folder / DESCRIPTION_NAME).write_bytes(submission.to_bytes())
    return folder


def test_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive is unpacked, and the topology built from there with the submitted settings, or others."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = code_of(tmp_path / "code")
    for name, settings, arguments in (("one", None, {"a": "1", "b": ""}), ("two", {"b": "2"}, {"a": "", "b": "2"})):
        target = build(code, tmp_path / name, settings)
        del sys.modules["words"]
        assert (target.topology.id, target.arguments) == ("global-count", arguments)
        assert target.module.__file__ == str(tmp_path / name / "words.py")
    other = code_of(tmp_path / "other", topology_id="another")
    with pytest.raises(SubmissionError, match="builds topology 'global-count', not 'another'"):
        build(other, tmp_path / "three")
    del sys.modules["words"]


FAILING = """
import json
from pathlib import Path

def topology(a: str = "", b: str = ""):
    Path("settings.json").write_text(json.dumps([a, b]))
    raise ValueError("it does not build")
"""
DRIVER = (
    "import sys, pathlib; from txtopo.cluster.driver.process import run_driver; run_driver(pathlib.Path(sys.argv[1]))"
)


@pytest.mark.slow
def test_settings_of_a_driver(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """A topology is built with the settings of its record, which a rebalance changes; a mistake is its driver's end."""
    code = code_of(tmp_path / "code", source=FAILING)
    with contextlib.closing(ClusterState(zookeeper.hosts, next_root())) as state:
        record = TopologyRecord("words-1-1", "words", "global-count", Status.ACTIVE, 1.0, settings={"b": "2"})
        assignment = Assignment(record.id, 1, "s1", 0)
        writes = leading(state)
        writes.start(record)
        writes.assign(assignment)
        folder = DriverFolder(tmp_path / "driver")
        os.close(folder.begin(DriverLaunch("l1", assignment, str(code), zookeeper.hosts, state.root)))
        command = [sys.executable, "-c", DRIVER, str(tmp_path / "driver")]
        subprocess.run(command, cwd=tmp_path, timeout=DEADLINE_SECS, check=True)
    assert json.loads((tmp_path / "settings.json").read_text()) == ["", "2"]
    end = folder.end()
    assert end is not None
    assert "it does not build" in end.error


def test_member_that_leaves_the_folder(tmp_path: Path) -> None:
    """It is refused before anything is unpacked."""
    code = code_of(tmp_path / "code", "../words.py")
    with pytest.raises(SubmissionError, match="leaves its folder"):
        build(code, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()
    assert not (tmp_path / "words.py").exists()


@pytest.mark.parametrize(
    ("is_durable", "given", "expected"),
    [
        (True, {}, ("zookeeper", ("h:1", "h:2"), "/root/state", "user:secret")),
        (True, {"transactional.zookeeper.servers": ("own:1",)}, ("zookeeper", ("own:1",), "/txtopo", None)),
        (True, {"topology.state.store": "sqlite"}, ("sqlite", None, "/txtopo", None)),
        (False, {}, (None, None, "/txtopo", None)),
    ],
)
def test_store_of_a_driver(tmp_path: Path, is_durable: bool, given: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """The cluster's ZooKeeper keeps the coordinator state, so that any machine goes on from it; or what was asked for.

    If the tables live in the process only, the coordinator state does, too: both begin anew with each driver.
    """
    built = topology(str(tmp_path))
    state = (
        DeltaState(str(tmp_path), key=Fields("key: long"), value=Fields("count: long")) if is_durable else MemoryState()
    )
    built = attrs.evolve(built, plan=attrs.evolve(built.plan, states={"counts": state}))
    launch = DriverLaunch("l1", Assignment("words-1-1", 1, "s1", 0), "/code", "h:1,h:2", "/root", "user:secret")
    config = configured(built, Config(given), launch)
    servers = config.given.get("transactional.zookeeper.servers")
    names = ("transactional.zookeeper.root", "transactional.zookeeper.auth")
    assert (config["topology.state.store"], servers, *(config[name] for name in names)) == expected


@pytest.mark.parametrize(
    ("report", "reason", "expected"),
    [
        (REPORT, "the spout is exhausted", DriverExit.FINISHED),
        (REPORT, "a stop was requested", DriverExit.STOPPED),
        (PLAIN_REPORT, "every spout is exhausted", DriverExit.FINISHED),
        (PLAIN_REPORT, "stopped", DriverExit.STOPPED),
    ],
)
def test_end_of_a_run(report: Any, reason: str, expected: DriverExit) -> None:
    """Only a topology whose input is exhausted has finished; one that was stopped is started elsewhere."""
    assert exit_of(attrs.evolve(report, reason=reason)) is expected
