"""What is submitted, and its checks."""

from __future__ import annotations

import zipfile
from pathlib import Path

import attrs
import pytest

from txtopo.cluster.code import submission as module
from txtopo.cluster.code.submission import Submission, check_archive, check_name
from txtopo.errors import SubmissionError

WORDS = Submission("words", "word-counts", "shop.words", settings={"topology.debug": "true"})


def test_line_of_json() -> None:
    """A submission is one line, and comes back as it was."""
    data = attrs.evolve(WORDS, settings={"text": "two\nlines"}).to_bytes()
    assert b"\n" not in data
    assert Submission.from_bytes(WORDS.to_bytes()) == WORDS


@pytest.mark.parametrize(
    "changes",
    [
        {"topology_id": ""},
        {"module": ""},
        {"module": "a..b"},
        {"module": "../a"},
        {"module": "a; import os"},
        {"wait_secs": -1.0},
        {"wait_secs": float("inf")},
        {"wait_secs": float("nan")},
    ],
)
def test_bad_values(changes: dict[str, object]) -> None:
    """Each is refused when it is read."""
    with pytest.raises(SubmissionError):
        Submission.from_bytes(attrs.evolve(WORDS, **changes).to_bytes())


@pytest.mark.parametrize("name", ["words", "w-1_2", "Wörter", "数え", "x" * 100])
def test_good_names(name: str) -> None:
    """Whatever files and nodes can be named."""
    check_name(name)


def test_archive_with_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members and unpacked bytes are bounded, whatever the size of the upload."""
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(20):
            archive.writestr(f"m{number}.py", "#" * 10_000)
    check_archive(path)
    monkeypatch.setattr(module, "MEMBERS_MAX", 19)
    with pytest.raises(SubmissionError, match="more than 19 members"):
        check_archive(path)
    monkeypatch.setattr(module, "MEMBERS_MAX", 20)
    monkeypatch.setattr(module, "UNPACKED_BYTES_MAX", 199_999)
    with pytest.raises(SubmissionError, match="unpacked"):
        check_archive(path)
