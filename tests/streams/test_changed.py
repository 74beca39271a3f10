"""A flow that has run may change: what moves no table goes on, and all else is refused by name."""

import datetime as dt

import pytest
from hypothesis import given, settings, strategies as st

from committers import ReduceCommitter
from tests.budgets import examples
from tests.streams.flows import memory, table
from txtopo import Fields
from txtopo.errors import DivergenceError, TxtopoError, UserCodeError
from txtopo.streams import ApproxQuantile, Count, CountDistinct, Flow, Last, Max, Sum, TopN
from txtopo.testing import run_inline

T = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ROWS = [(number, "ab"[number % 2], T + number * dt.timedelta(seconds=20), number, True) for number in range(8)]
SUMS = {"n": Count(), "p": Sum("price")}


def said(output, *, source="orders", without=(), more=(), key="shop", window="1m", price="price", name=None, sums=SUMS):
    """Say a flow of rows, windows and totals, in some version of it."""
    flow = Flow("f", output)
    timed = flow.source(source, memory(ROWS)).event_time("at", delay="1s", close_at_end=True)
    if "filter" in more:
        timed = timed.filter("price >= 0")
    if price != "price":
        timed = timed.rename({"price": price})
    unique = timed if "distinct" in without else timed.distinct("id", within="1h")
    if "totals" not in without:
        unique.group_by(key).agg(**sums).upsert("totals")
    if "rows" not in without:
        unique.append("rows")
    if "table" in more:
        unique.filter("price > 1").append("dear")
    unique.group_by("shop").window(window, name=name).agg(n=Count()).append("minutes")
    return flow


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"more": ["filter"]}, {"without": ["rows"]}, {"without": ["totals"]}, {"without": ["distinct"]}],
    ids=str,
)
def test_what_goes_on(tmp_path, changes):
    """Steps that keep nothing come and go; those with tables may go. The others' tables have each row once."""
    run_inline(said(tmp_path).build(), until=2)
    flow = said(tmp_path, **changes)
    run_inline(flow.build())
    assert sum(row["n"] for row in table(flow, "minutes")) == len(ROWS)
    if "totals" not in changes.get("without", ()):
        assert [row["n"] for row in table(flow, "totals")] == [4, 4]


@pytest.mark.slow
def test_another_size_of_a_window_with_a_name(tmp_path):
    """It keeps its table; what was open stays as it was cut, and nothing is lost."""
    run_inline(said(tmp_path, name="windows").build(), until=2)
    flow = said(tmp_path, name="windows", window="5m")
    run_inline(flow.build())
    assert sum(row["n"] for row in table(flow, "minutes")) == len(ROWS)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"more": ["table"]}, "state 'dear' of topology 'f' is new.*txtopo backfill"),
        ({"window": "5m"}, "state 'orders-by-shop-5m' of topology 'f' is new"),
        ({"key": "paid"}, r"test_changed.py, line \d+: upsert: table 'totals' is there.*shop: string.*keep shop"),
        ({"price": "cost", "sums": {"n": Count()}, "without": ["totals"]}, "line .*: append: table 'rows' is there.*keep price"),
        ({"sums": {"n": Count(), "p": Max("shop")}}, "line .*: upsert: table 'totals' is there.*p: string"),
        ({"sums": {"n": Count()}}, "upsert: table 'totals' is there.*no column can be removed, so keep p"),
        ({"source": "sales"}, "has run with spout 'orders' up to transaction 2, and the code does not have it"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_refused(tmp_path, changes, words):
    """It is named, before anything is written."""
    run_inline(said(tmp_path).build(), until=2)
    before = table(said(tmp_path), "rows")
    with pytest.raises(TxtopoError, match=rf"(?s)^{words}|{words}") as raised:
        run_inline(said(tmp_path, **changes).build())
    assert str(raised.value).count(", line ") <= 1
    assert table(said(tmp_path), "rows") == before


def fail(_):
    raise ValueError


def totals(output, how, *, key="shop", until=None, broken=False, **more):
    """Run a flow of totals, and return what the table has."""
    flow = Flow("f", output)
    orders = flow.source("orders", memory(ROWS))
    if broken:
        orders = orders.map(fail, orders.fields)
    kept = orders.group_by(key).agg(p=how, **more).upsert("totals", schema_evolution="add")
    run_inline(flow.build(), until=until)
    return kept.read().sort_by(key)["p"].to_pylist()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Sum("price"), Max("price")),
        (Sum("price"), Sum("id")),
        (Count(where="paid"), Count()),
        (TopN("id", by="price", n=2), TopN("id", by="price", n=3)),
        (Last("id", by="at"), Last("id", by="at", ties="smallest")),
        (TopN(Fields("id", "price"), by="id", n=2), TopN(Fields("id", "price"), by="price", n=2)),
        (Max("paid"), Max("paid", where="paid")),
    ],
    ids=repr,
)
def test_another_aggregate_of_the_same_type(tmp_path, before, after):
    """It is refused by name: the table would be a mix of both. Nothing is written, and the former code goes on."""
    totals(tmp_path, before, until=2)
    with pytest.raises(
        DivergenceError, match=r"state 'totals' of topology 'f', column 'p', is made of .* but the code"
    ):
        totals(tmp_path, after)
    assert totals(tmp_path, before) == totals(tmp_path / "anew", before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CountDistinct("id", values_max=10), CountDistinct("id", values_max=20)),
        (ApproxQuantile("price"), ApproxQuantile("price", q=0.9)),
        (Last("id", by="at"), Last("id", by="at", ties="largest")),
    ],
    ids=repr,
)
def test_options_on_which_a_table_does_not_depend(tmp_path, before, after):
    """They may change: the table is the same."""
    totals(tmp_path, before, until=2)
    assert totals(tmp_path, after) == totals(tmp_path / "anew", after)


def test_another_aggregate_in_an_empty_table(tmp_path):
    """Until something is committed, as after a first run that failed, there is no mix: it is made as it is said now."""
    with pytest.raises(UserCodeError):
        totals(tmp_path, Sum("price"), broken=True)
    assert totals(tmp_path, Max("price")) == totals(tmp_path / "anew", Max("price"))


def test_a_table_of_a_run_that_recorded_nothing(tmp_path, monkeypatch):
    """What it is made of is unknown, so the next run goes on; from then on it is known."""
    with monkeypatch.context() as patch:
        patch.setattr(ReduceCommitter, "folds", {})
        totals(tmp_path, Sum("price"), until=1)
    totals(tmp_path, Max("price"), until=2)
    with pytest.raises(DivergenceError, match=r"is made of Max\(price\) up to transaction 2, but .* has Sum\(price\)"):
        totals(tmp_path, Sum("price"))


@pytest.mark.parametrize("is_new", [True, False])
def test_another_aggregate_of_which_nothing_is_committed(tmp_path, monkeypatch, is_new):
    """A column that is new, or of an unknown past, is made of what was committed, not of what a run has only said."""
    with monkeypatch.context() as patch:
        patch.setattr(ReduceCommitter, "folds", {})
        totals(tmp_path, Count(), until=1, **({} if is_new else {"q": Sum("price")}))
    with pytest.raises(UserCodeError):
        totals(tmp_path, Count(), q=Max("price"), broken=True)
    totals(tmp_path, Count(), q=Sum("price"), until=2)
    with pytest.raises(DivergenceError, match=r"'q', is made of Sum\(price\) up to transaction 2"):
        totals(tmp_path, Count(), q=Max("price"))


SINKS = {
    "rows": lambda stream: stream.append("rows"),
    "totals": lambda stream: stream.group_by("shop").agg(**SUMS).upsert("totals"),
    "minutes": lambda stream: stream.group_by("shop").window("1m").agg(n=Count()).append("minutes"),
    "latest": lambda stream: stream.apply_changes("latest", key="shop", sequence="id"),
    "ids": lambda stream: stream.distinct("id", within="1h", name="ids-once").select("id").append("ids"),
}
IDLE = {
    "filter": lambda stream: stream.filter("price >= 0"),
    "column": lambda stream: stream.with_columns(twice="price * 2").drop("twice"),
    "rename": lambda stream: stream.rename({"price": "cost"}).rename({"cost": "price"}),
    "select": lambda stream: stream.select("id", "shop", "at", "price", "paid"),
}
"""Steps that make nothing else of a row."""


def version(output, sinks, idle):
    """Say a flow of some tables, in an order, with some steps before each that keep nothing."""
    flow = Flow("f", output)
    timed = flow.source("orders", memory(ROWS)).event_time("at", delay="1s", close_at_end=True)
    for name, steps in zip(sinks, idle, strict=True):
        stream = timed
        for step in steps:
            stream = IDLE[step](stream)
        SINKS[name](stream)
    return flow


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data(), until=st.integers(1, 4))
def test_generated_changes(tmp_path_factory, data, until):
    """Whatever row-wise steps come, go and move, and whichever tables go: those that stay are as if nothing had changed."""
    idle = st.lists(st.sampled_from(sorted(IDLE)), max_size=2)
    first = data.draw(st.lists(st.sampled_from(sorted(SINKS)), min_size=1, unique=True))
    second = data.draw(st.lists(st.sampled_from(first), min_size=1, unique=True))
    changed, plain = (tmp_path_factory.mktemp("flow") for _ in range(2))
    run_inline(version(changed, first, [data.draw(idle) for _ in first]).build(), until=until)
    flow = version(changed, second, [data.draw(idle) for _ in second])
    run_inline(flow.build())
    alone = version(plain, second, [[] for _ in second])
    run_inline(alone.build())
    assert {name: table(flow, name) for name in second} == {name: table(alone, name) for name in second}
