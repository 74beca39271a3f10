"""Workers in Spark: the session that they run in, and the jobs that they are."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from txtopo.config import Config
from txtopo.errors import ConfigError, JobFailure
from txtopo.files.durable import is_shortage
from txtopo.spark.errors import error_of_python, line_that_matters, unhidden_errors
from txtopo.spark.jobs.job_canceller import JobCanceller
from txtopo.spark.session.sessions import is_spark_gone, spark_is_gone, spark_session
from txtopo.workers.control import JobStarter

RETRY_SECS = 1.0
"""How often this process tries to submit a job that it has no descriptor or no memory for."""

_REFUSED = {
    "spark.speculation": "a worker would run twice",
    "spark.python.worker.killOnIdleTimeout": "a worker that waits for work would be killed",
}
"""Settings of Spark that would break long-running workers, and how."""

logger = logging.getLogger("txtopo.workers")


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise a ConfigError if a setting of Spark does not go with workers that last as long as the run."""
    for name, why in _REFUSED.items():
        if settings.get(name, "false").lower() == "true":
            raise ConfigError(f"{name}=true does not go with workers that last as long as the run: {why}; leave it out")


@contextlib.contextmanager
def session_for_workers(
    config: Config,
    app_name: str,
    session_given: SparkSession | None,
    on_stage: Callable[[str], None] | None,
    *,
    delta_users: Sequence[str] = (),
) -> Iterator[SparkSession]:
    """Yield a session whose settings go with workers; one that is started here has a slot for each of them."""
    if on_stage is not None:
        on_stage("starting Spark")
    master = config.spark_master or f"local[{max(config.workers or 1, _cores())}]"
    settings = config.with_settings({"topology.spark.master": master})
    with spark_session(settings, app_name, session_given, delta_users=delta_users) as session:
        check_settings(dict(session.sparkContext.getConf().getAll()))
        yield session


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SparkWorkers(JobStarter):
    """Starts workers as Spark jobs of one task; ``run`` runs one on an executor, given its number and its job's."""

    def __init__(
        self,
        context: SparkContext,
        run_key: bytes,
        run: Callable[[int, int], None],
        retry_secs: float = RETRY_SECS,
    ) -> None:
        self._context = context
        self._retry_secs = retry_secs
        self._cancels = JobCanceller(context)
        self._run_key = run_key
        self._run = run

    def start(self, worker: int, job: int, on_end: Callable[[Exception | None], None]) -> None:
        """Submit the job of a worker."""

        def run() -> None:
            error: Exception | None = None
            try:
                with self._cancels.running(self._group(worker, job)) as cancelled, unhidden_errors():
                    self._submittable(worker, job, cancelled).collect()
            except JobFailure as failure:
                error = failure
            except Exception as failure:  # noqa: BLE001 - supervision decides what follows
                error = self._why(failure)
            on_end(error)

        # Not pyspark's InheritableThread: what that does before `run` may fail, and then nobody would be told.
        thread = threading.Thread(target=run, name=f"txtopo-worker-{worker}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left
            on_end(JobFailure(f"the job of a worker could not be submitted: {error}"))

    def cancel(self, worker: int, job: int) -> None:
        """Cancel the job of a worker until it has ended."""
        self._cancels.cancel(self._group(worker, job))

    def _submittable(self, worker: int, job: int, cancelled: threading.Event) -> RDD[Any]:
        """Return what runs a worker, once this thread has reached Spark: that takes a separate connection."""
        is_logged = False
        while True:
            try:
                self._context.setJobGroup(self._group(worker, job), f"worker {worker}", interruptOnCancel=True)
                self._context.setLocalProperty("spark.scheduler.pool", f"worker-{worker}")
                return self._context.parallelize([None], 1).mapPartitions(self._function(worker, job))
            except OSError as error:
                if not is_shortage(error):
                    raise
                if not is_logged:
                    logger.warning("worker %d starts later: %s; it is tried again until it works", worker, error)
                    is_logged = True
            if cancelled.wait(self._retry_secs):
                raise JobFailure("it was cancelled")

    def _why(self, failure: Exception) -> Exception:
        """Return the error that ended a job, without Spark's lines."""
        if is_spark_gone(self._context):
            return spark_is_gone(failure)
        wrong: ConfigError | None = error_of_python(str(failure))
        return wrong or JobFailure(f"Spark lost its job: {line_that_matters(str(failure))}")

    def _group(self, worker: int, job: int) -> str:
        return f"txtopo-{self._run_key.hex()}-worker-{worker}-{job}"

    def _function(self, worker: int, job: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
        run = self._run

        def work(items: Iterable[Any]) -> Iterator[Any]:
            list(items)  # Spark uses a Python process again only if it has read its input to the end
            run(worker, job)
            return iter(())

        return work
