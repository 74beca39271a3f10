"""A cancel counts whenever it comes: before Spark has the job, while it has it, and as often as it must."""

from __future__ import annotations

import errno
import queue
import threading
from collections import Counter

import pytest
from pyspark.sql import SparkSession

from tests.full_disk import no_descriptor_left
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.errors import JobFailure
from txtopo.spark.jobs.job_canceller import JobCanceller
from txtopo.spark.jobs.workers import SparkWorkers


class Context:
    """Stands for Spark's: it forgets a cancel of a group that has no job, as Spark does."""

    _jsc = object()

    def __init__(self) -> None:
        self.jobs: dict[str, threading.Event] = {}
        self.cancelled: Counter[str] = Counter()
        self.shortage: OSError | None = None
        """What keeps threads from reaching Spark."""
        self.refused = 0

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802 - Spark's name
        if self.shortage is not None:
            self.refused += 1
            raise self.shortage

    def setLocalProperty(self, *_: object) -> None:  # noqa: N802 - Spark's name
        pass

    def parallelize(self, *_: object) -> Context:
        return self

    def mapPartitions(self, _: object) -> Context:  # noqa: N802 - Spark's name
        return self

    def collect(self) -> None:
        pass

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's name
        self.cancelled[group] += 1
        if group in self.jobs:
            self.jobs[group].set()


@pytest.fixture
def context() -> Context:
    """A session without Spark."""
    return Context()


def test_before_spark_has_the_job(context: Context) -> None:
    """It is repeated until the job has ended, and only for its group."""
    made = JobCanceller(context, repeat_secs=0.01)  # type: ignore[arg-type]
    with made.running("a"):
        made.cancel("a")
        wait_for("three cancels that are lost", lambda: context.cancelled["a"] >= 3)
        context.jobs["a"] = threading.Event()
        assert context.jobs["a"].wait(DEADLINE_SECS)
    assert list(context.cancelled) == ["a"]
    wait_for("end of the cancels", lambda: all(each.name != "txtopo-cancel" for each in threading.enumerate()))


def test_before_the_job_begins(context: Context) -> None:
    """It does not begin; the next one of that name does."""
    made = JobCanceller(context, repeat_secs=0.01)  # type: ignore[arg-type]
    made.cancel("a")
    with pytest.raises(JobFailure, match="cancelled"), made.running("a"):
        raise AssertionError("begun")
    with made.running("a"):
        pass
    assert not context.cancelled


@pytest.fixture
def workers(context: Context) -> SparkWorkers:
    """Workers whose jobs end at once."""
    return SparkWorkers(context, b"key", lambda *_: None, retry_secs=0.01)  # type: ignore[arg-type]


def test_no_descriptor_for_a_job(context: Context, workers: SparkWorkers) -> None:
    """It is submitted once there is one again; until then it can be cancelled."""
    ended: queue.Queue[Exception | None] = queue.Queue()
    context.shortage = OSError(errno.EMFILE, "Too many open files")
    workers.start(0, 0, ended.put)
    wait_for("three tries", lambda: context.refused >= 3)
    assert ended.empty()
    context.shortage = None
    assert ended.get(timeout=DEADLINE_SECS) is None
    context.shortage = OSError(errno.EMFILE, "Too many open files")
    workers.start(0, 1, ended.put)
    workers.cancel(0, 1)
    assert isinstance(ended.get(timeout=DEADLINE_SECS), JobFailure)


def test_no_thread_for_a_job(workers: SparkWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervision is told, as of each other failure of a job."""
    ended: queue.Queue[Exception | None] = queue.Queue()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        workers.start(0, 0, ended.put)
    assert isinstance(ended.get(timeout=DEADLINE_SECS), JobFailure)


@pytest.mark.spark
def test_worker_without_a_descriptor(spark: SparkSession) -> None:
    """The same with Spark itself: its JVM lives, whether or not this process can reach it."""
    ended: queue.Queue[Exception | None] = queue.Queue()
    workers = SparkWorkers(spark.sparkContext, b"key", lambda *_: None, retry_secs=0.1)
    with no_descriptor_left():
        workers.start(0, 0, ended.put)
        with pytest.raises(queue.Empty):
            ended.get(timeout=1)
    assert ended.get(timeout=DEADLINE_SECS) is None


@pytest.mark.spark
def test_worker_that_is_cancelled_at_once(spark: SparkSession) -> None:
    """Its job ends, however early the cancel comes, and its slot is free."""
    ended: queue.Queue[Exception | None] = queue.Queue()
    workers = SparkWorkers(spark.sparkContext, b"key", lambda *_: threading.Event().wait(600))
    for job in range(4):
        workers.start(0, job, ended.put)
        if job == 3:
            wait_for("the job", lambda: spark.sparkContext.statusTracker().getActiveJobsIds())
        workers.cancel(0, job)
        assert isinstance(ended.get(timeout=DEADLINE_SECS), Exception)
