"""What executors do for the commit phase, and what they tell the driver."""

import contextlib
import threading
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spouts import MemoryTransactionalSpout
from tests.acceptance.topologies import Partial
from tests.bolts import Take
from tests.waiting import wait_for
from txtopo import Config, Fields, TransactionalTopologyBuilder, run
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import UserCodeError
from txtopo.spark.jobs.job_runner import SparkJobRunner
from txtopo.transactional.tasks.factory import prototypes_of

TASKS = 6


def waited(seen: Path, number: int) -> int:
    """Return the opposite; the last task ends when a file says that the ends of others have been seen."""
    if number == -1:
        wait_for("the ends of others", seen.exists)
    return -number


def test_a_job_of_the_commit_phase_is_seen_to_get_on(spark: SparkSession, tmp_path) -> None:
    """Promise 7: what executors fold may take longer than the timeout, as long as its tasks come to their ends."""
    seen = tmp_path / "seen"
    builder = TransactionalTopologyBuilder("id", "spout", MemoryTransactionalSpout({}, Fields("word"), 1))
    builder.set_bolt("partial", Partial()).shuffle_grouping("spout")
    plan = builder.build().plan
    runner = SparkJobRunner(spark, plan, {}, prototypes_of(plan))
    probe = ProgressProbe()

    def look() -> None:
        wait_for("progress", lambda: probe.steps > 0)
        seen.touch()

    threading.Thread(target=look, daemon=True).start()
    try:
        with probe.current():
            assert runner.compute(partial(waited, seen), range(-TASKS, 0)) == list(range(TASKS, 0, -1))
    finally:
        runner.close()


class Late(Take):
    """Has a thread that emits until it is refused, which is when the batch is over."""

    output_fields = Fields("attempt", "n")

    def finish_batch(self):
        if self.attempt.txid == 1:
            threading.Thread(target=self.emit, daemon=True).start()

    def emit(self):
        waits = threading.Event()
        with contextlib.suppress(UserCodeError):  # as a thread may do whose errors nobody sees
            while not waits.wait(0.01):
                self.collector.emit((self.attempt, 0))


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_what_a_thread_does_too_late(spark: SparkSession, tmp_path, mode: str) -> None:
    """It stops the run and is named, though nothing of its transaction is left to report it with."""
    builder = TransactionalTopologyBuilder("late", "spout", MemoryTransactionalSpout(range(1000), Fields("n"), 1))
    builder.set_bolt("late", Late()).shuffle_grouping("spout")
    with pytest.raises(UserCodeError, match="after its batch was over") as raised:
        run(builder.build(), Config(processing_mode=mode, max_spout_pending=4, state_dir=str(tmp_path)))
    assert (raised.value.component, raised.value.txid) == ("late", 1)
