"""The names that users import: as design says, and no others by accident."""

import ast
import importlib
import pathlib

import pytest

import committers
import spouts
import state
import txtopo
import txtopo.streams
import txtopo.testing

NAMES = {
    txtopo: """
        BasicBolt BatchBolt RichBolt ICommitter ArrowBatchBolt DataFrameBolt Spout TopologyBuilder TransactionalTopologyBuilder
        Config Fields FailedException ReportedFailedException TransactionAttempt Tuple Tuples run
        BoltDeclarer ComponentDeclarer Combiner Coordinator Emitter OpaquePartitionedEmitter PartitionedCoordinator
        PartitionedEmitter CustomStreamGrouping BasicOutputCollector BatchOutputCollector OutputCollector SpoutOutputCollector
        OutputFieldsDeclarer MapState State StateKind Progress RunControl RunReport SpoutWaitStrategy TaskHook Topology
        TopologyContext
    """,
    spouts: "MemoryTransactionalSpout FilesTransactionalSpout",
    state: "DeltaRows DeltaState TransactionalValue OpaqueValue SqliteStore ZooKeeperStore read_tables",
    committers: "AppendCommitter ReduceCommitter ReplaceCommitter",
    txtopo.streams: "Flow Stream Count Sum Min Max Mean First Last Tumbling Sliding Sessions Days Hours",
    txtopo.testing: """
        AckFailMapTracker AckTracker CompletedTopology FeederSpout FixedTupleSpout InlineCluster InlineTopology
        complete_topology make_tuple
    """,
}
"""What topologies are written and tested with, and what users' methods take and return."""


@pytest.mark.parametrize("package", NAMES, ids=lambda package: package.__name__)
def test_names(package) -> None:
    """They are to be had from the package, and so is whatever else it exports."""
    assert set(NAMES[package].split()) <= set(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)


def test_output_collector():
    """OutputCollector was what BatchOutputCollector is called now; it is Storm's, of rich bolts, again."""
    assert txtopo.OutputCollector is not txtopo.BatchOutputCollector
    assert hasattr(txtopo.OutputCollector, "ack")


def test_names_that_are_imported_lazily():
    """Each name of a package that is imported lazily is what a type checker takes it for."""
    for package in (txtopo, spouts, state, txtopo.streams, txtopo.testing):
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
