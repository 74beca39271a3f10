"""A driver that keeps failing at its start: it moves to another supervisor, and where none is left, it has FAILED.

Spark finds no Java on a machine whose ``JAVA_HOME`` leads nowhere.
"""

from __future__ import annotations

from pathlib import Path

import attrs

from tests.cluster.nimbuses import next_root
from tests.cluster.supervisors import DriverCluster, SupervisorProcess

RETRIES = 3
"""Enough for the other supervisor to start meanwhile."""

TIMEOUT_SECS = 60
"""More than a driver takes to its first heartbeat on a busy machine, so that it moves for no other reason."""


@attrs.frozen
class Outcome:
    """What it came to."""

    moved_from: str
    reason: str
    """Of the one that has FAILED."""


def play(hosts: str, folder: Path) -> Outcome:
    """Let a topology move to the supervisor that can run it, and another one fail on both."""
    settings = {"supervisor_worker_start_retries": RETRIES, "nimbus_task_timeout_secs": TIMEOUT_SECS}
    with DriverCluster(hosts, next_root(), folder, 2, **settings) as cluster:
        broken, sound = cluster.supervisors
        cluster.nimbus.start().wait_until_up()
        cluster.cluster.leader()
        _start_without_java(broken)
        topology = cluster.submit(total=10)
        cluster.wait_for("it is assigned", lambda: topology in cluster.cluster.state.assignments())
        sound.start().wait_until_up()
        cluster.wait_for("it has moved", lambda: topology in sound.drivers())
        [assignment] = [each for each in cluster.cluster.state.assignments().values() if each.topology == topology]
        assert (assignment.supervisor, assignment.failed_at) == (sound.id, (broken.id,))
        assert _starts(broken) == RETRIES
        cluster.wait_until_counted(10)
        sound.stop()
        _start_without_java(sound)
        moved_from = broken.id
        cluster.submit(total=20)
        cluster.wait_for("it has failed", lambda: cluster.status() == "FAILED")
        reason = str(cluster.shown()["reason"])
        assert reason.startswith("the driver keeps failing at its start, on "), reason
        assert broken.id in reason
        assert sound.id in reason
        assert "java" in reason.lower(), reason
        assert cluster.counted() == 10, "nothing was written"
        assert not any(each.drivers() for each in cluster.supervisors)
        return Outcome(moved_from, reason)


def _start_without_java(supervisor: SupervisorProcess) -> None:
    supervisor.start(environment={"JAVA_HOME": "/nowhere"}).wait_until_up()


def _starts(supervisor: SupervisorProcess) -> int:
    return supervisor.log.read_text().count(": driver ")
