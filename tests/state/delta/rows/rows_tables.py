"""Tables of rows, as their tests open and fill them."""

from collections import Counter

import pytest

from state import DeltaRows, read_table
from tests.state.delta.delta_tables import sized
from tests.state.delta.inline_executors import InlineExecutors
from txtopo import Fields
from txtopo.transactional.commit.write_buffer import group_state

FIELDS = Fields("day: string", "n: long")

WAYS = pytest.mark.parametrize("large", [False, True], ids=["driver", "executors"])
PARTITIONS = pytest.mark.parametrize("partition_by", [(), ("day",)], ids=["plain", "partitioned"])


def opened(path, *, fields=FIELDS, epoch=1, executors=None, sizes=None, **options):
    state = sized(DeltaRows(path / "t", fields, **options), **(sizes or {})).open("topology", "s", "life", epoch)
    if executors is not None:
        state.use_executors(executors, 0)
    return state


def writes_of(state, *transactions):
    """Return what a group writes: for each transaction its txid, and ("append" | "replace_partitions", rows) for each task."""
    group = group_state(state)
    for txid, *puts in transactions:
        view = group.begin(txid)
        for how, rows in puts:
            getattr(view, how)(rows)
        view.check()
        view.finish()
    return group.writes()


def put(state, *transactions):
    """Commit a group; see :func:`writes_of`."""
    writes = writes_of(state, *transactions)
    state.write(transactions[-1][0], writes)
    return writes


def rows(path, txid=None) -> Counter:
    return Counter(tuple(row.values()) for row in read_table(path / "t", txid).to_pylist())


def some_executors(large):
    return InlineExecutors(slots=3) if large else None
