"""The soak of the cluster's nimbuses: ``python -m tests.cluster --rounds 50``.

Plays the loss of a leader with its disk again and again, on a real ensemble of three ZooKeepers, and prints how long the
cluster was without a leader. Ends with an error in the first round in which anything does not hold.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import click

from tests.cluster.lost_leader import play
from txtopo.testing import running_ensemble


@click.command()
@click.option("--rounds", default=50, show_default=True, help="How often the leader is lost.")
def main(rounds: int) -> None:
    """Lose the leader and its disk, again and again."""
    with tempfile.TemporaryDirectory() as folder, running_ensemble(Path(folder) / "zookeeper") as ensemble:
        outcomes = []
        for number in range(1, rounds + 1):
            outcomes.append(play(ensemble.hosts, Path(folder) / str(number)))
            print(f"round {number}: {outcomes[-1]}", flush=True)
    times = sorted(each.leader_after_secs for each in outcomes)
    print(f"{rounds} rounds: a new leader after {statistics.median(times):.1f} s, at most {times[-1]:.1f} s")


if __name__ == "__main__":
    main()
