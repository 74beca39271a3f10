"""Several spouts in a topology: a transaction takes what each has, and all that is kept of the sources is by spout."""

from pathlib import Path
from typing import Any

import pytest

from spouts import (
    Coordinator,
    DataFrameSpout,
    FilesTransactionalSpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
)
from state import DeltaState, read_table
from tests.cli.conftest import command_line
from tests.journals import opened_journal
from tests.spark.ranges import Ranges
from txtopo import BatchBolt, Config, Fields, ICommitter, Topology, TransactionalTopologyBuilder, run
from txtopo.errors import DivergenceError, TopologyError
from txtopo.journal.entries import JournalTransaction
from txtopo.journal.journal import read_journal
from txtopo.testing.inline import run_inline
from txtopo.testing.simulation.schedules import make_subject, run_schedules

__all__ = ["command_line"]

WORDS = Fields("word")


class Count(BatchBolt, ICommitter):
    """Counts the tuples of each component by word."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.state = context.state("counts")
        self.counts: dict[str, int] = {}

    def execute(self, tuple: Any) -> None:
        key = f"{tuple.source_component} {tuple[1]}"
        self.counts[key] = self.counts.get(key, 0) + 1

    def finish_batch(self) -> None:
        for key, number in self.counts.items():
            self.state.update(key, lambda old, number=number: (old or 0) + number)


def topology(output: Path, *, tasks: int = 1, committer: Any = None, state: Any = None, **spouts: Any) -> Topology:
    """Return a topology that counts what some spouts emit."""
    (first, *others) = spouts
    builder = TransactionalTopologyBuilder("both", first, spouts[first], tasks)
    for name in others:
        builder.add_spout(name, spouts[name], tasks)
    bolt = builder.set_committer_bolt("count", committer or Count(), 2)
    for name in spouts:
        bolt.fields_grouping(name, Fields(spouts[name].output_fields.names[-1]))
    builder.set_state("counts", state or DeltaState(output / "counts", Fields("key: string"), Fields("n: long")))
    return builder.build()


def rows(words: str, take: int = 1) -> MemoryTransactionalSpout:
    """Return a spout of words in one partition."""
    return MemoryTransactionalSpout([[word] for word in words.split()], WORDS, take)


def opaque_rows(words: str) -> OpaqueMemoryTransactionalSpout:
    """Return an opaque one."""
    return OpaqueMemoryTransactionalSpout([[word] for word in words.split()], WORDS, 1)


def counts(output: Path) -> dict[str, int]:
    """Return the counts by spout and word."""
    return {row["key"]: row["n"] for row in read_table(output / "counts").to_pylist()}


def transactions(output: Path) -> list[JournalTransaction]:
    """Return what the journal has of the transactions."""
    parts = read_journal(opened_journal(output))
    return [transaction for part in parts for entry in part.entries for transaction in entry.transactions]


def test_a_transaction_takes_what_each_has(tmp_path: Path) -> None:
    """Each from where it ended; one that has nothing left is no part of it; exhausted once all are."""
    report = run_inline(topology(tmp_path, orders=rows("a b c a"), payments=rows("a b")))
    assert counts(tmp_path) == {"orders a": 2, "orders b": 1, "orders c": 1, "payments a": 1, "payments b": 1}
    assert report.committed_txid == 4
    taken = [(transaction.ranges, transaction.planned.without) for transaction in transactions(tmp_path)]
    assert taken == [
        ({"orders": {"0": (0, 1)}, "payments": {"0": (0, 1)}}, ()),
        ({"orders": {"0": (1, 2)}, "payments": {"0": (1, 2)}}, ()),
        ({"orders": {"0": (2, 3)}, "payments": {}}, ("payments",)),
        ({"orders": {"0": (3, 4)}, "payments": {}}, ("payments",)),
    ]


def test_the_audit_is_by_spout(tmp_path: Path, command_line: Any) -> None:
    """It proves each spout's partitions; explain names the spout."""
    run_inline(topology(tmp_path, orders=rows("a b c a"), payments=rows("a b")))
    audit = command_line("audit", str(tmp_path))
    assert (audit.exit_code, "6 ranges of 2 partitions, without gap or overlap" in audit.output) == (0, True)
    explained = command_line("explain", str(tmp_path), "1")
    assert "orders 0: 0 to 1" in explained.output
    assert "payments 0: 0 to 1" in explained.output


def test_two_opaque_spouts(tmp_path: Path) -> None:
    """Each goes on from where it ended, over two runs."""
    both = {"orders": opaque_rows("a b c a"), "payments": opaque_rows("a b")}
    run_inline(topology(tmp_path, **both), until=1)
    run_inline(topology(tmp_path, **both))
    assert counts(tmp_path) == {"orders a": 2, "orders b": 1, "orders c": 1, "payments a": 1, "payments b": 1}


def test_folders_beside_rows_in_memory(tmp_path: Path) -> None:
    """A spout's coordinator keeps what it needs in a room of its own."""
    for name, lines in (("first", "a\nb\na\n"), ("second", "c\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words.txt").write_text(lines)

    def made() -> Topology:
        folders = {name: FilesTransactionalSpout(tmp_path / name) for name in ("first", "second")}
        return topology(tmp_path / "out", **folders, third=rows("a b c"))

    run_inline(made(), until=1)
    run_inline(made())
    assert counts(tmp_path / "out") == {
        "first a": 2, "first b": 1, "second c": 1, "third a": 1, "third b": 1, "third c": 1,
    }  # fmt: skip


def test_each_has_tables_of_its_own(tmp_path: Path) -> None:
    """Those of the first spout are called as without another, so that one can be added."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words.json").write_text('{"word": "a"}\n{"word": 7}\n')

    def made(*names: str) -> Topology:
        word = Fields("word: string")
        spouts = {
            name: FilesTransactionalSpout(tmp_path / name, word, "json", dead_letter=tmp_path / f"bad-{name}")
            for name in names
        }
        return topology(tmp_path / "out", **spouts)

    run_inline(made("first"))
    report = run_inline(made("first", "second"))
    assert report.spout_rows == {"spout.second.bad-records": 1}
    assert counts(tmp_path / "out") == {"first a": 1, "second a": 1}
    assert [read_table(tmp_path / f"bad-{name}").num_rows for name in ("first", "second")] == [1, 1]


def test_a_spout_that_is_added_begins_at_the_next_transaction(tmp_path: Path) -> None:
    """What is committed stays as it is; the audit proves both."""
    run_inline(topology(tmp_path, orders=rows("a b")))
    run_inline(topology(tmp_path, orders=rows("a b c"), payments=rows("x y")))
    assert counts(tmp_path) == {
        "orders a": 1, "orders b": 1, "orders c": 1, "payments x": 1, "payments y": 1,
    }  # fmt: skip
    assert [set(transaction.ranges) for transaction in transactions(tmp_path)][1:3] == [
        {"orders"},
        {"orders", "payments"},
    ]


def test_a_spout_that_is_left_out_is_refused(tmp_path: Path) -> None:
    """Its source may have more, which nobody would miss; nothing is written."""
    run_inline(topology(tmp_path, orders=rows("a b"), payments=rows("x")))
    with pytest.raises(DivergenceError, match=r"'payments' up to transaction 2, and the code does not have it.*Add it"):
        run_inline(topology(tmp_path, orders=rows("a b c")))
    with pytest.raises(DivergenceError, match=r"of kind repeatable; now it is opaque"):
        run_inline(topology(tmp_path, orders=opaque_rows("a b c"), payments=opaque_rows("x")))
    run_inline(topology(tmp_path, orders=rows("a b c"), payments=rows("x")))
    assert counts(tmp_path)["orders c"] == 1


def test_what_may_not_be_together(tmp_path: Path) -> None:
    """It is refused by build(), by name."""
    with pytest.raises(TopologyError, match="component id 'orders' is used 2 times"):
        builder = TransactionalTopologyBuilder("t", "orders", rows("a"))
        builder.add_spout("orders", rows("b"))
        builder.build()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("opaque", "is_real_time"),
    [(False, False), (True, False), (False, True)],
    ids=["repeatable", "opaque", "real-time"],
)
def test_under_seeded_disasters(tmp_path: Path, *, opaque: bool, is_real_time: bool) -> None:
    """The tables equal those of an undisturbed run, whatever dies and whenever."""
    make = opaque_rows if opaque else rows
    made = topology(tmp_path, tasks=2, orders=make("a b c a b"), payments=make("x y"))
    assert not run_schedules(make_subject(made, is_real_time=is_real_time), range(24)).failures


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_on_spark(tmp_path: Path, spark: Any, mode: str) -> None:
    """Emitters of several spouts share the executors, in jobs and in real-time workers."""
    both = {"orders": rows("a b c a", 2), "payments": rows("a b")}
    run(topology(tmp_path, tasks=2, **both), Config({"topology.processing.mode": mode}))
    assert counts(tmp_path) == {"orders a": 2, "orders b": 1, "orders c": 1, "payments a": 1, "payments b": 1}


class Numbers(DataFrameSpout):
    """Numbers as words, as Spark reads them."""

    output_fields = Fields("word: string")

    def __init__(self, last: int) -> None:
        self.last = last

    def coordinator(self, config: Any, context: Any) -> Coordinator:
        return Ranges(self.last, 2)

    def read(self, spark: Any, metadata: Any) -> Any:
        return spark.range(*metadata).selectExpr("string(id % 3) AS word")


def test_dataframe_spouts(tmp_path: Path, spark: Any) -> None:
    """Spark reads each by its own metadata, over two runs."""
    for until in (1, None):
        run(topology(tmp_path, long=Numbers(6), short=Numbers(2)), until=until)
    assert counts(tmp_path) == {"long 0": 2, "long 1": 2, "long 2": 2, "short 0": 1, "short 1": 1}


def test_in_spread_layout(tmp_path: Path) -> None:
    """Where the tasks of a transaction are in several partitions, the counts are the same."""
    config = Config(layout="spread")
    run_inline(topology(tmp_path, tasks=2, orders=rows("a b c a", 2), payments=rows("a b")), config)
    assert counts(tmp_path)["orders a"] == 2
