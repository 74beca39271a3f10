"""Promise 12: coordinator state and tables that do not belong together are found at the start, with both txids."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table
from tests.acceptance.topologies import CountWords, Partial, counts_of, make_data, read_words
from txtopo import Config, Fields, Topology, TransactionalTopologyBuilder
from txtopo.errors import DivergenceError
from txtopo.testing.inline import run_inline

DATA = make_data(2, 12)


def topology(output: pathlib.Path, topology_id: str = "recovery") -> Topology:
    builder = TransactionalTopologyBuilder(topology_id, "spout", MemoryTransactionalSpout(DATA, Fields("word"), 3), 1)
    builder.set_bolt("partial", Partial()).shuffle_grouping("spout")
    builder.set_committer_bolt("count", CountWords()).fields_grouping("partial", Fields("word"))
    builder.set_state("words", DeltaState(output / "words", Fields("word: string"), Fields("n: long")))
    return builder.build()


def run_until(output: pathlib.Path, txid: int | None, **settings: object) -> None:
    run_inline(topology(output), Config(group_transactions_max=1, **settings), until=txid)


def refused(output: pathlib.Path, *says: str, **settings: object) -> None:
    """Check that a run is refused, that the message says so, and that nothing was written."""
    before = read_table(output / "words").to_pylist() if (output / "words" / "_delta_log").exists() else None
    with pytest.raises(DivergenceError) as raised:
        run_until(output, None, **settings)
    for words in says:
        assert words in str(raised.value)
    if before is not None:
        assert read_table(output / "words").to_pylist() == before


def test_wiped_coordinator_state(tmp_path: pathlib.Path) -> None:
    """A table whose coordinator state was wiped is refused: its transactions would count twice."""
    run_until(tmp_path, 3)
    shutil.rmtree(tmp_path / "_txtopo")
    refused(tmp_path, "words", "3")


def test_older_coordinator_state(tmp_path: pathlib.Path) -> None:
    """Coordinator state that was restored from an earlier moment is behind the table: refused with both txids."""
    run_until(tmp_path, 2)
    shutil.copytree(tmp_path / "_txtopo", tmp_path / "backup")
    run_until(tmp_path, 4)
    shutil.rmtree(tmp_path / "_txtopo")
    shutil.copytree(tmp_path / "backup", tmp_path / "_txtopo")
    refused(tmp_path, "at transaction 4", "ahead of", "last write at 2")


def test_older_table(tmp_path: pathlib.Path) -> None:
    """A table that was restored from an earlier moment is behind the coordinator state."""
    run_until(tmp_path, 2)
    shutil.copytree(tmp_path / "words", tmp_path / "backup")
    run_until(tmp_path, 4)
    shutil.rmtree(tmp_path / "words")
    shutil.copytree(tmp_path / "backup", tmp_path / "words")
    refused(tmp_path, "at transaction 2", "behind", "last write at 4")


def test_removed_table(tmp_path: pathlib.Path) -> None:
    """A table that was removed is missed, not begun anew."""
    run_until(tmp_path, 3)
    shutil.rmtree(tmp_path / "words")
    refused(tmp_path, "words", "3")


def test_table_of_another_topology(tmp_path: pathlib.Path) -> None:
    """A table that another topology writes is refused by name."""
    run_until(tmp_path, 3)
    with pytest.raises(DivergenceError, match="recovery"):
        run_inline(topology(tmp_path, "another"), Config(state_dir=str(tmp_path / "elsewhere")))


def test_two_topologies_beside_each_other(tmp_path: pathlib.Path) -> None:
    """Topologies with other ids and other tables share a folder, and even the file of coordinator state."""
    for topology_id in ("one", "two"):
        builder = TransactionalTopologyBuilder(topology_id, "spout", MemoryTransactionalSpout(DATA, Fields("word"), 3))
        builder.set_bolt("partial", Partial()).shuffle_grouping("spout")
        builder.set_committer_bolt("count", CountWords()).fields_grouping("partial", Fields("word"))
        table = DeltaState(tmp_path / topology_id / "words", Fields("word: string"), Fields("n: long"))
        builder.set_state("words", table)
        run_inline(builder.build(), Config(state_dir=str(tmp_path / "shared")))
        assert read_words(tmp_path / topology_id) == counts_of(DATA)


def test_bad_input_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """Promise 17: input that can't be read is told of before a table or coordinator state is made."""
    from spouts import FilesTransactionalSpout
    from txtopo.errors import InputError

    spout = FilesTransactionalSpout(tmp_path / "nowhere")
    builder = TransactionalTopologyBuilder("bad", "spout", spout)
    builder.set_bolt("partial", Partial()).shuffle_grouping("spout")
    builder.set_committer_bolt("count", CountWords()).fields_grouping("partial", Fields("word"))
    builder.set_state("words", DeltaState(tmp_path / "out" / "words", Fields("word: string"), Fields("n: long")))
    with pytest.raises(InputError, match="nowhere"):
        run_inline(builder.build())
    assert not (tmp_path / "out").exists()


def test_what_nobody_will_publish_is_removed(tmp_path: pathlib.Path) -> None:
    """What earlier versions have staged for a group that never was goes with the next start."""
    run_until(tmp_path, 3)
    waiting = tmp_path / "words" / "_txtopo"
    waiting.mkdir(exist_ok=True)
    (waiting / "staged-1-9.arrow").write_bytes(b"left behind")
    run_until(tmp_path, 4)
    assert list(waiting.glob("staged-*")) == []


def test_another_kind_of_spout(tmp_path: pathlib.Path) -> None:
    """A repeatable spout's metadata means nothing to an opaque one: the exchange is refused."""
    from spouts import OpaqueMemoryTransactionalSpout

    run_until(tmp_path, 3)
    spout = OpaqueMemoryTransactionalSpout(DATA, Fields("word"), 3)
    builder = TransactionalTopologyBuilder("recovery", "spout", spout)
    builder.set_bolt("partial", Partial()).shuffle_grouping("spout")
    builder.set_committer_bolt("count", CountWords()).fields_grouping("partial", Fields("word"))
    builder.set_state("words", DeltaState(tmp_path / "words", Fields("word: string"), Fields("n: long")))
    with pytest.raises(DivergenceError, match="opaque"):
        run_inline(builder.build())
