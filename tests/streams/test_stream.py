"""Streams: what each word makes, and what is wrong with those that are wrong."""

import copy
import datetime as dt
import itertools
import re
import sqlite3
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from committers import AppendCommitter, Deduplicate, ReduceCommitter, TimerCommitter
from spouts import FilesTransactionalSpout
from state import DeltaReference, DeltaRows, DeltaState, KafkaState, MemoryState, SqlRows, SqlState, read_table
from tests.streams.flows import ORDER, memory, ran
from txtopo import ArrowBatchBolt, BasicBolt, Config, Fields
from txtopo.assembly.storage import metadata_dir_of
from txtopo.errors import TopologyError, TxtopoError, UnusedStreamWarning
from txtopo.files.folder import LocalFolder
from txtopo.streams import ArgMax, Count, CountDistinct, Flow, Last, Max, Mean, Sessions, Sliding, Sum, TopN, Tumbling
from txtopo.testing import run_inline

T = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


def order(number, secs=0, shop="Cork", price=1, paid=True):
    return number, shop, None if secs is None else T + secs * SECOND, price, paid


@pytest.fixture
def flow(tmp_path):
    return Flow("f", tmp_path / "out")


@pytest.fixture
def orders(flow):
    return flow.source("orders", memory([order(1)]))


@pytest.fixture
def timed(orders):
    return orders.event_time("at", delay="30s", lateness="20s")


class Untyped(BasicBolt):
    output_fields = Fields("attempt", "x")

    def execute(self, tuple, collector):
        pass


WIDE = Fields(
    "id: long",
    "at: timestamp",
    "tags: array<string>",
    "place: struct<town: string>",
    "amount: decimal(10,2)",
    "naive: timestamp_ntz",
)


def wide(flow):
    """Return a stream with fields of further types."""
    return flow.source("wide", memory([], WIDE))


class Alarm(TimerCommitter):
    output_fields = Fields("attempt", "shop: string", "time: timestamp")

    def on_rows(self, key, rows, old):
        latest = max(row["at"] for row in rows)
        self.set_timer(key, latest + 60 * SECOND)
        return latest

    def on_timer(self, key, time, old):
        if old + 60 * SECOND <= time:
            self.collector.emit((self.attempt, key, time))
        return old


ALARM = Alarm("seen", "timers", clock="orders-clock", key=Fields("shop: string"))

MISTAKES = [
    # Fields.
    (lambda f, o, t: o.filter("pirce > 1"), "filter: there is no field 'pirce'; did you mean 'price'?"),
    (lambda f, o, t: o.filter(pl.col("prices") > 1), "did you mean 'price'?"),
    (lambda f, o, t: o.filter("zzz > 1"), "the fields are id, shop, at, price, paid"),
    (lambda f, o, t: o.filter("price"), "is bigint; a condition is true or false"),
    (lambda f, o, t: o.filter("price + 1"), "a condition is true or false"),
    (lambda f, o, t: o.filter(lambda row: True), "is no expression; write pl.col('price') * 2"),
    (lambda f, o, t: o.filter(5), "is no expression"),
    (lambda f, o, t: o.filter("price >"), "is no expression in SQL"),
    (lambda f, o, t: o.filter(pl.col("price") > pl.col("price").mean()), "is not among the row-wise expressions"),
    (lambda f, o, t: o.filter("price = MAX(price)"), "group_by(…).agg(…) makes aggregates"),
    (lambda f, o, t: o.filter(pl.col("shop") > 5), "can't be evaluated"),
    (lambda f, o, t: o.select("shopp"), "did you mean 'shop'?"),
    (lambda f, o, t: o.select("shop", "shop"), "'shop' is selected twice"),
    (lambda f, o, t: o.select("shop", shop="price"), "'shop' is selected twice"),
    (lambda f, o, t: o.select(), "it selects nothing"),
    (lambda f, o, t: o.select(n=pl.col("price").sum()), "is not among the row-wise expressions"),
    (lambda f, o, t: o.select(pl.col("price").cum_sum()), "CumSum is not among the row-wise expressions"),
    (lambda f, o, t: o.select(pl.all()), "name each field"),
    (lambda f, o, t: o.select(x="price", price=pl.col("id")), "both renamed and made anew"),
    (lambda f, o, t: o.with_columns(), "it adds nothing"),
    (lambda f, o, t: o.with_columns("price * 2 AS n", n="price"), "'n' is there twice"),
    (lambda f, o, t: o.with_columns(n="pricee * 2"), "did you mean 'price'?"),
    (lambda f, o, t: o.with_columns(n=pl.col("shop").str.len_chars()), ".cast(pl.Int64)"),
    (lambda f, o, t: o.with_columns(n=pl.col("at") - pl.col("at")), "which Spark has not"),
    (lambda f, o, t: o.with_columns(n=pl.col("shop").cast(pl.Categorical)), ".cast(pl.String)"),
    (lambda f, o, t: o.with_columns(n=pl.col("price").shift(1)), "Shift is not among"),
    (lambda f, o, t: o.with_columns(n=pl.col("price").rank().over("shop")), "aggregates of a key"),
    (lambda f, o, t: o.with_columns(n=pl.len()), "Count() counts rows"),
    (lambda f, o, t: o.with_columns(n=pl.col("price").map_elements(abs, return_dtype=pl.Int64)), "map(f, fields)"),
    (lambda f, o, t: o.with_columns(n=pl.col("price") ** 2), "a power of integers may be too large"),
    (lambda f, o, t: o.with_columns(n=pl.col("shop").str.to_datetime()), "give it one"),
    (lambda f, o, t: o.drop("pric"), "did you mean 'price'?"),
    (lambda f, o, t: o.drop("id", "shop", "at", "price", "paid"), "it leaves no field"),
    (lambda f, o, t: o.drop(5), "there is no field 5"),
    (lambda f, o, t: o.rename({"pric": "p"}), "did you mean 'price'?"),
    (lambda f, o, t: o.rename({"price": "id"}), "field 'id' appears twice"),
    (lambda f, o, t: o.rename("price"), "names is 'price'; give"),
    (lambda f, o, t: o.map(lambda row: row, Fields("n")), "field 'n' has no type"),
    (lambda f, o, t: o.map(lambda row: row, Fields()), "at least one field"),
    (lambda f, o, t: o.map(lambda row: row, "n: long"), "write fields=Fields('name: string')"),
    (lambda f, o, t: o.map("price", Fields("n: long")), "give a function"),
    (lambda f, o, t: o.flat_map(None, Fields("n: long")), "give a function"),
    (lambda f, o, t: o.map_batches(5, Fields("n: long")), "give a function"),
    # Several streams.
    (lambda f, o, t: o.union(o.select("id")), "give both the same fields"),
    (lambda f, o, t: o.union(o.with_columns(price="CAST(price AS DOUBLE)")), "give both the same fields"),
    (lambda f, o, t: o.union(Flow("g", "x").source("o", memory([]))), "of different flows"),
    (lambda f, o, t: o.union("orders"), ""),
    (lambda f, o, t: o.late, "source makes no stream 'late'"),
    (lambda f, o, t: t.filter("id > 1").late, "filter makes no stream 'late'"),
    (lambda f, o, t: t.distinct("id")["lat"], "did you mean 'late'?"),
    (lambda f, o, t: o.bad, "source makes no stream 'bad-records'"),
    (lambda f, o, t: o.append("a") or o.append("a"), "step 'append-a' is there already, of test_stream.py, line"),
    (lambda f, o, t: f.source("orders", memory([])), "step 'orders' is there already"),
    (lambda f, o, t: o.append("a") or o.group_by("id").agg(n=Count()).upsert("a"), "table 'a' is there already"),
    # Clocks.
    (lambda f, o, t: o.distinct("id"), ".event_time('at', delay='30s') before distinct()"),
    (lambda f, o, t: o.group_by("shop").window("1m"), ".event_time('at', delay='30s') before window()"),
    (lambda f, o, t: o.drop("at").group_by("shop").window("1m"), "the stream has no clock"),
    (lambda f, o, t: o.event_time("price", delay="1s"), "field 'price' is bigint; an event time is a timestamp"),
    (lambda f, o, t: o.event_time("att", delay="1s"), "did you mean 'at'?"),
    (lambda f, o, t: o.event_time("at", delay="1 second"), "delay is '1 second'; write a timedelta"),
    (lambda f, o, t: o.event_time("at", delay="soon"), "such as '30s'"),
    (lambda f, o, t: o.event_time("at", delay=30), "delay is 30; give a timedelta or a string"),
    (lambda f, o, t: o.event_time("at", delay=-SECOND), "delay"),
    (lambda f, o, t: o.event_time("at", delay="1s", idle_after="0s"), "idle_after"),
    (lambda f, o, t: o.event_time("at", delay="1s", partition="part"), "there is no field 'part'"),
    (lambda f, o, t: t.event_time("at", delay="1s"), "step 'orders-clock' is there already"),
    (lambda f, o, t: t.drop("at").distinct("id"), "the event time 'at' is no field any more"),
    (lambda f, o, t: t.select("id").group_by("id").window("1m"), "the event time 'at' is no field any more"),
    (lambda f, o, t: t.with_columns(at=pl.col("at").dt.truncate("1h")), "it changes 'at'"),
    (lambda f, o, t: t.with_columns(x="at").select("id", at="x").distinct("id"), "'at' is another field than the event"),
    (lambda f, o, t: t.select("id").with_columns(at="id").distinct("id"), "'at' is another field than the event"),
    (
        lambda f, o, t: t.with_columns(x="at").select("id", at="x").apply_changes("a", key="id", sequence="at", history="h"),
        "name the field with the time of events",
    ),
    (lambda f, o, t: t.map(lambda row: row, Fields("n: long")).distinct("n"), "no field any more"),
    (lambda f, o, t: t.distinct("ids"), "did you mean 'id'?"),
    (lambda f, o, t: t.distinct([]), "it names no field"),
    (lambda f, o, t: t.distinct(["id", "id"]), "field 'id' is named twice"),
    (lambda f, o, t: t.distinct("id", within="0s"), "how long is a key remembered?"),
    (lambda f, o, t: o.event_time("at", delay="1s").distinct("id"), "within='1h'"),
    (lambda f, o, t: t.distinct("id").distinct("shop"), "step 'orders-distinct' is there already"),
    # Groups and windows.
    (lambda f, o, t: o.group_by("shops"), "did you mean 'shop'?"),
    (lambda f, o, t: o.group_by("shop", "shop"), "named twice"),
    (lambda f, o, t: o.group_by().agg(n=Count()), "totals need a key"),
    (lambda f, o, t: o.group_by("shop").agg(), "it aggregates nothing"),
    (lambda f, o, t: o.group_by("shop").agg(n=Sum("prices")), "n: there is no field 'prices'; did you mean 'price'?"),
    (lambda f, o, t: o.group_by("shop").agg(n=Sum("shop")), "shop"),
    (lambda f, o, t: o.group_by("shop").agg(n=Sum), "is no aggregate; write for example n=Sum('price')"),
    (lambda f, o, t: o.group_by("shop").agg(n="price"), "is no aggregate"),
    (lambda f, o, t: o.group_by("shop").agg(shop=Count()), "'shop' is a field of the key"),
    (lambda f, o, t: o.group_by("shop").agg(n=Last("price", by="time")), "there is no field 'time'"),
    (lambda f, o, t: o.group_by("shop").agg(n=Count(where="pai")), "did you mean 'paid'?"),
    (lambda f, o, t: t.group_by("shop").window("1x"), "the size of a window is '1x'"),
    (lambda f, o, t: t.group_by("shop").window("0s"), "the size of a window"),
    (lambda f, o, t: t.group_by("shop").window(60), "give a Window, a timedelta or a string"),
    (lambda f, o, t: t.group_by("shop").window("1m", lateness="x"), "lateness is 'x'"),
    (lambda f, o, t: t.group_by().window(Sessions(SECOND)).agg(n=Count()), "sessions are those of a key"),
    (lambda f, o, t: t.group_by("shop").window("1m").agg(window_start=Count()), "window_start"),
    (
        lambda f, o, t: t.group_by("shop").window(Sessions(SECOND)).agg(n=Count()).upsert("x"),
        "a session's start and end change as it grows",
    ),
    (
        lambda f, o, t: [t.group_by("shop").window("1m").agg(n=Count()).append(name) for name in "ab"],
        "step 'orders-by-shop-1m' is there already",
    ),
    (lambda f, o, t: t.group_by("shop").window("1m").agg(n=Count()).filter("m > 1"), "there is no field 'm'"),
    (lambda f, o, t: o.group_by("shop").agg(n=Count()).append("x"), "totals change with each transaction"),
    (lambda f, o, t: o.group_by("shop").agg(n=Count()).filter("n > 1"), "write .upsert('table')"),
    (lambda f, o, t: o.explode("shop"), "field 'shop' is string; only an array has elements"),
    (lambda f, o, t: o.explode("shops"), "did you mean 'shop'?"),
    # Tables and components.
    (lambda f, o, t: o.append("a/b"), "is no name of a table"),
    (lambda f, o, t: o.append("_internal"), "is no name of a table"),
    (lambda f, o, t: o.append(5), "table is 5; give a string"),
    (lambda f, o, t: o.replace("a", partition="shp"), "did you mean 'shop'?"),
    (lambda f, o, t: o.apply_changes("a", key="idd", sequence="at"), "did you mean 'id'?"),
    (lambda f, o, t: o.apply_changes("a", key="id", sequence="at", deleted="gone"), "there is no field 'gone'"),
    (lambda f, o, t: o.through("x", abs), "give a Bolt"),
    (lambda f, o, t: o.through("x", Untyped()), "give each field a type"),
    (lambda f, o, t: o.through("orders", AppendCommitter("x")), "step 'orders' is there already"),
    (lambda f, o, t: o.to("x", 5), "state is 5"),
    (lambda f, o, t: o.to("x", KafkaState("a:1", "t")), "the KafkaState has key: string, value: string, but the stream has id: bigint"),
    (lambda f, o, t: o.to("x", SqlRows("sqlite:///x", "t", Fields("id: string"))), "the SqlRows has id: string"),
    (lambda f, o, t: o.group_by("shop").agg(n=Count()).to("x", SqlState("sqlite:///x", "t", Fields("shop: string"), Fields("m: long"))), "but the table of these groups has shop: string, n: bigint"),
    (lambda f, o, t: f.source("x", AppendCommitter("a")), "is no spout of transactional topologies"),
    (lambda f, o, t: f.source("x", memory([], Fields("line"))), "give each a type"),
    (lambda f, o, t: f.source("x", memory([]), bad="b"), "a MemoryTransactionalSpout has no bad records"),
    (lambda f, o, t: f.source("x", FilesTransactionalSpout("in", ORDER, "parquet"), bad="b"), "leave it out for Parquet"),
    (lambda f, o, t: f.source("x", FilesTransactionalSpout("in", ORDER, dead_letter="d"), bad="b"), "has a table of bad records"),
    # Joins.
    (lambda f, o, t: o.join(o, "id", upper="1m"), ".event_time('at', delay='30s') before join()"),
    (lambda f, o, t: t.join(t, "idd", upper="1m"), "did you mean 'id'?"),
    (lambda f, o, t: t.join(t, {"id": "idd"}, upper="1m"), "did you mean 'id'?"),
    (lambda f, o, t: t.join(t, "id", lower="1m"), "how near are both in time, at most?"),
    (lambda f, o, t: t.join(t, "id", upper="1m", ttl="1h"), "leave out ttl="),
    (lambda f, o, t: o.join(o.select("id"), "id", how="full"), "a full join needs a bound in time"),
    (lambda f, o, t: o.join(o.select("id"), "id", ttl="1h"), ".event_time('at', delay='30s') before join()"),
    (lambda f, o, t: o.join(o.group_by("id").agg(n=Count()).upsert("n").changes, "id"), "a stream of changes is joined with tables only"),
    (lambda f, o, t: o.group_by("at").agg(n=Count()).upsert("n").changes.event_time("at", delay="1s"), "a stream of changes has no event time"),
    (lambda f, o, t: t.join(t, "id", upper="1m", lower="1h"), "less than lower"),
    (lambda f, o, t: t.join(t, "id", upper="1m"), "both streams have a field 'shop'"),
    (lambda f, o, t: t.join(o.event_time("at", delay="1s", ahead_max="1h", name="x"), "id", upper="1m"), "the same ahead_max="),
    (lambda f, o, t: t.join(t, {"id": "shop"}, upper="1m"), "the keys of the two streams must have the same types"),
    (lambda f, o, t: t.join(t, "id", upper="1m", values=["shop"]), "values= is for tables"),
    (lambda f, o, t: t.join(t, "id", upper="1m", how="outer"), "how is 'outer'"),
    (lambda f, o, t: o.join(f.reference("r", DeltaReference("r", key="id")), "id"), "which fields of the reference"),
    (lambda f, o, t: o.join(f.reference("r", DeltaReference("r", key="id")), ["id", "shop"], values=Fields("n: long")), "on= names a field for each"),
    (lambda f, o, t: o.join(f.reference("r", DeltaReference("r", key="id")), "id", values=Fields("n: long"), upper="1m"), "a table has no times"),
    (lambda f, o, t: o.join(o.group_by("id").agg(n=Count()).upsert("n"), "id", values=["m"]), "there is no field 'm'"),
    (lambda f, o, t: o.join("customers", "id"), "other is 'customers'"),
    (lambda f, o, t: o.group_by("id").agg(n=Count()).upsert("n").late, "upsert makes no stream 'late'"),
    (lambda f, o, t: o.group_by("id").agg(n=Count()).upsert("n").changes.group_by("n").agg(m=Max("id")).upsert("x"), "Count()"),
    (lambda f, o, t: o.through("x", ALARM, by="shop"), "before through()"),
    # Words that are not there.
    (lambda f, o, t: o.where("price > 1"), "a Stream has no 'where'; write filter(…)"),
    (lambda f, o, t: o.withColumn("n", "price"), "did you mean 'with_columns'?"),
    (lambda f, o, t: o.groupBy("shop"), "did you mean 'group_by'?"),
    (lambda f, o, t: o.withWatermark("at", "30 seconds"), "write event_time(field, delay='30s')"),
    (lambda f, o, t: o.dropDuplicates(["id"]), "write distinct(key)"),
    (lambda f, o, t: t.window("1m"), "write group_by(…).window('1m').agg(…)"),
    (lambda f, o, t: o.upsert("totals"), "write group_by(…).agg(…).upsert('table')"),
    (lambda f, o, t: o.writeStream, "write append('table')"),
    (lambda f, o, t: o.orderBy("price"), "a stream has no order and no end"),
    (lambda f, o, t: o.group_by("shop").sum("price"), "a Grouped has no 'sum'; write agg(name=Sum('field'))"),
    (lambda f, o, t: t.group_by("shop").windows("1m"), "did you mean 'window'?"),
    (lambda f, o, t: t.group_by("shop").window("1m").agg(n=Count()).window("1h"), "an Aggregated has no 'window'"),
    (lambda f, o, t: o.group_by("id").agg(n=Count()).upsert("n").change, "a Table has no 'change'; did you mean 'changes'?"),
    (lambda f, o, t: f.read("orders"), "a Flow has no 'read'"),
    # Arguments.
    (lambda f, o, t: o.event_time("at"), "event_time: missing a required argument: 'delay'"),
    (lambda f, o, t: o.event_time("at", delay="1s", latenes="1s"), "did you mean 'lateness'?"),
    (lambda f, o, t: o.join(o.select("id")), "missing a required argument: 'on'"),
    (lambda f, o, t: o.append("a", partition="shop"), "a DeltaRows has no option 'partition'; did you mean 'partition_by'?"),
    (lambda f, o, t: o.group_by("id").agg(n=Count()).upsert("a", deletion_vector=True), "did you mean 'deletion_vectors'?"),
    (lambda f, o, t: o.group_by("id").agg(n=Count()).upsert("a", ttl="1d"), ".event_time('at', delay='30s') before upsert()"),
    (lambda f, o, t: o.group_by(pl.col("shop")), "is no name of a field; write each name as a text, such as 'id'"),
    (lambda f, o, t: o.group_by(["shop", "id"]), "is no name of a field"),
    (lambda f, o, t: o.group_by("shop").agg(Count()), "Count has no name; write for example agg(orders=Count())"),
    (lambda f, o, t: o.preview(0), "rows is 0"),
    (lambda f, o, t: o.union([o]), "is no stream"),
    (lambda f, o, t: o.append("_txtopo"), "is no name of a table"),
    (lambda f, o, t: o.append("_delta_log"), "is no name of a table"),
    (lambda f, o, t: o.append("b") or f.source("x", FilesTransactionalSpout("in", ORDER), bad="b"), "table 'b' is there already"),
    (lambda f, o, t: f.source("x", FilesTransactionalSpout("in", ORDER), bad="b").append("b"), "table 'b' is there already"),
    (lambda f, o, t: f.source("x", FilesTransactionalSpout("in", ORDER), bad="_internal"), "is no name of a table"),
    (lambda f, o, t: [o.select("id").to(name, DeltaRows("out/t", Fields("id: long"))) for name in "ab"], "folder 'out/t' is there already"),
    (lambda f, o, t: o.select(["id", "shop"]), "write each as an argument of its own"),
    (lambda f, o, t: o.with_columns(n=pl.lit(float("nan"))), "write .is_nan()"),
    # What would mean something else than it says.
    (lambda f, o, t: o.filter(pl.col("id").is_in(pl.col("price"))), "looks a value up in a whole column"),
    (lambda f, o, t: o.with_columns(n=pl.col("id").replace(pl.col("price"), pl.col("id"))), "looks a value up in a whole column"),
    (lambda f, o, t: o.filter("at > NOW()"), "has the time at which it is written"),
    (lambda f, o, t: o.filter("at > CURRENT_TIMESTAMP"), "has the time at which it is written"),
    (lambda f, o, t: o.filter("at > '2026-03-01'"), "CAST('2026-03-01' AS TIMESTAMPTZ)"),
    (lambda f, o, t: o.filter(pl.col("at") > dt.datetime(2026, 3, 1)), "write datetime(2026, 3, 1, tzinfo=UTC)"),  # noqa: DTZ001
    (lambda f, o, t: o.filter('shop = "Cork"'), "a text has single quotes in SQL: 'Cork'"),
    (lambda f, o, t: o.filter("id = 1 & price = 2"), "compares a number with a boolean"),
    (lambda f, o, t: o.filter("paid = 1"), "compares a number with a boolean"),
    (lambda f, o, t: wide(f).filter("tags = 'a'"), "compares an array with a text; .list.contains(…) asks for an element"),
    (lambda f, o, t: wide(f).filter(pl.col("place") == "a"), "compares a struct with a text"),
    (lambda f, o, t: wide(f).filter(pl.col("place").struct.field("twn") == "a"), "can't be evaluated: twn"),
    (lambda f, o, t: wide(f).filter(pl.col("naive") > pl.col("at")), "compares a time with one without a time zone"),
    (lambda f, o, t: wide(f).with_columns(n=pl.col("amount") / 3 * pl.col("amount") / pl.col("amount")), "a quotient of decimals"),
    (lambda f, o, t: wide(f).with_columns(n=pl.col("tags").explode()), "stream.explode('field')"),
    (lambda f, o, t: wide(f).group_by("place").agg(n=Count()), "whose values have no reliable equality"),
    (lambda f, o, t: wide(f).apply_changes("a", key="id", sequence="place"), "which has no order"),
    (lambda f, o, t: wide(f).apply_changes("a", key="id", sequence="at", deleted="tags"), "field 'tags' is array<string>, not boolean"),
    (lambda f, o, t: wide(f).apply_changes("a", key="id", sequence="at", unchanged="naive"), "not array<string>"),
    (lambda f, o, t: wide(f).apply_changes("a", key="id", sequence="at", ttl="1d"), "before apply_changes()"),
    (lambda f, o, t: o.with_columns(n=pl.when(pl.col("paid")).then(1).otherwise(pl.col("shop"))), "is now a text, now a number"),
    (lambda f, o, t: o.with_columns(n="COALESCE(price, 'none')"), "is now a text, now a number"),
    (lambda f, o, t: o.with_columns(n=pl.col("price").rank()), "agg() has Last, LastN and TopN of a key"),
    (lambda f, o, t: o.with_columns(n=pl.col("price").sort()), "no row is before another"),
    (lambda f, o, t: o.with_columns(n=pl.col("price").shuffle()), "a replay must make the same of a row"),
    (lambda f, o, t: o.filter(pl.col("id").is_first_distinct()), "stream.distinct(key)"),
    (lambda f, o, t: o.with_columns(n=pl.col("price").fill_null(strategy="mean")), "fill_null() with a value"),
    (lambda f, o, t: o.with_columns(n=pl.lit(pl.Series([1, 2]))), "a column of values belongs to no row"),
    (lambda f, o, t: o.with_columns(n=pl.Series([1, 2])), "a Series is no expression"),
    (lambda f, o, t: o.with_columns(attempt="id"), "each tuple has a field 'attempt' of its own"),
    (lambda f, o, t: o.group_by("shop").agg(n=Count(where="shop")), "n: field 'shop' is string, not boolean"),
    (lambda f, o, t: o.group_by("shop").agg(n=Sum("price * 2")), "an expression comes before: with_columns(x='price * 2')"),
    (lambda f, o, t: o.group_by("id").agg(diff=Count()).upsert("n"), "changes of totals have a field 'diff' of their own"),
    (lambda f, o, t: t.group_by("shop").window("1m").window("1h"), "it is divided by windows already"),
    (lambda f, o, t: t.union(o).group_by("shop").window("1m"), "write union() before event_time()"),
    (lambda f, o, t: o.join(o.group_by("shop").agg(n=Count()).upsert("n"), {"id": "shop"}), "the key of 'n' is shop: string, but on= names id: bigint"),
    (lambda f, o, t: o.join(o.group_by("id").agg(price=Sum("price")).upsert("n"), "id"), "rename={'price': 'n_price'}"),
    (lambda f, o, t: o.group_by("id").agg(n=Count()).upsert("n").changes.distinct("id"), "a stream of changes has no event time"),
    (lambda f, o, t: o.group_by("id").agg(n=Count()).upsert("n").changes.select("n"), "keep it, or filter('diff > 0') before"),
    (lambda f, o, t: o.group_by("id").agg(n=Count()).upsert("n").changes.rename({"diff": "d"}), "'diff' says whether a row of changes is taken back"),
    (lambda f, o, t: o.group_by("id").agg(n=Count()).upsert("n").changes.apply_changes("c", key="id", sequence="n"), "changes of the table have a field 'diff' of their own"),
    # As those write who come from PySpark.
    (lambda f, o, t: t.group_by("shop").window("1 minute"), "such as '30s'; did you mean '1m'?"),
    (lambda f, o, t: t.group_by("shop").window("5 minutes", "1 minute"), "it takes window, lateness, name, those after the first by name"),
    (lambda f, o, t: o.event_time("at", delay="10 seconds"), "did you mean '10s'?"),
    (lambda f, o, t: t.distinct("id", within="2 Days"), "did you mean '2d'?"),
    (lambda f, o, t: t.distinct("id", within="250 milliseconds"), "did you mean '250ms'?"),
    (lambda f, o, t: t.distinct("id", "shop"), "it takes key, within, name"),
    (lambda f, o, t: o.filter(o.price > 1), "a Stream has no 'price'; a field is 'price', or pl.col('price') in an expression"),
    (lambda f, o, t: o["price"], "'price' is a field, and no other stream"),
    (lambda f, o, t: o.columns, "write fields"),
    (lambda f, o, t: o.printSchema(), "write fields"),
    (lambda f, o, t: o.withColumnRenamed("price", "cost"), "write rename({'old': 'new'})"),
    (lambda f, o, t: o.fillna(0), "pl.col('x').fill_null(0)"),
    (lambda f, o, t: o.agg(n=Count()), "write group_by(…).agg(…), or group_by().window('1m').agg(…) for all rows"),
    (lambda f, o, t: o.repartition(8), "write Flow(…, parallelism=4)"),
    (lambda f, o, t: o.foreach(print), "write through('name', bolt)"),
    (lambda f, o, t: o.group_by("shop").applyInPandas(abs, "n long"), "write through('name', committer, by=key)"),
    (lambda f, o, t: f.start(), "a Flow has no 'start'; write run()"),
    (lambda f, o, t: f.readStream, "write source('name', spout)"),
    (lambda f, o, t: o.group_by("price * 2"), "did you mean 'price'?"),
    (lambda f, o, t: o.with_columns(n="price / 2").group_by("n").agg(n2=Count()), "whose values have no reliable equality"),
    (lambda f, o, t: o.group_by("shop").agg({"price": "sum"}), "dict has no name"),
    (lambda f, o, t: o.group_by("shop").agg(n=pl.col("price").sum()), "is no aggregate; write for example n=Sum('price')"),
    (lambda f, o, t: o.group_by("shop").agg(n=Sum("paid")), "Sum needs a number, but field 'paid' is boolean"),
    (lambda f, o, t: o.with_columns(n="ROW_NUMBER() OVER (PARTITION BY shop ORDER BY at)"), "aggregates of a key"),
    (lambda f, o, t: o.with_columns(n="SUM(price)"), "group_by(…).agg(…) makes aggregates"),
    (lambda f, o, t: o.with_columns(n="RANDOM()"), "is no expression in SQL"),
    (lambda f, o, t: o.filter("id IN (SELECT id FROM other)"), "is no expression in SQL"),
    (lambda f, o, t: o.rename({"price": "txid"}).append("a"), "'txid', which txtopo adds itself; rename the field"),
    (lambda f, o, t: o.rename({"price": "attempt"}), "each tuple has a field 'attempt' of its own"),
    (lambda f, o, t: o.with_columns(Price="price * 2").append("a"), "column 'price' would be in the table twice"),
    (lambda f, o, t: o.join(Flow("g", "x").source("q", memory([])).group_by("id").agg(n=Count()).upsert("a"), "id"), "both are of different flows, 'f' and 'g'"),
    (lambda f, o, t: o.join(o.select("id"), "id", how="left_outer"), "how is 'left_outer'; give 'inner' or 'left'"),
    (lambda f, o, t: o.join(o.group_by("shop").agg(n=Count()), "shop"), "write .upsert('table')"),
    (lambda f, o, t: t.through("x", ALARM), "write through('x', …, by=['shop'])"),
    (lambda f, o, t: t.through("x", ALARM, by="id"), "Alarm keeps something for each shop, so one task must have all its rows"),
    (lambda f, o, t: t.through("x", ALARM, by=["shop", "id"]), "write through('x', …, by=['shop'])"),
    (lambda f, o, t: o.through("x", ReduceCommitter("a", ["shop", "id"], values={"n": Count()}), by="price"), "by=['shop', 'id'])"),
    (lambda f, o, t: t.through("x", Deduplicate("a", clock="c", time="at", key="id", within=dt.timedelta(1), fields=t.fields)), "by=['id'])"),
    (lambda f, o, t: o.append("a") or f.run({"topology.max.spout.pendin": 3}), "run: there is no setting 'topology.max.spout.pendin'; did you mean"),
    (lambda f, o, t: o.append("a") or f.run("local[2]"), "run: config is 'local[2]'"),
    # What only shows when all was said.
    (lambda f, o, t: f.build(), "the flow writes nothing"),
    (lambda f, o, t: Flow("g", "out").build(), "the flow has no source"),
    (lambda f, o, t: o.through("x", AppendCommitter("nowhere")) and f.build(), "state 'nowhere', which is not set"),
    (lambda f, o, t: o.append("a", partition_by="shp") or f.build(), "shp"),
    (lambda f, o, t: o.to("a", DeltaState("x", Fields("id: long"), Fields("n: long"))) or f.build(), "'a'"),
    (lambda f, o, t: Flow("", "out").source("o", memory([])).append("a") or f.build(), ""),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "words"), [m for m in MISTAKES if m[1]], ids=itertools.count())
def test_mistakes(wrong, words, flow, orders, timed):
    """A flow that is wrong is refused before Spark starts, with the user's line, and what would be right."""
    with pytest.raises(TopologyError) as raised:
        wrong(flow, orders, timed)
    message = str(raised.value)
    assert words in message
    assert message.startswith(f"{Path(__file__).name}, line ") or "the flow" in message
    assert "lambda f, o, t" in message or "\n" in message or "the flow" in message


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda o: o.with_columns(n="price * 9223372036854775807").append("a"), "an integer is too large in"),
        (lambda o: o.with_columns(n="CAST(shop AS BIGINT)").append("a"), "conversion from `str` to `i64` failed"),
        (lambda o: o.filter("price > 0").map(lambda row: row.update(n=1), Fields("n: long")).append("a"), "returned None"),
        (lambda o: o.map(lambda row: {**row, "n": 1}, Fields("n: long")).append("a"), "which is no row of n"),
        (lambda o: o.flat_map(lambda row: row["shop"], Fields("letter: string")).append("a"), "returned 'C', which is no row"),
        (lambda o: o.map_batches(lambda rows: rows.to_pylist(), Fields("n: long")).append("a"), "returned a list; return a table"),
        (lambda o: o.with_columns(shop="NULLIF(shop, 'Cork')").group_by("shop").agg(n=Count()).upsert("a"), "a key is null"),
        (lambda o: o.with_columns(at="CASE WHEN paid THEN NULL ELSE at END").apply_changes("a", key="id", sequence="at"), "whose 'at' is null"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_mistakes_that_only_rows_show(flow, wrong, words):
    """They stop the run with the component's name and the user's line; nothing is written."""
    wrong(flow.source("orders", memory([order(1), order(2, price=7)])))
    with pytest.raises(TxtopoError) as raised:
        run_inline(flow.build())
    assert words in str(raised.value)
    assert re.search(rf"\nwritten in {Path(__file__).name}, line \d+: \(lambda o: ", str(raised.value))
    assert not Path(flow._graph.table("a")).exists() or read_table(flow._graph.table("a")).num_rows == 0


def test_a_select_is_no_bolt(flow, orders):
    """Steps that only select are done by what appends, with other names and the same field twice; not if a bolt is there anyway."""
    orders.select("price", "id").rename({"id": "number"}).select("number", a="price", b="price").append("few")
    shown = orders.select("id", "shop")
    shown.append("shown")
    shown.select("shop").append("shops")
    orders.filter("price > 0").select("id").append("dear")
    orders.union(orders).select("price").append("twice")
    few, shown, shops, dear, twice = ran(flow, "few", "shown", "shops", "dear", "twice")
    assert few == [{"number": 1, "a": 1, "b": 1}]
    assert (shown, shops, dear, twice) == (
        [{"id": 1, "shop": "Cork"}],
        [{"shop": "Cork"}],
        [{"id": 1}],
        [{"price": 1}] * 2,
    )
    rows = {"append-shown-rows", "append-dear-rows"}
    assert {each for each in ids(flow) if each.endswith("-rows")} >= rows
    assert "append-few-rows" not in ids(flow)


def test_an_unused_stream(flow, orders):
    """What nothing takes is not run, and a warning has its line."""
    orders.append("all")
    orders.filter("price > 1")
    with pytest.warns(UnusedStreamWarning, match=r"test_stream.py, line \d+: nothing takes what filter makes"):
        topology = flow.build()
    assert [component.id for component in topology.plan.components] == ["orders", "append-all"]


def test_unused_aggregates(flow, orders, timed):
    """The same of totals and windows without a table."""
    orders.append("all")
    orders.group_by("shop").agg(n=Count())
    timed.group_by("shop").window("1m").agg(n=Count())
    with pytest.warns(UnusedStreamWarning, match="nothing takes what agg makes") as warned:
        flow.build()
    assert len([each for each in warned if "agg makes" in str(each.message)]) == 2


def ids(flow):
    return {component.id for component in flow.build().plan.components}


ROWS = [
    order(1, 0),
    order(2, 10, "Bonn", 5),
    order(1, 12),
    order(3, 70),
    order(4, 200, price=7),
    order(5, 0),
    order(6, None),
    order(7, 400),
]


def test_distinct_windows_and_totals(flow):
    """Each order once; minutes when they close; what is late or has no time beside them."""
    orders = (
        flow.source("orders", memory(ROWS))
        .event_time("at", delay="30s", lateness="20s", close_at_end=True)
        .distinct("id")
    )
    orders.late.append("late")
    orders.untimed.append("untimed")
    shops = orders.group_by("shop")
    shops.window("1m").agg(orders=Count(), paid=Sum("price")).select("window_start", "orders", "paid", "shop").append(
        "minutes"
    )
    shops.agg(orders=Count(), mean=Mean("price"), best=Max("price"), last=Last("id", by="at")).upsert("totals")
    late, untimed, minutes, totals = ran(flow, "late", "untimed", "minutes", "totals")
    assert [row["id"] for row in late] == [5]
    assert [row["id"] for row in untimed] == [6]
    assert sorted((row["shop"], row["window_start"] - T, row["orders"], row["paid"]) for row in minutes) == [
        ("Bonn", 0 * SECOND, 1, 5), ("Cork", 0 * SECOND, 1, 1), ("Cork", 60 * SECOND, 1, 1), ("Cork", 180 * SECOND, 1, 7), ("Cork", 360 * SECOND, 1, 1),
    ]  # fmt: skip
    assert [(row["shop"], row["orders"], row["mean_sum"], row["mean_count"], row["best"], row["last"]) for row in totals] == [
        ("Bonn", 1, 5, 1, 5, 2), ("Cork", 4, 10, 4, 7, 7),
    ]  # fmt: skip


def test_windows_kept_up_to_date(flow):
    """upsert() of windows has them before they close, and its late rows besides."""
    orders = flow.source("orders", memory(ROWS)).event_time("at", delay="5s")
    minutes = (
        orders.group_by("shop")
        .window(Sliding(60 * SECOND, 60 * SECOND))
        .agg(orders=Count(), shops=CountDistinct("shop", values_max=9))
    )
    minutes.upsert("minutes").late.append("late")
    minutes, late = ran(flow, "minutes", "late")
    assert [row["orders"] for row in minutes if row["shop"] == "Cork"] == [2, 1, 1, 1]
    assert [row["orders"] for row in late] == [1]


def test_a_window_of_all_rows(flow):
    """A group of no key is one group."""
    orders = flow.source("orders", memory(ROWS)).event_time("at", delay="1h", close_at_end=True)
    orders.group_by().window(Tumbling(3600 * SECOND)).agg(orders=Count()).append("hours")
    assert [row["orders"] for row in ran(flow, "hours")[0]] == [7]


def test_results_go_on_as_a_stream(flow):
    """Closed windows are a stream like others: filtered, appended twice, given a clock and aggregated again."""
    orders = flow.source("orders", memory(ROWS)).event_time("at", delay="30s", close_at_end=True)
    minutes = orders.group_by("shop").window("1m").agg(orders=Count())
    minutes.append("minutes")
    minutes.filter("orders > 1").append("busy")
    hours = minutes.event_time("window_start", delay="1h", close_at_end=True)
    hours.group_by("shop").window("1h").agg(minutes=Count(), orders=Sum("orders")).append("hours")
    _, busy, hours = ran(flow, "minutes", "busy", "hours")
    assert [row["orders"] for row in busy] == [3]
    assert [(row["shop"], row["minutes"], row["orders"]) for row in hours] == [("Bonn", 1, 1), ("Cork", 4, 6)]


def test_union(flow):
    """Rows of several streams, whatever the order of their fields, with one clock above or below."""
    one, other = (
        flow.source(name, memory([order(number, number)], size=1)) for name, number in (("one", 1), ("other", 2))
    )
    both = one.union(other.select("paid", "price", "at", "shop", "id")).event_time("at", delay="1s", close_at_end=True)
    both.append("rows")
    both.group_by("shop").window("1m").agg(n=Count()).append("windows")
    rows, windows = ran(flow, "rows", "windows")
    assert [row["id"] for row in rows] == [1, 2]
    assert [row["n"] for row in windows] == [2]
    assert {"one-and-other-clock", "other-timed"} <= ids(flow)


@pytest.mark.filterwarnings("error::txtopo.errors.UnusedStreamWarning")
def test_a_clock_below_a_union(flow):
    """It waits for the slower source, whatever is computed of the rows before, in however many steps."""
    one, other, third = (
        flow.source(name, memory([order(number, step * number) for number in range(3)], size=1))
        for name, step in (("one", 60), ("other", 1), ("third", 60))
    )
    both = (
        one.union(other).filter("id >= 0").with_columns(n="id * 2").union(third.with_columns(n="id")).filter("n >= 0")
    )
    windows = both.event_time("at", delay="0s").group_by("shop").window("1s").agg(n=Count())
    windows.append("windows")
    windows.late.append("late")
    windows, late = ran(flow, "windows", "late")
    assert sorted(row["n"] for row in windows) == [1, 3]
    assert late == []


@pytest.mark.filterwarnings("error::txtopo.errors.UnusedStreamWarning")
@pytest.mark.parametrize("condition", [None, "id >= 0"])
def test_a_clock_below_branches(flow, condition):
    """Branches of a source are one source: the clock goes on when one of them has no rows any more."""
    one = flow.source("one", memory([order(number, number) for number in range(9)], size=1))
    other = flow.source("other", memory([order(number, number) for number in range(9)], size=1))
    both = one.filter("id < 2").union(other, one.filter("id >= 2"))
    timed = (both if condition is None else both.filter(condition)).event_time("at", delay="0s")
    timed.group_by("shop").window("1s").agg(n=Count()).append("windows")
    assert [row["n"] for row in ran(flow, "windows")[0]] == [2] * 8
    assert "one-and-other-by-shop-1s" in ids(flow)


def test_union_with_itself(flow):
    """Rows of a stream that comes twice count twice, also inside another union."""
    orders = flow.source("orders", memory([order(1), order(2)])).select("id")
    orders.union(orders).append("twice")
    orders.union(orders.filter("id > 1"), orders).union(orders).append("several")
    twice, several = ran(flow, "twice", "several")
    assert [row["id"] for row in twice] == [1, 1, 2, 2]
    assert [row["id"] for row in several] == [1, 1, 1, 2, 2, 2, 2]


def test_apply_changes_and_replace(flow):
    """The latest row of each key, and partitions that are replaced."""
    orders = flow.source(
        "orders", memory([order(1, 0), order(1, 5, price=4), order(2, 1), order(2, 2, paid=False)], size=1)
    )
    orders.with_columns(gone="NOT paid").drop("paid").apply_changes("latest", key="id", sequence="at", deleted="gone")
    orders.replace("by_shop", partition="shop")
    latest, by_shop = ran(flow, "latest", "by_shop")
    assert [(row["id"], row["price"]) for row in latest] == [(1, 4)]
    assert [row["id"] for row in by_shop] == [2]


def test_words_that_are_not_there(orders):
    """Libraries that look for what a stream can do find that it can't, and no error."""
    assert not hasattr(orders, "where")
    assert not hasattr(orders, "_repr_png_")
    assert copy.copy(orders).fields == orders.fields


def test_what_is_kept_for_a_time(flow):
    """Totals are forgotten so long after their time; of rows, versions are kept, and deletes for a time."""
    changes = flow.source(
        "changes", memory([order(1, 0), order(1, 5, price=4), order(2, 9, paid=False), order(3, 300)], size=1)
    )
    timed = changes.with_columns(gone="NOT paid").drop("paid").event_time("at", delay="1s")
    timed.group_by("shop").agg(n=Count(), last=Max("at")).upsert("totals", ttl="2m")
    timed.apply_changes("latest", key="id", sequence="at", deleted="gone", ttl="1m", history="versions")
    totals, latest, versions = ran(flow, "totals", "latest", "versions")
    assert [row["n"] for row in totals] == [4]
    assert [(row["id"], row["price"]) for row in latest] == [(1, 4), (3, 1)]
    assert sorted((row["id"], row["price"], row["valid_to"]) for row in versions) == [
        (1, 1, T + 5 * SECOND),
        (1, 4, None),
        (3, 1, None),
    ]
    plan = flow.build().plan
    assert {name for name, state in plan.states.items() if getattr(state, "time_to_live", None)} == {
        "totals",
        "latest-deleted",
    }


def test_changes_that_are_only_added(flow):
    """Who takes added rows alone needs no diff any more."""
    shops = flow.source("orders", memory(ROWS, size=4)).group_by("shop").agg(n=Count()).upsert("shops")
    shops.changes.filter("diff > 0").drop("diff").append("after")
    assert [(row["shop"], row["n"]) for row in ran(flow, "after")[0]] == [("Bonn", 1), ("Cork", 3), ("Cork", 7)]


class Half(ArrowBatchBolt):
    output_fields = Fields("attempt", "n: long")

    def declare_output_fields(self, declarer):
        super().declare_output_fields(declarer)
        declarer.declare_stream("odd", Fields("attempt", "n: long"))

    def execute(self, batch):
        for value in batch.column("price").to_pylist():
            self.collector.emit((self.attempt, value // 2), *([] if value % 2 == 0 else ["odd"]))


def test_through(flow):
    """Any bolt is a step, with all its streams."""
    halves = flow.source("orders", memory([order(n, price=n) for n in range(4)])).through("half", Half(), by="id")
    halves.append("even")
    halves["odd"].append("odd")
    even, odd = ran(flow, "even", "odd")
    assert (even, odd) == ([{"n": 0}, {"n": 1}], [{"n": 0}, {"n": 1}])


class OfShops(ReduceCommitter):
    """Counts by a key that it makes itself."""

    def execute(self, tuple):
        self.fold(tuple["shop"][:1], 1)


def test_a_key_that_is_no_field(flow, orders):
    """A committer of the user's that makes its key of other fields is grouped by these."""
    totals = DeltaState(flow._graph.table("totals"), Fields("letter: string"), Fields("n: long"))
    orders.through("totals", OfShops("totals", "letter", "n"), by="shop", states={"totals": totals})
    assert ran(flow, "totals") == [[{"letter": "C", "n": 1}]]


def test_to_states_in_memory(flow, orders):
    """Rows and totals go into any state of their kind."""
    rows = DeltaRows(flow._graph.table("elsewhere"), Fields("id: long"))
    orders.select("id").to("rows", rows)
    totals = MemoryState(Fields("shop"), Fields("n"))
    orders.group_by("shop").agg(n=Count()).to("totals", totals)
    assert ids(flow) == {"orders", "write-rows", "write-totals"}


def test_a_table_in_another_order(flow, tmp_path):
    """A state that has the fields in another order gets each value in its own column, also behind steps that only select."""
    orders, swapped = flow.source("orders", memory([order(7, price=5)])), Fields("price: long", "id: long")
    orders.select("id", "price").to("rows", DeltaRows(tmp_path / "rows", swapped))
    orders.select(price="id", id="price").to("renamed", DeltaRows(tmp_path / "renamed", swapped))
    ran(flow)
    rows, renamed = (read_table(tmp_path / name).select(["id", "price"]).to_pylist() for name in ("rows", "renamed"))
    assert (rows, renamed) == ([{"id": 7, "price": 5}], [{"id": 5, "price": 7}])


def test_the_builder_goes_on(flow, orders):
    """What was said so far is in the builder, which takes components of one's own."""
    orders.append("all")
    builder = flow.builder
    builder.set_bolt("mine", AppendCommitter("mine")).shuffle_grouping("orders")
    builder.set_state("mine", DeltaRows(flow._graph.table("mine"), ORDER))
    assert {component.id for component in builder.build().plan.components} == {"orders", "append-all", "mine"}
    assert ids(flow) == {"orders", "append-all"}


@pytest.mark.parametrize("where", ["elsewhere", "in a database"])
def test_the_metadata_is_in_the_output(flow, orders, tmp_path, where):
    """Wherever a flow's tables are, its metadata is below its output, with the builder that goes on, too."""
    fields = orders.fields
    orders.to(
        "rows",
        DeltaRows(tmp_path / "rows", fields)
        if where == "elsewhere"
        else SqlRows(f"sqlite:///{tmp_path}/a.db", "rows", fields),
    )
    for topology in (flow.build(), flow.builder.build()):
        run_inline(topology)
        assert metadata_dir_of(topology.plan, Config()).parent == LocalFolder(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"_txtopo"}
    assert {path.name for path in (tmp_path / "out/_txtopo").iterdir()} >= {"coordinator.sqlite", "journal"}
    assert not (tmp_path / "_txtopo").exists()


def said(flow, *, steps):
    """Say a flow with some of its steps, in an order."""
    source = flow.source("orders", memory(ROWS))
    if "filter" in steps:
        source = source.filter("price > 0")
    timed = source.event_time("at", delay="30s", lateness="10s")
    unique = timed.distinct("id") if "distinct" in steps else timed
    if "column" in steps:
        unique = unique.with_columns(twice="price * 2")
    shops = unique.group_by("shop")
    sinks = {
        "orders": lambda: unique.append("orders"),
        "minutes": lambda: shops.window("1m").agg(n=Count()).append("minutes"),
        "totals": lambda: shops.agg(n=Count()).upsert("totals"),
    }
    for name in steps:
        if name in sinks:
            sinks[name]()
    return flow.build()


ALL = ["filter", "distinct", "column", "orders", "minutes", "totals"]
STATES = {
    "filter": set(), "column": set(), "distinct": {"orders-distinct"}, "orders": {"orders"}, "minutes": {"minutes", "orders-by-shop-1m"},
    "totals": {"totals"},
}  # fmt: skip


@pytest.mark.parametrize(
    "steps",
    [[s for s in ALL if s != left_out] for left_out in ALL]
    + [ALL[:3] + list(p) for p in itertools.permutations(ALL[3:])],
    ids=str,
)
def test_steps_that_come_and_go(tmp_path, steps):
    """No table and no state of another step moves: only those of a step that is left out are gone."""
    whole = said(Flow("f", tmp_path), steps=ALL).plan
    part = said(Flow("f", tmp_path), steps=steps).plan
    assert {name: state.address for name, state in part.states.items()} == {
        name: state.address
        for name, state in whole.states.items()
        if not any(name in STATES[s] for s in set(ALL) - set(steps))
    }
    asked = {name: component for component, names in whole.requested_states.items() for name in names}
    for component, names in part.requested_states.items():
        assert all(asked[name] == component for name in names)


def test_clocks_that_come(tmp_path):
    """A clock keeps the sources that it knows: chains of theirs are called by the source, whatever they feed besides."""

    def clocked(*, more):
        flow = Flow("f", tmp_path)
        streams = [flow.source(name, memory(ROWS)).filter("price > 0") for name in ("a", "b")]
        if more:
            streams[1].append("early")
        timed = streams[0].union(streams[1]).event_time("at", delay="1s")
        timed.group_by().window("1m").agg(n=Count()).append("minutes")
        return [edge.source for edge in flow.build().plan.edges if edge.target == "a-and-b-clock"]

    assert clocked(more=False) == clocked(more=True) == ["a-timed", "b-timed"]


PAYMENT = Fields("order: long", "paid_at: timestamp", "sum: long")


def payments(flow, *rows):
    spout = memory([(number, T + secs * SECOND, 5) for number, secs in rows], PAYMENT, 1)
    return flow.source("payments", spout).event_time("paid_at", delay="10s", close_at_end=True)


def test_join_of_streams(flow):
    """Pairs by key that are near in time, rows without a partner once none can come, what is late beside them."""
    orders = flow.source("orders", memory([order(1, 0), order(2, 60), order(3, 300), order(9, 0)], size=1))
    timed = orders.select("id", "at").event_time("at", delay="10s", close_at_end=True)
    joined = timed.filter("id > 0").join(
        payments(flow, (1, 20), (1, 50), (3, 400)), {"id": "order"}, upper="1m", how="left"
    )
    joined.with_columns(paid="sum IS NOT NULL").append("joined")
    joined["left_late"].append("late")
    joined, late = ran(flow, "joined", "late")
    assert sorted((row["id"], row["order"], row["paid"]) for row in joined if row["order"]) == [
        (1, 1, True),
        (1, 1, True),
    ]
    assert sorted(row["id"] for row in joined if not row["paid"]) == [2, 3]
    assert [row["id"] for row in late] == [9]


def test_the_clock_of_a_join(flow):
    """It waits for all that the clocks of both streams wait for, whatever is left of these rows and fields."""
    one = flow.source("one", memory([order(1, 0), order(2, 60), order(3, 120)], size=1))
    other = flow.source("other", memory([order(4, 0), order(5, 1), order(6, 30)], size=1))
    both = one.union(other).event_time("at", delay="0s", partition="shop").select("id", "at")
    joined = both.join(
        payments(flow, (9, 0), (9, 100), (9, 200)).filter("sum < 0"), {"id": "order"}, upper="1s", how="left"
    )
    joined.append("joined")
    joined["left_late"].append("late")
    joined, late = ran(flow, "joined", "late")
    assert [row["id"] for row in joined] == [1, 4, 5]
    assert late == []


def test_a_join_by_two_times_of_a_stream(flow):
    """A stream is joined with itself by another time; the clock of both goes with the one that is behind."""
    rows = [(number, T + 60 * number * SECOND, T + number * SECOND) for number in range(4)]
    deliveries = flow.source("rows", memory(rows, Fields("id: long", "sent: timestamp", "ordered: timestamp"), 1))
    left, right = (deliveries.event_time(name, delay="0s", name=name) for name in ("sent", "ordered"))
    joined = left.join(right, "id", lower="-1h", upper="0s", rename={"sent": "s", "ordered": "o"})
    joined.append("pairs")
    joined["right_late"].append("late")
    pairs, late = ran(flow, "pairs", "late")
    assert [row["id"] for row in pairs] == [0, 1, 2, 3]
    assert late == []


def test_join_names(flow):
    """A join has the names of both streams, and the clock of one if both have the same."""
    timed = flow.source("orders", memory(ROWS)).event_time("at", delay="10s")
    later = timed.select("id", "at").rename({"at": "later"})
    timed.join(later, "id", upper="1m").append("same")
    timed.union(timed).join(payments(flow), {"id": "order"}, lower="-5m", upper="0s").append("two")
    assert {"orders-join-orders", "orders-join-payments", "orders-join-payments-clock", "orders-clock"} <= ids(flow)
    assert "orders-join-orders-clock" not in ids(flow)


def test_join_without_a_bound(flow):
    """Pairs by key whenever they come; both streams are tables that are kept."""
    orders = flow.source("orders", memory([order(1), order(2), order(3)], size=1)).select("id", "price")
    paid = flow.source("paid", memory([(3, 5), (1, 6), (1, 7)], Fields("order: long", "sum: long"), 1))
    orders.join(paid, {"id": "order"}).append("pairs")
    assert [(row["id"], row["sum"]) for row in ran(flow, "pairs")[0]] == [(1, 6), (1, 7), (3, 5)]
    assert {"orders-join-paid-left", "orders-join-paid-right"} <= set(flow.build().plan.states)


def test_left_join_without_a_bound(flow):
    """A row that was alone is taken back when its first partner comes, also in the totals of it."""
    orders = flow.source("orders", memory([order(1), order(2)], size=1)).select("id", "price")
    paid = flow.source("paid", memory([(9, 5), (9, 5), (1, 6), (1, 7)], Fields("order: long", "sum: long"), 1))
    both = orders.join(paid, {"id": "order"}, how="left").with_columns(is_paid="sum IS NOT NULL")
    both.append("changes")
    both.group_by("is_paid").agg(rows=Count(), paid=Sum("sum")).upsert("totals")
    changes, totals = ran(flow, "changes", "totals")
    assert sorted((row["id"], row["sum"], row["diff"]) for row in changes if row["sum"]) == [(1, 6, 1), (1, 7, 1)]
    assert sorted((row["id"], row["diff"]) for row in changes if not row["sum"]) == [(1, -1), (1, 1), (2, 1)]
    assert [(row["is_paid"], row["rows"]) for row in totals] == [(False, 1), (True, 2)]


def test_join_that_forgets(flow):
    """With a ttl, rows are kept that long after their event time."""
    first = flow.source("first", memory([order(1, 0), order(2, 0), order(3, 300), order(4, 300)], size=1))
    later = flow.source("later", memory([order(7, 0), order(1, 10), order(8, 320), order(2, 330)], size=1))
    timed, others = (each.select("id", "at").event_time("at", delay="1s") for each in (first, later))
    timed.join(others, "id", ttl="1m", rename={"at": "later"}).append("pairs")
    assert [row["id"] for row in ran(flow, "pairs")[0]] == [1]


def test_join_with_itself_by_other_keys(flow):
    """Both sides are grouped by their own key: the referrers of customers, in two tasks."""
    people = Flow("p", flow._graph.output, parallelism=2)
    rows = [(number, number // 2) for number in range(1, 20)]
    customers = people.source("customers", memory(rows, Fields("id: long", "by: long"), 3))
    customers.join(customers, {"by": "id"}, rename={"id": "referrer", "by": "referred_by"}).append("pairs")
    pairs = {(row["id"], row["by"], row["referred_by"]) for row in ran(people, "pairs")[0]}
    assert pairs == {(n, n // 2, n // 4) for n in range(2, 20)}


def test_windows_that_close_together(flow):
    """Groups by the window's start are whole at once, so that they go on as a stream: the best shops of each minute."""
    both = Flow("w", flow._graph.output, parallelism=2)
    orders = both.source("orders", memory(ROWS)).event_time("at", delay="30s", close_at_end=True)
    shops = orders.group_by("shop").window("1m").agg(n=Count()).filter("n > 0").rename({"window_start": "minute"})
    best = shops.group_by("minute").agg(shops=Count(), best=ArgMax("shop", by="n"))
    best.explode("best").append("best")
    best.upsert("table")
    best, kept = ran(both, "best", "table")
    assert sorted((row["minute"] - T, row["shops"], row["shop"], row["n"]) for row in best) == [
        (0 * SECOND, 2, "Cork", 3), (60 * SECOND, 1, "Cork", 1), (180 * SECOND, 1, "Cork", 1), (360 * SECOND, 1, "Cork", 1),
    ]  # fmt: skip
    assert sorted(row["shops"] for row in kept) == [1, 1, 1, 2]


def test_tables_of_databases(flow, tmp_path):
    """Rows, totals and windows in tables of a database, once each."""
    url = f"sqlite:///{tmp_path / 'tables.db'}"
    orders = flow.source("orders", memory(ROWS)).event_time("at", delay="30s", close_at_end=True)
    orders.select("id", "price").to("rows", SqlRows(url, "orders", Fields("id: long", "price: long")))
    shop = Fields("shop: string")
    shops = orders.group_by("shop")
    shops.agg(n=Count()).to("totals", SqlState(url, "totals", shop, Fields("n: long")))
    key = shop + Fields("window_start: timestamp", "window_end: timestamp")
    hours = shops.window("1h").agg(n=Count())
    hours.to("hours", SqlState(url, "hours", key, Fields("n: long")))
    hours.to("closed", SqlRows(url, "closed", key + Fields("n: long")))
    ran(flow)
    with sqlite3.connect(tmp_path / "tables.db") as database:
        tables = [
            database.execute(f"SELECT count(*), sum({of}) FROM {table}").fetchone()
            for table, of in (("orders", "price"), ("totals", "n"), ("hours", "n"), ("closed", "n"))
        ]
    assert tables == [(8, 18), (2, 8), (2, 7), (2, 7)]


def test_a_topic(flow, orders):
    """A topic is a state of rows, which are records."""
    orders.select(key="shop", value="CAST(id AS VARCHAR)").to("topic", KafkaState("localhost:1", "orders"))
    assert ids(flow) == {"orders", "write-topic-rows", "write-topic"}


def test_a_table_of_another_schema(flow, tmp_path):
    """It is refused by build(), with the line of what writes it; one that only lacks a column is left to the run."""
    orders = flow.source("orders", memory(ROWS)).select("id", "shop")
    orders.append("rows")
    run_inline(flow.build())
    for number, fields in enumerate((["id"], ["id", "shop", "price"])):
        other = Flow("f", tmp_path / "out")
        other.source("orders", memory(ROWS)).select(*fields).append("rows")
        if number:
            other.build()
            continue
        with pytest.raises(
            TopologyError, match=r"test_stream.py, line \d+: append: table 'rows' is there, at .*columns"
        ):
            other.build()


def test_a_clock_that_only_a_join_goes_by(flow, recwarn):
    """A join has a clock of its own, and the clocks of its streams are no streams that nothing takes."""
    orders = flow.source("orders", memory(ROWS)).select("id", "at").event_time("at", delay="1s")
    orders.join(payments(flow), {"id": "order"}, upper="1m").append("pairs")
    flow.build()
    assert not [each for each in recwarn if issubclass(each.category, UnusedStreamWarning)]


def test_join_with_itself(flow):
    """A stream is joined with itself by the same key: an order with those of its shop up to a minute later."""
    timed = (
        flow.source("orders", memory(ROWS)).select("id", "shop", "at").event_time("at", delay="1h", close_at_end=True)
    )
    timed.join(timed, "shop", lower="1s", upper="1m", rename={"id": "later_id", "at": "later"}).append("pairs")
    assert {(row["id"], row["later_id"]) for row in ran(flow, "pairs")[0]} == {(1, 1), (5, 1), (1, 3)}


def test_join_with_itself_by_two_clocks(flow):
    """The join waits as long as the slower clock says, also if both are of one component."""
    rows = [(1, T), (2, T + 600 * SECOND), (1, T + 60 * SECOND)]
    orders = flow.source("orders", memory(rows, Fields("id: long", "at: timestamp"), 1))
    slow, quick = (orders.event_time("at", delay=delay, name=f"{delay}-clock") for delay in ("1h", "1m"))
    slow.join(quick, "id", lower="1s", upper="5m", rename={"at": "later"}).append("pairs")
    assert [(row["id"], row["later"]) for row in ran(flow, "pairs")[0]] == [(1, T + 60 * SECOND)]


def test_a_time_that_is_far_ahead_in_a_join(flow):
    """It does not move the join's clock, as it moves none of the streams', and is late."""
    rows = [(1, T), (9, T + 80_000_000 * SECOND), (2, T + 60 * SECOND)]
    sides = (
        flow.source(name, memory(rows, Fields("id: long", "at: timestamp"), 1)).event_time(
            "at", delay="1m", ahead_max="1d"
        )
        for name in ("orders", "payments")
    )
    joined = next(sides).join(next(sides), "id", upper="5m", rename={"at": "paid_at"})
    joined.append("pairs")
    joined["left_late"].append("late")
    pairs, late = ran(flow, "pairs", "late")
    assert ([row["id"] for row in pairs], [row["id"] for row in late]) == ([1, 2], [9])


def test_join_with_tables(flow, tmp_path):
    """With a reference on the executors, with a table of the flow as the transaction before has left it."""
    write_deltalake(tmp_path / "towns", pa.table({"shop": ["Cork", "Bonn"], "land": ["IE", "DE"]}))
    towns = flow.reference("towns", DeltaReference(tmp_path / "towns", key="shop"))
    orders = flow.source("orders", memory(ROWS)).select("id", "shop", "price")
    lands = orders.join(towns, "shop", values=Fields("land: string"))
    lands.append("lands")
    totals = orders.group_by("shop").agg(orders=Count(), paid=Sum("price")).upsert("totals")
    orders.join(totals, "shop", values=["orders"], how="left", rename={"orders": "before"}).append("known")
    lands, known = ran(flow, "lands", "known")
    assert {(row["shop"], row["land"]) for row in lands} == {("Cork", "IE"), ("Bonn", "DE")}
    assert [row["before"] for row in known if row["id"] == 7] == [5]
    assert {component.id: component.phase.value for component in flow.build().plan.components}[
        "orders-join-towns"
    ] == "processing"


def test_totals_of_totals(flow):
    """What has changed is taken back first: how many shops have so many orders."""
    shops = flow.source("orders", memory(ROWS, size=1)).group_by("shop").agg(orders=Count()).upsert("shops")
    shops.changes.filter("orders > 0").group_by("orders").agg(shops=Count()).upsert("sizes")
    shops.changes.append("changes")
    sizes, changes = ran(flow, "sizes", "changes")
    assert sizes == [{"orders": 1, "shops": 1}, {"orders": 7, "shops": 1}]
    assert sum(row["diff"] for row in changes) == 2


class Passing(BasicBolt):
    """Passes changes on."""

    output_fields = Fields("attempt", "shop: string", "orders: long", "diff: long")

    def execute(self, tuple, collector):
        collector.emit(tuple.values)


def test_changes_that_go_through_other_steps(flow, tmp_path):
    """With fields that a table has added, under the name of their stream, or from a bolt: they are changes still."""
    write_deltalake(tmp_path / "towns", pa.table({"shop": ["Cork", "Bonn"], "land": ["IE", "DE"]}))
    towns = flow.reference("towns", DeltaReference(tmp_path / "towns", key="shop"))
    shops = flow.source("orders", memory(ROWS, size=1)).group_by("shop").agg(orders=Count()).upsert("shops")
    lands = shops.changes.join(towns, on="shop", values=Fields("land: string"))
    lands.group_by("land").agg(shops=Count(), orders=Sum("orders")).upsert("lands")
    shops["changes"].through("passing", Passing()).group_by("orders").agg(shops=Count()).upsert("sizes")
    lands, sizes = ran(flow, "lands", "sizes")
    assert [(row["land"], row["shops"], row["orders_sum"]) for row in lands] == [("DE", 1, 1), ("IE", 1, 7)]
    assert sizes == [{"orders": 1, "shops": 1}, {"orders": 7, "shops": 1}]


def test_top(flow):
    """The rows with the highest prices of each key, as a list."""
    flow.source("orders", memory(ROWS)).group_by("shop").agg(top=TopN("id", n=2, by="price")).upsert("top")
    assert [(row["shop"], [each["id"] for each in row["top"]]) for row in ran(flow, "top")[0]] == [
        ("Bonn", [2]),
        ("Cork", [4, 7]),
    ]


def test_timers(flow):
    """A committer of event time in a flow is told the watermark by the stream's clock; its timers are a table of the flow."""
    states = {"seen": DeltaState(flow._graph.internal("seen"), Fields("shop: string"), Fields("at: timestamp"))}
    timed = flow.source("orders", memory([row for row in ROWS if row[2]])).event_time(
        "at", delay="1h", close_at_end=True
    )
    timed.through("alarm", ALARM, by="shop", states=states).append("alarms")
    assert {(row["shop"], row["time"] - T) for row in ran(flow, "alarms")[0]} >= {
        ("Bonn", 70 * SECOND),
        ("Cork", 460 * SECOND),
    }
    assert Path(flow._graph.internal("timers")).is_dir()
