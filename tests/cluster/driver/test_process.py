"""What is built from submitted code."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from txtopo.cluster.code.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission
from txtopo.cluster.driver.process import build
from txtopo.errors import SubmissionError

CODE = """
from tests.cluster.submitted.counting import topology as counting

def topology(a: str = "", b: str = ""):
    return counting("out", name="global-count")
"""


def code_of(folder: Path, member: str = "words.py", **values: str) -> Path:
    """Write the code of a submission."""
    folder.mkdir()
    with zipfile.ZipFile(folder / ARCHIVE_NAME, "w") as archive:
        archive.writestr(member, CODE)
    submission = Submission("words", values.get("topology_id", "global-count"), "words", settings={"a": "1"})
    (folder / DESCRIPTION_NAME).write_bytes(submission.to_bytes())
    return folder


def test_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive is unpacked, and the topology built from there with the submitted settings, or others."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = code_of(tmp_path / "code")
    for name, settings, arguments in (("one", None, {"a": "1", "b": ""}), ("two", {"b": "2"}, {"a": "", "b": "2"})):
        target = build(code, tmp_path / name, settings)
        monkeypatch.delitem(sys.modules, "words")
        assert (target.topology.id, target.arguments) == ("global-count", arguments)
        assert target.module.__file__ == str(tmp_path / name / "words.py")
    other = code_of(tmp_path / "other", topology_id="another")
    with pytest.raises(SubmissionError, match="builds topology 'global-count', not 'another'"):
        build(other, tmp_path / "three")
    monkeypatch.delitem(sys.modules, "words")


def test_member_that_leaves_the_folder(tmp_path: Path) -> None:
    """It is refused before anything is unpacked."""
    code = code_of(tmp_path / "code", "../words.py")
    with pytest.raises(SubmissionError, match="leaves its folder"):
        build(code, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()
    assert not (tmp_path / "words.py").exists()
