"""The bugs of ``python -m tests.harness.mutants`` fit the sources of today, and are caught."""

import tomllib
from pathlib import Path

import pytest

from tests.harness.mutants.__main__ import judge
from tests.harness.mutants.bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parents[3]
MUTMUT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
CAUGHT_IN_CI = ("cleanup one too far", "an ack that names a dead generation accepted")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_up_to_date(bug: Bug) -> None:
    """The old text of each bug is in its file exactly once, and somebody looks for the bug."""
    assert (ROOT / bug.path).read_text().count(bug.old) == 1
    assert bug.subjects or bug.tests, "somebody looks for it"
    for test in bug.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


@pytest.mark.parametrize("path", [*MUTMUT["only_mutate"], *MUTMUT["pytest_add_cli_args_test_selection"]])
def test_what_mutmut_is_told_is_there(path: str) -> None:
    """The rooms that mutmut changes, and the tests that it runs then."""
    assert list(ROOT.glob(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT_IN_CI)
def test_a_bug_is_caught(name: str) -> None:
    """A bug of each simulator is caught here; the command tries all."""
    (bug,) = (each for each in BUGS if each.name == name)
    verdict = judge(bug, seeds=500)
    assert verdict.catcher == "simulator", verdict.detail
