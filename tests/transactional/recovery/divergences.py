"""A topology with two tables, and what may happen to it between two runs."""

import pathlib
import shutil
import sqlite3
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from state import read_table
from tests.acceptance.topologies import counts_of, make_data, read_total, read_words, words_topology
from tests.crashes import dying
from txtopo import Config
from txtopo.assembly.storage import address_from, make_store, metadata_dir_of
from txtopo.testing.inline import run_inline
from txtopo.transactional.recovery import coordinator_state
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.operations.diagnosis import Diagnosis, RepairSubject, diagnose
from txtopo.transactional.recovery.operations.repair import carry_out

DATA = make_data(2, 20)
TRANSACTIONS = 6


def keep_notes_beside(monkeypatch: pytest.MonkeyPatch, above_bytes: int = 0) -> None:
    """Let notes of groups lie beside a table, as those that are too large for a value of the store."""
    monkeypatch.setattr(coordinator_state, "NOTE_BYTES_MAX", above_bytes)


@attrs.frozen
class Place:
    """Where the topology's tables and its coordinator state lie."""

    folder: pathlib.Path

    @property
    def metadata_dir(self) -> pathlib.Path:
        return self.folder / "_txtopo"

    @property
    def store(self) -> pathlib.Path:
        return self.metadata_dir / "coordinator.sqlite"

    def topology(self):
        return words_topology(self.folder, DATA, take=4)

    def run(self, until: int | None = None, **settings: Any):
        return run_inline(self.topology(), Config(group_transactions_max=1, **settings), until=until)

    def subject(self) -> RepairSubject:
        plan = self.topology().plan
        metadata_dir = metadata_dir_of(plan, Config())
        addresses = {name: address_from(metadata_dir.parent, state.address) for name, state in plan.states.items()}
        return RepairSubject(plan.topology_id, {"spout": "repeatable"}, plan.states, metadata_dir, addresses)

    def repair(self, choose=lambda diagnosis: diagnosis.go_to) -> Diagnosis:
        """Diagnose, and carry out what ``choose`` takes; return the diagnosis."""
        subject = self.subject()
        store = make_store(self.topology().plan, Config())
        try:
            lead = store.take_lead(subject.topology_id, "a look")
            diagnosis = diagnose(
                subject,
                CoordinatorState(store, lead, subject.topology_id, subject.rooms()),
            )
            plan = choose(diagnosis)
            if plan is not None:
                lead.release()
                lead = store.take_lead(subject.topology_id, "a repair", diagnosis.epoch_min)
                carry_out(
                    subject,
                    CoordinatorState(store, lead, subject.topology_id, subject.rooms()),
                    plan,
                )
        finally:
            store.close()
        return diagnosis

    def diagnosis(self) -> Diagnosis:
        return self.repair(lambda _: None)

    def back_up(self, *names: str) -> None:
        for name in names:
            shutil.copytree(self.folder / name, self.folder / "backup" / name)

    def restore(self, *names: str) -> None:
        for name in names:
            shutil.rmtree(self.folder / name)
            shutil.copytree(self.folder / "backup" / name, self.folder / name)

    def restore_store(self) -> None:
        """Bring back the backup's coordinator state; the journal stays."""
        self.wipe_store()
        for path in (self.folder / "backup" / "_txtopo").glob("coordinator*"):
            shutil.copy(path, self.metadata_dir / path.name)

    def wipe_store(self) -> None:
        for path in self.metadata_dir.glob("coordinator*"):
            path.unlink()

    def append_word(self, word: str = "intruder", n: int = 1000) -> None:
        """Write to the table of words as somebody else does."""
        table = DeltaTable(self.folder / "words")
        rows = pa.table({"word": [word], "n": [n], "txid": [1]}, schema=pa.schema(table.schema()))
        write_deltalake(table, rows, mode="append")

    def seen(self) -> dict[str, Any]:
        """Return all that a refusal must leave as it is: every file of every table, and the coordinator state."""
        files = {
            str(path): (path.stat().st_size, path.stat().st_mtime_ns)
            for name in ("words", "total", "_txtopo/journal")
            for path in (self.folder / name).rglob("*")
        }
        values: list[Any] = []
        if self.store.exists():
            connection = sqlite3.connect(self.store)
            exists = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'node'").fetchone()
            values = connection.execute("SELECT path, value FROM node ORDER BY path").fetchall() if exists else []
            connection.close()
        return {**files, "coordinator state": values}

    def txids(self) -> dict[str, int]:
        subject = self.subject()
        return {
            name: table.describe().last_txid for name, table in subject.tables().items() if table.describe() is not None
        }

    def words_as_of(self, txid: int) -> list[dict[str, Any]]:
        return sorted(read_table(self.folder / "words", txid).to_pylist(), key=lambda row: row["word"])

    def finish(self, transactions: int | None = None) -> None:
        """Run to the end: every total is exact, and as many transactions have run as are given."""
        report = self.run()
        assert transactions in {None, report.transactions}
        self.check_totals()

    def crash(self, failpoint: str) -> None:
        """Run, and die where a failpoint is first reached."""
        with dying(failpoint):
            self.run()

    def check_totals(self) -> None:
        assert read_words(self.folder) == counts_of(DATA)
        assert read_total(self.folder) == sum(counts_of(DATA).values())
