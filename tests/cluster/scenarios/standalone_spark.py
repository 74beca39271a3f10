"""A topology whose tasks run on a standalone Spark cluster, where nothing of it is installed; its driver is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import attrs

from tests.cluster.nimbuses import next_root
from tests.cluster.supervisors import DriverCluster
from tests.harness.spark_cluster.standalone import running_cluster


@attrs.frozen
class Outcome:
    """What it came to."""

    commit_after_secs: float
    """From the death of the driver to the next transaction that is in the table."""


def play(hosts: str, folder: Path) -> Outcome:
    """Run a topology there, and kill its driver once."""
    with (
        running_cluster(folder / "spark", workers=1) as spark,
        DriverCluster(hosts, next_root(), folder, 1) as cluster,
    ):
        cluster.start()
        [supervisor] = cluster.supervisors
        settings = {"topology.spark.master": spark.url, "spark.executor.memory": "512m"}
        topology = cluster.submit(total=1_000_000, pause=0.1, **settings)
        cluster.wait_until_committing()
        executors = [
            each for each in spark.workers[0].processes() if "CoarseGrainedExecutorBackend" in str(each.command)
        ]
        assert executors, "its tasks run in the cluster"
        os.kill(supervisor.drivers()[topology], signal.SIGKILL)
        killed = time.monotonic()
        cluster.wait_until_committing()
        commit_after_secs = time.monotonic() - killed
        cluster.end()
        return Outcome(commit_after_secs)
