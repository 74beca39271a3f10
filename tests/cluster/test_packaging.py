"""What goes into the archive of a submission."""

import sys
import zipfile
from pathlib import Path

import pytest

from txtopo.cluster.code.submission import check_archive
from txtopo.cluster.packaging import modules_in, pack_folder, pack_modules, top_of
from txtopo.errors import SubmissionError


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package, a module that it imports, and files that nobody wants."""
    folder = tmp_path / "sources"
    (folder / "packed_shop" / "data").mkdir(parents=True)
    (folder / "packed_shop" / "__init__.py").write_text("import packed_prices\n")
    (folder / "packed_shop" / "orders.py").write_text("topology = None\n")
    (folder / "packed_shop" / "data" / "names.txt").write_text("data")
    (folder / "packed_shop" / ".secret").write_text("hidden")
    (folder / "packed_prices.py").write_text("import attrs, json\n")
    (folder / "packed_unused.py").write_text("")
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.startswith("packed_")]:
        del sys.modules[name]


def names_in(path: Path) -> list[str]:
    check_archive(path)
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


@pytest.mark.slow
def test_own_modules(sources: Path, tmp_path: Path) -> None:
    """The module's package with its data, and the modules that it imports; nothing that is installed or hidden."""
    import packed_shop.orders  # noqa: F401

    pack_modules("packed_shop.orders", tmp_path / "code.zip")
    packed = [name for name in names_in(tmp_path / "code.zip") if not name.startswith(("tests/", "examples/"))]
    assert packed == [
        "packed_prices.py",
        "packed_shop/__init__.py",
        "packed_shop/data/names.txt",
        "packed_shop/orders.py",
    ]


def test_equal_sources_give_equal_archives(sources: Path, tmp_path: Path) -> None:
    """Dates of files make no difference."""
    for name in ("one.zip", "two.zip"):
        pack_folder(sources, tmp_path / name)
        (sources / "packed_prices.py").touch()
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_modules_of_a_folder(sources: Path) -> None:
    """Packages and modules at the top; the only one is meant, and of several one must be named."""
    assert modules_in(sources) == ["packed_prices", "packed_shop", "packed_unused"]
    assert top_of(["words"], "it") == "words"
    with pytest.raises(SubmissionError, match="must hold one module, or name it by --module; found: one, two"):
        top_of(["one", "two"], "it")
    with pytest.raises(SubmissionError, match="found: none"):
        top_of([], "it")


def test_links_out_of_the_folder(tmp_path: Path) -> None:
    """A link to a folder is not followed, so nothing outside gets in."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "words.py").write_text("")
    (folder / "link").symlink_to(tmp_path / "secret")
    pack_folder(folder, tmp_path / "code.zip")
    assert names_in(tmp_path / "code.zip") == ["words.py"]
