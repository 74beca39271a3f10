"""What a round runs and how its tables are judged: words, words with event times, or a large table of words."""

from tests.harness.soak.transactions.event_time import TimedJudge, timed_topology
from tests.harness.soak.transactions.large import LargeJudge, large_topology
from tests.harness.soak.transactions.oracle import Judge
from tests.harness.soak.transactions.topology import Setup, words_topology
from txtopo import Topology


def topology_of(setup: Setup) -> Topology:
    if setup.keys:
        return large_topology(setup)
    return timed_topology(setup) if setup.timed else words_topology(setup)


def judge_of(setup: Setup) -> Judge:
    if setup.keys:
        return LargeJudge(setup)
    return TimedJudge(setup) if setup.timed else Judge(setup)
