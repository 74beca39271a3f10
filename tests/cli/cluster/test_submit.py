"""What ``txtopo submit`` packs, and what it refuses before it asks a cluster."""

import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from txtopo.cli.cluster.submit import _packed, submit
from txtopo.cli.command import CommandLineError
from txtopo.errors import SubmissionError

MODULE = Path(__file__).parents[2] / "cluster" / "submitted" / "counting.py"


@pytest.fixture(autouse=True)
def as_it_was():
    """Modules and search path of this process."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in ("counting", "bigpkg", "bigpkg.counting"):
        sys.modules.pop(name, None)


def wheel(path: Path, *more: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("counting.py", MODULE.read_text())
        archive.writestr("shop-1.0.dist-info/METADATA", "Name: shop\n")
        for name in more:
            archive.writestr(name, "")
    return path


def test_wheel(tmp_path: Path) -> None:
    """A wheel is sent as it is; its only module is the one to run."""
    path = wheel(tmp_path / "shop-1.0-py3-none-any.whl")
    packed = _packed(str(path), None, (f"output={tmp_path}", "name=mine"), tmp_path)
    assert (packed.text, packed.target.topology.id) == ("counting", "mine")
    assert packed.archive.read_bytes() == path.read_bytes()


def test_wheel_with_several_modules(tmp_path: Path) -> None:
    path = wheel(tmp_path / "shop-1.0-py3-none-any.whl", "prices.py")
    with pytest.raises(SubmissionError, match="--module; found: counting, prices"):
        _packed(str(path), None, (), tmp_path)
    assert (
        _packed(str(path), "counting:topology", (f"output={tmp_path}",), tmp_path / "again").text == "counting:topology"
    )


def test_wheel_with_a_member_that_leaves_its_folder(tmp_path: Path) -> None:
    """It is refused before it is unpacked."""
    path = wheel(tmp_path / "shop-1.0-py3-none-any.whl", "../outside.py")
    with pytest.raises(SubmissionError, match="leaves its folder"):
        _packed(str(path), None, (), tmp_path / "folder")
    assert not (tmp_path / "outside.py").exists()


@pytest.mark.slow
def test_the_name_of_a_package_is_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for 'txtopo run'; with a slash, it is a folder of modules."""
    package = tmp_path / "bigpkg"
    package.mkdir()
    (package / "__init__.py").write_text("from bigpkg.counting import topology\n")
    (package / "counting.py").write_text(MODULE.read_text())
    monkeypatch.chdir(tmp_path)
    packed = _packed("bigpkg", None, (f"output={tmp_path}",), tmp_path)
    assert (packed.text, packed.target.module.__name__) == ("bigpkg", "bigpkg")
    assert "bigpkg/counting.py" in zipfile.ZipFile(packed.archive).namelist()
    assert _packed("bigpkg/", "counting", (f"output={tmp_path}",), tmp_path).text == "counting"


def test_no_such_file(tmp_path: Path) -> None:
    """A path of a wheel that is not there is no module."""
    with pytest.raises(CommandLineError, match=r"there is no file .*shop.whl"):
        _packed(str(tmp_path / "shop.whl"), None, (), tmp_path)
    with pytest.raises(CommandLineError, match="a MODULE names itself"):
        _packed("examples.global_count", "other", (), tmp_path)


def test_bad_name() -> None:
    """It is found before anything is imported."""
    result = CliRunner().invoke(submit, ["nowhere", "--name", "a/b"])
    assert result.exit_code == 1
    assert "cannot be named" in result.stderr
