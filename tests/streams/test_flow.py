"""Flows: generated ones equal a query of DuckDB over the whole input, however the input is cut; and what a flow is."""

import datetime as dt
import math
from decimal import Decimal

import attrs
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from committers import AppendCommitter
from spouts import FilesTransactionalSpout
from state import read_table
from tests.streams.flows import ORDER, memory, ran, table
from txtopo import Fields
from txtopo.errors import TopologyError
from txtopo.streams import Count, Flow, Max, Min, Sum
from txtopo.testing import run_inline

T = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)

VALUES = {
    "long": st.integers(-50, 50),
    "double": st.sampled_from([0.0, 0.5, -1.25, 3.0, 1e6]),
    "string": st.sampled_from(["", "a", "B", "cork", "é"]),
    "boolean": st.booleans(),
    "decimal(10,2)": st.sampled_from([Decimal("0.00"), Decimal("12.34"), Decimal("-3.50")]),
    "timestamp": st.integers(0, 7200).map(lambda secs: T + dt.timedelta(seconds=secs)),
}


@attrs.define
class Said:
    """The same flow twice: as a stream of ours, and as a query."""

    stream: object
    query: str
    fields: Fields

    def of(self, *kinds):
        return [name for name, kind in zip(self.fields, map(str, self.fields.types), strict=True) if kind in kinds]


def values_of(said, draw):
    """Return an expression of one of some forms, in polars or in its SQL, with the same in DuckDB."""
    forms = []
    for a in said.of("int64"):
        forms += [
            (pl.col(a) + 7, f"{a} + 7"),
            (f"{a} * {a}", f"{a} * {a}"),
            (pl.col(a) // 3, f"CAST(floor({a} / 3.0) AS BIGINT)"),
        ]
        forms += [
            (pl.col(a).abs(), f"abs({a})"),
            (f"CASE WHEN {a} > 3 THEN {a} ELSE 0 END", f"CASE WHEN {a} > 3 THEN {a} ELSE 0 END"),
        ]
        forms += [
            (pl.col(a).fill_null(1), f"coalesce({a}, 1)"),
            (pl.col(a) / 7, f"{a} / 7.0::DOUBLE"),
            (pl.col(a).cast(pl.String), f"{a}::VARCHAR"),
        ]
    for a in said.of("string"):
        forms += [
            (pl.col(a).str.to_uppercase(), f"upper({a})"),
            (f"{a} || 'x'", f"{a} || 'x'"),
            (pl.col(a).str.len_chars().cast(pl.Int64), f"length({a})"),
        ]
        forms += [
            (pl.coalesce(a, pl.lit("none")), f"coalesce({a}, 'none')"),
            (pl.col(a).str.slice(0, 1), f"substring({a}, 1, 1)"),
        ]
    for a in said.of("decimal128(10, 2)"):
        forms += [
            (pl.col(a) * pl.col(a), f"CAST({a} * {a} AS DECIMAL(38,4))"),
            (pl.col(a) + pl.col(a), f"CAST({a} + {a} AS DECIMAL(38,2))"),
        ]
    for a in said.of("double"):
        forms += [(pl.col(a) * 2, f"{a} * 2"), (pl.col(a) / 10, f"{a} / 10"), (pl.col(a).floor(), f"floor({a})")]
    for a in said.of("timestamp[us, tz=UTC]"):
        forms += [
            (pl.col(a).dt.hour().cast(pl.Int64), f"hour({a})"),
            (pl.col(a).dt.truncate("1h"), f"date_trunc('hour', {a})"),
        ]
        forms += [(pl.col(a) + dt.timedelta(hours=1), f"{a} + INTERVAL 1 HOUR")]
    return draw(st.sampled_from(forms)) if forms else (pl.lit(1).cast(pl.Int64), "1::BIGINT")


def condition_of(said, draw):
    forms = [(pl.lit(value=True), "true")]
    for a in said.of("int64"):
        forms += [
            (f"{a} > 0", f"{a} > 0"),
            (pl.col(a).is_in([1, 2, 3]), f"{a} IN (1, 2, 3)"),
            (pl.col(a).is_between(-9, 9), f"{a} BETWEEN -9 AND 9"),
        ]
        forms += [
            (~(pl.col(a) == 5), f"NOT {a} = 5"),
            (pl.col(a).is_null(), f"{a} IS NULL"),
            (pl.col(a) % 2 == 0, f"{a} % 2 = 0"),
        ]
    for a in said.of("string"):
        forms += [
            (f"{a} LIKE 'c%'", f"{a} LIKE 'c%'"),
            (pl.col(a) != "a", f"{a} <> 'a'"),
            (pl.col(a).str.len_chars() > 0, f"length({a}) > 0"),
        ]
    for a in said.of("bool"):
        forms += [(a, a), (~pl.col(a), f"NOT {a}"), (pl.col(a).eq_missing(pl.lit(None)), f"{a} IS NULL")]
    for a in said.of("decimal128(10, 2)"):
        forms += [(pl.col(a) > Decimal("0.5"), f"{a} > 0.5")]
    for a in said.of("double"):
        forms += [(pl.col(a) >= 0.5, f"{a} >= 0.5")]
    return draw(st.sampled_from(forms))


def stepped(said, draw, number):
    """Return the flow with another step."""
    stream, query = said.stream, said.query
    names = list(said.fields)
    verb = draw(st.sampled_from(["filter", "with_columns", "select", "drop", "rename", "map", "union", "double"]))
    match verb:
        case "filter":
            one, other = condition_of(said, draw)
            stream, query = stream.filter(one), f"SELECT * FROM ({query}) WHERE {other}"
        case "with_columns":
            one, other = values_of(said, draw)
            name = draw(st.sampled_from([f"n{number}", *(each for each in names if each != "id")]))
            stream = stream.with_columns(**{name: one})
            if name in names:
                query = f"SELECT * REPLACE ({other} AS {name}) FROM ({query})"
            else:
                query = f"SELECT *, {other} AS {name} FROM ({query})"
        case "select":
            kept = draw(st.permutations(names))[: draw(st.integers(1, len(names)))]
            kept = [*kept, *({"id"} - set(kept))]
            one, other = values_of(said, draw)
            stream, query = (
                stream.select(*kept, **{f"s{number}": one}),
                f"SELECT {', '.join(kept)}, {other} AS s{number} FROM ({query})",
            )
        case "drop" if len(names) > 2:
            name = draw(st.sampled_from([each for each in names if each != "id"]))
            stream, query = stream.drop(name), f"SELECT * EXCLUDE ({name}) FROM ({query})"
        case "rename":
            name = draw(st.sampled_from([each for each in names if each != "id"]))
            stream, query = stream.rename({name: f"r{number}"}), f"SELECT * RENAME ({name} AS r{number}) FROM ({query})"
        case "map":
            stream = stream.map(_same, stream.fields)
        case "union":
            one, other = condition_of(said, draw)
            stream, query = (
                stream.union(stream.filter(one)),
                f"SELECT * FROM ({query}) UNION ALL SELECT * FROM ({query}) WHERE {other}",
            )
        case "double":
            stream, query = stream.union(stream), f"SELECT * FROM ({query}) UNION ALL SELECT * FROM ({query})"
    return Said(stream, query, stream.fields)


def _same(row):
    return row


def plain(rows):
    """Return rows in an order that says nothing, with numbers as they compare."""
    return sorted((tuple(map(_plain, row)) for row in rows), key=repr)


def _plain(value):
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value + 0.0 if isinstance(value, float) else value


@pytest.mark.slow
@given(data=st.data())
def test_generated_flows(tmp_path_factory, data):
    """A chain of steps over some schema, and totals and windows of it, are what one query makes of the whole input."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4), label="kinds")
    fields = Fields("id: long", *(f"c{number}: {kind}" for number, kind in enumerate(kinds)))
    row = st.tuples(st.integers(0, 5), *(st.none() | VALUES[kind] for kind in kinds))
    rows = data.draw(st.lists(row, min_size=1, max_size=15), label="rows")
    flow = Flow("f", tmp_path_factory.mktemp("flow"), parallelism=data.draw(st.integers(1, 2)))
    stream = flow.source("rows", memory(rows, fields, data.draw(st.integers(1, 6), label="size")))
    said = Said(stream, "SELECT * FROM input", fields)
    for number in range(data.draw(st.integers(1, 4), label="steps")):
        said = stepped(said, data.draw, number)
    said.stream.append("rows")
    said.stream.group_by("id").agg(n=Count(), most=Max("id")).upsert("totals")
    input_ = pa.table(list(map(list, zip(*rows, strict=True))), schema=fields.arrow_schema())
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("input", input_)
    made, totals = ran(flow, "rows", "totals")
    query = said.query
    # By fetchall(): arrow() leaves out rows of unions of unions.
    assert plain(map(tuple, map(dict.values, made))) == plain(database.sql(query).fetchall())
    wanted = database.sql(f"SELECT id, count(*) AS n, max(id) AS most FROM ({query}) GROUP BY id").fetchall()
    assert sorted(tuple(row.values()) for row in totals) == sorted(wanted)


@pytest.mark.slow
@given(data=st.data())
def test_generated_windows(tmp_path_factory, data):
    """Windows of a stream that waits long enough are those of one query, however the input is cut."""
    fields = Fields("id: long", "key: string", "at: timestamp", "n: long")
    rows = data.draw(
        st.lists(
            st.tuples(st.integers(0, 9), VALUES["string"], VALUES["timestamp"], st.none() | VALUES["long"]),
            min_size=1,
            max_size=20,
        )
    )
    flow = Flow("f", tmp_path_factory.mktemp("flow"))
    stream = flow.source("rows", memory(rows, fields, data.draw(st.integers(1, 6)))).event_time(
        "at", delay="3h", close_at_end=True
    )
    few = stream.filter("n > 0 OR n IS NULL")
    minutes = data.draw(st.sampled_from([1, 7, 60]))
    few.group_by("key").window(f"{minutes}m").agg(rows=Count(), total=Sum("n"), least=Min("n")).append("windows")
    stream.distinct("id", within="4h").select("id").append("ids")
    windows, ids = ran(flow, "windows", "ids")
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("input", pa.table(list(map(list, zip(*rows, strict=True))), schema=fields.arrow_schema()))
    wanted = database.sql(
        f"SELECT key, time_bucket(INTERVAL {minutes} MINUTE, \"at\", TIMESTAMPTZ '1970-01-01 00:00:00Z') AS s, count(*), sum(n)::BIGINT, min(n) FROM input "
        "WHERE n > 0 OR n IS NULL GROUP BY ALL"
    ).fetchall()
    assert sorted(
        (
            (row["key"], row["window_start"].astimezone(dt.UTC), row["rows"], row["total"], row["least"])
            for row in windows
        ),
        key=repr,
    ) == sorted(((key, start.astimezone(dt.UTC), *others) for key, start, *others in wanted), key=repr)
    assert [row["id"] for row in ids] == sorted({row[0] for row in rows})


def test_bad_records(tmp_path):
    """bad= keeps records that do not fit in a table of the output, and as a stream."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1}\n{"id": "x"}\n')
    flow = Flow("bad", tmp_path / "out")
    numbers = flow.source("numbers", FilesTransactionalSpout(folder, Fields("id: long"), "json"), bad="unreadable")
    numbers.append("good")
    numbers.bad.select("text").append("texts")
    run_inline(flow.build())
    assert table(flow, "good") == [{"id": 1}]
    assert read_table(tmp_path / "out" / "unreadable").num_rows == 1
    assert [row["text"] for row in table(flow, "texts")] == ['{"id": "x"}']


def test_explain(tmp_path):
    """The text has each component with its phase, what feeds it, and its table."""
    flow = Flow("f", tmp_path)
    flow.source("orders", memory([(1, "Cork", T, 1, True)])).filter("price > 0").group_by("shop").agg(n=Count()).upsert(
        "totals"
    )
    assert flow.explain().replace(str(tmp_path), "out") == (
        "f: 3 components, 1 table\n"
        "processing phase\n"
        "  orders: MemoryTransactionalSpout\n"
        "  upsert-totals-rows: RowsBolt (filter) ← orders (local or shuffle)\n"
        "commit phase\n"
        "  upsert-totals: ReduceCommitter ← upsert-totals-rows (fields(shop)) → out/totals"
    )


def test_a_place_of_a_mistake_of_the_builder(tmp_path):
    """What only build() finds has the line of the step, too."""
    flow = Flow("f", tmp_path)
    flow.source("orders", memory([], ORDER)).through("mine", AppendCommitter("nowhere"))
    with pytest.raises(TopologyError, match=r"test_flow.py, line \d+: committer 'mine' requests state 'nowhere'"):
        flow.build()


@pytest.mark.parametrize(
    "wrong", [lambda flow: flow.source("a", memory([]), parallelism=0), lambda flow: Flow("f", "x", parallelism=0)]
)
def test_parallelism(tmp_path, wrong):
    """It is at least 1."""
    with pytest.raises(TopologyError, match="parallelism is 0; give a whole number"):
        wrong(Flow("f", tmp_path))


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark(tmp_path, spark):
    """A flow runs on Spark as in this process."""
    flow = Flow("f", tmp_path / "spark")
    orders = (
        flow.source("orders", memory([(n, "Cork", T, n, True) for n in range(9)]))
        .filter("price > 2")
        .with_columns(twice="price * 2")
    )
    orders.map(lambda row: (row["shop"], row["twice"]), Fields("shop: string", "twice: long")).group_by("shop").agg(
        n=Sum("twice")
    ).upsert("totals")
    report = flow.run()
    assert report.transactions == 5
    assert table(flow, "totals") == [{"shop": "Cork", "n": 66}]
