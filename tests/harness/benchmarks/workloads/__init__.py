"""Workloads by name: each takes a bench and returns an outcome."""

from collections.abc import Callable, Mapping

from tests.harness.benchmarks.measuring import Bench
from tests.harness.benchmarks.outcome import Outcome
from tests.harness.benchmarks.workloads.acked import acked, acked_latency
from tests.harness.benchmarks.workloads.beside_peers import medium, shuffled, small
from tests.harness.benchmarks.workloads.big_state import big_state
from tests.harness.benchmarks.workloads.dataframes import dataframes
from tests.harness.benchmarks.workloads.kafka import kafka, kafka_latency
from tests.harness.benchmarks.workloads.large import large
from tests.harness.benchmarks.workloads.large_commits import large_commits
from tests.harness.benchmarks.workloads.latency import latency, latency_keys, latency_real_time

WORKLOADS: Mapping[str, Callable[[Bench], Outcome]] = {
    "small": small,
    "acked": acked,
    "acked_latency": acked_latency,
    "medium": medium,
    "shuffled": shuffled,
    "kafka": kafka,
    "kafka_latency": kafka_latency,
    "large": large,
    "dataframes": dataframes,
    "latency": latency,
    "latency_real_time": latency_real_time,
    "latency_keys": latency_keys,
    "big_state": big_state,
    "large_commits": large_commits,
}
"""Every workload there is, quick ones first."""
