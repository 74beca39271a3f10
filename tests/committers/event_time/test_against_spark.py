"""Windows and joins against Spark's own: where nothing is late, both say the same of the same rows."""

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions as f

from committers import Count, IntervalJoin, Mean, Sessions, Sliding, Sum, Tumbling, WindowCommitter
from committers.event_time.windows import Window
from tests.committers.event_time.joins import SIDES, run_join
from tests.committers.event_time.scripted import Planned, rows_of
from tests.committers.event_time.test_windows import SECOND, START, TYPED, built, table
from txtopo.testing.inline import run_inline

GAPS = [0, 1, 9, 10, 11, 40, 3600, 86_400 * 40]
"""Seconds between rows: some at the very end of a session, and months of silence."""


def rows(count: int, seed: int = 5) -> list[tuple[dt.datetime, str, int | None]]:
    """Return rows of two keys, some without a value."""
    draw = random.Random(seed)
    time, made = START, []
    for _ in range(count):
        time += draw.choices(GAPS, [5, 20, 5, 5, 5, 5, 1, 1])[0] * SECOND
        made.append((time, draw.choice("ab"), draw.choice([None, 1, 2, 3])))
    return made


@pytest.mark.parametrize(
    ("window", "of_spark"),
    [
        pytest.param(Tumbling(10 * SECOND), lambda: f.window("at", "10 seconds"), id="tumbling"),
        pytest.param(Sliding(12 * SECOND, 8 * SECOND), lambda: f.window("at", "12 seconds", "8 seconds"), id="sliding"),
        pytest.param(Sessions(10 * SECOND), lambda: f.session_window("at", "10 seconds"), id="sessions"),
    ],
)
def test_same_windows(spark: SparkSession, tmp_path: Path, window: Window, of_spark: Any) -> None:
    """Starts, ends, counts, sums and means, with nulls, and in batches that cut sessions."""
    given = rows(400)
    committer = WindowCommitter(
        "open",
        clock="clock",
        time="at",
        key=TYPED.subset(["key"]),
        window=window,
        aggregates={"rows": Count(), "total": Sum("n: long"), "mean": Mean("n: long")},
    )
    transactions = [given[at : at + 20] for at in range(0, len(given), 20)]
    run_inline(built(tmp_path, transactions, TYPED, committer, dt.timedelta()))
    frame = spark.createDataFrame(given, "at timestamp, key string, n long")
    expected = (
        frame.groupBy("key", of_spark().alias("w"))
        .agg(f.count("*"), f.sum("n"), f.avg("n"))
        .select("key", f.unix_micros("w.start"), f.unix_micros("w.end"), "count(1)", "sum(n)", "avg(n)")
    )
    columns = ("key", "window_start", "window_end", "rows", "total", "mean")
    found = [
        (key, *(round(time.timestamp()) * 1_000_000 for time in (start, end)), *values)
        for key, start, end, *values in table(tmp_path, "said", *columns)
    ]
    assert sorted(found, key=repr) == sorted(map(tuple, expected.collect()), key=repr)


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_same_joins(spark: SparkSession, tmp_path: Path, how: Any) -> None:
    """Pairs and rows without a partner, with null keys, rows that are alike, and times at both bounds."""
    draw = random.Random(6)
    given = [
        (draw.choice(["left", "right"]), START + (number // 3) * SECOND, draw.choice(["a", "b", "c", None]), number % 7)
        for number in range(300)
    ]
    join = IntervalJoin("open", clock="clock", **SIDES, lower=-3 * SECOND, upper=5 * SECOND, how=how)
    run_join(tmp_path, [Planned(0, given[at : at + 25]) for at in range(0, len(given), 25)], join)
    frame = spark.createDataFrame(given, "side string, at timestamp, key string, n long")
    left = frame.where("side = 'left'").select("key", "at", "n")
    right = frame.where("side = 'right'").selectExpr("key AS order", "at AS paid_at", "n AS amount")
    within = "key = order AND paid_at BETWEEN at - INTERVAL 3 SECONDS AND at + INTERVAL 5 SECONDS"
    expected = left.join(right, f.expr(within), how).selectExpr("coalesce(key, order)", "n", "amount")
    found = rows_of(tmp_path, "default", "key", "n", "amount")
    assert found == sorted(map(tuple, expected.collect()), key=repr)
    assert rows_of(tmp_path, "left_late") == rows_of(tmp_path, "right_late") == []
