"""The session in which Spark SQL runs a topology's components: a clone of the run's, with settings that fit.

As Structured Streaming does for a query: what the caller's session knows (views, functions, catalogs, settings) is
there, and what is set in the clone changes nothing for the caller.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

_SETTINGS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
}
"""What suits the frames of transactions where the caller has set nothing else.

Plans that do not change keep a bolt's tasks where its rows lie. Spark's second hash map, in front of an aggregation's
own, holds 65,536 groups and is in the way of more: 100,000 take 1.3 times as long with it, 5,000 a twentieth less.
"""

_FILE_TASKS = "spark.sql.files.minPartitionNum"
"""In how many tasks Spark reads files at least, unless these would be of less than 4 MB each."""


class FrameSession:
    """A clone of a session, for the frames of transactions.

    Args:
        spark: the run's session, which stays as it is.
        tasks: of the bolt that takes the frames' rows: a shuffle of Spark SQL into as many can be the bolt's, too.

    Attributes:
        spark: the clone.
    """

    def __init__(self, spark: SparkSession, tasks: int = 1) -> None:
        context = spark.sparkContext
        self._given = spark
        self.spark = SparkSession(context, spark._jsparkSession.cloneSession())  # noqa: SLF001 - as newSession does
        self._cores = context.defaultParallelism
        self._shares_cores = not self._is_set(_FILE_TASKS)
        self._running = 0
        """Transactions in jobs that run."""
        self._lock = threading.Lock()
        fitting = {**_SETTINGS, "spark.sql.shuffle.partitions": str(max(tasks, self._cores))}
        for name, value in fitting.items():
            if not self._is_set(name):
                self.spark.conf.set(name, value)
        _drop_constant_keys(self.spark)

    @contextlib.contextmanager
    def running(self, transactions: int) -> Iterator[SparkSession]:
        """Give the session for a job: the files of all transactions that run share the cores.

        Spark would give all cores to the files of each. A task that sees more of a transaction's rows leaves fewer to
        shuffle: of two tasks that find the same 100,000 keys each, twice as many rows leave as of one. Files of more
        bytes than ``spark.sql.files.maxPartitionBytes`` are shared out as ever, and the caller's own setting stays.

        Args:
            transactions: of the job. A job that begins while it is planned may change its number of tasks, but no
                result.
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
            # createDataFrame() makes its session the whole process's active one: the next run would take the clone.
            if SparkSession._activeSession is self.spark:  # noqa: SLF001 - no other way
                SparkSession._activeSession = self._given  # noqa: SLF001 - as above

    def _is_set(self, name: str) -> bool:
        return self.spark.conf.get(name, None) is not None


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
    # By way of Java: the Scala collections of Spark 3.5 and of Spark 4 have no appending in common.
    every_rule = jvm.java.util.ArrayList()
    for index in range(rules_before.size()):
        every_rule.add(rules_before.apply(index))
    every_rule.add(rule)
    getattr(experimental, "extraOptimizations_$eq")(jvm.org.apache.spark.api.python.PythonUtils.toSeq(every_rule))
