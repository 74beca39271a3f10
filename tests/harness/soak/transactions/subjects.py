"""What a round runs and how its tables are judged: words, or words with event times."""

from __future__ import annotations

from tests.harness.soak.transactions.event_time import TimedJudge, timed_topology
from tests.harness.soak.transactions.oracle import Judge
from tests.harness.soak.transactions.topology import Setup, words_topology
from txtopo import Topology


def topology_of(setup: Setup) -> Topology:
    return timed_topology(setup) if setup.timed else words_topology(setup)


def judge_of(setup: Setup) -> Judge:
    return TimedJudge(setup) if setup.timed else Judge(setup)
