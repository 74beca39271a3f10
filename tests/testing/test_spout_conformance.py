"""Conformance classes tell what is wrong: with the class, and with a spout that is alone only."""

from pathlib import Path
from typing import Any

import pytest

from spouts import Coordinator, MemoryTransactionalSpout
from txtopo import Fields
from txtopo.testing.conformance.spout import (
    PartitionedTransactionalSpoutConformance,
    TransactionalSpoutConformance,
    wrong_class,
)


def test_the_wrong_conformance_class_names_the_right_one() -> None:
    """Whoever takes the wrong one is told which it is."""
    spout = MemoryTransactionalSpout({0: [["cat"], ["dog"]]}, Fields("word"), 1)
    with pytest.raises(AssertionError, match="derive the test class from TransactionalSpoutConformance"):
        PartitionedTransactionalSpoutConformance().test_partitions_are_json_and_each_there_once(spout)
    assert wrong_class("text") == (
        "str is not a spout: derive it from TransactionalSpout, or from another of txtopo's spouts"
    )


class _Counting(Coordinator):
    def __init__(self) -> None:
        self.at = 0

    def resume(self, txid: int, metadata: Any) -> None:
        self.at = txid

    def is_exhausted(self) -> bool:
        return self.at >= 3

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        self.at = txid
        return {"0": [txid - 1, txid]}


class _ByTxid(MemoryTransactionalSpout):
    """Takes a row by the txid, as if each transaction had one of its own."""

    def coordinator(self, config: Any, context: Any) -> Coordinator:
        return _Counting()


def test_a_spout_that_goes_by_txids_is_found(tmp_path: Path) -> None:
    """It is right alone, and leaves out rows beside others, whose transactions it takes no part in."""
    spout = _ByTxid([["a"], ["b"], ["c"]], Fields("word"), 1)
    conformance = TransactionalSpoutConformance()
    conformance.test_resumption_loses_and_doubles_nothing(spout)
    with pytest.raises(AssertionError):
        conformance.test_beside_other_spouts(spout, tmp_path)
