"""What spouts tell ``txtopo audit`` of the input that a transaction took: each partition begins where it ended."""

import json

import pytest

from spouts import FilesTransactionalSpout, MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import MemoryState
from tests.acceptance.topologies import CountTuples
from tests.api.components.test_partitioned import Log, LogSpout
from tests.spouts.reading import plan
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.api.components.partitioned import as_transactional
from txtopo.errors import UserCodeError
from txtopo.files.places import folder_at
from txtopo.journal.folders import find_journal
from txtopo.journal.journal import read_journal
from txtopo.testing.inline import run_inline


def planned(spout):
    """Return the ranges of each transaction that a spout plans, as JSON keeps them."""
    metadata = plan(spout)
    told = [spout.input_ranges(each, before) for each, before in zip(metadata, [None, *metadata], strict=False)]
    return json.loads(json.dumps(told))


def test_rows_in_memory():
    """Row numbers, by partition; one that has come to its end stays where it is."""
    spout = MemoryTransactionalSpout({0: ["a", "b", "c"], "x": ["d"]}, Fields("word"), 2)
    assert planned(spout) == [{"0": [0, 2], "x": [0, 1]}, {"0": [2, 3], "x": [1, 1]}]


def test_opaque_rows_in_memory():
    """The metadata tells of all partitions, the ranges only of those that moved."""
    spout = OpaqueMemoryTransactionalSpout({0: ["a", "b", "c"], "x": ["d"]}, Fields("word"), 2)
    first = {"0": [0, 2], '"x"': [0, 1]}
    assert spout.input_ranges(first, None) == {"0": (0, 2), '"x"': (0, 1)}
    assert spout.input_ranges({**first, "0": [2, 3]}, first) == {"0": (2, 3)}
    assert spout.input_ranges(first, first) == {}


@pytest.mark.parametrize("tasks", [1, 3])
def test_files(tmp_path, tasks):
    """Each file from its beginning to its end, however many ranges a transaction cuts it into."""
    for name, size in (("a", 25_000), ("b", 10), ("c", 9_000)):
        (tmp_path / name).write_text("x" * 9 + "\n" if size == 10 else ("y" * 9 + "\n") * (size // 10))
    spout = FilesTransactionalSpout(tmp_path, batch_bytes=10_000)
    told = planned(spout)
    assert [each.get("a") for each in told] == [[0, 10_000], [10_000, 20_000], [20_000, 25_000], None]
    assert [each.get("b") for each in told] == [None, None, [0, 10], None]
    assert sum(end - start for each in told for start, end in each.values()) == 34_010


def test_partitioned_spouts_are_asked_for_each_partition():
    """The adapter asks ``input_range`` with the partition's metadata; without the method nothing is told."""

    class Told(LogSpout):
        def input_range(self, metadata, previous_metadata):
            start = 0 if previous_metadata is None else previous_metadata[1]
            return start, metadata[1]

    log = Log({0: list("abc"), "x": list("d")})
    silent = as_transactional(LogSpout(log))
    metadata = {"partitions": [[0, [0, 2]], ["x", [0, 1]]], "carried": []}
    following = {"partitions": [[0, [2, 3]]], "carried": [["x", [0, 1]]]}
    assert silent.input_ranges(metadata, None) is None
    spout = as_transactional(Told(log))
    assert spout.input_ranges(metadata, None) == {"0": (0, 2), '"x"': (0, 1)}
    assert spout.input_ranges(following, metadata) == {"0": (2, 3)}


def topology_of(spout):
    builder = TransactionalTopologyBuilder("ranges", "spout", spout, 1)
    builder.set_committer_bolt("count", CountTuples(), 1).global_grouping("spout")
    builder.set_state("total", MemoryState())
    return builder.build()


def test_ranges_are_entered_in_the_journal(tmp_path):
    """Each transaction's ranges, by its own metadata and that of the one before, over two runs."""
    spout = OpaqueMemoryTransactionalSpout({0: ["a", "b", "c"]}, Fields("word"), 1)
    config, topology = Config(state_dir=str(tmp_path)), topology_of(spout)
    run_inline(topology, config, until=2)
    run_inline(topology, config)
    entries = [entry for part in read_journal(find_journal(folder_at(tmp_path), "ranges")) for entry in part.entries]
    told = [transaction.input for entry in entries for transaction in entry.transactions]
    assert [each for each in told if each] == [{"0": (0, 1)}, {"0": (1, 2)}, {"0": (2, 3)}]
    assert None not in told


@pytest.mark.parametrize("answer", [ValueError("no idea"), {"0": (object(), 1)}], ids=["raises", "no JSON"])
def test_a_mistake_in_it_is_the_spouts(tmp_path, answer):
    """It is told as any mistake in a user's code is, and nothing is written."""

    class Wrong(MemoryTransactionalSpout):
        def input_ranges(self, metadata, previous_metadata):
            if isinstance(answer, Exception):
                raise answer
            return answer

    with pytest.raises(UserCodeError, match="component 'spout', txid 1"):
        run_inline(topology_of(Wrong(["a"], Fields("word"), 1)), Config(state_dir=str(tmp_path)))
