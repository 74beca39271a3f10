"""LookupJoin: with a reference on the executors, with a state as of the transaction before."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from committers import AppendCommitter, LookupJoin, ReduceCommitter
from committers.lookup_join import PORTION_ROWS
from spouts import MemoryTransactionalSpout
from state import DeltaReference, DeltaRows, DeltaState, MemoryState, read_table
from txtopo import (
    Config,
    Fields,
    State,
    StateKind,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    run,
)
from txtopo.api.data.types import parse_type
from txtopo.columnar.conversion import fit_array
from txtopo.errors import ConfigError, FieldsError, TopologyError
from txtopo.testing import PlainContext, RecordingCollector, run_inline
from txtopo.testing.simulation.schedules import make_subject, run_schedules

ORDER = Fields("order: long", "customer: long", "shop: string")
ORDERS = [[1, 10, "a"], [2, 11, "a"], [3, None, "a"], [4, 10, "b"], [5, 99, None]]
CUSTOMER = Fields("name: string", "at: timestamp")
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def customers(path: Path) -> DeltaReference:
    """Make a reference table of two customers of two shops."""
    columns = {
        "shop": ["a", "a", "b", None],
        "customer": pa.array([10, 11, 10, 99], pa.int32()),
        "name": ["ann", "bob", "ann of b", "nobody"],
        "at": pa.array([NOON] * 4, pa.timestamp("us", tz="UTC")),
    }
    write_deltalake(str(path), pa.table(columns))
    return DeltaReference(path, ["shop", "customer"], columns=["name", "at"])


def joined(
    output: Path, join: LookupJoin, fields: Fields, *, is_committer: bool = False
) -> TransactionalTopologyBuilder:
    """Return a topology that appends what a join of the orders emits, two orders in each transaction."""
    builder = TransactionalTopologyBuilder("join", "orders", MemoryTransactionalSpout(ORDERS, ORDER, 2))
    add = builder.set_committer_bolt if is_committer else builder.set_bolt
    add("join", join, 2).shuffle_grouping("orders")
    builder.set_bolt("append", AppendCommitter("out")).shuffle_grouping("join")
    builder.set_state("out", DeltaRows(output / "out", fields))
    return builder


def rows(output: Path, *names: str) -> list[tuple[Any, ...]]:
    """Return columns of the rows that were appended, in order."""
    return sorted((tuple(row[name] for name in names) for row in read_table(output / "out").to_pylist()), key=str)


def with_customers(output: Path, how: str = "left") -> Topology:
    """Return a topology whose orders are joined with their customers."""
    kept, output_fields = Fields("order: long", "shop: string"), Fields("order: long", "shop: string")
    join = LookupJoin(
        ["shop", "customer"], reference="customers", fields=kept, values=CUSTOMER, rename={"name": "buyer"}, how=how
    )
    builder = joined(output, join, output_fields + Fields("buyer: string", "at: timestamp"))
    builder.set_reference("customers", customers(output / "customers"))
    return builder.build()


@pytest.mark.slow
def test_left_and_inner(tmp_path: Path) -> None:
    """By several fields, renamed; a null in a key matches nothing, on either side."""
    run_inline(with_customers(tmp_path / "left"))
    expected = [(1, "a", "ann", NOON), (2, "a", "bob", NOON), (3, "a", None, None), (4, "b", "ann of b", NOON)]
    assert rows(tmp_path / "left", "order", "shop", "buyer", "at") == [*expected, (5, None, None, None)]
    run_inline(with_customers(tmp_path / "inner", "inner"))
    assert rows(tmp_path / "inner", "order", "shop", "buyer", "at") == [row for row in expected if row[2]]


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_on_spark(tmp_path: Path, spark: Any, mode: str) -> None:
    """The executors find the version, in jobs and in real-time workers."""
    run(with_customers(tmp_path), Config({"topology.processing.mode": mode}))
    assert rows(tmp_path, "order", "buyer") == [(1, "ann"), (2, "bob"), (3, None), (4, "ann of b"), (5, None)]


ADDED = [[1, 7], [2, 8], [3, None], [4, 7], [5, None], [6, 7], [7, 5], [8, 7], [9, 8]]
"""Orders with their customers, of which three are a transaction."""

BEFORE = [(1, None), (2, None), (3, None), (4, 1), (5, None), (6, 1), (7, None), (8, 11), (9, 2)]
"""Each order, and the sum of the orders of its customer in earlier transactions."""


def adding(output: Path, state: State, *, joins_first: bool = False, how: str = "left") -> Topology:
    """Return a topology that adds up orders by customer, and says what the sum was before each order."""
    orders = [[order, customer, customer or 0] for order, customer in ADDED]
    spout = MemoryTransactionalSpout(orders, Fields("order: long", "customer: long", "of: long"), 3)
    builder = TransactionalTopologyBuilder("join", "orders", spout)
    order = Fields("order: long")
    join = LookupJoin("customer", state="sums", fields=order, values=Fields("n: long"), rename={"n": "before"}, how=how)
    bolts = [("join", join, "orders"), ("sum", ReduceCommitter("sums", "of", "order"), "orders")]
    for name, bolt, source in bolts if joins_first else reversed(bolts):
        builder.set_committer_bolt(name, bolt, 2).fields_grouping(source, Fields("of"))
    builder.set_bolt("append", AppendCommitter("out")).shuffle_grouping("join")
    builder.set_state("sums", state)
    builder.set_state("out", DeltaRows(output / "out", order + Fields("before: long")))
    return builder.build()


def sums(output: Path, *, is_memory: bool = False, kind: StateKind = StateKind.TRANSACTIONAL) -> State:
    """Return a state of sums."""
    key, value = Fields("customer: long"), Fields("n: long")
    return MemoryState(key, value) if is_memory else DeltaState(output / "sums", key, value, kind)


@pytest.mark.few(2)
@pytest.mark.parametrize("group", [1, 10])
@pytest.mark.parametrize("is_memory", [False, True])
@pytest.mark.parametrize("joins_first", [False, True])
def test_a_state_is_as_of_the_transaction_before(
    tmp_path: Path, *, group: int, is_memory: bool, joins_first: bool
) -> None:
    """Whatever the transaction puts into it, before or after, and however transactions commit together."""
    state = sums(tmp_path, is_memory=is_memory)
    run_inline(adding(tmp_path, state, joins_first=joins_first), {"topology.group.transactions.max": group})
    assert rows(tmp_path, "order", "before") == BEFORE


def test_an_inner_join_with_a_state_of_opaque_values(tmp_path: Path) -> None:
    """Rows that match nothing are left out."""
    run_inline(adding(tmp_path, sums(tmp_path, kind=StateKind.OPAQUE), how="inner"))
    assert rows(tmp_path, "order", "before") == [row for row in BEFORE if row[1] is not None]


@pytest.mark.slow
@pytest.mark.parametrize("is_real_time", [False, True])
def test_under_seeded_disasters(tmp_path: Path, *, is_real_time: bool) -> None:
    """Both joins give what they give undisturbed, whatever dies and whenever."""
    for topology in (with_customers(tmp_path / "reference"), adding(tmp_path, sums(tmp_path))):
        assert not run_schedules(make_subject(topology, is_real_time=is_real_time), range(24)).failures


NARROWER = [
    ("long", "int", 2**40, -(2**31) - 1),
    ("decimal(9,3)", "decimal(5,2)", Decimal("7.001"), Decimal(1000)),
    ("decimal(5,2)", "decimal(9,3)", Decimal("7.01"), Decimal(-7)),
    ("long", "decimal(5,2)", 1000, -1000),
]
"""Types of a stream's key and a table's, and two numbers that are none of the table's keys."""


@pytest.mark.few(2)
@pytest.mark.parametrize("numbers", NARROWER, ids=lambda numbers: f"{numbers[0]} in {numbers[1]}")
@pytest.mark.parametrize("where", ["reference", "table", "memory"])
def test_a_narrower_key(tmp_path: Path, where: str, numbers: tuple[str, str, Any, Any]) -> None:
    """A number that the type of the table's key does not hold is none of its keys."""
    wide, narrow, *others = numbers
    order = Fields("order: long", f"customer: {wide}", f"own: {narrow}")
    orders = [[at, number, 7] for at, number in enumerate([7, 7, others[0], None, others[1]], 1)]
    builder = TransactionalTopologyBuilder("join", "orders", MemoryTransactionalSpout(orders, order, 1))
    added, kept = Fields("n: long"), Fields("order: long")
    if where == "reference":
        write_deltalake(str(tmp_path / "sums"), pa.table({"own": fit_array([7], parse_type(narrow)), "n": [1]}))
        builder.set_reference("sums", DeltaReference(tmp_path / "sums", "own"))
        join = LookupJoin("customer", reference="sums", fields=kept, values=added, how="left")
        builder.set_bolt("join", join).shuffle_grouping("orders")
    else:
        key = Fields(f"own: {narrow}")
        join = LookupJoin("customer", state="sums", fields=kept, values=added, how="left")
        builder.set_committer_bolt("join", join).shuffle_grouping("orders")
        builder.set_committer_bolt("sum", ReduceCommitter("sums", "own", "order")).fields_grouping("orders", key)
        state = MemoryState(key, added) if where == "memory" else DeltaState(tmp_path / "sums", key, added)
        builder.set_state("sums", state)
    builder.set_bolt("append", AppendCommitter("out")).shuffle_grouping("join")
    builder.set_state("out", DeltaRows(tmp_path / "out", kept + added))
    run_inline(builder.build())
    first = 1 if where == "reference" else None
    assert rows(tmp_path, "order", "n") == [(1, first), (2, 1), (3, None), (4, None), (5, None)]


class Counting:
    """A state that notes how many keys it is asked for at a time."""

    key = Fields("id: long")

    def __init__(self) -> None:
        self.asked: list[int] = []

    def rows_before(self, keys: pa.Table, values: Fields) -> tuple[Any, pa.Table]:
        self.asked.append(keys.num_rows)
        (ids,) = keys.columns
        return np.arange(keys.num_rows), pa.table([pc.add(ids, 1)], values.arrow_schema())


@pytest.mark.slow
def test_a_large_batch_makes_progress() -> None:
    """It is looked up in portions, each of which renews the timeout of the commit phase; the rows are the same."""
    count = 2 * PORTION_ROWS + 3
    attempt = TransactionAttempt(1, 1)
    state, collector = Counting(), RecordingCollector(attempt, Fields("attempt", "id: long", "n: long"))
    join = LookupJoin("id", state="s", fields=Fields("id: long"), values=Fields("n: long"))
    join.collector = collector
    join.prepare({}, PlainContext("join", states={"s": state}), collector, attempt)
    join.execute(pa.RecordBatch.from_pydict({"id": range(count)}))
    join.finish_batch()
    assert state.asked == [PORTION_ROWS, PORTION_ROWS, 3]
    emitted = [tuple(each[1:]) for each in collector.tuples]
    assert emitted == [(number, number + 1) for number in range(count)]


def test_mistakes(tmp_path: Path) -> None:
    """They are refused by build(), or when the bolt is made."""
    one = Fields("n: long")
    with pytest.raises(ConfigError, match="either reference= or state="):
        LookupJoin("customer", fields=one, values=one)
    with pytest.raises(ConfigError, match="'inner' or 'left'"):
        LookupJoin("customer", state="sums", fields=one, values=one, how="outer")
    with pytest.raises(FieldsError, match="'n' appears twice"):
        LookupJoin("customer", state="sums", fields=one, values=one)
    with pytest.raises(FieldsError, match="no field 'm'"):
        LookupJoin("customer", state="sums", fields=Fields("order: long"), values=one, rename={"m": "x"})
    of_state = LookupJoin(("customer", "shop"), state="sums", fields=Fields("ordr: long"), values=Fields("sum: long"))
    builder = joined(tmp_path, of_state, one, is_committer=True)
    builder.set_state("sums", sums(tmp_path))
    with pytest.raises(TopologyError, match="reads field 'ordr', which 'orders' does not have"):
        builder.build()
    of_state = LookupJoin(("customer", "shop"), state="sums", fields=Fields("order: long"), values=Fields("sum: long"))
    builder = joined(tmp_path, of_state, one, is_committer=True)
    builder.set_state("sums", sums(tmp_path))
    with pytest.raises(
        TopologyError, match=r"looks up 'sum' in state 'sums'.*\n.*whose key is Fields\('customer: bigint"
    ):
        builder.build()
