"""Scenarios of whole clusters: a short form of one that ``python -m tests.cluster`` plays for longer, and others."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.cluster.nimbuses import next_root
from tests.cluster.scenarios import rolling_restart
from tests.cluster.supervisors import DriverCluster
from tests.harness.spark_cluster.standalone import running_cluster, why_not
from txtopo.testing import ZooKeeperServer, running_ensemble

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

AWAY_SECS = 25.0
"""Longer than drivers live without ZooKeeper, and some seconds for their end."""


def test_rolling_restart(tmp_path: Path) -> None:
    """Each nimbus, supervisor and ZooKeeper server is restarted while a topology commits and others are submitted."""
    with running_ensemble(tmp_path / "zookeeper", tick_time_ms=rolling_restart.TICK_MS) as ensemble:
        restarts = list(rolling_restart.play(ensemble, tmp_path / "cluster", 1, 7))
    assert len(restarts) == len(ensemble.servers) + 4


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_lost_zookeeper(tmp_path: Path, how: str) -> None:
    """Without any server drivers end and nobody leads; when all are back, everything goes on unaided and is exact."""
    with (
        running_ensemble(tmp_path / "zookeeper") as ensemble,
        DriverCluster(
            ensemble.hosts, next_root(), tmp_path / "cluster", 2, nimbuses=2, supervisor_isolation_secs=4
        ) as cluster,
    ):
        cluster.start()
        cluster.submit(total=1_000_000, pause=0.1)
        cluster.wait_until_committing()
        for server in ensemble.servers:
            server.signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        back_at = time.monotonic() + AWAY_SECS
        cluster.wait_for("its driver ends", lambda: not any(supervisor.drivers() for supervisor in cluster.supervisors))
        counted = cluster.counted()
        time.sleep(max(0.0, back_at - time.monotonic()))
        assert not any(supervisor.drivers() for supervisor in cluster.supervisors), (
            "a driver was started without ZooKeeper"
        )
        assert all(nimbus.is_alive() and not nimbus.leads for nimbus in cluster.cluster.nimbuses)
        for server in ensemble.servers:
            if how == "killed":
                server.kill()
                server.launch()
            else:
                server.signal(signal.SIGCONT)
        cluster.wait_for("it commits again", lambda: cluster.counted() > counted)
        assert cluster.status() == "ACTIVE"
        cluster.end()


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_standalone_spark(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """Tasks run on a standalone Spark cluster where nothing is installed; a killed driver goes on there."""
    with (
        running_cluster(tmp_path / "spark", workers=1) as spark,
        DriverCluster(zookeeper.hosts, next_root(), tmp_path, 1) as cluster,
    ):
        cluster.start()
        settings = {"topology.spark.master": spark.url, "spark.executor.memory": "512m"}
        topology = cluster.submit(total=1_000_000, pause=0.1, **settings)
        cluster.wait_until_committing()
        commands = [str(process.command) for process in spark.workers[0].processes()]
        assert any("CoarseGrainedExecutorBackend" in command for command in commands), "its tasks run in the cluster"
        os.kill(cluster.supervisors[0].drivers()[topology], signal.SIGKILL)
        cluster.wait_until_committing()
        cluster.end()
