"""ReplaceCommitter, and what looks at tables of rows from outside: audit, replay, simulator, command line."""

from collections import Counter
from typing import ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from committers import AppendCommitter, ReplaceCommitter
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows
from tests.committers.topologies import TYPED, FailsFirst, check, make_rows, replaced, rows_of, rows_topology
from txtopo import Config, Topology, TransactionalTopologyBuilder, run
from txtopo.errors import FieldsError, StateAccessError
from txtopo.testing.checkers import Violation
from txtopo.testing.inline import run_inline
from txtopo.testing.simulation.schedules import make_subject, run_schedules
from txtopo.testing.simulation.world import World

CONFIG = Config(max_spout_pending=4, group_transactions_max=2)
LARGE = Config({"topology.driver.rows.max": 0}, max_spout_pending=4, group_transactions_max=2)


def days_topology(output, committer, data=None, tasks=2, **options) -> Topology:
    spout = MemoryTransactionalSpout(data or make_rows(), TYPED, 3)
    builder = TransactionalTopologyBuilder("rows", "spout", spout, 2)
    builder.set_bolt("replace", committer, tasks).shuffle_grouping("spout")
    builder.set_state("days", DeltaRows(output / "days", TYPED, **{"partition_by": "day", **options}))
    return builder.build()


class FlakyReplace(FailsFirst, ReplaceCommitter):
    pass


@pytest.mark.few(1)
@pytest.mark.parametrize("config", [CONFIG, LARGE], ids=["driver", "executors"])
def test_partitions_are_replaced(tmp_path, config) -> None:
    """The last transaction that has a partition wins, attempts that fail leave nothing, other partitions stay."""
    for _ in range(2):
        run_inline(days_topology(tmp_path, FlakyReplace("days")), config)
        assert rows_of(tmp_path / "days") == replaced(make_rows())
    assert DeltaTable(tmp_path / "days").metadata().partition_columns == ["day"]


def test_a_table_without_partitions_is_refused(tmp_path) -> None:
    """A table without partitions cannot have them replaced; the error says what to declare."""
    with pytest.raises(StateAccessError, match="partition_by") as refusal:
        run_inline(days_topology(tmp_path, ReplaceCommitter("days"), partition_by=()))
    assert (refusal.value.component, refusal.value.txid) == ("replace", 1)


def test_a_row_without_a_partition_is_refused(tmp_path) -> None:
    """A row without a value in a partition field is refused with component, transaction and field."""
    data = {0: [["mon", 1], ["tue", 2], ["wed", 3], ["", 4]]}
    with pytest.raises(FieldsError, match="'day'") as refusal:
        run_inline(days_topology(tmp_path, ReplaceCommitter("days"), data), CONFIG)
    assert (refusal.value.component, refusal.value.txid) == ("replace", 2)


def test_through_spark(spark, tmp_path) -> None:
    """The same through Spark: executors write the files, the driver the log."""
    run(rows_topology(tmp_path), Config({"topology.driver.rows.max": 0}, max_spout_pending=4, group_transactions_max=2))
    check(tmp_path)


# Looking from outside


class Settings:
    """What the topology is made with: tests change it between a run and a replay."""

    now: ClassVar[dict] = {}


class Changing(AppendCommitter):
    """Puts other rows if it is told to."""

    def put(self, state, rows) -> None:
        change = Settings.now.get("change")
        if change == "more":
            state.append([("mon", 1)])
        if change == "fewer":
            rows = rows.slice(1)
        if change == "other":
            rows = pa.table({"day": rows["day"], "n": [n + 1 for n in rows["n"].to_pylist()]})
        if change == "replaced":
            state.replace_partitions(rows)
        else:
            super().put(state, rows)


MODULE = """
import pathlib
from tests.committers.test_replace import everything
def topology():
    return everything(pathlib.Path({output!r}))
"""


def everything(output) -> Topology:
    builder = TransactionalTopologyBuilder("rows", "spout", MemoryTransactionalSpout(make_rows(), TYPED, 3), 2)
    builder.set_bolt("append", Changing("rows"), 2).shuffle_grouping("spout")
    builder.set_bolt("replace", ReplaceCommitter("days"), 2).shuffle_grouping("spout")
    for name, fields in (("rows", "day"), ("days", "day")):
        builder.set_state(name, DeltaRows(output / name, TYPED, partition_by=fields))
    return builder.build()


@pytest.fixture
def target(tmp_path, monkeypatch, command_line) -> str:
    monkeypatch.setattr(Settings, "now", {})
    run_inline(everything(tmp_path / "out"), Config(max_spout_pending=8, group_transactions_max=3))
    command_line.write_module("replayed_rows", MODULE.format(output=str(tmp_path / "out")))
    return "replayed_rows"


def test_the_audit_proves_it(tmp_path, target, command_line) -> None:
    """The audit finds each group's rows in its version, before and after compaction; and what others have done."""
    output = tmp_path / "out"
    assert "✔" in command_line.told("audit", str(output))
    DeltaTable(output / "rows").optimize.compact()
    assert "✔" in command_line.told("audit", str(output))
    write_deltalake(output / "rows", pa.table({"day": ["mon"], "n": [0], "txid": [1]}), mode="append")
    DeltaTable(output / "days").delete("day = 'mon'")
    result = command_line("audit", str(output))
    assert result.exit_code == 1
    for found in ("another writer", "was not there", "keys are gone"):
        assert found in result.output


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("change", "says"),
    [("more", "was not put then"), ("fewer", "is not put now"), ("other", "'append'"), ("replaced", "was kept then")],
)
def test_a_replay_finds_other_rows(target, monkeypatch, command_line, change, says) -> None:
    """Rows that are more, fewer or others are found, and so is replacing where rows were appended."""
    assert "the same" in command_line.told("replay", target, "3")
    monkeypatch.setattr(Settings, "now", {"change": change})
    result = command_line("replay", target, "3")
    assert (result.exit_code, "'append'" in result.output, says in result.output) == (1, True, True), result.output


# Simulating


class Doubling(AppendCommitter):
    """Remembers what it has put in another attempt: a mistake."""

    seen: ClassVar[Counter] = Counter()

    def put(self, state, rows) -> None:
        Doubling.seen[self.attempt.txid] += 1
        if Doubling.seen[self.attempt.txid] > 4:
            state.append([("mon", 0)])
        super().put(state, rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opaque", "seeds"),
    [
        pytest.param(False, range(1, 41), id="repeatable"),
        pytest.param(False, range(41, 151), id="repeatable-more", marks=pytest.mark.long),
        pytest.param(True, range(1, 81), id="opaque"),
        pytest.param(True, range(81, 151), id="opaque-more", marks=pytest.mark.long),
    ],
)
def test_disasters(tmp_path, opaque, seeds) -> None:
    """Some hundred seeded disasters leave each version of each table as if nothing had happened."""
    spouts = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    data = {p: [[f"{day}{n // 3}", n] for day, n in rows] for p, rows in make_rows(2, 14).items()}
    builder = TransactionalTopologyBuilder("rows", "spout", spouts(data, TYPED, 3), 2)
    builder.set_bolt("append", AppendCommitter("rows"), 2).shuffle_grouping("spout")
    builder.set_state("rows", DeltaRows(tmp_path / "rows", TYPED))
    if not opaque:
        builder.set_bolt("replace", ReplaceCommitter("days"), 2).shuffle_grouping("spout")
        builder.set_state("days", DeltaRows(tmp_path / "days", TYPED, partition_by="day"))

    def invariant(tables) -> None:
        assert all(count == 1 for count in tables["rows"].values())
        assert opaque or set(tables["days"]) <= set(tables["rows"])

    subject = make_subject(builder.build(), invariant=invariant)
    result = run_schedules(subject, seeds, processes=1)
    assert result.failures == ()
    assert not (tmp_path / "rows").exists()


@pytest.mark.filterwarnings("ignore::txtopo.errors.SharedStateWarning")
def test_disasters_find_a_mistake(tmp_path, monkeypatch) -> None:
    """A committer that puts other rows when it is replayed is found."""
    monkeypatch.setattr(Doubling, "seen", Counter())
    builder = TransactionalTopologyBuilder("rows", "spout", MemoryTransactionalSpout(make_rows(), TYPED, 3), 2)
    builder.set_bolt("append", Doubling("rows"), 2).shuffle_grouping("spout")
    builder.set_state("rows", DeltaRows(tmp_path / "rows", TYPED))
    subject = make_subject(builder.build())
    with pytest.raises(Violation, match="promise 8"):
        for seed in range(1, 50):
            World(subject, seed).run()
