"""The guide to testing: the tests that it shows pass; a spout in the wrong conformance class is told the right one."""

from __future__ import annotations

import pathlib
import re

import pytest

from spouts import MemoryTransactionalSpout
from txtopo import Fields
from txtopo.testing.conformance.spout import PartitionedTransactionalSpoutConformance, wrong_class

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "testing.md"


def test_the_guides_tests_pass(tmp_path: pathlib.Path) -> None:
    """They run as they stand there, the conformance class too."""
    (script,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "test_count_guide.py").write_text(script, encoding="utf-8")
    passed = Passed()
    assert pytest.main([str(tmp_path), "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)], [passed]) == 0
    assert passed.count > 8


class Passed:
    """Counts the tests of an inner run."""

    def __init__(self) -> None:
        self.count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that has passed."""
        self.count += report.when == "call" and report.passed


def test_the_wrong_conformance_class_names_the_right_one() -> None:
    """Whoever takes the wrong one is told which it is."""
    spout = MemoryTransactionalSpout({0: [["cat"], ["dog"]]}, Fields("word"), 1)
    with pytest.raises(AssertionError, match="derive the test class from TransactionalSpoutConformance"):
        PartitionedTransactionalSpoutConformance().test_partitions_are_json_and_each_there_once(spout)
    assert wrong_class("text") == (
        "str is no spout: derive it from TransactionalSpout, or from another of txtopo's spouts"
    )
