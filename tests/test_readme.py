"""The README is short, its code runs and prints what the README says it prints, and its links lead somewhere."""

import ast
import pathlib
import re
import subprocess
import tomllib

import pytest

from tests.docs.blocks import Block, blocks_of
from tests.processes import ROOT, ran

README = ROOT / "README.md"
LINES_MAX = 145
"""With two examples: the short way, and Storm's."""


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks_of(README.read_text(encoding="utf-8")), ids=["flow", "builder"])
def test_topology(tmp_path: pathlib.Path, block: Block) -> None:
    """Each topology of the README, as a script of its own, gives the output below it."""
    (tmp_path / "topology.py").write_text(block.text, encoding="utf-8")
    done = ran("topology.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == block.output
    assert done.stderr == ""


def test_commands() -> None:
    """The two commands of the README are the ones that CI and newcomers run."""
    text = README.read_text(encoding="utf-8")
    assert (
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/txtopo run examples.transactional_words" in text
    )
    assert "python3 -m venv .venv && .venv/bin/pip install '.[test,spark-delta]' && make test" in text
    assert "'.[test,spark-delta]' && make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_extras() -> None:
    """The table of extras has each of them; nobody is sent to an index that has no txtopo, or another one."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert [extra for extra in extras if f"`{extra}`" not in table] == []
    pages = [README, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.yaml")]
    assert [page.name for page in pages if "'txtopo[" in page.read_text(encoding="utf-8")] == []


def test_length() -> None:
    """It can be read in two minutes; the rest is in docs/."""
    assert len(README.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links(name: str) -> None:
    """Every link to a file of the project leads to one."""
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert [t for t in targets if "://" not in t and not (ROOT / t).exists()] == []


def test_messages_need_no_checkout() -> None:
    """No text but docstrings cites a page by its path: who has installed txtopo has no docs/, so it says what to do."""
    cited = []
    for package in ("txtopo", "state", "spouts", "committers"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "docs/" not in text:
                continue
            tree = ast.parse(text)
            comments = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
            for each in ast.walk(tree):
                is_text = isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in comments
                # The text of the page that the command makes names that page.
                if is_text and "docs/" in each.value and path.name != "settings_command.py":
                    cited.append(f"{path.relative_to(ROOT)}:{each.lineno}")
    assert cited == []


def test_make() -> None:
    """Every ``make`` command that CONTRIBUTING names is one that the Makefile knows."""
    named = set(re.findall(r"`make (\w+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert named == {"fast", "test", "long", "compat", "lint", "packages", "docs", "bench"}
    for target in named:
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, check=True)
