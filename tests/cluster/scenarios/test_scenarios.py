"""Short forms of the scenarios that ``python -m tests.cluster`` plays for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.scenarios import closed_nodes, lost_zookeeper, rolling_restart, standalone_spark
from tests.harness.spark_cluster.standalone import why_not
from txtopo.testing import ZooKeeperServer, running_ensemble

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.long
def test_rolling_restart(tmp_path: Path) -> None:
    """Each nimbus, supervisor and ZooKeeper server is restarted while a topology commits and others are submitted."""
    with running_ensemble(tmp_path / "zookeeper", tick_time_ms=rolling_restart.TICK_MS) as ensemble:
        restarts = list(rolling_restart.play(ensemble, tmp_path / "cluster", 1, 7))
    assert len(restarts) == len(ensemble.servers) + 4


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_lost_zookeeper(tmp_path: Path, how: str) -> None:
    """All three servers are away for longer than drivers live without: they are started again unaided."""
    with running_ensemble(tmp_path / "zookeeper") as ensemble:
        lost_zookeeper.play(ensemble, tmp_path / "cluster", 25.0, how)


@pytest.mark.long
@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_standalone_spark(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """Tasks run on a standalone Spark cluster where nothing is installed; a killed driver goes on there."""
    standalone_spark.play(zookeeper.hosts, tmp_path)


@pytest.mark.long
def test_closed_nodes(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """With credentials a topology runs, and nobody else can read or change a node; no file shows the password."""
    assert closed_nodes.play(zookeeper.hosts, tmp_path).nodes > 20
