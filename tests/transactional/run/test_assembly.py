"""What a run needs is there, and what it has needed is gone."""

from __future__ import annotations

from pathlib import Path

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.bolts import Take
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.testing.inline import run_inline


def test_what_a_killed_run_has_spilled(tmp_path: Path) -> None:
    """The next run of the topology removes it, and leaves what other topologies have in the same folder."""
    builder = TransactionalTopologyBuilder("a b", "spout", MemoryTransactionalSpout([1], Fields("n"), 1))
    builder.set_bolt("sink", Take()).shuffle_grouping("spout")
    builder.set_state("unused", MemoryState(Fields("k"), Fields("v")))
    left, others = tmp_path / "staging" / "a%20b" / "0", tmp_path / "staging" / "c" / "7"
    for folder in (left, others):
        folder.mkdir(parents=True)
        (folder / "1-1-0-0.bolts").write_bytes(b"spilled")
    run_inline(builder.build(), Config(state_dir=str(tmp_path)))
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["c"]
    assert others.is_dir()
