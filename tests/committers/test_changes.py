"""Changes of tables: totals of totals are, after every transaction, what a plain computation makes of all rows so far."""

import datetime as dt
import decimal
import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st

from committers import (
    AppendCommitter,
    ApplyChanges,
    Collect,
    Count,
    CountDistinct,
    EventClock,
    JoinStream,
    Last,
    Max,
    Mean,
    Min,
    ReduceCommitter,
    StreamJoin,
    Sum,
    TopN,
)
from committers.changes import CHANGES
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, DeltaState, read_table
from tests.budgets import examples
from tests.crashes import Crash, run_with_crash
from txtopo import BasicBolt, Config, Fields, TransactionalTopologyBuilder
from txtopo.api.values import KEYED_KINDS
from txtopo.errors import DivergenceError, FailedException, FieldsError, TopologyError
from txtopo.testing.inline import run_inline

ROW = Fields("item: string", "shelf: int", "price: decimal(9,2)", "diff: long")

ITEMS = ReduceCommitter(
    "items",
    Fields("item: string"),
    values={
        "rows": Count(),
        "shelf": Max("shelf: int"),
        "price": Sum("price: decimal(9,2)"),
        "cheapest": Min("price: decimal(9,2)"),
    },
    diff="diff",
)
SHELVES = ReduceCommitter(
    "shelves",
    Fields("shelf: int"),
    values={
        "items": Count(),
        "priced": Count("price: decimal(19,2)"),
        "total": Sum("price: decimal(19,2)"),
        "mean": Mean("rows: long"),
        "names": Collect("item: string"),
        "prices": CountDistinct("cheapest: decimal(9,2)"),
        "dearest": TopN(Fields("item: string"), n=2, by="price: decimal(19,2)"),
    },
    diff="diff",
)
SIZES = ReduceCommitter(
    "sizes",
    Fields("items: long"),
    values={"shelves": Count(), "largest": Max("total: decimal(29,2)"), "prices": Sum("prices: long")},
    diff="diff",
)
LEVELS = {"items": (ITEMS, "item"), "shelves": (SHELVES, "shelf"), "sizes": (SIZES, "items")}


@st.composite
def changing_rows(draw) -> list[list]:
    """Rows that come, some of which are taken back later."""
    row = st.tuples(
        st.sampled_from("abc"), st.sampled_from([0, 1]), st.none() | st.sampled_from(["1.50", "2.00", "-0.25"])
    )
    made, there = [], []
    for _ in range(draw(st.integers(1, 14))):
        if there and draw(st.booleans()):
            made.append([*there.pop(draw(st.integers(0, len(there) - 1))), -1])
        else:
            item, shelf, price = draw(row)
            there.append((item, shelf, price and decimal.Decimal(price)))
            made.append([*there[-1], 1])
    return made


def _sum(values):
    there = [value for value in values if value is not None]
    return sum(there) if there else None


def by_hand(rows: list[list]) -> dict[str, dict]:
    """What the three tables show of some rows: key to results."""
    live: Counter = Counter()
    for *row, diff in rows:
        live[tuple(row)] += diff
    of_item, of_shelf, of_size = defaultdict(list), defaultdict(list), defaultdict(list)
    for item, shelf, price in live.elements():
        of_item[item].append((shelf, price))
    items = {
        item: (
            len(own),
            max(shelf for shelf, _ in own),
            _sum(price for _, price in own),
            min((price for _, price in own if price is not None), default=None),
        )
        for item, own in of_item.items()
    }
    for item, (count, shelf, total, cheapest) in items.items():
        of_shelf[shelf].append((item, count, total, cheapest))
    shelves = {
        shelf: (
            len(own),
            sum(total is not None for _, _, total, _ in own),
            _sum(total for _, _, total, _ in own),
            sum(count for _, count, _, _ in own) / len(own),
            repr(sorted(item for item, *_ in own)),
            len({cheapest for *_, cheapest in own if cheapest is not None}),
            repr(
                [
                    {"item": item, "price": total}
                    for total, item in sorted(((t, item) for item, _, t, _ in own if t is not None), reverse=True)[:2]
                ]
            )
            if any(total is not None for _, _, total, _ in own)
            else None,
        )
        for shelf, own in of_shelf.items()
    }
    for count, _, total, _, _, prices, _ in shelves.values():
        of_size[count].append((total, prices))
    sizes = {
        count: (
            len(own),
            max((total for total, _ in own if total is not None), default=None),
            sum(prices for _, prices in own),
        )
        for count, own in of_size.items()
    }
    return {"items": items, "shelves": shelves, "sizes": sizes}


def results_of(rows, name: str) -> dict:
    """Rows with a key and results, as :func:`by_hand` has them."""
    committer, key = LEVELS[name]
    names = [change for change in committer.changes() if change not in {key, "diff"}]
    made = {
        row[key]: tuple(repr(row[each]) if isinstance(row[each], list) else row[each] for each in names) for row in rows
    }
    assert len(made) == len(rows), "one row a key"
    return made


def log_changes(builder: TransactionalTopologyBuilder, name: str, committer, folder: Path) -> None:
    """Append what a committer tells of its table to a table of rows, which is the log of that name."""
    builder.set_bolt(f"log of {name}", AppendCommitter(f"{name} log")).shuffle_grouping(name, CHANGES)
    builder.set_state(f"{name} log", DeltaRows(folder / f"{name}-log", committer.changes()))


def topology(folder: Path, spout, kind, tasks: int, *, is_told: bool = True):
    builder = TransactionalTopologyBuilder("chain", "rows", spout, 1)
    before, stream = "rows", "default"
    for name, (committer, key) in LEVELS.items():
        builder.set_committer_bolt(name, committer, tasks).fields_grouping(before, Fields(key), stream)
        builder.set_state(name, committer.state(folder / name, kind=kind))
        if is_told or name != "sizes":
            log_changes(builder, name, committer, folder)
        before, stream = name, CHANGES
    return builder.build()


@pytest.mark.slow
@settings(
    max_examples=examples(24), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # 2 s an example
@given(data=st.data())
def test_any_chain(data) -> None:
    """Depth three is the plain computation at every txid, also of several in a group, in replays and after a crash."""
    rows, batch = data.draw(changing_rows()), data.draw(st.integers(1, 4))
    spout = data.draw(st.sampled_from([MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout]))
    kind, tasks = data.draw(st.sampled_from(KEYED_KINDS)), data.draw(st.integers(1, 2))
    crash = Crash(data.draw(st.integers(0, 60)))
    config = Config(max_spout_pending=6, group_transactions_max=data.draw(st.integers(1, 4)))
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    def build():
        return topology(folder, spout({0: rows}, ROW, batch), kind, tasks)

    if not run_with_crash(build, crash, config):
        assert run_with_crash(build, Crash(), config)
    for name, (committer, _) in LEVELS.items():
        partials = read_table(folder / name)
        assert results_of(committer.results(partials).to_pylist(), name) == by_hand(rows)[name]
        log = read_table(folder / f"{name}-log").to_pylist()
        for txid in range(1, -(-len(rows) // batch) + 1):
            shown: Counter = Counter()
            for row in (row for row in log if row["txid"] <= txid):
                whole = [(field, repr(v) if isinstance(v, list) else v) for field, v in row.items()]
                shown[tuple(each for each in whole if each[0] not in {"txid", "diff"})] += row["diff"]
            assert not -shown, "nothing is taken back that is not there"
            found = results_of(list(map(dict, shown.elements())), name)
            assert found == by_hand(rows[: batch * txid])[name], f"{name} as of {txid}"
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYED_KINDS)
def test_several_tasks_and_many_rows(tmp_path, kind) -> None:
    """A batch that is reduced on the way, and keys of several tasks, change each key once in a transaction."""
    rows = [[f"i{i % 40}", i % 7, decimal.Decimal(f"{i}.00"), 1] for i in range(900)]
    run_inline(topology(tmp_path, MemoryTransactionalSpout({0: rows}, ROW, 300), kind, 2))
    for name, (committer, key) in LEVELS.items():
        log = read_table(tmp_path / f"{name}-log").to_pylist()
        twice = Counter((row["txid"], row[key], row["diff"]) for row in log)
        assert max(twice.values()) == 1, name
        shown = committer.results(read_table(tmp_path / name)).to_pylist()
        assert results_of(shown, name) == by_hand(rows)[name]


class RefusesTransaction(BasicBolt):
    """Passes changes of items on, but fails in one transaction, when the items have been folded and told."""

    def __init__(self, txid: int) -> None:
        self.txid = txid
        self.output_fields = ITEMS.changes().with_attempt()

    def execute(self, tuple, collector) -> None:
        if tuple.attempt.txid == self.txid:
            raise FailedException("this transaction is refused")
        collector.emit(tuple.values)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "vectors"), [("together", True), ("spread", False)])
def test_a_transaction_that_is_skipped(tmp_path, layout: str, vectors: bool) -> None:
    """A transaction that fails below the first table leaves nothing there: the next ones see it as it was before."""
    row = [(item, number % 2, decimal.Decimal(f"{number}.00"), 1) for number, item in enumerate("aabbaabcab")]
    rows = [list(each) for each in row] + [[*row[0][:3], -1], [*row[6][:3], -1]]
    refused, batch = 3, 2
    builder = TransactionalTopologyBuilder("chain", "rows", MemoryTransactionalSpout({0: rows}, ROW, batch))
    builder.set_bolt("refuses", RefusesTransaction(refused)).shuffle_grouping("items", CHANGES)
    before, stream = "rows", "default"
    for name, (committer, key) in LEVELS.items():
        builder.set_committer_bolt(name, committer, 2).fields_grouping(before, Fields(key), stream)
        builder.set_state(name, committer.state(tmp_path / name, deletion_vectors=vectors))
        before, stream = ("refuses", "default") if name == "items" else (name, CHANGES)
    config = {"transaction_max_attempts": 2, "transaction_max_attempts_policy": "SKIP", "layout": layout}
    report = run_inline(builder.build(), Config(max_spout_pending=6, group_transactions_max=4, **config))
    assert report.dead_letters == 1
    left = rows[: batch * (refused - 1)] + rows[batch * refused :]
    for name, (committer, _) in LEVELS.items():
        assert results_of(committer.results(read_table(tmp_path / name)).to_pylist(), name) == by_hand(left)[name]


@pytest.mark.slow
def test_rows_without_types(tmp_path) -> None:
    """Tuples of an untyped stream are taken back, too."""
    rows = [["a", 0, decimal.Decimal(1), 1], ["b", 0, decimal.Decimal(2), 1], ["a", 0, decimal.Decimal(1), -1]]
    spout = MemoryTransactionalSpout({0: rows}, Fields("item", "shelf", "price", "diff"), 2)
    run_inline(topology(tmp_path, spout, KEYED_KINDS[0], 1))
    assert read_table(tmp_path / "items")["item"].to_pylist() == ["b"]


def test_who_reads_nothing_pays_nothing(tmp_path, monkeypatch) -> None:
    """A table whose changes nobody reads is folded in columns, as ever."""
    monkeypatch.setattr(ReduceCommitter, "_fold_changes", lambda *_: pytest.fail("it looks for changes"))
    committer = ReduceCommitter("items", Fields("item: string"), values={"rows": Count()})
    builder = TransactionalTopologyBuilder(
        "chain", "rows", MemoryTransactionalSpout([["a"]], Fields("item: string"), 2)
    )
    builder.set_committer_bolt("items", committer).fields_grouping("rows", Fields("item"))
    builder.set_state("items", committer.state(tmp_path / "items"))
    run_inline(builder.build())
    assert read_table(tmp_path / "items").num_rows == 1


def test_mistakes(tmp_path) -> None:
    """What can't be taken back, sums that are not exact, and keys that expire unsaid are refused by name."""
    count = {"rows": Count()}
    for values, message in (
        ({"top": TopN("rows: long", n=1, by="n: long")}, "aggregate 'top' is a TopN, which can't take rows back"),
        ({"last": Last("n: long", by="at: long")}, "'last' is a Last"),
        ({"n": Sum("n: long")}, r"needs a Count\(\) without a field"),
    ):
        with pytest.raises(TopologyError, match=message):
            ReduceCommitter("t", Fields("k: string"), values=values, diff="diff")
    with pytest.raises(
        FieldsError, match="aggregate 'n' needs integers or decimals, if rows are taken back, but field 'n' is double"
    ):
        ReduceCommitter("t", Fields("k: string"), values={**count, "n": Sum("n: double")}, diff="diff").changes()
    with pytest.raises(TopologyError, match="no function"):
        ReduceCommitter("t", "k", "n", diff="diff")
    with pytest.raises(TopologyError, match="tells no changes"):
        ReduceCommitter("t", "k", "n").changes()


def test_a_diff_that_is_null(tmp_path) -> None:
    """It is refused by name: the row would be counted by none of the aggregates, or by some of them."""
    fields = Fields("shelf: int", "price: long", "diff: long")
    committer = ReduceCommitter(
        "t", Fields("shelf: int"), values={"n": Count(), "low": Min("price: long")}, diff="diff"
    )
    builder = TransactionalTopologyBuilder(
        "t", "rows", MemoryTransactionalSpout({0: [[1, 2, 1], [1, 1, None]]}, fields, 2)
    )
    builder.set_committer_bolt("t", committer).fields_grouping("rows", Fields("shelf"))
    builder.set_state("t", committer.state(tmp_path / "t"))
    with pytest.raises(FieldsError, match="field 'diff' is null: such a row neither comes"):
        run_inline(builder.build())


def test_a_column_named_diff(tmp_path) -> None:
    """A table may have one if nobody reads its changes, whose ``diff`` says something else."""
    fields = Fields("k: string", "diff: long", "at: long")
    totals = ReduceCommitter("totals", Fields("k: string"), values={"diff": Sum("diff: long")})
    latest = ApplyChanges(
        "latest", "gone", key=Fields("k: string"), values=Fields("diff: long"), sequence=Fields("at: long")
    )
    spout = MemoryTransactionalSpout({0: [["a", 2, 1], ["a", 3, 2]]}, fields, 1)
    builder = TransactionalTopologyBuilder("t", "rows", spout)
    builder.set_committer_bolt("totals", totals).global_grouping("rows")
    builder.set_committer_bolt("latest", latest).global_grouping("rows")
    for name, state in (("totals", totals.state), ("latest", latest.state), ("gone", latest.tombstones)):
        builder.set_state(name, state(tmp_path / name))
    run_inline(builder.build())
    assert [read_table(tmp_path / name)["diff"].to_pylist() for name in ("totals", "latest")] == [[5], [3]]


@pytest.mark.parametrize("kind", [CountDistinct, Collect])
def test_as_many_values_as_may_be(tmp_path, kind) -> None:
    """All of a key's values may be others after a transaction: what is taken back is no value that is kept."""
    values = {"rows": Count(), "users": kind("item: string", values_max=2)}
    committer = ReduceCommitter("t", Fields("shelf: int"), values=values, diff="diff")
    names, diffs = "abbbabcd", (1, 1, 1, -1, -1, -1, 1, 1)
    rows = [[name, 0, None, diff] for name, diff in zip(names, diffs, strict=True)]
    builder = TransactionalTopologyBuilder("chain", "rows", MemoryTransactionalSpout({0: rows}, ROW, 4))
    builder.set_committer_bolt("t", committer).fields_grouping("rows", Fields("shelf"))
    builder.set_state("t", committer.state(tmp_path / "t"))
    run_inline(builder.build())
    (row,) = committer.results(read_table(tmp_path / "t")).to_pylist()
    assert row["users"] == (2 if kind is CountDistinct else ["c", "d"])


@pytest.mark.parametrize("kind", [CountDistinct, Collect])
def test_more_values_than_may_be(tmp_path, kind) -> None:
    """Values are kept up to so many, those of a list with each row that has them; more are refused by name."""
    values = {"rows": Count(), "users": kind("item: string", values_max=2)}
    committer = ReduceCommitter("t", Fields("shelf: int"), values=values, diff="diff")
    rows = [[name, 0, None, 1] for name in ("abc" if kind is CountDistinct else "aaa")]
    builder = TransactionalTopologyBuilder("chain", "rows", MemoryTransactionalSpout(rows, ROW, 1))
    builder.set_committer_bolt("t", committer).fields_grouping("rows", Fields("shelf"))
    builder.set_state("t", committer.state(tmp_path / "t"))
    with pytest.raises(FieldsError, match=f"more than 2 values of a key; give {kind.__name__} a larger values_max"):
        run_inline(builder.build())
    assert read_table(tmp_path / "t")["rows"].to_pylist() == [2]


POINT = Fields("item: long", "x: long", "y: long", "diff: long")


def self_joined(*key: str, **how: Any) -> StreamJoin:
    fields = POINT.subset(["x", "y"])
    other = JoinStream("rows", key=key, fields=fields, rename={"x": "other_x", "y": "other_y"})
    return StreamJoin("a", "b", left=JoinStream("rows", key=["x", "y"], fields=fields), right=other, **how)


def applied(*sequence: str) -> ApplyChanges:
    return ApplyChanges("a", "b", key=POINT.subset(["item"]), values=Fields(), sequence=POINT.subset(sequence))


def counted(**diff: Any) -> ReduceCommitter:
    return ReduceCommitter("a", POINT.subset(["item"]), values={"n": Count()}, **diff)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (self_joined("x", "y"), self_joined("x", "y", how="left")),
        (self_joined("x", "y"), self_joined("y", "x")),
        (applied("x", "y"), applied("y", "x")),
        (counted(), counted(diff="diff")),
        (counted(diff="diff"), counted(diff="x")),
    ],
    ids=["a left join", "another key", "another sequence", "changes", "other changes"],
)
def test_what_is_kept_by_another_rule(tmp_path, before, after) -> None:
    """With equal columns, too, a table is not gone on with by code that would take its rows for something else."""
    for committer, until in ((before, 1), (after, None), (before, None)):
        builder = TransactionalTopologyBuilder("t", "rows", MemoryTransactionalSpout(3 * [[1, 2, 3, 1]], POINT, 1))
        builder.set_committer_bolt("keep", committer).global_grouping("rows")
        for name, how in (("a", ("state", "left_table")), ("b", ("tombstones", "right_table"))):
            make = next((getattr(committer, each) for each in how if hasattr(committer, each)), None)
            if make is not None:
                builder.set_state(name, make(tmp_path / name))
        if committer is after:
            with pytest.raises(
                DivergenceError, match=r"state 'a' .* is made of .* up to transaction 1, but the code has"
            ):
                run_inline(builder.build())
        else:
            run_inline(builder.build(), until=until)


@pytest.mark.parametrize("kind", KEYED_KINDS, ids=lambda kind: kind.value)
def test_a_row_that_is_taken_back_and_has_not_come(tmp_path, kind) -> None:
    """A total would count below nothing: it is refused, with the key, and what was right stays."""
    builder = TransactionalTopologyBuilder(
        "t", "rows", MemoryTransactionalSpout([[1, 0, 0, 1], [2, 0, 0, -1]], POINT, 1)
    )
    builder.set_committer_bolt("count", counted(diff="diff")).global_grouping("rows")
    builder.set_state("a", counted().state(tmp_path / "a", kind=kind))
    with pytest.raises(FieldsError, match=r"a row of \{'item': 2\} is taken back that has not come: 'count' reads"):
        run_inline(builder.build())
    assert read_table(tmp_path / "a")["n"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ({"top": Max("x: long")}, [[1, 5, 0, 1], [1, 5, 0, 1], [1, 9, 0, -1]]),
        ({"all": Collect("x: long")}, [[1, 5, 0, 1], [1, 5, 0, 1], [1, 9, 0, -1]]),
        ({"top": TopN("x: long", by="x: long", n=1)}, [[1, 9, 0, -1], [1, 12, 0, 1]]),
        ({"sum": Sum("x: long")}, [[1, 9, 0, -1], [1, 12, 0, 1]]),
        ({"known": Count("x: long")}, [[1, None, 0, 1], [1, None, 0, 1], [1, 5, 0, -1]]),
    ],
    ids=["largest", "all", "first", "sum", "count"],
)
def test_a_value_that_is_taken_back_and_has_not_come(tmp_path, values, rows) -> None:
    """A key that has other rows, or has a new value in its place, would have results of what never was."""
    counts = ReduceCommitter("a", POINT.subset(["item"]), values={"n": Count(), **values}, diff="diff")
    builder = TransactionalTopologyBuilder("t", "rows", MemoryTransactionalSpout(rows, POINT, 3))
    builder.set_committer_bolt("count", counts).global_grouping("rows")
    builder.set_state("a", counts.state(tmp_path / "a"))
    with pytest.raises(FieldsError, match=r"a row of \{'item': 1\} is taken back that has not come"):
        run_inline(builder.build())


def start_of(minute: int) -> dt.datetime:
    return dt.datetime(2026, 3, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)


def expiring(folder: Path, spout, ttl_minutes: int, tasks: int):
    """Items that expire, and totals of those that are there."""
    items = ReduceCommitter(
        "items", Fields("item: string"), values={"shelf": Max("shelf: int"), "n": Count(), "at": Max("at: timestamp")}
    )
    shelves = ReduceCommitter(
        "shelves", Fields("shelf: int"), values={"items": Count(), "n": Sum("n: long")}, diff="diff"
    )
    builder = TransactionalTopologyBuilder("chain", "rows", spout)
    clock = EventClock("clock", time="at", delay=dt.timedelta(0))
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(folder / "clock"))
    builder.set_committer_bolt("items", items, tasks).fields_grouping("rows", Fields("item"))
    builder.set_state("items", items.state(folder / "items", ttl=dt.timedelta(minutes=ttl_minutes), clock="clock"))
    builder.set_committer_bolt("shelves", shelves, tasks).fields_grouping("items", Fields("shelf"), CHANGES)
    builder.set_state("shelves", shelves.state(folder / "shelves"))
    for name, each in (("items", items), ("shelves", shelves)):
        log_changes(builder, name, each, folder)
    return builder.build()


def live_items(batches: list[list], ttls_minutes: list[int]) -> list[dict[str, tuple]]:
    """The items after each transaction, by hand: what it finds expired is gone, and what comes too late is not put."""
    items: dict[str, tuple] = {}
    watermark, until, after = None, None, []
    for batch, *ttls in zip(batches, ttls_minutes, ttls_minutes[:1] + ttls_minutes, strict=False):
        if watermark is not None:  # what had expired stays so
            until = max(each for each in (until, *(watermark - dt.timedelta(minutes=ttl) for ttl in ttls)) if each)
        items = {item: row for item, row in items.items() if until is None or row[2] is None or row[2] > until}
        for item, shelf, at in batch:
            was = items.get(item)
            times = [time for time in (at, was and was[2]) if time is not None]
            items[item] = (max(shelf, was[0]) if was else shelf, (was[1] if was else 0) + 1, max(times, default=None))
        items = {item: row for item, row in items.items() if until is None or row[2] is None or row[2] > until}
        latest = max((at for _, _, at in batch if at is not None), default=None)
        watermark = max([each for each in (watermark, latest) if each], default=None)
        after.append(dict(items))
    return after


def log_as_of(path: Path, txid: int) -> Counter:
    """What a log of changes shows as of a transaction."""
    shown: Counter = Counter()
    for row in read_table(path).to_pylist():
        if row.pop("txid") <= txid:
            shown[tuple(row[name] for name in row if name != "diff")] += row["diff"]
    return shown


@pytest.mark.slow
@settings(
    max_examples=examples(24), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # 1 s an example
@given(data=st.data())
def test_keys_that_expire(data) -> None:
    """A key that expires leaves the totals in the transaction that finds it so, whatever the groups, and after a crash.

    Late rows, rows of keys that expire in the same transaction, and those without a time are among them; and a restart
    may make the time to live longer or shorter.
    """
    row = st.tuples(st.sampled_from("abcd"), st.sampled_from([0, 1]), st.none() | st.integers(0, 12).map(start_of))
    rows = [list(each) for each in data.draw(st.lists(row, min_size=1, max_size=14))]
    rows[0][2] = start_of(0)
    batch, ttl, later_ttl, tasks = (data.draw(st.integers(1, most)) for most in (3, 5, 5, 2))
    fields = Fields("item: string", "shelf: int", "at: timestamp")
    config = Config(max_spout_pending=6, group_transactions_max=data.draw(st.integers(1, 4)))
    crash = Crash(data.draw(st.integers(0, 60)))
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    batches = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    first = data.draw(st.integers(0, len(batches)))
    run_inline(
        expiring(folder, MemoryTransactionalSpout({0: rows[: first * batch]}, fields, batch), ttl, tasks), config
    )

    def build():
        return expiring(folder, MemoryTransactionalSpout({0: rows}, fields, batch), later_ttl, tasks)

    if not run_with_crash(build, crash, config):
        assert run_with_crash(build, Crash(), config)
    check_expiring(folder, batches, [ttl] * first + [later_ttl] * (len(batches) - first))


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 4])
def test_a_key_that_a_late_row_ends(tmp_path, group: int) -> None:
    """A row that gives its key a time that has passed takes it out once, in its own transaction."""
    rows = [["a", 0, start_of(0)], ["c", 0, None], ["a", 0, start_of(11)], ["c", 1, start_of(3)], ["a", 1, None]]
    spout = MemoryTransactionalSpout({0: rows}, Fields("item: string", "shelf: int", "at: timestamp"), 1)
    run_inline(expiring(tmp_path, spout, 2, 1), Config(max_spout_pending=6, group_transactions_max=group))
    check_expiring(tmp_path, [[row] for row in rows], [2] * len(rows))


def check_expiring(folder: Path, batches: list[list], ttls: list[int]) -> None:
    """Compare the logs, and the tables at the end, with what is so by hand."""
    for txid, items in enumerate(live_items(batches, ttls), 1):
        log = log_as_of(folder / "items-log", txid)
        assert log == Counter((item, *row) for item, row in items.items()), f"as of {txid}"
        totals: dict[int, list] = defaultdict(list)
        for shelf, n, _ in items.values():
            totals[shelf].append(n)
        log = log_as_of(folder / "shelves-log", txid)
        assert +log == Counter((shelf, len(own), sum(own)) for shelf, own in totals.items()), f"as of {txid}"
        assert not -log
    shown = {row["item"]: (row["shelf"], row["n"], row["at"]) for row in read_table(folder / "items").to_pylist()}
    assert shown == {item: (shelf, n, at) for item, (shelf, n, at) in items.items()}
    shutil.rmtree(folder)


def test_rows_are_not_taken_back_from_keys_that_expire(tmp_path) -> None:
    """Totals of changes whose own keys expire are refused: what is taken back later would count below nothing."""
    fields = Fields("item: string", "at: timestamp", "diff: long")
    values = {"rows": Count(), "at": Max("at: timestamp")}
    items = ReduceCommitter("items", Fields("item: string"), values=values, diff="diff")
    builder = TransactionalTopologyBuilder("chain", "rows", MemoryTransactionalSpout([], fields, 1))
    clock = EventClock("clock", time="at", delay=dt.timedelta(0))
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(tmp_path / "clock"))
    builder.set_committer_bolt("items", items).fields_grouping("rows", Fields("item"))
    value = Fields("rows: long", "at_values: array<struct<value: timestamp, rows: bigint>>", "seen: timestamp")
    state = DeltaState(tmp_path / "items", Fields("item: string"), value, ttl=dt.timedelta(days=1), clock="clock")
    builder.set_state("items", state)
    with pytest.raises(TopologyError, match="takes rows back, but the keys of state 'items' expire"):
        builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("kind", KEYED_KINDS[:2])
def test_totals_of_a_database(tmp_path, batch, kind) -> None:
    """Events out of order, doubled and with deletes change a table, and totals of its rows are those of each txid."""
    fields = Fields("id: long", "shop: string", "price: long", "at: long", "gone: boolean")
    events = [
        [1, "x", 5, 1, False],
        [2, "y", 7, 1, False],
        [1, "y", 6, 3, False],
        [1, "x", 9, 2, False],  # older than what the table knows
        [2, None, None, 2, True],
        [2, None, None, 2, True],
        [3, "x", 1, 1, False],
        [2, "x", 8, 4, False],
    ]
    rows = ApplyChanges(
        "rows",
        "graves",
        key=Fields("id: long"),
        values=Fields("shop: string", "price: long"),
        sequence=Fields("at: long"),
        deleted="gone",
    )
    shops = ReduceCommitter(
        "shops", Fields("shop: string"), values={"n": Count(), "sum": Sum("price: long")}, diff="diff"
    )
    builder = TransactionalTopologyBuilder("chain", "events", MemoryTransactionalSpout({0: events}, fields, batch))
    builder.set_committer_bolt("rows", rows, 2).fields_grouping("events", Fields("id"))
    builder.set_state("rows", rows.state(tmp_path / "rows", kind=kind))
    builder.set_state("graves", rows.tombstones(tmp_path / "graves"))
    builder.set_committer_bolt("shops", shops, 2).fields_grouping("rows", Fields("shop"), CHANGES)
    builder.set_state("shops", shops.state(tmp_path / "shops", kind=kind))
    builder.set_bolt("log", AppendCommitter("log")).shuffle_grouping("shops", CHANGES)
    builder.set_state("log", DeltaRows(tmp_path / "log", shops.changes()))
    run_inline(builder.build(), Config(group_transactions_max=3))
    log = read_table(tmp_path / "log").to_pylist()
    for txid in range(1, -(-len(events) // batch) + 1):
        live: dict = {}
        for key, *row, _at, is_gone in sorted(events[: batch * txid], key=lambda event: event[3]):
            live[key] = None if is_gone else tuple(row)
        totals = defaultdict(list)
        for row in filter(None, live.values()):
            totals[row[0]].append(row[1])
        found: Counter = Counter()
        for row in log:
            if row["txid"] <= txid:
                found[row["shop"], row["n"], row["sum"]] += row["diff"]
        assert +found == Counter((shop, len(own), sum(own)) for shop, own in totals.items()), f"as of {txid}"
        assert not -found


EVENT = st.tuples(
    st.integers(1, 3),
    st.sampled_from("xy"),
    st.integers(0, 9),
    st.integers(0, 6),
    st.sampled_from([False, False, True]),
    st.none() | st.integers(0, 12).map(start_of),
)


def live_rows(batches: list[list], ttl: dt.timedelta) -> list[dict[int, tuple]]:
    """The rows after each transaction, by hand: one that has expired is forgotten, with its sequence; a delete is not."""
    rows: dict[int, tuple] = {}
    graves: dict[int, int] = {}
    watermark, after = None, []
    for batch in batches:
        until = None if watermark is None else watermark - ttl

        def is_over(row: tuple, until=until) -> bool:
            return until is not None and row[3] is not None and row[3] <= until

        rows = {key: row for key, row in rows.items() if not is_over(row)}
        for key, *row, is_gone, at in {each[0]: each for each in sorted(batch, key=lambda event: event[3])}.values():
            known = rows[key][2] if key in rows else graves.get(key)
            if known is None or row[2] >= known:
                rows.pop(key, None)
                graves.pop(key, None)
                if is_gone:
                    graves[key] = row[2]
                elif not is_over((*row, at)):
                    rows[key] = (*row, at)
        watermark = max((at for at in (watermark, *(each[5] for each in batch)) if at is not None), default=None)
        after.append(dict(rows))
    return after


@settings(max_examples=examples(24), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_rows_of_a_database_that_expire(data) -> None:
    """A row that expires leaves the totals in the transaction that finds it so, beside deletes, late and old events."""
    events = [list(each) for each in data.draw(st.lists(EVENT, min_size=1, max_size=14))]
    batch, minutes, tasks, group = (data.draw(st.integers(1, most)) for most in (3, 5, 2, 4))
    fields = Fields("id: long", "shop: string", "price: long", "seq: long", "gone: boolean", "at: timestamp")
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    ttl = dt.timedelta(minutes=minutes)

    def build():
        rows = ApplyChanges(
            "rows",
            "graves",
            key=Fields("id: long"),
            values=Fields("shop: string", "price: long", "at: timestamp"),
            sequence=Fields("seq: long"),
            deleted="gone",
        )
        shops = ReduceCommitter(
            "shops", Fields("shop: string"), values={"n": Count(), "sum": Sum("price: long")}, diff="diff"
        )
        builder = TransactionalTopologyBuilder("chain", "events", MemoryTransactionalSpout({0: events}, fields, batch))
        clock = EventClock("clock", time="at", delay=dt.timedelta(0))
        builder.set_committer_bolt("clock", clock).global_grouping("events")
        builder.set_state("clock", clock.state(folder / "clock"))
        builder.set_committer_bolt("rows", rows, tasks).fields_grouping("events", Fields("id"))
        builder.set_state("rows", rows.state(folder / "rows", ttl=ttl, clock="clock"))
        builder.set_state("graves", rows.tombstones(folder / "graves"))
        builder.set_committer_bolt("shops", shops, tasks).fields_grouping("rows", Fields("shop"), CHANGES)
        builder.set_state("shops", shops.state(folder / "shops"))
        for name, each in (("rows", rows), ("shops", shops)):
            log_changes(builder, name, each, folder)
        return builder.build()

    config = Config(max_spout_pending=6, group_transactions_max=group)
    if not run_with_crash(build, Crash(data.draw(st.integers(0, 60))), config):
        assert run_with_crash(build, Crash(), config)
    batches = [events[start : start + batch] for start in range(0, len(events), batch)]
    for txid, rows in enumerate(live_rows(batches, ttl), 1):
        log = log_as_of(folder / "rows-log", txid)
        assert log == Counter((key, shop, price, at, seq) for key, (shop, price, seq, at) in rows.items()), (
            f"as of {txid}"
        )
        totals = defaultdict(list)
        for shop, price, *_ in rows.values():
            totals[shop].append(price)
        log = log_as_of(folder / "shops-log", txid)
        assert +log == Counter((shop, len(own), sum(own)) for shop, own in totals.items()), f"as of {txid}"
        assert not -log
    shown = {
        row["id"]: (row["shop"], row["price"], row["seq"], row["at"]) for row in read_table(folder / "rows").to_pylist()
    }
    assert shown == rows
    shutil.rmtree(folder)
