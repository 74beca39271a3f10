"""Jobs of the examples and the guides as flows and with a builder."""

import contextlib
import datetime as dt
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from committers import (
    AppendCommitter,
    ApplyChanges,
    Deduplicate,
    EventClock,
    JoinStream,
    LookupJoin,
    ReduceCommitter,
    ReplaceCommitter,
    StreamJoin,
    WindowCommitter,
    WindowUpdateCommitter,
)
from examples import clickstream, going_back, named_orders, payments, transactional_words
from spouts import FilesTransactionalSpout, MemoryTransactionalSpout
from state import DeltaReference, DeltaRows
from tests.examples import topologies
from tests.examples.topologies import EXAMPLES, reading_clicks
from txtopo import (
    ArrowBatchBolt,
    BasicBolt,
    BasicOutputCollector,
    Fields,
    TransactionalTopology,
    TransactionalTopologyBuilder,
    Tuple,
)
from txtopo.streams import Count, CountDistinct, Flow, Last, Mean, Min, Sum, Tumbling

T = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
WORDS_BYTES = 64 * 1024
"""The batches of the example of words."""

ORDER = Fields("id: long", "shop: string", "at: timestamp", "price: long", "gone: boolean")


@attrs.frozen
class Size:
    """How much input the jobs have.

    Args:
        orders: how many orders.
        keys: how many ids these have; the shops are three.
        each: how many of them a transaction has.
    """

    orders: int = 60
    keys: int = 23
    each: int = 7

    @property
    def times(self) -> int:
        """How many times that of the examples it is."""
        return max(self.orders // 600, 1)


_size = Size()


@contextlib.contextmanager
def sized(size: Size) -> Iterator[None]:
    """Let jobs that are made meanwhile have input of another size; those of examples that read files stay as they are."""
    times = size.times
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "_size", size)
        patch.setattr(topologies, "CLICKS", topologies.CLICKS * times)
        patch.setattr(topologies, "LINES", topologies.LINES * times)
        patch.setattr(named_orders, "ORDERS", named_orders.ORDERS * times)
        spread = [payments.START + number * payments.MINUTE for number in range(90 * times)]
        patch.setattr(payments, "ORDERS", list(enumerate(spread)))
        patch.setattr(payments, "PAYMENTS", [(number, at, 10) for number, at in enumerate(spread) if number % 2])
        yield


def rows_of_orders() -> Sequence[tuple[Any, ...]]:
    return [
        (
            n * 7 % _size.keys,
            "ABC"[n % 3],
            None if n % 13 == 0 else T + (n % 19 and n * 11 - n % 5 * 40) * SECOND,
            n * n % 17,
            n % 6 == 0,
        )
        for n in range(_size.orders)
    ]


def orders() -> MemoryTransactionalSpout:
    return MemoryTransactionalSpout(rows_of_orders(), ORDER, _size.each)


def built(name: str) -> TransactionalTopologyBuilder:
    return TransactionalTopologyBuilder(name, "orders", orders(), 2)


def flow_of(name: str, output: str) -> Any:
    flow = Flow(name, output, parallelism=2)
    return flow, flow.source("orders", orders())


# Row-wise steps, and bolts of one's own.


class Dear(ArrowBatchBolt):
    output_fields = Fields("attempt", "id: long", "cents: long", "hour: timestamp")

    def execute(self, batch: pa.RecordBatch) -> None:
        dear = batch.filter(pc.greater(batch["price"], 3))
        hour = pc.floor_temporal(dear["at"], unit="hour")
        self.collector.emit_batch(
            pa.RecordBatch.from_arrays([dear["id"], pc.multiply(dear["price"], 100), hour], ["id", "cents", "hour"])
        )


def rows_built(_: Path, output: str) -> TransactionalTopology:
    builder = built("rows")
    builder.set_bolt("dear", Dear(), 2).local_or_shuffle_grouping("orders")
    builder.set_bolt("append", AppendCommitter("dear"), 2).local_or_shuffle_grouping("dear")
    builder.set_state("dear", DeltaRows(f"{output}/dear", Fields("id: long", "cents: long", "hour: timestamp")))
    return builder.build()


def rows_said(_: Path, output: str) -> TransactionalTopology:
    flow, orders = flow_of("rows", output)
    orders.filter("price > 3").select("id", cents="price * 100", hour=pl.col("at").dt.truncate("1h")).append("dear")
    return flow.build()


# Event time.


def times_built(_: Path, output: str) -> TransactionalTopology:
    builder = built("times")
    clock = EventClock("clock", time="at", delay=60 * SECOND, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("orders")
    builder.set_state("clock", clock.state(f"{output}/_internal/clock"))
    seen = Deduplicate("seen", clock="clock", time="at", key="id", within=90 * SECOND, fields=ORDER)
    builder.set_committer_bolt("seen", seen, 2).fields_grouping("orders", Fields("id")).all_grouping("clock")
    builder.set_state("seen", seen.state(f"{output}/_internal/seen"))
    own: dict[str, Any] = {
        "clock": "clock",
        "time": "at",
        "window": Tumbling(60 * SECOND),
        "key": Fields("shop: string"),
    }
    sums = {"orders": Count(), "ids": CountDistinct("id: long", values_max=10_000)}
    windows = WindowCommitter("open", aggregates=sums, lateness=30 * SECOND, **own)
    kept = WindowUpdateCommitter("kept", aggregates=sums, lateness=30 * SECOND, **own)
    for name, each in (("open", windows), ("kept", kept)):
        declarer = builder.set_committer_bolt(name, each, 2)
        declarer.fields_grouping("seen", Fields("shop")).all_grouping("clock")
    builder.set_state("open", windows.state(f"{output}/_internal/open"))
    builder.set_state("kept", kept.state(f"{output}/kept"))
    for table, component, stream, fields in (
        ("minutes", "open", "default", windows.results()),
        ("late", "seen", "late", ORDER),
        ("untimed", "seen", "untimed", ORDER),
    ):
        builder.set_bolt(f"append-{table}", AppendCommitter(table), 2).shuffle_grouping(component, stream)
        builder.set_state(table, DeltaRows(f"{output}/{table}", fields))
    return builder.build()


def times_said(_: Path, output: str) -> TransactionalTopology:
    flow, orders = flow_of("times", output)
    timed = orders.event_time("at", delay="60s", lateness="30s", close_at_end=True).distinct("id", within="90s")
    timed.late.append("late")
    timed.untimed.append("untimed")
    minutes = timed.group_by("shop").window("1m").agg(orders=Count(), ids=CountDistinct("id", values_max=10_000))
    minutes.append("minutes")
    minutes.upsert("kept")
    return flow.build()


# Totals of totals, a join with a table that changes, partitions.


def totals_built(_: Path, output: str) -> TransactionalTopology:
    builder = built("totals")
    shops = ReduceCommitter(
        "shops", Fields("shop: string"), values={"orders": Count(), "last": Last("id: long", by="price: long")}
    )
    sizes = ReduceCommitter(
        "sizes", Fields("last: long"), values={"shops": Count(), "mean": Mean("orders: long")}, diff="diff"
    )
    builder.set_committer_bolt("shops", shops, 2).fields_grouping("orders", Fields("shop"))
    builder.set_committer_bolt("sizes", sizes, 2).fields_grouping("shops", Fields("last"), "changes")
    builder.set_state("shops", shops.state(f"{output}/shops"))
    builder.set_state("sizes", sizes.state(f"{output}/sizes"))
    join = LookupJoin(
        "shop", state="shops", fields=ORDER, values=Fields("orders: long"), rename={"orders": "before"}, how="left"
    )
    builder.set_committer_bolt("join", join, 2).local_or_shuffle_grouping("orders")
    builder.set_bolt("known", AppendCommitter("known"), 2).local_or_shuffle_grouping("join")
    builder.set_state("known", DeltaRows(f"{output}/known", ORDER + Fields("before: long")))
    builder.set_bolt("by-shop", ReplaceCommitter("by_shop"), 2).fields_grouping("orders", Fields("shop"))
    builder.set_state("by_shop", DeltaRows(f"{output}/by_shop", ORDER, partition_by=["shop"]))
    return builder.build()


def totals_said(_: Path, output: str) -> TransactionalTopology:
    flow, orders = flow_of("totals", output)
    shops = orders.group_by("shop").agg(orders=Count(), last=Last("id", by="price")).upsert("shops")
    shops.changes.group_by("last").agg(shops=Count(), mean=Mean("orders")).upsert("sizes")
    orders.join(shops, "shop", values=["orders"], rename={"orders": "before"}, how="left").append("known")
    orders.replace("by_shop", partition="shop")
    return flow.build()


# Change events, and two streams without a bound.


def changes_built(_: Path, output: str) -> TransactionalTopology:
    builder = built("changes")
    apply = ApplyChanges(
        "latest",
        "graves",
        key=Fields("id: long"),
        values=Fields("shop: string", "at: timestamp"),
        sequence=Fields("price: long"),
        deleted="gone",
    )
    builder.set_committer_bolt("apply", apply, 2).fields_grouping("orders", Fields("id"))
    builder.set_state("latest", apply.state(f"{output}/latest"))
    builder.set_state("graves", apply.tombstones(f"{output}/_internal/graves"))
    return builder.build()


def changes_said(_: Path, output: str) -> TransactionalTopology:
    flow, orders = flow_of("changes", output)
    orders.apply_changes("latest", key="id", sequence="price", deleted="gone")
    return flow.build()


LEFT, RIGHT = Fields("id: long", "price: long"), Fields("order: long", "sum: long")


def sums() -> MemoryTransactionalSpout:
    rows = [(n * 5 % _size.keys, n) for n in range(_size.orders * 2 // 3)]
    return MemoryTransactionalSpout(rows, RIGHT, _size.each * 2 // 3)


def pairs_built(_: Path, output: str) -> TransactionalTopology:
    rows = [(id_, price) for id_, _, _, price, _ in rows_of_orders()]
    builder = TransactionalTopologyBuilder("pairs", "orders", MemoryTransactionalSpout(rows, LEFT, _size.each), 2)
    builder.add_spout("sums", sums(), 2)
    left = JoinStream("orders", key="id", fields=LEFT)
    join = StreamJoin("left", "right", left=left, right=JoinStream("sums", key="order", fields=RIGHT), how="left")
    joining = builder.set_committer_bolt("join", join, 2)
    joining.fields_grouping("orders", Fields("id")).fields_grouping("sums", Fields("order"))
    builder.set_state("left", join.left_table(f"{output}/_internal/left"))
    builder.set_state("right", join.right_table(f"{output}/_internal/right"))
    builder.set_bolt("append", AppendCommitter("pairs"), 2).local_or_shuffle_grouping("join")
    builder.set_state("pairs", DeltaRows(f"{output}/pairs", join.joined()))
    return builder.build()


def pairs_said(_: Path, output: str) -> TransactionalTopology:
    flow = Flow("pairs", output, parallelism=2)
    rows = [(id_, price) for id_, _, _, price, _ in rows_of_orders()]
    orders = flow.source("orders", MemoryTransactionalSpout(rows, LEFT, _size.each))
    orders.join(flow.source("sums", sums()), {"id": "order"}, how="left").append("pairs")
    return flow.build()


# The examples.


def payments_said(_: Path, output: str) -> TransactionalTopology:
    flow = Flow("payments", output, parallelism=1)
    orders = flow.source("orders", MemoryTransactionalSpout(payments.ORDERS, payments.ORDER, 10))
    paid = flow.source("payments", MemoryTransactionalSpout(payments.PAYMENTS, payments.PAYMENT, 10))
    timed, other = (
        each.event_time(time, delay="1m", close_at_end=True) for each, time in ((orders, "at"), (paid, "paid_at"))
    )
    timed.join(other, {"id": "order"}, upper="1h", rename={"order": "id_of_payment"}, how="left").drop(
        "id_of_payment"
    ).append("paid")
    return flow.build()


def named_said(folder: Path, output: str) -> TransactionalTopology:
    customers = folder / "customers"
    write_deltalake(customers, pa.table({"id": [0, 1, 2], "name": ["ann", "bob", "cid"]}), mode="ignore")
    flow = Flow("named-orders", output, parallelism=2)
    spout = MemoryTransactionalSpout(named_orders.ORDERS, Fields("order: long", "customer: long", "price: long"), 100)
    names = flow.reference("customers", DeltaReference(str(customers), key="id"))
    orders = flow.source("orders", spout, parallelism=1)
    buyer = orders.join(names, "customer", values=Fields("name: string"), rename={"name": "buyer"}, how="left")
    buyer.select("order", "price", "buyer").append("named")
    return flow.build()


def going_back_said(_: Path, output: str) -> TransactionalTopology:
    going_back.write_orders(Path(output) / "in")
    flow = Flow("orders-total", output)
    spout = FilesTransactionalSpout(f"{output}/in", format="csv", fields=going_back.ORDER, batch_files_max=1)
    orders = flow.source("orders", spout)
    orders.append("orders")
    doubled = orders.with_columns(cents="CASE WHEN cents > 700 THEN cents * 2 ELSE cents END")
    doubled.group_by("customer").agg(cents=Sum("cents")).upsert("totals")
    return flow.build()


def words_said(folder: Path, output: str) -> TransactionalTopology:
    texts = EXAMPLES["transactional_words"](folder, str(folder / "unused")) and folder / "texts"
    flow = Flow("transactional-words", output, parallelism=2)
    spout = FilesTransactionalSpout(
        transactional_words.all_files(str(texts)),
        Fields("line: string"),
        "text",
        batch_bytes=WORDS_BYTES,
    )
    words = flow.source("spout", spout).flat_map(_words_of, Fields("word: string"))
    counts = words.group_by("word").agg(count=Count()).upsert("word_counts")
    size = transactional_words.BUCKET_SIZE
    buckets = counts.changes.with_columns(bucket=pl.col("count") // size)
    buckets.group_by("bucket").agg(count=Count()).upsert("buckets")
    return flow.build()


def _words_of(row: Mapping[str, Any]) -> Sequence[tuple[str]]:
    return [(word.lower(),) for word in transactional_words._WORD.findall(row["line"])]


def clicks_said(_: Path, output: str) -> TransactionalTopology:
    flow = Flow("clickstream", output, parallelism=2)
    with reading_clicks():
        spout = clickstream.TransactionalKafkaSpout("memory", "clicks", clickstream.CLICK, until_end=True)
    clicks = flow.source("clicks", spout, bad="unreadable").with_columns(day="CAST(time AS DATE)")
    clicks.group_by("page").agg(clicks=Count(), bytes=Sum("bytes")).upsert("pages")
    visits = clicks.group_by("day", "user").agg(first=Min("time")).upsert("visits")
    visits.changes.group_by("day").agg(users=Count()).upsert("days")
    clicks.filter("status >= 500").select("time", "page", "user", "status").append("errors")
    return flow.build()


# Examples whose bolts do less than the flow, by hand, once more: with the steps of the flow.


class Dated(ArrowBatchBolt):
    output_fields = (clickstream.CLICK + Fields("day: date")).with_attempt()

    def execute(self, batch: pa.RecordBatch) -> None:
        self.collector.emit_batch(batch.append_column("day", pc.cast(batch["time"], pa.date32())))


class Failed(ArrowBatchBolt):
    output_fields = clickstream._ERROR.with_attempt()

    def execute(self, batch: pa.RecordBatch) -> None:
        self.collector.emit_batch(batch.filter(pc.greater_equal(batch["status"], 500)).select(list(clickstream._ERROR)))


def clicks_alike(_: Path, output: str) -> TransactionalTopology:
    """The example keeps each visit once, and adds up clicks in the same bolt; the flow tells changes of first visits."""
    with reading_clicks():
        spout = clickstream.TransactionalKafkaSpout(
            "memory", "clicks", clickstream.CLICK, dead_letter=f"{output}/unreadable", until_end=True
        )
    builder = TransactionalTopologyBuilder("clickstream", "clicks", spout, 2)
    builder.set_bolt("dated", Dated(), 2).local_or_shuffle_grouping("clicks")
    pages = ReduceCommitter("pages", Fields("page: string"), values={"clicks": Count(), "bytes": Sum("bytes: long")})
    builder.set_committer_bolt("pages", pages, 2).fields_grouping("dated", Fields("page"))
    visits = ReduceCommitter("visits", Fields("day: date", "user: string"), values={"first": Min("time: timestamp")})
    builder.set_committer_bolt("visits", visits, 2).fields_grouping("dated", Fields("day", "user"))
    days = ReduceCommitter("days", Fields("day: date"), values={"users": Count()}, diff="diff")
    builder.set_committer_bolt("days", days, 2).fields_grouping("visits", Fields("day"), "changes")
    for name, each in (("pages", pages), ("visits", visits), ("days", days)):
        builder.set_state(name, each.state(f"{output}/{name}"))
    builder.set_bolt("failed", Failed(), 2).local_or_shuffle_grouping("dated")
    builder.set_bolt("errors", AppendCommitter("errors"), 2).local_or_shuffle_grouping("failed")
    builder.set_state("errors", DeltaRows(f"{output}/errors", clickstream._ERROR))
    return builder.build()


def named_alike(folder: Path, output: str) -> TransactionalTopology:
    """The example appends with one task; those of a flow are as many for each step."""
    customers = folder / "customers"
    write_deltalake(customers, pa.table({"id": [0, 1, 2], "name": ["ann", "bob", "cid"]}), mode="ignore")
    spout = MemoryTransactionalSpout(named_orders.ORDERS, Fields("order: long", "customer: long", "price: long"), 100)
    builder = TransactionalTopologyBuilder("named-orders", "orders", spout)
    builder.set_reference("customers", DeltaReference(str(customers), key="id"))
    order, name = Fields("order: long", "customer: long", "price: long"), Fields("name: string")
    join = LookupJoin(
        "customer", reference="customers", fields=order, values=name, rename={"name": "buyer"}, how="left"
    )
    builder.set_bolt("join", join, 2).local_or_shuffle_grouping("orders")
    append = AppendCommitter("named", ["order", "price", "buyer"])
    builder.set_bolt("append", append, 2).local_or_shuffle_grouping("join")
    builder.set_state("named", DeltaRows(f"{output}/named", named_orders.NAMED))
    return builder.build()


class Doubled(ArrowBatchBolt):
    output_fields = going_back.ORDER.with_attempt()

    def execute(self, batch: pa.RecordBatch) -> None:
        cents = batch["cents"]
        doubled = pc.if_else(pc.greater(cents, 700), pc.multiply(cents, 2), cents)
        self.collector.emit_batch(pa.RecordBatch.from_arrays([batch["customer"], doubled], ["customer", "cents"]))


def going_back_alike(_: Path, output: str) -> TransactionalTopology:
    """The example adds up in the committer itself, tuple by tuple."""
    going_back.write_orders(Path(output) / "in")
    spout = FilesTransactionalSpout(f"{output}/in", format="csv", fields=going_back.ORDER, batch_files_max=1)
    builder = TransactionalTopologyBuilder("orders-total", "orders", spout)
    builder.set_bolt("orders-kept", AppendCommitter("orders")).local_or_shuffle_grouping("orders")
    builder.set_state("orders", DeltaRows(f"{output}/orders", going_back.ORDER))
    builder.set_bolt("doubled", Doubled()).local_or_shuffle_grouping("orders")
    totals = ReduceCommitter("totals", Fields("customer: string"), values={"cents": Sum("cents: long")})
    builder.set_committer_bolt("total", totals).fields_grouping("doubled", Fields("customer"))
    builder.set_state("totals", totals.state(f"{output}/totals"))
    return builder.build()


class Words(BasicBolt):
    output_fields = Fields("attempt", "word: string")

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        for word in transactional_words._WORD.findall(tuple["line"]):
            collector.emit((tuple.attempt, word.lower()))


class Buckets(ArrowBatchBolt):
    output_fields = Fields("attempt", "bucket: long", "diff: long")

    def execute(self, batch: pa.RecordBatch) -> None:
        bucket = pc.divide(batch["count"], transactional_words.BUCKET_SIZE)
        self.collector.emit_batch(pa.RecordBatch.from_arrays([bucket, batch["diff"]], ["bucket", "diff"]))


def words_alike(folder: Path, output: str) -> TransactionalTopology:
    """The example counts the words of a batch in the bolt that splits the lines."""
    texts = EXAMPLES["transactional_words"](folder, str(folder / "unused")) and folder / "texts"
    files = transactional_words.all_files(str(texts))
    spout = FilesTransactionalSpout(files, Fields("line: string"), "text", batch_bytes=WORDS_BYTES)
    builder = TransactionalTopologyBuilder("transactional-words", "spout", spout, 2)
    builder.set_bolt("words", Words(), 2).local_or_shuffle_grouping("spout")
    counts = ReduceCommitter("word_counts", Fields("word: string"), values={"count": Count()})
    builder.set_committer_bolt("counts", counts, 2).fields_grouping("words", Fields("word"))
    builder.set_bolt("buckets", Buckets(), 2).local_or_shuffle_grouping("counts", "changes")
    buckets = ReduceCommitter("buckets", Fields("bucket: long"), values={"count": Count()}, diff="diff")
    builder.set_committer_bolt("kept", buckets, 2).fields_grouping("buckets", Fields("bucket"))
    for name, each in (("word_counts", counts), ("buckets", buckets)):
        builder.set_state(name, each.state(f"{output}/{name}"))
    return builder.build()


@attrs.frozen
class Job:
    """A job in both forms, each made from a folder for its input and one for its tables, and its tables."""

    built: Callable[[Path, str], TransactionalTopology]
    said: Callable[[Path, str], TransactionalTopology]
    tables: Sequence[str]
    alike: Callable[[Path, str], TransactionalTopology] | None = None
    """The builder's with the steps of the flow, where bolts of the example do something else for the same tables."""


JOBS = {
    "rows": Job(rows_built, rows_said, ["dear"]),
    "times": Job(times_built, times_said, ["minutes", "kept", "late", "untimed"]),
    "totals": Job(totals_built, totals_said, ["shops", "sizes", "known", "by_shop"]),
    "changes": Job(changes_built, changes_said, ["latest"]),
    "pairs": Job(pairs_built, pairs_said, ["pairs"]),
    "clickstream": Job(EXAMPLES["clickstream"], clicks_said, ["pages", "errors", "days"], clicks_alike),
    "payments": Job(EXAMPLES["payments"], payments_said, ["paid"]),
    "named_orders": Job(EXAMPLES["named_orders"], named_said, ["named"], named_alike),
    "going_back": Job(EXAMPLES["going_back"], going_back_said, ["orders", "totals"], going_back_alike),
    "transactional_words": Job(EXAMPLES["transactional_words"], words_said, ["word_counts", "buckets"], words_alike),
}


def made(make: Callable[[Path, str], TransactionalTopology], folder: Path) -> TransactionalTopology:
    folder.mkdir(exist_ok=True)
    return make(folder, str(folder / "out"))
