"""The session in which Spark SQL runs a topology's components: a clone of the run's session with suitable settings.

Structured Streaming does the same for a query: the clone has the views, functions, catalogs and settings of the
caller's session, and settings of the clone do not affect the caller.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

_SETTINGS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    "spark.sql.codegen.useIdInClassName": "false",
}
"""Settings for the DataFrames of transactions, unless the caller has set them.

Adaptive execution plans a shuffle once more at run time: 2 % of the time of a large transaction. Spark's two-level hash
map for aggregations has a first level of 65,536 groups; it once took 1.3x the time for 100,000 groups, and 0.94 to 0.97
of it in later quiet runs, so nothing speaks for either.

Spark compiles Java code for each stage of a plan, and puts the number of the stage into its class's name. The plans of
several transactions in one job differ in nothing else, so without the number they share their classes: 4 instead of 15
for jobs of up to 4 transactions. The JVM optimizes each class by itself.
"""

_FILE_TASKS = "spark.sql.files.minPartitionNum"
"""The minimum number of tasks in which Spark reads files, unless a task would get less than 4 MB."""


class DataFrameSession:
    """A clone of the run's session, for the DataFrames of transactions. The run's session does not change."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._given = spark
        self.spark = SparkSession(context, spark._jsparkSession.cloneSession())  # noqa: SLF001 - as newSession does
        self._cores = context.defaultParallelism
        self._shares_cores = not self._is_set(_FILE_TASKS)
        self._running = 0
        """The number of transactions in running jobs."""
        self._lock = threading.Lock()
        fitting = {**_SETTINGS, "spark.sql.shuffle.partitions": str(self._cores)}
        for name, value in fitting.items():
            if not self._is_set(name):
                self.spark.conf.set(name, value)
        _drop_constant_keys(self.spark)

    @contextlib.contextmanager
    def running(self, transactions: int) -> Iterator[SparkSession]:
        """Yield the session for a job of so many transactions; the files of all running transactions share the cores.

        By default Spark would use all cores for the files of each transaction. But a task that sees more of a
        transaction's rows leaves fewer to shuffle: two tasks that find the same 100,000 keys emit twice as many rows as
        one. Files larger than ``spark.sql.files.maxPartitionBytes`` are split as usual, and the caller's setting
        takes precedence. If another job starts while this one is planned, this one's number of tasks may change, but
        not its results.
        """
        with self._lock:
            self._running += transactions
        try:
            if self._shares_cores:
                self.spark.conf.set(_FILE_TASKS, str(max(1, self._cores // self._running)))
            yield self.spark
        finally:
            with self._lock:
                self._running -= transactions
            # createDataFrame() makes its session the process's active one; the next run would use the clone.
            if SparkSession._activeSession is self.spark:  # noqa: SLF001 - no other way
                SparkSession._activeSession = self._given  # noqa: SLF001 - as above

    def _is_set(self, name: str) -> bool:
        return self.spark.conf.get(name, None) is not None


def _drop_constant_keys(session: SparkSession) -> None:
    """Make Spark remove constants from an aggregation's key after constant propagation.

    Spark's rule for that runs before constants are propagated. That is too early for the attempt, which is constant
    in the DataFrame of one transaction, and takes more than half of each key's bytes.
    """
    jvm = session.sparkContext._jvm  # noqa: SLF001 - no other way
    assert jvm is not None, "a session has its JVM"
    rules = jvm.org.apache.spark.sql.catalyst.optimizer
    rule = getattr(getattr(rules, "RemoveLiteralFromGroupExpressions$"), "MODULE$")
    experimental = session._jsparkSession.experimental()  # noqa: SLF001 - as above
    rules_before = experimental.extraOptimizations()
    # Through a Java list, because the Scala collections of Spark 3.5 and Spark 4 have no common append.
    every_rule = jvm.java.util.ArrayList()
    for index in range(rules_before.size()):
        every_rule.add(rules_before.apply(index))
    every_rule.add(rule)
    getattr(experimental, "extraOptimizations_$eq")(jvm.org.apache.spark.api.python.PythonUtils.toSeq(every_rule))
