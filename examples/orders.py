"""Orders of a shop, read from SQLite: eleven components, every grouping, several streams, and tables that must agree.

A custom spout reads orders by number. Bolts check and price them, and a committer keeps each customer's balance; below
it, in the commit phase, a ledger adds up the changes of the balances. Another committer counts the pieces sold of each
product, and a third counts the refused orders by reason. Whatever fails, the customers' balances must equal the ledger:
the simulator calls ``check_state`` to check it.

Run it with ``txtopo run examples.orders``, or through disasters: ``txtopo simulate examples.orders``.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

from spouts import Coordinator, Emitter
from state import DeltaState, read_table
from txtopo import (
    BasicBolt,
    BasicOutputCollector,
    BatchBolt,
    BatchOutputCollector,
    CustomStreamGrouping,
    Fields,
    ICommitter,
    OutputFieldsDeclarer,
    TopologyContext,
    TransactionalSpout,
    TransactionalTopology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
)

OUTPUT = "txtopo-data/orders"
ORDERS = 120
ORDERS_PER_TRANSACTION = 10
CUSTOMERS, PRODUCTS = 7, 5
LARGE = 80
"""The number of pieces from which an order counts as large."""

ORDER = Fields("attempt", "number", "customer", "product", "pieces")


def make_database(path: Path, orders: int) -> None:
    """Write orders to a new SQLite file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    rows = [
        (n, f"customer {n * n % CUSTOMERS}", f"product {n * 3 % PRODUCTS}", n * 37 % 101 - 5)
        for n in range(1, orders + 1)
    ]
    prices = [(f"product {n}", 100 + 25 * n) for n in range(PRODUCTS - 1)]  # the last one is not for sale
    with closing(sqlite3.connect(unfinished)) as database, database:
        database.execute(
            "CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT, product TEXT, pieces INTEGER)"
        )
        database.execute("CREATE TABLE prices (product TEXT PRIMARY KEY, cents INTEGER)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
        database.executemany("INSERT INTO prices VALUES (?, ?)", prices)
    # A crash before this line leaves a file that nobody reads, and the next run makes a new one.
    unfinished.replace(path)


class OrdersCoordinator(Coordinator):
    """Gives each transaction the next range of order numbers."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
        self._taken = 0

    def resume(self, txid: int, metadata: Any) -> None:
        """Continue after the last range."""
        self._taken = metadata["last"] if metadata else 0

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        """Take the next numbers."""
        # From the metadata, not from self._taken: only what is durable says where the previous transaction ends.
        first = (previous_metadata["last"] if previous_metadata else 0) + 1
        self._taken = min(first + ORDERS_PER_TRANSACTION - 1, self._newest())
        return {"first": first, "last": self._taken}

    def is_ready(self) -> bool:
        """Whether there are orders that have not been taken."""
        return self._newest() > self._taken

    def is_exhausted(self) -> bool:
        """Whether all orders have been taken; no new ones arrive."""
        return not self.is_ready()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _newest(self) -> int:
        return int(self._database.execute("SELECT coalesce(max(number), 0) FROM orders").fetchone()[0])


class OrdersEmitter(Emitter):
    """Emits a range of orders, each task its share; task 0 also emits the prices."""

    def __init__(self, path: str, context: TopologyContext) -> None:
        self._database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
        self._task = context.this_task_index
        self._tasks = len(context.component_tasks(context.this_component_id))

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any, collector: BatchOutputCollector) -> None:
        """Read the range again for each attempt; orders do not change."""
        if self._task == 0:
            for product, cents in self._database.execute("SELECT product, cents FROM prices ORDER BY product"):
                collector.emit((attempt, product, cents), "prices")
        orders = self._database.execute(
            "SELECT number, customer, product, pieces FROM orders"
            " WHERE number BETWEEN ? AND ? AND number % ? = ? ORDER BY number",
            (metadata["first"], metadata["last"], self._tasks, self._task),
        )
        for order in orders:
            collector.emit((attempt, *order))

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class OrdersSpout(TransactionalSpout):
    """Emits orders from a SQLite file, in order of their numbers."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare orders, and prices on a stream of their own."""
        declarer.declare(ORDER)
        declarer.declare_stream("prices", Fields("attempt", "product", "cents"))

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> OrdersCoordinator:
        """Return the coordinator, which decides on ranges."""
        return OrdersCoordinator(self.path)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> OrdersEmitter:
        """Return the emitter, which reads them."""
        return OrdersEmitter(self.path, context)

    def input_ranges(self, metadata: Any, previous_metadata: Any) -> dict[str, tuple[int, int]]:
        """Return the order numbers that a transaction took, for ``txtopo audit``."""
        return {"orders": (metadata["first"] - 1, metadata["last"])}


class Check(BasicBolt):
    """Passes good orders on, and emits a refusal for each of the others."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare good orders, and refusals."""
        declarer.declare(ORDER)
        declarer.declare_stream("refused", Fields("attempt", "reason"))

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        """Check one order."""
        if tuple["pieces"] > 0:
            collector.emit(tuple.values)
        else:
            collector.emit((tuple.attempt, "no pieces"), "refused")


class Trim(BasicBolt):
    """Shortens names."""

    output_fields = ORDER

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        """Keep the last word of each name."""
        attempt, number, customer, product, pieces = tuple.values
        collector.emit((attempt, number, customer.split()[-1], product.split()[-1], pieces))


class Size(BasicBolt):
    """Chooses the till for each order: large ones go to the first."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare a stream whose tuples name their task."""
        declarer.declare_stream("tills", ORDER, direct=True)

    def prepare(self, config: Any, context: TopologyContext) -> None:
        """Get the tasks that serve as tills."""
        self.tills = context.component_tasks("price")

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        """Choose a till."""
        others = self.tills[1:] or self.tills
        till = self.tills[0] if tuple["pieces"] >= LARGE else others[tuple["number"] % len(others)]
        collector.emit_direct(till, tuple.values, "tills")


class Price(BatchBolt):
    """Prices orders once all prices of the batch are known; every till receives all prices."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare sales, and refusals."""
        declarer.declare(Fields("attempt", "customer", "product", "pieces", "cents"))
        declarer.declare_stream("refused", Fields("attempt", "reason"))

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Start empty."""
        self.cents: dict[str, int] = {}
        self.orders: list[tuple[str, str, int]] = []

    def execute(self, tuple: Tuple) -> None:
        """Store a price or an order."""
        if tuple.source_stream == "prices":
            self.cents[tuple["product"].split()[-1]] = tuple["cents"]
        else:
            self.orders.append((tuple["customer"], tuple["product"], tuple["pieces"]))

    def finish_batch(self) -> None:
        """Emit each order with its price."""
        for customer, product, pieces in self.orders:
            cents = self.cents.get(product)
            if cents is None:
                self.collector.emit((self.attempt, "not for sale"), "refused")
            else:
                self.collector.emit((self.attempt, customer, product, pieces, pieces * cents))


class ByProduct(CustomStreamGrouping):
    """Chooses the task by the product's number."""

    def prepare(self, context: TopologyContext, stream: str, target_tasks: Sequence[int]) -> None:
        """Keep the tasks."""
        self.tasks = list(target_tasks)

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> Sequence[int]:
        """Choose by the product's number."""
        return [self.tasks[int(values[1]) % len(self.tasks)]]


class CountProducts(BatchBolt):
    """Counts pieces of each product in a batch."""

    output_fields = Fields("attempt", "product", "pieces")

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Start empty."""
        self.pieces: Counter[str] = Counter()

    def execute(self, tuple: Tuple) -> None:
        """Add an order."""
        self.pieces[tuple["product"]] += tuple["pieces"]

    def finish_batch(self) -> None:
        """Emit the count of each product."""
        for product, pieces in self.pieces.items():
            self.collector.emit((self.attempt, product, pieces))


class Adder(BatchBolt, ICommitter):
    """Adds amounts to a state by key, and emits each key's change; without an amount field, a tuple counts as 1."""

    output_fields = Fields("attempt", "key", "change")

    def __init__(self, state: str, key: str, amount: str | None) -> None:
        self.state_name, self.key, self.amount = state, key, amount

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Get the state."""
        self.state = context.state(self.state_name)
        self.amounts: Counter[str] = Counter()

    def execute(self, tuple: Tuple) -> None:
        """Add up by key; runs in the processing phase."""
        self.amounts[tuple[self.key]] += 1 if self.amount is None else tuple[self.amount]

    def finish_batch(self) -> None:
        """Update each key, and emit its change."""
        self.state.multi_update(list(self.amounts), lambda key, old: (old or 0) + self.amounts[key])
        for key, amount in self.amounts.items():
            self.collector.emit((self.attempt, key, amount))


class Book(BasicBolt):
    """Assigns each change to an account; runs in the commit phase, after the balances."""

    output_fields = Fields("attempt", "account", "cents")

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        """Book a change of a balance."""
        collector.emit((tuple.attempt, "owed", tuple["change"]))


def check_state(tables: Mapping[str, Mapping[Any, Any]]) -> None:
    """Check that the balances equal the ledger, after every transaction."""
    owed = sum(tables["balances"].values())
    booked = tables["ledger"].get("owed", 0)
    assert owed == booked, f"customers owe {owed} cents, and {booked} are in the ledger"


def topology(
    database: str | None = None, output: str = OUTPUT, orders: int = ORDERS, parallelism: int = 2
) -> TransactionalTopology:
    """Return the topology.

    The database is a SQLite file with the tables ``orders`` and ``prices``. By default one is made beside the tables,
    of which ``orders`` is the number of orders. Components that can have several tasks have about ``parallelism``.
    """
    own = OUTPUT if "://" in output else output  # SQLite needs a disk
    path = Path(own) / "orders.sqlite" if database is None else Path(database)
    if database is None and not path.exists():
        make_database(path, orders)
    builder = TransactionalTopologyBuilder("orders", "orders", OrdersSpout(path), 2)
    builder.set_bolt("check", Check(), parallelism + 1).shuffle_grouping("orders")
    builder.set_bolt("trim", Trim(), parallelism).local_or_shuffle_grouping("check")
    builder.set_bolt("size", Size(), parallelism).none_grouping("trim")
    till = builder.set_bolt("price", Price(), parallelism + 1)
    till.direct_grouping("size", "tills").all_grouping("orders", "prices")
    builder.set_bolt("pieces", CountProducts(), parallelism).partial_key_grouping("price", Fields("product"))
    builder.set_committer_bolt("balances", Adder("balances", "customer", "cents"), parallelism).fields_grouping(
        "price", Fields("customer")
    )
    sold = builder.set_committer_bolt("sold", Adder("sold", "product", "pieces"), parallelism)
    sold.custom_grouping("pieces", ByProduct())
    builder.set_bolt("book", Book(), parallelism).shuffle_grouping("balances")
    builder.set_committer_bolt("ledger", Adder("ledger", "account", "cents"), 1).global_grouping("book")
    builder.set_committer_bolt("refusals", Adder("refusals", "reason", None), 1).global_grouping(
        "check", "refused"
    ).global_grouping("price", "refused")
    for state, key in (("balances", "customer"), ("sold", "product"), ("ledger", "account"), ("refusals", "reason")):
        table = DeltaState(f"{output}/{state}", key=Fields(f"{key}: string"), value=Fields("n: long"))
        builder.set_state(state, table)
    return builder.build()


def show_results(console: Console, output: str) -> None:
    """Print the ledger and the pieces sold."""
    owed = sum(read_table(f"{output}/ledger")["n"].to_pylist())
    console.print(f"customers owe {owed / 100:,.2f}")
    for row in sorted(read_table(f"{output}/sold").to_pylist(), key=lambda row: str(row["product"])):
        console.print(f"product {row['product']}: {row['n']:,} pieces")
