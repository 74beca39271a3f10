"""The exact answer of each query of Nexmark: by DuckDB, over all events at once.

An answer is what stands in the tables after all events and the last watermark. Where the original depends on the order
in which events come or on the clock on the wall, it is a variant that does not: windows say when they start; equal
prices and times are ordered by ``extra``; query 12 has windows of event time, and the table of query 13 stays as it is.
Means are doubles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import attrs
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from examples.nexmark.sources import STREAMS
from state import read_table

_BID = "auction, bidder, price, dateTime, extra"
_DAY, _MINUTE = "strftime(dateTime, '%Y-%m-%d')", "strftime(dateTime, '%H:%M')"
_SIZE = "INTERVAL 10 SECOND"
_WINDOW = f"time_bucket({_SIZE}, dateTime)"
_EUROS = "CAST(price * CAST(0.908 AS DECIMAL(4, 3)) AS DECIMAL(23, 3))"
_RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price BETWEEN 10000 AND 999999",
    "rank3": "price >= 1000000",
}
_BIDS = ", ".join(f"count(*) FILTER ({where}) AS {rank}_bids" for rank, where in _RANKS.items())
_DISTINCT = ", ".join(
    f"count(DISTINCT {field}) FILTER ({where}) AS {rank}_{field}s"
    for field in ("bidder", "auction")
    for rank, where in _RANKS.items()
)
_CHANNEL_ID = r"regexp_extract(url, 'channel_id=([^&]*)', 1)"
_OF_AUCTION = """itemName, description, initialBid, reserve, a.dateTime AS auction_dateTime, expires, seller, category,
    a.extra AS auction_extra"""
_WON = f"""SELECT {_OF_AUCTION}, auction, bidder, price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, b.dateTime, b.extra) = 1"""

QUERIES: Mapping[str, str] = {
    "q0": f"SELECT {_BID} FROM bid",
    "q1": f"SELECT auction, bidder, {_EUROS} AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT name, city, state, a.id FROM auction a JOIN person p ON seller = p.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT category, avg(price) AS final FROM ({_WON}) GROUP BY category",
    "q5": """SELECT starttime, auction, count(*) AS num FROM (
            SELECT auction, time_bucket(INTERVAL 2 SECOND, dateTime) - INTERVAL 2 SECOND * before AS starttime
            FROM bid, range(5) AS _(before)
        ) GROUP BY starttime, auction QUALIFY num = max(num) OVER (PARTITION BY starttime)""",
    "q6": f"""SELECT seller, avg(price) AS final FROM (SELECT * FROM ({_WON})
        QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, auction DESC) <= 10) GROUP BY seller""",
    "q7": f"SELECT {_WINDOW} AS starttime, {_BID} FROM bid QUALIFY price = max(price) OVER (PARTITION BY starttime)",
    "q8": f"""SELECT id, name, {_WINDOW} AS starttime FROM person
        WHERE (id, {_WINDOW}) IN (SELECT (seller, {_WINDOW}) FROM auction)""",
    "q9": _WON,
    "q10": f"SELECT {_BID}, {_DAY} AS day, {_MINUTE} AS minute FROM bid",
    "q11": f"""SELECT bidder, count(*) AS num, min(dateTime) AS starttime, max(dateTime) + {_SIZE} AS endtime FROM (
            SELECT *, sum(is_new::INT) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM (
                SELECT bidder, dateTime, coalesce(dateTime - lag(dateTime) OVER of_bidder > {_SIZE}, true) AS is_new
                FROM bid WINDOW of_bidder AS (PARTITION BY bidder ORDER BY dateTime)
            )
        ) GROUP BY bidder, session""",
    "q12": f"SELECT bidder, count(*) AS num, {_WINDOW} AS starttime FROM bid GROUP BY ALL",
    "q13": "SELECT auction, bidder, price, dateTime, value FROM bid JOIN side ON auction % 10000 = key",
    "q14": f"""SELECT auction, bidder, {_EUROS} AS price, dateTime, extra,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE {_EUROS} > 1000000 AND {_EUROS} < 50000000""",
    "q15": f"SELECT {_DAY} AS day, {_BIDS}, {_DISTINCT} FROM bid GROUP BY day",
    "q16": f"SELECT channel, {_DAY} AS day, max({_MINUTE}) AS minute, {_BIDS}, {_DISTINCT} FROM bid GROUP BY channel, day",
    "q17": f"""SELECT auction, {_DAY} AS day, {_BIDS}, min(price) AS min_price, max(price) AS max_price,
        avg(price) AS mean_price, CAST(sum(price) AS BIGINT) AS sum_price FROM bid GROUP BY auction, day""",
    "q18": """SELECT * FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, extra DESC) = 1""",
    "q19": """SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, extra) AS rank FROM bid
        QUALIFY rank <= 10""",
    "q20": f"""SELECT auction, bidder, price, channel, url, b.dateTime AS bid_dateTime, b.extra AS bid_extra, {_OF_AUCTION}
        FROM bid b JOIN auction a ON auction = a.id WHERE category = 10""",
    "q21": f"""SELECT auction, bidder, price, channel, coalesce(CAST(CASE lower(channel) WHEN 'apple' THEN 0
            WHEN 'google' THEN 1 WHEN 'facebook' THEN 2 WHEN 'baidu' THEN 3 END AS VARCHAR), {_CHANNEL_ID}) AS channel_id
        FROM bid WHERE channel_id <> ''""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
        split_part(url, '/', 6) AS dir3 FROM bid""",
    "q23": f"""SELECT auction, bidder, price, channel, url, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
            name, emailAddress, creditCard, city, state, p.dateTime AS person_dateTime, p.extra AS person_extra,
            a.id AS selling, {_OF_AUCTION}
        FROM bid b JOIN person p ON p.id = bidder JOIN auction a ON seller = bidder""",
}


def found_in(query: ModuleType, output: str) -> pa.Table:
    """Return what a query has answered: its own view of its table, or the table."""
    return query.answer(output) if hasattr(query, "answer") else read_table(f"{output}/answer")


@attrs.frozen
class Difference:
    """How a table differs from an answer."""

    rows: int
    """The number of rows of the answer."""
    missing: pa.Table
    surplus: pa.Table


class Answers:
    """The answers for the events in a folder, whichever way they are cut into files."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database

    @classmethod
    @contextmanager
    def of(cls, events: Path) -> Iterator[Answers]:
        """Yield the answers for a folder that :mod:`examples.nexmark.events` has made."""
        with duckdb.connect() as database:
            for stream in (*STREAMS, "side"):
                database.register(stream, _without_zones(pq.read_table(events / stream)))
            yield cls(database)

    def answer(self, query: str) -> pa.Table:
        """Return the rows of an answer, in any order."""
        return self._database.sql(QUERIES[query]).to_arrow_table()

    def difference(self, query: str, found: pa.Table, where: str = "true") -> Difference:
        """Compare a table with the rows of an answer for which a condition holds: its columns by name, its rows as often."""
        answer = self._database.sql(f"FROM ({QUERIES[query]}) WHERE {where}").to_arrow_table()
        found = _without_zones(found.select(answer.column_names)).cast(answer.schema)
        self._database.register("answer", answer).register("found", found)
        missing, surplus = (
            self._database.sql(f"FROM {each} EXCEPT ALL FROM {other}").to_arrow_table()
            for each, other in (("answer", "found"), ("found", "answer"))
        )
        return Difference(answer.num_rows, missing, surplus)


def _without_zones(table: pa.Table) -> pa.Table:
    """Return a table whose times, all UTC, have no zone: DuckDB would need an extension."""
    kinds = [pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))
