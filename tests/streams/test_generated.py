"""Generated jobs of several tables equal one query of DuckDB over the whole input, however the input is cut."""

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from committers import TimerCommitter
from spouts import FilesTransactionalSpout
from state import DeltaState
from tests.budgets import examples
from tests.streams.flows import memory, ran
from txtopo import Fields
from txtopo.streams import ArgMax, Count, CountDistinct, Flow, Last, Max, Mean, Min, Sum, TopN

T = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
LEFT = Fields("id: long", "key: string", "at: timestamp", "n: long", "amount: decimal(12,2)")
RIGHT = Fields("key: string", "label: string")

KEYS = st.sampled_from(["a", "b", "c", "é"])
AMOUNTS = st.none() | st.integers(-(10**6), 10**6).map(lambda cents: Decimal(cents) / 100)
TIMES = st.none() | st.integers(0, 600).map(lambda secs: T + dt.timedelta(seconds=secs))


@st.composite
def left_rows(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Rows with ids of their own; nulls everywhere but in ids and keys."""
    rows = draw(st.lists(st.tuples(KEYS, TIMES, st.none() | st.integers(-3, 3), AMOUNTS), min_size=1, max_size=16))
    return [(number, *row) for number, row in enumerate(rows)]


def database(**tables: tuple[list[Any], Fields]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, (rows, fields) in tables.items():
        columns = list(map(list, zip(*rows, strict=True))) or [[] for _ in fields]
        connection.register(name, pa.table(columns, schema=fields.arrow_schema()))
    return connection


def rows_of(table: list[dict[str, Any]], *names: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in names) for row in table)


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(connection.sql(query).fetchall())


SIZES = st.integers(1, 7)


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(rows=left_rows(), size=SIZES, tasks=st.integers(1, 2), least=st.integers(0, 2))
def test_totals_of_totals(tmp_path_factory, rows, size, tasks, least):
    """Aggregates of keys, and aggregates of these, which take back what has changed; nulls, decimals, ties."""
    flow = Flow("f", tmp_path_factory.mktemp("flow"), parallelism=tasks)
    keys = flow.source("rows", memory(rows, LEFT, size)).group_by("key")
    totals = keys.agg(
        rows=Count(),
        known=Count("n"),
        total=Sum("amount"),
        mean=Mean("amount"),
        least=Min("n"),
        most=Max("amount"),
        last=Last("id", by="at"),
        distinct=CountDistinct("n", values_max=20),
        top=TopN("id", n=2, by="n"),
    ).upsert("totals")
    changes = totals.changes.filter(f"rows > {least} AND least IS NOT NULL")
    groups = changes.group_by("least").agg(keys=Count(), total=Sum("total"), most=Max("rows")).upsert("of_totals")
    ran(flow)
    connection = database(input=(rows, LEFT))
    query = """SELECT key, count(*) AS rows, count(n) AS known, CAST(sum(amount) AS DECIMAL(38, 2)) AS total,
        min(n) AS least, max(amount) AS most,
        arg_max(id, struct_pack(a := "at", b := id)) FILTER ("at" IS NOT NULL) AS last, count(DISTINCT n) AS distinct,
        list(id ORDER BY n DESC, id DESC) FILTER (n IS NOT NULL)[1:2] AS top FROM input GROUP BY key"""
    names = ("key", "rows", "known", "total", "least", "most", "last", "distinct", "top")
    found = [row | {"top": tuple(each["id"] for each in row["top"] or [])} for row in totals.read().to_pylist()]
    wanted = [dict(zip(names, row, strict=True)) for row in connection.sql(query).fetchall()]
    assert rows_of(found, *names) == rows_of([row | {"top": tuple(row["top"] or [])} for row in wanted], *names)
    of = f"""SELECT least, count(*), CAST(sum(total) AS DECIMAL(38, 2)), max(rows) FROM ({query}) WHERE rows > {least}
        AND least IS NOT NULL GROUP BY least"""
    assert rows_of(groups.read().to_pylist(), "least", "keys", "total", "most") == answer(connection, of)


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(
    rows=left_rows(), others=st.lists(st.tuples(KEYS, st.sampled_from("xyz")), max_size=8),
    sizes=st.tuples(SIZES, SIZES), how=st.sampled_from(["inner", "left"]), tasks=st.integers(1, 2),
)  # fmt: skip
def test_joins(tmp_path_factory, rows, others, sizes, how, tasks):
    """Two streams without a bound, and totals of what they make: rows that are taken back are taken out of these."""
    flow = Flow("f", tmp_path_factory.mktemp("flow"), parallelism=tasks)
    left = flow.source("left", memory(rows, LEFT, sizes[0])).select("id", "key", "amount")
    right = flow.source("right", memory(others, RIGHT, sizes[1]))
    joined = left.join(right, "key", how=how)
    joined.append("joined")
    known = joined.with_columns(of="coalesce(label, 'none')").group_by("of")
    totals = known.agg(rows=Count(), total=Sum("amount")).upsert("totals")
    (joined_rows,) = ran(flow, "joined")
    net: Counter[tuple[Any, ...]] = Counter()
    for row in joined_rows:
        net[row["id"], row["key"], row["amount"], row["label"]] += row.get("diff", 1)
    connection = database(l=(rows, LEFT), r=(others, RIGHT))
    query = f"SELECT l.id, l.key, l.amount, r.label FROM l {how} JOIN r ON l.key = r.key"
    assert +net == answer(connection, query)
    assert min(net.values(), default=0) >= 0
    of = f"SELECT coalesce(label, 'none'), count(*), CAST(sum(amount) AS DECIMAL(38, 2)) FROM ({query}) GROUP BY 1"
    assert rows_of(totals.read().to_pylist(), "of", "rows", "total") == answer(connection, of)


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(rows=left_rows(), size=SIZES, delay=st.integers(0, 300), lateness=st.integers(0, 120), tasks=st.integers(1, 2))
def test_late_rows(tmp_path_factory, rows, size, delay, lateness, tasks):
    """Each row is in its window, or late, or without a time; windows of windows are those of the windows that closed."""
    flow = Flow("f", tmp_path_factory.mktemp("flow"), parallelism=tasks)
    timed = flow.source("rows", memory(rows, LEFT, size)).event_time(
        "at", delay=f"{delay}s", lateness=f"{lateness}s", close_at_end=True
    )
    windows = timed.group_by("key").window("1m").agg(rows=Count(), total=Sum("amount"))
    windows.append("windows")
    windows.late.append("late")
    windows.untimed.append("untimed")
    kept = windows.upsert("kept")
    windows.group_by("window_start").agg(keys=Count(), best=ArgMax("key", by="rows")).explode("best").append("best")
    closed, late, untimed, best = ran(flow, "windows", "late", "untimed", "best")
    connection = database(input=(rows, LEFT))
    names = ("key", "window_start", "rows", "total")
    of_windows = """SELECT key, time_bucket(INTERVAL 1 MINUTE, "at", TIMESTAMPTZ '1970-01-01 00:00:00Z') AS start, count(*),
        coalesce(CAST(sum(amount) AS DECIMAL(38, 2)), 0) FROM input WHERE "at" IS NOT NULL GROUP BY ALL"""
    assert _added([*closed, *late]) == {row[:2]: row[2:] for row in connection.sql(of_windows).fetchall()}
    assert rows_of(kept.read().to_pylist(), *names) == rows_of(closed, *names)
    assert sum(row["rows"] for row in untimed) == sum(row[2] is None for row in rows)
    highest = Counter[Any]()
    for row in closed:
        highest[row["window_start"]] = max(highest[row["window_start"]], row["rows"])
    assert rows_of(best, "window_start", "key") == rows_of(
        [row for row in closed if row["rows"] == highest[row["window_start"]]], "window_start", "key"
    )


def _added(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the numbers of rows and the totals of each key and window."""
    added: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        window = row["key"], row["window_start"]
        number, total = added.get(window, (0, 0))
        added[window] = number + row["rows"], total + (row["total"] or 0)
    return added


class Silence(TimerCommitter):
    """Emits a key after whose last row nothing came for a pause; the guide on flows has it."""

    output_fields = Fields("attempt", "key: string", "since: timestamp")
    pause = dt.timedelta(seconds=45)

    def on_rows(self, key, rows, old):
        times = [row["at"] for row in rows if row["at"]]
        times = [at for at in times if self.watermark is None or at + self.pause > self.watermark]
        for at in times:
            self.set_timer(key, at + self.pause)
        return [*(old or []), *times] or None

    def on_timer(self, key, time, old):
        later = [at for at in old or [] if at > time - self.pause]
        if not any(at <= time for at in later):
            self.collector.emit((self.attempt, key, time - self.pause))
        return later or None


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(rows=left_rows(), size=SIZES, delay=st.integers(0, 300), jitter=st.randoms(), tasks=st.integers(1, 3))
def test_timers(tmp_path_factory, rows, size, delay, jitter, tasks):
    """Timers fire as one query says, however the input is cut, while no row comes later than the clock waits for it."""
    rows.sort(key=lambda row: (row[2] or T) + dt.timedelta(seconds=jitter.uniform(0, delay)))
    output = tmp_path_factory.mktemp("flow")
    flow = Flow("f", output, parallelism=tasks)
    timed = flow.source("rows", memory(rows, LEFT, size)).event_time("at", delay=f"{delay}s", close_at_end=True)
    silence = Silence("recent", "timers", clock="rows-clock", key=Fields("key: string"))
    recent = DeltaState(output / "recent", key=Fields("key: string"), value=Fields("times: array<timestamp>"))
    timed.through("silence", silence, by="key", states={"recent": recent}).append("alerts")
    (alerts,) = ran(flow, "alerts")
    query = """SELECT key, "at" FROM input WHERE "at" IS NOT NULL
        QUALIFY coalesce(lead("at") OVER (PARTITION BY key ORDER BY "at") - "at" > INTERVAL 45 SECOND, true)"""
    assert rows_of(alerts, "key", "since") == answer(database(input=(rows, LEFT)), query)


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(rows=left_rows(), size=SIZES, delay=st.integers(0, 120), within=st.integers(1, 90), tasks=st.integers(1, 2))
def test_what_is_late_or_has_no_time(tmp_path_factory, rows, size, delay, within, tasks):
    """Of distinct and of a join, each row is in exactly one of their streams, or has pairs in the first."""
    flow = Flow("f", tmp_path_factory.mktemp("flow"), parallelism=tasks)
    left, right = (
        flow.source(name, memory(rows, LEFT, size))
        .event_time("at", delay=f"{delay}s", close_at_end=True)
        .select("key", "at", **{name: "id"})
        for name in ("left", "right")
    )
    once = left.distinct("left", within=f"{within}s")
    joined = left.join(right, "key", upper=f"{within}s", rename={"at": "right_at"}, how="full")
    streams = {"once": once, "once_late": once.late, "once_untimed": once.untimed, "joined": joined}
    streams |= {name: joined[name] for name in ("left_late", "left_untimed", "right_late", "right_untimed")}
    for name, stream in streams.items():
        stream.append(name)
    found = dict(zip(streams, ran(flow, *streams), strict=True))
    ids, untimed = sorted(row[0] for row in rows), sorted(row[0] for row in rows if row[2] is None)
    assert sorted(row["left"] for name in ("once", "once_late", "once_untimed") for row in found[name]) == ids
    assert sorted(row["left"] for row in found["once_untimed"]) == untimed
    for side in ("left", "right"):
        passed = {row[side] for row in found["joined"]} - {None}
        held_back = [row[side] for name in ("late", "untimed") for row in found[f"{side}_{name}"]]
        assert sorted([*passed, *held_back]) == ids
        assert sorted(row[side] for row in found[f"{side}_untimed"]) == untimed


EVENT = Fields("id: long", "key: string", "n: long")
VALUES = {
    "id": st.sampled_from([0, 1, 2, -7, 2**63 - 1, 2**63, 1.5, "x", True, [1], {"a": 1}, None]),
    "key": st.sampled_from(["a", "b", "é", "", 5, False, ["a"], None]),
    "n": st.integers(-3, 3) | st.sampled_from([None, "3", 0.5]),
    "more": st.none() | st.text(max_size=3),
}
BROKEN = st.sampled_from(["{", "not json", '{"id": 1', '"text"', "[1, 2]", "5", '{"id": 1} x', "{'id': 1}", "nul"])


@st.composite
def lines(draw):
    """Lines of some files, records and others."""
    fields = st.fixed_dictionaries({}, optional=VALUES).map(
        lambda row: json.dumps(row, ensure_ascii=draw(st.booleans()))
    )
    return draw(st.lists(st.lists(fields | BROKEN, min_size=1, max_size=8), min_size=1, max_size=4))


GOOD = """json_valid(line) AND json_type(line) = 'OBJECT'
    AND coalesce(json_type(line, '$.id') IN ('BIGINT', 'UBIGINT', 'NULL'), true)
    AND (json_extract_string(line, '$.id') IS NULL OR TRY_CAST(json_extract_string(line, '$.id') AS BIGINT) IS NOT NULL)
    AND coalesce(json_type(line, '$.key') IN ('VARCHAR', 'NULL'), true)
    AND coalesce(json_type(line, '$.n') IN ('BIGINT', 'UBIGINT', 'NULL'), true)"""


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(files=lines(), size=st.integers(1, 3), tasks=st.integers(1, 2))
def test_bad_records(tmp_path_factory, files, size, tasks):
    """Of lines that are no records, each is in the table of bad ones and their stream, and no other is; as SQL tells them."""
    folder = tmp_path_factory.mktemp("flow")
    (folder / "in").mkdir()
    for number, each in enumerate(files):
        (folder / "in" / f"{number}.json").write_text("".join(f"{line}\n" for line in each), encoding="utf-8")
    flow = Flow("f", folder / "out", parallelism=tasks)
    spout = FilesTransactionalSpout(folder / "in", EVENT, "json", batch_files_max=size)
    rows = flow.source("rows", spout, bad="unreadable")
    rows.append("rows")
    rows.filter("key IS NOT NULL").group_by("key").agg(n=Count(), total=Sum("n")).upsert("totals")
    rows.bad.filter(~pl.col("text").str.starts_with("{")).select("text").append("texts")
    found, totals, texts, bad = ran(flow, "rows", "totals", "texts", "unreadable")
    connection = duckdb.connect()
    connection.execute("CREATE TABLE lines (line VARCHAR)")
    connection.executemany("INSERT INTO lines VALUES (?)", [[line] for file in files for line in file])
    connection.execute(f"""CREATE TABLE good AS SELECT CAST(json_extract_string(line, '$.id') AS BIGINT) AS id, json_extract_string(line, '$.key') AS key,
        CAST(json_extract_string(line, '$.n') AS BIGINT) AS n FROM lines WHERE CASE WHEN json_valid(line) THEN {GOOD} ELSE false END""")
    is_bad = f"CASE WHEN json_valid(line) THEN NOT ({GOOD}) ELSE true END"
    assert rows_of(found, "id", "key", "n") == answer(connection, "SELECT * FROM good")
    assert rows_of(bad, "text") == answer(connection, f"SELECT line FROM lines WHERE {is_bad}")
    assert rows_of(texts, "text") == answer(
        connection, f"SELECT line FROM lines WHERE {is_bad} AND NOT starts_with(line, '{{')"
    )
    of = "SELECT key, count(*), CAST(sum(n) AS BIGINT) FROM good WHERE key IS NOT NULL GROUP BY key"
    assert rows_of(totals, "key", "n", "total") == answer(connection, of)
