"""A topology whose driver, supervisor or whole machine is killed again and again while it commits.

Between two kills the topology must have committed something. At the end its table is exact.
"""

import os
import random
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.cluster.nimbuses import next_root
from tests.cluster.supervisors import DriverCluster, SupervisorProcess

VICTIMS = ("driver", "driver", "supervisor", "machine")
PAUSE_SECS = 0.05


@attrs.frozen
class Kill:
    """What one kill came to."""

    victim: str
    commit_after_secs: float
    """From the kill to the next transaction that is in the table."""


def play(hosts: str, folder: Path, kills: int, seed: int) -> Iterator[Kill]:
    """Kill so often, and check the table at the end."""
    draw = random.Random(seed)
    # Longer than the pauses before restarts, which grow: a driver that waits for its restart is not to be moved.
    with DriverCluster(hosts, next_root(), folder, 2, nimbus_task_timeout_secs=15) as cluster:
        cluster.start()
        topology = cluster.submit(total=1_000_000, pause=PAUSE_SECS)
        for _ in range(kills):
            cluster.wait_until_committing()
            time.sleep(draw.random() * 2)  # so that kills come at any moment
            victim = draw.choice(VICTIMS)
            host = _host(cluster, topology)
            _kill(host, topology, victim)
            killed, counted = time.monotonic(), cluster.counted()
            cluster.wait_for(f"it commits after {victim}", lambda counted=counted: cluster.counted() > counted)
            yield Kill(victim, time.monotonic() - killed)
            if victim != "driver":
                host.start().wait_until_up()
        cluster.end()


def report(kills: list[Kill]) -> str:
    """Return the times as lines."""
    lines = []
    for victim in sorted(set(VICTIMS)):
        times = sorted(kill.commit_after_secs for kill in kills if kill.victim == victim)
        if times:
            lines.append(
                f"{victim}: {len(times)} kills, next commit after {statistics.median(times):.1f} s, at most {times[-1]:.1f} s"
            )
    return "\n".join(lines)


def _host(cluster: DriverCluster, topology: str) -> SupervisorProcess:
    """Wait until a supervisor runs the topology, and return it."""

    def running() -> list[SupervisorProcess]:
        assignment = cluster.cluster.state.assignments().get(topology)
        return [
            supervisor
            for supervisor in cluster.supervisors
            if assignment is not None and supervisor.id == assignment.supervisor and topology in supervisor.drivers()
        ]

    found: list[SupervisorProcess] = cluster.wait_for("somebody runs it", running)
    return found[0]


def _kill(host: SupervisorProcess, topology: str, victim: str) -> None:
    match victim:
        case "driver":
            os.kill(host.drivers()[topology], signal.SIGKILL)
        case "supervisor":
            host.kill()
        case _:
            host.lose_machine()
