"""The names that users import: as design says, and no others by accident."""

from __future__ import annotations

import committers
import spouts
import state
import txtopo


def test_names_of_the_framework() -> None:
    """What a topology is written with is to be had from the package root."""
    for name in [
        "BasicBolt",
        "BatchBolt",
        "ICommitter",
        "ArrowBatchBolt",
        "DataFrameBolt",
        "Config",
        "FailedException",
        "Fields",
        "ReportedFailedException",
        "TransactionAttempt",
        "TransactionalTopologyBuilder",
        "Tuple",
        "run",
    ]:
        assert name in txtopo.__all__
        assert hasattr(txtopo, name)


def test_names_of_signatures() -> None:
    """What a user's own methods and functions take and return can be written down by names of the package root."""
    for name in [
        "BoltDeclarer",
        "Combiner",
        "ComponentDeclarer",
        "Coordinator",
        "CustomStreamGrouping",
        "Emitter",
        "MapState",
        "OpaquePartitionedEmitter",
        "BasicOutputCollector",
        "BatchOutputCollector",
        "OutputFieldsDeclarer",
        "PartitionedCoordinator",
        "PartitionedEmitter",
        "Progress",
        "RunReport",
        "State",
        "StateKind",
        "Topology",
        "TopologyContext",
    ]:
        assert name in txtopo.__all__
        assert hasattr(txtopo, name)


def test_names_of_the_folders() -> None:
    """Spouts, states and committers are to be had from their packages."""
    assert {"MemoryTransactionalSpout", "FilesTransactionalSpout"} <= set(spouts.__all__)
    assert {
        "DeltaRows",
        "DeltaState",
        "TransactionalValue",
        "OpaqueValue",
        "SqliteStore",
        "ZooKeeperStore",
        "read_tables",
    } <= set(state.__all__)
    assert {"AppendCommitter", "ReduceCommitter", "ReplaceCommitter"} <= set(committers.__all__)
    for package in (txtopo, spouts, state, committers):
        assert all(hasattr(package, name) for name in package.__all__)
