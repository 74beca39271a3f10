"""The example with every grouping and a spout of its own, without Spark."""

import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from examples.orders import LARGE, ORDERS, check_state, topology
from state import read_table
from txtopo import Config
from txtopo.api.components.groupings import GroupingKind
from txtopo.testing.inline import run_inline


def test_it_has_every_grouping_and_several_streams(tmp_path):
    """Eleven components that are joined in all nine ways."""
    plan = topology(output=str(tmp_path)).plan
    assert len(plan.components) == 11
    assert {edge.grouping.kind for edge in plan.edges} == set(GroupingKind)
    assert {edge.stream for edge in plan.edges} == {"default", "prices", "refused", "tills"}


@pytest.mark.slow
def test_the_tables_are_what_sqlite_says(tmp_path):
    """Each order is sold once or refused once, and the ledger holds what customers owe."""
    report = run_inline(topology(output=str(tmp_path)), Config(layout="spread"))
    assert report.committed_txid == 12
    with closing(sqlite3.connect(tmp_path / "orders.sqlite")) as database:
        orders = database.execute(
            "SELECT customer, o.product, pieces, cents FROM orders AS o LEFT JOIN prices AS p ON o.product = p.product"
        ).fetchall()
    assert len(orders) == ORDERS
    assert any(pieces >= LARGE for _, _, pieces, _ in orders)
    owed, sold, refused = Counter(), Counter(), Counter()
    for customer, product, pieces, cents in orders:
        if pieces <= 0:
            refused["no pieces"] += 1
        elif cents is None:
            refused["not for sale"] += 1
        else:
            owed[customer.split()[-1]] += pieces * cents
            sold[product.split()[-1]] += pieces
    tables = {}
    for name in ("balances", "sold", "ledger", "refusals"):
        rows = read_table(tmp_path / name).to_pylist()
        tables[name] = {next(iter(row.values())): row["n"] for row in rows}
    assert tables == {"balances": owed, "sold": sold, "refusals": refused, "ledger": {"owed": sum(owed.values())}}
    check_state(tables)
