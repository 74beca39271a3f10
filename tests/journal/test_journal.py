"""The journal: each topology in a folder has its own, and so has each incarnation of one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_tables
from txtopo import BatchBolt, Fields, ICommitter, Topology, TransactionalTopologyBuilder
from txtopo.errors import StopError
from txtopo.journal import ending as journal_end
from txtopo.journal.journal import (
    JournalEntry,
    JournalHeader,
    JournalTransaction,
    JournalWriter,
    find_journal,
    read_journal,
)
from txtopo.testing.inline import run_inline


class Count(BatchBolt, ICommitter):
    def prepare(self, config, context, collector, attempt):
        self.counts = context.state("counts")
        self.tuples = 0

    def execute(self, tuple):
        self.tuples += 1

    def finish_batch(self):
        self.counts.update("all", lambda old: (old or 0) + self.tuples)


def topology(name: str, output: Path) -> Topology:
    spout = MemoryTransactionalSpout({0: [["a"], ["b"], ["c"]]}, Fields("word"), 1)
    builder = TransactionalTopologyBuilder(name, "spout", spout, 1)
    builder.set_committer_bolt("count", Count(), 1).global_grouping("spout")
    state = DeltaState(output / name, key=Fields("name: string"), value=Fields("n: long"))
    builder.set_state("counts", state)
    return builder.build()


def test_two_topologies_in_one_folder(tmp_path: Path) -> None:
    """Each has a journal of its own, whichever ran first."""
    for name in ("one", "two", "one", "two"):
        run_inline(topology(name, tmp_path))
    for name in ("one", "two"):
        parts = read_journal(find_journal(tmp_path / "_txtopo", name))
        assert [part.header.topology for part in parts] == [name, name]
        assert [each.txid for part in parts for e in part.entries for each in e.transactions] == [1, 2, 3]
    assert read_tables(tmp_path).txid == 3


def test_a_new_life_begins_a_new_journal(tmp_path: Path) -> None:
    """When tables and coordinator state were deleted, and the journal was not, the former one is moved aside."""
    run_inline(topology("one", tmp_path))
    shutil.rmtree(tmp_path / "one")
    for path in (tmp_path / "_txtopo").glob("coordinator.sqlite*"):
        path.unlink()
    run_inline(topology("one", tmp_path))
    parts = read_journal(find_journal(tmp_path / "_txtopo", "one"))
    assert [(part.header.epoch, part.header.committed) for part in parts] == [(1, 0)]
    assert len(list((tmp_path / "_txtopo").glob("journal.before-life-*"))) == 1


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    """The run stops and says what to do; nothing of the group is committed."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no device that is always full")
    header = JournalHeader("t", "life", 1, "repeatable", 0, None, {}, {})
    writer = JournalWriter(tmp_path / "journal", header, 1 << 20)
    writer._file = Path("/dev/full").open("wb")  # noqa: SIM115 - closed by the writer
    writer._path = Path("/dev/full")
    with pytest.raises(StopError, match="Free some disk space"):
        writer.enter(JournalEntry({}, (JournalTransaction(1, 1, None, {}),)))


@pytest.mark.parametrize("block_bytes", [1, 7, 64 * 1024])
def test_lines_are_read_backwards(tmp_path, monkeypatch, block_bytes):
    """Whatever their lengths and the blocks that are read, each whole line comes once, the last one first."""
    monkeypatch.setattr(journal_end, "_BLOCK_BYTES", block_bytes)
    path = tmp_path / "lines"
    for lines in ([], [b"one"], [b"one", b"", b"three" * 5], [b"x" * n for n in range(20)]):
        for cut_off in (b"", b"not whole"):
            path.write_bytes(b"header\n" + b"".join(line + b"\n" for line in lines) + cut_off)
            with path.open("rb") as file:
                assert list(journal_end._lines_backwards(file, len(b"header\n"))) == lines[::-1]
