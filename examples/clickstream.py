"""Clicks from Kafka: clicks and bytes of each page, the users of each day, and the errors, each exactly once.

Four committers write four tables in the same commit groups: each page's sums; the days on which each user came; below
that, in the commit phase, each day's number of users; and the clicks that the server answered with an error. A fifth
table keeps clicks that are not readable, with their place in Kafka.

Start a broker, produce a known load, and run::

    txtopo kafka dev --topic clicks:4
    python -m examples.clickstream_load --clicks 100000
    txtopo run examples.clickstream

Kill the run at any moment and start it again: ``python -m examples.clickstream_load --clicks 100000 --check`` compares
the tables with the load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from committers import AppendCommitter
from spouts.kafka import TransactionalKafkaSpout
from state import DeltaRows, DeltaState, read_table
from txtopo import (
    ArrowBatchBolt,
    BatchBolt,
    BatchOutputCollector,
    Fields,
    ICommitter,
    OutputFieldsDeclarer,
    TopologyContext,
    TransactionalTopology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
)

SERVERS = "127.0.0.1:9092"
TOPIC = "clicks"
OUTPUT = "txtopo-data/clickstream"
CLICK = Fields("time: timestamp", "page: string", "user: string", "status: int", "bytes: long")
ERROR_STATUS = 500
"""The lowest status of a click that the server answered with an error."""

_ERROR = Fields("time: timestamp", "page: string", "user: string", "status: int")


class Sort(ArrowBatchBolt):
    """Sums clicks by page, reduces visits to one a day and user, and passes errors on, all as columns."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare a stream for each committer."""
        declarer.declare_stream("pages", Fields("attempt", "page: string", "clicks: long", "bytes: long"))
        declarer.declare_stream("visits", Fields("attempt", "day: date", "user: string"))
        declarer.declare_stream("errors", _ERROR.with_attempt())

    def execute(self, batch: pa.RecordBatch) -> None:
        """Sort some clicks."""
        clicks = pa.Table.from_batches([batch])
        pages = clicks.group_by("page").aggregate([([], "count_all"), ("bytes", "sum")])
        self._emit(
            pages.select(["page", "count_all", "bytes_sum"]).rename_columns(["page", "clicks", "bytes"]), "pages"
        )
        days = pc.cast(clicks["time"], pa.date32())
        visits = pa.table({"day": days, "user": clicks["user"]})
        self._emit(visits.group_by(["day", "user"]).aggregate([]), "visits")
        errors = clicks.filter(pc.greater_equal(clicks["status"], ERROR_STATUS))
        self._emit(errors.select(list(_ERROR)), "errors")

    def _emit(self, table: pa.Table, stream: str) -> None:
        for batch in table.combine_chunks().to_batches():
            self.collector.emit_batch(batch, stream)


class PageSums(BatchBolt, ICommitter):
    """Adds up the clicks and bytes of each page."""

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no clicks."""
        self.pages = context.state("pages")
        self.clicks: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def execute(self, tuple: Tuple) -> None:
        """Gather a page's sums."""
        self.clicks[tuple["page"]] += tuple["clicks"]
        self.bytes[tuple["page"]] += tuple["bytes"]

    def finish_batch(self) -> None:
        """Add them to the table."""

        def add(page: Any, old: Any) -> Any:
            clicks, size = old or (0, 0)
            return clicks + self.clicks[page], size + self.bytes[page]

        self.pages.multi_update(list(self.clicks), add)


class FirstVisits(BatchBolt, ICommitter):
    """Remembers who came on which day, and emits each user's first visit of a day."""

    output_fields = Fields("attempt", "day", "users")

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no visits."""
        self.visits = context.state("visits")
        self.attempt = attempt
        self.collector = collector
        self.seen: set[tuple[Any, str]] = set()

    def execute(self, tuple: Tuple) -> None:
        """Gather a visit."""
        self.seen.add((tuple["day"], tuple["user"]))

    def finish_batch(self) -> None:
        """Keep the new visits, and count them for their days."""
        visits = sorted(self.seen)
        known = self.visits.multi_get(visits)
        new = [visit for visit, old in zip(visits, known, strict=True) if old is None]
        self.visits.multi_update(new, lambda _visit, _old: 1)
        for day, users in Counter(day for day, _ in new).items():
            self.collector.emit((self.attempt, day, users))


class DayUsers(BatchBolt, ICommitter):
    """Counts the users of each day: a committer below a committer."""

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no users."""
        self.days = context.state("days")
        self.new: Counter[Any] = Counter()

    def execute(self, tuple: Tuple) -> None:
        """Gather new users."""
        self.new[tuple["day"]] += tuple["users"]

    def finish_batch(self) -> None:
        """Add them to their days."""
        self.days.multi_update(list(self.new), lambda day, old: (old or 0) + self.new[day])


def topology(
    servers: str = SERVERS,
    topic: str = TOPIC,
    output: str = OUTPUT,
    parallelism: int = 4,
    *,
    until_end: bool = False,
) -> TransactionalTopology:
    """Return the topology; the topic has clicks in JSON, and ``until_end`` ends with those that are there."""
    spout = TransactionalKafkaSpout(
        servers, topic, CLICK, dead_letter=f"{output}/unreadable", publish_group="clickstream", until_end=until_end
    )
    builder = TransactionalTopologyBuilder("clickstream", "clicks", spout, parallelism)
    builder.set_bolt("sort", Sort(), parallelism).local_or_shuffle_grouping("clicks")
    builder.set_committer_bolt("page-sums", PageSums(), parallelism).fields_grouping("sort", Fields("page"), "pages")
    first_visits = builder.set_committer_bolt("first-visits", FirstVisits(), parallelism)
    first_visits.fields_grouping("sort", Fields("day", "user"), "visits")
    builder.set_committer_bolt("day-users", DayUsers(), 1).global_grouping("first-visits")
    builder.set_committer_bolt("errors", AppendCommitter("errors"), parallelism).shuffle_grouping("sort", "errors")
    sums = Fields("clicks: long", "bytes: long")
    builder.set_state("pages", DeltaState(f"{output}/pages", key=Fields("page: string"), value=sums))
    visit = Fields("day: date", "user: string")
    builder.set_state("visits", DeltaState(f"{output}/visits", key=visit, value=Fields("n: long")))
    builder.set_state("days", DeltaState(f"{output}/days", key=Fields("day: date"), value=Fields("users: long")))
    builder.set_state("errors", DeltaRows(f"{output}/errors", _ERROR))
    return builder.build()


@attrs.frozen
class Results:
    """What the tables say, or what they must say."""

    pages: Mapping[str, tuple[int, int]]
    users: Mapping[str, int]
    """The number of users by day."""
    errors: int
    unreadable: int


def results_in(output: str) -> Results:
    """Read the tables."""
    pages = {row["page"]: (row["clicks"], row["bytes"]) for row in read_table(f"{output}/pages").to_pylist()}
    users = {row["day"].isoformat(): row["users"] for row in read_table(f"{output}/days").to_pylist()}
    return Results(pages, users, read_table(f"{output}/errors").num_rows, read_table(f"{output}/unreadable").num_rows)


def show_results(console: Console, output: str) -> None:
    """Print the pages with the most clicks, and the sums."""
    found = results_in(output)
    for page, (clicks, size) in sorted(found.pages.items(), key=lambda item: -item[1][0])[:5]:
        console.print(f"{page:<12} {clicks:>9,} clicks {size:>13,} bytes")
    for day, users in sorted(found.users.items()):
        console.print(f"{day:<12} {users:>9,} users")
    console.print(f"{found.errors:,} errors, {found.unreadable:,} unreadable")
