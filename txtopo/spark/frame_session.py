"""The session in which Spark SQL runs a topology's components: a clone of the run's, with settings that fit.

As Structured Streaming does for a query: what the caller's session knows (views, functions, catalogs, settings) is
there, and what is set in the clone changes nothing for the caller.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

_SETTINGS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
}
"""What suits the frames of transactions where the caller has set nothing else.

Plans that do not change keep a bolt's tasks where its rows lie. Spark's second hash map, in front of an aggregation's
own, holds 65,536 groups and is in the way of more: 100,000 take 1.3 times as long with it, 5,000 a twentieth less.
"""


def frame_session(spark: SparkSession, tasks: int = 1) -> SparkSession:
    """Return a clone of a session, for the frames of transactions.

    Args:
        spark: the run's session, which stays as it is.
        tasks: of the bolt that takes the frames' rows: a shuffle of Spark SQL into as many can be the bolt's, too.
    """
    context = spark.sparkContext
    clone = SparkSession(context, spark._jsparkSession.cloneSession())  # noqa: SLF001 - as SparkSession.newSession does
    fitting = {**_SETTINGS, "spark.sql.shuffle.partitions": str(max(tasks, context.defaultParallelism))}
    for name, value in fitting.items():
        if clone.conf.get(name, None) is None:
            clone.conf.set(name, value)
    _drop_constant_keys(clone)
    return clone


def _drop_constant_keys(session: SparkSession) -> None:
    """Let Spark leave a constant out of an aggregation's key once it knows that it is one.

    Its rule for that runs before constants are propagated: too early for the attempt, which is one in the frame of one
    transaction, and more than half of each key's bytes.
    """
    jvm = session.sparkContext._jvm  # noqa: SLF001 - no other way
    assert jvm is not None, "a session has its JVM"
    rules = jvm.org.apache.spark.sql.catalyst.optimizer
    rule = getattr(getattr(rules, "RemoveLiteralFromGroupExpressions$"), "MODULE$")
    experimental = session._jsparkSession.experimental()  # noqa: SLF001 - as above
    rules_before = experimental.extraOptimizations()
    getattr(experimental, "extraOptimizations_$eq")(rules_before.appended(rule))
