"""The soaks of a cluster, on a real ensemble of three ZooKeepers: ``python -m tests.cluster SCENARIO``.

Each scenario is described in a file of ``tests/cluster/scenarios``. All end with an error in the first round in which
anything does not hold, and print their seeds.
"""

import contextlib
import logging
import random
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from tests.cluster.scenarios import (
    killed_drivers,
    lost_leader,
    rolling_restart,
)
from txtopo.testing import ZooKeeperEnsemble, running_ensemble

SEED = click.option(
    "--seed", type=int, default=lambda: random.SystemRandom().randrange(1 << 32), help="Drawn if not given."
)


@click.group()
def main() -> None:
    """Kill parts of a cluster while it works."""
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # it tells of each attempt to connect


@contextlib.contextmanager
def _ensemble(tick_time_ms: int = 100) -> Iterator[tuple[ZooKeeperEnsemble, Path]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_ensemble(folder / "zookeeper", tick_time_ms=tick_time_ms) as ensemble:
            yield ensemble, folder


@main.command("lost-leader")
@click.option("--rounds", default=50, show_default=True, help="How often the leader is lost.")
def _lost_leader(rounds: int) -> None:
    """Lose the leader and its disk; print how long the cluster was without one."""
    with _ensemble() as (ensemble, folder):
        outcomes = []
        for number in range(1, rounds + 1):
            outcomes.append(lost_leader.play(ensemble.hosts, folder / str(number)))
            print(f"round {number}: {outcomes[-1]}", flush=True)
        times = sorted(outcome.leader_after_secs for outcome in outcomes)
        print(f"{rounds} rounds: a new leader after {statistics.median(times):.1f} s, at most {times[-1]:.1f} s")


@main.command("killed-drivers")
@click.option("--kills", default=20, show_default=True, help="How often a driver, supervisor or machine is killed.")
@SEED
def _killed_drivers(kills: int, seed: int) -> None:
    """Kill drivers, supervisors and machines while a topology commits; print the time until the next commit."""
    print(f"seed {seed}", flush=True)
    with _ensemble() as (ensemble, folder):
        done = []
        for each in killed_drivers.play(ensemble.hosts, folder / "drivers", kills, seed):
            done.append(each)
            print(f"kill {len(done)}: {each}", flush=True)
        print(killed_drivers.report(done))


@main.command("rolling-restart")
@click.option(
    "--rounds", default=3, show_default=True, help="How often each nimbus, supervisor and server is restarted."
)
@SEED
def _rolling_restart(rounds: int, seed: int) -> None:
    """Restart everything in turn while topologies commit and others are submitted."""
    print(f"seed {seed}", flush=True)
    with _ensemble(rolling_restart.TICK_MS) as (ensemble, folder):
        for number, each in enumerate(rolling_restart.play(ensemble, folder / "cluster", rounds, seed), start=1):
            print(f"restart {number}: {each}", flush=True)
        print("all tables are exact, and nothing that was submitted is lost")


if __name__ == "__main__":
    main()
