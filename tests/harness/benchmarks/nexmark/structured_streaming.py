"""Structured Streaming's way with each query of Nexmark: rows appended to Delta, or merged by ``foreachBatch``.

A query is a function below: it returns the stream whose rows are the answer, or a stream with the function that merges
a batch of it. Append and plain ``MERGE`` are at least once, unless a batch that comes again changes nothing: so it is
in queries 4, 6, 9, 18 and 19; 12 and 15 to 17 put totals of Spark's state.

Two things are otherwise than in the answers. The watermark never passes the last events, so the last windows of 5, 7 and
11 stay open: ``OPEN`` says which rows these are. And of bids with the very same highest price, query 7 has one.
"""

import datetime as dt
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import deltalake
import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from examples.nexmark.sources import STREAMS
from txtopo.topology.plans.description import fields_text

DELAY = "4 seconds"
"""Of all watermarks."""

OPEN = {"q5": "starttime + INTERVAL 10 SECOND", "q7": "starttime + INTERVAL 10 SECOND", "q11": "endtime"}
"""Of the queries whose last windows stay open, when a row's window ends."""

_EURO = "CAST(price * 0.908BD AS DECIMAL(23, 3))"
_BID = ["auction", "bidder", "price", "dateTime", "extra"]
_OF_AUCTION = {"dateTime": "auction_dateTime", "extra": "auction_extra"}
_OF_BID = {"dateTime": "bid_dateTime", "extra": "bid_extra"}
_OF_PERSON = {"dateTime": "person_dateTime", "extra": "person_extra"}
_RANKS = {"rank1": "price < 10000", "rank2": "price BETWEEN 10000 AND 999999", "rank3": "price >= 1000000"}

_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Without a batch after the last rows, the windows that those have closed are never emitted.
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
}

Merge = Callable[[DataFrame, int], None]
Made = DataFrame | tuple[DataFrame, Merge]


@attrs.frozen
class Run:
    """One run of a query.

    Args:
        spark: the session.
        events: the folder with a folder of files for each stream; a file of each is a batch.
        output: the folder of the tables.
        lasts: how long an auction lasts at most.
    """

    spark: SparkSession
    events: Path
    output: Path
    lasts: dt.timedelta

    def of(self, stream: str) -> DataFrame:
        """Return a stream of events."""
        schema = fields_text(STREAMS[stream]).replace(":", "")
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.events / stream))

    def timed(self, stream: str) -> DataFrame:
        """Return a stream of events with a watermark."""
        return self.of(stream).withWatermark("dateTime", DELAY)

    def table(self, name: str = "answer") -> DataFrame:
        """Return a table of the run."""
        return self.spark.read.format("delta").load(str(self.output / name))

    def merge(
        self,
        rows: DataFrame,
        keys: Sequence[str],
        *,
        when: str | None = None,
        update: Mapping[str, str | Column] | None = None,
        table: str = "answer",
    ) -> None:
        """Merge rows into a table by keys; the first batch makes it."""
        path = str(self.output / table)
        if not DeltaTable.isDeltaTable(self.spark, path):
            rows.limit(0).write.format("delta").save(path)
        same = " AND ".join(f"t.{key} = s.{key}" for key in keys)
        merge = DeltaTable.forPath(self.spark, path).alias("t").merge(rows.alias("s"), same)
        merge = merge.whenMatchedUpdateAll(when) if update is None else merge.whenMatchedUpdate(when, dict(update))
        merge.whenNotMatchedInsertAll().execute()

    def all(self, name: str) -> None:
        """Run a query over all files that there are, and return when it is done."""
        made = QUERIES[name](self)
        stream, merge = made if isinstance(made, tuple) else (made, None)
        writer = stream.writeStream.option("checkpointLocation", str(self.output / "checkpoint"))
        writer = writer.trigger(availableNow=True).outputMode("update" if name in _UPDATED else "append")
        if merge is None:
            query = writer.format("delta").start(str(self.output / "answer"))
        else:
            query = writer.foreachBatch(merge).start()
        query.awaitTermination()

    def answer(self, name: str) -> pa.Table:
        """Return what a query has answered; the JVM is not asked for all of it at once, if it can be read as it is."""
        if name != "q19":
            return deltalake.DeltaTable(str(self.output / "answer")).to_pyarrow_table()
        rows = self.table()
        rows = rows.select("auction", F.posexplode("bids").alias("place", "bid")).select("auction", "place", "bid.*")
        return rows.withColumns({"price": -F.col("minus"), "rank": F.col("place") + 1}).toArrow()


def session_of(spark: SparkSession) -> SparkSession:
    """Return a session with settings of its own."""
    session = spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session


def lines(query: str) -> int:
    """Return the number of lines of a query, without those of the functions that it shares with others."""
    return len([line for line in inspect.getsource(QUERIES[query]).splitlines() if line])


def q0(run: Run) -> Made:
    return run.of("bid").select(*_BID)


def q1(run: Run) -> Made:
    return run.of("bid").withColumn("price", F.expr(_EURO)).select(*_BID)


def q2(run: Run) -> Made:
    return run.of("bid").where("auction % 123 = 0").select("auction", "price")


def q3(run: Run) -> Made:
    people = (
        run.of("person")
        .where("state IN ('OR', 'ID', 'CA')")
        .select("name", "city", "state", F.col("id").alias("person"))
    )
    auctions = run.of("auction").where("category = 10").select("id", "seller")
    return people.join(auctions, F.expr("person = seller")).select("name", "city", "state", "id")


def _won(run: Run, *columns: str) -> DataFrame:
    """Return the bids that came while their auctions were open."""
    auctions = (
        run.timed("auction").withColumnsRenamed(_OF_AUCTION).select("id", "auction_dateTime", "expires", *columns)
    )
    bids = (
        run.timed("bid").withColumnsRenamed(_OF_BID).select("auction", "bidder", "price", "bid_dateTime", "bid_extra")
    )
    lasts = f"INTERVAL '{run.lasts.total_seconds()}' SECOND"
    near = f"bid_dateTime >= auction_dateTime AND bid_dateTime <= auction_dateTime + {lasts}"
    return auctions.join(bids, F.expr(f"id = auction AND bid_dateTime <= expires AND {near}")).drop("id")


def q4(run: Run) -> Made:
    def merge(batch: DataFrame, _: int) -> None:
        highest = batch.groupBy("auction", "category").agg(F.max("price").alias("price"))
        run.merge(highest, ["auction"], when="s.price > t.price", table="finals")
        means = run.table("finals").groupBy("category").agg(F.avg("price").alias("final"))
        means.write.format("delta").mode("overwrite").save(str(run.output / "answer"))

    return _won(run, "category"), merge


def q5(run: Run) -> Made:
    counts = run.timed("bid").groupBy(F.window("dateTime", "10 seconds", "2 seconds").alias("w"), "auction").count()
    each = F.collect_list(F.struct("auction", F.col("count").alias("num")))
    most = counts.groupBy("w").agg(F.max("count").alias("most"), each.alias("each"))
    exploded = most.select(F.col("w.start").alias("starttime"), "most", F.inline("each"))
    return exploded.where("num = most").drop("most")


def q6(run: Run) -> Made:
    def merge(batch: DataFrame, _: int) -> None:
        highest = batch.groupBy("auction", "seller", "expires").agg(F.max("price").alias("price")).localCheckpoint()
        run.merge(highest, ["auction"], when="s.price > t.price", table="finals")
        finals = run.table("finals").join(F.broadcast(highest.select("seller").distinct()), "seller")
        lists = finals.groupBy("seller").agg(F.collect_list(F.struct("expires", "auction", "price")).alias("all"))
        ten = "slice(sort_array(all, false), 1, 10)"
        mean = F.expr(f"aggregate({ten}, 0D, (sum, each) -> sum + each.price) / size({ten})")
        run.merge(lists.select("seller", mean.alias("final")), ["seller"])

    return _won(run, "seller"), merge


def q7(run: Run) -> Made:
    windows = run.timed("bid").groupBy(F.window("dateTime", "10 seconds").alias("w"))
    highest = windows.agg(F.max(F.struct("price", "auction", "bidder", "dateTime", "extra")).alias("bid"))
    return highest.select(F.col("w.start").alias("starttime"), "bid.*")


def q8(run: Run) -> Made:
    people = run.timed("person").select("id", "name", F.window("dateTime", "10 seconds").alias("joined"))
    sellers = run.timed("auction").select("seller", F.window("dateTime", "10 seconds").alias("opened"))
    both = people.join(sellers.dropDuplicates(["seller", "opened"]), F.expr("id = seller AND joined = opened"))
    return both.select("id", "name", F.col("joined.start").alias("starttime"))


def q9(run: Run) -> Made:
    def merge(batch: DataFrame, _: int) -> None:
        first = F.min_by(F.struct(*batch.columns), F.struct(-F.col("price"), "bid_dateTime", "bid_extra"))
        won = batch.groupBy("auction").agg(first.alias("won")).select("won.*")
        order = "struct(-{0}.price, {0}.bid_dateTime, {0}.bid_extra)"
        run.merge(won, ["auction"], when=f"{order.format('s')} < {order.format('t')}")

    columns = ("itemName", "description", "initialBid", "reserve", "seller", "category", "auction_extra")
    return _won(run, *columns), merge


def q10(run: Run) -> Made:
    parts = {"day": F.date_format("dateTime", "yyyy-MM-dd"), "minute": F.date_format("dateTime", "HH:mm")}
    return run.of("bid").select(*_BID).withColumns(parts)


def q11(run: Run) -> Made:
    sessions = run.timed("bid").groupBy("bidder", F.session_window("dateTime", "10 seconds").alias("w"))
    counts = sessions.agg(F.count("*").alias("num"))
    return counts.select("bidder", "num", F.col("w.start").alias("starttime"), F.col("w.end").alias("endtime"))


def q12(run: Run) -> Made:
    counts = (
        run.timed("bid").groupBy("bidder", F.window("dateTime", "10 seconds").alias("w")).agg(F.count("*").alias("num"))
    )
    rows = counts.select("bidder", "num", F.col("w.start").alias("starttime"))
    return rows, lambda batch, _: run.merge(batch, ["bidder", "starttime"])


def q13(run: Run) -> Made:
    side = run.spark.read.format("delta").load(str(run.events / "side"))
    joined = run.of("bid").join(F.broadcast(side), F.expr("auction % 10000 = key"))
    return joined.select("auction", "bidder", "price", "dateTime", "value")


def q14(run: Run) -> Made:
    kind = """CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END"""
    euros = run.of("bid").withColumn("price", F.expr(_EURO)).where("price > 1000000 AND price < 50000000")
    letters = "CAST(length(extra) - length(replace(extra, 'c', '')) AS LONG)"
    return euros.select(*_BID, F.expr(kind).alias("bidTimeType"), F.expr(letters).alias("c_counts"))


def _counts() -> list[Column]:
    """Return the counts of bids, in all and by rank."""
    return [
        F.count("*").alias("total_bids"),
        *(F.count_if(F.expr(when)).alias(f"{rank}_bids") for rank, when in _RANKS.items()),
    ]


def _distinct() -> list[Column]:
    """Return the counts of distinct ids, by sets, because a stream has no exact ones."""
    every = {"total": "true", **_RANKS}
    return [
        F.size(F.collect_set(F.expr(f"CASE WHEN {when} THEN {field} END"))).alias(f"{rank}_{field}s")
        for field in ("bidder", "auction")
        for rank, when in every.items()
    ]


def q15(run: Run) -> Made:
    day = F.date_format("dateTime", "yyyy-MM-dd").alias("day")
    return run.of("bid").groupBy(day).agg(*_counts(), *_distinct()), lambda batch, _: run.merge(batch, ["day"])


def q16(run: Run) -> Made:
    day, minute = (F.date_format("dateTime", form) for form in ("yyyy-MM-dd", "HH:mm"))
    groups = run.of("bid").groupBy("channel", day.alias("day"))
    counts = groups.agg(F.max(minute).alias("minute"), *_counts(), *_distinct())
    return counts, lambda batch, _: run.merge(batch, ["channel", "day"])


def q17(run: Run) -> Made:
    prices = [F.min("price"), F.max("price"), F.avg("price"), F.sum("price")]
    named = [each.alias(f"{name}_price") for each, name in zip(prices, ("min", "max", "mean", "sum"), strict=True)]
    day = F.date_format("dateTime", "yyyy-MM-dd").alias("day")
    counts = run.of("bid").groupBy("auction", day).agg(*_counts(), *named)
    return counts, lambda batch, _: run.merge(batch, ["auction", "day"])


def q18(run: Run) -> Made:
    def merge(batch: DataFrame, _: int) -> None:
        last = F.max_by(F.struct(*batch.columns), F.struct("dateTime", "extra"))
        newest = batch.groupBy("bidder", "auction").agg(last.alias("last")).select("last.*")
        newer = "struct(s.dateTime, s.extra) > struct(t.dateTime, t.extra)"
        run.merge(newest, ["bidder", "auction"], when=newer)

    return run.of("bid"), merge


def q19(run: Run) -> Made:
    def merge(batch: DataFrame, _: int) -> None:
        bid = F.struct((-F.col("price")).alias("minus"), "dateTime", "extra", "bidder", "channel", "url")
        first = "slice(array_sort(array_distinct({})), 1, 10)"  # a batch that comes again counts once
        lists = batch.groupBy("auction").agg(F.collect_list(bid).alias("bids"))
        ten = {"bids": first.format("concat(t.bids, s.bids)")}
        run.merge(lists.withColumn("bids", F.expr(first.format("bids"))), ["auction"], update=ten)

    return run.of("bid"), merge


def q20(run: Run) -> Made:
    auctions = run.of("auction").where("category = 10").withColumnsRenamed(_OF_AUCTION)
    bids = run.of("bid").withColumnsRenamed(_OF_BID)
    return bids.join(auctions, F.expr("auction = id")).drop("id")


def q21(run: Run) -> Made:
    known = "WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'"
    channel = F.expr(f"CASE lower(channel) {known} ELSE regexp_extract(url, 'channel_id=([^&]*)', 1) END")
    bids = run.of("bid").select("auction", "bidder", "price", "channel", channel.alias("channel_id"))
    return bids.where("channel_id <> ''")


def q22(run: Run) -> Made:
    folders = [F.split_part("url", F.lit("/"), F.lit(place + 3)).alias(f"dir{place}") for place in (1, 2, 3)]
    return run.of("bid").select("auction", "bidder", "price", "channel", *folders)


def q23(run: Run) -> Made:
    people = run.of("person").withColumnsRenamed({"id": "person", **_OF_PERSON})
    auctions = run.of("auction").withColumnsRenamed({"id": "selling", **_OF_AUCTION})
    sold = people.join(auctions, F.expr("seller = person"))
    return run.of("bid").withColumnsRenamed(_OF_BID).join(sold, F.expr("person = bidder")).drop("person")


QUERIES: Mapping[str, Callable[[Run], Made]] = {
    name: each for name, each in list(globals().items()) if name[0] == "q" and name[1:].isdigit()
}
_UPDATED = {"q12", "q15", "q16", "q17"}
