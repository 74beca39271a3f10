"""What is built from submitted code."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from txtopo.cluster.code.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission
from txtopo.cluster.driver.process import Loaded, build
from txtopo.config import Config
from txtopo.errors import SubmissionError


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
