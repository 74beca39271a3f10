"""What a run needs is there, and what it has needed is gone."""

from pathlib import Path

import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaExpiringRows, DeltaState, MemoryState
from state.delta.expiring.state import OpenedDeltaExpiringRows
from state.delta.keyed.state import OpenedDeltaState
from tests.acceptance.topologies import CountTuples
from tests.bolts import Take
from tests.topologies import committing
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.errors import ConfigError
from txtopo.testing.inline import run_inline


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("state_dir", "message"),
    [
        ("words", "the metadata directory .* is inside .*/words, the table of state 'total'"),
        ("words/_meta", "the metadata directory .* is inside"),
        ("link/meta", "the metadata directory .* is inside"),
        ("", None),
        ("words-too", None),
    ],
)
def test_a_metadata_directory_inside_a_table_is_refused(tmp_path: Path, state_dir: str, message: str | None) -> None:
    """A vacuum of the table would delete it; beside the table it is safe."""
    (tmp_path / "link").symlink_to(tmp_path / "words")
    check_refused(tmp_path / "words", Config(state_dir=str(tmp_path / state_dir)), message)


@pytest.mark.parametrize("inside", ["staging/t", "journal", "notes/x", "backfill/t/x", "coordinator.sqlite"])
def test_a_table_where_txtopo_has_files_of_its_own_is_refused(tmp_path: Path, inside: str) -> None:
    """A run removes what others have left there."""
    (tmp_path / "link").symlink_to(tmp_path / "meta")
    config = Config(state_dir=str(tmp_path / "meta"))
    for folder in ("meta", "link"):
        check_refused(tmp_path / folder / inside, config, "is where txtopo keeps files of its own")


def test_dead_letters_inside_a_table_are_refused(tmp_path: Path) -> None:
    """Their place is a setting, so the builder can't know it."""
    settings = {"topology.dead.letter.path": str(tmp_path / "words" / "dead")}
    config = Config(transaction_max_attempts=2, transaction_max_attempts_policy="SKIP").with_settings(settings)
    check_refused(
        tmp_path / "words", config, "state 'dead-letters': its table .* is inside .*, the table of state 'total'"
    )


def check_refused(table: Path, config: Config, message: str | None) -> None:
    """Run a topology, which writes nothing if it is refused."""
    spout = MemoryTransactionalSpout({0: [["a"]]}, Fields("word"), 1)
    topology = committing(spout, CountTuples(), total=DeltaState(table, Fields("name: string"), Fields("n: long")))
    if message is None:
        run_inline(topology, config)
        return
    before = sorted(table.parents[1].rglob("*"))
    with pytest.raises(ConfigError, match=message):
        run_inline(topology, config)
    assert sorted(table.parents[1].rglob("*")) == before


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


def test_states_share_the_memory_for_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``topology.state.bytes.max`` is for all states that hold rows, those in memory aside, in equal parts."""
    given: list[int] = []
    for kind in (OpenedDeltaState, OpenedDeltaExpiringRows):
        monkeypatch.setattr(kind, "hold_rows", lambda _state, bytes_max: given.append(bytes_max))
    keyed = DeltaState(tmp_path / "total", Fields("name: string"), Fields("n: long"))
    expiring = DeltaExpiringRows(tmp_path / "open", Fields("at: timestamp"), expires="at")
    other = MemoryState(Fields("k"), Fields("v"))
    spout = MemoryTransactionalSpout({0: [["a"]]}, Fields("word"), 1)
    topology = committing(spout, CountTuples(), total=keyed, open=expiring, other=other)
    run_inline(topology, Config({"topology.state.bytes.max": 1_000_001}))
    assert given == [500_000, 500_000]
