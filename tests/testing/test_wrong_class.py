"""A spout in the wrong conformance class is told the right one."""

from __future__ import annotations

import pytest

from spouts import MemoryTransactionalSpout
from txtopo import Fields
from txtopo.testing.conformance.spout import PartitionedTransactionalSpoutConformance, wrong_class


def test_the_wrong_conformance_class_names_the_right_one() -> None:
    """Whoever takes the wrong one is told which it is."""
    spout = MemoryTransactionalSpout({0: [["cat"], ["dog"]]}, Fields("word"), 1)
    with pytest.raises(AssertionError, match="derive the test class from TransactionalSpoutConformance"):
        PartitionedTransactionalSpoutConformance().test_partitions_are_json_and_each_there_once(spout)
    assert wrong_class("text") == (
        "str is not a spout: derive it from TransactionalSpout, or from another of txtopo's spouts"
    )
