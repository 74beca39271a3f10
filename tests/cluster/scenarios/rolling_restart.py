"""Everything is restarted, one after another, while topologies commit and others are submitted.

Each nimbus, supervisor and ZooKeeper server is ended in good order or by SIGKILL, and started again when something was
submitted without it. Then all topologies commit on. At the end the tables are exact, and everything that was
acknowledged is there, with its code.
"""

import random
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from tests.cluster.nimbuses import TOKEN, next_root
from tests.cluster.supervisors import SUBMITTED, DriverCluster
from txtopo.cluster.client import ClusterClient
from txtopo.cluster.code.submission import Submission
from txtopo.testing import ZooKeeperEnsemble

PATIENCE_SECS = 120.0
TICK_MS = 300
"""Of ZooKeeper: sessions may last up to 6 s, so they outlive the election of another leader."""


@attrs.frozen
class Restart:
    """What one restart came to."""

    who: str
    how: str
    submitted_secs: float
    """How long a submission took meanwhile."""
    back_secs: float
    """From its start to the moment when it does its work again."""


@attrs.frozen
class _Member:
    name: str
    stop: Callable[[], object]
    kill: Callable[[], None]
    start: Callable[[], object]


def play(
    ensemble: ZooKeeperEnsemble, folder: Path, rounds: int, seed: int, names: tuple[str, ...] = ("counting", "too")
) -> Iterator[Restart]:
    """Restart everything so often, and check tables and topologies at the end.

    Args:
        ensemble: ZooKeeper.
        folder: of everything else.
        rounds: how often each member is restarted.
        seed: of the order, and of how members are ended.
        names: of the topologies that commit, one on each supervisor.
    """
    draw = random.Random(seed)
    with DriverCluster(
        ensemble.hosts,
        next_root(),
        folder,
        supervisors=len(names),
        nimbuses=2,
        storm_zookeeper_session_timeout_secs=4,
        supervisor_slots=1,  # the topologies that are submitted on the way wait for a slot
        supervisor_isolation_secs=20,
        nimbus_task_timeout_secs=40,
    ) as cluster:
        cluster.start()
        outputs = {name: folder / f"out-{name}" for name in names}
        running = [cluster.submit(output=outputs[name], name=name, total=1_000_000, pause=0.2) for name in names]
        cluster.wait_until_committing(*outputs.values())
        acknowledged: list[str] = []
        for _ in range(rounds):
            for member in draw.sample(members := _members(ensemble, cluster), len(members)):
                how = draw.choice(("SIGTERM", "SIGKILL"))
                (member.stop if how == "SIGTERM" else member.kill)()
                submitted = time.monotonic()
                acknowledged.append(_submit(cluster, len(acknowledged)))
                started = time.monotonic()
                member.start()
                back = time.monotonic()
                cluster.wait_until_committing(*outputs.values())
                yield Restart(member.name, how, started - submitted, back - started)
        _check(cluster, running, acknowledged)
        for name, output in outputs.items():
            cluster.end(name, output)


def _members(ensemble: ZooKeeperEnsemble, cluster: DriverCluster) -> list[_Member]:
    members = [
        _Member(f"ZooKeeper {number}", each.stop, each.kill, each.start)
        for number, each in enumerate(ensemble.servers, start=1)
    ]
    members += [
        _Member(f"nimbus {number}", each.stop, each.kill, lambda each=each: each.start().wait_until_up())
        for number, each in enumerate(cluster.cluster.nimbuses, start=1)
    ]
    members += [
        _Member(f"supervisor {number}", each.stop, each.kill, lambda each=each: each.start().wait_until_up())
        for number, each in enumerate(cluster.supervisors, start=1)
    ]
    return members


def _submit(cluster: DriverCluster, number: int) -> str:
    """Submit a topology that waits for a slot; return its id."""
    archive = cluster.cluster.folder / "counting.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(SUBMITTED / "counting.py", "counting.py")
    name = f"waiting-{number}"
    settings = {"output": str(cluster.cluster.folder / name), "name": name}
    seeds = [nimbus.address for nimbus in cluster.cluster.nimbuses]
    with ClusterClient(seeds, TOKEN, PATIENCE_SECS) as client:
        return client.submit(Submission(name, name, "counting", settings=settings), archive).id


def _check(cluster: DriverCluster, running: list[str], acknowledged: list[str]) -> None:
    """See that all topologies are there and have their code, and that those with a driver have only one."""
    ids = sorted([*running, *acknowledged])
    state = cluster.cluster.state
    assert {name: topology.status.value for name, topology in state.topologies().items()} == dict.fromkeys(
        ids, "ACTIVE"
    )
    for nimbus in cluster.cluster.nimbuses:
        cluster.wait_for("each nimbus has all code", lambda nimbus=nimbus: nimbus.codes() == ids)
    drivers = [topology for supervisor in cluster.supervisors for topology in supervisor.drivers()]
    assert sorted(drivers) == sorted(running)
