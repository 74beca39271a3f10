"""AppendCommitter: every tuple of every transaction is in the table once."""

from collections import Counter

import pyarrow as pa
import pytest

import committers.spill
import txtopo.assembly.assembly
from committers import AppendCommitter
from committers.spill import SpillLimits
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, read_tables
from tests.committers.topologies import (
    TYPED,
    UNTYPED,
    FailsFirst,
    appended,
    check,
    make_rows,
    rows_of,
    rows_topology,
)
from tests.crashes import Crash, run_with_crash
from tests.variants import variants
from txtopo import BatchBolt, Config, Fields, TransactionalTopologyBuilder
from txtopo.errors import FieldsError, JobFailure
from txtopo.testing.inline import InlineJobRunner, run_inline

CONFIG = Config(max_spout_pending=4, group_transactions_max=2)


def simple(output, committer, fields=TYPED, data=None, table_fields=TYPED, tasks=2, **options):
    spout = MemoryTransactionalSpout(data or make_rows(), fields, 3)
    builder = TransactionalTopologyBuilder("rows", "spout", spout, 2)
    builder.set_bolt("append", committer, tasks).shuffle_grouping("spout")
    builder.set_state("rows", DeltaRows(output / "rows", table_fields, **options))
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("fields", [TYPED, UNTYPED], ids=["typed", "untyped"])
@pytest.mark.parametrize("rows_max", [0, 1_000], ids=["executors", "driver"])
def test_every_tuple_once(tmp_path, fields, rows_max) -> None:
    """Appended, replaced and reduced tables beside each other hold each transaction once; again changes nothing."""
    config = Config({"topology.driver.rows.max": rows_max}, max_spout_pending=4, group_transactions_max=2)
    for _ in range(2):
        run_inline(rows_topology(tmp_path, fields=fields), config)
        check(tmp_path)
    view = read_tables(tmp_path)
    assert view.txid == 3
    assert Counter(tuple(row.values()) for row in view.tables["rows"].to_pylist()) == appended(make_rows())


@pytest.mark.slow
@pytest.mark.parametrize("fields", [TYPED, UNTYPED], ids=["typed", "untyped"])
@pytest.mark.parametrize("rows_max", [0, 1_000], ids=["executors", "driver"])
def test_large_rows_travel_in_files(tmp_path, monkeypatch, fields, rows_max) -> None:
    """What is large stays in files until the commit phase, and comes out the same; the files are gone then."""
    written = []

    def write(folder, name, rows, keys):
        written.append((name, tuple(keys)))
        return txtopo.columnar.rows_file.write_rows_file(folder, name, rows, keys)

    monkeypatch.setattr(committers.spill, "write_rows_file", write)
    config = Config({"topology.driver.rows.max": rows_max}, max_spout_pending=4, group_transactions_max=2)
    run_inline(rows_topology(tmp_path, fields=fields, limits=SpillLimits(file_rows=1)), config)
    check(tmp_path)
    assert {keys for _, keys in written} == {(), ("day",)}
    assert not list((tmp_path / "_txtopo").rglob("*.arrow"))


@pytest.mark.slow
@pytest.mark.parametrize("fields", [Fields("x: long", "n: long", "day: string"), Fields("x", "n", "day")])
def test_chosen_fields(tmp_path, fields) -> None:
    """Fields are taken in the order asked for, by whatever names; without asking, by name."""
    data = {p: [[-1, n, day] for day, n in rows] for p, rows in make_rows().items()}
    run_inline(simple(tmp_path, AppendCommitter("rows", ["day", "n"]), fields, data))
    assert rows_of(tmp_path / "rows") == appended(make_rows())
    other = Fields("word: string", "number: long")
    run_inline(simple(tmp_path / "2", AppendCommitter("rows", ["day", "n"]), fields, data, other))
    assert rows_of(tmp_path / "2" / "rows") == appended(make_rows())
    turned = Fields(*[f"{name}: {kind}" for name, kind in (("n", "long"), ("x", "long"), ("day", "string"))])
    run_inline(simple(tmp_path / "3", AppendCommitter("rows"), fields, data, turned))
    assert rows_of(tmp_path / "3" / "rows") == Counter(
        {(n, -1, d, t): c for (d, n, t), c in appended(make_rows()).items()}
    )


@pytest.mark.parametrize("fields", [Fields("day: string", "n: double"), UNTYPED], ids=["typed", "untyped"])
def test_misfits_are_refused(tmp_path, fields) -> None:
    """What does not fit is refused with component, transaction and field; nothing of it, or after it, is written."""
    data = {0: [["mon", 1], ["tue", 2], ["wed", 3], ["thu", "4"]]}
    txid = 2
    if fields.columnar:
        data, txid = {0: [["mon", 1.5]]}, 1
    with pytest.raises(FieldsError, match=r"'n: bigint'.*('4' \(str\)|1\.5 \(Arrow's double\))") as refusal:
        run_inline(simple(tmp_path, AppendCommitter("rows"), fields, data))
    assert (refusal.value.component, refusal.value.txid) == ("append", txid)
    assert {row[-1] for row in rows_of(tmp_path / "rows")} < {1, txid}


class FlakyAppend(FailsFirst, AppendCommitter):
    pass


@pytest.mark.parametrize("spout", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout])
def test_failing_transactions_leave_no_rows(tmp_path, spout) -> None:
    """Promises 4 and 16: a transaction that fails in its commit phase leaves none of its rows, and is replayed.

    A repeatable source replays it whole; an opaque one may put tuples into another transaction.
    """
    builder = TransactionalTopologyBuilder("rows", "spout", spout(make_rows(), TYPED, 3), 2)
    builder.set_bolt("append", FlakyAppend("rows"), 2).shuffle_grouping("spout")
    builder.set_state("rows", DeltaRows(tmp_path / "rows", TYPED))
    assert run_inline(builder.build(), CONFIG).failures > 0
    found, expected = rows_of(tmp_path / "rows"), appended(make_rows())
    if spout is MemoryTransactionalSpout:
        assert found == expected
    assert Counter(row[:2] for row in found.elements()) == Counter(row[:2] for row in expected.elements())


@pytest.mark.slow
def test_work_that_executors_lose_is_done_again(tmp_path, monkeypatch) -> None:
    """Work that is lost while executors write replays the transactions; what was written of it shows nowhere."""
    lost, compute = [], InlineJobRunner.compute

    def lose(runner, function, items):
        done = compute(runner, function, items)
        if len(lost) < 2:
            lost.append(done)
            raise JobFailure("an executor was lost")
        return done

    monkeypatch.setattr(InlineJobRunner, "compute", lose)
    config = Config({"topology.driver.rows.max": 0}, max_spout_pending=4, group_transactions_max=2)
    run_inline(rows_topology(tmp_path), config)
    assert len(lost) == 2
    check(tmp_path)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("stride", variants(3, long=[1]))
@pytest.mark.parametrize("rows_max", [0, 1_000], ids=["executors", "driver"])
def test_crash_at_each_failpoint(tmp_path, rows_max, stride) -> None:
    """Promises 8, 9 and 16: a crash at any failpoint, and the run that follows ends with exact tables, all three."""
    config = Config({"topology.driver.rows.max": rows_max}, max_spout_pending=4, group_transactions_max=2)
    at = 1
    while True:
        output, crash = tmp_path / str(at), Crash(at)
        finished = run_with_crash(lambda output=output: rows_topology(output), crash, config)
        if not finished:
            run_inline(rows_topology(output), config)
        check(output)
        if not crash.name:
            assert at > 20, "the run reaches failpoints"
            return
        at += stride


def test_a_batch_committer_by_hand(tmp_path) -> None:
    """A user's committer appends whatever rows it makes, Arrow tables or tuples."""

    class Mine(AppendCommitter):
        def finish_batch(self) -> None:
            state = self.context.state("rows")
            state.append(pa.table({"n": [self.attempt.txid], "day": ["x"]}))
            state.append([("y", 1), ("y", 2)])

    run_inline(simple(tmp_path, Mine("rows"), tasks=1))
    expected = [row for txid in (1, 2, 3) for row in (("x", txid, txid), ("y", 1, txid), ("y", 2, txid))]
    assert rows_of(tmp_path / "rows") == Counter(expected)


class Turned(BatchBolt):
    """Emits each tuple on two streams whose fields are in different orders, in turns."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def declare_output_fields(self, declarer):
        declarer.declare(self._fields.with_attempt())
        declarer.declare_stream("turned", self._fields.subset(self._fields.names[::-1]).with_attempt())

    def execute(self, tuple):
        attempt, *values = tuple.values
        self.collector.emit((attempt, *values))
        self.collector.emit((attempt, *values[::-1]), "turned")


@pytest.mark.few(2)
@pytest.mark.parametrize("names", [None, TYPED.names], ids=["by the table's names", "named"])
@pytest.mark.parametrize("fields", [TYPED, UNTYPED], ids=["typed", "untyped"])
def test_streams_with_other_orders(tmp_path, fields, names) -> None:
    """Two streams with the same fields in other orders go into one table, each value into its field."""
    spout = MemoryTransactionalSpout(make_rows(), fields, 3)
    builder = TransactionalTopologyBuilder("rows", "spout", spout)
    builder.set_bolt("turned", Turned(fields)).shuffle_grouping("spout")
    committer = builder.set_committer_bolt("append", AppendCommitter("rows", names))
    committer.shuffle_grouping("turned").shuffle_grouping("turned", "turned")
    builder.set_state("rows", DeltaRows(tmp_path / "rows", TYPED))
    run_inline(builder.build(), CONFIG)
    found = Counter(tuple(row.values()) for row in read_tables(tmp_path).tables["rows"].to_pylist())
    assert found == Counter({row: 2 * count for row, count in appended(make_rows()).items()})
