"""A topology whose states get a field more between two runs: a keyed one, an opaque one, and one of rows in partitions."""

import pathlib

from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState, StateKind, read_table
from txtopo import BatchBolt, Config, Fields, ICommitter, Topology, TransactionalTopologyBuilder

WORDS = [f"w{n % 3}" for n in range(20)]
STATES = ("words", "latest", "all")
CONFIG = Config(max_spout_pending=4, group_transactions_max=2)

MODULE = """
from tests.state.delta.log.growing import topology as made
def topology(note: str = "", evolution: str = ""):
    return made({folder!r}, note or None, evolution or None)
"""


class Keep(BatchBolt, ICommitter):
    """Counts each word, keeps its number, and appends it; with a note if the states have a field for it."""

    def __init__(self, note: str | None) -> None:
        self.note = note

    def prepare(self, config, context, collector, attempt):
        self.states = {name: context.state(name) for name in STATES}
        self.words = []

    def execute(self, tuple):
        self.words.append(tuple["word"])

    def finish_batch(self):
        for word in self.words:
            for name in ("words", "latest"):
                self.states[name].update(word, self.counted)
        self.states["all"].append([(word, 1, self.note) if self.note else (word, 1) for word in self.words])

    def counted(self, old):
        if self.note is None:
            return (old or 0) + 1
        return ((0 if old is None else old[0]) + 1, self.note)


def topology(folder, note: str | None = None, evolution: str | None = None) -> Topology:
    """Return the topology; with a ``note`` its states have a field for it, and may grow by ``evolution``."""
    builder = TransactionalTopologyBuilder(
        "growing", "words", MemoryTransactionalSpout([[word] for word in WORDS], Fields("word: string"), 2)
    )
    builder.set_committer_bolt("keep", Keep(note), 2).fields_grouping("words", Fields("word"))
    folder, key = pathlib.Path(folder), Fields("word: string")
    value = Fields("n: long", "note: string") if note else Fields("n: long")
    rows = Fields("word: string", "n: long", "note: string") if note else Fields("word: string", "n: long")
    often = {"upkeep_every_writes": 3, "files_max": 2, "schema_evolution": evolution}
    builder.set_state("words", DeltaState(folder / "words", key, value, **often))
    builder.set_state("latest", DeltaState(folder / "latest", key, value, StateKind.OPAQUE, **often))
    builder.set_state("all", DeltaRows(folder / "all", rows, partition_by="word", **often))
    return builder.build()


def check(folder: pathlib.Path, note: str) -> int:
    """Check that every word counts once, and has a note from some transaction on; return the last one without."""
    counts = {word: WORDS.count(word) for word in WORDS}
    for name in ("words", "latest"):
        assert {row["word"]: row["n"] for row in read_table(folder / name).to_pylist()} == counts
    rows = read_table(folder / "all").to_pylist()
    assert sorted(row["word"] for row in rows) == sorted(WORDS)
    last = max((row["txid"] for row in rows if row["note"] is None), default=0)
    assert {(row["txid"] > last, row["note"]) for row in rows} <= {(False, None), (True, note)}
    for name in ("words", "latest"):
        assert all(
            row["note"] == (note if row["txid"] > last else None) for row in read_table(folder / name).to_pylist()
        )
    return last
