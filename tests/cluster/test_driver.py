"""The folder by which a driver is found again, and what is built from submitted code."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from txtopo.cluster.decisions.assignment import Assignment
from txtopo.cluster.driver import DriverEnd, DriverFolder, Launch, Loaded, build
from txtopo.cluster.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission
from txtopo.config import Config
from txtopo.errors import SubmissionError

LAUNCH = Launch("l1", Assignment("words-1-1", 3, "s1", 2), "/code", "h:1", "/root", "user:secret")


def test_launch_is_found_again(tmp_path: Path) -> None:
    """What was written is read again; the file is for its owner only, and nothing prints the secret in it."""
    folder = DriverFolder(tmp_path / "0")
    os.close(folder.begin(LAUNCH))
    assert folder.launch() == LAUNCH
    assert stat.S_IMODE((tmp_path / "0" / "launch.json").stat().st_mode) == 0o600
    assert "secret" not in repr(LAUNCH)


def test_lock_lives_as_long_as_the_process(tmp_path: Path) -> None:
    """The process that inherits the lock holds it to its end, whoever else closes it."""
    folder = DriverFolder(tmp_path / "0")
    lock = folder.begin(LAUNCH)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    os.close(lock)
    try:
        assert folder.is_locked()
    finally:
        process.kill()
        process.communicate()
    assert not folder.is_locked()


def test_nothing_there(tmp_path: Path) -> None:
    """A folder without files, or with half of one, is that of no driver."""
    folder = DriverFolder(tmp_path / "0")
    assert (folder.launch(), folder.is_locked(), folder.pid(), folder.end()) == (None, False, None, None)
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "launch.json").write_text('{"id": ')
    assert folder.launch() is None


def test_end(tmp_path: Path) -> None:
    """How a driver ended is read by a supervisor that did not start it; a new launch forgets it."""
    folder = DriverFolder(tmp_path / "0")
    os.close(folder.begin(LAUNCH))
    folder.write_pid()
    folder.write_end(DriverEnd(65, "a bug"))
    assert (folder.pid(), folder.end()) == (os.getpid(), DriverEnd(65, "a bug"))
    os.close(folder.begin(LAUNCH))
    assert (folder.pid(), folder.end()) == (None, None)


def code_of(folder: Path, member: str = "words.py", **values: str) -> Path:
    """Write the code of a submission."""
    folder.mkdir()
    with zipfile.ZipFile(folder / ARCHIVE_NAME, "w") as archive:
        archive.writestr(member, "")
    submission = Submission("words", values.get("topology_id", "global-count"), "words", settings={"a": "1"})
    (folder / DESCRIPTION_NAME).write_bytes(submission.to_bytes())
    return folder


def test_build(tmp_path: Path) -> None:
    """The archive is unpacked, and the topology built from there with the submitted settings, or others."""
    from tests.cluster.submitted.counting import topology

    asked = []

    def load(text: str, settings: dict[str, str], folder: Path) -> Loaded:
        asked.append((text, dict(settings), folder, (folder / "words.py").is_file()))
        return Loaded(topology("out", name="global-count"), Config())

    code = code_of(tmp_path / "code")
    assert build(code, tmp_path / "one", load).topology.id == "global-count"
    build(code, tmp_path / "two", load, {"b": "2"})
    assert asked == [
        ("words:topology", {"a": "1"}, tmp_path / "one", True),
        ("words:topology", {"b": "2"}, tmp_path / "two", True),
    ]
    other = code_of(tmp_path / "other", topology_id="another")
    with pytest.raises(SubmissionError, match="builds topology 'global-count', not 'another'"):
        build(other, tmp_path / "three", load)


def test_member_that_leaves_the_folder(tmp_path: Path) -> None:
    """It is refused before anything is unpacked."""
    code = code_of(tmp_path / "code", "../words.py")
    with pytest.raises(SubmissionError, match="leaves its folder"):
        build(code, tmp_path / "unpacked", lambda *_: pytest.fail("it was built"))
    assert not (tmp_path / "unpacked").exists()
    assert not (tmp_path / "words.py").exists()
