"""The clone of a session in which frames are made."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession, functions as F

from txtopo.spark.sql.dataframe_session import DataFrameSession

ADAPTIVE = "spark.sql.adaptive.enabled"
FILE_TASKS = "spark.sql.files.minPartitionNum"
SETTINGS = (
    "spark.sql.codegen.aggregate.map.twolevel.enabled",
    "spark.sql.shuffle.partitions",
    ADAPTIVE,
    "spark.sql.codegen.useIdInClassName",
)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session of its own, for views and settings of these tests."""
    return spark.newSession()


def settings(session: SparkSession) -> dict[str, str | None]:
    return {name: session.conf.get(name, None) for name in SETTINGS}


def sums(session: SparkSession, rows: int, *keys: str):
    attempt = "named_struct('txid', 7L, 'attempt', 1L) AS attempt"
    frame = session.range(rows).selectExpr(attempt, "id % 3 AS k", "id AS n")
    return frame.groupBy("attempt", *keys).agg(F.sum("n").alias("n"))


def plan_of(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def test_what_the_session_knows(session: SparkSession) -> None:
    session.range(3).createOrReplaceTempView("three")
    session.udf.register("one_more", lambda n: n + 1, "long")
    rows = DataFrameSession(session).spark.sql("SELECT one_more(id) AS n FROM three ORDER BY n").collect()
    assert [row.n for row in rows] == [1, 2, 3]


def test_the_session_stays_as_it_is(session: SparkSession) -> None:
    before = settings(session)
    clone = DataFrameSession(session).spark
    clone.conf.set("spark.sql.shuffle.partitions", "3")
    assert settings(session) == before
    assert session._jsparkSession.experimental().extraOptimizations().isEmpty()
    assert SparkSession._instantiatedSession is not clone


def test_settings_that_fit(session: SparkSession) -> None:
    for name in SETTINGS:
        session.conf.unset(name)
    clone = DataFrameSession(session).spark
    assert clone.conf.get(SETTINGS[0]) == clone.conf.get(ADAPTIVE) == clone.conf.get(SETTINGS[3]) == "false"
    assert clone.conf.get(SETTINGS[1]) == str(session.sparkContext.defaultParallelism)


@pytest.mark.parametrize(
    ("name", "value"), [(SETTINGS[0], "true"), (SETTINGS[1], "17"), (ADAPTIVE, "true"), (SETTINGS[3], "true")]
)
def test_settings_of_the_caller_win(session: SparkSession, name: str, value: str) -> None:
    session.conf.set(name, value)
    assert DataFrameSession(session).spark.conf.get(name) == value


@pytest.fixture
def files(session: SparkSession, tmp_path: Path) -> str:
    """Small files, more than there are cores."""
    folder = str(tmp_path / "files")
    session.range(100).repartition(3 * session.sparkContext.defaultParallelism).write.parquet(folder)
    return folder


def test_cores_are_shared_by_transactions(session: SparkSession, files: str) -> None:
    """Those of all jobs that run share them, and one alone has them all."""
    frames, cores = DataFrameSession(session), session.sparkContext.defaultParallelism
    tasks = []
    with frames.running(1) as alone:
        tasks.append(alone.read.parquet(files).rdd.getNumPartitions())
        with frames.running(1) as second:
            tasks.append(second.read.parquet(files).rdd.getNumPartitions())
        with frames.running(98) as many:
            tasks.append(many.read.parquet(files).rdd.getNumPartitions())
    with frames.running(1) as again:
        tasks.append(again.read.parquet(files).rdd.getNumPartitions())
    assert tasks == [cores, max(1, cores // 2), 1, cores]


def test_the_caller_shares_cores(session: SparkSession, files: str) -> None:
    session.conf.set(FILE_TASKS, "3")
    with DataFrameSession(session).running(99) as frames:
        assert frames.read.parquet(files).rdd.getNumPartitions() == 3


def test_a_constant_is_no_key(session: SparkSession) -> None:
    frame = sums(DataFrameSession(session).spark, 9, "k")
    assert "keys=[k#" in plan_of(frame)
    assert "[7,1]" in plan_of(sums(session, 9, "k"))
    assert {(row.attempt.txid, row.k, row.n) for row in frame.collect()} == {(7, 0, 9), (7, 1, 12), (7, 2, 15)}


def test_transactions_share_compiled_code(session: SparkSession) -> None:
    """The plan of a second transaction in a job is run by the classes of the first."""
    clone = DataFrameSession(session).spark
    compiled = session._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    sums(clone, 9, "k").collect()
    before = compiled.getCount()
    sums(clone, 9, "k").unionAll(sums(clone, 9, "k")).collect()
    assert compiled.getCount() == before


@pytest.mark.parametrize("rows", [0, 4])
def test_the_only_key(session: SparkSession, rows: int) -> None:
    """No row for a transaction that has none: a global aggregation would make one."""
    found = [(tuple(row.attempt), row.n) for row in sums(DataFrameSession(session).spark, rows).collect()]
    assert found == ([((7, 1), 6)] if rows else [])


def test_the_active_session_stays(session: SparkSession, spark: SparkSession) -> None:
    """A frame made in the clone does not make the clone the session of the process, which the next run would take."""
    session.createDataFrame([(1,)], "n int")
    with DataFrameSession(session).running(1) as clone:
        assert clone.createDataFrame([(1,)], "n int").count() == 1
        assert SparkSession.getActiveSession() is clone
    assert SparkSession.getActiveSession() is session
    spark.createDataFrame([(1,)], "n int")
