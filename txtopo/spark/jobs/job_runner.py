"""Runs jobs on Spark: one Spark job for each, however many transactions and stages it has.

Items travel as (partition, item) pairs, and a shuffle sends each pair to its partition. An item carries thousands of
tuples, so the shuffle moves few, large rows. RDDs are faster than DataFrames: with two jobs in flight, a job of two
tasks takes 53 ms instead of 64 ms, and one with a shuffle 110 ms instead of 117 ms.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txtopo.attempts import TransactionAttempt
from txtopo.columnar.progress_probe import current_probe
from txtopo.config import Config
from txtopo.errors import JobFailure, StateFailure
from txtopo.spark.errors import error_of_python, line_that_matters, unhidden_errors
from txtopo.spark.jobs.job_canceller import JobCanceller
from txtopo.spark.session.sessions import DriverHost, is_spark_gone, spark_is_gone, spark_session
from txtopo.spark.session.shipping import make_importable
from txtopo.spark.sql.dataframe_code import error_of_function
from txtopo.spark.sql.dataframe_session import DataFrameSession
from txtopo.spark.sql.dataframes import DataFrameStages
from txtopo.spark.sql.sql_progress import SqlProgress
from txtopo.spark.tasks.progress import ProgressListener
from txtopo.spark.tasks.run_package import RunPackage, pack_up
from txtopo.spark.tasks.user_lines import LineListener, LinesAddress, lines_sent, take_line
from txtopo.spark.tasks.worker import same_partition, stage_function, task_factory_of
from txtopo.text.secrecy import SecretFilter
from txtopo.topology.plans.plan import Plan
from txtopo.topology.user_code.output import USER_LOGGER
from txtopo.transactional.jobs.job_runner import JobRunner, OnAnswer, at_the_end
from txtopo.transactional.jobs.stage_run import Job, Report

logger = logging.getLogger(__name__)
logger.addFilter(SecretFilter())  # Spark's errors quote those of user code


class SparkJobRunner(JobRunner):
    """Runs the jobs of one run on a Spark session."""

    def __init__(
        self, spark: SparkSession, plan: Plan, config: Mapping[str, Any], prototypes: Mapping[str, bytes]
    ) -> None:
        self._context = spark.sparkContext
        self._cancels = JobCanceller(self._context)
        self._plan = plan
        self._run_key = uuid.uuid4().bytes
        self._executors_lost = 0
        self.slots = max(1, self._context.defaultParallelism)
        import_paths = make_importable(self._context)
        host = DriverHost.of(self._context)
        self._progress = ProgressListener(host.reached, self._run_key, host.bound)
        self._lines = LineListener(
            host.reached, self._run_key, host.bound, lambda line: take_line(line, self.record_late)
        )
        package = RunPackage(
            self._run_key,
            pack_up(plan.without_states(), dict(config), dict(prototypes)),
            import_paths,
            self._progress.address,
            LinesAddress(host.reached, self._lines.port, logging.getLogger(USER_LOGGER).getEffectiveLevel()),
        )
        self._package = self._context.broadcast(package)
        self._dataframe_session = DataFrameSession(spark) if plan.dataframes else None

    def run(
        self,
        job: Job,
        on_progress: Callable[[], None],
        on_answer: OnAnswer = at_the_end,  # noqa: ARG002
    ) -> Sequence[Report]:
        """Run a job and return its reports.

        Raises:
            JobFailure: the job was lost or cancelled; another try may succeed.
            ConfigError: no job can run with the executors' Python.
            UserCodeError: a function that a DataFrame component passed to Spark SQL raised an exception.
            StopError: the Spark session has ended.
        """
        self._progress.listen(job.job_id, on_progress)  # before the job, whose tasks report at once
        try:
            with self._cancels.running(self._group(job.job_id)), unhidden_errors():
                return self._run_in_group(job, on_progress)
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            self._raise_if_hopeless(error)
            wrong = error_of_function(str(error), self._plan, job) if self._dataframe_session is not None else None
            if wrong is not None:
                raise wrong from error
            raise JobFailure(f"Spark lost job {job.job_id}: {line_that_matters(str(error))}") from error
        finally:
            self._progress.forget(job.job_id)

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return ``function(item)`` for each item, with one Spark task per item.

        Raises:
            StateFailure: Spark lost the job.
            ConfigError: no job can run with the executors' Python.
            StopError: the Spark session has ended.
        """
        package = self._package

        def work(item: Any) -> Any:
            with lines_sent(package.value.lines_address, package.value.run_key):
                task_factory_of(package.value)  # makes the driver's modules importable, which the function may use
                return function(item)

        try:
            group, probe = f"txtopo-{self._run_key.hex()}-commit", current_probe()
            self._context.setJobGroup(group, "commit", interruptOnCancel=True)
            with SqlProgress(self._context, group, probe.step), unhidden_errors():
                return list(self._context.parallelize(items, len(items)).map(work).collect())
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            self._raise_if_hopeless(error)
            raise StateFailure(f"Spark lost a job of the commit phase: {line_that_matters(str(error))}") from error

    def at_work(self) -> Mapping[TransactionAttempt, str]:
        """Return the component that each attempt has been in for a while on an executor."""
        return self._progress.at_work()

    def executors_lost(self) -> int:
        """Return how many executors Spark has removed: lost ones, and idle ones of dynamic allocation."""
        # The highest number counts: Spark may forget dead executors.
        with contextlib.suppress(Py4JError, OSError, AttributeError):  # the session may have ended
            store = self._context._jsc.sc().statusStore()  # noqa: SLF001 - the public API only knows live ones
            all_executors, live = (int(store.executorList(is_live_only).size()) for is_live_only in (False, True))
            self._executors_lost = max(self._executors_lost, all_executors - live)
        return self._executors_lost

    def cancel(self, job_id: int) -> None:
        """Stop a job that runs, or is about to."""
        self._cancels.cancel(self._group(job_id))

    def close(self) -> None:
        """Stop listening, and remove the run's data from the executors."""
        self._progress.close()
        self._lines.close()
        if self._context._jsc is not None:  # noqa: SLF001 - None once the session is stopped
            with contextlib.suppress(Py4JError, OSError):  # as above
                # Blocking, because a session that is stopped before its executors answer prints a page of Java.
                self._package.unpersist(blocking=True)

    def _run_in_group(self, job: Job, on_progress: Callable[[], None]) -> Sequence[Report]:
        self._context.setJobGroup(self._group(job.job_id), f"job {job.job_id}", interruptOnCancel=True)
        # Jobs of one pool run one after the other, those of different pools share the slots. Few names, because
        # Spark never removes a pool.
        self._context.setLocalProperty("spark.scheduler.pool", f"pool-{job.job_id % 8}")
        if self._dataframe_session is None:
            return self._run_stages(job)
        with (
            SqlProgress(self._context, self._group(job.job_id), on_progress),
            self._dataframe_session.running(len(job.attempts)) as session,
        ):
            return DataFrameStages(session, self._plan, self._package, job).run()

    def _run_stages(self, job: Job) -> list[Report]:
        partitions = job.layout.partitions
        items: Any = self._context.parallelize([], partitions)
        for stage in range(len(job.layout.stages)):
            if stage > 0:
                items = items.partitionBy(partitions, same_partition)
            items = items.mapPartitionsWithIndex(stage_function(self._package, job, stage))
        return [item for _, item in items.collect()]

    def _raise_if_hopeless(self, error: Exception) -> None:
        """Log Spark's whole error; raise one that stops the run if the next job would fail in the same way."""
        logger.debug("Spark lost a job", exc_info=error)
        if is_spark_gone(self._context):
            raise spark_is_gone(error) from error
        wrong = error_of_python(str(error))
        if wrong is not None:
            raise wrong from error

    def _group(self, job_id: int) -> str:
        return f"txtopo-{self._run_key.hex()}-{job_id}"


@contextlib.contextmanager
def spark_job_runner(
    plan: Plan,
    config: Config,
    prototypes: Mapping[str, bytes],
    *,
    spark: SparkSession | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Iterator[SparkJobRunner]:
    """Yield a job runner on a session: the caller's, the active one, or a new one that is stopped at the end."""
    if on_stage is not None:
        on_stage("starting Spark")
    with spark_session(config, plan.topology_id, spark, delta_users=plan.delta_users) as session:
        runner = SparkJobRunner(session, plan, config, prototypes)
        with contextlib.closing(runner):
            yield runner
