"""Versions that moved rows and whose files are gone while the log has them: others have the same rows."""

from pathlib import Path

import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table, read_tables
from state.delta.log.entries import read_entry
from state.delta.log.location import Location
from tests.state.delta.delta_tables import merge_at_once, sized
from tests.state.delta.table_life import places
from tests.topologies import committing
from txtopo import BatchBolt, Config, Fields, ICommitter
from txtopo.testing.inline import run_inline


class Now(BatchBolt, ICommitter):
    """Puts each transaction into one table, and every third one into another."""

    def prepare(self, config, context, collector, attempt):
        self.txid = attempt.txid
        self.states = [context.state("often"), *([context.state("rare")] if attempt.txid % 3 == 0 else [])]

    def execute(self, tuple):
        """Do nothing."""

    def finish_batch(self):
        for state in self.states:
            state.put(self.txid, self.txid)


def test_read_as_of_a_transaction_whose_rows_were_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that the transaction made is read, also as of later ones that did not write the table."""
    merge_at_once(monkeypatch)
    tables = {
        name: sized(
            DeltaState(tmp_path / name, Fields("k: long"), Fields("n: long"), deletion_vectors=True), tier_files=2
        )
        for name in ("often", "rare")
    }
    spout = MemoryTransactionalSpout({0: [["a"]] * 18}, Fields("word"), 1)
    run_inline(committing(spout, Now(), **tables), Config(group_transactions_max=1))
    location = Location.resolve(str(tmp_path / "rare"), None)
    entries = [read_entry(location, version) for version in range(location.handle().version() + 1)]
    moved = [at for at, entry in enumerate(entries) if entry.operation == "OPTIMIZE" and entries[at - 1].txid]
    version = moved[0]
    for place in places(tmp_path / "rare", version) - places(tmp_path / "rare", version - 1):
        (tmp_path / "rare" / place).unlink()
    txid = entries[version - 1].txid
    rows = {name: list(range(3, txid + 1, 3)) for name in ("k", "n", "txid")}
    assert read_table(tmp_path / "rare", txid).sort_by("k").to_pydict() == rows
    for later in (txid, txid + 1, txid + 2):
        view = read_tables(tmp_path, later, states=["rare"])
        assert (view.txid, view.tables["rare"].sort_by("k").to_pydict()) == (later, rows)
