"""What is submitted, and its checks."""

import stat
import zipfile
from pathlib import Path

import attrs
import pytest

from txtopo.cluster.code.submission import Submission, check_archive, check_name
from txtopo.errors import SubmissionError

WORDS = Submission("words", "word-counts", "shop.words", settings={"topology.debug": "true"})


BAD_NAMES = ("", "a/b", "a.b", "a:b", "a\\b", "a b", "x" * 101, "\ue000", "a\ufffd", "\U00020000", "🚀")


def test_line_of_json() -> None:
    """A submission is one line, and comes back as it was."""
    data = attrs.evolve(WORDS, settings={"text": "two\nlines"}).to_bytes()
    assert b"\n" not in data
    assert Submission.from_bytes(WORDS.to_bytes()) == WORDS


@pytest.mark.parametrize(
    "changes",
    [
        *({"name": name} for name in BAD_NAMES),
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


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{}",
        b"[1]",
        b'{"name": "words"}',
        b'{"name": "words", "topology_id": "words", "module": "words", "is_active": "maybe"}',
        b'{"name": "words", "topology_id": "words", "module": "words", "wait_secs": NaN}',
        b'{"name": "words", "topology_id": "words", "module": "words", "kind": "other"}',
        b'{"name": "words", "topology_id": 7, "module": "words"}',
        b'{"name": "words", "topology_id": "words", "module": "words", "settings": {"a": "\\ud800"}}',
        b'{"name": "other", "name": "words", "topology_id": "words", "module": "words"}',
    ],
    ids=lambda data: data[-40:],
)
def test_text_that_is_no_submission(data: bytes) -> None:
    """It is refused."""
    with pytest.raises(SubmissionError):
        Submission.from_bytes(data)


@pytest.mark.parametrize("name", ["words", "w-1_2", "Wörter", "数え", "x" * 100])
def test_good_names(name: str) -> None:
    """Whatever files and nodes can be named."""
    check_name(name)


@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("../words.py", 0o644, "leaves its folder"),
        ("a/../../words.py", 0o644, "leaves its folder"),
        ("/words.py", 0o644, "leaves its folder"),
        ("..\\words.py", 0o644, "leaves its folder"),
        ("C:words.py", 0o644, "leaves its folder"),
        ("words.py", stat.S_IFLNK | 0o777, "is a link"),
    ],
)
def test_bad_member_of_an_archive(tmp_path: Path, name: str, mode: int, why: str) -> None:
    """An archive with a member that leaves its folder, or may lead out of it, is refused."""
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w") as file:
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        file.writestr(member, "x")
    with pytest.raises(SubmissionError, match=why):
        check_archive(path)


def test_archive_with_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members and unpacked bytes are bounded, whatever the size of the upload."""
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(20):
            archive.writestr(f"m{number}.py", "#" * 10_000)
    check_archive(path)
    with pytest.raises(SubmissionError, match="more than 19 members"):
        check_archive(path, members_max=19)
    with pytest.raises(SubmissionError, match="unpacked"):
        check_archive(path, members_max=20, unpacked_bytes_max=199_999)
