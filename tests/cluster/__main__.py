"""The soaks of a cluster, on a real ensemble of three ZooKeepers.

``python -m tests.cluster --rounds 50`` plays the loss of a leader with its disk again and again, and prints how long the
cluster was without a leader. ``python -m tests.cluster --kills 20`` kills drivers, supervisors and whole machines while a
topology commits, and prints how long it was until the next commit. Both end with an error in the first round in which
anything does not hold.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from pathlib import Path

import click

from tests.cluster import killed_drivers, lost_leader
from txtopo.testing import running_ensemble


@click.command()
@click.option("--rounds", type=int, help="How often the leader is lost; 50 if nothing is asked for.")
@click.option("--kills", default=0, show_default=True, help="How often a driver, supervisor or machine is killed.")
@click.option("--seed", type=int, help="Of the kills; drawn if not given.")
def main(rounds: int | None, kills: int, seed: int | None) -> None:
    """Lose leaders, or kill drivers, again and again."""
    rounds = (0 if kills else 50) if rounds is None else rounds
    with tempfile.TemporaryDirectory() as folder, running_ensemble(Path(folder) / "zookeeper") as ensemble:
        outcomes = []
        for number in range(1, rounds + 1):
            outcomes.append(lost_leader.play(ensemble.hosts, Path(folder) / str(number)))
            print(f"round {number}: {outcomes[-1]}", flush=True)
        if outcomes:
            times = sorted(each.leader_after_secs for each in outcomes)
            print(f"{rounds} rounds: a new leader after {statistics.median(times):.1f} s, at most {times[-1]:.1f} s")
        if kills:
            seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
            print(f"seed {seed}", flush=True)
            done = []
            for each in killed_drivers.play(ensemble.hosts, Path(folder) / "drivers", kills, seed):
                done.append(each)
                print(f"kill {len(done)}: {each}", flush=True)
            print(killed_drivers.report(done))


if __name__ == "__main__":
    main()
