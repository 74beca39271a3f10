"""Of which fields of its sources a column of a flow's table is made."""

import datetime as dt

import pytest

from committers import Count, Mean, Sum
from spouts import MemoryTransactionalSpout
from txtopo import Fields
from txtopo.streams import Flow

FIELDS = Fields("customer: string", "qty: long", "price: double", "at: timestamp", "tags: array<string>")
ROWS = [["a", 1, 2.0, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), ["x"]]]


@pytest.fixture
def made():
    """Return by table and column the fields that it is made of, as texts, of what a function appends to a flow."""

    def columns(say):
        flow = Flow("shop", "out")
        orders = flow.source("orders", MemoryTransactionalSpout(ROWS, FIELDS, 1))
        people = flow.source("people", MemoryTransactionalSpout([["a", "A"]], Fields("id: string", "name: string"), 1))
        say(orders, people)
        found = flow.build().columns
        return {
            table: {column: {f"{of}.{field}" for of, field in sources} for column, sources in each.items()}
            for table, each in found.items()
        }

    return columns


def test_row_wise_steps(made):
    """Expressions name what they read, whatever the fields are called in between; a condition names nothing."""

    def say(orders, people):
        shown = orders.with_columns(total="price * qty").filter("qty > 0").rename({"customer": "who"})
        shown.explode("tags").select("who", "tags", twice="total * 2").append("log")
        orders.map(lambda row: row, Fields("x: long")).append("mapped")
        people.append("people")

    assert made(say) == {
        "log": {"who": {"orders.customer"}, "tags": {"orders.tags"}, "twice": {"orders.price", "orders.qty"}},
        "mapped": {"x": {f"orders.{name}" for name in FIELDS}},
        "people": {"id": {"people.id"}, "name": {"people.name"}},
    }


def test_aggregates_and_joins(made):
    """Results name what they aggregate, also through a table that is looked up, and joined rows their own side."""

    def say(orders, people):
        totals = orders.group_by("customer").agg(spent=Sum("price"), mean=Mean("qty"), n=Count()).upsert("totals")
        orders.select("customer", "at").join(
            totals, on="customer", values=["spent"], rename={"spent": "so_far"}
        ).append("joined")
        orders.select("customer").join(people, on={"customer": "id"}).append("both")
        timed = orders.event_time("at", delay="1s", close_at_end=True)
        timed.group_by("customer").window("1h").agg(most=Sum("qty")).append("hours")

    found = made(say)
    assert found["totals"] == {
        "customer": {"orders.customer"},
        "spent": {"orders.price"},
        "mean_sum": {"orders.qty"},
        "mean_count": {"orders.qty"},
        "n": set(),
    }
    assert found["joined"] == {"customer": {"orders.customer"}, "at": {"orders.at"}, "so_far": {"orders.price"}}
    assert found["both"] == {"customer": {"orders.customer"}, "id": {"people.id"}, "name": {"people.name"}}
    assert found["hours"] == {
        "customer": {"orders.customer"},
        "window_start": {"orders.at"},
        "window_end": {"orders.at"},
        "most": {"orders.qty"},
    }
