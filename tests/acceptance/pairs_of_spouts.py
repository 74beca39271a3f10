"""A topology with two spouts of any kinds, which reads a reference table that changes all the time."""

import contextlib
import datetime as dt
import json
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from spouts import FilesTransactionalSpout, MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from spouts.kafka import OpaqueKafkaSpout, TransactionalKafkaSpout
from state import DeltaReference, DeltaRows, read_table
from tests.acceptance.test_several_spouts import Numbers, transactions
from tests.spouts.kafka.in_memory import OpaqueInMemory, TransactionalInMemory
from txtopo import (
    BasicBolt,
    BatchBolt,
    Config,
    FailedException,
    Fields,
    ICommitter,
    Topology,
    TransactionalTopologyBuilder,
    run,
)
from txtopo.api.reference import ReferenceTable
from txtopo.attempts import epoch_and_try
from txtopo.testing import MemoryLog

WORD = Fields("word: string")
NUMBERS = 8
"""How many rows a DataFrame spout has."""

WORDS = {"first": [f"a{n}" for n in range(9)], "second": [f"b{n}" for n in range(5)]}
"""What each spout emits; their names are those of files and topics, too."""

KINDS = ("memory", "opaque memory", "files", "kafka", "opaque kafka")
FRAME = "dataframe"


def write_version(root: Path) -> None:
    """Write the next version of the reference table."""
    rows = pa.table({"id": [7], "saw": [uuid.uuid4().int >> 66]})
    from deltalake.exceptions import CommitFailedError  # its module has no name to pickle it by

    with contextlib.suppress(CommitFailedError):  # another task writes it at the same time
        write_deltalake(str(root / "reference"), rows, mode="overwrite")


def filled(root: Path) -> MemoryLog:
    """Write the input of all kinds of spouts; return the topics."""
    log = MemoryLog()
    for name, words in WORDS.items():
        folder = root / name
        folder.mkdir(parents=True)
        for start in range(0, len(words), 2):
            lines = "".join(json.dumps({"word": word}) + "\n" for word in words[start : start + 2])
            (folder / f"{start}.json").write_text(lines)
        log.create_topic(name, 2)
        for number, word in enumerate(words):
            log.append(name, [json.dumps({"word": word}).encode()], number % 2)
    write_version(root)
    return log


def spout_of(kind: str, name: str, root: Path, log: MemoryLog | str) -> Any:
    """Return a spout of a kind; ``log`` is that in memory, or the address of a broker and a prefix of its topics."""
    rows = [[word] for word in WORDS[name]]
    kafka: dict[str, Any] = {"batch_records_max": 1, "until_end": True, "publish_group": f"group-{name}"}
    match kind:
        case "memory":
            return MemoryTransactionalSpout(rows, WORD, 2)
        case "opaque memory":
            return OpaqueMemoryTransactionalSpout(rows, WORD, 2)
        case "files":
            return FilesTransactionalSpout(root / name, WORD, "json", batch_files_max=1)
        case "kafka":
            if isinstance(log, str):
                return TransactionalKafkaSpout(log.split()[0], log.split()[1] + name, WORD, **kafka)
            return TransactionalInMemory(log, name, WORD, **kafka)
        case "opaque kafka":
            if isinstance(log, str):
                return OpaqueKafkaSpout(log.split()[0], log.split()[1] + name, WORD, **kafka)
            return OpaqueInMemory(log, name, WORD, **kafka)
        case _:
            return Numbers(NUMBERS)


class Seeing(BasicBolt):
    """Lets somebody write the reference table, fails now and then at a first try, and says what it sees."""

    output_fields = Fields("attempt", "source: string", "word: string", "version: long", "saw: long")

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self, config: Any, context: Any) -> None:
        self.table = context.reference("reference")

    def execute(self, tuple: Any, collector: Any) -> None:
        write_version(self.root)
        if tuple.attempt.txid % 3 == 0 and epoch_and_try(tuple.attempt.attempt)[1] == 1:
            raise FailedException("once")
        collector.emit((tuple.attempt, tuple.source_component, tuple["word"], self.table.version, saw(self.table)))


class Keep(BatchBolt, ICommitter):
    """Keeps the rows, with what the commit phase sees."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.table = context.reference("reference")
        self.rows: list[Any] = []

    def execute(self, tuple: Any) -> None:
        self.rows.append(tuple.values[1:])

    def finish_batch(self) -> None:
        self.context.state("kept").append([(*row, saw(self.table)) for row in self.rows])


def saw(table: ReferenceTable) -> int:
    """Return what the row of the reference table says."""
    (row,) = table.look_up(pa.table({"id": [7]})).to_pylist()
    return row["saw"]


def topology(kinds: tuple[str, str], root: Path, log: MemoryLog | str) -> Topology:
    """Return the topology of two kinds of spouts."""
    first, second = (spout_of(kind, name, root, log) for kind, name in zip(kinds, WORDS, strict=True))
    builder = TransactionalTopologyBuilder("pair", "first", first, 2)
    builder.add_spout("second", second, 2)
    kept = Fields("source: string", "word: string", "version: long", "saw: long", "commit: long")
    builder.set_reference("reference", DeltaReference(root / "reference", "id", refresh=dt.timedelta(0)))
    builder.set_bolt("seeing", Seeing(root), 2).shuffle_grouping("first").shuffle_grouping("second")
    builder.set_committer_bolt("keep", Keep()).global_grouping("seeing")
    builder.set_state("kept", DeltaRows(root / "out" / "kept", kept))
    return builder.build()


def check(kinds: tuple[str, str], root: Path) -> None:
    """Check that each row came once, and that both phases have seen the version that is recorded for it."""
    rows = read_table(root / "out" / "kept").to_pylist()
    words: Mapping[str, list[str]] = {
        name: [str(n % 3) for n in range(NUMBERS)] if kind == FRAME else WORDS[name]
        for kind, name in zip(kinds, WORDS, strict=True)
    }
    expected = Counter((name, word) for name, own in words.items() for word in own)
    assert Counter((row["source"], row["word"]) for row in rows) == expected
    seen = {transaction.txid: transaction.planned.references[0].version for transaction in transactions(root / "out")}
    contents: dict[int, int] = {}
    for row in rows:
        version = row["version"]
        assert version == seen[row["txid"]]
        if version not in contents:
            table = DeltaTable(str(root / "reference"), version=version).to_pyarrow_table()
            (contents[version],) = table["saw"].to_pylist()
        assert row["saw"] == row["commit"] == contents[version]
    assert len(contents) > 1


if __name__ == "__main__":
    run(
        topology((sys.argv[1], sys.argv[2]), Path(sys.argv[3]), sys.argv[4]),
        Config({"topology.processing.mode": sys.argv[5], "topology.max.spout.pending": 3}),
    )
