"""The names that users import: as design says, and no others by accident."""

from __future__ import annotations

import ast
import importlib
import pathlib

import committers
import spouts
import state
import txtopo
import txtopo.testing


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
        "RichBolt",
        "Spout",
        "TopologyBuilder",
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
        "OutputCollector",
        "OutputFieldsDeclarer",
        "PartitionedCoordinator",
        "PartitionedEmitter",
        "Progress",
        "RunControl",
        "RunReport",
        "SpoutOutputCollector",
        "SpoutWaitStrategy",
        "State",
        "StateKind",
        "TaskHook",
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


def test_names_of_test_tools():
    """What plain topologies are tested with is to be had from txtopo.testing."""
    for name in [
        "AckFailMapTracker",
        "AckTracker",
        "CompletedTopology",
        "FeederSpout",
        "FixedTupleSpout",
        "InlineCluster",
        "InlineTopology",
        "complete_topology",
        "make_tuple",
    ]:
        assert name in txtopo.testing.__all__
        assert hasattr(txtopo.testing, name)


def test_output_collector():
    """OutputCollector was what BatchOutputCollector is called now; it is Storm's, of rich bolts, again."""
    assert txtopo.OutputCollector is not txtopo.BatchOutputCollector
    assert hasattr(txtopo.OutputCollector, "ack")


def test_names_that_are_imported_lazily():
    """Each name of a package that is imported lazily is what a type checker takes it for."""
    for package in (txtopo, spouts, state, txtopo.testing):
        tree = ast.parse(pathlib.Path(package.__file__).read_text())
        declared = {
            alias.name: node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname is not None
        }
        assert sorted(declared) == package.__all__
        for name, module in declared.items():
            assert getattr(package, name) is getattr(importlib.import_module(module), name)
