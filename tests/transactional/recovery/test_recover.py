"""What a start does with what earlier versions, other topologies and another kind of spout have left."""

import pathlib
from typing import Any

import pytest

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaState
from tests.acceptance.topologies import counting, counts_of, make_data, read_words
from txtopo import Config, Fields, Topology
from txtopo.errors import DivergenceError
from txtopo.testing.inline import run_inline

DATA = make_data(2, 12)


def topology(output: pathlib.Path, topology_id: str = "recovery", spouts: Any = MemoryTransactionalSpout) -> Topology:
    words = DeltaState(output / "words", Fields("word: string"), Fields("n: long"))
    return counting(spouts(DATA, Fields("word"), 3), words, topology_id=topology_id)


def run_until(output: pathlib.Path, txid: int | None, **settings: object) -> None:
    run_inline(topology(output), Config(group_transactions_max=1, **settings), until=txid)


@pytest.mark.slow
def test_two_topologies_beside_each_other(tmp_path: pathlib.Path) -> None:
    """Topologies with other ids and other tables share a folder, and even the file of coordinator state."""
    for topology_id in ("one", "two"):
        run_inline(topology(tmp_path / topology_id, topology_id), Config(state_dir=str(tmp_path / "shared")))
        assert read_words(tmp_path / topology_id) == counts_of(DATA)


def test_another_kind_of_spout(tmp_path: pathlib.Path) -> None:
    """A repeatable spout's metadata means nothing to an opaque one: the exchange is refused."""
    run_until(tmp_path, 3)
    with pytest.raises(DivergenceError, match="opaque"):
        run_inline(topology(tmp_path, spouts=OpaqueMemoryTransactionalSpout))
