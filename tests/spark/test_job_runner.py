"""What executors do for the commit phase."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spouts import MemoryTransactionalSpout
from tests.acceptance.topologies import Partial
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.spark.job_runner import SparkJobRunner
from txtopo.spark.sql import sql_progress
from txtopo.transactional.tasks.factory import prototypes_of
from txtopo.transactional.tasks.progress_probe import ProgressProbe

TASKS = 6


def test_a_job_of_the_commit_phase_is_seen_to_get_on(spark: SparkSession, monkeypatch) -> None:
    """Promise 7: what executors fold may take longer than the timeout, as long as its tasks come to their ends."""
    monkeypatch.setattr(sql_progress, "LOOK_SECS", 0.001)
    builder = TransactionalTopologyBuilder("id", "spout", MemoryTransactionalSpout({}, Fields("word"), 1))
    builder.set_bolt("partial", Partial()).shuffle_grouping("spout")
    plan = builder.build().plan
    runner = SparkJobRunner(spark, plan, {}, prototypes_of(plan))
    probe = ProgressProbe()
    try:
        with probe.current():
            assert runner.compute(abs, range(-TASKS, 0)) == list(range(TASKS, 0, -1))
    finally:
        runner.close()
    assert probe.steps > 0
