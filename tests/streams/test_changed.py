"""A flow that has run may change: what moves no table goes on, and all else is refused by name."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.streams.flows import memory, table
from txtopo.errors import TxtopoError
from txtopo.streams import Count, Flow, Max, Sum
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


@pytest.mark.few(2)
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
