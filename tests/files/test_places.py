"""Tests of places as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from txtopo.errors import ConfigError
from txtopo.files.folder import LocalFolder
from txtopo.files.objects import ObjectFolder
from txtopo.files.places import folder_at, is_address, joined


def test_a_place_is_a_path_or_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is one from the working directory of now; ``file://`` is a path, too."""
    monkeypatch.chdir(tmp_path)
    assert folder_at("out") == folder_at(Path("out")) == LocalFolder(tmp_path / "out")
    assert folder_at(f"file://{tmp_path}/out") == LocalFolder(tmp_path / "out")
    assert folder_at("s3://bucket/out/", {"aws_region": "here"}) == ObjectFolder(
        "s3://bucket/out", (("aws_region", "here"),)
    )
    assert [joined(folder_at("s3://bucket/out"), path) for path in ("t", "/t", "s3://other/t")] == [
        "s3://bucket/out/t",
        "/t",
        "s3://other/t",
    ]


def test_what_is_no_place_is_refused() -> None:
    """An address that was a path on its way lacks a slash, and would be a folder; no path has a null character."""
    with pytest.raises(ConfigError, match="was an address until it became a path"):
        is_address(Path("s3://bucket/out"))
    with pytest.raises(ConfigError, match="no path has a null character"):
        folder_at("a\0b")
