"""ZooKeeper is away, all three servers of it, longer than drivers live without it, while a topology commits.

1. The topology commits.
2. All servers are killed, or stopped by SIGSTOP. Drivers end, by themselves or by their supervisor.
3. After the given time the servers are back. Nobody is told: nimbuses, supervisors and drivers go on by themselves.
4. The topology commits again, and its table is exact.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import attrs

from tests.cluster.nimbuses import next_root
from tests.cluster.supervisors import DriverCluster
from txtopo.testing import ZooKeeperEnsemble

ISOLATION_SECS = 4


@attrs.frozen
class Outcome:
    """What it came to."""

    how: str
    away_secs: float
    driver_ended_after_secs: float
    commit_after_secs: float
    """From the moment when ZooKeeper serves again to the next transaction that is in the table."""


def play(ensemble: ZooKeeperEnsemble, folder: Path, away_secs: float, how: str) -> Outcome:
    """Take ZooKeeper away once.

    Args:
        ensemble: ZooKeeper.
        folder: of everything else.
        away_secs: how long; longer than ``ISOLATION_SECS`` and some seconds for the end of drivers.
        how: ``killed`` or ``stopped``.
    """
    with DriverCluster(
        ensemble.hosts, next_root(), folder, 2, nimbuses=2, supervisor_isolation_secs=ISOLATION_SECS
    ) as cluster:
        cluster.start()
        cluster.submit(total=1_000_000, pause=0.1)
        cluster.wait_until_committing()
        _take_away(ensemble, how)
        gone = time.monotonic()
        cluster.wait_for("its driver ends", lambda: not any(each.drivers() for each in cluster.supervisors))
        ended = time.monotonic()
        assert ended - gone < away_secs, "ZooKeeper must be away for longer"
        counted = cluster.counted()
        time.sleep(away_secs - (ended - gone))
        assert not any(each.drivers() for each in cluster.supervisors), "a driver was started without ZooKeeper"
        assert all(each.is_alive() and not each.leads for each in cluster.cluster.nimbuses)
        _bring_back(ensemble, how)
        back = time.monotonic()
        cluster.wait_for("it commits again", lambda: cluster.counted() > counted)
        committed = time.monotonic()
        assert cluster.status() == "ACTIVE"
        cluster.end()
        return Outcome(how, away_secs, ended - gone, committed - back)


def _take_away(ensemble: ZooKeeperEnsemble, how: str) -> None:
    for server in ensemble.servers:
        if how == "killed":
            server.kill()
        else:
            server.signal(signal.SIGSTOP)


def _bring_back(ensemble: ZooKeeperEnsemble, how: str) -> None:
    for server in ensemble.servers:
        if how == "killed":
            server.launch()
        else:
            server.signal(signal.SIGCONT)
    for server in ensemble.servers:
        server.wait_until_ready()
