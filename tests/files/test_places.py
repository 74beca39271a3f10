"""Tests of places as users write them."""

from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from txtopo.errors import ConfigError
from txtopo.files.folder import LocalFolder
from txtopo.files.objects import ObjectFolder
from txtopo.files.places import file_name, folder_at, is_address, joined
from txtopo.testing.conformance.store import ODD_NAMES

NAMES = st.text(min_size=1, max_size=20).filter(lambda name: "/" not in name)


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


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIA:hush@data/t",
        "s3://AKIA:hu/sh@data/t",
        "https://a.net/data/t?sig=hush",
        "https://a.net/data/t?a=1&sig=hush",
    ],
)
def test_a_secret_in_an_address_is_refused(address: str) -> None:
    """Addresses are shown, and written into what runs leave; the error does not show it."""
    with pytest.raises(ConfigError, match="data/t has a secret in it: write the address without") as refused:
        folder_at(address)
    assert "sh" not in str(refused.value).partition("has a secret")[0]


@pytest.mark.parametrize(
    "address",
    [
        "abfss://data@account.dfs.core.windows.net/t",
        "http://127.0.0.1:10000/account/a:b@c",
        "s3://data/a:b@c",
        "s3://data/t?a=1",
    ],
)
def test_what_looks_like_a_secret(address: str) -> None:
    """A container before an account, a port, and signs in names are none."""
    assert is_address(address)


@hypothesis.given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_file_names_are_distinct(names: list[str]) -> None:
    """Two topology ids never share a file, also where letter case does not count."""
    first, second = (file_name(name) for name in names)
    assert first.lower() != second.lower()


def test_file_names_are_short() -> None:
    """No topology id makes a file name too long, or leads out of the folder."""
    for name in (*ODD_NAMES, "x" * 1024):
        assert len(file_name(name)) < 100
        assert "/" not in file_name(name)
        assert file_name(name).strip(".")
